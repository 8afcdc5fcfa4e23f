// The machine on a page: the picture or the matrix, a panel that tells what is selected, and where
// the page allows it, what can be done to it. An action is marked at once and sent to the server,
// numbered, and sent again with the next one until the server says it was taken: so no quick second
// press is lost. What the server then sends is what holds.

const VIEWS = new WeakMap()

export default function ({ data, parentElement, setStateValue }) {
  if (!VIEWS.has(parentElement)) VIEWS.set(parentElement, new View(parentElement))
  const view = VIEWS.get(parentElement)
  view.tell = setStateValue
  view.queue = view.queue.then(() => view.update(data)).catch((error) => console.error(error))
  return () => { view.close(); VIEWS.delete(parentElement) }
}

class View {
  constructor(root) {
    this.host = root.host ?? root
    const ids = ["fabric", "stage", "canvas", "table", "tip", "search", "colour", "views", "back", "title", "about", "state", "links", "acts", "share", "delay", "only", "several", "legend", "opens", "hint", "panel"]
    this.el = Object.fromEntries(ids.map((id) => [id, root.querySelector(`#${id}`)]))
    Object.assign(this, { root, queue: Promise.resolve(), waiting: [], sent: Date.now(), view: "machine", message: "" })
    this.picture = new Picture(this.el.canvas, { onSelect: () => this.selected(), onHover: (box) => this.point(box), onKey: (e, now) => this.key(e, now), onDrop: (who, to) => this.move(who, to) })
    this.picture.onDraw = () => this.publish()
    this.matrix = new Matrix(this.el.table, { onSelect: (cell, add) => this.pick(cell, add), onHover: (cell) => this.pointCell(cell) })
    this.el.fabric.inert = true // until there is something to point at
    this.listen()
    this.observer = new ResizeObserver(() => { if (this.scene && this.el.stage.clientWidth !== this.picture.width) this.arrange() })
    this.observer.observe(this.el.stage)
  }

  listen() {
    const { el, picture } = this, click = (id, does) => { this.root.querySelector(`#${id}`).onclick = does }
    click("smaller", () => picture.zoom(1 / 1.5))
    click("larger", () => picture.zoom(1.5))
    click("back", () => { picture.focus = picture.focus?.parent ?? null; picture.fly(picture.at(picture.focus)) })
    click("off", () => this.act({ capacity: 0 }))
    click("restore", () => this.act({ restore: true }))
    click("clear", () => { picture.select(null); el.canvas.focus({ preventScroll: true }) })
    click("set-share", () => this.set("share"))
    click("set-delay", () => this.set("delay"))
    click("only", () => this.toggle("only"))
    click("several", () => { picture.extend = this.toggle("several") })
    for (const name of ["share", "delay"]) el[name].onkeydown = (e) => { if (e.key === "Enter") this.set(name); e.stopPropagation() }
    for (const button of el.views.children) button.onclick = () => { this.view = button.value; this.arrange() }
    el.colour.onchange = () => this.tell("colour", el.colour.value)
    el.search.onkeydown = (e) => { if (e.key === "Enter") this.seek(el.search.value) }
    el.canvas.onpointerenter = () => { this.message = "" }
    this.history = (e) => this.step(e)
    document.addEventListener("keydown", this.history)
  }

  close() { this.observer.disconnect(); document.removeEventListener("keydown", this.history) }
  toggle(id) { const on = this.el[id].getAttribute("aria-pressed") !== "true"; this.el[id].setAttribute("aria-pressed", on); return on }
  get onlyLink() { return !this.el.only.hidden && this.el.only.getAttribute("aria-pressed") === "true" }

  async update(data) { // parts that came before are not unpacked again
    const { machine, changes, instances, carried, colours, modes, mode, high, editable, acted } = data, before = this.data ?? {}
    const other = machine !== before.machine, scene = other ? new Scene(await asBuilt(machine)) : this.scene
    if (other || changes !== before.changes) scene.change(await inflate(changes))
    if (other || changes !== before.changes || carried !== before.carried) scene.carry(carried ? await inflate(carried) : null)
    scene.place(instances)
    Object.assign(this, { data, scene }) // whole: the window may change its size while parts are unpacked
    Object.assign(this.picture, { colours, high, paint: carried ? (b) => byLoad(this.picture, b) : (b) => byRole(this.picture, b) })
    const open = this.waiting.length
    this.waiting = this.waiting.filter(({ number }) => number > (acted ?? 0))
    if (!this.waiting.length) this.scene.pending.clear()
    if (open && !this.waiting.length && this.asked) { this.el.canvas.dataset.took = (performance.now() - this.asked).toFixed(0); this.asked = null }
    this.el.colour.replaceChildren(...modes.map(([value, text]) => Object.assign(document.createElement("option"), { value, textContent: text, selected: value === mode })))
    this.el.colour.parentElement.hidden = modes.length < 2
    this.el.fabric.dataset.editable = editable
    this.picture.readTheme(this.host)
    this.arrange()
  }

