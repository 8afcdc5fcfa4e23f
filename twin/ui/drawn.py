"""Small pictures of SVG, made on the server and exchanged in place: no flicker, no libraries."""

from __future__ import annotations

import streamlit as st

_CSS = """
.drawn { font: 0.95rem var(--st-font); color: var(--st-text-color) }
.drawn figure { margin: 0 } .drawn svg { display: block; width: 100% }
.unfolding { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr));
  gap: 1rem 1.5rem }
.unfolding svg { height: 6rem; margin: 0.3rem 0 }
.unfolding figcaption, .unfolding div { display: flex; justify-content: space-between }
.unfolding div { font-size: 0.8rem; opacity: 0.75 } .unfolding b { font-weight: 600 }
"""
_JS = """
export default function ({ data, parentElement }) {
  parentElement.querySelector(".drawn").innerHTML = data.markup
}"""
_picture = st.components.v2.component("drawn", html='<div class="drawn"></div>', css=_CSS, js=_JS)


def drawn(markup: str, key: str) -> None:
    """Show markup of our own making; every text in it has been escaped by whoever made it."""
    _picture(data={"markup": markup}, key=key)
