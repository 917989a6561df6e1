// Who did what to which message.

import {h} from '../dom.js'
import {field, given, pages, table, text} from '../parts.js'
import {go, link} from '../route.js'
import {get} from '../server.js'
import {dash, when} from '../words.js'

/** auditView lists it, the newest first. */
export const auditView = ({query}) => ({
  title: 'Audit',
  name: 'audit',
  load: () => get('audit', {limit: 50, ...query}),
  render: ({entries, next}) => [
    h('h1', {}, 'Audit'),
    h('form', {class: 'search card one', role: 'search', 'aria-label': 'Audit', onsubmit: (event) => {
      event.preventDefault()
      go('audit', given(event.currentTarget))
    }}, h('div', {class: 'fields'}, field('Who', text('actor', query.actor)), field('Message id', text('message_id', query.message_id, {inputmode: 'numeric', pattern: '[0-9]+', title: 'A whole number'}))),
    h('div', {class: 'buttons'}, h('a', {class: 'button plain', href: link('audit')}, 'Clear'), h('button', {type: 'submit', class: 'main'}, 'Search'))),
    table('Audit', [
      {name: 'When', class: 'when', cell: (e) => when(e.at)},
      {name: 'Who', cell: (e) => [h('strong', {}, e.actor), h('span', {class: 'block muted'}, `by ${vias[e.via] ?? e.via}`)]},
      {name: 'What', cell: (e) => e.action},
      {name: 'Message', class: 'name', cell: (e) => e.message_id && e.message_id !== '0'
        ? [h('a', {href: link(['messages', e.message_id]), class: 'key'}, e.key || e.message_id), h('span', {class: 'block muted'}, e.topic)] : dash()},
      {name: 'Detail', class: 'error-text', cell: (e) => e.detail || dash()},
    ], entries, (e) => e.id, h('p', {}, Object.keys(query).length ? 'Nobody has done such a thing.' : 'Nobody has changed anything by hand.')),
    pages('audit', query, next),
  ].filter(Boolean),
})

const vias = {ui: 'this page', api: 'the API', cli: 'the command line'}
