"""What the tiers and the memory servers of a run's memory pool gave."""

import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl

from twin.metrics.measures import seconds
from twin.ui import theme
from twin.ui.charts import base, timeline

TIERS = {"pool_read": ("DRAM", theme.ROLE["memory_pool"]), "ssd_read": ("SSD", theme.SERIES[4])}


@base.reads("What DRAM has lost comes from SSD, in addition to the reads from DRAM.")
def tiers(windows: pl.DataFrame, traffic: pl.DataFrame, warmup_s: float) -> base.Chart:
    """Bytes per second read from each tier of the memory pool, over simulated time."""
    reads = traffic.filter(pl.col("traffic").is_in(list(TIERS)))
    rates = reads.pivot("traffic", index="t_s", values="bytes", aggregate_function="sum")
    table = windows.select("t_s", "window_s").join(rates, on="t_s", how="left")
    table = table.with_columns(
        pl.col(tier).fill_null(0.0) / pl.col("window_s") for tier in TIERS if tier in rates.columns
    )
    return timeline(table, TIERS, "GB/s", scale=1e-9, warmup_s=warmup_s)


def tiers_read(traffic: pl.DataFrame) -> list[str]:
    """Tiers with any reads."""
    tiers = set(traffic.filter(pl.col("bytes") > 0.0)["traffic"])
    return [name for tier, (name, _) in TIERS.items() if tier in tiers]


@base.reads("Each tenant hits only blocks of its own namespace.")
def namespaces(hits: pl.DataFrame, names: Sequence[str], warmup_s: float) -> base.Chart:
    """Hit ratio of each namespace over simulated time; columns are numbers of tenants."""
    looks = zip(names, itertools.cycle(theme.SERIES), strict=False)
    columns = {str(k): look for k, look in enumerate(looks)}
    return timeline(hits, columns, "%", scale=100, top=101, warmup_s=warmup_s)


@base.reads(
    "Each row is the DRAM of a node: a row that is hotter than others holds blocks that many "
    "prompts share."
)
def servers(read: pl.DataFrame, warmup_s: float, *, dark: bool = False) -> base.Chart:
    """Bytes per second read from each memory server over simulated time, a row a node."""
    nodes, times_s = read["node"].unique().sort(), read["t_s"].unique().sort()
    read, shape = read.sort("node", "t_s"), (nodes.len(), times_s.len())
    rates = (read["read_bytes"] / read["window_s"]).to_numpy().reshape(shape) / 1e9
    delays = [f", held reads back by {seconds(s)}" if s > 0 else "" for s in read["held_s"]]
    factor, unit = base.time_axis(float(times_s[-1]))
    fig = base.figure(height=140 + 10 * nodes.len())
    base.heat(
        fig, rates, dark=dark, x=times_s.to_numpy() * factor, y=[f"node {node}" for node in nodes],
        ygap=1, colorbar={"ticksuffix": " GB/s"},
        customdata=np.array(delays).reshape(shape),
        hovertemplate="%{y}, %{x:.3~g} " + unit + "<br>%{z:.3~g} GB/s%{customdata}<extra></extra>",
    )  # fmt: skip
    base.warm_up(fig, warmup_s * factor)
    by_node = rates.mean(axis=1)
    return base.chart(
        fig, f"Read from {nodes.len()} memory servers over simulated time: on average "
        f"{np.mean(by_node):.3g} GB/s each, node {nodes[int(np.argmax(by_node))]} most with "
        f"{np.max(by_node):.3g}.", x={"title_text": f"simulated time ({unit})"},
        y={"autorange": "reversed", "showgrid": False}, margin={"t": 8},
    )  # fmt: skip
