"""The machine: its fabric as a picture that can be edited, beside the spec it is built from."""

import streamlit as st

from twin.hardware.chip import load_chip
from twin.scenario import form_groups
from twin.ui import forms, session
from twin.ui.fabric_view import fabric_matrix
from twin.ui.fields import sentence
from twin.ui.forms.table import number_table
from twin.ui.pages.supernode import editor, panels, totals
from twin.ui.pages.supernode.files import files
from twin.ui.pages.supernode.parts import parts_table
from twin.ui.seated import seated
from twin.ui.toolbar import header

CHOICES = ("supernode.chip", "supernode.scale_up")
NUMBERS = [p for group in form_groups("supernode").values() for p in group if p not in CHOICES]
NUMBERS.append("memory_pool.gb_per_node")  # what a node's DRAM lends: read here, set here too

header("supernode")
picture, spec = st.columns([5, 3], gap="large")
draft = session.draft()

# 1) The machine as a picture that is edited in place, with the instances placed on it. Its prices
# stand above it and its faults below; both are found after it, for they take longer.
with picture:
    fabric, fault = editor.shown_fabric()
    prices = st.container()
    panels.words()
    if fault:
        st.error(
            f"{fault} The picture shows the last machine that could be built.",
            icon=":material/device_hub:",
        )
    selected = {}
    if fabric is not None:
        placed, no_place = seated(draft, fabric)
        if no_place and not fault:
            st.error(no_place, icon=":material/event_seat:")
        for move in placed.moved:
            st.caption(f":material/event_seat: {sentence(move)}")
        selected = fabric_matrix(
            fabric,
            instances=() if fault else placed.instances,
            title="Capacity",
            key="supernode-matrix",
            on_act=editor.on_act,
            acted=editor.acted(),
        )
    below = st.container()
    if fabric is not None and not fault:
        with prices:
            panels.prices(draft, fabric)

# 2) The same machine as numbers, parts, differences and files.
with spec:
    numbers, parts, changes, file = st.tabs(
        ["Numbers", "Parts and links", "Changes", "File"], key="supernode-tab", on_change="rerun"
    )
    with numbers:
        forms.group(CHOICES)
        number_table(NUMBERS, "supernode-table")
    with parts:
        if parts.open and fabric is not None and not fault:
            parts_table(fabric, selected.get("names", []))
    with changes:
        if changes.open:
            panels.changes()
    with file:
        if file.open and fabric is not None and not fault:
            files(fabric)

# 3) What it adds up to, and what one die gets from it beside what was measured.
if fabric is not None and not fault:
    with below:
        panels.cannot_work(draft)
    totals.in_all(fabric, load_chip(session.facts(), draft.supernode.chip), draft.memory_pool)
    totals.measured(fabric)
