// One run of the reconciler: what it looked at, found and mended.

import {h} from '../dom.js'
import {facts, state, stateText, table} from '../parts.js'
import {link} from '../route.js'
import {get} from '../server.js'
import {dash, number, when} from '../words.js'
import {took} from './runs.js'

/** runView is the view of the run with this id. */
export const runView = ({id}) => ({
  title: `Run ${id}`,
  name: 'run',
  load: () => get(`reconcile/${encodeURIComponent(id)}`),
  render: (run) => {
    const report = run.report ?? {}
    return [
      h('p', {class: 'crumbs'}, h('a', {href: link('runs')}, 'Reconcile'), h('span', {'aria-hidden': 'true'}, ' / '), run.kind),
      h('h1', {}, `${run.dry_run ? 'Dry ' : ''}${run.kind} ${run.id}`),
      h('p', {class: 'now', id: 'state'}, state(run.state), h('span', {class: 'muted'}, stateText(run.state))),
      h('section', {class: 'card', id: 'facts'}, h('h2', {}, 'What is known'),
          facts(['Asked for', when(run.requested_at)], ['Began', when(run.started_at)], ['Ended', when(run.finished_at)], ['Took', took(run)], ['By', run.owner ?? dash()],
          ...Object.entries(report.looked ?? {}).map(([what, n]) => [`Looked at: ${what.replaceAll('_', ' ')}`, number(n)]),
          report.purged > 0 && ['Purged', number(report.purged)])),
      (run.error || report.errors?.length > 0) && h('section', {class: 'card'}, h('h2', {}, 'Errors'), h('pre', {class: 'wrap'}, [run.error, ...(report.errors ?? [])].filter(Boolean).join('\n'))),
      h('h2', {class: 'above'}, 'Findings'),
      table('Findings', [
        {name: 'Finding', class: 'name', cell: ([kind]) => h('strong', {}, kind.replaceAll('_', ' '))},
        {name: 'Found', class: 'number', cell: ([, f]) => number(f.found)},
        {name: 'Mended', class: 'number', cell: ([, f]) => number(f.mended ?? 0)},
        {name: 'Which', class: 'ids', cell: ([kind, f]) => which(kind, f.ids ?? [], f.found)},
      ], Object.entries(report.findings ?? {}), ([kind]) => kind, h('p', {}, run.report ? 'Nothing was found.' : 'It has not ended yet.')),
    ].filter(Boolean)
  },
})

// Ids are those of messages, but for findings about something else.
function which(kind, ids, found) {
  const place = kind.startsWith('order_') ? (id) => link(['orders', id]) : ['stock', 'reserved'].includes(kind) ? null : kind === 'kept' ? () => link('unrouted') : (id) => link(['messages', id])
  return [ids.map((id, i) => [i > 0 && ', ', place ? h('a', {href: place(id)}, id) : h('code', {}, id)]), found > ids.length && h('span', {class: 'muted'}, ` and ${number(found - ids.length)} more`)]
}
