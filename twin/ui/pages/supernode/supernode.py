"""The machine: a picture that can be edited, its prices, its parts as a table, its numbers."""

import streamlit as st

from twin.hooks import draw_sections
from twin.metrics.measures import numbered
from twin.scenario import form_groups
from twin.ui import forms, live, session
from twin.ui.fabric_message import ROLE, chosen_colouring, draw_fabric, link_loads
from twin.ui.fields import field_of, options, sentence, why_idle, with_labels
from twin.ui.forms.tables import draw_rows
from twin.ui.formulas import place_instances
from twin.ui.pages.supernode import editor, panels
from twin.ui.pages.supernode.panels import TRAFFIC, link_shares
from twin.ui.pages.supernode.table import draw_parts_table
from twin.ui.toolbar import draw_scenario_head

FIELDS = [path for group in form_groups("supernode").values() for path in group]
BEHIND = [path for path in FIELDS if path not in forms.FIRST["supernode"]]
BEHIND.append("memory_pool.gb_per_node")  # what a node's DRAM lends: read here, set here too
PICTURE = "supernode-picture"

simulated = draw_scenario_head("supernode")
draft = session.draft()

# 1) Which machine it is, and what its deployment gets from it. The prices are found after the
# picture, for they take longer.
field_grid = st.grid(3, min_column_width=220, gap=("small", "medium"))
for path in forms.FIRST["supernode"]:
    if not why_idle(path, draft):
        with field_grid.cell():
            forms.draw_field(path)
price_place = st.container()
fabric, wiring_problem = editor.shown_fabric()

# 2) The machine as a picture that is edited in place, with the instances placed on it; what is said
# of it stands below: above, it would move the picture, which then loses selection and zoom.
selection = {}
if fabric is not None:
    placement, placement_problem = place_instances(draft, fabric)
    mode = ROLE if wiring_problem or placement_problem else chosen_colouring(PICTURE)
    selection = draw_fabric(
        fabric, title=f"{numbered(fabric.npus, 'NPU')} in {numbered(fabric.nodes, 'node')}",
        instances=() if wiring_problem else placement.instances,
        carried=None if mode == ROLE else link_loads(fabric, link_shares(draft, fabric, mode)),
        modes={ROLE: "Role"} | TRAFFIC, key=PICTURE,
        on_act=editor.apply_actions, acted=editor.last_action(),
    )  # fmt: skip
    if placement_problem and not wiring_problem:
        st.error(placement_problem, icon=":material/event_seat:")
    for move in placement.moved:
        st.caption(f":material/event_seat: {sentence(move)}")
panels.draw_outcome()
if wiring_problem:
    note = "The picture shows the last machine that could be built."  # the answer above says why
    st.error(note, icon=":material/device_hub:")
if fabric is not None and not wiring_problem:
    with price_place:
        if not session.refusal():
            panels.draw_prices(draft, fabric)
    if problems := panels.cannot_work(draft.supernode, session.facts()):
        st.warning("  \n".join(problems[:8]), icon=":material/report:")

# 3) The same machine as a table of elements and links, as numbers and files.
if forms.pop_sought_field("supernode") in BEHIND:
    st.session_state["supernode-tab"] = "More fields"
tabs = ["Elements and links", "More fields", "File"]
parts_tab, fields_tab, file_tab = st.tabs(tabs, key="supernode-tab", on_change="rerun")
with parts_tab:
    if parts_tab.open and fabric is not None and not wiring_problem:
        draw_parts_table(fabric, selection.get("names", []))
with fields_tab:
    if fields_tab.open:
        forms.draw_group(BEHIND)
        st.markdown("**Further kinds of nodes**")
        st.caption(with_labels(field_of("supernode.kinds").help))
        draw_rows("supernode.kinds", {"chip": options("supernode.chip", session.facts()) or []})
with file_tab:
    if file_tab.open and fabric is not None and not wiring_problem:
        panels.draw_files(fabric)

# 4) What it adds up to.
if fabric is not None and not wiring_problem:
    panels.draw_totals(fabric, session.facts(), draft)
    panels.draw_hashed_flows(draft, fabric)
    draw_sections("supernode.end", fabric)

# 5) The second answer: the draft simulated.
live.draw_answer(simulated, draft)
