// Drawings of a few numbers: as wide as their place, with what is under the pointer said in words, and as a table for whoever
// prefers to read it.

import {h, morph, svg} from './dom.js'

const picked = new Map() // by chart: the index under the pointer

/**
 * chart is a figure. draw(width, index) returns {drawing, says, head, rows, nearest}: an svg, what it says in one line (of the index under the pointer, if
 * there is one), a table of the same, and the index that is nearest to a place on the x axis.
 */
export function chart(id, title, draw, pick) {
  const width = document.getElementById(id)?.querySelector('.plot')?.clientWidth || 560
  const {drawing, says, head, rows, nearest} = draw(width, picked.get(id) ?? -1)
  const again = () => {
    const figure = document.getElementById(id)
    if (figure) morph(figure, chart(id, title, draw, pick).childNodes)
  }
  const move = (event) => {
    const index = nearest(event.clientX - event.currentTarget.getBoundingClientRect().left)
    if (picked.get(id) === index) return
    picked.set(id, index)
    again()
  }
  return h('figure', {id, class: 'card'},
    h('figcaption', {}, h('h2', {}, title), h('p', {class: 'says'}, says)),
    h('div', {
      class: pick ? 'plot pickable' : 'plot', onpointermove: nearest && move, onclick: pick && ((event) => pick(nearest(event.clientX - event.currentTarget.getBoundingClientRect().left))),
      onpointerleave: () => {
        picked.delete(id)
        again()
      },
    }, drawing),
    rows.length > 0 && h('details', {}, h('summary', {}, 'As a table'), h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `${title}, as a table`},
      h('table', {}, h('thead', {}, h('tr', {}, head.map((text) => h('th', {scope: 'col'}, text)))),
        h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', {}, cell)))))))))
}

const left = 34, right = 6, top = 8, bottom = 20 // room for labels, in pixels

/** bars draws one bar for each value, with labels {at: index, text} below. */
export function bars(width, height, values, labels, index, name) {
  const most = ceiling(Math.max(...values, 1))
  const step = (width - left - right) / values.length
  const base = height - bottom
  const y = (value) => base - (value / most) * (base - top)
  return {
    drawing: frame(width, height, name, most, y, labels.map(({at, text}) => ({x: left + at * step, text})),
      index >= 0 && index < values.length && svg('rect', {class: 'under', x: left + index * step, y: top, width: step, height: base - top}),
      values.map((value, i) => value > 0 && svg('rect', {
        class: i === index ? 'bar on' : 'bar', x: left + i * step + step * 0.14, width: Math.max(step * 0.72, 1),
        y: Math.min(y(value), base - 2), height: Math.max(base - y(value), 2), rx: Math.min(2, step / 4),
      }))),
    nearest: (x) => clamp(Math.floor((x - left) / step), values.length),
  }
}

/** lines draws series {name, values} over the same x axis. */
export function lines(width, height, series, labels, index, name) {
  const length = series[0].values.length
  const most = ceiling(Math.max(...series.flatMap((s) => s.values), 1))
  const base = height - bottom
  const x = (i) => left + (length < 2 ? 0 : (i / (length - 1)) * (width - left - right))
  const y = (value) => base - (value / most) * (base - top)
  return {
    drawing: frame(width, height, name, most, y, labels.map(({at, text}) => ({x: x(at), text})),
      index >= 0 && index < length && svg('line', {class: 'at', x1: x(index), x2: x(index), y1: top, y2: base}),
      series.map((s) => svg('polyline', {class: `line ${s.name}`, points: s.values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(' ')})),
      index >= 0 && index < length && series.map((s) => svg('circle', {class: `dot ${s.name}`, cx: x(index), cy: y(s.values[index]), r: 3}))),
    nearest: (at) => clamp(Math.round(((at - left) / (width - left - right)) * (length - 1)), length),
  }
}

function frame(width, height, name, most, y, labels, ...drawn) {
  const half = 17 // pixels of half a label
  let taken = 0
  return svg('svg', {width: '100%', height, role: 'img', 'aria-label': name},
    (most > 1 ? [0, most / 2, most] : [0, most]).map((value) => svg('g', {class: 'grid'},
      svg('line', {x1: left, x2: width - right, y1: y(value), y2: y(value)}),
      Number.isInteger(value) && svg('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, short(value)))),
    drawn,
    labels.flatMap(({x, text}) => {
      const middle = Math.min(x, width - half)
      if (middle - half < taken) return []
      taken = middle + half + 8
      return [svg('text', {x: middle, y: height - 4, 'text-anchor': 'middle'}, text)]
    }))
}

// The next round number, so that the axis reads well.
function ceiling(value) {
  const scale = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 4, 5, 10].find((n) => n * scale >= value) * scale
}

const short = (n) => n >= 1e6 ? `${n / 1e6}M` : n >= 1e3 ? `${n / 1e3}k` : String(n)
const clamp = (i, length) => Math.max(0, Math.min(length - 1, i))
