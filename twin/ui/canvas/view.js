// The fabric on a canvas: nodes x planes as a matrix, one node's or one sub-plane's chips on
// drill-in, links only for the chip that is pointed at or selected. The server sends the machine,
// what edits changed of it, and the colours of the moment (`live`); what is shown, zoomed, hovered
// and selected lives here, so a recolouring or an edit never resets the view. Only a selection goes
// back, and what edit.js asks for.

const VIEWS = new WeakMap()
const NO_VIEW = { kind: "matrix", index: null }
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }

export default function ({ data, parentElement, setStateValue }) {
  if (!VIEWS.has(parentElement)) VIEWS.set(parentElement, new View(parentElement))
  const view = VIEWS.get(parentElement)
  view.send = (selection) => setStateValue("selection", selection)
  view.ask = (acts) => setStateValue("acts", acts)
  view.update(data)
  return () => { view.close(); VIEWS.delete(parentElement) }
}

class View {
  constructor(root) {
    const $ = (id) => root.querySelector(`#${id}`)
    this.host = root.host ?? root
    Object.assign(this, { canvas: $("canvas"), stage: $("stage"), anchor: $("anchor"), text: $("text"), place: $("place"), back: $("back"),
      search: $("search"), opens: $("opens"), legend: $("legend"), smaller: $("smaller"), larger: $("larger") })
    Object.assign(this, { view: NO_VIEW, zoom: 1, hover: null, selected: null, chosen: new Map(), draws: 0, said: "" })
    this.listen()
    this.editor = new Editor(this, $)
  }

  listen() {
    const c = this.canvas
    c.onpointermove = (e) => { if (e.pointerType !== "touch" && !this.editor.drag(e)) this.point(this.under(e)) }
    c.onpointerleave = () => this.point(null)
    c.onclick = (e) => { if (!this.editor.dropped()) this.select(this.under(e), this.editor.adds(e)) }
    c.ondblclick = (e) => this.open(this.under(e))
    c.onkeydown = (e) => this.key(e)
    c.onblur = () => this.point(null)
    c.where = (name) => { // for tests: the middle of a box, CSS px from the canvas' corner
      const b = this.layout.boxes.find((box) => box.name === name)
      return b ? { x: b.x + b.w / 2, y: b.y + (b.frame ? 9 : b.h / 2) } : null
    }
    this.search.onkeydown = (e) => { if (e.key === "Enter") this.seek(this.search.value) }
    this.back.onclick = () => this.show(NO_VIEW)
    this.smaller.onclick = () => this.scale(-1)
    this.larger.onclick = () => this.scale(1)
    this.observer = new ResizeObserver(() => { if (this.machine && this.stage.clientWidth !== this.width) this.arrange() })
    this.observer.observe(this.stage)
  }

  close() { this.observer.disconnect(); this.editor.close() }

  update({ machine, changes, instances, colours, live, height, editable, acted }) {
    if (machine.digest !== this.machine?.told.digest) this.machine = new Machine(machine, colours)
    this.machine.change(changes)
    Object.assign(this.machine, { instances })
    this.live = live
    this.stage.style.maxHeight = height ? `${height}px` : ""
    for (const name of [...this.chosen.keys()]) if (!this.machine.elements.has(name)) this.chosen.delete(name)
    if (this.selected && !this.chosen.has(this.selected.name)) this.selected = [...this.chosen.values()].at(-1) ?? null
    this.editor.update(editable, acted)
    const { kind, index } = this.view
    if (index !== null && !this.machine.groups[kind][index]) this.view = NO_VIEW
    this.hover = null
    this.readTheme()
    this.drawLegend()
    this.arrange()
  }

  readTheme() {
    const style = getComputedStyle(this.host), read = (name) => style.getPropertyValue(`--st-${name}`).trim()
    this.colour = { text: read("text-color"), paper: read("background-color"), panel: read("secondary-background-color"),
      line: read("border-color"), quiet: read("gray-color"), accent: read("primary-color") }
    this.font = `12px ${read("font") || "sans-serif"}`
    this.ramp = read("chart-sequential-colors").split(",").map((c) => c.trim())
  }

