"""Where instances sit: what the placement comes to, and a table for those placed by hand."""

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.scenario import seated as seated_pools
from twin.ui import forms, session
from twin.ui.fields import sentence
from twin.ui.forms.tables import rows_table
from twin.ui.formulas import seated

PATH = "deployment.seats"


def form() -> None:
    """Instances that moved off elements that are off, or why one cannot be placed; the table of
    seats."""
    draft = session.draft()
    try:
        placement, no_place = seated(draft, build_fabric(draft.supernode, session.facts()))
    except HardwareError as error:
        no_place, placement = sentence(str(error)), None
    if no_place:
        forms.problem(no_place)
    for move in placement.moved if placement else ():
        st.caption(f":material/event_seat: {sentence(move)}")
    if draft.deployment.placement == "by_hand":
        st.caption("One row an instance, or several; those without a row are packed around them.")
        rows_table(PATH, {"role": [role for role, _, _ in seated_pools(draft)]})
