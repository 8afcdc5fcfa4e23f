// What the player draws beside the picture and says below it: the way of a request with tokens that
// move along it, sizes, and sentences. Functions of what they are given; they keep nothing.

const queued = (role) => (role === "decode" ? "to join" : "waiting") // decode: the next iteration

function told(player, found) { // [name, facts] of an element at the cursor; of nothing: what goes on
  const { frames: f, window: at, now } = player
  if (!found) {
    const going = now.map((e) => `${MARKS[e.kind]?.[0] ?? ""} ${e.detail || `${e.element} ${MARKS[e.kind]?.[2] ?? e.kind}`}`.trim())
    const hint = player.brief ? "Click a node or a plane to see how full its links are." : "Click a node, a plane or an instance for its own curves."
    return ["", going.join(" · ") || `${hint} Space plays, arrow keys step.`]
  }
  if (found.box) {
    const cells = f.cellsAt(found.box), planes = [...new Set(cells.map((c) => f.planeOf(c % f.columns)))]
    const full = planes.map((p) => `${f.scene.told.planes[p]}: ${number(f.busiest(cells, at, p, player.choice.used))} %`)
    const who = [...new Set(f.scene.inside(found.box).flatMap((b) => b.all ?? []))].slice(0, 4).map((w) => f.instances[w][1])
    return [found.name, [...full, ...who].join(" · ")]
  }
  const get = (name) => f.figure(name, at, found.index), parts = [f.down(at, found.index) ? "down" : "in service"]
  const put = (name, words) => { if (Number.isFinite(get(name))) parts.push(words(get(name))) }
  put("running", (v) => `${count(v)} in its batch`)
  put("queue", (v) => `${count(v)} ${queued(f.instances[found.index][0])}`)
  put("iteration_s", (v) => `iteration ${duration(v)}`)
  put("busy", (v) => `busy ${number(100 * v)} % of the time`)
  put("hot_factor", (v) => `hottest die ${number(v)} × the mean`)
  put("contention", (v) => `expert exchange ${number(v)} × as long for sharing its links`)
  put("dies", (v) => `${number(v)} dies`)
  return [found.name, parts.join(" · ")]
}

// The way of a request from left to right: what waits or runs at each stage, tokens moving between.
function drawWay(canvas, { way, colours }, style, width, window_, phase) {
  const h = 46, gap = width < 520 ? 8 : 46, w = (width - gap * (way.length - 1)) / way.length, pen = penOf(canvas, style), rate = (c) => { const most = largest(c.values); return most ? (c.values[window_] || 0) / most : 0 }
  way.forEach((step, k) => {
    const x = k * (w + gap), value = step.values[window_], middle = h / 2
    pen.fillStyle = step.colour
    pen.globalAlpha = 0.13
    pen.beginPath(); pen.roundRect(x, 0, w, h, 8); pen.fill()
    pen.globalAlpha = 1
    pen.beginPath(); pen.roundRect(x, 0, 3, h, 2); pen.fill()
    pen.fillStyle = style.quiet
    pen.fillText(step.title, x + 10, 15, w - 14)
    pen.font = `600 ${style.font}`
    pen.fillStyle = style.text
    pen.fillText(`${Number.isFinite(value) ? brief(value) : "–"} ${w > 104 ? step.unit : ""}`.trim(), x + 10, 32, w - 14)
    pen.font = style.font
    if (k) dots(pen, x - gap + 3, x - 3, middle, k < way.length - 1 ? way[0].colour : step.colour, rate(k < way.length - 1 ? way[0] : step), phase)
  })
}

function dots(pen, from, to, y, colour, part, phase) {
  pen.strokeStyle = colour
  pen.lineCap = "round"
  pen.lineWidth = 1; pen.globalAlpha = 0.3
  pen.beginPath(); pen.moveTo(from, y); pen.lineTo(to, y); pen.stroke()
  pen.globalAlpha = 1
  if (part <= 0.01) return
  pen.lineWidth = 3.4
  pen.setLineDash([0.01, spacing(part)])
  pen.lineDashOffset = -phase
  pen.beginPath(); pen.moveTo(from, y); pen.lineTo(to, y); pen.stroke()
  pen.setLineDash([])
}

const spacing = (part) => 7 + 56 * (1 - Math.min(1, part)) ** 2 // px between dots: the denser the more moves

function fill(select, options, wanted) {
  select.replaceChildren(...options.map(([value, text]) => Object.assign(document.createElement("option"), { value, textContent: text })))
  if (options.some(([value]) => value === wanted)) select.value = wanted
}

function size(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1
  Object.assign(canvas, { width: width * ratio, height: height * ratio })
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` })
}

function penOf(canvas, style) { // a cleared pen that counts in CSS pixels
  const pen = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1
  pen.setTransform(ratio, 0, 0, ratio, 0, 0)
  pen.clearRect(0, 0, canvas.width, canvas.height)
  pen.font = style.font
  pen.textBaseline = "middle"
  return pen
}

const brief = (v) => (v >= 1e6 ? `${number(v / 1e6)} M` : v >= 1e4 ? `${number(v / 1e3)} k` : count(v))
const count = (v) => (!Number.isFinite(v) ? "–" : number(v < 10 ? Math.round(10 * v) / 10 : Math.round(v))) // a mean of whole things
const duration = (s) => (s >= 1 ? `${number(s)} s` : s >= 1e-3 ? `${number(1e3 * s)} ms` : `${number(1e6 * s)} µs`)

function clock(t, end) {
  if (end <= 900) return `${t.toFixed(end < 10 ? 2 : 1)} s of ${number(end)} s`
  const pair = (s) => (end < 7200 ? `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")} min` : `${Math.floor(s / 3600)}:${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} h`)
  return `${pair(t)} of ${pair(end)}`
}
