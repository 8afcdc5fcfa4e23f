// A scene on a canvas: drawn as deep as the zoom lets an eye see, moved by hand, pointed at,
// selected. Who uses it says how boxes are coloured (`paint`), hears of hovering and selecting, and
// may let bytes flow along the links (`flow`). The view is never reset by new numbers.

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }
const DRAG = 5, PICK = 7, DEEPEST = 16, TALLEST = 680 // px a press travels to be a drag; smallest box to point at; scale; px

class Picture {
  constructor(canvas, { onSelect, onHover, onKey = () => false, onDrop = null }) {
    Object.assign(this, { canvas, onSelect, onHover, onKey, onDrop, chosen: new Set(), hover: null, focus: null, extend: false, draws: 0, spent: 0, hidden: new Set(), camera: null, widths: new Map() })
  }

  listen(canvas) { // from the first scene on: before, there is nothing to point at
    canvas.onpointermove = (e) => this.move(e)
    canvas.onpointerdown = (e) => this.press(e)
    canvas.onpointerup = canvas.onpointercancel = (e) => this.release(e)
    canvas.onpointerleave = () => { if (!this.from) this.point(null) }
    canvas.onclick = (e) => { if (!this.dragged) this.select(this.under(e), e.shiftKey || e.ctrlKey || e.metaKey || this.extend) }
    canvas.ondblclick = (e) => this.open(this.under(e))
    canvas.onkeydown = (e) => this.key(e)
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false })
    canvas.where = (name) => { const box = this.scene.find(name); return box && this.middle(box) } // for tests
  }

  show(scene, width) { // a scene, for a width in px; the camera stays where it was
    const other = scene !== this.scene
    if (!this.scene) this.listen(this.canvas)
    if (other) { this.hover = null; this.focus = this.focus && scene.find(this.focus.name); this.chosen = new Set([...this.chosen].map((b) => scene.find(b.name)).filter(Boolean)) }
    this.scene = scene
    if (other || width !== this.width) {
      const kept = this.focus
      scene.arrange(width - 4)
      const { w, h } = scene.size
      this.home = Math.min((width - 4) / w, TALLEST / h, 1.2)
      Object.assign(this, { width, height: Math.ceil(h * this.home) + 4 })
      const ratio = window.devicePixelRatio || 1
      Object.assign(this.canvas, { width: width * ratio, height: this.height * ratio })
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${this.height}px` })
      this.camera = this.at(kept)
    }
    this.draw()
  }

  // --- The camera --------------------------------------------------------------------------

  at(box) { // the camera that shows a box whole; null: everything
    const { w, h } = box ? { w: box.w * 1.12, h: box.h * 1.25 } : this.scene.size, s = box ? Math.min(this.width / w, this.height / h, DEEPEST) : this.home
    const x = box ? box.x + box.w / 2 : w / 2, y = box ? box.y + box.h / 2 : h / 2
    return { s, x: x - this.width / 2 / s, y: y - this.height / 2 / s }
  }

  fly(to) { // there in a quarter of a second
    const from = this.camera, began = performance.now(), still = matchMedia("(prefers-reduced-motion: reduce)").matches
    cancelAnimationFrame(this.flight)
    this.target = to
    const step = (now) => {
      const t = still ? 1 : Math.min(1, (now - began) / 260), part = 1 - (1 - t) ** 3
      const s = from.s * (to.s / from.s) ** part, mid = (c, axis, size) => c[axis] + size / 2 / c.s
      const x = mid(from, "x", this.width) + (mid(to, "x", this.width) - mid(from, "x", this.width)) * part
      const y = mid(from, "y", this.height) + (mid(to, "y", this.height) - mid(from, "y", this.height)) * part
      this.camera = t === 1 ? to : { s, x: x - this.width / 2 / s, y: y - this.height / 2 / s }
      this.draw()
      if (t < 1) this.flight = requestAnimationFrame(step)
      else this.target = null
    }
    step(still ? began : performance.now())
  }

  zoom(by, px = this.width / 2, py = this.height / 2) { // around a point of the canvas
    const { x, y, s } = this.camera, to = Math.min(DEEPEST, Math.max(this.home, s * by))
    if (to === this.home) { this.focus = null; this.camera = this.at(null) }
    else this.camera = { s: to, x: x + px / s - px / to, y: y + py / s - py / to }
    this.draw()
  }

  pan(dx, dy) {
    const { w, h } = this.scene.size, { s } = this.camera, inner = (at, size, whole) => Math.min(Math.max(at, -40 / s), Math.max(whole - size / s + 40 / s, -40 / s))
    this.camera = { s, x: inner(this.camera.x + dx / s, this.width, w), y: inner(this.camera.y + dy / s, this.height, h) }
    this.draw()
  }

  get zoomed() { return (this.target ?? this.camera).s > this.home * 1.01 }

  open(box) { // zoom to a box that holds others, or to what holds it
    const to = box?.kids.length ? box : box?.parent ?? null
    this.focus = to
    this.fly(this.at(to))
  }

  wheel(event) { // with Ctrl, or a pinch, it zooms; where the view is zoomed it pans
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * 0.006), event.offsetX, event.offsetY)
    else if (this.zoomed) this.pan(event.deltaX, event.deltaY)
    else return
    event.preventDefault()
  }

  // --- What a person does ------------------------------------------------------------------

  middle(box) { const { x, y, s } = this.camera; return { x: (box.x + box.w / 2 - x) * s, y: (box.y + (box.kids.length && box.kind !== "npu" ? Math.min(box.h / 2, 3) : box.h / 2) - y) * s } }

  under(event) { // the smallest box at a point that is large enough to be meant
    const { x, y, s } = this.camera, px = event.offsetX / s + x, py = event.offsetY / s + y
    const holds = (b) => px >= b.x && px < b.x + b.w && py >= b.y && py < b.y + b.h
    let box = this.scene.told.blocks.map(([i]) => this.scene.boxes[i]).find(holds) ?? null
    for (let kid = box; kid; kid = box.kids.find((k) => holds(k) && Math.min(k.w, k.h) * s >= PICK)) { if (kid === box && box.kids.length === 0) break; box = kid; if (!box.kids.some((k) => holds(k) && Math.min(k.w, k.h) * s >= PICK)) break }
    return box
  }

  point(box) {
    if (box === this.hover) return
    this.hover = box
    this.canvas.style.cursor = box ? "pointer" : this.zoomed ? "grab" : "default"
    this.draw()
    this.onHover(box)
  }

  move(event) {
    if (!this.from) { if (event.pointerType !== "touch") this.point(this.under(event)); return }
    const dx = event.offsetX - this.from.x, dy = event.offsetY - this.from.y
    if (!this.dragged && Math.hypot(dx, dy) < DRAG) return
    if (!this.dragged) this.canvas.setPointerCapture(event.pointerId)
    this.dragged = true
    if (this.from.who !== undefined) {
      const target = this.under(event)
      this.carried = { who: this.from.who, to: target?.kind === "npu" && !this.from.node ? target : target?.node ?? null }
      this.canvas.style.cursor = "grabbing"
      this.draw()
    } else if (this.from.pans) { this.pan(this.from.px - event.offsetX, this.from.py - event.offsetY); Object.assign(this.from, { px: event.offsetX, py: event.offsetY }) }
    else { this.band = { x: Math.min(this.from.x, event.offsetX), y: Math.min(this.from.y, event.offsetY), w: Math.abs(dx), h: Math.abs(dy) }; this.draw() }
  }

  press(event) { // a drag selects; of what is selected it carries the instance there; of a finger, the middle button, or over the background of a zoomed view it pans
    this.dragged = false
    const touch = event.pointerType === "touch", start = this.under(event)
    if (touch && !this.zoomed) return
    if (event.button > 1) return
    this.from = { x: event.offsetX, y: event.offsetY, px: event.offsetX, py: event.offsetY, kind: start?.kind, pans: touch || event.button === 1 || (!start && this.zoomed) }
    const held = !touch && this.onDrop && [start, start?.parent, start?.node].some((b) => b && this.chosen.has(b))
    if (held) Object.assign(this.from, { who: this.scene.inside(start).find((b) => b.who !== undefined)?.who, node: this.chosen.has(start.node) }) // a node goes to a node, an NPU to an NPU
  }

  release(event) {
    const { band, carried } = this, kind = ["rack", undefined].includes(this.from?.kind) ? "node" : this.from.kind
    this.from = this.band = this.carried = null
    if (carried && event.type !== "pointercancel") { this.draw(); if (carried.to) this.onDrop(carried.who, carried.to) }
    if (!band || event.type === "pointercancel") return
    const { x, y, s } = this.camera, touches = (b) => (b.x - x) * s < band.x + band.w && (b.x + b.w - x) * s > band.x && (b.y - y) * s < band.y + band.h && (b.y + b.h - y) * s > band.y
    if (!(event.shiftKey || this.extend)) this.chosen.clear()
    this.choose(this.scene.boxes.filter((b) => b.kind === kind && touches(b)))
  }

  select(box, add = false) { // one element; with `add` it joins the others, or leaves them
    if (!add) this.chosen.clear()
    const nameable = !box ? [] : this.scene.edits.has(box.name) || !box.kids.length ? [box] : box.kids
    this.choose(nameable, add)
  }

  choose(boxes, toggles = false) {
    for (const box of boxes) toggles && this.chosen.has(box) ? this.chosen.delete(box) : this.chosen.add(box)
    this.draw()
    this.onSelect()
  }

  get last() { return [...this.chosen].at(-1) ?? null }

  seek(box) { // show and select one
    this.focus = box.node ?? (box.kids.length ? box : box.parent)
    this.chosen = new Set([box])
    this.fly(this.at(this.focus))
    this.onSelect()
    this.canvas.focus({ preventScroll: true })
  }

  key(event) {
    const { key } = event, now = this.hover ?? this.last
    if (this.onKey(event, now)) return event.preventDefault()
    if (event.ctrlKey || event.metaKey || event.altKey) return
    if (KEYS[key]) {
      const next = this.beside(now, KEYS[key])
      this.hover = null
      this.reveal(next)
      if (event.shiftKey) this.choose([now, next].filter(Boolean))
      else { this.chosen.clear(); this.choose([next]) }
    } else if (key === "Enter" && now) {
      if (!this.chosen.has(now)) return this.select(now), event.preventDefault()
      this.open(now)
      if (now.kids.length) { this.chosen.clear(); this.choose([now.kids[0]]) }
    } else if (key === "Escape") {
      if (this.zoomed) { this.focus = this.focus?.parent ?? null; this.fly(this.at(this.focus)) } else this.select(null)
    } else if (key === "+" || key === "=") this.zoom(1.4)
    else if (key === "-") this.zoom(1 / 1.4)
    else if (key === "0") { this.focus = null; this.fly(this.at(null)) }
    else return
    event.preventDefault()
  }

  beside(from, [dx, dy]) { // the nearest box of the same kind in a direction, straight ahead preferred
    if (!from) return this.scene.nodes[0]
    const middle = (b) => [b.x + b.w / 2, b.y + b.h / 2], [x, y] = middle(from)
    let best = from, least = Infinity
    for (const b of this.scene.boxes) {
      if (b === from || (b.kind !== from.kind && b.parent !== from.parent)) continue
      const [bx, by] = middle(b), ahead = (bx - x) * dx + (by - y) * dy, aside = Math.abs((bx - x) * dy) + Math.abs((by - y) * dx)
      if (ahead >= 1 && ahead + 4 * aside < least) { least = ahead + 4 * aside; best = b }
    }
    return best
  }

  reveal(box) { // pan as little as shows a box
    const { x, y, s } = this.camera, over = (at, size, whole) => Math.min(0, at - 12) || Math.max(0, at + size + 12 - whole)
    const dx = over((box.x - x) * s, box.w * s, this.width), dy = over((box.y - y) * s, box.h * s, this.height)
    if (this.zoomed && (dx || dy)) this.pan(dx, dy)
  }

  // --- What is drawn -----------------------------------------------------------------------

  readTheme(host) {
    const style = getComputedStyle(host), read = (name) => style.getPropertyValue(`--st-${name}`).trim()
    this.style = { text: read("text-color"), paper: read("background-color"), panel: read("secondary-background-color"), line: read("border-color"), quiet: read("gray-color"), accent: read("primary-color"), font: read("font") || "sans-serif", ramp: read("chart-sequential-colors").split(",").map((c) => c.trim()) }
  }

  ramp(part) { const { ramp } = this.style; return ramp[Math.round(Math.min(1, Math.max(0, part)) * (ramp.length - 1))] }

  draw() { // boxes are drawn on a sheet of their own, so that what flows behind them costs no boxes
    if (!this.camera || !this.style) return
    const began = performance.now()
    this.sheet ??= document.createElement("canvas")
    if (this.sheet.width !== this.canvas.width || this.sheet.height !== this.canvas.height) Object.assign(this.sheet, { width: this.canvas.width, height: this.canvas.height })
    const pen = this.begin(this.sheet)
    this.wires = 0
    for (const [i] of this.scene.told.blocks) this.box(this.scene.boxes[i])
    for (const box of this.chosen) if (this.chosen.size <= 60) this.fan(box)
    if (this.hover && !this.chosen.has(this.hover)) this.fan(this.hover)
    for (const [box, colour] of this.marked ?? []) this.frame(box, colour, 2)
    for (const box of this.chosen) this.frame(box, this.style.accent, 2.4)
    if (this.hover && !this.chosen.has(this.hover)) this.frame(this.hover, this.style.text, 1.4)
    if (this.carried?.to) {
      const { who, to } = this.carried, [role, name] = this.scene.instances[who]
      this.frame(to, this.colours[role], 3)
      this.write([`${name} here`, name], to.x + 4, to.y - 8 / this.camera.s, Infinity, this.style.text, 600)
    }
    if (this.band) {
      const { s } = this.camera, [x, y, w, h] = [this.band.x / s + this.camera.x, this.band.y / s + this.camera.y, this.band.w / s, this.band.h / s]
      pen.fillStyle = pen.strokeStyle = this.style.accent
      pen.globalAlpha = 0.14; pen.fillRect(x, y, w, h)
      pen.globalAlpha = 1; pen.lineWidth = 1 / s; pen.strokeRect(x, y, w, h)
    }
    this.compose()
    this.draws++
    this.spent += performance.now() - began
    this.onDraw?.()
  }

  begin(canvas) { // a cleared pen that counts in units
    const ratio = window.devicePixelRatio || 1, { x, y, s } = this.camera, pen = canvas.getContext("2d")
    pen.setTransform(1, 0, 0, 1, 0, 0)
    pen.clearRect(0, 0, canvas.width, canvas.height)
    pen.setTransform(ratio * s, 0, 0, ratio * s, -x * s * ratio, -y * s * ratio)
    pen.textBaseline = "middle"
    return (this.pen = pen)
  }

  compose() { // the links, what flows on them, and the sheet of boxes over both
    if (!this.camera) return
    const pen = this.begin(this.canvas)
    this.backdrop()
    pen.setTransform(1, 0, 0, 1, 0, 0)
    if (this.sheet.width && this.sheet.height) pen.drawImage(this.sheet, 0, 0) // not while hidden
  }

  loadOf(bundle) { return this.scene.load ? bundle.load : NaN }

  // Bundles between racks and planes of switches; between nodes and these where nodes are large.
  backdrop() {
    const { scene } = this, nodes = scene.nodes[0]?.w * this.camera.s > 320, unit = nodes ? (b) => b.node ?? b.block : (b) => b.block
    const bundles = scene.all(nodes ? "nodes" : "blocks", unit).filter((b) => !this.hidden.has(b.plane)), most = {}
    for (const b of bundles) most[b.plane] = Math.max(most[b.plane] ?? 0, b.built)
    const quiet = (this.chosen.size || this.hover ? 0.45 : 1) * (scene.told.fixed ? 0.6 : 1)
    for (const b of bundles) if (b.gb > 0) {
      const load = this.loadOf(b), [colour, alpha] = this.hue(b, load)
      this.line(b, colour, (0.7 + 1.3 * (b.gb / most[b.plane])) * (load > 0 ? 1.4 : 1), alpha * quiet)
    }
    this.flow?.(bundles)
  }

  hue({ plane }, load) { // colour and strength of a bundle: of its plane, or by how full it is
    if (load > 0) return [this.ramp(load / this.high), 0.75]
    return Number.isNaN(load) ? [this.colours[plane] ?? this.style.quiet, 0.34] : [this.style.quiet, 0.18]
  }

  fan(box) { // the links of one box, as bundles to what stands for their far ends
    const { scene } = this, shown = (far) => {
      const near = far.node && far.node === box.node
      for (let b = far; ; b = b.parent) if (!b.parent || b.w * this.camera.s >= (near ? 5 : 22)) return b
    }
    const bundles = scene.bundles(scene.inside(box), box, shown).filter((b) => !this.hidden.has(b.plane)), most = Math.max(...bundles.map((b) => b.gb), 1e-9)
    for (const b of bundles) this.line(b, this.hue(b, this.loadOf(b))[0], b.gb > 0 ? (0.8 + 2.6 * Math.sqrt(b.gb / most)) * (bundles.length > 24 ? 0.55 : 1) : 1, b.gb > 0 ? 0.9 : 0.5, b.gb > 0 ? [] : [2, 4])
    this.wires += bundles.length
  }

  curve({ from, to }) { // of a bundle: [x0, y0, x1, y1, x2, y2, x3, y3]
    const lean = (a, b) => a.x + a.w * (0.5 + 0.36 * Math.max(-1, Math.min(1, (b.x + b.w / 2 - a.x - a.w / 2) / (0.5 * this.scene.size.w))))
    const above = from.y + from.h <= to.y + 0.5, below = to.y + to.h <= from.y + 0.5
    if (above || below) {
      const y0 = above ? from.y + from.h : from.y, y3 = above ? to.y : to.y + to.h, x0 = lean(from, to), x3 = lean(to, from), mid = (y3 - y0) * 0.55
      return [x0, y0, x0, y0 + mid, x3, y3 - mid, x3, y3]
    }
    const right = to.x > from.x, x0 = right ? from.x + from.w : from.x, x3 = right ? to.x : to.x + to.w, y0 = from.y + from.h / 2, y3 = to.y + to.h / 2
    const bow = Math.min(40, Math.abs(x3 - x0) * 0.2) // around what stands between
    return [x0, y0, x0 + (x3 - x0) * 0.25, y0 - bow, x0 + (x3 - x0) * 0.75, y3 - bow, x3, y3]
  }

  line(bundle, colour, width, alpha, dash = [], offset = 0) { // width and dash in px
    const { pen } = this, { s } = this.camera, [x0, y0, ...rest] = this.curve(bundle)
    pen.strokeStyle = colour
    pen.globalAlpha = alpha
    pen.lineWidth = width / s
    pen.setLineDash(dash.map((d) => d / s))
    pen.lineDashOffset = offset / s
    pen.beginPath(); pen.moveTo(x0, y0); pen.bezierCurveTo(...rest); pen.stroke()
    pen.globalAlpha = 1
    pen.setLineDash([])
  }

  box(b) {
    const { pen, style, scene } = this, { s, x, y } = this.camera, px = b.w * s
    if ((b.x - x) * s > this.width || (b.y - y) * s > this.height || (b.x + b.w - x) * s < 0 || (b.y + b.h - y) * s < 0) return
    const small = b.kids.length && Math.min(b.kids[0].w, b.kids[0].h) * s, opens = b.kids.length > 0 && (b.kind === "npu" ? b.kids.at(-1).w * s >= 8 : small >= 2.2)
    const { fill, alpha = 1, line, off } = this.paint(b.kind === "node" && !opens ? b.kids[0] : b), round = Math.min({ rack: 6, plane: 6, node: 4 }[b.kind] ?? 1.6, 7 / s)
    const path = () => { pen.beginPath(); px < 15 ? pen.rect(b.x, b.y, b.w, b.h) : pen.roundRect(b.x, b.y, b.w, b.h, round) }
    if (!b.parent) { pen.fillStyle = style.paper; path(); pen.fill() } // curves pass behind
    if (fill) { pen.globalAlpha = alpha; pen.fillStyle = fill; path(); pen.fill(); pen.globalAlpha = 1 }
    if (line) { pen.strokeStyle = line; pen.lineWidth = 1 / s; path(); pen.stroke() }
    if (off || scene.off(b) && !(b.parent && scene.off(b.parent) && b.kind !== "npu")) this.strike(b)
    this.words(b, px, alpha > 0.85 ? fill : null)
    if (opens) for (const kid of b.kids) this.box(kid)
    if ((scene.within.has(b.name) || scene.mark(b)) && (!b.parent || b.kind === "node" || scene.mark(b)) && px > 5) this.corner(b)
  }

  words(b, px, fill) { // a name where there is room for it, at one size whatever the zoom
    const { style } = this, { s } = this.camera
    if (b.kind === "node") this.write([b.name.split(" ")[1]], b.x + 13.5, b.y + b.h / 2, 23, style.quiet, 400, true, 8)
    else if (!b.parent) this.write(this.labels(b), b.x + 7, b.y + (b.kids.length ? 13 : b.h / 2), b.w - 9, fill && b.kind === "switch" ? contrast(fill) : b.plane ? this.legible(b.plane) : style.quiet, 600)
    else if (!b.kids.length && px > 20 && b.h * s > 11) this.write([b.name, ["die", "nic", "l2"].includes(b.kind) ? b.name.split(".").at(-1) : b.one.split(" ")[0]], b.x + b.w / 2, b.y + b.h / 2, b.w - 3 / s, fill ? contrast(fill) : style.text, 400, true)
  }

  write(texts, x, y, room, colour, weight, centred = false, least = 11) { // the first text that fits, in px of at least
    const { pen } = this, { s } = this.camera, font = (px) => { const wanted = `${weight} ${px / s}px ${this.style.font}`; if (pen.font !== wanted) pen.font = wanted }
    for (const text of texts) {
      font(11)
      const key = `${weight}${text}`, width = this.widths.get(key) ?? pen.measureText(text).width * s, px = Math.min(11, 11 * room * s / width)
      this.widths.set(key, width)
      if (px < least) continue
      font(px)
      pen.fillStyle = colour
      return pen.fillText(text, centred ? x - width * px / 11 / s / 2 : x, y)
    }
  }

  label(b) { return b.kind === "plane" ? b.name.replace("sub-plane", "UB sub-plane") : b.name }
  labels(b) {
    const name = b.name.replace(/ network$/, ""), last = b.name.split(" ").at(-1)
    return [this.label(b), ...(b.kids.length ? [b.name, b.kind === "plane" ? `UB ${last}` : last] : [name, name.includes(" and ") ? name.replace(" and ", ", ") : name.split(" ")[0]])]
  }
  legible(plane) { return `color-mix(in srgb, ${this.colours[plane]} 62%, ${this.style.text})` } // as text, on light and on dark

  corner(b) { // this element was edited, or something in it
    const { pen } = this, size = Math.min(6 / this.camera.s, b.h / 2, b.w / 2), x = b.x + b.w, y = b.y
    pen.fillStyle = this.style.accent
    pen.beginPath(); pen.moveTo(x - size, y); pen.lineTo(x, y); pen.lineTo(x, y + size); pen.fill()
  }

  strike(b) { // this element is off
    const { pen, style } = this, { s } = this.camera
    pen.save()
    pen.beginPath(); pen.rect(b.x, b.y, b.w, b.h); pen.clip()
    pen.fillStyle = style.paper; pen.globalAlpha = 0.72; pen.fillRect(b.x, b.y, b.w, b.h)
    pen.globalAlpha = 0.8; pen.strokeStyle = OFF; pen.lineWidth = 1 / s
    const step = 6 / s
    pen.beginPath()
    for (let k = b.x - b.h; k < b.x + b.w; k += step) { pen.moveTo(k, b.y + b.h); pen.lineTo(k + b.h, b.y) }
    pen.stroke()
    pen.strokeRect(b.x, b.y, b.w, b.h)
    pen.restore()
  }

  frame(b, colour, width) {
    const { pen } = this, { s } = this.camera
    for (const [c, w] of [[this.style.paper, width + 2], [colour, width]]) { pen.strokeStyle = c; pen.lineWidth = w / s; pen.beginPath(); pen.roundRect(b.x - 1 / s, b.y - 1 / s, b.w + 2 / s, b.h + 2 / s, 3 / s); pen.stroke() }
  }
}

const OFF = "#D03B2F", KIND = 0.3 // how strong the ground of a further kind is

function contrast(hex) { // black or white, whichever reads better on a colour
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#1A1D29" : "#FFFFFF"
}

// A node of a further kind has a ground of its own.
function ground({ style, colours }, b) { return { fill: b.chip ? colours[`kind_${b.chip}`] : style.paper, alpha: b.chip ? KIND : 1, line: style.line } }

// Colours by role: dies by the instance that has them, what has none is idle; switches by plane.
function byRole(picture, b) {
  const { style, colours, scene } = picture
  if (b.kind === "rack" || b.kind === "plane" || !b.parent) return { fill: b.plane ? colours[b.plane] : style.panel, alpha: b.plane ? 0.1 : 0.75, line: style.line }
  if (b.kind === "node") return ground(picture, b)
  if (b.kind === "npu" || b.kind === "die") {
    const shared = b.shared || b.parent.shared, role = shared ? "colocated" : scene.instances[b.who]?.[0], bare = b.kind === "npu" && b.kids.at(-1)?.w * picture.camera.s >= 8
    return role ? { fill: colours[role], alpha: bare ? 0.28 : 0.86 } : { fill: style.quiet, alpha: bare ? 0.1 : 0.2 }
  }
  return { fill: b.plane ? colours[b.plane] : style.quiet, alpha: b.plane ? 0.5 : 0.32 }
}

// Colours by load: everything by the fullest of its links.
function byLoad(picture, b) {
  const { style, scene } = picture, value = scene.full[b.i], bare = b.kind === "npu" && b.kids.at(-1)?.w * picture.camera.s >= 8
  if (b.kind === "rack" || b.kind === "plane") return { fill: style.panel, alpha: 0.75, line: style.line }
  if (b.kind === "node") return ground(picture, b)
  return value > 0 ? { fill: picture.ramp(value / picture.high), alpha: bare ? 0.25 : 0.92, line: b.parent ? undefined : style.line } : { fill: style.quiet, alpha: 0.14 }
}
