// The login: the admin token, and the name under which the audit table will know who did what.

import {h} from '../dom.js'
import {field, text} from '../parts.js'
import {Away, LoggedOut, logIn} from '../server.js'

const remembered = 'duebox-name' // the name only; the token is never kept

/** loginView calls entered once there is a session. */
export function loginView(entered) {
  const error = h('p', {class: 'error', role: 'alert'})
  const name = text('name', localStorage.getItem(remembered) ?? '', {required: true, maxlength: 64, autocomplete: 'username'})
  const token = h('input', {name: 'token', type: 'password', required: true, autocomplete: 'current-password'})
  const button = h('button', {type: 'submit', class: 'main'}, 'Log in')
  const form = h('form', {
    class: 'card login',
    onsubmit: async (event) => {
      event.preventDefault()
      button.disabled = true
      error.textContent = ''
      try {
        await logIn(token.value, name.value.trim())
        localStorage.setItem(remembered, name.value.trim())
        return entered()
      } catch (failure) {
        error.textContent = failure instanceof LoggedOut ? 'This is not the admin token.'
          : failure instanceof Away ? `The server does not answer: ${failure.message}.` : failure.message
        token.select()
      }
      button.disabled = false
    },
  }, h('h1', {}, 'Log in'),
  field('Your name', name, 'It is written beside everything that you change.'),
  field('Admin token', token, 'The server’s ADMIN_TOKEN.'),
  error, button)
  return [form]
}
