// The page's start: who is logged in, which view is shown, and what is around it. One loop asks for the overview, whose verdict
// is on every view; another asks for what the view shows.

import {h, icon, morph} from './dom.js'
import {frame, favicon, nav} from './frame.js'
import {follow, tooOld} from './live.js'
import {here} from './route.js'
import {get, logOut, LoggedOut, openSession, Away} from './server.js'
import {clockText, learnNow, tick, wholeSeconds} from './words.js'
import {auditView} from './views/audit.js'
import {deadView} from './views/dead.js'
import {loginView} from './views/login.js'
import {messageView} from './views/message.js'
import {messagesView} from './views/messages.js'
import {orderView} from './views/order.js'
import {ordersView} from './views/orders.js'
import {overviewView} from './views/overview.js'
import {runView} from './views/run.js'
import {runsView} from './views/runs.js'
import {unroutedView} from './views/unrouted.js'

const views = {
  '': () => overviewView,
  messages: (id) => id ? messageView : messagesView,
  orders: (no) => no ? orderView : ordersView,
  runs: (id) => id ? runView : runsView,
  dead: () => deadView,
  unrouted: () => unroutedView,
  audit: () => auditView,
}

const main = document.getElementById('main')
const said = document.getElementById('said')

let session = null // who is logged in
let overview = null // the latest one
let answered = Date.now() // when the server has last said how things are, by our clock
let failure = null // why it has not since
let shell = null, feed = null // the two loops
let shown = false // a view, or the login
let view = null, data = null, dataAt = 0, trouble = null // what is shown, its latest answer, and what went wrong instead

start()

async function start() {
  document.querySelector('.skip').onclick = (event) => {
    event.preventDefault()
    main.focus()
  }
  window.addEventListener('hashchange', show)
  new ResizeObserver(render).observe(main)
  setInterval(pulse, 1000)
  await enter()
}

/** enter asks for the session until the server says yes or no, and opens the page. */
async function enter() {
  shell?.stop()
  shell = follow(openSession, (found, error) => {
    if (error && !(error instanceof LoggedOut) && !found) {
      failure = error
      return render()
    }
    shell.stop()
    failure = null
    answered = Date.now()
    session = found
    if (!session) return leave()
    shell = follow(() => get('overview'), learn)
    show()
  })
}

/** leave shows the login, and comes back to where the reader was. */
function leave() {
  shell?.stop()
  feed?.stop()
  session = overview = data = view = null
  frame({session: null})
  document.title = 'Log in · duebox'
  main.className = 'lone'
  main.removeAttribute('aria-busy')
  main.replaceChildren(...loginView(enter))
  const empty = [...main.querySelectorAll('input')].find((input) => input.value === '')
  empty?.focus()
  shown = true
}

function learn(answer, error) {
  if (error instanceof LoggedOut) return leave()
  failure = error
  if (answer) {
    overview = answer
    answered = Date.now()
    learnNow(answer.now)
  }
  render()
}

/** show opens the view of the address. */
function show() {
  if (!session || (location.hash && !location.hash.startsWith('#/'))) return
  feed?.stop()
  const {path, query} = here()
  const found = views[path[0] ?? '']?.(path[1])
  data = trouble = null
  dataAt = 0
  const api = {again, say, refresh: () => feed?.again(), overview: () => overview, session: () => session}
  view = (found ?? nowhere)({id: path[1], query}, api)
  main.replaceChildren()
  main.dataset.view = location.hash
  window.scrollTo(0, 0)
  feed = view.load ? follow(view.load, arrive) : null
  render()
  // A page that was just loaded begins at its beginning.
  if (shown) main.focus({preventScroll: true})
  shown = true
}

function arrive(answer, error) {
  if (error instanceof LoggedOut) return void leave()
  trouble = error
  if (!error) {
    data = answer
    dataAt = Date.now()
  }
  render()
  return !view.still?.()
}

const nowhere = () => ({
  title: 'Nothing here',
  render: () => [h('h1', {}, 'Nothing here'), h('p', {}, 'The address names no view. ', h('a', {href: '#/'}, 'Back to the overview'))],
})

/** again asks for everything now, after something was changed. */
function again() {
  feed?.again()
  shell?.again()
}

/** say tells a screen reader, and everybody else for some seconds. */
function say(text) {
  said.textContent = text
  clearTimeout(say.timer)
  say.timer = setTimeout(() => { said.textContent = '' }, 8000)
}

/** away is why the figures are not those of now, or null. */
function away() {
  const age = Date.now() - answered
  if (failure && (!(failure instanceof Away) || age > 2500)) return {since: answered, why: failure.message, what: whatIsLost(failure)}
  return age > tooOld ? {since: answered, why: 'no answer yet', what: whatIsLost(null)} : null
}

function pulse() {
  tick()
  if (session && (failure || Date.now() - answered > tooOld)) render()
  else if (!session && failure) render()
}

function render() {
  if (!view && !failure) return
  if (!view) {
    document.title = 'No answer · duebox'
    main.className = 'lone'
    return morph(main, [notice({since: answered, why: failure.message, what: whatIsLost(failure)})])
  }
  const lost = away()
  frame({session, overview, away: lost, answered, logOut: quit})
  favicon(overview, lost)
  document.title = [nav.verdict(overview, lost), view.title, 'duebox'].filter(Boolean).join(' · ')
  main.className = [view.name ?? '', lost ? 'stale' : ''].join(' ').trim()
  const source = view.load ? data : overview
  main.toggleAttribute('aria-busy', !source && !trouble)
  morph(main, [
    lost && !view.tellsAway && notice(lost, dataAt),
    trouble && !(trouble instanceof Away) && h('div', {class: 'notice bad', id: 'trouble'}, icon('bad'), h('p', {}, trouble.message)),
    ...(source ? view.render(source, lost) : [h('h1', {}, view.title), !trouble && !lost && h('p', {class: 'loading'}, 'Loading…')]),
  ].filter(Boolean))
}

// A server that answers, and cannot say how things are, is another fault than one that does not.
const whatIsLost = (error) => error && (!(error instanceof Away) || error.answered) ? 'No figures' : 'No answer from the server'

function notice({since, why, what}, shownFrom) {
  return h('div', {class: 'notice away', role: 'alert', id: 'away'}, icon('away'), h('p', {},
    h('strong', {}, `${what} since ${clockText(since)}`), h('span', {'aria-hidden': 'true'}, ` (${wholeSeconds(Date.now() - since)})`), `: ${why}. `,
    shownFrom ? 'What is shown below is from then and may be wrong by now. ' : '', 'Asking again every two seconds.'))
}

async function quit() {
  try {
    await logOut()
  } catch {
    return say('The server did not answer: you are still logged in.')
  }
  leave()
}