  arrange() {
    const width = this.el.stage.clientWidth
    if (!width || !this.scene) return
    for (const button of this.el.views.children) button.setAttribute("aria-pressed", button.value === this.view)
    this.el.canvas.hidden = this.view !== "machine"
    this.el.table.hidden = this.view !== "matrix"
    this.picture.show(this.scene, width)
    this.el.fabric.inert = false
    if (this.view === "matrix") this.matrix.show(this.scene, width, ...this.cells(), this.picture)
    this.legend()
    this.selected(false)
  }

  cells() { // values of the matrix by cell, and the end of their scale
    const { scene } = this, rows = scene.told.rows, values = new Float32Array(scene.nodes.length * rows.length).fill(NaN), from = scene.load ?? scene.now
    scene.cell.forEach((c, k) => { if (c >= 0) values[c] = scene.load ? Math.max(values[c] || 0, from[k] || 0) : (values[c] || 0) + from[k] })
    if (scene.load) return [values, this.data.high]
    const most = {}
    values.forEach((v, c) => { const [, plane] = rows[c % rows.length]; if (v > (most[plane] ?? 0)) most[plane] = v })
    return [values, most]
  }

  // --- What is selected ----------------------------------------------------------------------

  pick(cell, add) { // in the matrix
    const { picture, matrix } = this
    if (!add) { picture.chosen.clear(); matrix.chosen.clear() }
    if (cell !== null) { matrix.chosen.add(cell); picture.choose(matrix.members(cell)) } else picture.choose([])
    matrix.draw()
  }

  selected(tell = true) {
    const { picture } = this, chosen = [...picture.chosen]
    if (!chosen.length) { this.matrix.chosen.clear(); this.toggleOff("only") }
    this.panel(picture.last)
    this.publish()
    if (tell) this.tell("selection", chosen.length ? { name: picture.last.name, names: chosen.map((b) => b.name) } : {})
  }

  toggleOff(id) { this.el[id].setAttribute("aria-pressed", false) }

  seek(typed) {
    const box = this.scene.find(typed)
    if (box) { this.view = "machine"; this.arrange(); return this.picture.seek(box) }
    this.message = typed.trim() ? `No element is named “${typed}”: try NPU 20.1, die 20.1.0, L1 20.3, L2 3.12 or node 20.` : ""
    this.panel(this.picture.last)
  }

  point(box) { this.tip(box ? [box.name, this.telling(box)] : null) }

  pointCell(cell) {
    if (cell === null) return this.tip(null)
    const { rows } = this.scene.told, value = this.matrix.values[cell], node = this.scene.nodes[Math.floor(cell / rows.length)]
    this.tip([`${node.name}, ${rows[cell % rows.length][0]}`, value >= 0 ? (this.scene.load ? `${number(value)} ${this.data.unit}` : speed(value)) : "no link"])
  }

