// Times, durations and numbers as they are read at night: local and relative, with UTC to the microsecond behind them. All
// "in" and "ago" are by the database's clock, which decides what is late, and not by that of the reader's machine.

import {h} from './dom.js'

let ahead = 0 // the database's clock minus ours, in milliseconds

/** learnNow takes the time that an answer was made at. */
export function learnNow(stamp) {
  ahead = Date.parse(stamp) - Date.now()
}

/** now is the time by the database's clock, in milliseconds since 1970. */
export const now = () => Date.now() + ahead

const clock = new Intl.DateTimeFormat('en-GB', {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'})
const shortClock = new Intl.DateTimeFormat('en-GB', {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'})
const day = new Intl.DateTimeFormat('en-GB', {day: 'numeric', month: 'short'})
const year = new Intl.DateTimeFormat('en-GB', {day: 'numeric', month: 'short', year: 'numeric'})

/** zone is the name of the reader's time zone. */
export const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone

/** clockText is a time of day, to the second. */
export const clockText = (millis) => clock.format(millis)

/** minuteText is a time of day, to the minute. */
export const minuteText = (millis) => shortClock.format(millis)

/** localText is a time in the reader's zone; a date is part of it unless that is today. */
export function localText(millis, {precise = false} = {}) {
  const at = new Date(millis), today = new Date(now())
  const time = precise ? `${clock.format(at)}.${String(at.getMilliseconds()).padStart(3, '0')}` : clock.format(at)
  if (at.toDateString() === today.toDateString()) return time
  return `${(at.getFullYear() === today.getFullYear() ? day : year).format(at)}, ${time}`
}

/** utcText is a stamp of the API as a person reads it, with everything that it says. */
export const utcText = (stamp) => stamp.replace('T', ' ').replace('Z', ' UTC')

/** when shows a stamp of the API: local time, and how far away that is, which tick keeps true. Null is a dash. */
export function when(stamp, {relative = true, precise = false} = {}) {
  if (!stamp) return dash()
  const at = Date.parse(stamp)
  return h('time', {datetime: stamp, title: utcText(stamp)}, localText(at, {precise}),
    relative && h('span', {class: 'relative', 'data-at': at}, relativeText(at)))
}

/** ago shows only how far away a stamp is. */
export const ago = (stamp) => stamp
  ? h('time', {datetime: stamp, title: `${localText(Date.parse(stamp))} here, ${utcText(stamp)}`, 'data-at': Date.parse(stamp)}, relativeText(Date.parse(stamp)))
  : dash()

/** dash stands for what is not there. */
export const dash = () => h('span', {class: 'none'}, h('span', {'aria-hidden': 'true'}, '–'), h('span', {class: 'unseen'}, 'none'))

/** late is how late a message took effect, or already is without having: text that tick keeps true, or a dash. */
export function late(message) {
  if (message.lateness_ms !== null) return duration(message.lateness_ms)
  const from = Math.max(Date.parse(message.due_at), Date.parse(message.created_at))
  return ['scheduled', 'published', 'dead'].includes(message.state) && lateSince(from) || dash()
}

/** lateSince is how long ago a time was by which something should have happened; nothing before the five seconds from which that is late. */
export const lateSince = (millis) => now() - millis >= 5000 && h('span', {class: 'warn', title: 'so far', 'data-late': millis}, duration(now() - millis))

/** tick brings every relative time on the page up to date. */
export function tick() {
  for (const element of document.querySelectorAll('[data-at]')) {
    const text = relativeText(Number(element.dataset.at))
    if (element.textContent !== text) element.textContent = text
  }
  for (const element of document.querySelectorAll('[data-late]')) element.textContent = duration(now() - Number(element.dataset.late))
}

/** relativeText says how far a time is from now. */
export function relativeText(millis) {
  const away = millis - now()
  if (Math.abs(away) < 1000) return 'now'
  return away > 0 ? `in ${duration(away)}` : `${duration(-away)} ago`
}

/** duration is a length of time in milliseconds in one or two units. */
export function duration(millis) {
  if (millis < 0) return `−${duration(-millis)}`
  if (millis < 10) return `${round(millis, 1)} ms`
  if (millis < 1000) return `${Math.round(millis)} ms`
  if (millis < 10_000) return `${round(Math.floor(millis / 100) / 10, 1)} s`
  const seconds = Math.floor(millis / 1000)
  const units = [['d', 86_400], ['h', 3600], ['min', 60], ['s', 1]]
  const first = units.findIndex(([, size]) => seconds >= size)
  const [unit, size] = units[first]
  const rest = units[first + 1]
  const text = `${Math.floor(seconds / size)} ${unit}`
  const more = rest ? Math.floor((seconds % size) / rest[1]) : 0
  return more > 0 && seconds < size * 10 ? `${text} ${more} ${rest[0]}` : text
}

/** wholeSeconds is a duration that is read as it grows. */
export const wholeSeconds = (millis) => millis < 1000 ? 'a moment' : duration(Math.max(1, Math.floor(millis / 1000)) * 1000).replace('.0', '')

const round = (n, digits) => String(Number(n.toFixed(digits)))

const grouped = new Intl.NumberFormat('en-US')

/** number is a whole number with its thousands apart. */
export const number = (n) => grouped.format(n)

/** count is a number that may stand for more: counting stops where it would cost too much. */
export const count = ({count: n, more}) => more ? `${grouped.format(n)}+` : grouped.format(n)

/** plural is a number and what it counts. */
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`

/** rate is a number per second. */
export const rate = (n) => n >= 100 ? number(Math.round(n)) : n >= 10 ? n.toFixed(1).replace('.0', '') : String(Number(n.toFixed(2)))
