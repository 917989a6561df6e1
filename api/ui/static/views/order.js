// One order, and the messages that close it and remind its buyer.

import {h} from '../dom.js'
import {facts, state, stateText, table} from '../parts.js'
import {link} from '../route.js'
import {get} from '../server.js'
import {dash, lateSince, number, when} from '../words.js'

/** orderView is the view of the order with this number. */
export const orderView = ({id: no}) => ({
  title: `Order ${no}`,
  name: 'order',
  load: () => get(`orders/${encodeURIComponent(no)}`),
  render: (found) => {
    const {order} = found, late = order.status === 'pending' && lateSince(Date.parse(order.due_at)), messages = Object.values(found.messages).filter(Boolean)
    return [
      h('p', {class: 'crumbs'}, h('a', {href: link('orders')}, 'Orders'), h('span', {'aria-hidden': 'true'}, ' / '), order.user),
      h('h1', {class: 'key'}, order.no),
      h('p', {class: 'now', id: 'state'}, state(order.status), h('span', {class: 'muted'}, order.close_reason ? `closed by ${order.close_reason}` : stateText(order.status))),
      h('div', {class: 'grid'},
        h('section', {class: 'card', id: 'facts'}, h('h2', {}, 'What is known'),
          facts(['Due', when(order.due_at)], late && ['Late', late], ['Placed', when(order.created_at)], ['Reminded', when(order.reminded_at)], ['Paid', when(order.paid_at)], ['Closed', when(order.closed_at)],
            ['User', h('a', {href: link('orders', {user: order.user})}, order.user)], ['Kind', order.kind],
            ['Total', `${number(order.total)} minor units`], order.refunded > 0 && ['To refund', `${number(order.refunded)} minor units`])),
        h('section', {class: 'card plainlist', id: 'messages'}, h('h2', {}, 'Its messages'),
          messages.length > 0 ? h('ul', {class: 'links'}, messages.map((m) => h('li', {'data-key': m.id}, state(m.state), h('a', {href: link(['messages', m.id])}, m.topic), h('span', {class: 'muted'}, 'due ', when(m.due_at)))))
            : h('p', {class: 'muted'}, 'None is left: messages that have ended are deleted after their retention.'),
          order.status === 'pending' && !messages.some((m) => ['scheduled', 'published', 'dead'].includes(m.state)) &&
            h('p', {class: 'warn'}, 'The order is pending and no live message will close it. An audit mends that: start one under Reconcile.'))),
      h('h2', {class: 'above'}, 'Items'),
      table('Items', [
        {name: 'Product', class: 'name', cell: (i) => h('code', {class: 'key'}, i.sku)},
        {name: 'Quantity', class: 'number', cell: (i) => number(i.quantity)},
        {name: 'Price each', class: 'number', cell: (i) => number(i.price)},
        {name: 'Together', class: 'number', cell: (i) => number(i.price * i.quantity)},
      ], order.items ?? [], (i) => i.sku, dash()),
    ]
  },
})
