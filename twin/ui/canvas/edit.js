// Changing the fabric from its picture: several elements at once, the bar of actions, the keys.
// An action is a wish sent to the server, numbered, and sent again with the next one until the
// server says it was taken: so no quick second press is lost. What was asked to change is marked at
// once; what the server then sends is what holds.

const DRAG = 5 // px a press must travel to be a rectangle and not a click

class Editor {
  constructor(view, $) {
    Object.assign(this, { view, editable: false, waiting: [], number: Date.now(), rectangle: null, moved: false, onlyLink: false, severally: false })
    Object.assign(this, { bar: $("actions"), count: $("count"), share: $("share"), delay: $("delay"), only: $("only"), several: $("several") })
    const canvas = view.canvas, click = (id, does) => { $(id).onclick = does }
    canvas.onpointerdown = (e) => this.press(e)
    canvas.onpointerup = canvas.onpointercancel = (e) => this.release(e)
    click("disable", () => this.act({ capacity: 0 }))
    click("restore", () => this.act({ restore: true }))
    click("set-share", () => this.setShare())
    click("set-delay", () => this.setDelay())
    click("clear", () => { this.view.select(null); this.view.canvas.focus({ preventScroll: true }) })
    click("only", () => { this.onlyLink = !this.onlyLink; this.show() })
    click("several", () => { this.severally = !this.severally; this.show() })
    this.share.onkeydown = (e) => { if (e.key === "Enter") this.setShare() }
    this.delay.onkeydown = (e) => { if (e.key === "Enter") this.setDelay() }
    this.keys = (e) => this.history(e)
    document.addEventListener("keydown", this.keys)
  }

  close() { document.removeEventListener("keydown", this.keys) }

  get hint() {
    return this.editable ? "Click a cell to select it, Shift-click or drag for more, click a heading for a whole node or sub-plane. Double-click opens a node." : null
  }

  update(editable, acted) {
    this.editable = Boolean(editable)
    const before = this.waiting.length
    this.waiting = this.waiting.filter(({ number }) => number > (acted ?? 0))
    if (!this.waiting.length) this.view.machine.pending.clear()
    if (before && !this.waiting.length && this.asked) {
      this.view.canvas.dataset.took = (performance.now() - this.asked).toFixed(0)
      this.asked = null
    }
    this.show()
  }

  // --- Selecting several ---------------------------------------------------------------------

  adds(event) { return this.editable && (event.shiftKey || event.ctrlKey || event.metaKey || this.severally) }

  where(event) {
    const { left, top } = this.view.canvas.getBoundingClientRect()
    return { x: event.clientX - left, y: event.clientY - top }
  }

  press(event) {
    this.moved = false
    if (this.editable && event.button === 0 && event.pointerType !== "touch") this.from = this.where(event)
  }

  drag(event) { // true while a rectangle is being drawn
    if (!this.from) return false
    const to = this.where(event), { x, y } = this.from
    if (!this.moved && Math.hypot(to.x - x, to.y - y) < DRAG) return false
    if (!this.moved) this.view.canvas.setPointerCapture(event.pointerId)
    this.moved = true
    this.rectangle = { x: Math.min(x, to.x), y: Math.min(y, to.y), w: Math.abs(to.x - x), h: Math.abs(to.y - y) }
    this.view.hover = null
    this.view.draw()
    return true
  }

  release(event) {
    const r = this.rectangle
    this.from = this.rectangle = null
    if (!r) return
    if (event.type === "pointercancel") return this.view.draw()
    const touches = (b) => b.x < r.x + r.w && b.x + b.w > r.x && b.y < r.y + r.h && b.y + b.h > r.y
    const met = this.view.layout.boxes.filter((b) => !b.head && b.kind !== "node" && !b.frame && touches(b))
    if (!this.adds(event)) this.view.chosen.clear()
    this.view.choose(met.map((b) => this.view.machine.elements.get(b.name)))
  }

