// The machine as the server tells it: boxes in boxes, links between them, what edits and loads make
// of these. Nothing here knows how a machine is wired or what a name means. The one thing decided
// here is how many racks stand beside each other, for only the browser knows its width.

const range = (n) => Array.from({ length: n }, (_, i) => i)
const plain = (name) => name.toLowerCase().replace(/[.:\-_]/g, " ").replace(/\s+/g, " ").trim()
const summed = (steps) => { let total = 0; return Int32Array.from(steps, (step) => (total += step)) }
const number = (x) => x.toLocaleString("en", { maximumSignificantDigits: Math.abs(x) >= 1000 ? 4 : 3 })
const speed = (gb) => (gb >= 10000 ? `${number(gb / 1000)} TB/s` : `${number(gb)} GB/s`)
const GAP = 12, WIRES = 64, LEAST = 0.42, MOST_WIDE = 6 // units between boxes, for curves; smallest scale; racks in one row

async function inflate(text) { // a deflated message of the server's
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json()
}

async function asBuilt(digest) { // the machine of a digest, which travels by itself and may come later
  while (!globalThis.machinesAsBuilt?.has(digest)) await new Promise((done) => document.addEventListener("machine-as-built", done, { once: true }))
  return inflate(globalThis.machinesAsBuilt.get(digest))
}

class Scene {
  constructor(told) {
    const [x, y, w, h] = told.rect
    this.told = told
    this.boxes = []
    told.name.forEach((name, i) => {
      const [kind, one, several, plane] = told.kinds[told.kind[i]], parent = this.boxes[told.parent[i]] ?? null
      const box = { i, name, kind, one, several, plane, parent, dx: x[i], dy: y[i], w: w[i], h: h[i], x: 0, y: 0, kids: [] }
      parent?.kids.push(box)
      box.node = kind === "node" ? box : parent?.node ?? null
      box.block = parent?.block ?? box
      this.boxes.push(box)
    })
    for (const box of this.boxes) if (box.kind === "plane") box.plane = box.kids[0].plane
    this.named = new Map(this.boxes.map((box) => [plain(box.name), box]))
    this.edits = new Set(told.named)
    this.dies = told.dies.map((i) => this.boxes[i])
    this.nodes = this.boxes.filter((b) => b.kind === "node")
    this.nodes.forEach((node, k) => { node.chip = told.chip[k] })
    this.also = new Map(told.also.map(([i, more]) => [i, more.map((k) => this.boxes[k])]))
    this.ends = told.ends.map(summed)
    this.cell = summed(told.cell)
    this.built = Float32Array.from(told.sort, (s) => told.sorts[s][2])
    this.at = this.boxes.map(() => []) // box -> its links
    this.cell.forEach((_, k) => { for (const end of this.ends) this.at[end[k]].push(k) })
    this.pending = new Map()
    this.change({ edits: 0, links: [], gb: [], marks: {}, within: [] })
    this.carry(null)
  }

  change({ edits, links, gb, marks, within }) { // what edits made of it
    Object.assign(this, { count: edits, marks, within: new Set(within), now: this.built.slice(), kept: new Map() })
    summed(links).forEach((k, i) => { this.now[k] = gb[i] })
  }

  carry(values) { // how full links are, in %; null: not told
    this.load = values && Float32Array.from(values, (v) => v ?? NaN)
    this.full = new Float32Array(this.boxes.length).fill(NaN)
    this.kept.clear()
    this.load?.forEach((v, k) => {
      if (!(v >= 0)) return
      for (const end of this.ends)
        for (let box = this.boxes[end[k]]; box; box = box.parent) if (!(this.full[box.i] >= v)) this.full[box.i] = v
    })
  }

  place(instances) { // who has which dies: [role, name, [[first die, the one after the last], ...]]
    this.instances = instances
    for (const die of this.dies) { die.who = die.parent.who = undefined; die.parent.shared = false; die.all = [] }
    instances.forEach(([, , runs], who) => {
      for (const run of runs) for (const die of this.dies.slice(...run)) {
        die.who = who
        die.parent.shared = die.all.push(who) > 1
        if (die.parent.shared) die.parent.who = who // decode: who sits there by itself
        die.parent.who ??= who
      }
    })
    this.shared = this.dies.some((die) => die.parent.shared) // prefill on the NPUs of decode
  }

  find(typed) { const asked = plain(typed); return this.named.get(asked) ?? (/^\d+$/.test(asked) ? this.named.get(`node ${asked}`) : null) ?? null }
  mark(box) { return this.pending.has(box.name) ? this.pending.get(box.name) : this.marks[box.name] ?? null }
  off(box) { const mark = this.mark(box); return Boolean(mark && !mark[0]) || Boolean(box.parent && this.off(box.parent)) }

  inside(box) { // a box and all in it, with what its plane has elsewhere
    return [box, ...box.kids.flatMap((kid) => this.inside(kid)), ...(this.also.get(box.i) ?? [])]
  }

