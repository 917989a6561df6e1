// What an operator may do to a message, or to all that a filter finds: each is said and confirmed before it happens.

import {ask} from './dialog.js'
import {h} from './dom.js'
import {choice, field, state} from './parts.js'
import {post} from './server.js'
import {localText, number, plural, utcText, zone} from './words.js'

const done = {requeue: 'requeued', cancel: 'canceled', reschedule: 'rescheduled', 'publish-now': 'made due now'}

const actions = {
  requeue: {name: 'Requeue', from: ['dead'], says: 'gets another life: its attempts and repairs start at 0, and it fires at its due time, at once if that is over.'},
  'publish-now': {name: 'Publish now', from: ['scheduled', 'published', 'dead'], says: 'becomes due now, and is published at once.'},
  reschedule: {name: 'Reschedule', from: ['scheduled', 'published', 'dead'], says: 'gets another due time. What the broker holds of it already is dropped when it arrives.'},
  cancel: {name: 'Cancel', from: ['scheduled', 'published', 'dead'], tone: 'bad', says: 'is withdrawn: it will have no effect. This cannot be undone.'},
}

/** buttons are the actions that a message's state allows; changed is called after one has happened. */
export const buttons = (message, changed, names = Object.keys(actions)) => names.filter((name) => actions[name].from.includes(message.state)).map((name) =>
  h('button', {type: 'button', class: actions[name].tone ?? '', 'data-action': name, 'aria-label': `${actions[name].name} message ${message.id}`, onclick: () => one(name, message, changed)}, actions[name].name))

async function one(name, message, changed) {
  const {name: title, tone, says} = actions[name]
  const after = await ask({
    title: `${title}?`,
    tone,
    confirm: title,
    content: [
      h('p', {class: 'subject'}, state(message.state), ' ', h('strong', {}, message.topic), ' ', h('code', {}, message.key || 'no key'), h('span', {class: 'muted'}, ` · ${message.id}`)),
      h('p', {}, `The message ${says}`),
      name === 'reschedule' && dueFields(),
    ],
    act: (form) => post(`messages/${message.id}/${name}`, name === 'reschedule' ? dueOf(form) : undefined),
  })
  if (after) changed(`Message ${message.id} has been ${done[name]}.`)
}

// A delay from now, or a time by the reader's clock.
function dueFields() {
  const delays = [['0s', 'Now'], ['1m', 'In a minute'], ['10m', 'In 10 minutes'], ['1h', 'In an hour'], ['24h', 'In a day'], ['', 'At a time …']]
  const select = choice('delay', delays, '10m')
  const at = h('input', {type: 'datetime-local', name: 'due_at', step: 1})
  const atField = field(`Time in ${zone}`, at)
  atField.hidden = true
  select.onchange = () => {
    atField.hidden = select.value !== ''
    at.required = select.value === ''
  }
  return h('div', {class: 'fields'}, field('New due time', select), atField)
}

function dueOf(form) {
  const {delay, due_at: at} = Object.fromEntries(new FormData(form))
  return delay === '' ? {due_at: new Date(at).toISOString()} : {delay}
}

const perCall = 1000 // messages that one request changes
const atOnce = 10_000 // messages that are counted and then changed
const looks = 20 // requests that count

