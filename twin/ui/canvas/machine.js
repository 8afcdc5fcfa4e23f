// The machine as the server tells it: elements, what they are part of, their links. Nothing here
// knows how a machine is wired or what a name means; all of it comes from the server's graph.

const range = (n) => Array.from({ length: n }, (_, i) => i)
const sum = (list) => list.reduce((a, b) => a + b, 0)
const unpack = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer)
const plain = (name) => name.toLowerCase().replace(/[.:\-_]/g, " ").replace(/\s+/g, " ").trim()
const short = (name) => name.slice(name.indexOf(" ") + 1) // "20.3" of "L1 20.3", as it stands in a box

class Machine {
  constructor(told, colours) {
    Object.assign(this, { colours, told, rows: told.rows, kinds: told.kinds, pending: new Map() })
    const count = told.names.length, none = () => new Int32Array(count).fill(-1)
    this.home = { node: none(), npu: none(), plane: none() } // which group of a kind has a vertex
    this.elements = new Map(told.names.map((name, v) => [name, { name, kind: told.kinds[told.kind[v]][0], members: [v] }]))
    this.groups = { node: [], npu: [], plane: [] }
    for (const [name, kind, members] of told.groups) {
      for (const v of members) this.home[kind][v] = this.groups[kind].length
      this.groups[kind].push({ name, kind, members })
      this.elements.set(name, this.groups[kind].at(-1))
    }
    for (const [name, members] of told.cells) if (name && !this.elements.has(name)) this.elements.set(name, { name, kind: "cell", members })
    for (const found of this.elements.values()) // the node and the sub-plane that an element is in
      for (const kind of ["node", "plane"]) {
        const homes = new Set(found.members.map((v) => this.home[kind][v]))
        found[kind] = homes.size === 1 && !homes.has(-1) ? [...homes][0] : null
      }
    this.spelled = new Map([...this.elements.keys()].map((name) => [plain(name), name]))
    this.ends = unpack(told.ends, Uint32Array)
    this.sort = unpack(told.sort, Uint16Array)
    this.at = told.names.map(() => []) // vertex -> its links
    this.sort.forEach((_, k) => { this.at[this.ends[2 * k]].push(k); this.at[this.ends[2 * k + 1]].push(k) })
  }

  change({ edits, links, gb, marks, within }) { // what edits made of it
    Object.assign(this, { edits, marks, within: new Set(within), now: new Map() })
    const rates = unpack(gb, Float32Array)
    unpack(links, Uint32Array).forEach((k, i) => this.now.set(k, rates[i]))
  }

  find(typed) { // an element by its name, however it is spelled; a number alone is a node
    const asked = plain(typed)
    return this.elements.get(this.spelled.get(asked)) ?? (/^\d+$/.test(asked) ? this.groups.node[Number(asked)] ?? null : null)
  }

  mark(name) { // [capacity, latency] that edits of an element, or around it, leave; null: as built
    return this.pending.has(name) ? this.pending.get(name) : this.marks[name] ?? null
  }

  cell(n, r) { return this.told.cells[n * this.rows.length + r] }

  links(v) { // of one vertex: {to, name, gb now, gb as built, plane}
    return this.at[v].map((k) => {
      const to = this.ends[2 * k] === v ? this.ends[2 * k + 1] : this.ends[2 * k], [plane, built] = this.told.sorts[this.sort[k]]
      return { to, name: this.told.names[to], gb: this.now.get(k) ?? built, built, plane }
    })
  }

  ofKind(members, kind) { return members.filter((v) => this.kinds[this.told.kind[v]][0] === kind) }
}

const number = (x) => x.toLocaleString("en", { maximumSignificantDigits: Math.abs(x) >= 1000 ? 4 : 3 })
const speed = (gb) => (gb >= 10000 ? `${number(gb / 1000)} TB/s` : `${number(gb)} GB/s`)
const total = (links) => { // '224 GB/s', and what it was built with where that is another
  const now = sum(links.map((l) => l.gb)), built = sum(links.map((l) => l.built))
  return Math.abs(now - built) <= 1e-6 * built ? speed(now) : `${speed(now)} of ${speed(built)} as built`
}
const by = (list, key) => { // list by what `key` says of each, in the order met
  const groups = new Map()
  for (const x of list) groups.set(key(x), [...(groups.get(key(x)) ?? []), x])
  return [...groups]
}

function edited(machine, name) { // what edits make of an element, in words; "" for nothing
  const mark = machine.mark(name)
  if (!mark) return machine.within.has(name) ? "edited within" : ""
  const [capacity, latency] = mark
  if (!capacity) return "off"
  return [capacity === 1 ? "" : `${number(100 * capacity)} % of capacity`, latency === 1 ? "" : `latency ×${number(latency)}`].filter(Boolean).join(", ")
}

function describe(machine, found) { // facts of an element, each with its unit
  const counted = (n, [, one, several]) => `${number(n)} ${n === 1 ? one : several}`
  const kindOf = (v) => machine.kinds[machine.told.kind[v]]
  if (found.members.length === 1) return by(machine.links(found.members[0]), (l) => kindOf(l.to))
    .map(([kind, links]) => `${counted(links.filter((l) => l.gb > 0).length, kind)} ${total(links)}`)
  const inside = new Set(found.members), facts = by(found.members, kindOf).map(([kind, all]) => counted(all.length, kind))
  const out = found.members.flatMap((v) => machine.links(v)).filter((l) => !inside.has(l.to))
  for (const [plane, links] of by(out, (l) => l.plane)) facts.push(`${plane.toUpperCase()} out ${total(links)}`)
  return facts
}
