export default function ({ data, parentElement }) {
  parentElement.querySelector(".drawn").innerHTML = data.markup
}
