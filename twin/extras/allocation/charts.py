"""Charts of the study of allocation: how full blocks keep supernodes, by size and over time."""

from collections.abc import Sequence

from twin.extras.allocation.study import Filling, by_blocks
from twin.ui import theme
from twin.ui.charts.base import Chart, chart, figure, line, reads

COLOURS = (*theme.PLANE.values(), *theme.ROLE.values())
HOVER = "%{y:.1f} %"


@reads("Each line is a mix of block sizes; the rest of the NPUs is free.")
def by_size(fillings: Sequence[Filling]) -> Chart:
    """A line for each mix of blocks: the share of the NPUs that is allocated, by supernode size."""
    fig, sentences = figure(height=280), []
    for colour, (name, shares) in zip(COLOURS, by_blocks(fillings).items(), strict=False):
        points = [(npus, 100 * share) for npus, share in shares.items() if share is not None]
        npus, percent = zip(*points, strict=True) if points else ((), ())
        line(fig, npus, percent, colour, HOVER, mode="lines+markers", name=name)
        if points:
            sentences.append(f"{name}: {percent[0]:.0f} % of {npus[0]} NPUs, "
                        f"{percent[-1]:.0f} % of {npus[-1]}")  # fmt: skip
    sizes = sorted({one.supernode_npus for one in fillings})
    return chart(
        fig, f"Share of the NPUs that is allocated, over time. {'; '.join(sentences)}.",
        x={"title_text": "NPUs of a supernode", "tickvals": sizes},
        y={"title_text": "allocated, %", "rangemode": "normal"},
    )  # fmt: skip


@reads("Blocks come and go: what is free may be too scattered for the next one.")
def over_time(fillings: Sequence[Filling], npus: int) -> Chart:
    """The last mix over time, for supernodes of one size: how it goes up and down."""
    fig, names = figure(height=220), list(by_blocks(fillings))
    for one in fillings:
        if (one.supernode_npus, one.blocks) == (npus, names[-1]) and one.course is not None:
            line(fig, one.course.times, 100 * one.course.taken, COLOURS[len(names) - 1], HOVER,
                 width=1.2, line_shape="hv", name=one.blocks)  # fmt: skip
    return chart(
        fig, f"Share of supernodes of {npus} NPUs that is allocated, over time.",
        x={"title_text": "mean stays of a block"}, showlegend=True,
        y={"title_text": f"of {npus} NPUs, %", "rangemode": "normal"},
    )  # fmt: skip
