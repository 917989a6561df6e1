// Asking before something is changed. A dialog says what will happen, holds what it needs to know, and stays open with the reason if the
// server refuses.

import {h} from './dom.js'
import {Away, LoggedOut} from './server.js'

/**
 * ask opens a dialog and resolves when it has been closed: with what act returned, or undefined if nothing was done. content is a list of nodes, in a
 * form; act gets the form and may throw; its error is shown. tone 'bad' is for what cannot be undone.
 */
export function ask({title, content, confirm, tone = '', act}) {
  return new Promise((resolve) => {
    let result
    const error = h('p', {class: 'error', role: 'alert'})
    const yes = h('button', {type: 'submit', class: tone || 'main'}, confirm)
    const no = h('button', {type: 'button', onclick: () => dialog.close()}, 'Leave as it is')
    const form = h('form', {
      onsubmit: async (event) => {
        event.preventDefault()
        if (yes.getAttribute('aria-disabled') === 'true') return
        yes.setAttribute('aria-disabled', 'true')
        error.textContent = ''
        try {
          result = await act(form)
          dialog.close()
        } catch (failure) {
          error.textContent = failure instanceof Away
            ? `${sentence(failure.message)} Whether it was done is not known: look before you try again.`
            : failure instanceof LoggedOut ? 'The session has ended. Log in again; nothing was changed.' : sentence(failure.message)
        }
        yes.removeAttribute('aria-disabled')
      },
    }, h('h2', {id: 'asked'}, title), h('div', {class: 'content'}, content), error, h('div', {class: 'buttons'}, no, yes))
    const dialog = h('dialog', {'aria-labelledby': 'asked'}, form)
    dialog.addEventListener('close', () => {
      window.removeEventListener('hashchange', leave)
      dialog.remove()
      resolve(result)
    })
    const leave = () => dialog.close()
    window.addEventListener('hashchange', leave) // the back button
    document.body.append(dialog)
    dialog.showModal()
    const first = form.querySelector('[autofocus]') ?? no
    first.focus()
  })
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`
