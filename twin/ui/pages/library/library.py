"""Every stored scenario and run: find, open, copy, compare, delete."""

import math
from typing import Any

import streamlit as st

from twin.lab.store import Page
from twin.ui import session
from twin.ui.link import link_page
from twin.ui.pages import PAGES
from twin.ui.pages.library import stored
from twin.ui.show import draw_choice


def clear_search() -> None:
    """Callback: reset text, tags and choices of the search."""
    st.session_state["q"] = ""
    st.session_state.pop("tags", None)
    for name in ("state", "kind"):
        if name in st.session_state:
            st.session_state[name] = "All"


# 1) What to look for; it is in the address, so a search can be sent as a link.
st.title(PAGES["library"].title, anchor=False)
st.caption(PAGES["library"].about)
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    shown = draw_choice("Show", ["Runs", "Scenarios"], "show", bind="query-params")
    text = st.text_input(
        "Search", key="q", type="search", live="100ms", bind="query-params",
        placeholder="Name, note, tag, question or id", label_visibility="collapsed", width=280,
    )  # fmt: skip
    only = (stored.STATES, "state") if shown == "Runs" else (stored.KINDS, "kind")
    choice = draw_choice("Only", *only, bind="query-params")
    st.space("stretch")
    with st.popover("Import", icon=":material/upload_file:", width="content"):
        stored.draw_import()

# 2) One page of what was found.
store = session.store()
all_tags = store.notes.tags()
tags = all_tags and st.pills("Tags", all_tags, selection_mode="multi", key="tags",
                          label_visibility="collapsed", bind="query-params")  # fmt: skip


def search_page(limit: int, offset: int = 0) -> Page[Any]:
    """One page of the rows that the search finds, with the number of all rows found."""
    arguments: dict[str, Any] = {"tags": tags, "limit": limit, "offset": offset}
    if shown == "Runs":
        return store.runs.search(text or "", states=stored.STATES[choice], **arguments)
    return store.scenarios.search(text or "", kind=stored.KINDS[choice], **arguments)


stored.draw_undo()
total = search_page(0).total
if not total:
    if text or tags or choice != "All":
        st.markdown(f"None of the {shown.lower()} stored here fits that.")
        st.button("Clear the search", icon=":material/filter_alt_off:", on_click=clear_search)
    else:
        st.markdown("No run is stored here yet.")
        link_page("start", "Run a preset", icon=":material/play_arrow:")
    st.stop()

pages = math.ceil(total / stored.ROWS)
search = f"{shown}:{choice}:{':'.join([text or '', *tags])}"
action_bar = st.container(horizontal=True, vertical_alignment="center", gap="small")
table_place = st.container()
with st.container(horizontal=True, vertical_alignment="center"):
    count_place = st.empty()
    st.space("stretch")
    # Another search, or fewer pages after a deletion, begins at the first page.
    key = f"page:{search}:{pages}"
    page = st.pagination(pages, key=key, max_visible_pages=5) if pages > 1 else 1
first_row = stored.ROWS * (page - 1)
rows = search_page(stored.ROWS, first_row).rows
count_place.caption(f"{first_row + 1:,} to {first_row + len(rows):,} of {total:,} {shown.lower()}")
with table_place:
    picked_rows = stored.draw_table(rows, f"table:{search}:{page}")
stored.draw_details(picked_rows)
with action_bar:
    stored.draw_actions(picked_rows, runs=shown == "Runs")
    acts = "open, name, compare, export or delete" if shown == "Runs" else "run, name or delete"
    tick_text = f"Tick {shown.lower()} to {acts} them."
    st.caption(f"{len(picked_rows)} picked" if picked_rows else tick_text, width="content")
