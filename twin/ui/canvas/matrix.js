// The second view: nodes by planes as a table of colours, wrapped to the width there is. A cell is
// what a node has of a plane; its value is given by number, node x rows + row.

class Matrix {
  constructor(canvas, { onSelect, onHover }) {
    Object.assign(this, { canvas, hover: null, chosen: new Set() })
    canvas.onpointermove = (e) => { const cell = this.under(e); if (cell !== this.hover) { this.hover = cell; this.draw(); onHover(cell) } }
    canvas.onpointerleave = () => { this.hover = null; this.draw(); onHover(null) }
    canvas.onclick = (e) => onSelect(this.under(e), e.shiftKey || e.ctrlKey || e.metaKey)
    canvas.onkeydown = (e) => {
      if (!KEYS[e.key] && e.key !== "Enter") return
      e.preventDefault()
      if (e.key === "Enter") return onSelect(this.hover)
      const [dx, dy] = KEYS[e.key], { nodes, told: { rows } } = this.scene, at = this.hover ?? 0
      const n = Math.min(nodes.length - 1, Math.max(0, Math.floor(at / rows.length) + dx)), r = Math.min(rows.length - 1, Math.max(0, (at % rows.length) + dy))
      this.hover = n * rows.length + r
      this.draw()
      onHover(this.hover)
    }
    canvas.where = (cell) => { const b = this.boxes.find((box) => box.cell === cell); return b && { x: b.x + b.w / 2, y: b.y + b.h / 2 } }
  }

  show(scene, width, values, high, picture) { // values by cell; `high` is the end of the scale, or of each row's plane
    const { nodes, told: { rows } } = scene, left = Math.max(50, 7 * Math.max(...rows.map(([text]) => text.length))), w = Math.max(12, Math.min(26, (width - left - 4) / nodes.length)), per = Math.max(1, Math.min(nodes.length, Math.floor((width - left - 4) / w))), h = 20
    Object.assign(this, { scene, values, high, picture, boxes: [], heads: [] })
    let y = 4
    for (let from = 0; from < nodes.length; from += per) {
      for (let n = from; n < Math.min(from + per, nodes.length); n++) if ((n - from) % Math.ceil(24 / w) === 0) this.heads.push({ x: left + (n - from) * w, y: y + 7, text: nodes[n].name.split(" ")[1] })
      y += 17
      rows.forEach(([text, plane], r) => {
        this.heads.push({ x: 0, y: y + h / 2, text, plane })
        for (let n = from; n < Math.min(from + per, nodes.length); n++) this.boxes.push({ x: left + (n - from) * w, y, w, h, cell: n * rows.length + r, plane })
        y += h
      })
      y += 12
    }
    const ratio = window.devicePixelRatio || 1
    Object.assign(this.canvas, { width: width * ratio, height: y * ratio })
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${y}px` })
    this.draw()
  }

  under(event) { return this.boxes.find((b) => event.offsetX >= b.x && event.offsetX < b.x + b.w && event.offsetY >= b.y && event.offsetY < b.y + b.h)?.cell ?? null }

  draw() {
    const { picture } = this, { style, colours } = picture, pen = this.canvas.getContext("2d"), ratio = window.devicePixelRatio || 1
    pen.setTransform(ratio, 0, 0, ratio, 0, 0)
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height)
    pen.font = `12px ${style.font}`
    pen.textBaseline = "middle"
    for (const { x, y, text, plane } of this.heads) { pen.fillStyle = plane ? picture.legible(plane) : style.quiet; pen.fillText(text, x, y) }
    for (const b of this.boxes) {
      const value = this.values[b.cell], measured = typeof this.high === "number"
      pen.fillStyle = !(measured ? value > 0 : value >= 0) ? style.panel : measured ? picture.ramp(value / this.high) : colours[b.plane]
      pen.globalAlpha = measured || !(value >= 0) ? 1 : 0.08 + 0.72 * Math.min(1, value / this.high[b.plane])
      pen.beginPath(); pen.roundRect(b.x + 0.75, b.y + 0.75, b.w - 1.5, b.h - 1.5, 2); pen.fill()
      pen.globalAlpha = 1
      if (value === 0 && !measured) { pen.strokeStyle = OFF; pen.lineWidth = 1.2; pen.beginPath(); pen.moveTo(b.x + 3, b.y + b.h - 3); pen.lineTo(b.x + b.w - 3, b.y + 3); pen.stroke() }
      if (b.cell === this.hover || this.chosen.has(b.cell)) { pen.strokeStyle = this.chosen.has(b.cell) ? style.accent : style.text; pen.lineWidth = this.chosen.has(b.cell) ? 2.4 : 1.4; pen.strokeRect(b.x + 0.5, b.y + 0.5, b.w - 1, b.h - 1) }
    }
  }

  members(cell) { // what a node has of a plane: the ends, inside the node, of the links that count there
    const { scene } = this, node = scene.nodes[Math.floor(cell / scene.told.rows.length)], found = new Set()
    scene.cell.forEach((c, k) => { if (c === cell) for (const end of scene.ends) if (scene.boxes[end[k]].node === node && !["die", "cpu"].includes(scene.boxes[end[k]].kind)) found.add(scene.boxes[end[k]]) })
    return [...found]
  }
}
