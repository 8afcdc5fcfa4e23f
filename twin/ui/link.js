const LINK = '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" ' +
  'stroke-linecap="round"><path d="M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1 1"/>' +
  '<path d="M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1-1"/></svg>'
const TICK = '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.4" ' +
  'stroke-linecap="round" stroke-linejoin="round"><path d="M5 12.5l4.5 4.5L19 7.5"/></svg>'

export default function ({ data, parentElement, setTriggerValue }) {
  const button = parentElement.querySelector("#copy")
  const icon = parentElement.querySelector("#icon")
  const word = parentElement.querySelector("#word")
  const shown = parentElement.querySelector("#shown")
  const address = window.location.origin + data.path
  const say = (picture, text) => { icon.innerHTML = picture; word.textContent = text }
  // The press itself may cause a rerun: it leaves the tick, or the address, where it is.
  if (!button.dataset.copied) { say(LINK, data.label); shown.hidden = true }
  button.dataset.address = address
  const [place] = data.path.split("?"), query = data.path.slice(place.length)
  // A page that comes when Back has left it already is not the one in the address bar.
  const here = window.location.pathname.endsWith(place)
  if (data.save && here && window.location.search !== query) {
    window.history.replaceState(window.history.state, "", window.location.pathname + query)
  }
  button.disabled = false // from now on it does something
  button.onclick = async () => {
    if (data.tell) setTriggerValue("copied", true)
    try {
      await navigator.clipboard.writeText(address)
      say(TICK, "Link copied")
      button.dataset.copied = "yes"
      setTimeout(() => { delete button.dataset.copied; say(LINK, data.label) }, 2000)
    } catch {
      button.dataset.copied = "shown"
      setTimeout(() => delete button.dataset.copied, 4000)
      shown.hidden = false
      shown.value = address
      shown.focus()
      shown.select()
    }
  }
}
