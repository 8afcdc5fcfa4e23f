export default function (given) {
  let stop = null, gone = false
  const draw = () => { if (!gone) stop = globalThis.NAME(given) }
  globalThis.NAME ? draw() : document.addEventListener("NAME", draw, { once: true })
  return () => { gone = true; stop?.() }
}
