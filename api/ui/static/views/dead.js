// Messages that duebox has given up on: each waits for somebody to decide.

import {bulk, buttons} from '../actions.js'
import {h} from '../dom.js'
import {field, given, pages, table, text} from '../parts.js'
import {go, link} from '../route.js'
import {get} from '../server.js'
import {columns} from './messages.js'

/** deadView lists them, with what may be done at once. */
export function deadView({query}, api) {
  const {after = '', ...filter} = query
  const changed = (what) => {
    api.say(what)
    api.again()
  }
  return {
    title: 'Dead',
    name: 'messages dead',
    load: () => get('messages', {...filter, state: 'dead', after, limit: 50}),
    render: ({messages, next}) => [
      h('div', {class: 'head'}, h('h1', {}, 'Dead'),
        messages.length > 0 && h('button', {type: 'button', id: 'bulk', onclick: () => bulk({...filter, state: 'dead'}, changed, ['requeue', 'reschedule', 'publish-now', 'cancel'])}, 'Act on all of these …')),
      h('p', {class: 'lead'}, 'Their effects failed too often, or the broker would not take them. Nothing happens to them by itself: find the cause in the error, mend it, then requeue.'),
      h('form', {class: 'search card one', role: 'search', 'aria-label': 'Dead messages', onsubmit: (event) => {
        event.preventDefault()
        go('dead', given(event.currentTarget))
      }}, h('div', {class: 'fields'}, field('Topic', text('topic', filter.topic)), field('Error contains', text('error', filter.error))),
      h('div', {class: 'buttons'}, h('a', {class: 'button plain', href: link('dead')}, 'Clear'), h('button', {type: 'submit', class: 'main'}, 'Search'))),
      table('Dead messages', [columns.message, columns.due, columns.trouble, columns.error,
        {name: 'Do', class: 'do', cell: (m) => h('div', {class: 'buttons'}, buttons(m, changed, ['requeue', 'cancel']))},
      ], messages, (m) => m.id, h('p', {}, next ? 'Nothing in the part that was looked through. The next page goes on.' : Object.keys(filter).length ? 'No dead message matches.' : 'No message is dead. Nothing to do here.')),
      pages('dead', query, next),
    ].filter(Boolean),
  }
}
