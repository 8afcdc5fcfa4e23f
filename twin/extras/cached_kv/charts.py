"""Hit ratio against the size of a memory pool; reading a cached token against computing it."""

from collections.abc import Mapping, Sequence

from twin.extras.cached_kv.break_even import Read
from twin.metrics.measures import amount
from twin.ui import theme
from twin.ui.charts.base import Chart, bars, chart, empty, figure, line, line_at, reads


@reads("Reading pays where its bar is shorter than computing the same tokens again.")
def break_even(reads: Sequence[Read]) -> Chart:
    """A bar a place: milliseconds of a thousand cached tokens, and a line where they break even."""
    fig, again = figure(height=110 + 34 * len(reads)), reads[0].computed_s_per_token
    took_ms = [1e6 * read.s_per_token + 1e3 * read.latency_s for read in reads]
    text = [amount(1e-3 * ms, "time") for ms in took_ms]
    places = [read.place for read in reads]
    bars(fig, places, took_ms, theme.ROLE["memory_pool"], text=text, textposition="outside")
    line_at(fig, "computed again", "top left", x=1e6 * again)
    listing = "; ".join(f"{place} {time}" for place, time in zip(places, text, strict=True))
    computed, widest = amount(1e3 * again, "time"), 1.25 * max(1e6 * again, *took_ms)
    return chart(
        fig, f"Reading a thousand cached tokens: {listing}; computing them again: {computed}.",
        x={"title_text": "ms for 1,000 cached tokens", "range": [0, widest]},
        hovermode="closest",
    )  # fmt: skip


@reads("More room hits more until the reused blocks fit; beyond, only more reuse helps.")
def hit_curve(
    points: Sequence[tuple[float, float]], tiers: Mapping[str, tuple[float, float]]
) -> Chart:
    """Points are (bytes, hit ratio); tiers are those of the pool by name."""
    if not points or points[-1][1] <= 0.0:
        return empty("No prompt shares a block with another")
    fig = figure(height=260)
    sizes, ratios = [size / 1e9 for size, _ in points], [100 * ratio for _, ratio in points]
    hover = "%{y:.1f} % with %{x:,.3~g} GB<extra></extra>"
    line(fig, sizes, ratios, theme.ROLE["prefill"], hover, width=2.4)
    for name, (size, ratio) in tiers.items():
        if size > 0.0:
            fig.add_scatter(
                x=[size / 1e9], y=[100 * ratio], mode="markers+text", text=[name],
                textposition="bottom center", marker={"color": theme.OTHER, "size": 9},
                hovertemplate=f"{name} {amount(size, 'bytes')}: %{{y:.1f}} %<extra></extra>",
            )  # fmt: skip
    size, ratio = points[-1]
    return chart(
        fig, "Hit ratio against the size of the memory pool, at most "
        f"{amount(ratio, 'share')} with {amount(size, 'bytes')}.", showlegend=False,
        x={"type": "log", "title_text": "memory pool (GB)", "showgrid": True},
        y={"range": [0, 101], "ticksuffix": " %", "title_text": "hit ratio"},
    )  # fmt: skip
