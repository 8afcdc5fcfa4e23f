// What the bar of a chart has not by itself: its picture as SVG, and its numbers as CSV.
// One watcher for the whole page: Plotly makes its bars anew whenever a figure changes.
const NAMED = { CSV: "Download the numbers as CSV", SVG: "Download as SVG" }

export default function () {
  if (window.twinModebars) return
  let waits = false
  window.twinModebars = new MutationObserver(() => {
    if (!waits) requestAnimationFrame(() => { waits = false; complete() })
    waits = true
  })
  window.twinModebars.observe(document.body, { childList: true, subtree: true })
  document.addEventListener("click", ({ target }) => {
    for (const chart of document.querySelectorAll(".js-plotly-plot")) {
      chart.classList.toggle("tapped", chart.contains(target)) // what twin/ui/show.py makes of it
    }
  }, true)
  complete()
}

function complete() {
  for (const bar of document.querySelectorAll(".js-plotly-plot .modebar:not([data-twin])")) {
    const image = bar.querySelector('[data-title^="Download plot"]')
    if (!image) continue
    bar.dataset.twin = "complete"
    const chart = bar.closest(".js-plotly-plot")
    for (const [word, title] of Object.entries(NAMED)) {
      const button = image.cloneNode(false)
      button.dataset.title = title
      button.setAttribute("aria-label", title)
      button.textContent = word
      button.style.cssText = "width: auto; font-size: 11px; line-height: 20px; opacity: .6"
      button.addEventListener("click", () => word === "CSV" ? numbers(chart) : drawn(chart, image))
      image.after(button)
    }
  }
}

function drawn(chart, image) {
  const options = chart._context.toImageButtonOptions
  const format = options.format
  options.format = "svg"
  image.click()
  options.format = format
}

function numbers(chart) {
  const shown = chart._fullData.filter(trace => trace.visible === true)
  const { meta, xaxis, yaxis } = chart.layout // in _fullLayout, a title has a stand-in
  const [x, y] = [meta?.x ?? xaxis?.title?.text, meta?.y ?? yaxis?.title?.text]
  const spans = shown.some(trace => trace.base?.length) // bars that begin elsewhere than at 0
  const rows = [["series", ...(spans ? [`${x}, begin`, `${x}, end`] : [x]), y]]
  if (shown.some(trace => trace.z)) rows[0].push(meta?.z)
  for (const trace of shown) {
    const { x = [], y = [], z, name, base } = { ...trace, ...trace.meta } // meta: of what is cut
    if (z) z.forEach((row, j) => row.forEach((value, i) => rows.push([name, x[i] ?? i, y[j] ?? j, value])))
    else for (let i = 0; i < Math.max(x.length, y.length); i++) {
      const begin = base?.[i] ?? 0
      rows.push([name, ...(spans ? [begin, begin + x[i]] : [x[i]]), y[i], ""].slice(0, rows[0].length))
    }
  }
  const link = document.createElement("a")
  const text = rows.map(row => row.map(cell).join(",")).join("\r\n") + "\r\n"
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }))
  link.download = `${chart._context.toImageButtonOptions.filename}.csv`
  link.click()
  URL.revokeObjectURL(link.href)
}

// As twin/ui/show.py writes cells: text that a spreadsheet takes for a formula is quoted. Numbers
// have six digits, which is more than the screen shows.
function cell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(+value.toPrecision(6)) : ""
  let text = value == null ? "" : String(value).replaceAll("<br>", " ")
  if (typeof value === "string" && /^[=+\-@\t\r\n]/.test(text) && isNaN(text)) text = `'${text}`
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
