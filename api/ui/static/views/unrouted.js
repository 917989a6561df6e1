// Deliveries that no handler could be given: malformed, of another ledger, or of a topic that no queue was bound for.

import {h} from '../dom.js'
import {pages, table} from '../parts.js'
import {link} from '../route.js'
import {get} from '../server.js'
import {dash, when} from '../words.js'

const reasons = {
  unrouted: 'no queue was bound for its topic', foreign: 'it belongs to another ledger', unknown: 'the ledger does not know it', malformed: 'it could not be read',
}

/** unroutedView lists them, the newest first. */
export const unroutedView = ({query}) => ({
  title: 'Unrouted',
  name: 'unrouted',
  load: () => get('unrouted', {limit: 50, ...query}),
  render: ({deliveries, next}) => [
    h('h1', {}, 'Unrouted'),
    h('p', {class: 'lead'}, 'What came back from the broker and could be given to no handler is kept here. A message of this ledger that found no queue has been scheduled again besides; the rest is for you to judge.'),
    table('Unrouted deliveries', [
      {name: 'Kept', class: 'when', cell: (d) => when(d.kept_at)},
      {name: 'Reason', cell: (d) => [h('strong', {}, d.reason), h('span', {class: 'block muted'}, reasons[d.reason] ?? '')]},
      {name: 'Topic', class: 'name', cell: (d) => [d.topic ? h('code', {class: 'key'}, d.topic) : dash(), h('span', {class: 'block muted key'}, ownMessage(d))]},
      {name: 'Detail', class: 'error-text', cell: (d) => d.detail || dash()},
      {name: 'Contents', class: 'contents', cell: contents},
    ], deliveries, (d) => d.id, h('p', {}, 'Every delivery has found its handler. Nothing to do here.')),
    pages('unrouted', query, next),
  ].filter(Boolean),
})

// An id on the wire is <store>-<id>; of this ledger only if it was the queue that was missing.
function ownMessage(d) {
  const id = d.reason === 'unrouted' && /-(\d+)$/.exec(d.message_id ?? '')?.[1]
  return id ? h('a', {href: link(['messages', id])}, `message ${id}`) : d.message_id ?? ''
}

function contents(d) {
  const parts = [['Headers', d.headers], [d.payload === null ? 'Payload, as base64' : 'Payload', d.payload ?? d.payload_base64]].filter(([, value]) => value !== null && value !== '')
  if (parts.length === 0) return dash()
  return h('details', {}, h('summary', {}, 'Show'), parts.map(([name, value]) => [h('p', {class: 'muted'}, name), h('pre', {class: 'wrap scroll', tabindex: 0}, typeof value === 'string' ? value : JSON.stringify(value, null, 2))]))
}
