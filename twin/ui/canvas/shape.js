// The machine, from the small constant `shape` the server sends: which chips there are, what
// their links carry, and how people name them. Draws nothing.

const range = (n) => Array.from({ length: n }, (_, i) => i)
const sum = (list) => list.reduce((a, b) => a + b, 0)

const PATTERNS = [ // what a person may type, spaces for dots and hyphens
  [/^die (\d+) (\d+) (\d+)$/, (s, n, i, d) => n < s.nodes && i < s.npus && d < s.dies && ["die", `die ${n}.${i}.${d}`, n]],
  [/^nic (\d+) (\d+) (\d+)$/, (s, n, i, d) => n < s.nodes && i < s.npus && d < s.dies && ["nic", `NIC ${n}.${i}.${d}`, n]],
  [/^npu (\d+) (\d+)$/, (s, n, i) => n < s.nodes && i < s.npus && ["npu", `NPU ${n}.${i}`, n]],
  [/^cpu (\d+) (\d+)$/, (s, n, i) => n < s.nodes && i < s.cpus && ["cpu", `CPU ${n}.${i}`, n]],
  [/^qingtian (\d+)$/, (s, n) => n < s.nodes && ["qingtian", `Qingtian ${n}`, n]],
  [/^nics (\d+)$/, (s, n) => n < s.nodes && ["nics", `NICs ${n}`, n]],
  [/^l1 (\d+) (\d+)$/, (s, n, p) => n < s.nodes && p < s.planes && ["l1", `L1 ${n}.${p}`, n, p]],
  [/^l2 (\d+) (\d+)$/, (s, p, i) => p < s.planes && i < s.l2 && ["l2", `L2 ${p}.${i}`, null, p]],
  [/^l2 (\d+):(\d+) (\d+)$/, (s, g, p, i) => g < s.supernodes && p < s.planes && i < s.l2 && ["l2", s.l2Name(g, p, i), null, p]],
  [/^(?:node )?(\d+)$/, (s, n) => n < s.nodes && ["node", `node ${n}`, n]],
  [/^(?:sub plane|subplane|plane) (\d+)$/, (s, p) => p < s.planes && ["plane", `sub-plane ${p}`, null, p]],
]

const OWNERS = new Map() // nodes of a supernode -> name -> owners: an edit changes neither

class Shape {
  constructor(shape) {
    Object.assign(this, { supernodes: 1 }, shape)
    this.perSupernode = this.nodes / this.supernodes
    if (!OWNERS.has(this.perSupernode)) OWNERS.set(this.perSupernode, new Map())
    this.known = OWNERS.get(this.perSupernode)
    this.at = new Map() // element -> its edits [order, to, capacity, latency]
    this.within = new Set() // nodes and sub-planes in which some element has an edit of its own
    for (const [order, [element, to, capacity, latency]] of (shape.edits ?? []).entries())
      for (const [name, other] of to ? [[element, to], [to, element]] : [[element, ""]]) {
        if (!this.at.has(name)) this.at.set(name, [])
        this.at.get(name).push([order, other, capacity, latency])
        for (const owner of this.owners(name)) if (owner !== name) this.within.add(owner)
      }
  }

  owners(name) { // names that take an element in: itself, its NPU, its node, its sub-plane
    if (!this.known.has(name)) this.known.set(name, this.ownersOf(name))
    return this.known.get(name)
  }

  ownersOf(name) {
    const kind = name.split(" ")[0], [a, b, c] = this.numbers(name), found = [name]
    const add = (...names) => { for (const n of names) if (n !== name) found.push(n) }
    if (kind === "die") add(`NPU ${a}.${b}`)
    if (["die", "NIC", "NICs", "NPU", "CPU", "L1", "Qingtian"].includes(kind)) add(`node ${a}`)
    if (["die", "NIC", "NICs", "NPU", "CPU", "L1", "Qingtian", "node"].includes(kind)) add(`supernode ${this.part(a)}`)
    if (kind === "L1") add(`sub-plane ${b}`, `sub-plane ${this.part(a)}:${b}`, "UB plane")
    if (kind === "L2") {
      const [g, p] = c === undefined ? [0, a] : [a, b]
      add(`sub-plane ${p}`, `sub-plane ${g}:${p}`, `supernode ${g}`)
    }
    if (["RDMA network", "VPC network"].includes(name)) add(`${kind} plane`)
    return found
  }

  part(node) { return Math.floor(node / this.perSupernode) } // the supernode a node is in

  l2Name(g, p, i) { return g ? `L2 ${g}:${p}.${i}` : `L2 ${p}.${i}` }

