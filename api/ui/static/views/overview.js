// How things are, the verdict first.

import {bars, chart, lines} from '../charts.js'
import {h, icon, svg} from '../dom.js'
import {stateText, table} from '../parts.js'
import {go, link} from '../route.js'
import {ago, clockText, count, dash, duration, minuteText, now, number, plural, rate, wholeSeconds, when} from '../words.js'
import {runSummary} from './runs.js'

/** overviewView shows the answer that the page's frame asks for anyway. */
export const overviewView = () => ({
  title: 'Overview',
  name: 'overview',
  tellsAway: true,
  render: (o, away) => [
    h('h1', {class: 'unseen'}, 'Overview'),
    verdict(o, away),
    counts(o),
    h('div', {class: 'grid'}, due(o), lateness(o), rates(o), reconcile(o)),
    workers(o),
  ],
})

function verdict({verdict: v, now: asked}, away) {
  if (away) {
    return h('section', {class: 'verdict away', role: 'alert', id: 'verdict'}, icon('away'), h('div', {},
      h('p', {class: 'headline'}, `${away.what} since ${clockText(away.since)}`),
      h('p', {}, `${capital(away.why)}. `, h('span', {'aria-hidden': 'true'}, `That was ${wholeSeconds(Date.now() - away.since)} ago. `), `The last verdict, from ${clockText(Date.parse(asked))}: ${localised(v.text)}. All figures below are from then.`)))
  }
  const [, headline, why] = /^(.*?)(?:(?:: |, but )(.*))?$/s.exec(localised(v.text))
  const past = new Date(now()).toISOString()
  return h('section', {class: `verdict ${v.ok ? 'ok' : v.late > 0 ? 'late' : 'bad'}`, role: 'status', id: 'verdict'}, icon(v.ok ? 'ok' : v.late > 0 ? 'late' : 'bad'), h('div', {},
    h('p', {class: 'headline'}, capital(headline)),
    why && h('p', {class: 'why'}, capital(why)),
    v.late > 0 && h('p', {class: 'links'}, 'Look at what is late: ',
      h('a', {href: link('messages', {state: 'scheduled', due_to: past})}, 'still waiting'), ' · ',
      h('a', {href: link('messages', {state: 'published', due_to: past})}, 'with the broker'))))
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1)

// A verdict speaks of times in UTC; here they are local, as all others.
const localised = (text) => text.replace(/\b(\d\d:\d\d) UTC/g, (_, time) => {
  const at = Date.parse(`${new Date(now()).toISOString().slice(0, 11)}${time}:00Z`)
  return minuteText(at > now() ? at - 86_400_000 : at)
})

const tiles = ['scheduled', 'published', 'done', 'canceled', 'dead', 'unrouted']

function counts({counts: found}) {
  return h('ul', {class: 'tiles', 'aria-label': 'Messages by state'}, tiles.map((name) => {
    const path = name === 'dead' || name === 'unrouted' ? link(name) : link('messages', {state: name})
    const attention = (name === 'dead' || name === 'unrouted') && found[name].count > 0
    return h('li', {'data-key': name}, h('a', {href: path, class: `tile ${attention ? 'attention' : ''} ${name === 'unrouted' ? 'kept' : ''}`, id: `count-${name}`},
      h('span', {class: `name state ${name}`}, h('span', {class: 'shape', 'aria-hidden': 'true'}), name),
      h('span', {class: 'figure', title: found[name].more ? `At least ${number(found[name].count)}: counting stops there` : null}, count(found[name])),
      h('span', {class: 'hint'}, name === 'unrouted' ? 'kept for an operator' : stateText(name))))
  }))
}

function due({due_next_hour: minutes}) {
  const values = minutes.map((m) => m.count)
  const total = values.reduce((a, b) => a + b, 0), more = minutes.some((m) => m.more)
  const span = (i) => `${minuteText(Date.parse(minutes[i].from))} to ${minuteText(Date.parse(minutes[i].from) + 60_000)}`
  const all = total === 0 ? 'Nothing is due in the next hour.' : `${count({count: total, more})} in the next hour`
  return chart('due', 'Due in the next hour', (width, index) => ({
    ...bars(width, 236, values, minutes.map((m, at) => ({at, text: minuteText(Date.parse(m.from))})).filter(({text}) => text.endsWith('0')), index,
      `Messages due in each of the next 60 minutes: ${all}`),
    says: index >= 0 && minutes[index] ? `${span(index)}: ${count(minutes[index])}` : all,
    head: ['Minute', 'Due'],
    rows: minutes.flatMap((m, i) => m.count > 0 ? [[h('a', {href: link('messages', window60(m))}, span(i)), count(m)]] : []),
  }), (index) => minutes[index]?.count > 0 && go('messages', window60(minutes[index])))
}

const window60 = ({from}) => ({due_from: from, due_to: new Date(Date.parse(from) + 60_000).toISOString()})