/** bulk asks what to do with all that a filter finds, counts them, and does it once that has been confirmed. */
export async function bulk(filter, changed, names = Object.keys(actions)) {
  const chosen = await ask({
    title: 'Act on all that match',
    confirm: 'Count them first',
    content: [
      filterWords(filter),
      h('fieldset', {}, h('legend', {}, 'What to do with each'), names.map((name, i) => h('label', {class: 'radio'},
        h('input', {type: 'radio', name: 'action', value: name, checked: i === 0, autofocus: i === 0}), h('span', {}, h('strong', {}, actions[name].name), h('span', {class: 'block muted'}, `It ${actions[name].says}`))))),
      names.includes('reschedule') && whenChosen(),
    ],
    act: async (form) => {
      const action = new FormData(form).get('action')
      const body = {action, filter, ...(action === 'reschedule' ? dueOf(form) : {})}
      const counted = await through({...body, dry_run: true}, start(), atOnce, looks)
      if (counted.matched === 0) throw new Error(`${counted.more ? 'of those that were looked at, ' : ''}none is in a state for that (${actions[action].from.join(', ')})`)
      if (counted.matched === counted.protected) throw new Error(`the application does not let any of them: ${counted.why}`)
      return {body, ...counted}
    },
  })
  if (!chosen) return
  const {body, matched, more, protected: kept, why} = chosen
  const result = start(chosen.began_at) // a second try goes on where the first has failed
  const {name: title, tone, says} = actions[body.action]
  const confirmed = await ask({
    title: `${title} ${plural(matched - kept, 'message')}?`,
    tone,
    confirm: `${title} ${number(matched - kept)}`,
    content: [
      filterWords(filter),
      more && h('p', {}, `There are more than these, which are left alone for now.`),
      h('p', {}, `${matched - kept === 1 ? 'It' : 'Each of them'} ${says}`),
      kept > 0 && h('p', {class: 'warn'}, `${plural(kept, 'other')} that ${kept === 1 ? 'matches stays' : 'match stay'} as ${kept === 1 ? 'it is' : 'they are'}: ${why}.`),
      body.due_at && h('p', {}, 'New due time: ', h('time', {datetime: body.due_at, title: utcText(body.due_at)}, localText(Date.parse(body.due_at))), '.'),
      body.delay && h('p', {}, `New due time: ${body.delay === '0s' ? 'now' : `${body.delay} from now`}.`),
    ],
    act: () => through(body, result, matched - kept),
  })
  if (!confirmed) return
  changed([
    `${plural(result.changed, 'message')} ${result.changed === 1 ? 'has' : 'have'} been ${done[body.action]}.`,
    kept > 0 && `${plural(kept, 'other')} stayed: ${why}.`,
    matched - kept > result.changed && `${number(matched - kept - result.changed)} had changed meanwhile or were locked.`,
    more && 'There may be more: do it again.',
  ].filter(Boolean).join(' '))
}

// What came of a bulk so far; those that follow another one are over the same messages.
const start = (began_at) => ({matched: 0, changed: 0, protected: 0, why: null, more: true, next: '', ...(began_at && {began_at})})

// through does a bulk in as many requests as it takes, until it has changed so many messages, or would have, or all were seen.
async function through(body, sum, limit, calls = Infinity) {
  const done = () => body.dry_run ? sum.matched - sum.protected : sum.changed
  for (let left; sum.more && (left = limit - done()) > 0 && calls > 0; calls--) {
    const where = sum.began_at ? {began_at: sum.began_at, after: sum.next} : {}
    const found = await post('messages/bulk', {...body, ...where, limit: Math.min(perCall, left)})
    for (const name of ['matched', 'changed', 'protected']) sum[name] += found[name]
    sum.why ??= found.why
    sum.more = found.more
    sum.next = found.next
    sum.began_at = found.began_at
  }
  return sum
}

function whenChosen() {
  const fields = dueFields()
  fields.hidden = true
  queueMicrotask(() => {
    for (const radio of fields.closest('form').elements.action) radio.addEventListener('change', () => { fields.hidden = radio.value !== 'reschedule' })
  })
  return fields
}

const words = {topic: 'topic is', key: 'key is', key_prefix: 'key begins with', state: 'state is', due_from: 'due from', due_to: 'due before', error: 'error contains'}

/** filterWords says what a filter finds. */
export const filterWords = (filter) => h('ul', {class: 'filter'}, Object.entries(filter).map(([name, value]) =>
  h('li', {}, `${words[name]} `, h('strong', {}, name.startsWith('due_') ? localText(Date.parse(value)) : value))))
