"""Addresses: the copy-link button and the way to another page. The browser adds its origin; without
a clipboard (plain http) the address is shown and selected."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import streamlit as st

from twin.ui import session
from twin.ui.pages import PAGES

_HTML, _CSS, _JS = (
    Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("html", "css", "js")
)
GOES = "go"  # of the address: the page that is opened (drawer.js)
_button = st.components.v2.component("copy_link", html=_HTML, css=_CSS, js=_JS)


def copy_link(
    path: str, *, label: str = "Copy link", save: bool = False,
    on_copy: Callable[[], object] | None = None,
) -> None:  # fmt: skip
    """Draw a button that copies the address `path`. save: whether to write it to the address bar
    too. on_copy: called after it was copied."""

    def report_copy() -> None:
        """Callback: call `on_copy` after the address was copied; show its refusal in a toast."""
        with session.toast_refusals("lock"):
            if on_copy:
                on_copy()

    button_data = {"path": path, "label": label, "save": save, "tell": on_copy is not None}
    _button(data=button_data, key="copy-link", width="content", on_copied_change=report_copy)


def go_to(page: str, query: Mapping[str, str] | None = None) -> NoReturn:
    """Open the page of this name, with query parameters. GOES tells drawer.js whose they are:
    Streamlit first gives them to the present page, where the browser's Back would find them."""
    st.switch_page(PAGES[page].script, query_params={**(query or {}), GOES: page})


def link_page(
    page: str, label: str, query: Mapping[str, str] | None = None, icon: str = "", **layout: Any
) -> None:
    """Draw a link to another page, by its name, with that page's icon unless another is given."""
    icon = icon or f":material/{PAGES[page].icon}:"
    script = PAGES[page].script
    st.page_link(script, label=label, icon=icon, query_params=dict(query or {}), **layout)
