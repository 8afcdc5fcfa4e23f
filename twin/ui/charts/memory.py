"""Hit ratio against the size of a memory pool; what a run's tiers and memory servers gave."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from twin.lab.sweep.break_even import Read
from twin.metrics.measures import amount, seconds
from twin.ui import theme
from twin.ui.charts import timeline
from twin.ui.charts.base import (
    Chart,
    bars,
    chart,
    empty,
    figure,
    heat,
    line,
    line_at,
    reads,
    time_axis,
    warm_up,
)

TIERS = {
    "pool_read": ("DRAM", theme.ROLE["memory_pool"]), "ssd_read": ("SSD", theme.SERIES[4]),
}  # fmt: skip


@reads("What DRAM has lost comes from SSD, in addition to the reads from DRAM.")
def tiers(windows: pl.DataFrame, traffic: pl.DataFrame, warmup_s: float) -> Chart:
    """Bytes per second that each tier of the memory pool was read at, over simulated time."""
    read = traffic.filter(pl.col("traffic").is_in(list(TIERS)))
    rates = read.pivot("traffic", index="t_s", values="bytes", aggregate_function="sum")
    table = windows.select("t_s", "window_s").join(rates, on="t_s", how="left")
    table = table.with_columns(
        pl.col(tier).fill_null(0.0) / pl.col("window_s") for tier in TIERS if tier in rates.columns
    )
    return timeline(table, TIERS, "GB/s", scale=1e-9, warmup_s=warmup_s)


def tiers_read(traffic: pl.DataFrame) -> list[str]:
    """The tiers that anything was read from."""
    read = set(traffic.filter(pl.col("bytes") > 0.0)["traffic"])
    return [name for tier, (name, _) in TIERS.items() if tier in read]


@reads("Each tenant hits only blocks of its own namespace.")
def namespaces(hits: pl.DataFrame, names: Sequence[str], warmup_s: float) -> Chart:
    """Hit ratio of each namespace over simulated time; columns are numbers of tenants."""
    looks = zip(names, itertools.cycle(theme.SERIES), strict=False)
    columns = {str(k): look for k, look in enumerate(looks)}
    return timeline(hits, columns, "%", scale=100, top=101, warmup_s=warmup_s)


@reads(
    "Each row is the DRAM of a node: a row that is hotter than others holds blocks that many "
    "prompts share."
)
def servers(read: pl.DataFrame, warmup_s: float, *, dark: bool = False) -> Chart:
    """Bytes per second read from each memory server over simulated time, a row a node."""
    nodes, times_s = read["node"].unique().sort(), read["t_s"].unique().sort()
    read, shape = read.sort("node", "t_s"), (nodes.len(), times_s.len())
    rates = (read["read_bytes"] / read["window_s"]).to_numpy().reshape(shape) / 1e9
    held_s = read["held_s"].to_numpy() if "held_s" in read.columns else np.zeros(rates.size)
    held = [f", held reads back by {seconds(s)}" if s > 0 else "" for s in held_s.tolist()]
    factor, unit = time_axis(float(times_s[-1]))
    fig = figure(height=140 + 10 * nodes.len())
    heat(
        fig, rates, dark=dark, x=times_s.to_numpy() * factor, y=[f"node {node}" for node in nodes],
        ygap=1, colorbar={"ticksuffix": " GB/s"},
        customdata=np.array(held).reshape(shape),
        hovertemplate="%{y}, %{x:.3~g} " + unit + "<br>%{z:.3~g} GB/s%{customdata}<extra></extra>",
    )  # fmt: skip
    warm_up(fig, warmup_s * factor)
    by_node = rates.mean(axis=1)
    return chart(
        fig, f"Read from {nodes.len()} memory servers over simulated time: on average "
        f"{np.mean(by_node):.3g} GB/s each, node {nodes[int(np.argmax(by_node))]} most with "
        f"{np.max(by_node):.3g}.", x={"title_text": f"simulated time ({unit})"},
        y={"autorange": "reversed", "showgrid": False}, margin={"t": 8},
    )  # fmt: skip


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
