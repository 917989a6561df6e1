// Elements, and how those on the page become like those of the latest answer without losing focus, selection or what is being typed.

const handlers = ['onclick', 'onsubmit', 'oninput', 'onchange', 'onkeydown', 'onpointermove', 'onpointerleave']

/** h builds an element. Attributes that are null, undefined or false are left out; handlers are functions named as in `handlers`. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children)

/** svg builds an element of a drawing. */
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children)

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue
    if (handlers.includes(name)) element[name] = value
    else element.setAttribute(name, value === true ? '' : value)
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

/** icon is a drawing of a few lines on a grid of 16, hidden from screen readers: the text beside it says the same. */
export const icon = (name) =>
  svg('svg', {class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true'}, svg('path', {d: icons[name]}))

const icons = {
  ok: 'M3 8.5 6.5 12 13 4.5',
  late: 'M8 4v4.5l3 2M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z',
  bad: 'M8 2 14.5 13.5h-13zM8 6.5v3M8 11.6v.1',
  away: 'M2 2l12 12M4.2 8.2a5.5 5.5 0 0 1 2-1.3M2 5.6A8.6 8.6 0 0 1 4.4 4M7.6 3.5A8.6 8.6 0 0 1 14 5.6M9.8 6.9a5.5 5.5 0 0 1 2 1.3M8 12.2v.1',
  menu: 'M2 4h12M2 8h12M2 12h12',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  next: 'M6 3l5 5-5 5',
  back: 'M10 3 5 8l5 5',
}

/**
 * morph makes the children of an element like those given, changing only what differs. Children with a name (an id, or a key in a list) are the same
 * as long as they keep it, whatever comes and goes around them.
 */
export function morph(element, children) {
  const next = [...children]
  const wantedNames = new Set(next.map(nameOf).filter(Boolean))
  const named = new Map()
  for (const child of [...element.children]) {
    const name = nameOf(child)
    if (name && !wantedNames.has(name)) child.remove()
    else if (name) named.set(name, child)
  }
  let now = element.firstChild
  for (const wanted of next) {
    const name = nameOf(wanted)
    const twin = name ? named.get(name) : now && !nameOf(now) && now.nodeName === wanted.nodeName ? now : null
    if (!twin) {
      element.insertBefore(wanted, now)
      continue
    }
    if (twin === now) now = now.nextSibling
    else element.insertBefore(twin, now)
    become(twin, wanted)
  }
  while (now) {
    const gone = now
    now = now.nextSibling
    gone.remove()
  }
}

// The id of a form that has a field of that name is the field.
const nameOf = (node) => node.nodeType === Node.ELEMENT_NODE ? node.dataset.key ?? node.getAttribute('id') : null

function become(now, next) {
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.data !== next.data) now.data = next.data
    return
  }
  for (const {name} of [...now.attributes]) {
    // Whether details are open is the reader's business.
    if (!next.hasAttribute(name) && !(name === 'open' && now.nodeName === 'DETAILS')) now.removeAttribute(name)
  }
  for (const {name, value} of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value)
  for (const handler of handlers) if (now[handler] !== next[handler]) now[handler] = next[handler]
  morph(now, next.childNodes)
}
