// What is around every view: the verdict in one line, whether it is of now, the way to the other views, and who is logged in.

import {h, icon, morph} from './dom.js'
import {here} from './route.js'
import {clockText, count} from './words.js'

const top = document.getElementById('top')
const side = document.getElementById('nav')

const places = [
  ['', 'Overview'],
  ['messages', 'Messages'],
  ['orders', 'Orders'],
  ['runs', 'Reconcile'],
  ['dead', 'Dead'],
  ['unrouted', 'Unrouted'],
  ['audit', 'Audit'],
]

let open = false // the menu, where there is room for one thing at a time

window.addEventListener('hashchange', () => { open = false })
window.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || !open) return
  unfold(false)
  document.getElementById('menu').focus()
})

export const nav = {
  /** verdict is the shortest true thing to say, for the tab's title. */
  verdict(overview, away) {
    if (away) return 'No answer'
    if (!overview) return ''
    if (overview.verdict.ok) return 'On time'
    const {verdict, counts} = overview
    if (verdict.late > 0) return `${count({count: verdict.late, more: verdict.more})} late`
    return counts.dead.count > 0 ? `${count(counts.dead)} dead` : 'Look here'
  },
}

/** frame draws it. Without a session there is the name only. */
export function frame({session, overview, away, answered, logOut}) {
  document.body.classList.toggle('open', Boolean(session))
  morph(top, [
    h('a', {class: 'brand', href: '#/'}, mark(), 'duebox'),
    session && verdict(overview, away),
    session && h('p', {class: `live ${away ? 'away' : ''}`, title: 'When the figures on this page were asked for last'},
      h('span', {class: 'dot', 'aria-hidden': 'true'}), away ? 'no answer' : 'live', h('span', {class: 'at'}, clockText(answered))),
    session && h('p', {class: 'who'}, session.name, session.login_required && h('button', {type: 'button', class: 'plain', onclick: logOut}, 'Log out')),
    session && h('button', {type: 'button', id: 'menu', class: 'plain', 'aria-expanded': String(open), 'aria-controls': 'nav', 'aria-label': 'Menu', onclick: () => unfold(!open)}, icon(open ? 'close' : 'menu')),
  ].filter(Boolean))
  side.classList.toggle('unfolded', open)
  side.hidden = !session
  const at = here().path[0] ?? ''
  morph(side, session ? [h('ul', {}, places.map(([path, name]) => h('li', {},
    h('a', {href: `#/${path}`, 'aria-current': at === path && 'page', onclick: () => unfold(false)}, name, waiting(overview?.counts[path])))))] : [])
}

function unfold(wanted) {
  open = wanted
  side.classList.toggle('unfolded', open)
  document.getElementById('menu').setAttribute('aria-expanded', String(open))
  morph(document.getElementById('menu'), [icon(open ? 'close' : 'menu')])
}

// Only what waits for a person is counted beside its name.
function waiting(found) {
  if (!found || (found.count === 0 && !found.more)) return null
  return h('span', {class: 'badge'}, count(found), h('span', {class: 'unseen'}, ' waiting for an operator'))
}

function verdict(overview, away) {
  const [name, text] = away ? ['away', 'unknown'] : !overview ? ['away', '…'] : overview.verdict.ok ? ['ok', 'on time'] : [overview.verdict.late > 0 ? 'late' : 'bad', nav.verdict(overview)]
  return h('a', {class: `pill ${name}`, href: '#/'}, icon(name), h('span', {class: 'unseen'}, 'Verdict: '), text)
}

const mark = () => {
  const image = h('img', {src: 'icon.svg', alt: '', width: 22, height: 22})
  return image
}

// They are part of this file because a server that is away sends none.
const drawn = (colour, path) => `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect x="2" y="2" width="28" height="28" rx="8" fill="${colour}"/><path d="${path}" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" stroke-linejoin="round"/></svg>`)}`
const icons = {
  late: drawn('#b4470f', 'M16 8v9.5M16 23.4v.1'),
  away: drawn('#5b6672', 'M12.5 13a3.5 3.5 0 1 1 5 3.2c-1 .5-1.5 1.2-1.5 2.3M16 23.4v.1'),
}

/** favicon makes the browser's tab tell how things are. */
export function favicon(overview, away) {
  const wanted = away ? icons.away : !overview || overview.verdict.ok ? 'icon.svg' : icons.late
  const element = document.getElementById('favicon')
  if (element.getAttribute('href') !== wanted) element.setAttribute('href', wanted)
}
