"""The frame of the dashboard: page config and navigation, nothing else.

The guard matters: a background run starts a new process, which executes this file again under
another name and must draw nothing.
"""

from pathlib import Path

import streamlit as st

from twin.ui.pages import PAGES

MARK = (Path(__file__).parent / "twin/ui/mark.svg").read_text("utf-8")

if __name__ == "__main__":
    # Before the navigation, which else fetches the page's icon from outside for the tab.
    st.set_page_config("Supernode twin", MARK, layout="wide")
    pages = [
        st.Page(
            page.script,
            title=page.title,
            icon=f":material/{page.icon}:",
            help=page.about,
            default=place == 0,
        )
        for place, page in enumerate(PAGES.values())
    ]
    shown = st.navigation(pages, position="top")
    st.set_page_config(f"{shown.title} · Supernode twin")
    st.logo(MARK, size="small")
    shown.run()
