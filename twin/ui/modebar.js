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
  const rows = [["series", "x", "y", ...(shown.some(trace => trace.z) ? ["z"] : [])]]
  for (const trace of shown) {
    const { x = [], y = [], z, name } = trace
    if (z) z.forEach((row, j) => row.forEach((value, i) => rows.push([name, x[i] ?? i, y[j] ?? j, value])))
    else for (let i = 0; i < Math.max(x.length, y.length); i++) rows.push([name, x[i], y[i], ""].slice(0, rows[0].length))
  }
  const title = axis => chart.layout[axis]?.title?.text ?? "" // in _fullLayout, one has a stand-in
  rows[0][1] = title("xaxis") || "x"
  rows[0][2] = title("yaxis") || "y"
  const link = document.createElement("a")
  const text = rows.map(row => row.map(cell).join(",")).join("\r\n") + "\r\n"
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }))
  link.download = `${chart._context.toImageButtonOptions.filename}.csv`
  link.click()
  URL.revokeObjectURL(link.href)
}

// As twin/ui/show.py writes cells: text that a spreadsheet takes for a formula is quoted.
function cell(value) {
  let text = value == null ? "" : String(value).replaceAll("<br>", " ")
  if (typeof value === "string" && /^[=+\-@\t\r\n]/.test(text) && isNaN(text)) text = `'${text}`
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
