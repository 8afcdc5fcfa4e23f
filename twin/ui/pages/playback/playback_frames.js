// The numbers of a run, unpacked from one message, and the fabric's frames made from them.
// A frame of a plane and a traffic class is bytes x shares / (window x capacity), the busier
// direction of each cell; all frames of a choice are made at once and kept, so that playing only
// looks them up and the colour scale is the same at every moment. Draws nothing.

const numbers = (packed) => {
  const raw = atob(packed), bytes = new Uint8Array(raw.length)
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i)
  return new Float32Array(bytes.buffer)
}
const range = (n) => Array.from({ length: n }, (_, i) => i)
const PLANES = { all: "All planes", ub: "UB", rdma: "RDMA", vpc: "VPC" }
const KEPT_CHOICES = 6

class Frames {
  constructor(data) {
    Object.assign(this, data)
    this.columns = this.planes + 2
    this.cells = this.nodes * this.columns
    this.moved = numbers(data.bytes)
    this.room = numbers(data.capacity)
    this.goes = Object.fromEntries(Object.entries(data.shares).map(([k, v]) => [k, numbers(v)]))
    this.figures = Object.fromEntries(Object.entries(data.measured).map(([k, v]) => [k, numbers(v)]))
    this.curves = data.strip.map((c) => ({ ...c, values: numbers(c.values) }))
    this.filled = data.pool ? numbers(data.pool) : null
    this.kept = new Map()
    this.placed = new Map(data.places.map(([name, ...place]) => [plain(name), place]))
    this.most = Object.fromEntries(Object.entries(this.figures).map(([k, v]) => [k, largest(v)]))
  }

  choices() { // planes that carried something, and the classes on each
    const out = { all: new Set() }
    for (const [plane, traffic] of this.series) { (out[plane] ??= new Set()).add(traffic); out.all.add(traffic) }
    return out
  }

  rows(plane) { // columns of the matrix that a plane has
    if (plane === "ub") return range(this.planes)
    return plane === "rdma" ? [this.planes] : plane === "vpc" ? [this.planes + 1] : range(this.columns)
  }

  // All frames of a choice, f4[windows, nodes, columns] in % of capacity, and the largest value.
  of(plane, traffic) {
    const name = `${plane}|${traffic}`
    if (this.kept.has(name)) return this.kept.get(name)
    const wanted = this.series.map(([p, t]) => (plane === "all" || p === plane) && (traffic === "all" || t === traffic))
    const { series, node, column, direction, share, from, until } = this.goes
    const rows = range(series.length).filter((r) => wanted[series[r]])
    const frames = new Float32Array(this.windows * this.cells), ways = [new Float32Array(this.cells), new Float32Array(this.cells)]
    const shown = this.rows(plane)
    let high = 0
    for (let w = 0; w < this.windows; w++) {
      ways[0].fill(0); ways[1].fill(0)
      for (const r of rows) if (w >= from[r] && w < until[r]) ways[direction[r]][node[r] * this.columns + column[r]] += share[r] * this.moved[series[r] * this.windows + w]
      for (let n = 0; n < this.nodes; n++) for (const c of shown) {
        const k = n * this.columns + c
        const used = (100 * Math.max(ways[0][k], ways[1][k])) / (this.window_s * this.room[k])
        frames[w * this.cells + k] = used
        if (used > high) high = used
      }
    }
    const made = { frames, high: rounded(high) }
    if (this.kept.size >= KEPT_CHOICES) this.kept.delete(this.kept.keys().next().value)
    this.kept.set(name, made)
    return made
  }

  figure(name, window, instance) {
    const grid = this.figures[name]
    return grid ? grid[window * this.instances.length + instance] : NaN
  }

  at(node, window) { // names of the instances that have dies of a node
    const there = this.seats.filter(([, a, b, since, until]) => node >= Math.floor(a) && node < b && since <= window && window < until)
    return [...new Set(there.map(([index]) => this.instances[index][1]))]
  }

  down(window, instance) { return this.figure("up", window, instance) < 0.5 }

  isOn(event, window) { // whether an event covers or begins in a window
    const from = window * this.window_s, to = from + this.window_s
    return event.t < to && (event.end ?? event.t) >= from
  }

  seriesOf(found, plane, traffic) { // an element's own curves
    if (found.kind === "instance") {
      const own = (name, title, unit, factor = 1) => this.figures[name] && { title: `${found.name}: ${title}`, unit, colour: this.colours[this.instances[found.index][0]],
        values: Float32Array.from(range(this.windows), (w) => factor * this.figure(name, w, found.index)) }
      return [own("queue", "waiting", "requests"), own("running", "in its batch", "requests"), own("iteration_s", "iteration", "ms", 1000), own("up", "in service", "%", 100)].filter((c) => c && c.values.some(Number.isFinite))
    }
    const { frames } = this.of(plane, traffic)
    const groups = [["ub", range(this.planes)], ["rdma", [this.planes]], ["vpc", [this.planes + 1]]].filter(([p]) => plane === "all" || plane === p)
    return groups.map(([p, columns]) => {
      const only = found.plane === null || p !== "ub" ? columns : [found.plane]
      const at = found.node === null ? range(this.nodes) : [found.node]
      const values = Float32Array.from(range(this.windows), (w) => Math.max(...at.flatMap((n) => only.map((c) => frames[w * this.cells + n * this.columns + c]))))
      return { title: `${found.name}: ${PLANES[p]} links, busiest`, unit: "% of capacity", colour: this.colours[p], values }
    })
  }

  find(typed) { // what a person may type: an instance's name, a number for a node, any element's name
    const asked = plain(typed), index = this.instances.findIndex(([, name]) => name === asked)
    if (index >= 0) return { kind: "instance", name: asked, index }
    const met = typed.split(",").map((part) => this.placed.get(plain(part))), number = /^\d+$/.test(asked) ? Number(asked) : this.nodes
    if (number < this.nodes) return this.cell(number, null)
    if (!met.every(Boolean)) return null
    const [node, plane] = [0, 1].map((k) => met.map((place) => place[k]).find((place) => place !== null) ?? null)
    return node === null && plane === null ? null : this.cell(node, plane)
  }

  cell(node, plane) { // a node, a sub-plane, or where they meet
    const name = [this.names.node[node], this.names.plane[plane]].filter(Boolean).join(", ")
    return { kind: "cell", node, plane, name }
  }
}

const plain = (name) => name.toLowerCase().replace(/[.:\-_]/g, " ").replace(/\s+/g, " ").trim()

const largest = (values) => values.reduce((most, v) => (v > most ? v : most), 0) // NaN is never larger

const STEPS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]
function rounded(high) { // the next round number: the end of a scale
  if (!(high > 0)) return 1
  const ten = 10 ** Math.floor(Math.log10(high))
  return ten * STEPS.find((s) => s * ten >= high * (1 - 1e-9))
}
