// One message: what it is, what may be done with it, and its story in the order in which it happened.

import {buttons} from '../actions.js'
import {h} from '../dom.js'
import {facts, state, stateText} from '../parts.js'
import {link} from '../route.js'
import {get} from '../server.js'
import {dash, duration, late, number, plural, when} from '../words.js'

// The topics of the order service, whose keys are the numbers of orders.
const ordersTopics = ['order.expire', 'order.remind']

/** messageView is the view of the message with this id. */
export const messageView = ({id}, api) => ({
  title: `Message ${id}`,
  name: 'message',
  load: () => get(`messages/${encodeURIComponent(id)}`),
  render: ({message: m, story}) => [
    h('p', {class: 'crumbs'}, h('a', {href: link('messages')}, 'Messages'), h('span', {'aria-hidden': 'true'}, ' / '), m.topic),
    h('div', {class: 'head'},
      h('h1', {class: 'key'}, m.key || `Message ${m.id}`),
      h('div', {class: 'buttons', id: 'actions'}, buttons(m, (what) => {
        api.say(what)
        api.again()
      }))),
    h('p', {class: 'now', id: 'state'}, state(m.state), h('span', {class: 'muted'}, stateText(m.state)), h('span', {}, h('span', {class: 'muted'}, 'due '), when(m.due_at))),
    h('div', {class: 'grid'},
      h('section', {class: 'card', id: 'story'}, h('h2', {}, 'Its story'),
        h('ol', {class: 'story'}, story.map((event) => h('li', {class: tones[event.what] ?? ''},
          h('span', {class: 'what'}, event.what, event.actor && h('span', {class: 'muted'}, ` by ${event.actor}`)),
          h('span', {class: 'at'}, when(event.at, {precise: true}), lateBy(event.lateness_ms)),
          event.detail && h('span', {class: 'detail'}, event.detail))))),
      h('section', {class: 'card', id: 'facts'}, h('h2', {}, 'What is known'),
        facts(
          ['Due', when(m.due_at)],
          m.available_at && [['done', 'canceled'].includes(m.state) ? 'Kept until' : 'Looked at next', when(m.available_at)],
          ['Lateness', late(m)],
          ['Id', h('code', {}, m.id)],
          ['Topic', h('a', {href: link('messages', {topic: m.topic})}, m.topic)],
          ['Key', m.key ? h('code', {class: 'key'}, m.key) : dash()],
          m.key && ordersTopics.includes(m.topic) && ['Order', h('a', {href: link(['orders', m.key])}, 'Go to the order')],
          ['Generation', number(m.generation)],
          ['Published', m.publishes === 1 ? 'once' : `${number(m.publishes)} times`],
          ['Failed', plural(m.attempts, 'attempt')],
          ['Repaired', m.repairs === 1 ? 'once' : `${number(m.repairs)} times`],
          ['Followed', m.tracked ? 'until its effect is committed' : 'until the broker’s confirm only'],
        ),
        h('p', {}, h('a', {href: link('audit', {message_id: m.id})}, 'Who did what to it')))),
    m.last_error && h('section', {class: 'card'}, h('h2', {}, 'Last error'), h('pre', {class: 'wrap', id: 'error'}, m.last_error)),
    h('section', {class: 'card', id: 'payload'}, h('div', {class: 'caption'}, h('h2', {}, 'Payload'), h('p', {class: 'says'}, `${m.content_type || 'no content type'}, ${number(m.payload_bytes)} bytes`)), payload(m)),
    Object.keys(m.headers).length > 0 && h('section', {class: 'card'}, h('h2', {}, 'Headers'),
      facts(...Object.entries(m.headers).map(([name, value]) => [name, h('code', {class: 'key'}, String(value))]))),
  ].filter(Boolean),
})

const tones = {
  enqueued: 'begin', due: 'due', finished: 'good', 'attempt failed': 'bad', died: 'bad', repaired: 'warn', 'put off': 'warn', next: 'next',
  canceled: 'end', requeued: 'act', rescheduled: 'act', 'published now': 'act',
}

function lateBy(millis) {
  if (millis === null || millis === undefined) return null
  return h('span', {class: millis > 60_000 ? 'warn' : 'muted'}, millis < 0 ? `${duration(-millis)} before its time` : `${duration(millis)} late`)
}

const shown = 64 << 10 // bytes of a payload that the server sends

function payload(m) {
  if (m.payload_bytes === 0) return h('p', {class: 'muted'}, 'It has none.')
  const text = m.payload === null ? m.payload_base64 : pretty(m.payload, m.content_type)
  return [m.payload === null && h('p', {class: 'muted'}, 'It is no text: base64.'), m.payload_bytes > shown && h('p', {class: 'muted'}, 'Its beginning:'),
    h('pre', {class: 'wrap scroll', tabindex: 0}, text)]
}

// JSON that is written in one line is written in many; numbers stay as they are, so that none is rounded.
function pretty(text, type) {
  if (!/json/.test(type ?? '') || /\d{16}|\d\.\d{15}/.test(text)) return text
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}
