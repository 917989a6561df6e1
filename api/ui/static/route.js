// Where the reader is: everything after the # of the address, so that every view and every search can be sent to somebody.

/** here reads the address: '#/messages/7?state=dead' is path ['messages', '7'] and query {state: 'dead'}. */
export function here() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?')
  return {path: path.split('/').filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(query))}
}

/** link is the address of a view; empty parts of the query are left out. */
export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined)
  const place = [path].flat().map(encodeURIComponent).join('/')
  return `#/${place}${given.length ? `?${new URLSearchParams(given)}` : ''}`
}

/** go moves there, as a link would. */
export const go = (path, query) => {
  location.hash = link(path, query)
}

function decode(part) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
