"""The machine: a picture that can be edited, its prices, its parts as a table, its numbers."""

import streamlit as st

from twin.hooks import draw_sections
from twin.metrics.measures import numbered
from twin.scenario import form_groups
from twin.ui import forms, live, session
from twin.ui.fabric_message import ROLE, chosen_colours, draw_fabric, link_loads
from twin.ui.fields import field_of, options, sentence, why_idle, with_labels
from twin.ui.forms.tables import draw_rows
from twin.ui.formulas import place_instances
from twin.ui.pages.supernode import editor, panels
from twin.ui.pages.supernode.prices import TRAFFIC, draw_hashed_flows, link_shares
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
which = st.grid(3, min_column_width=220, gap=("small", "medium"))
for path in forms.FIRST["supernode"]:
    if not why_idle(path, draft):
        with which.cell():
            forms.draw_field(path)
costs = st.container()
fabric, fault = editor.shown_fabric()

# 2) The machine as a picture that is edited in place, with the instances placed on it; what is said
# of it stands below: above, it would move the picture, which then loses selection and zoom.
selected = {}
if fabric is not None:
    placed, no_place = place_instances(draft, fabric)
    mode = ROLE if fault or no_place else chosen_colours(PICTURE)
    selected = draw_fabric(
        fabric, title=f"{numbered(fabric.npus, 'NPU')} in {numbered(fabric.nodes, 'node')}",
        instances=() if fault else placed.instances,
        carried=None if mode == ROLE else link_loads(fabric, link_shares(draft, fabric, mode)),
        modes={ROLE: "Role"} | TRAFFIC, key=PICTURE, on_act=editor.act_all, acted=editor.last_act(),
    )  # fmt: skip
    if no_place and not fault:
        st.error(no_place, icon=":material/event_seat:")
    for move in placed.moved:
        st.caption(f":material/event_seat: {sentence(move)}")
panels.draw_outcome()
if fault:
    last = "The picture shows the last machine that could be built."  # the answer above says why
    st.error(last, icon=":material/device_hub:")
if fabric is not None and not fault:
    with costs:
        if not session.refusal():
            panels.draw_prices(draft, fabric)
    if impossible := panels.cannot_work(draft.supernode, session.facts()):
        st.warning("  \n".join(impossible[:8]), icon=":material/report:")

# 3) The same machine as a table of elements and links, as numbers and files.
if forms.take_sought_field("supernode") in BEHIND:
    st.session_state["supernode-tab"] = "More fields"
tabs = ["Elements and links", "More fields", "File"]
parts, numbers, file = st.tabs(tabs, key="supernode-tab", on_change="rerun")
with parts:
    if parts.open and fabric is not None and not fault:
        draw_parts_table(fabric, selected.get("names", []))
with numbers:
    if numbers.open:
        forms.draw_group(BEHIND)
        st.markdown("**Further kinds of nodes**")
        st.caption(with_labels(field_of("supernode.kinds").help))
        draw_rows("supernode.kinds", {"chip": options("supernode.chip", session.facts()) or []})
with file:
    if file.open and fabric is not None and not fault:
        panels.draw_files(fabric)

# 4) What it adds up to.
if fabric is not None and not fault:
    panels.draw_totals(fabric, session.facts(), draft)
    draw_hashed_flows(draft, fabric)
    draw_sections("supernode.end", fabric)

# 5) The second answer: the draft simulated.
live.draw_answer(simulated, draft)
