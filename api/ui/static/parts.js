// Parts that several views are made of.

import {h, icon} from './dom.js'
import {link} from './route.js'

const states = {
  scheduled: 'waits for its time',
  published: 'with the broker',
  done: 'has taken effect',
  canceled: 'withdrawn',
  dead: 'waits for an operator',
  pending: 'not paid yet',
  paid: 'paid',
  closed: 'closed',
  requested: 'waits for a worker',
  running: 'under way',
  completed: 'to its end',
  incomplete: 'not to its end',
}

/** state is a badge: a colour, a shape and the word, so that none of them has to be told apart alone. */
export const state = (name) => h('span', {class: `state ${name}`, title: states[name]}, h('span', {class: 'shape', 'aria-hidden': 'true'}), name)

/** stateText says what a state means. */
export const stateText = (name) => states[name] ?? ''

/**
 * table is a list of rows that becomes a list of cards on a phone. Columns are {name, cell, wide, numeric}; rows are told apart by key. The roles are
 * written out because cards are no table to a browser.
 */
export function table(label, columns, rows, key, empty) {
  if (rows.length === 0) return h('div', {class: 'empty card'}, empty)
  return h('table', {class: 'list card', role: 'table', 'aria-label': label},
    h('thead', {role: 'rowgroup'}, h('tr', {role: 'row'}, columns.map((c) => h('th', {role: 'columnheader', scope: 'col', class: c.class}, c.name)))),
    h('tbody', {role: 'rowgroup'}, rows.map((row) => h('tr', {role: 'row', 'data-key': key(row)},
      columns.map((c) => h('td', {role: 'cell', class: c.class}, h('span', {class: 'label', 'aria-hidden': 'true'}, c.name), h('div', {class: 'cell'}, c.cell(row))))))))
}

/** facts is a list of names and values; those with a null value are left out. */
export const facts = (...pairs) => h('dl', {class: 'facts'}, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined)
  .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))))

const trails = new Map() // by view and filter: the pages that led here

/** pages leads on and back through a list that has no numbers, only a next. */
export function pages(path, query, next) {
  const {after = '', ...filter} = query
  const name = link(path, filter)
  const trail = trails.get(name) ?? ['']
  const at = trail.indexOf(after)
  if (next) trails.set(name, at < 0 ? ['', after, next].filter((p, i) => i === 0 || p) : [...trail.slice(0, at + 1), next])
  if (!after && !next) return null
  const before = at > 0 ? trail[at - 1] : ''
  return h('nav', {class: 'pages', 'aria-label': 'Pages'},
    after && h('a', {class: 'button', href: link(path, {...filter, after: before})}, icon('back'), at > 1 ? 'Back' : 'First page'),
    next ? h('a', {class: 'button', href: link(path, {...filter, after: next})}, 'Next page', icon('next')) : h('span', {class: 'muted'}, 'This is the last page.'))
}

/** field is a labelled control. */
export function field(label, control, hint) {
  const id = control.id || `field-${control.name}`
  control.id = id
  if (hint) control.setAttribute('aria-describedby', `${id}-hint`)
  return h('div', {class: 'field'}, h('label', {for: id}, label), control, hint && h('p', {class: 'hint', id: `${id}-hint`}, hint))
}

/** choice is a select of [value, text]. */
export const choice = (name, options, chosen = '') => h('select', {name}, options.map(([value, text]) => h('option', {value, selected: value === chosen}, text)))

/** text is an input of one line. */
export const text = (name, value = '', attributes = {}) =>
  h('input', {name, value, type: 'text', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', ...attributes})

/** given is what a form holds, without what is empty. */
export const given = (form) => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value !== ''))
