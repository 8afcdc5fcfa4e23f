// A run played back on the picture of its machine: dies as busy as their instance is, bytes moving
// along the links, tokens along the way of a request, the instances with their queues, and a strip
// of figures with a cursor. The server sends the whole run once; time, zoom and selection live here,
// so a frame asks nobody and never resets the view. Only what a link should remember (the time and
// what is selected) goes back, when it comes to rest.

const PLAYERS = new WeakMap()
const WIDE = 860 // px from which picture and instances stand beside each other
const PACE = 0.06 // px a ms that what flows moves on

export default function ({ data, parentElement, setStateValue }) {
  if (!PLAYERS.has(parentElement)) PLAYERS.set(parentElement, new Player(parentElement))
  const player = PLAYERS.get(parentElement)
  player.send = (view) => setStateValue("view", view)
  player.queue = player.queue.then(() => player.update(data)).catch((error) => console.error(error))
  return () => { player.close(); PLAYERS.delete(parentElement) }
}

class Player {
  constructor(root) {
    const ids = ["player", "play", "before", "after", "clock", "speed", "marks", "slider", "plane", "traffic", "search", "smaller", "larger", "views", "way",
      "stage", "fabric", "table", "legend", "yard", "instances", "pool", "fill", "filled", "text", "clear", "below", "strip", "key"]
    this.host = root.host ?? root
    this.el = Object.fromEntries(ids.map((id) => [id, root.querySelector(`#${id}`)]))
    Object.assign(this, { window: 0, playing: false, selected: null, hover: null, said: "", draws: 0, spent: 0, phase: 0, view: "machine", queue: Promise.resolve() })
    this.strip = new Strip(this.el.strip)
    const element = (box) => box && { name: box.name, box }
    this.picture = new Picture(this.el.fabric, { onSelect: () => this.select(element(this.picture.last)), onHover: (box) => { this.hover = element(box); this.say() }, onKey: (e) => [" ", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Escape", "+", "-"].includes(e.key) })
    this.picture.flow = (bundles) => this.flow(bundles)
    this.picture.paint = (b) => this.paint(b)
    this.picture.loadOf = (b) => this.loadOf(b)
    this.matrix = new Matrix(this.el.table, { onSelect: (cell) => this.select(cell === null ? null : element(this.matrix.members(cell)[0] ?? this.scene.nodes[Math.floor(cell / this.scene.told.rows.length)])), onHover: () => {} })
    this.el.player.inert = true // until there is something to point at
    this.listen()
  }

  listen() {
    const { el } = this
    el.play.onclick = () => this.toggle()
    el.before.onclick = () => this.seek(this.window - 1, true)
    el.after.onclick = () => this.seek(this.window + 1, true)
    el.slider.oninput = () => this.seek(Number(el.slider.value))
    el.slider.onchange = () => this.rest()
    el.speed.onchange = () => this.since()
    el.plane.onchange = () => { this.offerTraffic(); this.arrange() }
    el.traffic.onchange = () => this.arrange()
    el.smaller.onclick = () => this.picture.zoom(1 / 1.5)
    el.larger.onclick = () => this.picture.zoom(1.5)
    el.clear.onclick = () => this.select(null)
    for (const button of el.views.children) button.onclick = () => { this.view = button.value; this.arrange() }
    el.search.onkeydown = (e) => { if (e.key === "Enter") this.look(el.search.value); e.stopPropagation() }
    el.player.onkeydown = (e) => this.key(e)
    const tile = (e) => this.tiles.findLast((b) => e.offsetX >= b.x && e.offsetX < b.x + b.w && e.offsetY >= b.y && e.offsetY < b.y + b.h) ?? null
    el.instances.onpointermove = (e) => { const b = tile(e); if (b?.name !== this.hover?.name) { this.hover = b; el.instances.style.cursor = b ? "pointer" : "default"; this.drawInstances(); this.say() } }
    el.instances.onpointerleave = () => { this.hover = null; this.drawInstances(); this.say() }
    el.instances.onclick = (e) => { const b = tile(e); this.select(b && b.name === this.selected?.name ? null : b) }
    el.instances.where = (name) => { const b = this.tiles.find((t) => t.name === name); return b && { x: b.x + b.w / 2, y: b.y + b.h / 2 } }
    const drag = (e) => this.seek(this.strip.windowAt(e.offsetX))
    el.strip.onpointerdown = (e) => { el.strip.setPointerCapture(e.pointerId); this.dragging = true; drag(e) }
    el.strip.onpointermove = (e) => { if (this.dragging) drag(e) }
    el.strip.onpointerup = el.strip.onpointercancel = () => { if (this.dragging) { this.dragging = false; this.rest() } }
    this.observer = new ResizeObserver(() => { if (this.frames && el.player.clientWidth !== this.width) this.arrange() })
    this.observer.observe(el.player)
  }

  close() { this.closed = true; this.pause(false); this.observer.disconnect() }

  async update({ run, film, machine, start, brief }) {
    this.brief = !!brief // the machine alone, playing
    this.el.player.classList.toggle("brief", this.brief)
    this.readTheme() // before there are frames: whoever finds some may draw them
    const first = run !== this.run
    if (run !== this.run) {
      const scene = new Scene(await asBuilt(machine))
      scene.change(await inflate(film.changes))
      if (this.closed) return // the page went on while it was unpacked
      this.run = run
      this.scene = scene
      this.frames = new Frames(film, scene)
      this.picture.colours = film.colours
      this.el.slider.max = film.windows - 1
      this.offerPlanes()
      this.window = Math.max(0, Math.min(film.windows - 1, Math.floor((start.at ?? 0) / film.window_s)))
      this.seats = null
      this.keep(start.see ? this.frames.find(start.see) : null)
    }
    if (first && brief) this.begins = !matchMedia("(prefers-reduced-motion: reduce)").matches
    this.arrange()
  }

  readTheme() {
    this.picture.readTheme(this.host)
    this.style = { ...this.picture.style, font: `12px ${this.picture.style.font}` }
  }

  // --- Choices -----------------------------------------------------------------------------

  offerPlanes() {
    this.offered = this.frames.choices()
    const names = { all: "All planes", ...this.scene.told.planes }, planes = Object.keys(names).filter((p) => this.offered[p])
    fill(this.el.plane, planes.map((p) => [p, names[p]]), "all")
    this.offerTraffic()
  }

  offerTraffic() {
    const classes = [...(this.offered[this.el.plane.value] ?? [])]
    fill(this.el.traffic, [["all", "All classes"], ...classes.map((c) => [c, this.frames.traffic[c] ?? c])], this.el.traffic.value || "all")
  }

  // --- Time --------------------------------------------------------------------------------

  toggle() { this.playing ? this.pause() : this.play() }

  play() {
    if (this.window >= this.frames.windows - 1) this.seek(0)
    this.playing = true
    this.publish()
    this.el.play.textContent = "❚❚ Pause"
    this.since()
    let last = performance.now()
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches
    const tick = (now) => {
      if (!this.playing) return
      this.from ??= now
      const whole = (Number(this.el.speed.value) || this.frames.horizon_s) * 1000
      const at = this.first + Math.floor(((now - this.from) / whole) * this.frames.windows)
      if (!still) this.phase += (now - last) * PACE
      last = now
      if (at !== this.window) this.seek(at)
      else if (!still) { if (this.view === "machine") this.picture.compose(); if (!this.brief) this.drawWay() }
      this.window >= this.frames.windows - 1 ? this.pause() : requestAnimationFrame(tick)
    }
    requestAnimationFrame(tick)
  }

  since() { Object.assign(this, { from: undefined, first: this.window }) } // the clock starts anew here

  pause(tell = true) {
    if (!this.playing) return
    this.playing = false
    this.el.play.textContent = "▶ Play"
    this.publish()
    if (tell) this.rest()
  }

  seek(window_, settle = false) {
    const to = Math.max(0, Math.min(this.frames.windows - 1, window_))
    if (to !== this.window) { this.window = to; this.draw() }
    if (this.playing && (settle || this.dragging)) this.since()
    if (settle && !this.playing) this.rest()
  }

  rest() { // the view came to rest: a link may remember it
    if (this.brief) return
    clearTimeout(this.telling)
    this.telling = setTimeout(() => this.send({ at: Math.round(1000 * this.window * this.frames.window_s) / 1000, see: this.selected?.name ?? "" }), 300)
  }

  // --- What a person does ------------------------------------------------------------------

  keep(found) { // what is selected, in the picture too
    this.selected = found
    this.picture.chosen = new Set(found?.box ? [found.box] : [])
    this.matrix.chosen.clear()
  }

  select(found) {
    this.keep(found)
    this.arrange()
    this.rest()
  }

  look(typed) {
    const found = this.frames.find(typed)
    if (found) return this.select(found)
    this.said = typed.trim() ? `Nothing is named “${typed}”: try node 20, L1 20.3, sub-plane 3 or ${this.frames.instances.at(-1)?.[1] ?? "decode 0"}.` : ""
    this.say()
  }

  key(event) {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return
    const step = event.shiftKey ? 10 : 1
    const acts = {
      " ": () => this.toggle(), ArrowLeft: () => this.seek(this.window - step, true), ArrowRight: () => this.seek(this.window + step, true),
      Home: () => this.seek(0, true), End: () => this.seek(this.frames.windows - 1, true), Escape: () => this.select(null),
      ArrowUp: () => this.walk(-1), ArrowDown: () => this.walk(1), "+": () => this.picture.zoom(1.5), "-": () => this.picture.zoom(1 / 1.5), "/": () => this.el.search.focus(),
    }
    if (event.key === " " && event.target.tagName === "BUTTON" && event.target !== this.el.play) return
    if (!acts[event.key]) return
    acts[event.key]()
    event.preventDefault()
  }

  walk(step) { // to the next instance
    const count = this.frames.instances.length, now = this.selected?.index ?? (step > 0 ? -1 : count), index = (now + step + count) % count
    if (count) this.select({ name: this.frames.instances[index][1], index })
  }

  // --- Where things stand ------------------------------------------------------------------

  arrange() {
    const { el, frames } = this
    this.width = el.player.clientWidth
    if (!this.width || !frames) return
    el.player.classList.toggle("narrow", this.width < WIDE)
    for (const button of el.views.children) button.setAttribute("aria-pressed", button.value === this.view)
    el.fabric.hidden = this.view !== "machine"
    el.table.hidden = this.view !== "matrix"
    this.choice = frames.of(el.plane.value, el.traffic.value)
    this.picture.high = this.choice.high
    el.player.inert = false
    if (this.brief) {
      this.draw()
      this.drawLegend()
      if (this.begins) { this.begins = false; this.play() } // not before there is room to draw in
      return
    }
    this.layTiles(el.yard.clientWidth)
    const own = this.selected ? frames.seriesOf(this.selected, el.plane.value, el.traffic.value) : []
    this.strip.lay(frames, [...own, ...frames.strip], el.below.clientWidth, this.style)
    size(el.way, this.width, 46)
    this.draw()
    this.drawMarks()
    this.drawLegend()
  }

  layTiles(width) {
    const { instances } = this.frames, least = instances.length > 40 ? 104 : 132, gap = 6, h = 58
    const per = Math.max(1, Math.floor((width + gap) / (least + gap))), w = (width - 2 - gap * (per - 1)) / per
    this.tiles = instances.map(([role, name], index) => ({ x: 1 + (index % per) * (w + gap), y: 1 + Math.floor(index / per) * (h + gap), w, h, role, index, name }))
    size(this.el.instances, width, Math.ceil(instances.length / per) * (h + gap) + 2)
  }

  // --- What is drawn -----------------------------------------------------------------------

  draw() {
    const began = performance.now(), f = this.frames
    this.now = f.events.filter((e) => f.isOn(e, this.window))
    this.drawMachine()
    if (!this.brief) {
      this.drawInstances()
      this.drawWay()
      this.strip.draw(this.window)
    }
    this.el.slider.value = this.window
    this.el.clock.textContent = clock(this.window * f.window_s, f.horizon_s)
    this.el.slider.setAttribute("aria-valuetext", this.el.clock.textContent)
    if (f.filled) {
      const v = f.filled[this.window]
      this.el.pool.hidden = false
      Object.assign(this.el.fill.style, { width: `${Math.min(100, 100 * (v || 0))}%`, background: f.colours.memory_pool })
      this.el.filled.textContent = Number.isFinite(v) ? `${number(100 * v)} %` : "–"
    }
    this.say()
    this.draws++
    this.spent += performance.now() - began
    this.publish()
  }

  drawMachine() {
    const width = this.el.stage.clientWidth
    if (!width) return // the page is being left
    const { frames, scene, picture } = this, seats = frames.seats.filter(([, , , since, until]) => since <= this.window && this.window < until).join("|")
    if (seats !== this.seats) { this.seats = seats; scene.place(frames.seated(this.window)) }
    picture.marked = this.now.filter((e) => e.kind === "fault" && e.box).map((e) => [e.box, OFF])
    const { told: { planes } } = scene, chosen = planes[this.el.plane.value]
    picture.hidden = new Set(Object.keys(planes).filter((p) => chosen && planes[p] !== chosen))
    if (this.view === "machine") return picture.show(scene, width)
    const rows = scene.told.rows.length, values = Float32Array.from(range(scene.nodes.length * rows), (c) => (frames.cellOf(c) < 0 ? NaN : this.choice.used[this.window * frames.cells + frames.cellOf(c)]))
    this.matrix.show(scene, width, values, this.choice.high, picture)
  }

  paint(b) { // dies in the colour of their role, as strong as their instance is busy
    const base = byRole(this.picture, b), { frames } = this
    if (!["npu", "die"].includes(b.kind) || b.who === undefined) return base
    if (frames.down(this.window, b.who)) return { ...base, alpha: 0.25, off: true }
    const busy = frames.figure("busy", this.window, b.who)
    return { ...base, alpha: base.alpha * (0.3 + 0.7 * (Number.isFinite(busy) ? busy : 0)), line: this.selected?.index === b.who && b.kind === "npu" ? this.style.accent : undefined }
  }

  rates(bundle, way) { // bytes/s of a bundle, out of nodes or into them
    const { frames } = this
    let total = 0
    for (const cell of bundle.cells) { const c = frames.cellOf(cell); if (c >= 0) total += this.choice.ways[way][this.window * frames.cells + c] }
    return total
  }

  loadOf(bundle) { // how full its fullest part is, %
    const { frames } = this
    let most = 0
    for (const cell of bundle.cells) { const c = frames.cellOf(cell), v = c < 0 ? 0 : this.choice.used[this.window * frames.cells + c]; if (v > most) most = v }
    return bundle.cells.size ? most : NaN
  }

  flow(bundles) { // bytes as dots on the links, both ways, the denser the more
    const { picture } = this, { pen } = picture, { most } = this.choice
    pen.lineCap = "round"
    for (const b of bundles) for (const way of [0, 1]) {
      const part = this.rates(b, way) / ((most[b.plane] ?? 0) * b.cells.size || 1), leaves = ["rack", "node"].includes(b.from.kind) === (way === 0)
      if (part > 0.002) picture.line(b, picture.colours[b.plane], 2.6, 0.95, [0.01, spacing(Math.sqrt(part))], (leaves ? -1 : 1) * this.phase)
    }
    pen.lineCap = "butt"
  }

  drawWay() { drawWay(this.el.way, this.frames, this.style, this.width, this.window, this.phase) }

  drawInstances() {
    const f = this.frames, pen = penOf(this.el.instances, this.style), most = f.most
    for (const b of this.tiles) {
      const get = (name) => f.figure(name, this.window, b.index), down = f.down(this.window, b.index), colour = f.colours[b.role]
      pen.fillStyle = this.style.panel
      pen.beginPath(); pen.roundRect(b.x, b.y, b.w, b.h, 6); pen.fill()
      pen.fillStyle = down ? OFF : colour
      pen.beginPath(); pen.roundRect(b.x, b.y, 3, b.h, 2); pen.fill()
      const chosen = this.selected?.name === b.name
      if (chosen || this.hover?.name === b.name) { pen.strokeStyle = chosen ? this.style.accent : this.style.text; pen.lineWidth = chosen ? 2.2 : 1.2; pen.beginPath(); pen.roundRect(b.x + 1, b.y + 1, b.w - 2, b.h - 2, 6); pen.stroke() }
      const right = (text, y, fill) => { pen.fillStyle = fill; pen.fillText(text, b.x + b.w - pen.measureText(text).width - 7, y) }
      pen.font = `600 ${this.style.font}`
      pen.fillStyle = this.style.text
      pen.fillText(b.name, b.x + 10, b.y + 12)
      pen.font = this.style.font
      right(down ? "▼ down" : Number.isFinite(get("iteration_s")) ? duration(get("iteration_s")) : "", b.y + 12, down ? OFF : this.style.quiet)
      for (const [k, name, word] of [[0, "running", "in batch"], [1, "queue", queued(b.role)]]) {
        const v = get(name), x = b.x + 10 + (k * (b.w - 12)) / 2, wide = (b.w - 12) / 2 - 8, part = most[name] ? (v || 0) / most[name] : 0
        pen.fillStyle = this.style.quiet
        pen.fillText(`${count(v)} ${word}`, x, b.y + 32, wide)
        for (const [fill, share] of [[this.style.line, 1], [k ? f.colours.router : colour, part]]) { pen.fillStyle = fill; pen.beginPath(); pen.roundRect(x, b.y + 44, Math.max(wide * share, 0), 4, 2); pen.fill() }
      }
      if (!down && get("up") < 0.999) right(`${number(get("dies"))} dies`, b.y + 24, this.style.quiet)
    }
  }

  drawMarks() {
    let free = -Infinity // signs that would lie on each other: the first stands for all
    const apart = (e) => { const x = (this.width * e.t) / this.frames.horizon_s, fits = x >= free; if (fits) free = x + 13; return fits }
    const spans = this.frames.events.filter(apart).map((e) => {
      const [sign, colour] = MARKS[e.kind] ?? ["•", this.style.quiet], mark = document.createElement("span")
      mark.textContent = sign
      mark.title = `${clock(e.t, this.frames.horizon_s)}: ${e.detail || e.element}`
      Object.assign(mark.style, { left: `${(100 * e.t) / this.frames.horizon_s}%`, color: colour })
      return mark
    })
    this.el.marks.replaceChildren(...spans)
  }

  drawLegend() {
    const { frames, picture } = this, part = (background, words, wide) => {
      const key = document.createElement("span"), swatch = document.createElement("i")
      if (wide) key.className = "ramp"
      swatch.style.background = background
      key.append(swatch, words)
      return key
    }
    const roles = [...new Set(frames.instances.map(([r]) => r))], planes = new Map(Object.keys(this.choice.most).map((p) => [frames.scene.told.planes[p], p]))
    this.el.legend.replaceChildren(
      part(`linear-gradient(90deg, ${picture.style.ramp.join(", ")})`, `links used, to ${number(this.choice.high)} % of capacity`, true),
      ...(this.view === "machine" ? [...planes].map(([name, p]) => part(picture.colours[p], `bytes over ${name}`)) : []), ...roles.map((r) => {
        const over = frames.scene.shared && r === "prefill"
        return part(frames.colours[over ? "colocated" : r], `${over ? "prefill on decode" : r}, as strong as busy`)
      }),
      ...(frames.scene.dies.some((die) => die.who === undefined) ? [part("color-mix(in srgb, var(--st-gray-color) 28%, transparent)", "idle")] : []))
    const kinds = [...new Set(frames.events.map((e) => e.kind))].filter((k) => MARKS[k])
    this.el.key.replaceChildren(...kinds.map((k) => {
      const span = document.createElement("span"), sign = document.createElement("span")
      sign.textContent = MARKS[k][0]
      sign.style.color = MARKS[k][1]
      span.append(sign, MARKS[k][2])
      return span
    }))
  }

  say() {
    const { text, clear } = this.el, [strong, line] = this.said ? ["", this.said] : told(this, this.hover ?? this.selected)
    this.said = ""
    clear.hidden = !this.selected
    const name = document.createElement("b")
    name.textContent = strong
    if (text.textContent !== `${strong}${strong ? " · " : ""}${line}`) text.replaceChildren(...(strong ? [name, ` · ${line}`] : [line]))
  }

  publish() { // for tests and for people who script: no pixel guessing
    Object.assign(this.el.player.dataset, { draw: this.draws, window: this.window, playing: this.playing, zoom: this.picture.camera ? (this.picture.camera.s / this.picture.home).toFixed(2) : 1, selection: this.selected?.name ?? "",
      mean: (this.spent / this.draws).toFixed(2), high: this.choice?.high, curves: this.strip.curves?.length, view: this.view,
      values: JSON.stringify(Object.fromEntries((this.strip.curves ?? []).map((c) => [c.title, Number.isFinite(c.values[this.window]) ? Number(c.values[this.window].toPrecision(4)) : null]))),
      down: this.frames.instances.filter((_, i) => this.frames.down(this.window, i)).map(([, name]) => name).join(",") })
  }
}
