// Orders of the order service: found by number, user or status.

import {h} from '../dom.js'
import {choice, field, given, pages, state, table, text} from '../parts.js'
import {go, link} from '../route.js'
import {get} from '../server.js'
import {dash, duration, lateSince, number, when} from '../words.js'

// How late an order is, or was when its time was over and it was closed.
function late(o) {
  if (o.status === 'pending') return lateSince(Date.parse(o.due_at)) || dash()
  return o.close_reason === 'timeout' ? duration(Date.parse(o.closed_at) - Date.parse(o.due_at)) : dash()
}

/** ordersView lists them. */
export function ordersView({query}) {
  const filtered = Object.keys(query).some((name) => name !== 'after')
  return {
    title: 'Orders',
    name: 'orders',
    load: () => get('orders', {limit: 50, ...query}),
    render: ({orders, next}) => [
      h('h1', {}, 'Orders'),
      h('form', {class: 'search card one', role: 'search', 'aria-label': 'Orders', onsubmit: (event) => {
        event.preventDefault()
        go('orders', given(event.currentTarget))
      }}, h('div', {class: 'fields'}, field('Number', text('no', query.no)), field('User', text('user', query.user)),
        field('Status', choice('status', [['', 'any'], ['pending', 'pending'], ['paid', 'paid'], ['closed', 'closed']], query.status))),
      h('div', {class: 'buttons'}, h('a', {class: 'button plain', href: link('orders')}, 'Clear'), h('button', {type: 'submit', class: 'main'}, 'Search'))),
      table('Orders', [
        {name: 'Status', class: 'state', cell: (o) => state(o.status)},
        {name: 'Order', class: 'name', cell: (o) => [h('a', {href: link(['orders', o.no]), class: 'key'}, o.no), h('span', {class: 'block muted'}, o.user)]},
        {name: 'Kind', cell: (o) => o.kind},
        {name: 'Due', class: 'when', cell: (o) => when(o.due_at)},
        {name: 'Late', class: 'number', cell: late},
        {name: 'Placed', class: 'when', cell: (o) => when(o.created_at)},
        {name: 'Ended', class: 'when', cell: (o) => when(o.paid_at ?? o.closed_at)},
        {name: 'Total', class: 'number', cell: (o) => o.total === undefined ? dash() : h('span', {title: 'in minor units'}, number(o.total))},
      ], orders, (o) => o.no, h('p', {}, filtered ? 'No order matches.' : 'There are no orders.')),
      pages('orders', query, next),
    ].filter(Boolean),
  }
}
