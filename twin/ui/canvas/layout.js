// Where things stand on the canvas: the matrix, one node's chips, one sub-plane's chips.
// A layout is {width, height, boxes: [{name, kind, x, y, w, h, value?, text?, plane?}], notes,
// strips}: boxes can be pointed at, notes are plain words, strips show which instance has a node.

const HIT = 14 // smallest side of anything to click, px (12 is the house's minimum)
const LEFT = 62 // px for the names of rows

function matrixLayout(machine, live, width, zoom) {
  const { rows } = machine, { node: nodes } = machine.groups, boxes = [], notes = [], strips = []
  const parts = by(range(nodes.length), (n) => machine.told.part[nodes[n].members[0]]), each = parts[0][1].length
  const side = Math.max(HIT, 14 * zoom)
  let columns = Math.max(1, Math.min(nodes.length, Math.floor((width - LEFT - 2) / side)))
  const bands = Math.ceil(each / Math.min(columns, each))
  columns = Math.min(columns, Math.max(4, 4 * Math.ceil(each / bands / 4)))
  const cw = Math.min(Math.max(side, (width - LEFT - 2) / columns), 34 * zoom), ch = Math.max(HIT + 2, 20 * zoom)
  const stripH = machine.instances.length ? 10 : 0
  let y = 2
  for (const [part, inside] of parts) for (let first = 0; first < inside.length; first += columns) {
    if (!first && parts.length > 1) {
      notes.push({ x: 0, y: y + 8, text: `Supernode ${part}` })
      y += 19
    }
    const shown = inside.slice(first, first + columns), from = shown[0], to = shown.at(-1) + 1, x = (n) => LEFT + (n - from) * cw
    for (const [role, label, start, end] of machine.instances) {
      const a = Math.max(start, from), b = Math.min(end, to)
      if (a < b) strips.push({ role, label, x: x(a), y, w: (b - a) * cw - 1.5, h: stripH - 3 })
    }
    y += stripH
    for (const n of shown)
      boxes.push({ name: nodes[n].name, kind: "node", x: x(n), y, w: cw, h: 16, head: n % 4 === 0 || cw >= 26, text: short(nodes[n].name) })
    y += 17
    rows.forEach(({ text, plane, name }, r) => {
      if (r && !name && rows[r - 1].name) y += 5
      if (name) boxes.push({ name, kind: "plane", x: 0, y, w: LEFT - 6, h: ch, head: true, text, plane, band: from })
      else notes.push({ x: 0, y: y + ch / 2, text, plane })
      for (const n of shown) {
        const [cell] = machine.cell(n, r)
        if (cell) boxes.push({ name: cell, kind: "cell", x: x(n), y, w: cw, h: ch, value: live.cells[n * rows.length + r], cell: true, plane })
      }
      y += ch
    })
    y += 14
  }
  return { width, height: y - 8, boxes, notes, strips }
}

// Boxes side by side over the width, in as many even rows as they need; wide boxes spread out.
function flow(count, left, y, right, w, h, gap) {
  const most = Math.max(1, Math.floor((right - left + gap) / (w + gap)))
  const rows = Math.ceil(count / most), perRow = Math.ceil(count / rows)
  const step = perRow > 1 ? (right - left - w) / (perRow - 1) : 0
  return { at: range(count).map((k) => [left + (k % perRow) * step, y + Math.floor(k / perRow) * (h + gap)]), bottom: y + rows * (h + gap) }
}

