"""The study of allocation, below the pools of the Deployment page."""

import streamlit as st

from twin.extras.allocation.study import Shares, allocated_shares
from twin.scenario import Scenario, seated_pools
from twin.scenario.words import numbered
from twin.ui import session, theme
from twin.ui.charts.base import Chart, add_line, chart, figure
from twin.ui.show import plot

COLOURS = (*theme.PLANE.values(), *theme.ROLE.values())
HOVER = "%{y:.1f} %"


def allocation_chart(shares: Shares) -> Chart:
    """Chart of the allocated share of the NPUs (%) by supernode size, a line per mix of blocks."""
    fig, sentences = figure(height=280), []
    for colour, (mix_name, share_by_npus) in zip(COLOURS, shares.items(), strict=False):
        points = [(npus, 100 * share) for npus, share in share_by_npus.items() if share is not None]
        npus, taken_percents = zip(*points, strict=True) if points else ((), ())
        add_line(fig, npus, taken_percents, colour, HOVER, mode="lines+markers", name=mix_name)
        if points:
            sentences.append(
                f"{mix_name}: {taken_percents[0]:.0f} % of {numbered(npus[0], 'NPU')}, "
                f"{taken_percents[-1]:.0f} % of {npus[-1]}"
            )
    supernode_sizes = sorted({npus for share_by_npus in shares.values() for npus in share_by_npus})
    return chart(
        fig, f"Share of the NPUs that is allocated, over time. {'; '.join(sentences)}.",
        "Each line is a mix of block sizes; the rest of the NPUs is free.",
        x={"title_text": "NPUs of a supernode", "tickvals": supernode_sizes},
        y={"title_text": "allocated, %", "rangemode": "normal"},
    )  # fmt: skip


def draw_allocation(draft: Scenario) -> None:
    """Draw a switch, and behind it the chart of how full blocks and instances keep supernodes."""
    if not st.toggle(
        "How full do instances of these sizes keep supernodes?", key="allocation-study"
    ):
        return
    plot(allocation_chart(_cached_shares(seated_pools(draft), draft)), "allocation-by-size")
    st.caption(
        "A block, the NPUs of one instance, has to fit into one supernode and waits until it does. "
        f"Sizes of blocks: {session.facts()['allocation.block_means'].source}; "
        f"{session.facts()['allocation.block_sizes'].source}."
    )


@st.cache_data(show_spinner="Filling supernodes with blocks", max_entries=20)
def _cached_shares(instances: list[tuple[str, int, int]], _draft: Scenario) -> Shares:
    """Allocated shares by mix and supernode size, cached by `instances` (role, number, NPUs)."""
    return allocated_shares(session.facts(), deployment=_draft)
