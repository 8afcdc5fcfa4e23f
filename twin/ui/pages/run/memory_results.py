"""The memory pool of a finished run: how full, what it saved, and who served it."""

from __future__ import annotations

import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.measures import amount
from twin.metrics.registry import METRICS, shown
from twin.scenario import Scenario
from twin.ui import charts, record, session
from twin.ui.charts import memory
from twin.ui.show import plot

FIGURES = ("hit_token_ratio", "pool_used_fraction")


def applies(row: RunRow, scenario: Scenario) -> bool:
    """Whether blocks were read, and the run wrote down from whom."""
    return scenario.memory_pool.enabled and "servers" in session.store().runs.tables(row.id)


def section(row: RunRow, scenario: Scenario) -> None:
    """Hits and fill, bytes by tier, and a map of the memory servers, all over time."""
    windows, servers = record.table(row.id, "windows"), record.table(row.id, "servers")
    told = [
        f"{METRICS[k].label}: **{shown(k, row.summary[k])}**" for k in FIGURES if row.summary.get(k)
    ]
    st.markdown(" · ".join(told))
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Hit ratio and fill", anchor=False)
        plot(charts.over_time("pool", windows, scenario.warmup_s), "pool-hits")
    with right:
        st.subheader("Read from each tier", anchor=False)
        plot(
            memory.tiers(windows, record.table(row.id, "traffic"), scenario.warmup_s), "pool-tiers"
        )
    st.subheader("Memory servers", anchor=False)
    dark = st.context.theme.type == "dark"
    plot(memory.servers(servers, scenario.warmup_s, dark=dark), "pool-servers")
    steady = servers.filter(pl.col("t_s") >= scenario.warmup_s)
    by_node = steady.group_by("node").agg(pl.col("read_bytes").sum()).sort("read_bytes", "node")
    total, hottest = by_node["read_bytes"].sum(), by_node[-1]
    if total > 0:
        imbalance = hottest["read_bytes"][0] * by_node.height / total
        st.caption(
            "A block lies on the node that its key hashes to, and counts once for each prompt that "
            "reads it; above, on the plane, each die that shares out a prompt's heads reads it "
            f"again. Node {hottest['node'][0]} served "
            f"{amount(hottest['read_bytes'][0], 'bytes')}, {imbalance:.2f} x the mean; the least "
            f"{amount(by_node['read_bytes'][0], 'bytes')}. Reads take the time of all nodes "
            "together: a hot server is seen here and slows nobody."
        )
