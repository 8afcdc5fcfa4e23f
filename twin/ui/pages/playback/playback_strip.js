// The strip below the picture: curves over simulated time with what happened, and a cursor.
// The curves are drawn once on a sheet of their own; a frame lays the sheet down and the cursor
// and the values at the cursor on top. Knows nothing of fabrics.

const MARKS = { // every kind has a sign as well as a colour
  fault: ["✕", "#D03B2F", "something breaks"], instance_down: ["▼", "#D03B2F", "instance down"],
  detected: ["◉", "#B07A10", "noticed"], shrunk: ["◣", "#B07A10", "goes on smaller"],
  spare: ["+", "#2B8F7B", "spares take over"], rejoined: ["◢", "#2B8F7B", "repaired die serves again"],
  pool_lost: ["▢", "#699D59", "pool blocks lost"], rebalance: ["⇄", "#7C5CD6", "experts rebalanced"], shift: ["≈", "#2B8F7B", "popularity shifts"],
}
const STRIP = { left: 8, right: 8, top: 16, row: 54, gap: 5, foot: 20 }

class Strip {
  constructor(canvas) {
    this.canvas = canvas
    this.sheet = document.createElement("canvas")
  }

  lay(frames, curves, width, style) { // draw what does not move
    Object.assign(this, { frames, curves, width, style })
    const { top, row, gap, foot } = STRIP
    this.height = top + curves.length * (row + gap) + foot
    const ratio = window.devicePixelRatio || 1
    for (const c of [this.canvas, this.sheet]) Object.assign(c, { width: width * ratio, height: this.height * ratio })
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${this.height}px` })
    const pen = this.pen(this.sheet)
    pen.clearRect(0, 0, width, this.height)
    this.happenings(pen)
    curves.forEach((curve, k) => this.curve(pen, curve, top + k * (row + gap)))
    this.axis(pen)
  }

  pen(canvas) {
    const pen = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1
    pen.setTransform(ratio, 0, 0, ratio, 0, 0)
    pen.font = this.style.font
    pen.textBaseline = "middle"
    return pen
  }

  x(seconds) {
    const { left, right } = STRIP
    return left + (seconds / this.frames.horizon_s) * (this.width - left - right)
  }

  windowAt(x) {
    const { left, right } = STRIP, part = (x - left) / (this.width - left - right)
    return Math.max(0, Math.min(this.frames.windows - 1, Math.floor(part * this.frames.windows)))
  }

  happenings(pen) {
    const bottom = this.height - STRIP.foot
    if (this.frames.warmup_s > 0) {
      pen.fillStyle = this.style.quiet
      pen.globalAlpha = 0.1
      pen.fillRect(this.x(0), STRIP.top, this.x(this.frames.warmup_s) - this.x(0), bottom - STRIP.top)
      pen.globalAlpha = 1
    }
    let free = -Infinity
    for (const e of this.frames.events) {
      const [sign, colour] = MARKS[e.kind] ?? ["•", this.style.quiet], x = this.x(e.t)
      pen.fillStyle = pen.strokeStyle = colour
      if (e.end !== null && e.end > e.t) { // what is broken: a bar above; what is out of service: a shade
        pen.globalAlpha = e.kind === "fault" ? 0.7 : 0.12
        const [y, h] = e.kind === "fault" ? [STRIP.top - 2, 3] : [STRIP.top, bottom - STRIP.top]
        pen.fillRect(x, y, Math.max(1, this.x(e.end) - x), h)
      }
      pen.globalAlpha = 0.8
      pen.lineWidth = 1
      pen.beginPath(); pen.moveTo(x, STRIP.top - 2); pen.lineTo(x, bottom); pen.stroke()
      pen.globalAlpha = 1
      if (x < free) continue // signs that would lie on each other: the first stands for all
      pen.fillText(sign, Math.min(x - 4, this.width - 14), 8)
      free = x + 12
    }
  }

  curve(pen, curve, y) {
    const high = rounded(largest(curve.values))
    const base = y + STRIP.row, at = (v) => base - (v / high) * (STRIP.row - 18), step = this.frames.window_s
    curve.high = high
    pen.strokeStyle = this.style.line
    pen.lineWidth = 1
    pen.beginPath(); pen.moveTo(STRIP.left, base + 0.5); pen.lineTo(this.width - STRIP.right, base + 0.5); pen.stroke()
    pen.strokeStyle = curve.colour
    pen.lineWidth = 1.8
    pen.lineJoin = "round"
    pen.beginPath()
    let on = false
    curve.values.forEach((v, w) => {
      if (!Number.isFinite(v)) { on = false; return }
      const x = this.x((w + 0.5) * step)
      on ? pen.lineTo(x, at(v)) : pen.moveTo(x, at(v))
      if (!on && !Number.isFinite(curve.values[w + 1])) pen.lineTo(x + 1.5, at(v)) // one alone is a dot
      on = true
    })
    pen.stroke()
    pen.font = `600 ${this.style.font}`
    pen.fillStyle = this.style.text
    pen.fillText(curve.title, STRIP.left + 2, y + 7)
    pen.font = this.style.font
    curve.label = STRIP.left + 10 + pen.measureText(curve.title).width * 1.08
  }

  axis(pen) {
    const end = this.frames.horizon_s, [factor, unit] = end <= 900 ? [1, "s"] : end <= 10800 ? [1 / 60, "min"] : [1 / 3600, "h"]
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 100, 200, 500].find((s) => (end * factor) / s <= Math.max(3, this.width / 90)) ?? end * factor
    pen.fillStyle = this.style.quiet
    for (let t = 0; t <= end * factor * 1.0001; t += step) {
      const text = t === 0 ? `0 ${unit}` : number(t), x = this.x(t / factor)
      pen.fillText(text, Math.min(Math.max(STRIP.left, x - pen.measureText(text).width / 2), this.width - pen.measureText(text).width - 2), this.height - 8)
    }
  }

  draw(window_) { // the cursor and the values below it
    const pen = this.pen(this.canvas)
    pen.setTransform(1, 0, 0, 1, 0, 0)
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height)
    if (this.sheet.width && this.sheet.height) pen.drawImage(this.sheet, 0, 0) // not while hidden
    const again = this.pen(this.canvas), x = this.x((window_ + 0.5) * this.frames.window_s)
    again.strokeStyle = this.style.text
    again.lineWidth = 1.2
    again.beginPath(); again.moveTo(x, STRIP.top - 2); again.lineTo(x, this.height - STRIP.foot); again.stroke()
    this.curves.forEach((curve, k) => {
      const y = STRIP.top + k * (STRIP.row + STRIP.gap), v = curve.values[window_]
      again.fillStyle = this.style.quiet
      again.fillText(`${Number.isFinite(v) ? number(v) : "–"}  ·  up to ${`${number(curve.high)} ${curve.unit}`.trim()}`, curve.label, y + 7)
      if (!Number.isFinite(v)) return
      again.fillStyle = curve.colour
      again.beginPath(); again.arc(x, y + STRIP.row - (v / curve.high) * (STRIP.row - 18), 3, 0, 7); again.fill()
    })
  }
}
