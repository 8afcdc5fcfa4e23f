"""The differences between runs as pictures: how far each figure is from the baseline's."""

from collections.abc import Sequence
from typing import NamedTuple

from twin.ui import theme
from twin.ui.charts.base import Chart, bars, chart, empty, figure, in_legend, reads

FAR = 1.0  # of the baseline's value: what changed by more is drawn so long
COLOURS = {"better": theme.ROLE["memory_pool"], "worse": theme.ROLE["prefill"]}
HATCHES = ("", "/", "\\", "x", "-")  # of the runs in their order, so that colour can tell how good


class Difference(NamedTuple):
    """A figure or a field of one run, compared with the baseline's."""

    label: str
    run: int  # 0 for the first that is not the baseline
    change: float  # signed, as a part of the baseline's value; 0 where that says nothing
    text: str  # short: the change
    whole: str  # from what to what
    standing: str = ""  # better, worse; all else is only different


@reads(
    "Bars go right where a figure is above the baseline's; green is better, red is worse, grey is "
    "only different."
)
def differences(rows: Sequence[Difference], names: Sequence[str], what: str) -> Chart:
    """Bars to both sides of the baseline, for the runs in `names`."""
    if not rows:
        return empty(f"Nothing {what}")
    labels = list(dict.fromkeys(row.label for row in rows))
    fig = figure(height=100 + (14 + 20 * len(names)) * len(labels))
    for run, name in enumerate(names):
        by_label = {row.label: row for row in rows if row.run == run}
        ordered = [by_label.get(label, Difference(label, run, 0.0, "", "")) for label in labels]
        reach = [max(-FAR, min(FAR, row.change)) for row in ordered]
        bars(
            fig, labels, [100 * x for x in reach],
            [COLOURS.get(row.standing, theme.OTHER) for row in ordered], name=in_legend(name),
            text=[row.text for row in ordered], textposition="outside",
            customdata=[row.whole for row in ordered],
            hover=f"%{{y}}: %{{customdata}}<extra>{name}</extra>",
        )  # fmt: skip
        fig.data[-1].cliponaxis = False  # a change's text may reach into the margin
        fig.data[-1].marker.pattern = {"shape": HATCHES[run % len(HATCHES)], "solidity": 0.2}
    width = 100 * min(FAR, max(0.05, *(abs(row.change) for row in rows)))
    fig.add_vline(x=0, line={"color": theme.OTHER, "width": 1})
    listing = "; ".join(
        f"{names[row.run]}: {row.label} {row.whole}" + (f", {row.standing}" if row.standing else "")
        for row in rows
    )
    return chart(
        fig, f"What {what}, against the baseline. {listing}.", barmode="group", bargap=0.25,
        # The words at the ends of the bars need room on both sides.
        x={"title_text": "% from the baseline", "range": [-1.8 * width, 1.8 * width],
           "tickvals": [-width, 0, width], "ticktext": [_tick(-width), "0", _tick(width)]},
        y={"ticklabelstandoff": 8}, hovermode="closest", showlegend=len(names) > 1,
    )  # fmt: skip


def _tick(percent: float) -> str:
    text = f"{percent:+.3g} %".replace("-", "−")
    return f"{text} or more" if percent >= 100 * FAR else text
