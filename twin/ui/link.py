"""Addresses: the copy-link button, and the way to another page.

One click puts an address of this page into the clipboard. It can also write that address into the
address bar, in place of the present one, so that a reload keeps an edited draft and Back still
leads to the page before; and it can say that it was pressed, because what someone was given a link
to must stay. The server knows only the part after the host, so the browser adds its own origin.
Where a browser gives no clipboard (plain http on another machine), the address is shown and
selected instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import streamlit as st

from twin.ui.pages import PAGES

_HTML = """
<button id="copy" type="button">
  <span id="icon" aria-hidden="true"></span><span id="word"></span>
</button>
<input id="shown" readonly hidden aria-label="Link to this page">
"""

_CSS = """
:host { display: block; }
button {
  font: inherit; font-size: 0.875rem; line-height: 1.6; cursor: pointer; white-space: nowrap;
  display: inline-flex; align-items: center; gap: 0.45em; min-height: 2.5rem;
  padding: 0.25rem 0.75rem; color: var(--st-text-color); background: transparent;
  border: 1px solid var(--st-widget-border-color, var(--st-border-color));
  border-radius: var(--st-button-radius);
}
button:hover, button:focus-visible {
  color: var(--st-primary-color); border-color: var(--st-primary-color);
}
svg { width: 1.1em; height: 1.1em; display: block; }
input {
  font: inherit; font-size: 0.85em; width: 100%; box-sizing: border-box; margin-top: 0.4rem;
  padding: 0.4rem; color: var(--st-text-color); background: var(--st-secondary-background-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius);
}
input[hidden] { display: none; }
"""

_JS = """
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
  const query = data.path.slice(data.path.indexOf("?"))
  if (data.save && window.location.search !== query) {
    window.history.replaceState(window.history.state, "", window.location.pathname + query)
  }
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
"""

_button = st.components.v2.component("copy_link", html=_HTML, css=_CSS, js=_JS)


def copy_link(
    path: str,
    *,
    label: str = "Copy link",
    key: str = "copy-link",
    save: bool = False,
    on_copy: Callable[..., None] | None = None,
) -> None:
    """A button that copies the address of `path` ('/run?run=...') on this server.

    With `save` its query also becomes that of the page in the address bar. `on_copy` is called
    when it was pressed: the place to publish what the link opens.
    """
    _button(
        data={"path": path, "label": label, "save": save, "tell": on_copy is not None},
        key=key,
        width="content",
        on_copied_change=on_copy or _nothing,
    )


def _nothing() -> None:
    """What happens when nobody wants to know."""


def go_to(page: str, query: Mapping[str, str] | None = None) -> NoReturn:
    """Open another page, by its name, under an address that says `query` and nothing else.

    Without a word on the address Streamlit would not leave a page whose address remembers a choice
    (`bind`).
    """
    st.switch_page(PAGES[page].script, query_params=dict(query or {}))


def page_link(
    page: str, label: str, query: Mapping[str, str] | None = None, icon: str = "", **layout: Any
) -> None:
    """A link to another page, by its name, with that page's icon unless another is given."""
    icon = icon or f":material/{PAGES[page].icon}:"
    script = PAGES[page].script
    st.page_link(script, label=label, icon=icon, query_params=dict(query or {}), **layout)
