// On a phone the navigation is a drawer over the page: a page that was chosen in it closes it.
export default function ({ data }) {
  const root = document.documentElement
  const left = root.dataset.twinPage
  root.dataset.twinPage = data.page
  if (left === undefined || left === data.page || window.innerWidth >= 768) return
  document.querySelector('[data-testid="stSidebarCollapseButton"] button')?.click()
}