// A row of vertices under the name of the first one's kind; an L1 chip bears its cell's value.
function row(layout, machine, live, vertices, y, h, width, text = (v) => short(machine.told.names[v]), least = 0, label = "") {
  if (!vertices.length) return y
  const gap = 6, right = width - 4, w = Math.max(HIT + 6, least, Math.min(92, (right - LEFT + gap) / vertices.length - gap))
  const { at, bottom } = flow(vertices.length, LEFT, y, right, w, h, gap)
  const kindOf = (v) => machine.kinds[machine.told.kind[v]], [, one, several, plane] = kindOf(vertices[0])
  layout.notes.push({ x: 0, y: y + h / 2, text: label || (vertices.length > 1 ? several : one), plane })
  vertices.forEach((v, k) => {
    const name = machine.told.names[v], [kind, , , plane] = kindOf(v), node = machine.home.node[v], r = machine.home.plane[v]
    const value = node >= 0 && r >= 0 ? live.cells[node * machine.rows.length + r] : undefined
    layout.boxes.push({ name, kind, x: at[k][0], y: at[k][1], w, h, text: text(v), plane, value })
  })
  return bottom
}

function nodeLayout(machine, live, width, zoom, node) { // NPUs with a NIC over each die, then the rest
  const layout = { width, boxes: [], notes: [], strips: [] }, gap = 10, h = 26 * zoom, { names } = machine.told
  const { members } = machine.groups.node[node], npus = by(machine.ofKind(members, "die"), (v) => machine.home.npu[v])
  const most = Math.max(...npus.map(([, dies]) => dies.length))
  const dieW = Math.max(HIT + 4, Math.min(46, ((width - LEFT) / npus.length - gap) / most - 3))
  const w = most * (dieW + 3) + 3, frameH = 18 + HIT + 8 + h + 6
  const { at, bottom } = flow(npus.length, LEFT, 4, width - 4, w, frameH, gap)
  layout.notes.push({ x: 0, y: at[0][1] + 9, text: "NPUs" }, { x: 0, y: at[0][1] + 26, text: "NICs", plane: "rdma" }, { x: 0, y: at[0][1] + 26 + HIT + h / 2, text: "dies" })
  npus.forEach(([npu, dies], i) => {
    const [x, y] = at[i], { name } = machine.groups.npu[npu]
    layout.boxes.push({ name, kind: "npu", x, y, w, h: frameH, frame: true, text: short(name) })
    dies.forEach((die, d) => {
      const dx = x + 3 + d * (dieW + 3), [nic] = machine.ofKind(machine.links(die).map((l) => l.to), "nic")
      if (nic !== undefined) layout.boxes.push({ name: names[nic], kind: "nic", x: dx, y: y + 18, w: dieW, h: HIT, plane: "rdma" })
      layout.boxes.push({ name: names[die], kind: "die", x: dx, y: y + 18 + HIT + 6, w: dieW, h, text: `${d}` })
    })
  })
  let y = row(layout, machine, live, machine.ofKind(members, "l1"), bottom + 60, h, width) + 54
  const text = (v) => machine.kinds[machine.told.kind[v]][0] === "cpu" ? short(names[v]) : machine.kinds[machine.told.kind[v]][1]
  y = row(layout, machine, live, ["cpu", "qingtian"].flatMap((kind) => machine.ofKind(members, kind)), y, h, width, text)
  return { ...layout, height: y + 4 }
}

function planeLayout(machine, live, width, zoom, plane) { // one supernode's chips below the other's
  const layout = { width, boxes: [], notes: [], strips: [] }, h = 24 * zoom, { members } = machine.groups.plane[plane]
  const parts = by(members, (v) => machine.told.part[v]), least = members.length > 120 ? 30 : 0
  let y = 4
  for (const [part, inside] of parts) {
    if (parts.length > 1) { layout.notes.push({ x: 0, y: y + 6, text: `Supernode ${part}` }); y += 22 }
    y = row(layout, machine, live, machine.ofKind(inside, "l2"), y, h, width, (v) => short(machine.told.names[v]).split(".").at(-1))
    y += parts.length > 1 ? 56 : 90
    y = row(layout, machine, live, machine.ofKind(inside, "l1"), y, h, width, (v) => short(machine.groups.node[machine.home.node[v]].name), least, "L1 of node") + 20
  }
  return { ...layout, height: y - 16 }
}
