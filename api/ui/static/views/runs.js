// Runs of the reconciler, and how one is started.

import {ask} from '../dialog.js'
import {h} from '../dom.js'
import {pages, state, table} from '../parts.js'
import {go, link} from '../route.js'
import {get, post} from '../server.js'
import {dash, duration, plural, when} from '../words.js'

/** runsView lists them, the newest first. */
export function runsView({query}, api) {
  return {
    title: 'Reconcile',
    name: 'runs',
    load: () => get('reconcile', {limit: 50, ...query}),
    render: ({runs, next}) => [
      h('div', {class: 'head'}, h('h1', {}, 'Reconcile'), h('button', {type: 'button', class: 'main', id: 'start', onclick: () => start(api)}, 'Start a run …')),
      h('p', {class: 'lead'}, 'A pass schedules again what the broker has lost. An audit also compares orders, stock and ledger. Workers make both by themselves; a run that is started here is made by one of them.'),
      table('Runs', [
        {name: 'State', class: 'state', cell: (r) => state(r.state)},
        {name: 'Run', class: 'name', cell: (r) => [h('a', {href: link(['runs', r.id])}, `${r.dry_run ? 'dry ' : ''}${r.kind} ${r.id}`), r.owner && h('span', {class: 'block muted'}, r.owner)]},
        {name: 'Began', class: 'when', cell: (r) => when(r.started_at ?? r.requested_at)},
        {name: 'Took', class: 'number', cell: (r) => took(r)},
        {name: 'Result', class: 'error-text', cell: runSummary},
      ], runs, (r) => r.id, h('p', {}, 'No run is on record.')),
      pages('runs', query, next),
    ].filter(Boolean),
  }
}

/** took is how long a run lasted. */
export const took = (run) => run.started_at && run.finished_at ? duration(Date.parse(run.finished_at) - Date.parse(run.started_at)) : dash()

/** runSummary is what came of a run, in a line. */
export function runSummary(run) {
  if (run.error) return h('span', {class: 'warn clamp', title: run.error}, run.error)
  if (run.state === 'requested') return 'no worker has begun it yet'
  if (!run.report) return run.state === 'running' ? 'under way' : dash()
  const {findings = {}, purged = 0, errors, left} = run.report
  const found = Object.entries(findings ?? {}).filter(([, f]) => f.found > 0)
  const parts = found.map(([kind, f]) => `${f.found} ${kind.replaceAll('_', ' ')}${f.mended ? `, ${f.mended} mended` : ''}`)
  if (purged > 0) parts.push(`${plural(purged, 'row')} ${run.dry_run ? 'to purge' : 'purged'}`)
  if (errors?.length) parts.push(plural(errors.length, 'error'))
  if (left?.length) parts.push(`${left.join(', ')} left to another process`)
  return parts.length ? parts.join(' · ') : h('span', {class: 'muted'}, 'nothing found')
}

async function start(api) {
  const asked = await ask({
    title: 'Start a run?',
    confirm: 'Start',
    content: [
      h('fieldset', {}, h('legend', {}, 'What it does'),
        h('label', {class: 'radio'}, h('input', {type: 'radio', name: 'kind', value: 'pass', checked: true, autofocus: true}), h('span', {}, h('strong', {}, 'Pass'), h('span', {class: 'block muted'}, 'Schedules again what should have taken effect and has not.'))),
        h('label', {class: 'radio'}, h('input', {type: 'radio', name: 'kind', value: 'audit'}), h('span', {}, h('strong', {}, 'Audit'), h('span', {class: 'block muted'}, 'A pass, and a comparison of orders, stock and ledger. It reads much, and takes longer.')))),
      h('label', {class: 'radio'}, h('input', {type: 'checkbox', name: 'dry'}), h('span', {}, h('strong', {}, 'Dry run'), h('span', {class: 'block muted'}, 'Reports what it would mend, and changes nothing.'))),
    ],
    act: (form) => {
      const data = new FormData(form)
      return post('reconcile', {audit: data.get('kind') === 'audit', dry_run: data.has('dry')})
    },
  })
  if (!asked) return
  api.say(`Run ${asked.id} is requested: a worker makes it.`)
  go(['runs', asked.id])
}
