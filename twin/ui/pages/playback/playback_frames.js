// The numbers of a run, unpacked from one message, and what the machine carries made from them.
// A frame of a plane and a traffic class is bytes x shares, out of each cell and into it; how full a
// cell is, is the busier direction over its capacity. All frames of a choice are made at once and
// kept, so that playing only looks them up and scales are the same at every moment. Draws nothing.

const numbers = (packed) => new Float32Array(Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)).buffer)
const KEPT_CHOICES = 4

class Frames {
  constructor(data, scene) {
    Object.assign(this, data, { scene, kept: new Map() })
    this.columns = this.planes + 2
    this.cells = this.nodes * this.columns
    this.moved = numbers(data.bytes)
    this.room = numbers(data.capacity)
    this.goes = Object.fromEntries(Object.entries(data.shares).map(([k, v]) => [k, numbers(v)]))
    this.figures = Object.fromEntries(Object.entries(data.measured).map(([k, v]) => [k, numbers(v)]))
    for (const name of ["strip", "way"]) this[name] = data[name].map((c) => ({ ...c, values: numbers(c.values) }))
    this.filled = data.pool ? numbers(data.pool) : null
    this.most = Object.fromEntries(Object.entries(this.figures).map(([k, v]) => [k, largest(v)]))
    for (const event of this.events) event.box = scene.find(event.element)
  }

  choices() { // planes that carried something, and the classes on each
    const out = { all: new Set() }
    for (const [plane, traffic] of this.series) { (out[plane] ??= new Set()).add(traffic); out.all.add(traffic) }
    return out
  }

  planeOf(column) { return column < this.planes ? "ub" : column === this.planes ? "rdma" : "vpc" }

  // A choice's frames: bytes/s out of and into each cell, how full it is in %, the ends of scales.
  of(plane, traffic) {
    const name = `${plane}|${traffic}`
    if (this.kept.has(name)) return this.kept.get(name)
    const wanted = this.series.map(([p, t]) => (plane === "all" || p === plane) && (traffic === "all" || t === traffic)), size = this.windows * this.cells
    const { series, node, column, direction, share, from, until } = this.goes, ways = [new Float32Array(size), new Float32Array(size)], used = new Float32Array(size).fill(NaN), most = {}
    let high = 0
    series.forEach((k, r) => {
      if (!wanted[k]) return
      const way = ways[direction[r]], cell = node[r] * this.columns + column[r]
      for (let w = from[r]; w < Math.min(until[r], this.windows); w++) way[w * this.cells + cell] += (share[r] * this.moved[k * this.windows + w]) / this.window_s
    })
    for (let k = 0; k < size; k++) {
      const cell = k % this.cells, p = this.planeOf(cell % this.columns), rate = Math.max(ways[0][k], ways[1][k])
      if (plane !== "all" && p !== plane) continue
      used[k] = (100 * rate) / this.room[cell]
      if (used[k] > high) high = used[k]
      if (rate > (most[p] ?? 0)) most[p] = rate
    }
    if (this.kept.size >= KEPT_CHOICES) this.kept.delete(this.kept.keys().next().value)
    this.kept.set(name, { ways, used, most, high: rounded(high) })
    return this.kept.get(name)
  }

  cellOf(cell) { // of the machine's matrix -> of the frames; -1: nothing is recorded there
    if (cell < 0) return -1
    const { rows } = this.scene.told, row = cell % rows.length, [text, plane] = rows[row]
    const column = plane === "rdma" ? this.planes : plane === "vpc" ? this.planes + 1 : row < this.planes && text.startsWith("UB") ? row : -1
    return column < 0 ? -1 : Math.floor(cell / rows.length) * this.columns + column
  }

  figure(name, window, instance) { return this.figures[name]?.[window * this.instances.length + instance] ?? NaN }
  down(window, instance) { return this.figure("up", window, instance) < 0.5 }

  seated(window) { // instances with the dies they have then, as a scene places them
    const runs = this.instances.map(() => [])
    for (const [who, first, last, since, until] of this.seats) if (since <= window && window < until) runs[who].push([first, last])
    return this.instances.map(([role, name], k) => [role, name, runs[k]])
  }

  isOn(event, window) { // whether an event covers or begins in a window
    const from = window * this.window_s, to = from + this.window_s
    return event.t < to && (event.end ?? event.t) >= from
  }

  cellsAt(box) { // of an element: where its links count
    const found = new Set()
    for (const b of this.scene.inside(box)) for (const k of this.scene.at[b.i]) { const cell = this.cellOf(this.scene.cell[k]); if (cell >= 0) found.add(cell) }
    return [...found]
  }

  busiest(cells, window, plane, used) { return Math.max(...cells.filter((c) => this.planeOf(c % this.columns) === plane).map((c) => used[window * this.cells + c] || 0)) }

  seriesOf({ box, index, name }, plane, traffic) { // an element's own curves
    if (box) {
      const { used } = this.of(plane, traffic), cells = this.cellsAt(box), planes = [...new Set(cells.map((c) => this.planeOf(c % this.columns)))].filter((p) => plane === "all" || p === plane)
      return planes.map((p) => ({ title: `${name}: ${this.scene.told.planes[p]} links, busiest`, unit: "% of capacity", colour: this.colours[p], values: Float32Array.from(range(this.windows), (w) => this.busiest(cells, w, p, used)) }))
    }
    const own = (figure, title, unit, factor = 1) => this.figures[figure] && { title: `${name}: ${title}`, unit, colour: this.colours[this.instances[index][0]], values: Float32Array.from(range(this.windows), (w) => factor * this.figure(figure, w, index)) }
    return [own("queue", queued(this.instances[index][0]), "requests"), own("running", "in its batch", "requests"), own("iteration_s", "iteration", "ms", 1000), own("up", "in service", "%", 100)].filter((c) => c && c.values.some(Number.isFinite))
  }

  find(typed) { // an instance's name, a number for a node, any element's name; "node 3, sub-plane 1": the first
    const asked = plain(typed), index = this.instances.findIndex(([, name]) => plain(name) === asked)
    if (index >= 0) return { name: this.instances[index][1], index }
    const box = this.scene.find(typed.split(",")[0])
    return box && { name: box.name, box }
  }
}

const largest = (values) => values.reduce((most, v) => (v > most ? v : most), 0) // NaN is never larger

const STEPS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]
function rounded(high) { // the next round number: the end of a scale
  if (!(high > 0)) return 1
  const ten = 10 ** Math.floor(Math.log10(high))
  return ten * STEPS.find((s) => s * ten >= high * (1 - 1e-9))
}