  dropped() { // whether the click that comes now only ended a rectangle
    const moved = this.moved
    this.moved = false
    return moved
  }

  draw(pen) {
    const r = this.rectangle
    if (!r) return
    pen.strokeStyle = pen.fillStyle = this.view.colour.accent
    pen.globalAlpha = 0.12
    pen.fillRect(r.x, r.y, r.w, r.h)
    pen.globalAlpha = 1
    pen.lineWidth = 1
    pen.strokeRect(r.x + 0.5, r.y + 0.5, r.w, r.h)
  }

  // --- Acting on them ------------------------------------------------------------------------

  show() { // the bar, for what is selected
    const names = [...this.view.chosen.keys()], link = this.link()
    this.bar.hidden = !this.editable || !names.length
    if (!link) this.onlyLink = false
    this.only.hidden = !link
    this.only.setAttribute("aria-pressed", this.onlyLink)
    this.several.setAttribute("aria-pressed", this.severally)
    this.count.textContent = this.onlyLink ? names.join(" – ") : names.length === 1 ? names[0] : `${names.length} selected`
  }

  link() { // the link that joins two selected chips, null when there is none
    const [a, b, more] = [...this.view.chosen.values()]
    if (!b || more || a.members.length > 1 || b.members.length > 1) return null
    return this.view.machine.links(a.members[0]).find((l) => l.to === b.members[0]) ?? null
  }

  setShare() {
    const share = Number(this.share.value)
    if (this.share.value !== "" && share >= 0 && share <= 10000) this.act({ capacity: share / 100 })
    else this.refuse("Capacity is a number from 0 to 10,000 % of what was built.")
  }

  setDelay() {
    const delay = Number(this.delay.value)
    if (delay >= 0.01 && delay <= 1000) this.act({ latency: delay })
    else this.refuse("Latency is a number from 0.01 to 1,000 times what was built.")
  }

  refuse(sentence) { this.view.said = sentence; this.view.say() }

  act(wish) {
    const names = [...this.view.chosen.keys()]
    if (!this.editable || (!names.length && !wish.step)) return
    this.waiting.push({ number: ++this.number, names: wish.step ? [] : names, link: this.onlyLink, ...wish })
    const now = performance.now()
    this.asked ??= now
    if (!wish.step) this.foresee({ names, link: this.onlyLink, ...wish })
    this.view.canvas.dataset.seen = (performance.now() - now).toFixed(0)
    this.view.ask(this.waiting.map((act) => ({ ...act })))
  }

  foresee(wish) { // mark what the wish will change; what it makes of the machine is the server's to say
    const { machine } = this.view
    for (const name of wish.link ? [] : wish.names) machine.pending.set(name, wish.restore ? null : [wish.capacity ?? 1, wish.latency ?? 1])
    this.view.draw()
  }

  key(event, now) { // a key pressed on the picture; true when it was meant for here
    if (!this.editable || event.ctrlKey || event.metaKey) return false
    const { key } = event
    if (key === " ") this.view.select(now, true)
    else if (key === "Delete" || key === "Backspace") this.act({ capacity: 0 })
    else if (key === "r" || key === "R") this.act({ restore: true })
    else if (event.shiftKey && KEYS[key] && now) {
      const next = this.view.beside(now, KEYS[key]), found = [now, next].map((b) => this.view.machine.elements.get(b.name))
      this.view.hover = next
      this.view.choose(found)
    } else return false
    return true
  }

  history(event) { // undo and redo, wherever on the page, but not while someone types
    const key = event.key.toLowerCase(), typing = event.composedPath()[0]
    if (!this.editable || !(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key)) return
    if (/^(input|textarea|select)$/i.test(typing.tagName) || typing.isContentEditable) return
    event.preventDefault()
    this.act({ step: key === "y" || event.shiftKey ? 1 : -1 })
  }
}