  factors(a, b) { // of capacity and latency of the link between two chips, as the fabric has them
    if (!this.at.size) return [1, 1]
    const ours = this.owners(a), theirs = this.owners(b), met = new Map()
    for (const [own, others] of [[ours, theirs], [theirs, ours]])
      for (const name of own) for (const [order, to, c, l] of this.at.get(name) ?? [])
        if (!to || others.includes(to)) met.set(order, [c, l])
    return [...met.values()].reduce(([c, l], [c2, l2]) => [c * c2, l * l2], [1, 1])
  }

  mark(name) { // what edits of an element, or of what takes it in, make of it; null: nothing
    const met = this.owners(name).flatMap((n) => (this.at.get(n) ?? []).filter(([, to]) => !to))
    if (!met.length) return null
    return { capacity: met.reduce((c, e) => c * e[2], 1), latency: met.reduce((l, e) => l * e[3], 1) }
  }

  find(typed) {
    const plain = typed.toLowerCase().replace(/[.\-_]/g, " ").replace(/\s+/g, " ").trim()
    for (const [pattern, build] of PATTERNS) {
      const match = plain.match(pattern)
      const found = match && build(this, ...match.slice(1).map(Number))
      if (found) return { kind: found[0], name: found[1], node: found[2], sub_plane: found[3] ?? null }
    }
    return null
  }

  numbers(name) { return name.split(" ")[1].split(/[.:]/).map(Number) }

  // Uplinks of a node's L1 chip by L2 chip: dealt round, as the fabric deals them.
  dealt(node) {
    if (!this.l2) return []
    node %= this.perSupernode
    const each = Math.floor(this.uplinks / this.l2), rest = this.uplinks % this.l2
    const more = new Set(range(rest).map((k) => (node * this.uplinks + k) % this.l2))
    return range(this.l2).map((i) => [i, each + (more.has(i) ? 1 : 0)]).filter(([, n]) => n > 0)
  }

  link(a, b, gb, plane, kind) {
    const changed = this.changed[`${a}|${b}`] ?? this.changed[`${b}|${a}`]
    return { to: b, gb: changed ?? gb * this.factors(a, b)[0], built: gb, plane, kind }
  }

  uplink(n, p, i, links) {
    return this.link(`L1 ${n}.${p}`, this.l2Name(this.part(n), p, i), links * this.gb.link, "ub", "L2")
  }

  links(name) { // every link of one chip: {to, gb now, gb as built, plane, kind of the other end}
    const [a, b, c] = this.numbers(name), planes = range(this.planes)
    const link = (to, gb, plane, kind) => this.link(name, to, gb, plane, kind)
    let all = []
    if (name.startsWith("die ")) {
      all = planes.map((p) => link(`L1 ${a}.${p}`, this.gb.link, "ub", "L1"))
      for (const d of range(this.dies)) if (d !== c) all.push(link(`die ${a}.${b}.${d}`, this.gb.sibling, "ub", "die"))
      all.push(link(`NIC ${a}.${b}.${c}`, this.gb.nic, "rdma", "NIC"))
    } else if (name.startsWith("NIC ")) {
      all = [link(`die ${a}.${b}.${c}`, this.gb.nic, "rdma", "die")]
    } else if (name.startsWith("CPU ")) {
      all = planes.map((p) => link(`L1 ${a}.${p}`, this.gb.cpu / this.planes, "ub", "L1"))
      if (b === this.host) all.push(link(`Qingtian ${a}`, this.gb.vpc, "vpc", "Qingtian"))
    } else if (name.startsWith("Qingtian ")) {
      all = [link(`CPU ${a}.${this.host}`, this.gb.vpc, "vpc", "CPU")]
    } else if (name.startsWith("L1 ")) {
      for (const [i, d] of this.eachDie()) all.push(link(`die ${a}.${i}.${d}`, this.gb.link, "ub", "die"))
      for (const i of range(this.cpus)) all.push(link(`CPU ${a}.${i}`, this.gb.cpu / this.planes, "ub", "CPU"))
      for (const [i, n] of this.dealt(a)) all.push(this.uplink(a, b, i, n))
    } else if (name.startsWith("L2 ")) {
      const [g, plane, chip] = c === undefined ? [0, a, b] : [a, b, c]
      for (const n of range(this.perSupernode)) for (const [i, count] of this.dealt(g * this.perSupernode + n))
        if (i === chip) all.push({ ...this.uplink(g * this.perSupernode + n, plane, i, count), to: `L1 ${g * this.perSupernode + n}.${plane}`, kind: "L1" })
    }
    return all.filter((l) => l.built > 0)
  }

  nicsOf(node) { return this.eachDie().map(([i, d]) => `NIC ${node}.${i}.${d}`) }

