"""The drawer that the navigation is on a phone: choosing a page closes it.

Streamlit leaves it open over the page that was chosen. A component without anything to see hears
which page is on screen, and presses the drawer's own button when that has changed.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_JS = Path(__file__).with_suffix(".js").read_text("utf-8")
_drawer = st.components.v2.component("drawer", js=_JS)
_HIDDEN = "<style>.st-key-drawer { display: none }</style>"  # and takes no room


def closes(page: str) -> None:
    """Say which page is on screen."""
    st.html(_HIDDEN)
    with st.container(key="drawer"):
        _drawer(data={"page": page}, key="drawer-page")
