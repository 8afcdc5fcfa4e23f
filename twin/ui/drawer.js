// On a phone the navigation is a drawer over the page: a page that was chosen in it closes it. On
// every page a number and its unit stay on one line.
const UNIT = /(\d) (?=(?:%|×|(?:[mµ]?s|min|h|req\/s|tokens\/s|[kMGTP]?B(?:\/s)?|kWh?|MW)(?!\w)))/g

export default function ({ data }) {
  const root = document.documentElement
  if (root.dataset.twinPage === undefined) {
    // A page that is drawn changes hundreds of times: once a frame is often enough.
    let waits = false
    new MutationObserver(() => {
      if (!waits) requestAnimationFrame(() => { waits = false; grouped(); joined() })
      waits = true
    }).observe(document.body, { characterData: true, childList: true, subtree: true })
    leaves()
    // A page may be chosen before this is heard of for the first time.
    const begun = new URL(performance.getEntriesByType('navigation')[0].name)
    root.dataset.twinPage = begun.pathname === window.location.pathname ? data.page : ''
  }
  if (data.times && root.dataset.twinSought !== String(data.times)) {
    root.dataset.twinSought = data.times
    lead(data.found, 400)
  }
  const left = root.dataset.twinPage
  root.dataset.twinPage = data.page
  grouped()
  joined()
  if (left === data.page || window.innerWidth >= 768) return
  document.querySelector('[data-testid="stSidebarCollapseButton"] button')?.click()
}

// Streamlit gives the query of a page that is opened (`go_to` in link.py) to the page that is left,
// first. Back leads to that one as it was: what is pushed for it until the other is there is dropped.
function leaves() {
  const push = history.pushState.bind(history)
  let goes = ''
  history.pushState = (state, title, address) => {
    const [, clean, to] = String(address).match(/^(.*?)(?:[?&]go=(\w+))?$/)
    if (to) goes = `/${to}`
    const away = goes && !location.pathname.endsWith(goes)
    if (away && clean.split('?')[0] === location.pathname) return
    goes = ''
    push(state, title, clean)
  }
}

// A field that was looked for comes into view, has the keyboard and is outlined for a while. The
// page may still be drawn: it is looked for again, `left` times, and brought back into view when
// what stands above it has grown, until the visitor moves the page.
function lead(found, left) {
  const field = document.querySelector(`.${found}`)
  if (!field || !field.offsetParent) {
    if (left > 0) setTimeout(() => lead(found, left - 1), 150)
    return
  }
  field.querySelector('input, textarea, [role="radio"]')?.focus({ preventScroll: true })
  field.animate(
    [0, 0.8, 1].map((offset) => ({
      offset, borderRadius: '6px', outlineOffset: '6px',
      outline: `3px solid rgba(108, 99, 235, ${offset < 1 ? 1 : 0})`,
    })),
    { duration: 4000 },
  )
  let moved = false
  for (const kind of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
    window.addEventListener(kind, () => { moved = true }, { once: true, passive: true })
  }
  for (const after of [0, 300, 1000, 2000, 4000]) {
    setTimeout(() => { if (!moved && field.isConnected) show(field) }, after)
  }
}

function show(field) {
  const { top, bottom } = field.getBoundingClientRect()
  if (top < 80 || bottom > window.innerHeight) field.scrollIntoView({ block: 'center' })
}

// Text that React renders anew is set whole, so what is put into it here never meets it.
function joined() {
  const main = document.querySelector('[data-testid="stMain"]')
  const texts = main && document.createTreeWalker(main, NodeFilter.SHOW_TEXT)
  while (texts?.nextNode()) {
    const text = texts.currentNode, whole = text.data.replace(UNIT, '$1\u00a0')
    if (whole !== text.data && !text.parentElement.closest('svg, code, table')) text.data = whole
  }
}

// Streamlit's drawer is a list with headings between its items, which is no list: its sections are
// groups of links, each called by its heading.
function grouped() {
  if (!document.querySelector('[data-testid="stSidebar"]')) return
  const list = document.querySelector('[data-testid="stSidebarNavItems"]:not([role])')
  const items = document.querySelectorAll('[data-testid="stSidebarNavItems"] li:not([role])')
  list?.setAttribute('role', 'presentation')
  for (const item of items) {
    item.setAttribute('role', 'presentation')
    const section = item.parentElement
    const heading = section.querySelector(':scope > header')
    if (!heading) continue
    section.setAttribute('role', 'group')
    section.setAttribute('aria-label', heading.innerText.split('\n')[0])
  }
}