  tip(words) { // beside the pointer, told to a reader as well
    const { tip, stage } = this.el
    tip.hidden = !words
    if (!words) return
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: words[0] }), ` ${words[1]}`)
    stage.onpointermove = (e) => {
      const { left, top, width } = stage.getBoundingClientRect(), x = e.clientX - left, y = e.clientY - top
      Object.assign(tip.style, { left: `${Math.min(x + 14, width - tip.offsetWidth - 4)}px`, top: `${y + (y > 60 ? -tip.offsetHeight - 8 : 18)}px` })
    }
  }

  telling(box) { // an element in some words
    const who = this.who(box), full = this.scene.full[box.i], load = this.scene.load && full >= 0 ? `${number(full)} ${this.data.unit}` : ""
    const { chips } = this.data, chip = chips.length > 1 && box.node ? chips[box.node.chip] : ""
    return [this.state(box), chip, who, load].filter(Boolean).join(" · ")
  }

  who(box) { // instances that have dies of it
    const inside = box.kind === "die" ? [box] : this.scene.inside(box).filter((b) => b.kind === "die")
    const all = [...new Set(inside.flatMap((b) => b.all))].map((w) => this.scene.instances[w][1])
    return !inside.length ? "" : !all.length ? (this.scene.instances.length ? "idle" : "") : all.length > 4 ? `${all.length} instances` : all.join(", ")
  }

  state(box) { // what edits make of it
    const mark = this.scene.mark(box)
    if (!mark) return this.scene.off(box) ? "off" : this.scene.within.has(box.name) ? "edited within" : ""
    const [capacity, latency] = mark
    return !capacity ? "off" : [capacity === 1 ? "" : `${number(100 * capacity)} % of capacity`, latency === 1 ? "" : `latency ×${number(latency)}`].filter(Boolean).join(", ")
  }

  counted(boxes) { // "16 dies, 7 L1 switch chips"
    const kinds = new Map()
    for (const b of boxes) kinds.set(b.kind, [...(kinds.get(b.kind) ?? []), b])
    return [...kinds.values()].map((some) => `${number(some.length)} ${some.length === 1 ? some[0].one : some[0].several}`)
  }

  panel(box) { // what is selected: its facts, its links, what can be done to it
    const { el, picture, scene } = this, many = picture.chosen.size, link = this.link()
    el.acts.hidden = !many || !this.data.editable
    el.only.hidden = !link
    if (!link) this.toggleOff("only")
    el.back.hidden = !picture.zoomed
    el.title.textContent = !box ? this.data.title : this.onlyLink ? [...picture.chosen].map((b) => b.name).join(" – ") : many > 1 ? `${number(many)} selected` : picture.label(box)
    const inside = box && scene.inside(box), parts = box ? (many > 1 ? this.counted(picture.chosen) : this.counted(inside.filter((b) => b !== box && !["rack", "plane"].includes(b.kind)))) : this.counted(scene.boxes.filter((b) => !["plane", "port", "nic", "qingtian", "rdma", "vpc"].includes(b.kind)))
    el.about.textContent = this.message || (box && many === 1 && !parts.length ? `one ${box.one}${box.node ? ` of ${box.node.name}` : ""}` : parts.join(", "))
    el.state.textContent = box && many === 1 ? this.telling(box) : ""
    el.state.hidden = !el.state.textContent
    el.hint.hidden = Boolean(box)
    el.links.replaceChildren(...(box && many === 1 ? this.rows(box, inside) : []))
    el.opens.replaceChildren()
    if (box?.kids.length && many === 1) el.opens.append(Object.assign(document.createElement("button"), { type: "button", textContent: `Zoom to ${box.name}`, onclick: () => picture.open(box) }))
  }

  rows(box, inside) { // a line for every kind of far end and plane
    const { picture, scene } = this, groups = new Map()
    for (const b of scene.bundles(inside, box, (far) => far)) {
      const key = `${b.to.kind} ${b.plane}`, g = groups.get(key) ?? { ...b, ends: new Set(), gb: 0, built: 0, links: 0, load: NaN }
      g.ends.add(b.to); g.gb += b.gb; g.built += b.built; g.links += b.links
      if (b.load > (g.load >= 0 ? g.load : -1)) g.load = b.load
      groups.set(key, g)
    }
    const most = Math.max(...[...groups.values()].map((g) => g.built), 1e-9)
    return [...groups.values()].map((g) => {
      const li = document.createElement("li"), bar = document.createElement("i"), same = Math.abs(g.gb - g.built) <= 1e-6 * g.built
      Object.assign(bar.style, { width: `${Math.max(2, 100 * g.gb / most)}%`, background: g.load >= 0 && scene.load ? picture.ramp(g.load / this.data.high) : picture.colours[g.plane] ?? picture.style.quiet })
      li.append(`${number(g.ends.size)} ${g.ends.size === 1 ? g.to.one : g.to.several}`, Object.assign(document.createElement("b"), { textContent: same ? speed(g.gb) : `${speed(g.gb)} of ${speed(g.built)} as built` }), bar)
      if (g.load >= 0 && scene.load) li.append(Object.assign(document.createElement("small"), { textContent: `busiest ${number(g.load)} ${this.data.unit}` }))
      return li
    })
  }

  link() { // whether one link joins the two that are selected
    const [a, b, more] = this.picture.chosen
    if (!b || more || a.kids.length || b.kids.length) return false
    return this.scene.at[a.i].some((k) => this.scene.ends.some((end) => end[k] === b.i))
  }

  legend() {
    const { data, scene, el, picture: { hidden } } = this, { planes } = scene.told, keys = []
    const key = (background, text, plane) => {
      const span = document.createElement(plane ? "button" : "span"), swatch = document.createElement("i")
      swatch.style.background = background
      span.append(swatch, text)
      if (plane) Object.assign(span, { type: "button", title: `Show or hide ${text}`, onclick: () => { const hides = !hidden.has(plane); for (const p in planes) if (planes[p] === planes[plane]) hides ? hidden.add(p) : hidden.delete(p); this.picture.draw(); this.legend() } }).setAttribute("aria-pressed", !hidden.has(plane))
      keys.push(span)
    }
    if (scene.load) {
      const ramp = this.picture.style.ramp
      key(`linear-gradient(90deg, ${ramp.join(", ")})`, `0 to ${number(data.high)} ${data.unit}`)
      keys.at(-1).className = "ramp"
    } else {
      for (const role of new Set(scene.instances.map(([r]) => r))) {
        const over = scene.shared && role === "prefill", count = number(scene.instances.filter(([r]) => r === role).length)
        key(data.colours[over ? "colocated" : role], `${over ? "prefill on decode" : role}, ${count}`)
      }
      if (scene.instances.length) key("color-mix(in srgb, var(--st-gray-color) 28%, transparent)", "idle")
    }
    if (data.chips.length > 1) data.chips.forEach((chip, k) => {
      const count = scene.nodes.filter((node) => node.chip === k).length
      key(k ? `color-mix(in srgb, ${data.colours[`kind_${k}`]} ${100 * KIND}%, transparent)` : this.picture.style.paper, `${chip}, ${number(count)} ${count === 1 ? "node" : "nodes"}`)
      keys.at(-1).firstChild.style.boxShadow = "inset 0 0 0 1px var(--st-border-color)"
    })
    for (const [, plane] of new Map(scene.told.rows.map((row) => [row[1], row]))) if (scene.told.sorts.some(([p]) => p === plane[1])) key(data.colours[plane[1]], `${planes[plane[1]]} links`, plane[1])
    if (scene.count) { key("linear-gradient(to bottom left, var(--st-primary-color) 50%, transparent 50%)", "edited"); key(`repeating-linear-gradient(135deg, ${OFF} 0 1px, transparent 1px 4px)`, "off") }
    el.legend.replaceChildren(...keys)
  }

  // --- Acting on it --------------------------------------------------------------------------

  set(name) {
    const value = this.el[name].valueAsNumber, [least, most, words] = name === "share" ? [0, 10000, "Capacity is a number from 0 to 10,000 % of what was built."] : [0.01, 1000, "Latency is a number from 0.01 to 1,000 times what was built."]
    if (value >= least && value <= most) return this.act(name === "share" ? { capacity: value / 100 } : { latency: value })
    this.message = words
    this.panel(this.picture.last)
    this.message = ""
  }

  act(wish) {
    const chosen = [...this.picture.chosen]
    if (!this.data.editable || (!chosen.length && !wish.step)) return
    const link = this.onlyLink, now = performance.now()
    this.waiting.push({ number: ++this.sent, names: wish.step ? [] : chosen.map((b) => b.name), link, ...wish })
    this.asked ??= now
    if (!wish.step && !wish.move && !link) for (const b of chosen) this.scene.pending.set(b.name, wish.restore ? null : [wish.capacity ?? 1, wish.latency ?? 1])
    this.picture.draw()
    this.el.canvas.dataset.seen = (performance.now() - now).toFixed(0)
    this.tell("acts", this.waiting.map((one) => ({ ...one })))
  }

  move(who, to) { // an instance, to a node or an NPU and those that follow
    if (this.data.editable) this.act({ move: this.scene.instances[who][1], names: [to.name], capacity: undefined })
  }

  key(event, now) { // a key pressed on the picture; true when it was meant for here
    if (event.key === "/") { this.el.search.focus(); return true }
    if (event.ctrlKey || event.metaKey) return false
    if (event.key === " " && now) this.picture.select(now, true)
    else if (!this.data.editable) return false
    else if (event.key === "Delete" || event.key === "Backspace") this.act({ capacity: 0 })
    else if (event.key.toLowerCase() === "r") this.act({ restore: true })
    else return false
    return true
  }

  step(event) { // undo and redo, wherever on the page, but not while someone types
    const key = event.key.toLowerCase(), typing = event.composedPath()[0]
    if (!this.data?.editable || !(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key)) return
    if (/^(input|textarea|select)$/i.test(typing.tagName) || typing.isContentEditable) return
    event.preventDefault()
    this.act({ step: key === "y" || event.shiftKey ? 1 : -1 })
  }

  publish() { // for tests and for people who script: no pixel guessing
    const { picture, scene } = this
    if (!scene) return
    this.el.back.hidden = !picture.zoomed
    Object.assign(this.el.canvas.dataset, { draw: picture.draws, view: picture.focus?.name ?? this.view, zoom: (picture.camera.s / picture.home).toFixed(2), selection: picture.last?.name ?? "", chosen: picture.chosen.size,
      edits: scene.count, pending: scene.pending.size, hover: picture.hover?.name ?? "", boxes: scene.boxes.length, links: picture.wires, mean: (picture.spent / picture.draws).toFixed(2), colour: this.data.mode })
  }
}
