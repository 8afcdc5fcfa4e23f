"""The study of allocation, below the pools of the Deployment page."""

import streamlit as st

from twin.extras.allocation import charts
from twin.extras.allocation.study import Filling, study
from twin.scenario import Scenario, seated
from twin.ui import session
from twin.ui.show import plot


def section(draft: Scenario) -> None:
    """The study of allocation, with this deployment's instances among the blocks, where wanted."""
    if not st.toggle("How full do such blocks keep supernodes?", key="allocation-study"):
        return
    fillings = _study(seated(draft), draft)
    plot(charts.by_size(fillings), "allocation-by-size")
    sizes = sorted({one.supernode_npus for one in fillings})
    npus = draft.supernode.nodes * draft.supernode.npus_per_node
    plot(charts.over_time(fillings, min(sizes, key=lambda n: abs(n - npus))), "allocation-time")
    st.caption(
        "A block needs all of its NPUs in one supernode and waits until one has room. "
        f"Sizes of blocks: {session.facts()['allocation.block_means'].source}; "
        f"{session.facts()['allocation.block_sizes'].source}."
    )


@st.cache_data(show_spinner="Filling supernodes with blocks", max_entries=20)
def _study(instances: list[tuple[str, int, int]], _draft: Scenario) -> list[Filling]:
    """By the instances alone: nothing else of the draft matters."""
    return study(session.facts(), deployment=_draft)
