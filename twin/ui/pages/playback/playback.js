// A run played back: the fabric coloured by how full its links are, the instances below their
// names, the memory pool, and a strip of figures with a cursor. The server sends the whole run once;
// time, zoom and selection live here, so a frame is a few milliseconds and never resets the view.
// Only what a link should remember (the time and what is selected) goes back, when it comes to rest.

const PLAYERS = new WeakMap()
const SIDE = 12, LEFT = 56, HEAD = 17 // px: smallest cell, room for row names and for node numbers
const DOWN = "#D03B2F"
const WIDE = 860 // px from which the two pictures stand beside each other

export default function ({ data, parentElement, setStateValue }) {
  if (!PLAYERS.has(parentElement)) PLAYERS.set(parentElement, new Player(parentElement))
  const player = PLAYERS.get(parentElement)
  player.send = (view) => setStateValue("view", view)
  player.update(data)
  return () => { player.close(); PLAYERS.delete(parentElement) }
}

class Player {
  constructor(root) {
    const ids = ["player", "play", "before", "after", "clock", "speed", "marks", "slider", "plane", "traffic", "search", "smaller", "larger",
      "stage", "fabric", "legend", "yard", "instances", "pool", "fill", "filled", "text", "clear", "below", "strip", "key"]
    this.host = root.host ?? root
    this.el = Object.fromEntries(ids.map((id) => [id, root.querySelector(`#${id}`)]))
    Object.assign(this, { window: 0, playing: false, zoom: 1, selected: null, hover: null, said: "", draws: 0, spent: 0 })
    this.strip = new Strip(this.el.strip)
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
    el.smaller.onclick = () => this.scale(-0.5)
    el.larger.onclick = () => this.scale(0.5)
    el.clear.onclick = () => this.select(null)
    el.search.onkeydown = (e) => { if (e.key === "Enter") this.look(el.search.value); e.stopPropagation() }
    el.player.onkeydown = (e) => this.key(e)
    for (const name of ["fabric", "instances"]) {
      const c = el[name]
      c.onpointermove = (e) => { if (e.pointerType !== "touch") this.point(this.under(name, e)) }
      c.onpointerleave = () => this.point(null)
      c.onclick = (e) => this.select(this.under(name, e))
      c.where = (wanted) => { // for tests: the middle of a box, CSS px from the canvas' corner
        const b = this.boxes?.[name].find((box) => box.found.name === wanted)
        return b ? { x: b.x + b.w / 2, y: b.y + b.h / 2 } : null
      }
    }
    const drag = (e) => this.seek(this.strip.windowAt(e.offsetX))
    el.strip.onpointerdown = (e) => { el.strip.setPointerCapture(e.pointerId); this.dragging = true; drag(e) }
    el.strip.onpointermove = (e) => { if (this.dragging) drag(e) }
    el.strip.onpointerup = el.strip.onpointercancel = () => { if (this.dragging) { this.dragging = false; this.rest() } }
    this.observer = new ResizeObserver(() => { if (this.frames && el.player.clientWidth !== this.width) this.arrange() })
    this.observer.observe(el.player)
  }

  close() { this.pause(false); this.observer.disconnect() }

  update({ run, film, start }) {
    if (run !== this.run) {
      this.run = run
      this.frames = new Frames(film)
      this.el.slider.max = film.windows - 1
      this.offerPlanes()
      this.window = Math.max(0, Math.min(film.windows - 1, Math.floor((start.at ?? 0) / film.window_s)))
      this.selected = start.see ? this.frames.find(start.see) : null
    }
    this.readTheme()
    this.arrange()
  }

  readTheme() {
    const style = getComputedStyle(this.host), read = (name) => style.getPropertyValue(`--st-${name}`).trim()
    this.style = { text: read("text-color"), paper: read("background-color"), panel: read("secondary-background-color"),
      line: read("border-color"), quiet: read("gray-color"), accent: read("primary-color"), font: `12px ${read("font") || "sans-serif"}` }
    this.ramp = blended(read("chart-sequential-colors").split(",").map((c) => c.trim()), 64)
  }

  // --- Choices -----------------------------------------------------------------------------

