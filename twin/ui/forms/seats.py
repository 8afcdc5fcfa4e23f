"""Where instances sit: what the placement comes to, and a table for those placed by hand."""

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.lab.allocation_study import Filling, study
from twin.scenario import Scenario
from twin.scenario import seated as seated_pools
from twin.ui import forms, session
from twin.ui.charts import allocation
from twin.ui.fields import sentence
from twin.ui.forms.tables import rows_table
from twin.ui.formulas import seated
from twin.ui.show import plot

GROUP = "Pools"  # of the form, below which this stands
PATH = "deployment.seats"


def form(*, study: bool) -> None:
    """Who moved off what is off, or why nobody can be placed; the table of seats; the `study` of
    allocation."""
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
    if study and st.toggle("How full do such blocks keep supernodes?", key="allocation-study"):
        _allocation(draft)


def _allocation(draft: Scenario) -> None:
    """The study of allocation, with this deployment's instances among the blocks."""
    fillings = _study(seated_pools(draft), draft)
    plot(allocation.by_size(fillings), "allocation-by-size")
    sizes = sorted({one.supernode_npus for one in fillings})
    npus = draft.supernode.nodes * draft.supernode.npus_per_node
    plot(allocation.over_time(fillings, min(sizes, key=lambda n: abs(n - npus))), "allocation-time")
    st.caption(
        "A block needs all of its NPUs in one supernode and waits until one has room. "
        f"Sizes of blocks: {session.facts()['allocation.block_means'].source}; "
        f"{session.facts()['allocation.block_sizes'].source}."
    )


@st.cache_data(show_spinner="Filling supernodes with blocks", max_entries=20)
def _study(instances: list[tuple[str, int, int]], _draft: Scenario) -> list[Filling]:
    """By the instances alone: nothing else of the draft is asked."""
    return study(session.facts(), deployment=_draft)