  // Links that lead out of some boxes, as {from, to, plane, links, gb, built, load, cells}; `shown`
  // says for the far end of a link which box stands for it.
  bundles(inside, from, shown) {
    const own = new Set(inside.map((b) => b.i)), out = new Map(), [a, b] = this.ends
    for (const box of inside) for (const k of this.at[box.i]) {
      const far = a[k] === box.i ? b[k] : a[k]
      if (!own.has(far)) this.gather(out, from, shown(this.boxes[far]), k)
    }
    return [...out.values()]
  }

  // All links between boxes that `unit` names: racks and blocks, or nodes and blocks.
  all(name, unit) {
    if (!this.kept.has(name)) {
      const out = new Map(), [a, b] = this.ends
      for (let k = 0; k < this.cell.length; k++) {
        const from = unit(this.boxes[a[k]]), to = unit(this.boxes[b[k]])
        if (from !== to) this.gather(out, from, to, k)
      }
      this.kept.set(name, [...out.values()])
    }
    return this.kept.get(name)
  }

  gather(out, from, to, k) {
    const [plane, count] = this.told.sorts[this.told.sort[k]], key = `${from.i} ${to.i} ${plane}`
    let bundle = out.get(key)
    if (!bundle) out.set(key, (bundle = { from, to, plane, links: 0, gb: 0, built: 0, load: NaN, cells: new Set() }))
    bundle.links += this.now[k] > 0 ? count : 0
    bundle.gb += this.now[k]
    bundle.built += this.built[k]
    if (this.load && !(bundle.load >= this.load[k])) bundle.load = this.load[k]
    if (this.cell[k] >= 0) bundle.cells.add(this.cell[k])
  }

  // --- Where blocks stand --------------------------------------------------------------------

  arrange(width) { // racks in rows, the planes of switches between them; `size` in units
    const blocks = this.told.blocks.map(([i, part, what]) => ({ box: this.boxes[i], part, what }))
    if (this.told.fixed) for (const { box } of blocks) Object.assign(box, { x: box.dx, y: box.dy })
    else this.flow(blocks, width)
    for (const box of this.boxes) if (box.parent) Object.assign(box, { x: box.parent.x + box.dx, y: box.parent.y + box.dy })
    this.size = { w: Math.max(...blocks.map(({ box }) => box.x + box.w)), h: Math.max(...blocks.map(({ box }) => box.y + box.h)) }
  }

  flow(blocks, width) {
    const parts = [...new Set(blocks.filter((b) => b.what === "rack").map((b) => b.part))], beside = Math.ceil(Math.sqrt(parts.length))
    const of = (what, part) => blocks.filter((b) => b.what === what && (b.part === part || (parts.length === 1 && b.part < 0))).map((b) => b.box)
    let x = 0, y = 0, low = 0, wide = 0
    parts.forEach((part, k) => {
      if (k % beside === 0) { x = 0; y = low + (k ? 3 * GAP : 0) }
      const { w, h } = this.part(of("rack", part), of("hub", part), x, y, width / beside / (beside > 1 ? 0.5 : 1))
      x += w + 3 * GAP
      wide = Math.max(wide, x - 3 * GAP)
      low = Math.max(low, y + h)
    })
    if (parts.length > 1) this.row(blocks.filter((b) => b.what === "hub" && b.part < 0).map((b) => b.box), 0, low + WIRES, wide)
  }

  part(racks, hubs, x, y, width) { // one supernode
    const unit = Math.max(...racks.map((b) => b.w)) + GAP, fits = Math.max(1, Math.floor(width / unit / LEAST))
    const above = hubs.length && racks.length > Math.min(fits, MOST_WIDE) ? Math.ceil(racks.length / 2) : racks.length
    const most = Math.min(fits, Math.max(above, 1), hubs.length ? MOST_WIDE * 2 : 12), across = Math.ceil(above / Math.ceil(above / most)), w = Math.max(across * unit - GAP, Math.min(hubs.length, 4) * 155)
    let low = this.rows(racks.slice(0, above), x, y, across, unit)
    if (hubs.length) low = this.row(hubs, x, low + WIRES, w)
    if (above < racks.length) low = this.rows(racks.slice(above), x, low + WIRES, across, unit)
    return { w, h: low - y }
  }

  rows(racks, x, y, across, unit) {
    for (let first = 0; first < racks.length; first += across) {
      const some = racks.slice(first, first + across)
      if (first) y += GAP
      some.forEach((box, k) => Object.assign(box, { x: x + k * unit, y }))
      y += Math.max(...some.map((box) => box.h))
    }
    return y
  }

  row(hubs, x, y, width) { // blocks of switches over the width, in as few rows as they need
    if (!hubs.length) return y
    const w = Math.max(...hubs.map((b) => b.w)), most = Math.max(1, Math.floor((width + GAP) / (w + GAP))), per = Math.ceil(hubs.length / Math.ceil(hubs.length / most))
    const h = Math.max(...hubs.map((b) => b.h)), step = per > 1 ? (width - w) / (per - 1) : 0
    hubs.forEach((box, k) => Object.assign(box, { x: x + (per > 1 ? (k % per) * step : (width - w) / 2), y: y + Math.floor(k / per) * (h + GAP), h }))
    return y + Math.ceil(hubs.length / per) * (h + GAP) - GAP
  }
}
