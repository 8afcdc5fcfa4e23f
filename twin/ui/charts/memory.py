"""Hit ratio against the size of a memory pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twin.metrics.measures import amount
from twin.ui import theme
from twin.ui.charts.base import Chart, empty, figure


def hit_curve(
    points: Sequence[tuple[float, float]], tiers: Mapping[str, tuple[float, float]]
) -> Chart:
    """Points are (bytes, hit ratio); tiers are those of the pool by name."""
    if not points or points[-1][1] <= 0.0:
        return empty("No prompt shares a block with another")
    fig = figure(height=260)
    fig.add_scatter(
        x=[size / 1e9 for size, _ in points], y=[100 * ratio for _, ratio in points], mode="lines",
        line={"color": theme.ROLE["prefill"], "width": 2.4},
        hovertemplate="%{y:.1f} % with %{x:,.3~g} GB<extra></extra>",
    )  # fmt: skip
    for name, (size, ratio) in tiers.items():
        if size > 0.0:
            fig.add_scatter(
                x=[size / 1e9], y=[100 * ratio], mode="markers+text", text=[name],
                textposition="bottom center", marker={"color": theme.OTHER, "size": 9},
                hovertemplate=f"{name} {amount(size, 'bytes')}: %{{y:.1f}} %<extra></extra>",
            )  # fmt: skip
    fig.update_layout(showlegend=False)
    fig.update_xaxes(type="log", title_text="memory pool (GB)", showgrid=True)
    fig.update_yaxes(range=[0, 101], ticksuffix=" %", title_text="hit ratio at most")
    last = points[-1]
    return Chart(
        fig,
        f"Hit ratio against the size of the memory pool, at most {amount(last[1], 'share')} with "
        f"{amount(last[0], 'bytes')}.",
    )
