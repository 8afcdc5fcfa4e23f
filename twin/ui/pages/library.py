"""Every scenario and run that is kept here: find, open, copy, compare, delete."""

import math

import streamlit as st

from twin.ui import kept, session


def first_page() -> None:
    st.session_state["library-page"] = 1


def clear() -> None:
    first_page()
    st.session_state["q"] = ""
    for name in ("state", "kind"):
        if name in st.session_state:
            st.session_state[name] = "All"


# 1) What to look for; it is in the address, so a search can be kept as a link.
session.open_link()
st.title("Library", anchor=False)
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    shown = st.segmented_control(
        "Show", ["Runs", "Scenarios"], default="Runs", required=True, key="show",
        label_visibility="collapsed", bind="query-params", on_change=first_page,
    )  # fmt: skip
    text = st.text_input(
        "Search", key="q", type="search", live=True, bind="query-params", on_change=first_page,
        placeholder="Name, question or id", label_visibility="collapsed", width=280,
    )  # fmt: skip
    narrow = st.segmented_control(
        "Only", list(kept.STATES if shown == "Runs" else kept.KINDS), default="All",
        required=True, key="state" if shown == "Runs" else "kind",
        label_visibility="collapsed", bind="query-params", on_change=first_page,
    )  # fmt: skip
    st.space("stretch")
    with st.popover("Import", icon=":material/upload_file:", width="content"):
        kept.import_scenario()

# 2) One page of what was found.
store, rows = session.store(), kept.ROWS


def look(page: int):
    window = {"limit": rows, "offset": rows * (page - 1)}
    if shown == "Runs":
        return store.runs.search(text or "", states=kept.STATES[narrow], **window)
    return store.scenarios.search(text or "", kind=kept.KINDS[narrow], **window)


page = st.session_state.setdefault("library-page", 1)
found = look(page)
pages = max(1, math.ceil(found.total / rows))
if page > pages:  # its last rows were deleted
    page = st.session_state["library-page"] = pages
    found = look(page)

if not found.total:
    if text or narrow != "All":
        st.markdown(f"None of the {shown.lower()} kept here fits that.")
        st.button("Clear the search", icon=":material/filter_alt_off:", on_click=clear)
    else:
        st.markdown("No run is kept here yet.")
        st.page_link("twin/ui/pages/start.py", label="Run a preset", icon=":material/play_arrow:")
    st.stop()

bar = st.container(horizontal=True, vertical_alignment="center", gap="small")
key = f"table:{shown}:{narrow}:{page}:{text}"
table, actions = (
    (kept.run_table, kept.run_actions)
    if shown == "Runs"
    else (kept.scenario_table, kept.scenario_actions)
)
picked = table(found.rows, key)
with bar:
    actions(picked)
    st.space("stretch")
    first = rows * (page - 1)
    st.caption(
        f"{first + 1:,} to {first + len(found.rows):,} of {found.total:,} {shown.lower()}"
        + (f", {len(picked)} picked" if picked else ""),
        width="content",
    )
if pages > 1:
    st.pagination(pages, key="library-page", max_visible_pages=5)