  offerPlanes() {
    this.offered = this.frames.choices()
    const planes = Object.keys(PLANES).filter((p) => this.offered[p])
    fill(this.el.plane, planes.map((p) => [p, PLANES[p]]), "all")
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
    const tick = (now) => {
      if (!this.playing) return
      this.from ??= now
      const whole = (Number(this.el.speed.value) || this.frames.horizon_s) * 1000
      const at = this.first + Math.floor(((now - this.from) / whole) * this.frames.windows)
      if (at !== this.window) this.seek(at)
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
    clearTimeout(this.telling)
    this.telling = setTimeout(() => this.send({ at: Math.round(1000 * this.window * this.frames.window_s) / 1000, see: this.selected?.name ?? "" }), 300)
  }

  // --- What a person does ------------------------------------------------------------------

  under(name, event) {
    const x = event.offsetX, y = event.offsetY
    return this.boxes[name].findLast((b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h)?.found ?? null
  }

  point(found) {
    if ((found?.name ?? "") === (this.hover?.name ?? "")) return
    this.hover = found
    for (const name of ["fabric", "instances"]) this.el[name].style.cursor = found ? "pointer" : "default"
    this.draw()
  }

  select(found) {
    this.selected = found && found.name === this.selected?.name ? null : found
    this.arrange()
    this.rest()
  }

  look(typed) {
    const found = this.frames.find(typed)
    if (found) { this.selected = null; this.select(found); this.show(found); return }
    this.said = typed.trim() ? `Nothing is named “${typed}”: try node 20, L1 20.3, sub-plane 3 or ${this.frames.instances.at(-1)?.[1] ?? "decode 0"}.` : ""
    this.say()
  }

  show(found) { // scroll a selected box into its stage
    for (const [name, stage] of [["fabric", this.el.stage], ["instances", this.el.yard]]) {
      const b = this.boxes[name].find((box) => box.found.name === found.name)
      if (b) stage.scrollTo({ left: b.x - stage.clientWidth / 2, top: b.y - stage.clientHeight / 2 })
    }
  }

  scale(step) {
    this.zoom = Math.min(3, Math.max(1, this.zoom + step))
    this.arrange()
  }

  key(event) {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return
    const step = event.shiftKey ? 10 : 1
    const acts = {
      " ": () => this.toggle(), ArrowLeft: () => this.seek(this.window - step, true), ArrowRight: () => this.seek(this.window + step, true),
      Home: () => this.seek(0, true), End: () => this.seek(this.frames.windows - 1, true), Escape: () => this.select(null),
      ArrowUp: () => this.walk(-1), ArrowDown: () => this.walk(1), "+": () => this.scale(0.5), "-": () => this.scale(-0.5), "/": () => this.el.search.focus(),
    }
    if (event.key === " " && event.target.tagName === "BUTTON" && event.target !== this.el.play) return
    if (!acts[event.key]) return
    acts[event.key]()
    event.preventDefault()
  }

  walk(step) { // to the next instance
    const count = this.frames.instances.length, now = this.selected?.kind === "instance" ? this.selected.index : step > 0 ? -1 : count
    const index = (now + step + count) % count
    this.selected = null
    if (count) this.select({ kind: "instance", name: this.frames.instances[index][1], index })
  }

  // --- Where things stand ------------------------------------------------------------------

  arrange() {
    const { el, frames } = this
    this.width = el.player.clientWidth
    if (!this.width) return
    el.player.classList.toggle("narrow", this.width < WIDE)
    this.choice = frames.of(el.plane.value, el.traffic.value)
    this.boxes = { fabric: this.matrix(el.stage.clientWidth), instances: this.tiles(el.yard.clientWidth) }
    const own = this.selected ? frames.seriesOf(this.selected, el.plane.value, el.traffic.value) : []
    this.strip.lay(frames, [...own, ...frames.curves], el.below.clientWidth, this.style)
    this.drawMarks()
    this.drawLegend()
    this.draw()
  }

  matrix(width) {
    const f = this.frames, rows = f.rows(this.el.plane.value), boxes = [], side = SIDE * this.zoom
    const columns = Math.max(1, Math.min(f.nodes, Math.floor((width - LEFT - 2) / side)))
    const bands = Math.ceil(f.nodes / columns), per = Math.ceil(f.nodes / bands)
    const w = Math.max(side, Math.min((width - LEFT - 2) / per, 30 * this.zoom)), h = Math.max(SIDE + 2, (rows.length < 3 ? 34 : 22) * this.zoom)
    this.grid = { w, h, rows, per, bands, strips: [], heads: [] }
    let y = 2
    for (let from = 0; from < f.nodes; from += per) {
      const to = Math.min(from + per, f.nodes)
      for (const [index, a, b, since, until] of f.seats) {
        const first = Math.max(a, from), last = Math.min(b, to), [role, name] = f.instances[index]
        if (first < last) this.grid.strips.push({ role, index, name, since, until, x: LEFT + (first - from) * w, y, w: Math.max(1.5, (last - first) * w - 1.5), h: 8 })
      }
      y += f.instances.length ? 11 : 0
      for (let n = from; n < to; n++) boxes.push({ x: LEFT + (n - from) * w, y, w, h: HEAD, head: true, n, found: f.cell(n, null), text: n % 4 === 0 || w >= 26 ? `${n}` : "" })
      y += HEAD
      rows.forEach((c, r) => {
        if (rows.length > f.planes && c === f.planes) y += 5
        const plane = c < f.planes ? c : null, label = plane === null ? (c === f.planes ? "RDMA" : "VPC") : `UB ${c}`
        if (plane !== null) boxes.push({ x: 0, y, w: LEFT - 6, h, head: true, p: plane, found: f.cell(null, plane), text: label })
        else this.grid.heads.push({ y, h, text: label, colour: f.colours[c === f.planes ? "rdma" : "vpc"] })
        for (let n = from; n < to; n++) boxes.push({ x: LEFT + (n - from) * w, y, w, h, n, c, found: f.cell(n, plane) })
        y += h
      })
      y += 12
    }
    size(this.el.fabric, Math.max(width - 1, LEFT + per * w + 2), y)
    return boxes
  }

  tiles(width) {
    const f = this.frames, least = f.instances.length > 40 ? 104 : 132, gap = 6, h = 64
    const per = Math.max(1, Math.floor((width + gap) / (least + gap))), w = (width - 2 - gap * (per - 1)) / per
    const boxes = f.instances.map(([role, name], index) => ({ x: 1 + (index % per) * (w + gap), y: 1 + Math.floor(index / per) * (h + gap), w, h, role, index, found: { kind: "instance", name, index } }))
    size(this.el.instances, width, Math.ceil(f.instances.length / per) * (h + gap) + 2)
    return boxes
  }

  // --- What is drawn -----------------------------------------------------------------------

  draw() {
    const began = performance.now(), f = this.frames
    this.now = f.events.filter((e) => f.isOn(e, this.window))
    this.drawFabric()
    this.drawInstances()
    this.strip.draw(this.window)
    this.el.slider.value = this.window
    const t = this.window * f.window_s
    this.el.clock.textContent = clock(t, f.horizon_s)
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

  drawFabric() {
    const f = this.frames, pen = penOf(this.el.fabric, this.style), { w, heads } = this.grid
    const strips = this.grid.strips.filter((s) => s.since <= this.window && this.window < s.until)
    const { frames, high } = this.choice, base = this.window * f.cells, last = this.ramp.length - 1
    for (const s of strips) {
      pen.fillStyle = f.colours[s.role]
      if (f.down(this.window, s.index)) { hatch(pen, s, DOWN); continue }
      pen.fillRect(s.x, s.y, s.w, s.h)
    }
    for (const b of heads) { pen.fillStyle = legible(b.colour, this.style.text); pen.fillText(b.text, 0, b.y + b.h / 2) }
    for (const b of this.boxes.fabric) {
      if (b.head) {
        const on = this.lit(b)
        pen.fillStyle = on ? this.style.text : b.p === undefined ? this.style.quiet : legible(f.colours.ub, this.style.text)
        if (b.text || on) pen.fillText(b.text || `${b.n}`, b.x + 1, b.y + b.h / 2)
        continue
      }
      const v = frames[base + b.n * f.columns + b.c]
      pen.fillStyle = Number.isFinite(v) ? this.ramp[Math.round(Math.min(1, v / high) * last)] : this.style.panel
      pen.fillRect(b.x + 0.5, b.y + 0.5, b.w - 1, b.h - 1)
    }
    for (const e of this.now) if (e.kind === "fault" && (e.node !== null || e.plane !== null)) this.frame(pen, (b) => hits(b, e.node, e.plane), DOWN, 2)
    for (const [found, colour, width] of [[this.selected, this.style.accent, 2.5], [this.hover, this.style.text, 1.5]])
      if (found?.kind === "cell") this.frame(pen, (b) => hits(b, found.node, found.plane), colour, width)
    if (this.selected?.kind === "instance") for (const s of strips) if (s.index === this.selected.index) { pen.strokeStyle = this.style.accent; pen.lineWidth = 2; pen.strokeRect(s.x - 1, s.y - 1, s.w + 2, s.h + 2) }
  }

  lit(b) { return [this.selected, this.hover].some((x) => x?.kind === "cell" && (b.p === undefined ? x.node === b.n : x.node === null && x.plane === b.p)) }

  frame(pen, inside, colour, width) { // one outline around the cells, in each band
    const bands = new Map()
    for (const b of this.boxes.fabric) {
      if (b.head || !inside(b)) continue
      const k = Math.floor(b.n / this.grid.per), o = bands.get(k) ?? [Infinity, Infinity, -Infinity, -Infinity]
      bands.set(k, [Math.min(o[0], b.x), Math.min(o[1], b.y), Math.max(o[2], b.x + b.w), Math.max(o[3], b.y + b.h)])
    }
    for (const [x0, y0, x1, y1] of bands.values()) {
      for (const [c, wide] of [[this.style.paper, width + 2], [colour, width]]) { pen.strokeStyle = c; pen.lineWidth = wide; pen.strokeRect(x0, y0, x1 - x0, y1 - y0) }
    }
  }

  drawInstances() {
    const f = this.frames, pen = penOf(this.el.instances, this.style), most = f.most
    for (const b of this.boxes.instances) {
      const get = (name) => f.figure(name, this.window, b.index), down = f.down(this.window, b.index), colour = f.colours[b.role]
      const dies = get("dies")
      pen.fillStyle = this.style.panel
      pen.fillRect(b.x, b.y, b.w, b.h)
      if (down) hatch(pen, b, DOWN)
      pen.fillStyle = down ? DOWN : colour
      pen.fillRect(b.x, b.y, 3, b.h)
      const chosen = this.selected?.name === b.found.name, under = this.hover?.name === b.found.name
      if (chosen || under) { pen.strokeStyle = chosen ? this.style.accent : this.style.text; pen.lineWidth = chosen ? 2.5 : 1.2; pen.strokeRect(b.x + 1, b.y + 1, b.w - 2, b.h - 2) }
      const right = (text, y, fill) => { pen.fillStyle = fill; pen.fillText(text, b.x + b.w - pen.measureText(text).width - 6, y) }
      pen.font = `600 ${this.style.font}`
      pen.fillStyle = this.style.text
      pen.fillText(b.found.name, b.x + 9, b.y + 11)
      pen.font = this.style.font
      right(down ? "▼ down" : Number.isFinite(get("iteration_s")) ? duration(get("iteration_s")) : "", b.y + 11, down ? DOWN : this.style.quiet)
      for (const [k, name, word] of [[0, "running", "in batch"], [1, "queue", "waiting"]]) {
        const v = get(name), y = b.y + 21 + 20 * k, part = most[name] ? (v || 0) / most[name] : 0, wide = b.w - 18
        pen.fillStyle = this.style.line
        pen.fillRect(b.x + 9, y + 14, wide, 3)
        pen.fillStyle = k ? f.colours.router : colour
        pen.fillRect(b.x + 9, y + 14, wide * part, 3)
        pen.fillStyle = this.style.quiet
        pen.fillText(`${count(v)} ${word}`, b.x + 9, y + 6)
      }
      if (!down && get("up") < 0.999) right(`${number(dies)} dies`, b.y + 27, this.style.quiet)
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
    const part = (colour, ...words) => {
      const key = document.createElement("span"), swatch = document.createElement("span")
      swatch.className = "swatch"
      swatch.style.background = colour
      key.append(swatch, ...words)
      return key
    }
    const scale = document.createElement("span"), bar = document.createElement("span")
    bar.className = "ramp"
    bar.style.background = `linear-gradient(90deg, ${this.ramp.join(", ")})`
    scale.append("Links used: 0", bar, `${number(this.choice.high)} % of capacity, busier direction`)
    const roles = [...new Set(this.frames.instances.map(([r]) => r))]
    this.el.legend.replaceChildren(scale, ...roles.map((r) => part(this.frames.colours[r], `${r} instances`)))
    const kinds = [...new Set(this.frames.events.map((e) => e.kind))].filter((k) => MARKS[k])
    this.el.key.replaceChildren(...kinds.map((k) => {
      const span = document.createElement("span"), sign = document.createElement("span")
      sign.textContent = `${MARKS[k][0]} `
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
    Object.assign(this.el.player.dataset, { draw: this.draws, window: this.window, playing: this.playing, zoom: this.zoom, selection: this.selected?.name ?? "",
      mean: (this.spent / this.draws).toFixed(2), high: this.choice?.high, curves: this.strip.curves?.length,
      values: JSON.stringify(Object.fromEntries((this.strip.curves ?? []).map((c) => [c.title, Number.isFinite(c.values[this.window]) ? Number(c.values[this.window].toPrecision(4)) : null]))),
      down: this.frames.instances.filter((_, i) => this.frames.down(this.window, i)).map(([, name]) => name).join(","), boxes: this.boxes?.fabric.length })
  }
}
