"""Charts of the study of allocation: how full blocks keep supernodes, by size and over time."""

from __future__ import annotations

from collections.abc import Sequence

from twin.lab.allocation_study import Filling, by_blocks
from twin.ui import theme
from twin.ui.charts.base import Chart, figure

COLOURS = (*theme.PLANE.values(), *theme.ROLE.values())


def by_size(fillings: Sequence[Filling]) -> Chart:
    """A line for each mix of blocks: the share of the NPUs that is allocated, by supernode size."""
    fig = figure(height=280)
    told = []
    for colour, (name, shares) in zip(COLOURS, by_blocks(fillings).items(), strict=False):
        points = [(npus, 100 * share) for npus, share in shares.items() if share is not None]
        fig.add_scatter(
            x=[npus for npus, _ in points], y=[share for _, share in points], name=name,
            mode="lines+markers", line={"color": colour, "width": 2},
            hovertemplate="%{y:.1f} %",
        )  # fmt: skip
        if points:
            told.append(f"{name}: {points[0][1]:.0f} % of {points[0][0]} NPUs, "
                        f"{points[-1][1]:.0f} % of {points[-1][0]}")  # fmt: skip
    fig.update_xaxes(title_text="NPUs of a supernode", tickvals=sorted(
        {one.supernode_npus for one in fillings}))  # fmt: skip
    fig.update_yaxes(title_text="allocated, %", rangemode="normal")
    return Chart(fig, f"Share of the NPUs that is allocated, over time. {'; '.join(told)}.")


def over_time(fillings: Sequence[Filling], npus: int) -> Chart:
    """The last mix over time, for supernodes of one size: how it goes up and down."""
    fig = figure(height=220)
    names = list(by_blocks(fillings))
    for one in fillings:
        if (one.supernode_npus, one.blocks) != (npus, names[-1]) or one.course is None:
            continue
        colour = COLOURS[len(names) - 1]
        fig.add_scatter(
            x=one.course.times, y=100 * one.course.taken, name=one.blocks, mode="lines",
            line={"color": colour, "width": 1.2, "shape": "hv"}, hovertemplate="%{y:.1f} %",
        )  # fmt: skip
    fig.update_xaxes(title_text="mean stays of a block")
    fig.update_yaxes(title_text=f"of {npus} NPUs, %", rangemode="normal")
    fig.update_layout(showlegend=True)
    return Chart(fig, f"Share of supernodes of {npus} NPUs that is allocated, over time.")