function lateness({lateness: l}) {
  const last = Math.max(l.buckets.findLastIndex((b) => b.count > 0), 3)
  const most = Math.max(...l.buckets.map((b) => b.count), 1)
  const says = l.of === 0 ? 'Nothing has finished lately.' : `${plural(l.of, 'message')} finished since ${clockText(Date.parse(l.since))}`
  return h('section', {class: 'card', id: 'lateness'}, h('div', {class: 'caption'}, h('h2', {}, 'Lateness'), h('p', {class: 'says'}, says)),
    l.of > 0 && h('p', {class: 'trio'}, [['Half within', l.p50_ms], ['99% within', l.p99_ms], ['The latest', l.max_ms]].map(([name, value]) =>
      h('span', {}, h('span', {class: 'muted'}, name), h('strong', {}, duration(value))))),
    h('table', {class: 'histogram'}, h('caption', {class: 'unseen'}, 'Messages by lateness'),
      h('thead', {class: 'unseen'}, h('tr', {}, h('th', {scope: 'col'}, 'Lateness'), h('th', {scope: 'col'}, 'Share'), h('th', {scope: 'col'}, 'Messages'))),
      h('tbody', {}, l.buckets.slice(0, last + 1).map(({le_ms: le, count: n}, i) => h('tr', {},
        h('th', {scope: 'row'}, le === null ? `over ${duration(l.buckets[i - 1]?.le_ms ?? 0)}` : `≤ ${duration(le)}`),
        h('td', {class: 'share'}, svg('svg', {width: '100%', height: 10, 'aria-hidden': 'true'},
          svg('rect', {class: 'back', width: '100%', height: 10, rx: 3}), n > 0 && svg('rect', {class: 'bar', width: `${Math.max((n / most) * 100, 1)}%`, height: 10, rx: 3}))),
        h('td', {class: 'number'}, number(n)))))))
}

function rates(o) {
  const points = o.rates
  const series = [{name: 'published', values: points.map((p) => p.published_per_s)}, {name: 'finished', values: points.map((p) => p.finished_per_s)}]
  const figures = (p) => [['published', p.published_per_s], ['finished', p.finished_per_s]].map(([name, value]) =>
    h('span', {class: 'key'}, svg('svg', {width: 18, height: 8, 'aria-hidden': 'true'}, svg('line', {class: `line ${name}`, x1: 0, x2: 18, y1: 4, y2: 4})), `${name} ${rate(value)}`))
  if (points.length === 0) {
    return h('figure', {id: 'rates', class: 'card'}, h('figcaption', {}, h('h2', {}, 'Per second'), h('p', {class: 'says'}, o.workers.length > 0 ? 'Known in some seconds.' : 'No worker is there to count.')))
  }
  return chart('rates', 'Per second', (width, index) => {
    const p = points[index] ?? points[points.length - 1]
    return {
      ...lines(width, 150, series, points.map((point, at) => ({at, text: minuteText(Date.parse(point.at))})).filter(({text}, i, all) => i > 0 && text !== all[i - 1].text && /[02468]$/.test(text)), index,
        `Messages per second over the last minutes. Now published ${rate(p.published_per_s)}, finished ${rate(p.finished_per_s)}`),
      says: [h('span', {class: 'muted'}, points[index] ? clockText(Date.parse(p.at)) : 'now'), figures(p)],
      head: ['At', 'Published', 'Finished'],
      rows: points.toReversed().map((point) => [clockText(Date.parse(point.at)), rate(point.published_per_s), rate(point.finished_per_s)]),
    }
  })
}

function reconcile({reconcile: {last_pass: pass, last_audit: audit}}) {
  const row = (name, run, none) => h('div', {class: 'last'}, h('h3', {}, name), run
    ? h('p', {}, h('a', {href: link(['runs', run.id])}, ago(run.finished_at)), h('span', {class: 'block'}, runSummary(run)))
    : h('p', {class: 'muted'}, none))
  return h('section', {class: 'card', id: 'reconcile'}, h('div', {class: 'caption'}, h('h2', {}, 'Last reconcile'), h('p', {class: 'says'}, h('a', {href: link('runs')}, 'All runs'))),
    row('Pass', pass, 'No pass has been completed yet.'), row('Audit', audit, 'No audit has been completed yet.'))
}

function workers({workers: all}) {
  return h('section', {class: 'workers', id: 'workers'}, h('h2', {}, 'Workers'), table('Workers', [
    {name: 'Worker', class: 'name', cell: (w) => [h('strong', {}, w.owner), h('span', {class: w.alive ? 'block muted' : 'block warn'}, w.alive ? 'seen ' : 'gone? Last seen ', ago(w.seen_at))]},
    {name: 'Strategy', cell: (w) => w.strategy ? [w.strategy, w.why && h('span', {class: 'block muted'}, w.why)] : dash()},
    {name: 'Epoch', class: 'number', cell: (w) => w.strategy ? number(w.epoch) : dash()},
    {name: 'Broker', cell: (w) => connection(w)},
    {name: 'Queues', cell: (w) => w.alive && w.queues?.length ? h('ul', {class: 'rows'}, w.queues.map((q) => h('li', {}, h('code', {}, q.topic),
      ` ${number(q.ready)} ready, `, h('span', {class: q.consumers > 0 ? '' : 'warn'}, plural(q.consumers, 'consumer'))))) : dash()},
  ], all, (w) => w.owner, [h('p', {}, h('strong', {}, 'No worker has been seen.')), h('p', {}, 'Without one nothing is published and nothing takes effect. Start one with ', h('code', {}, 'duebox worker'), '.')]))
}

function connection(w) {
  const since = w.since && [' since ', when(w.since, {relative: false})]
  if (!w.alive) return h('span', {class: 'muted'}, 'not known')
  if (!w.connected) return [h('span', {class: 'warn'}, icon('away'), 'not connected', since), w.reason && h('span', {class: 'block muted'}, w.reason)]
  if (w.blocked) return [h('span', {class: 'warn'}, icon('late'), 'blocked by the broker', since), w.reason && h('span', {class: 'block muted'}, w.reason)]
  return h('span', {class: 'fine'}, icon('ok'), 'connected', since)
}
