// The server as the page knows it: one call, and three ways in which it ends other than well.

/** Problem is an answer that says no: a problem document of RFC 9457. */
export class Problem extends Error {
  constructor(status, {type = '', title = '', detail = '', errors = []} = {}) {
    super(errors.length > 1 ? errors.map((e) => `${e.field}: ${e.detail}`).join('; ') : detail || title || `status ${status}`)
    this.status = status
    this.kind = type.replace('urn:duebox:problem:', '')
  }
}

/** Away says that there was no answer, or that the server cannot reach what it needs for one. */
export class Away extends Error {
  constructor(why, answered = false) {
    super(why)
    this.answered = answered
  }
}

/** LoggedOut says that there is no session, or that it has ended. */
export class LoggedOut extends Error {}

// In milliseconds. What changes many messages may take the server's own 15 s.
const patience = 8000, morePatience = 20_000
let csrf = ''

/** openSession asks who is logged in; LoggedOut if nobody is. */
export async function openSession() {
  const session = await call('GET', 'session')
  csrf = session.csrf
  return session
}

/** logIn opens a session under a name; the cookie is the server's and cannot be read here. */
export async function logIn(token, name) {
  await call('POST', 'session', {token, name})
  return openSession()
}

/** logOut ends it. */
export const logOut = () => call('DELETE', 'session')

/** get reads from /v1/admin. */
export const get = (path, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined)
  return call('GET', `../v1/admin/${path}${given.length ? `?${new URLSearchParams(given)}` : ''}`)
}

/** post changes something below /v1/admin. */
export const post = (path, body) => call('POST', `../v1/admin/${path}`, body, morePatience)

async function call(method, path, body, wait = patience) {
  const headers = {Accept: 'application/json'}
  if (method !== 'GET') headers['X-CSRF-Token'] = csrf
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  let answer, text
  try {
    // Relative to the page, which may be served below some path of a proxy.
    answer = await fetch(new URL(path, document.baseURI), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: AbortSignal.timeout(wait),
    })
    text = await answer.text()
  } catch (error) {
    throw new Away(error.name === 'TimeoutError' ? `it takes longer than ${wait / 1000} s` : 'the connection fails')
  }
  let found = null
  try {
    found = text === '' ? null : JSON.parse(text)
  } catch {
    throw new Away(`an answer of status ${answer.status} that is not the API's`)
  }
  if (answer.ok) return found
  const problem = new Problem(answer.status, found ?? {})
  if (answer.status === 401) throw new LoggedOut(problem.message)
  if (answer.status >= 502) throw new Away(problem.message, true)
  throw problem
}
