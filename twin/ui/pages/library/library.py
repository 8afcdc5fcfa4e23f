"""Every scenario and run that is kept here: find, open, copy, compare, delete."""

import math
from typing import Any

import streamlit as st

from twin.lab.store import Page
from twin.ui import session
from twin.ui.link import page_link
from twin.ui.pages import PAGES
from twin.ui.pages.library import kept


def clear() -> None:
    """Look for everything again."""
    st.session_state["q"] = ""
    st.session_state.pop("tags", None)
    for name in ("state", "kind"):
        if name in st.session_state:
            st.session_state[name] = "All"


# 1) What to look for; it is in the address, so a search can be kept as a link.
session.open_link()
st.title(PAGES["library"].title, anchor=False)
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    shown = st.segmented_control(
        "Show", ["Runs", "Scenarios"], default="Runs", required=True, key="show",
        label_visibility="collapsed", bind="query-params",
    )  # fmt: skip
    text = st.text_input(
        "Search", key="q", type="search", live="100ms", bind="query-params",
        placeholder="Name, note, tag, question or id", label_visibility="collapsed", width=280,
    )  # fmt: skip
    narrow = st.segmented_control(
        "Only", list(kept.STATES if shown == "Runs" else kept.KINDS), default="All",
        required=True, key="state" if shown == "Runs" else "kind",
        label_visibility="collapsed", bind="query-params",
    )  # fmt: skip
    st.space("stretch")
    with st.popover("Import", icon=":material/upload_file:", width="content"):
        kept.import_scenario()

# 2) One page of what was found.
store = session.store()
known = store.notes.tags()
tags = known and st.pills(
    "Tags", known, selection_mode="multi", key="tags", label_visibility="collapsed",
    bind="query-params",
)  # fmt: skip


def look(limit: int, offset: int = 0) -> Page[Any]:
    """Some of what was asked for, and how many there are."""
    if shown == "Runs":
        states = kept.STATES[narrow]
        return store.runs.search(text or "", states=states, tags=tags, limit=limit, offset=offset)
    return store.scenarios.search(
        text or "", kind=kept.KINDS[narrow], tags=tags, limit=limit, offset=offset
    )


kept.undo_deletion()
total = look(0).total
if not total:
    if text or tags or narrow != "All":
        st.markdown(f"None of the {shown.lower()} kept here fits that.")
        st.button("Clear the search", icon=":material/filter_alt_off:", on_click=clear)
    else:
        st.markdown("No run is kept here yet.")
        page_link("start", "Run a preset", icon=":material/play_arrow:")
    st.stop()

pages = math.ceil(total / kept.ROWS)
search = f"{shown}:{narrow}:{':'.join([text or '', *tags])}"
bar = st.container(horizontal=True, vertical_alignment="center", gap="small")
body = st.container()
with st.container(horizontal=True, vertical_alignment="center"):
    count = st.empty()
    st.space("stretch")
    # Another search, or fewer pages after a deletion, begins at the first page.
    key = f"page:{search}:{pages}"
    page = st.pagination(pages, key=key, max_visible_pages=5) if pages > 1 else 1
first = kept.ROWS * (page - 1)
rows = look(kept.ROWS, first).rows
count.caption(f"{first + 1:,} to {first + len(rows):,} of {total:,} {shown.lower()}")
with body:
    picked = kept.table(rows, f"table:{search}:{page}")
kept.about(picked)
with bar:
    kept.actions(picked, runs=shown == "Runs")
    acts = "open, name, compare, export or delete" if shown == "Runs" else "run, name or delete"
    tick = f"Tick {shown.lower()} to {acts} them."
    st.caption(f"{len(picked)} picked" if picked else tick, width="content")
