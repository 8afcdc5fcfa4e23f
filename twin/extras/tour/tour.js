// The tour: a card beside one control after the other, and a ring around it. Keys work as in any
// dialog: Tab and Enter, Escape to leave. The page behind stays in use: a slider that the card
// speaks of can be moved. The browser remembers that the tour was taken or skipped.
const SEEN = "twin-tour-seen", GAP = 14, TOURS = new WeakMap()

function remembered() {
  try { return localStorage.getItem(SEEN) === "yes" } catch { return false } // storage is forbidden
}

function remember() {
  try { localStorage.setItem(SEEN, "yes") } catch { /* then it is offered again */ }
}

class Tour {
  constructor(root) {
    const ids = ["new", "start", "never", "ring", "card", "count", "title", "text", "leave", "before", "next"]
    this.el = Object.fromEntries(ids.map((id) => [id, root.querySelector(`#${id}`)]))
    const { el } = this
    el.start.onclick = () => this.go(0)
    el.never.onclick = () => { remember(); this.offer(); el.start.focus() }
    el.leave.onclick = () => this.end()
    el.before.onclick = () => this.go(this.step - 1)
    el.next.onclick = () => this.go(this.step + 1)
    this.keys = (e) => { if (e.key === "Escape" && this.open) this.end() }
    document.addEventListener("keydown", this.keys)
    this.offer()
  }

  offer() {
    this.el.new.hidden = this.el.never.hidden = remembered()
    this.el.start.textContent = remembered() ? "Two-minute tour" : "Take the two-minute tour"
  }

  target() { return document.querySelector(`.st-key-${this.steps[this.step]?.target}`) }

  go(step) {
    this.step = step
    const now = this.steps[this.step], { el } = this
    if (!now) return this.end()
    el.count.textContent = `${this.step + 1} of ${this.steps.length}`
    el.title.textContent = now.title
    el.text.textContent = now.text
    el.before.hidden = this.step === 0
    el.next.textContent = this.step === this.steps.length - 1 ? "Done" : "Next"
    if (!this.open) { el.ring.showPopover(); el.card.showPopover() }
    this.open = true
    this.shown = null
    el.title.focus({ preventScroll: true })
    this.follow()
  }

  follow() { // the control, once it is on the page and wherever it moves, until the tour ends
    cancelAnimationFrame(this.frame)
    if (!this.open) return
    const target = this.target()
    if (target && target !== this.shown) this.show(target)
    this.place((target ?? this.el.start).getBoundingClientRect())
    this.frame = requestAnimationFrame(() => this.follow())
  }

  show(target) {
    this.shown = target
    target.style.scrollMarginTop = "4.5rem" // the bar at the top covers that much
    target.scrollIntoView({ block: target.offsetHeight > innerHeight - 160 ? "start" : "center" })
  }

  place(rect) {
    const { ring, card } = this.el, pad = 6, wide = innerWidth, high = innerHeight
    const put = (e, rules) => Object.entries(rules).forEach(([name, px]) => { e.style[name] = `${px}px` })
    put(ring, { left: rect.left - pad, top: rect.top - pad, width: rect.width + 2 * pad - 6, height: rect.height + 2 * pad - 6 })
    const w = card.offsetWidth, h = card.offsetHeight, clamp = (v, most) => Math.max(8, Math.min(v, most - 8))
    let left = clamp(rect.left, wide - w), top = rect.bottom + GAP
    if (rect.right + GAP + w < wide) { left = rect.right + GAP; top = rect.top }
    else if (rect.left - GAP - w > 0) { left = rect.left - GAP - w; top = rect.top }
    else if (top + h > high) top = rect.top - GAP - h
    put(card, { left, top: clamp(top, high - h) })
  }

  end() {
    if (!this.open) return
    this.open = false
    remember()
    this.offer()
    this.el.ring.hidePopover()
    this.el.card.hidePopover()
    this.el.start.focus({ preventScroll: true })
  }

  close() {
    this.open = false
    document.removeEventListener("keydown", this.keys)
  }
}

export default function ({ data, parentElement }) {
  if (!TOURS.has(parentElement)) TOURS.set(parentElement, new Tour(parentElement))
  TOURS.get(parentElement).steps = data.steps
  return () => { TOURS.get(parentElement)?.close(); TOURS.delete(parentElement) }
}