  cells(old, names) { // capacities of the matrix, GB/s, worked out anew where the named elements are
    const nodes = new Set(), planes = new Set(), rows = this.planes + 2
    for (const name of names) {
      const kind = name.split(" ")[0], numbers = this.numbers(name)
      if (kind === "L2" || kind === "sub-plane") planes.add(kind === "L2" ? numbers.at(-2) : numbers.at(-1))
      else nodes.add(Number.isInteger(numbers[0]) && kind !== "supernode" ? numbers[0] : "all")
    }
    const rate = (a, b, gb) => gb * this.factors(a, b)[0]
    const value = (n, r) => {
      if (r < this.planes && this.l2) return sum(this.dealt(n).map(([i, count]) => this.uplink(n, r, i, count).gb))
      if (r < this.planes) return sum(of(this.links(`L1 ${n}.${r}`), "die").map((l) => l.gb))
      if (r > this.planes) return rate(`Qingtian ${n}`, "VPC network", this.gb.vpc)
      return sum(this.nicsOf(n).map((nic) => rate(nic, "RDMA network", this.gb.nic)))
    }
    return old.map((was, k) => {
      const n = Math.floor(k / rows), r = k % rows
      return nodes.has("all") || nodes.has(n) || planes.has(r) ? value(n, r) : was
    })
  }

  eachDie() { return range(this.npus).flatMap((i) => range(this.dies).map((d) => [i, d])) }
}

const number = (x) => x.toLocaleString("en", { maximumSignificantDigits: Math.abs(x) >= 1000 ? 4 : 3 })
const speed = (gb) => (gb >= 10000 ? `${number(gb / 1000)} TB/s` : `${number(gb)} GB/s`)
const total = (links) => { // '224 GB/s', and what it was built with where that is another
  const now = sum(links.map((l) => l.gb)), built = sum(links.map((l) => l.built))
  return Math.abs(now - built) <= 1e-9 * built ? speed(now) : `${speed(now)} of ${speed(built)} as built`
}
const of = (links, ...kinds) => links.filter((l) => kinds.includes(l.kind))
const percent = (x) => `${number(100 * x)} %`
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`

const nics = (shape, node) => shape.eachDie().flatMap(([i, d]) => shape.links(`NIC ${node}.${i}.${d}`))

function edited(shape, name) { // what edits make of an element, in words; "" for nothing
  const mark = shape.mark(name)
  if (!mark) return shape.within.has(name) ? "edited within" : ""
  if (!mark.capacity) return "off"
  const said = [mark.capacity === 1 ? "" : `${percent(mark.capacity)} of capacity`, mark.latency === 1 ? "" : `latency ×${number(mark.latency)}`]
  return said.filter(Boolean).join(", ")
}

function describe(shape, found) { // facts of an element, each with its unit
  const { kind, name, node, sub_plane } = found
  if (kind === "node") {
    const up = range(shape.planes).flatMap((p) => of(shape.links(`L1 ${node}.${p}`), "L2"))
    return [`${plural(shape.npus, "NPU")} of ${plural(shape.dies, "die")}`, plural(shape.cpus, "CPU"),
      shape.l2 ? `UB uplinks ${total(up)}` : "UB ends here", `RDMA ${total(nics(shape, node))}`, `VPC ${total(shape.links(`Qingtian ${node}`))}`]
  }
  if (kind === "plane") {
    const up = range(shape.nodes).flatMap((n) => of(shape.links(`L1 ${n}.${sub_plane}`), "L2"))
    return [plural(shape.nodes, "L1 chip"), plural(shape.l2 * shape.supernodes, "L2 chip"), `uplinks ${total(up)}`]
  }
  if (kind === "npu") {
    const dies = range(shape.dies).flatMap((d) => shape.links(`die ${shape.numbers(name).join(".")}.${d}`))
    return [plural(shape.dies, "die"), `UB ${total(of(dies, "L1"))}`, `RDMA ${total(of(dies, "NIC"))}`]
  }
  if (kind === "nics") return [`${plural(shape.npus * shape.dies, "NIC")}, one a die`, `RDMA ${total(nics(shape, node))}`]
  const links = shape.links(name)
  const say = (other, words) => { const l = of(links, other); return l.length ? [`${words(l.filter((x) => x.gb > 0).length)} ${total(l)}`] : [] }
  if (kind === "die") return [...say("L1", (n) => `UB ${plural(n, "link")}`), ...say("die", () => "sibling die"), ...say("NIC", () => "RDMA")]
  if (kind === "cpu") return [...say("L1", () => "UB"), ...say("Qingtian", () => "Qingtian DPU")]
  if (kind === "l1") return [...say("L2", (n) => `uplinks to ${plural(n, "L2 chip")}`), ...say("die", (n) => plural(n, "die")), ...say("CPU", (n) => plural(n, "CPU"))]
  if (kind === "l2") return [...say("L1", (n) => `${plural(n, "L1 chip")} below`), `${shape.ports} ports`]
  if (kind === "qingtian") return [`VPC ${total(links)}, one for the node`]
  return say("die", () => "RDMA")
}

