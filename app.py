"""The frame of the dashboard: page config and navigation, nothing else.

The guard matters: a background run starts a new process, which executes this file again under
another name and must draw nothing.
"""

from pathlib import Path

import streamlit as st

UI = Path(__file__).parent / "twin/ui"
PAGES = UI / "pages"
MARK = (UI / "mark.svg").read_text("utf-8")
MAP = (  # file name = address
    ("start", "Start", "home", "What this is, presets to begin with, recent runs."),
    ("supernode", "Supernode", "hub", "The machine: nodes, chips and the three network planes."),
    ("workload", "Workload", "stacked_line_chart", "The traffic: when requests come, how long."),
    ("deployment", "Deployment", "dns", "Which instances serve, and by which policies."),
    ("run", "Run", "play_circle", "A run while it runs, and its results."),
    ("playback", "Playback", "movie", "A finished run over time: links, instances, what broke."),
    ("experts", "Experts", "balance", "Expert load of a run, balancing, and what it costs."),
    ("compare", "Compare", "compare_arrows", "Two to six runs side by side."),
    ("evidence", "Evidence", "fact_check", "How far the twin is from what was measured."),
    ("library", "Library", "folder_open", "Every scenario and run that is kept here."),
)

if __name__ == "__main__":
    st.set_page_config("Supernode twin", MARK, layout="wide")
    st.logo(MARK, size="small")
    pages = [
        st.Page(
            PAGES / f"{name}.py",
            title=title,
            icon=f":material/{icon}:",
            help=help_,
            default=name == "start",
        )
        for name, title, icon, help_ in MAP
        if (PAGES / f"{name}.py").exists()
    ]
    st.navigation(pages, position="top").run()
