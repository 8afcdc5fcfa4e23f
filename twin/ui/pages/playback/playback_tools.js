// What the player draws and says with: pens, ramps, sizes, and the sentence below the picture.
// Functions of what they are given; they keep nothing.

function told(player, found) { // [name, facts] of an element at the cursor; of nothing: what goes on
  const { frames: f, window: at, now } = player
  if (!found) {
    const going = now.map((e) => `${MARKS[e.kind]?.[0] ?? ""} ${e.detail || `${e.element} ${MARKS[e.kind]?.[2] ?? e.kind}`}`.trim())
    return ["", going.join(" · ") || "Click a node, a sub-plane or an instance for its own curves. Space plays, arrow keys step."]
  }
  if (found.kind === "instance") {
    const get = (name) => f.figure(name, at, found.index), parts = [f.down(at, found.index) ? "down" : "in service"]
    const put = (name, words) => { if (Number.isFinite(get(name))) parts.push(words(get(name))) }
    put("running", (v) => `${count(v)} in its batch`)
    put("queue", (v) => `${count(v)} waiting`)
    put("iteration_s", (v) => `iteration ${duration(v)}`)
    put("busy", (v) => `busy ${number(100 * v)} %`)
    put("hot_factor", (v) => `hottest die ${number(v)} of the mean`)
    put("contention", (v) => `expert exchange ${number(v)}x as long for sharing its links`)
    put("dies", (v) => `${number(v)} dies`)
    return [found.name, parts.join(" · ")]
  }
  const values = f.rows(player.el.plane.value).map((c) => [c, busiest(f, player.choice.frames, at, found, c)])
  const named = values.filter(([, v]) => Number.isFinite(v)).map(([c, v]) => `${c < f.planes ? `UB ${c}` : c === f.planes ? "RDMA" : "VPC"}: ${number(v)} %`)
  const homes = found.node === null ? [] : f.at(found.node, at)
  return [found.name, [...named, homes.join(", ")].filter(Boolean).join(" · ")]
}

const hits = (b, node, plane) => (node === null || b.n === node) && (plane === null || b.c === plane)

function busiest(f, frames, window_, { node, plane }, c) {
  if (plane !== null && c !== plane) return NaN
  const at = node === null ? range(f.nodes) : [node]
  return Math.max(...at.map((n) => frames[window_ * f.cells + n * f.columns + c]))
}

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

function hatch(pen, { x, y, w, h }, colour) {
  pen.save()
  pen.beginPath(); pen.rect(x, y, w, h); pen.clip()
  pen.strokeStyle = colour
  pen.globalAlpha = h > 20 ? 0.22 : 0.55 // fainter where words stand on it
  pen.lineWidth = 1.5
  pen.beginPath()
  for (let k = x - h; k < x + w; k += 6) { pen.moveTo(k, y + h); pen.lineTo(k + h, y) }
  pen.stroke()
  pen.restore()
}

function blended(colours, count) { // a finer ramp through the theme's colours
  const rgb = colours.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)))
  return range(count).map((k) => {
    const at = (k / (count - 1)) * (rgb.length - 1), i = Math.min(rgb.length - 2, Math.floor(at)), part = at - i
    return `rgb(${rgb[i].map((v, j) => Math.round(v + (rgb[i + 1][j] - v) * part)).join(",")})`
  })
}

const count = (v) => (!Number.isFinite(v) ? "–" : number(v < 10 ? Math.round(10 * v) / 10 : Math.round(v))) // a mean of whole things
const duration = (s) => (s >= 1 ? `${number(s)} s` : s >= 1e-3 ? `${number(1e3 * s)} ms` : `${number(1e6 * s)} µs`)

function clock(t, end) {
  if (end <= 900) return `${t.toFixed(end < 10 ? 2 : 1)} s of ${number(end)} s`
  const pair = (s) => (end < 7200 ? `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")} min` : `${Math.floor(s / 3600)}:${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} h`)
  return `${pair(t)} of ${pair(end)}`
}

function legible(colour, text) { // a plane's colour as text, on light and on dark
  return `color-mix(in srgb, ${colour} 60%, ${text})`
}