  arrange() { // lay out for the width there is, size the canvas for the screen, draw
    this.width = this.stage.clientWidth
    if (!this.width) return
    const { kind, index } = this.view, args = [this.machine, this.live, this.width, this.zoom]
    this.layout = kind === "node" ? nodeLayout(...args, index) : kind === "plane" ? planeLayout(...args, index) : matrixLayout(...args)
    const { width, height } = this.layout, ratio = window.devicePixelRatio || 1
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio })
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` })
    this.draw()
    this.say()
  }

  // --- What a person does ------------------------------------------------------------------

  under(event) {
    const { left, top } = this.canvas.getBoundingClientRect()
    const x = event.clientX - left, y = event.clientY - top
    const hit = (b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h
    return this.layout.boxes.findLast(hit) ?? null
  }

  point(box) {
    if ((box?.name ?? null) === (this.hover?.name ?? null)) return
    this.hover = box
    this.canvas.style.cursor = box ? "pointer" : "default"
    this.draw()
    this.say()
  }

  select(box, add = false) { // one element; with `add` it joins the others, or leaves them
    const found = box ? this.machine.elements.get(box.name) : null
    if (add) return found && this.choose([found], true)
    if (this.chosen.size < 2 && (found?.name ?? null) === (this.selected?.name ?? null)) return
    this.chosen.clear()
    this.choose(found ? [found] : [])
  }

  choose(elements, toggles = false) { // add to what is selected; with `toggles`, those that are in go
    for (const found of elements)
      if (toggles && this.chosen.has(found.name)) this.chosen.delete(found.name)
      else this.chosen.set(found.name, found)
    this.selected = [...this.chosen.values()].at(-1) ?? null
    this.draw()
    this.say()
    this.editor.show()
    this.send(this.selected ? { name: this.selected.name, names: [...this.chosen.keys()] } : {})
  }

  open(box) { // a node's or a sub-plane's chips
    if (!box) return
    const found = this.machine.elements.get(box.name)
    if (found.kind === "plane") this.show({ kind: "plane", index: found.plane })
    else if (found.node !== null && this.view.kind === "matrix") this.show({ kind: "node", index: found.node })
  }

  show(view) {
    this.view = view
    this.hover = null
    this.arrange()
  }

  seek(typed) {
    const found = this.machine.find(typed)
    if (!found) {
      this.said = typed.trim() ? `No element is named “${typed}”: try NPU 20.1, die 20.1.0, L1 20.3, L2 3.12 or node 20.` : ""
      return this.say()
    }
    const { node, plane } = found, cell = this.machine.told.cells.some(([name]) => name === found.name)
    if (cell) this.view = NO_VIEW
    else if (node !== null) this.view = { kind: "node", index: node }
    else this.view = plane !== null ? { kind: "plane", index: plane } : NO_VIEW
    this.arrange()
    this.select(found)
    this.canvas.focus({ preventScroll: true })
    this.bring(this.layout.boxes.find((b) => b.name === found.name))
  }

  bring(b) { // scroll as little as shows a box
    if (!b) return
    Object.assign(this.anchor.style, { left: `${b.x}px`, top: `${b.y}px`, width: `${b.w}px`, height: `${b.h}px` })
    this.anchor.scrollIntoView({ block: "nearest", inline: "nearest" })
  }

  scale(step) {
    this.zoom = step ? Math.min(3, Math.max(1, this.zoom + step * 0.5)) : 1
    this.arrange()
  }

  key(event) {
    const { key } = event
    const now = this.hover ?? this.layout.boxes.find((b) => b.name === this.selected?.name) ?? null
    if (this.editor.key(event, now)) return event.preventDefault()
    if (KEYS[key]) { this.point(this.beside(now, KEYS[key])); this.bring(this.hover) }
    else if (key === "Enter") now && now.name === this.selected?.name ? this.open(now) : this.select(now)
    else if (key === " ") this.select(now)
    else if (key === "Escape") this.selected ? this.select(null) : this.show(NO_VIEW)
    else if (key === "+" || key === "=") this.scale(1)
    else if (key === "-") this.scale(-1)
    else if (key === "0") this.scale(0)
    else if (key === "/") this.search.focus()
    else return
    event.preventDefault()
  }

  beside(from, [dx, dy]) { // nearest box in a direction, straight ahead preferred
    const boxes = this.layout.boxes
    if (!from) return boxes.find((b) => b.cell) ?? boxes.find((b) => !b.frame)
    const middle = (b) => [b.x + b.w / 2, b.y + b.h / 2], [x, y] = middle(from)
    let best = from, least = Infinity
    for (const b of boxes) {
      const [bx, by] = middle(b), ahead = (bx - x) * dx + (by - y) * dy, aside = Math.abs((bx - x) * dy) + Math.abs((by - y) * dx)
      if (b === from || b.name === from.name || ahead < 1 || b.frame) continue
      if (ahead + 4 * aside < least) { least = ahead + 4 * aside; best = b }
    }
    return best
  }

  // --- What is drawn -----------------------------------------------------------------------

  shade(value) {
    if (value === null || value === undefined) return null
    const { low, high } = this.live, part = high > low ? (value - low) / (high - low) : 1
    return this.ramp[Math.round(Math.min(1, Math.max(0, part)) * (this.ramp.length - 1))]
  }

  draw() {
    const pen = this.canvas.getContext("2d"), ratio = window.devicePixelRatio || 1
    pen.setTransform(ratio, 0, 0, ratio, 0, 0)
    pen.clearRect(0, 0, this.layout.width, this.layout.height)
    pen.font = this.font
    pen.textBaseline = "middle"
    for (const s of this.layout.strips) { pen.fillStyle = this.machine.colours[s.role]; pen.beginPath(); pen.roundRect(s.x, s.y, s.w, s.h, 2); pen.fill() }
    for (const n of this.layout.notes) this.write(pen, n.text, n.x, n.y, n.plane ? this.legible(n.plane) : this.colour.quiet)
    const focus = this.hover?.name ?? this.selected?.name, lit = focus && this.machine.elements.get(focus)
    this.canvas.dataset.links = 0
    if (focus) this.drawLinks(pen, focus) // below the boxes, so that every name stays readable
    for (const b of this.layout.boxes) this.box(pen, b, lit)
    for (const b of this.layout.boxes) {
      if (this.chosen.has(b.name) && !b.head && b.kind !== "node") {
        this.outline(pen, b, this.colour.paper, 5)
        this.outline(pen, b, this.colour.accent, 2.5)
      }
      else if (b.name === this.hover?.name && !b.head && b.kind !== "node") this.outline(pen, b, this.colour.text, 1.5)
    }
    this.editor.draw(pen)
    this.publish()
  }

  box(pen, b, lit) {
    if (b.head) {
      if (this.machine.within.has(b.name) || this.machine.mark(b.name)) this.corner(pen, b)
      const own = this.machine.elements.get(b.name), on = this.chosen.has(b.name) || lit && lit[b.kind] === own[b.kind]
      const colour = b.plane ? this.legible(b.plane) : this.colour.quiet
      return this.write(pen, b.text, b.kind === "node" ? b.x + 1 : b.x, b.y + b.h / 2, on ? this.colour.text : colour, on)
    }
    if (b.kind === "node" && (this.machine.within.has(b.name) || this.machine.mark(b.name))) this.corner(pen, b)
    if (b.kind === "node") { if (this.chosen.has(b.name) || lit?.node === this.machine.elements.get(b.name).node) this.write(pen, b.text, b.x + 1, b.y + b.h / 2, this.colour.text, true); return }
    if (b.frame) {
      pen.strokeStyle = this.colour.line
      pen.lineWidth = 1
      pen.beginPath(); pen.roundRect(b.x + 0.5, b.y + 0.5, b.w - 1, b.h - 1, 5); pen.stroke()
      return this.write(pen, b.text, b.x + 5, b.y + 10, this.colour.quiet)
    }
    const value = b.value ?? this.live.elements[b.name], gap = b.cell ? 0.75 : 0
    const fill = this.live.measured ? this.shade(value) : null, strength = this.strength(b, value)
    if (!b.cell) { pen.fillStyle = this.colour.paper; pen.beginPath(); pen.roundRect(b.x, b.y, b.w, b.h, 4); pen.fill() }
    pen.fillStyle = fill ?? (b.plane ? this.machine.colours[b.plane] : this.colour.panel)
    pen.globalAlpha = fill || !b.plane ? 1 : strength
    pen.beginPath(); pen.roundRect(b.x + gap, b.y + gap, b.w - 2 * gap, b.h - 2 * gap, b.cell ? 2 : 4); pen.fill()
    pen.globalAlpha = 1
    if (!b.cell || (!fill && strength < 0.1)) this.outline(pen, b, this.colour.line, 1, gap)
    const mark = this.machine.mark(b.name)
    if ((mark && !mark[0]) || (b.cell && value === 0 && !this.live.measured)) this.strike(pen, b)
    else if (mark) this.corner(pen, b)
    const fits = b.cell ? null : [b.text, b.text?.split(".").at(-1)].find((t) => t && pen.measureText(t).width < b.w - 4)
    if (fits) {
      const x = b.x + (b.w - pen.measureText(fits).width) / 2
      const solid = fill ?? (b.plane && strength > 0.6 ? this.machine.colours[b.plane] : null)
      this.write(pen, fits, x, b.y + b.h / 2 + 0.5, solid ? contrast(solid) : this.colour.text)
    }
  }

  corner(pen, b) { // this element was edited
    const size = Math.min(7, b.h / 2), x = b.x + (b.plane === "ub" && b.head ? -8 : 0) + b.w - (b.cell ? 1 : 1), y = b.y + 1
    pen.fillStyle = this.colour.accent
    pen.beginPath(); pen.moveTo(x - size, y); pen.lineTo(x, y); pen.lineTo(x, y + size); pen.fill()
  }

  strike(pen, b) { // this element is off
    pen.strokeStyle = this.colour.quiet
    pen.lineWidth = 1.2
    pen.beginPath(); pen.moveTo(b.x + 2, b.y + b.h - 2); pen.lineTo(b.x + b.w - 2, b.y + 2); pen.stroke()
  }

  // Without measured values a box shows its plane's colour, fainter where it can carry less.
  strength(b, value) {
    if (value === null || value === undefined) return this.live.measured ? 0 : 0.4
    return value > 0 ? 0.1 + 0.65 * Math.min(1, value / this.live.most[b.plane]) : 0
  }

  legible(plane) { return `color-mix(in srgb, ${this.machine.colours[plane]} 60%, ${this.colour.text})` } // as text, on light and on dark

  write(pen, text, x, y, colour, strong = false) {
    pen.font = strong ? `600 ${this.font}` : this.font
    pen.fillStyle = colour
    pen.fillText(text, x, y)
    pen.font = this.font
  }

  outline(pen, b, colour, width, gap = 0) {
    pen.strokeStyle = colour
    pen.lineWidth = width
    const inset = gap + width / 2 - (width > 1 ? 1 : 0)
    pen.beginPath(); pen.roundRect(b.x + inset, b.y + inset, b.w - 2 * inset, b.h - 2 * inset, b.cell ? 2 : 4); pen.stroke()
  }

  drawLinks(pen, name) { // of one chip, to whatever of its ends is in this view
    if (this.view.kind === "matrix") return
    const at = new Map(this.layout.boxes.map((b) => [b.name, b])), from = at.get(name)
    const { members } = this.machine.elements.get(name), own = (v) => at.get(this.machine.told.names[v])
    const links = from && !["node", "plane"].includes(from.kind) ? members.flatMap((v) => this.machine.links(v).map((l) => [own(v), l])) : []
    const most = Math.max(...links.map(([, l]) => l.gb), 1), width = links.length > 24 ? 1.2 : 2.4
    for (const [a, link] of links) {
      const b = at.get(link.name)
      if (!a || !b) continue
      pen.strokeStyle = this.machine.colours[link.plane]
      pen.lineWidth = Math.max(1, width * Math.sqrt(link.gb / most))
      pen.globalAlpha = link.gb > 0 ? 0.75 : 0.45
      pen.setLineDash(link.gb > 0 ? [] : [2, 4])
      pen.beginPath()
      const down = b.y >= a.y + a.h, up = b.y + b.h <= a.y, right = b.x > a.x
      if (down || up) {
        pen.moveTo(a.x + a.w / 2, down ? a.y + a.h : a.y)
        pen.lineTo(b.x + b.w / 2, down ? b.y : b.y + b.h)
      } else {
        pen.moveTo(right ? a.x + a.w : a.x, a.y + a.h / 2)
        pen.lineTo(right ? b.x : b.x + b.w, b.y + b.h / 2)
      }
      pen.stroke()
      pen.globalAlpha = 1
      pen.setLineDash([])
    }
    this.canvas.dataset.links = links.filter(([a, l]) => a && at.has(l.name) && l.gb > 0).length
  }

  // --- What is said ------------------------------------------------------------------------

  say() {
    const { kind, index } = this.view
    const { name } = this.machine.groups[kind]?.[index] ?? { name: this.live.title }
    this.place.textContent = name[0].toUpperCase() + name.slice(1)
    this.back.hidden = kind === "matrix"
    const found = this.hover ? this.machine.elements.get(this.hover.name) : this.selected
    this.text.replaceChildren()
    if (this.said) { this.text.append(this.said); this.said = "" }
    else if (found) {
      const strong = document.createElement("b")
      strong.textContent = found.name
      const value = this.valueOf(found), facts = describe(this.machine, found), change = edited(this.machine, found.name)
      if (change) facts.unshift(change)
      const instances = found.node !== null && this.machine.instances.filter(([, , a, b]) => found.node >= Math.floor(a) && found.node < b).map(([, label]) => label)
      if (value !== null && this.live.measured) facts.unshift(`${this.live.title.toLowerCase()} ${number(value)} ${this.live.unit}`)
      if (instances && instances.length && kind === "matrix") facts.push(instances.join(", "))
      const many = this.chosen.size > 1 && !this.hover ? `${this.chosen.size} selected, last ` : ""
      this.text.append(many, strong, ` · ${facts.join(" · ")}`)
    } else {
      const hint = document.createElement("span")
      hint.className = "hint"
      hint.textContent = kind === "matrix" ? this.editor.hint ?? "Point at a cell, click to select it. Double-click, or Enter twice, opens the node." : "Point at a chip to see its links. Esc goes back."
      this.text.append(hint)
    }
    this.offer(this.selected)
  }

  valueOf(found) {
    const box = this.layout.boxes.find((b) => b.name === found.name)
    return box?.value ?? this.live.elements[found.name] ?? null
  }

  offer(found) { // buttons that open what is selected: a tap has no double-click to spare
    this.opens.replaceChildren()
    if (!found || this.view.kind === "node") return
    const button = (text, view) => {
      const b = document.createElement("button")
      b.type = "button"
      b.textContent = text
      b.onclick = () => this.show(view)
      this.opens.append(b)
    }
    if (found.node !== null) button(`Open ${this.machine.groups.node[found.node].name}`, { kind: "node", index: found.node })
    if (found.plane !== null && this.view.kind !== "plane") button(`Open ${this.machine.groups.plane[found.plane].name}`, { kind: "plane", index: found.plane })
  }

  drawLegend() {
    const { low, high, unit, title, measured, most } = this.live, parts = []
    const part = (name, ...words) => {
      const key = document.createElement("span"), swatch = document.createElement("span")
      swatch.className = "swatch"
      swatch.style.background = this.machine.colours[name]
      key.append(swatch, ...words)
      parts.push(key)
    }
    if (measured) {
      const scale = document.createElement("span"), bar = document.createElement("span")
      bar.className = "ramp"
      bar.style.background = high > low ? `linear-gradient(90deg, ${this.ramp.join(", ")})` : this.ramp.at(-1)
      scale.append(`${title}: ${number(low)}`, bar, `${number(high)} ${unit}`)
      parts.push(scale)
    } else {
      parts.push(`${title}, ${unit}:`)
      for (const [plane, gb] of Object.entries(most)) part(plane, `${plane.toUpperCase()} ${number(gb)}`)
    }
    if (this.machine.edits) for (const [look, words] of [["edited", "edited"], ["off", "off"]]) {
      const key = document.createElement("span"), swatch = document.createElement("span")
      swatch.className = `swatch ${look}`
      key.append(swatch, words)
      parts.push(key)
    }
    for (const role of [...new Set(this.machine.instances.map(([r]) => r))]) part(role, `${role} instances`)
    this.legend.replaceChildren(...parts)
  }

  publish() { // for tests and for people who script: no pixel guessing
    const { kind, index } = this.view
    Object.assign(this.canvas.dataset, { draw: ++this.draws, view: index === null ? kind : `${kind} ${index}`, zoom: this.zoom,
      selection: this.selected?.name ?? "", chosen: this.chosen.size, edits: this.machine.edits, pending: this.machine.pending.size, hover: this.hover?.name ?? "", boxes: this.layout.boxes.length,
      smallest: Math.min(...this.layout.boxes.map((b) => Math.min(b.w, b.h))).toFixed(1), version: this.live.version })
  }
}

function contrast(hex) { // black or white, whichever reads better on a colour
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#1A1D29" : "#FFFFFF"
}
