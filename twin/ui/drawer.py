"""The drawer that the navigation is on a phone: choosing a page closes it.

Streamlit leaves it open over the page that was chosen. A component without anything to see hears
which page is on screen, and presses the drawer's own button when that has changed.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_JS = Path(__file__).with_suffix(".js").read_text("utf-8")
_drawer = st.components.v2.component("drawer", js=_JS)
_HIDDEN = ".st-key-drawer { display: none }"  # and takes no room
# On dark ground the accent that carries white words is itself too dark to be a word's colour.
_CHOSEN = (
    ':is([data-variant="segmented_control"][data-selected="true"], '
    '[data-testid="stSliderThumbValue"]) p '
    "{ color: light-dark(#4B45C6, #A5A1FF) }"
)
# Streamlit shows where the keyboard is on buttons and fields, and not on links.
_FOCUS = "a:focus-visible { outline: 2px solid light-dark(#4B45C6, #A5A1FF); outline-offset: 2px }"


def closes(page: str) -> None:
    """Say which page is on screen."""
    st.html(f"<style>{_HIDDEN} {_CHOSEN} {_FOCUS}</style>")
    with st.container(key="drawer"):
        _drawer(data={"page": page}, key="drawer-page")
