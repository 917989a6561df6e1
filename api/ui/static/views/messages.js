// Messages by topic, key, state, due window and error text.

import {bulk} from '../actions.js'
import {h} from '../dom.js'
import {choice, field, given, pages, state, table, text} from '../parts.js'
import {go, link} from '../route.js'
import {get} from '../server.js'
import {clockText, dash, late, number, when, zone} from '../words.js'

const most = 50 // rows of a page
const steps = 8 // answers that one search reads before it asks whether to go on

/** messagesView searches; its filter and page are its address. */
export function messagesView({query}, api) {
  const {after = '', ...filter} = query
  let scanned = false
  return {
    title: 'Messages',
    name: 'messages',
    // What no index finds is not asked for again and again.
    load: async () => {
      const found = await search(filter, after)
      scanned = found.answers > 1 || (found.messages.length < most && found.next !== '')
      return found
    },
    still: () => scanned,
    render: ({messages, next, at}) => [
      h('div', {class: 'head'}, h('h1', {}, 'Messages'),
        Object.keys(filter).length > 0 && messages.length > 0 && h('button', {type: 'button', id: 'bulk', onclick: () => bulk(filter, (what) => {
          api.say(what)
          api.again()
        })}, 'Act on all that match …')),
      form(filter),
      scanned && h('p', {class: 'notice calm', id: 'asof'}, `As of ${clockText(at)}: a search like this reads row by row and is not repeated by itself. `,
        next !== '' && 'It has looked through a part of the ledger; the next page goes on from there. ',
        h('button', {type: 'button', class: 'plain', onclick: api.refresh}, 'Search again')),
      table('Messages', Object.values(columns), messages, (m) => m.id, h('p', {}, next ? 'Nothing in the part that was looked through. The next page goes on.' : Object.keys(filter).length ? 'No message matches.' : 'There are no messages.')),
      pages('messages', query, next),
    ].filter(Boolean),
  }
}

/** search reads a page; where a filter is served in short answers, it reads on until there is a row to show. */
export async function search(filter, after, limit = most) {
  let answer = await get('messages', {...filter, limit, after}), answers = 1
  const messages = answer.messages
  while (messages.length < limit && answer.next && answers < steps) {
    answer = await get('messages', {...filter, limit: limit - messages.length, after: answer.next})
    messages.push(...answer.messages)
    answers++
  }
  return {messages, next: answer.next, answers, at: Date.now()}
}

/** columns of a list of messages; each row leads to its story. */
export const columns = {
  state: {name: 'State', class: 'state', cell: (m) => state(m.state)},
  message: {name: 'Message', class: 'name', cell: (m) => [h('a', {href: link(['messages', m.id]), class: 'key clamp', title: m.key}, m.key || `no key (${m.id})`), h('span', {class: 'block muted'}, m.topic)]},
  due: {name: 'Due', class: 'when', cell: (m) => when(m.due_at)},
  late: {name: 'Late', class: 'number', cell: late},
  trouble: {name: 'Trouble', class: 'trouble', cell: trouble},
  error: {name: 'Last error', class: 'error-text', cell: (m) => m.last_error ? h('span', {class: 'clamp', title: m.last_error}, m.last_error) : dash()},
}

// What has gone wrong so far, if anything has.
function trouble({attempts, repairs}) {
  const parts = [attempts > 0 && `${number(attempts)} failed`, repairs > 0 && `${number(repairs)} repaired`].filter(Boolean)
  return parts.length ? parts.map((part) => h('span', {class: 'part'}, part)) : dash()
}

function form(filter) {
  const prefix = filter.key_prefix !== undefined
  const search = h('form', {
    class: 'search', role: 'search', 'aria-label': 'Messages',
    onsubmit: (event) => {
      event.preventDefault()
      const {how, key, id, due_from: from, due_to: to, ...rest} = given(event.currentTarget)
      if (id) return go(['messages', id])
      go('messages', {
        ...rest, [how === 'prefix' ? 'key_prefix' : 'key']: key,
        due_from: from && new Date(from).toISOString(), due_to: to && new Date(to).toISOString(),
      })
    },
  },
  h('div', {class: 'fields'},
    field('Topic', text('topic', filter.topic)),
    h('div', {class: 'pair'}, field('Key', choice('how', [['is', 'is'], ['prefix', 'begins with']], prefix ? 'prefix' : 'is')),
      h('div', {class: 'field'}, h('label', {for: 'field-key', class: 'unseen'}, 'Key text'), text('key', filter.key ?? filter.key_prefix ?? '', {id: 'field-key'}))),
    field('State', choice('state', [['', 'any'], ...['scheduled', 'published', 'done', 'canceled', 'dead'].map((s) => [s, s])], filter.state)),
    field('Error contains', text('error', filter.error)),
    field('Due from', h('input', {type: 'datetime-local', name: 'due_from', step: 1, value: localInput(filter.due_from), title: `Time in ${zone}`})),
    field('Due before', h('input', {type: 'datetime-local', name: 'due_to', step: 1, value: localInput(filter.due_to), title: `Time in ${zone}`})),
    field('Id', text('id', '', {inputmode: 'numeric', pattern: '[0-9]+', title: 'A whole number'}))),
  h('div', {class: 'buttons'}, h('a', {class: 'button plain', href: link('messages')}, 'Clear'), h('button', {type: 'submit', class: 'main'}, 'Search')))
  return h('details', {class: 'card filters', open: Object.keys(filter).length > 0 || window.innerWidth > 700, id: 'filters'}, h('summary', {}, 'Search'), search)
}

// A stamp as an input of local time wants it.
function localInput(stamp) {
  if (!stamp) return ''
  const at = new Date(stamp)
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}
