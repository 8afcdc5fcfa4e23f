// Where things stand on the canvas: the matrix, one node's chips, one sub-plane's chips.
// A layout is {width, height, boxes: [{name, kind, x, y, w, h, value?, text?, plane?}], notes,
// strips}: boxes can be pointed at, notes are plain words, strips show which instance has a node.

const HIT = 14 // smallest side of anything to click, px (12 is the house's minimum)

function matrixLayout(shape, live, width, zoom) {
  const rows = live.cells.length / shape.nodes, left = 62, boxes = [], notes = [], strips = []
  const side = Math.max(HIT, 14 * zoom)
  let columns = Math.max(1, Math.min(shape.nodes, Math.floor((width - left - 2) / side)))
  const each = shape.perSupernode ?? shape.nodes, bands = Math.ceil(each / Math.min(columns, each))
  columns = Math.min(columns, Math.max(4, 4 * Math.ceil(each / bands / 4)))
  const cw = Math.min(Math.max(side, (width - left - 2) / columns), 34 * zoom), ch = Math.max(HIT + 2, 20 * zoom)
  const stripH = shape.instances.length ? 10 : 0
  let y = 2
  for (let from = 0, to; from < shape.nodes; from = to) {
    to = Math.min(from + columns, each * (Math.floor(from / each) + 1)) // a band ends with its supernode
    if (from % each === 0 && each < shape.nodes) {
      notes.push({ x: 0, y: y + 8, text: `Supernode ${from / each}` })
      y += 19
    }
    const x = (n) => left + (n - from) * cw
    for (const [role, label, first, last] of shape.instances) {
      const a = Math.max(first, from), b = Math.min(last, to)
      if (a < b) strips.push({ role, label, x: x(a), y, w: (b - a) * cw - 1.5, h: stripH - 3 })
    }
    y += stripH
    for (let n = from; n < to; n++)
      boxes.push({ name: `node ${n}`, kind: "node", x: x(n), y, w: cw, h: 16, head: n % 4 === 0 || cw >= 26, text: `${n}` })
    y += 17
    for (let r = 0; r < rows; r++) {
      const ub = r < shape.planes, rdma = r === shape.planes
      if (r === shape.planes) y += 5
      const label = ub ? `UB ${r}` : rdma ? "RDMA" : "VPC"
      if (ub) boxes.push({ name: `sub-plane ${r}`, kind: "plane", x: 0, y, w: left - 6, h: ch, head: true, text: label, plane: "ub", band: from })
      else notes.push({ x: 0, y: y + ch / 2, text: label, plane: rdma ? "rdma" : "vpc" })
      for (let n = from; n < to; n++) {
        const name = ub ? `L1 ${n}.${r}` : rdma ? `NICs ${n}` : `Qingtian ${n}`
        const kind = ub ? "l1" : rdma ? "nics" : "qingtian"
        boxes.push({ name, kind, node: n, x: x(n), y, w: cw, h: ch, value: live.cells[n * rows + r], cell: true, plane: ub ? "ub" : rdma ? "rdma" : "vpc" })
      }
      y += ch
    }
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

function row(layout, kind, names, y, h, left, right, extra = () => ({}), least = 0) {
  const gap = 6, w = Math.max(HIT + 6, least, Math.min(92, (right - left + gap) / names.length - gap))
  const { at, bottom } = flow(names.length, left, y, right, w, h, gap)
  names.forEach((name, k) => layout.boxes.push({ name, kind, x: at[k][0], y: at[k][1], w, h, text: name.split(" ")[1], ...extra(name, k) }))
  return bottom
}

function nodeLayout(shape, live, width, zoom, node) {
  const layout = { width, boxes: [], notes: [], strips: [] }, left = 62, gap = 10, h = 26 * zoom
  const rows = live.cells.length / shape.nodes
  const dieW = Math.max(HIT + 4, Math.min(46, ((width - left) / shape.npus - gap) / shape.dies - 3))
  const w = shape.dies * (dieW + 3) + 3
  const npus = range(shape.npus).map((i) => `NPU ${node}.${i}`)
  const frameH = 18 + HIT + 8 + h + 6
  const { at, bottom } = flow(shape.npus, left, 4, width - 4, w, frameH, gap)
  layout.notes.push({ x: 0, y: at[0][1] + 9, text: "NPUs" }, { x: 0, y: at[0][1] + 26, text: "NICs", plane: "rdma" }, { x: 0, y: at[0][1] + 26 + HIT + h / 2, text: "dies" })
  npus.forEach((name, i) => {
    const [x, y] = at[i]
    layout.boxes.push({ name, kind: "npu", x, y, w, h: frameH, frame: true, text: `${node}.${i}` })
    for (const d of range(shape.dies)) {
      const dx = x + 3 + d * (dieW + 3)
      layout.boxes.push({ name: `NIC ${node}.${i}.${d}`, kind: "nic", x: dx, y: y + 18, w: dieW, h: HIT, plane: "rdma" })
      layout.boxes.push({ name: `die ${node}.${i}.${d}`, kind: "die", x: dx, y: y + 18 + HIT + 6, w: dieW, h, text: `${d}` })
    }
  })
  let y = bottom + 60
  layout.notes.push({ x: 0, y: y + h / 2, text: "L1 chips", plane: "ub" })
  y = row(layout, "l1", range(shape.planes).map((p) => `L1 ${node}.${p}`), y, h, left, width - 4, (_, p) => ({ value: live.cells[node * rows + p], plane: "ub" }))
  y += 54
  layout.notes.push({ x: 0, y: y + h / 2, text: "CPUs" })
  const low = [...range(shape.cpus).map((i) => `CPU ${node}.${i}`), `Qingtian ${node}`]
  y = row(layout, "cpu", low, y, h, left, width - 4, (name) => name.startsWith("Q") ? { kind: "qingtian", text: "Qingtian", plane: "vpc" } : {})
  return { ...layout, height: y + 4 }
}

function planeLayout(shape, live, width, zoom, plane) { // one supernode's chips below the other's
  const layout = { width, boxes: [], notes: [], strips: [] }, left = 62, h = 24 * zoom
  const rows = live.cells.length / shape.nodes, each = shape.perSupernode, least = shape.nodes > 100 ? 30 : 0
  let y = 4
  for (const g of range(shape.supernodes)) {
    if (shape.supernodes > 1) { layout.notes.push({ x: 0, y: y + 6, text: `Supernode ${g}` }); y += 22 }
    layout.notes.push({ x: 0, y: y + h / 2, text: "L2 chips", plane: "ub" })
    y = row(layout, "l2", range(shape.l2).map((i) => shape.l2Name(g, plane, i)), y, h, left, width - 4, (_, i) => ({ text: `${i}` }))
    y += shape.supernodes > 1 ? 56 : 90
    layout.notes.push({ x: 0, y: y + h / 2, text: "L1 of node" })
    const nodes = range(each).map((n) => g * each + n)
    y = row(layout, "l1", nodes.map((n) => `L1 ${n}.${plane}`), y, h, left + 14, width - 4, (_, k) => ({ value: live.cells[nodes[k] * rows + plane], text: `${nodes[k]}`, plane: "ub" }), least)
    y += 20
  }
  return { ...layout, height: y - 16 }
}
