"""Sections that a finished run has only where there is something to tell: instances that came and
went, a day by the hour, clients and tenants, the memory pool."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.clients import by_tenant, session_times_s, turns_wait
from twin.metrics.hours import DAILY, by_hour, hits_over_time, hour_s
from twin.metrics.measures import NOTHING, amount, seconds
from twin.metrics.observed import Observed
from twin.metrics.registry import METRICS, shown
from twin.scenario import Scenario, is_elastic
from twin.ui import charts, record, session, theme, words
from twin.ui.charts import elastic, memory
from twin.ui.fields import choice_label
from twin.ui.show import beside, dark, plot


def _figures(summary: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Figures of a run in one line, those that it has."""
    known = [k for k in keys if summary.get(k) is not None]
    st.markdown(" · ".join(f"{METRICS[k].label}: **{shown(k, summary[k])}**" for k in known))


# Instances that came, went and changed role, and the decisions behind it.

ELASTIC = ("goodput_per_npu_hour", "npu_hours", "npu_hours_idle", "role_changes", "starts")
# The column of what a controller goes by, of both pools.
GOES_BY = {"queue": "in_hand", "slo": "latency", "kv": "busy", "rebalance": "needed"}
SAW = {"serving": "serving", "in hand": "in_hand", "busy": "busy", "latency / SLO": "latency",
       "needed": "needed", "wanted": "wanted"}  # fmt: skip
DECIDED = {"Started": "started", "Stopped": "stopped", "Changed role": "changed_role",
           "Held back by": "held_back"}  # fmt: skip


def instances(row: RunRow, scenario: Scenario) -> None:
    """Lives of the instances, NPUs by pool, and every decision with the metrics that it saw."""
    lives, windows = record.table(row.id, "lives"), record.table(row.id, "windows")
    _figures(row.summary, ELASTIC)
    st.subheader("Lives of the instances", anchor=False)
    plot(elastic.lives(lives, scenario.horizon_s, scenario.warmup_s), "lives")
    st.caption(
        "One row an instance, sorted by its first NPU: rows that never overlap share NPUs, and "
        "pass them from pool to pool."
    )
    npus = ("NPUs by pool", elastic.npus(windows, scenario.warmup_s), "npus-by-pool")
    if not _wrote(row, "decisions"):
        beside([npus])
        return
    decisions, rule = record.table(row.id, "decisions"), scenario.elastic
    column = GOES_BY.get(rule.controller, "busy")
    if f"prefill_{column}" not in decisions.columns:  # a run from before it was measured
        column = "busy"
    marks = (rule.high, rule.low) if rule.controller in ("queue", "slo", "kv") else None
    seen = elastic.pressures(decisions, column, marks)
    beside([npus, ("What the controller saw", seen, "pressures")])
    st.subheader("Decisions", anchor=False)
    begun = pl.col("started") + pl.col("stopped") + pl.col("changed_role")
    changes = decisions.filter((begun > 0) | (pl.col("held_back") != "")).head(500)
    saw = {f"{role.capitalize()}: {name}": pl.col(f"{role}_{column}")
           for role in ("prefill", "decode") for name, column in SAW.items()
           if f"{role}_{column}" in decisions.columns}  # fmt: skip
    moment = pl.col("t_s").map_elements(words.duration, return_dtype=pl.String)
    number = st.column_config.NumberColumn(format="%.2f")
    st.dataframe(
        changes.select(At=moment, **{name: pl.col(c) for name, c in DECIDED.items()}, **saw),
        hide_index=True, placeholder="–",
        column_config={n: number for n in saw if n.endswith(("in hand", "busy", "SLO", "needed"))},
    )  # fmt: skip
    st.caption(
        f"{choice_label('elastic.controller', rule.controller)}: {decisions.height} decisions, "
        f"each on metrics {rule.metrics_age_s:g} s old; shown are those that moved something or "
        "were held back."
    )


# A day at a glance.

HOURLY = {
    "prefill_npus": "Prefill NPUs", "decode_npus": "Decode NPUs",
    "colocated_npus": "Colocated NPUs", "changing_npus": "Starting or draining",
    "npu_hours": "NPU-hours", "npu_hours_idle": "Without work", "energy_kwh": "Energy, kWh",
    "hit_percent": "Hit ratio, %", "pool_percent": "Memory pool used, %", "arrived": "Requests",
}  # fmt: skip


def day(row: RunRow, scenario: Scenario) -> None:
    """What each hour had of NPUs, what it used and wasted of them, drew, and found cached."""
    length_s = hour_s(scenario)
    assert length_s is not None
    hours = by_hour(record.table(row.id, "windows"), scenario, length_s).with_columns(
        hit_percent=100.0 * pl.col("hit_token_ratio"),
        pool_percent=100.0 * pl.col("pool_used_fraction"),
        npu_hours_used=pl.col("npu_hours") - pl.col("npu_hours_idle"),
    )
    known = {name for name in hours.columns if hours[name].max()}
    held, idle = float(hours["npu_hours"].sum()), float(hours["npu_hours_idle"].sum())
    told = [f"**{amount(held, 'rate', 'NPU-hours')}**",
            f"without work: **{amount(idle / held if held else None, 'share')}**"]  # fmt: skip
    if "energy_kwh" in known:
        told.append(f"energy: **{amount(float(hours['energy_kwh'].sum()), 'rate', 'kWh')}**")
    busiest = hours.sort("arrived", descending=True)["hour"][0]
    st.markdown(" · ".join([*told, f"busiest hour: **{busiest}**"]))
    panels = [(title, *panel) for title, panel in elastic.DAY.items() if known & set(panel[0])]
    beside((title, elastic.hourly(hours, series, unit), f"day-{next(iter(series))}")
           for title, series, unit in panels)  # fmt: skip
    table = hours.select(Hour="hour", **{HOURLY[c]: c for c in HOURLY if c in known})
    st.dataframe(table.with_columns(pl.col(pl.Float64).round(1)), hide_index=True)
    lasts = f"An hour lasts {words.duration(length_s)} of simulated time. " * (length_s != 3600.0)
    daily = scenario.workload.profile.shape in DAILY
    st.caption(
        ("Hours of the day that the rate follows. " if daily else "Hours of simulated time. ")
        + lasts
        + "Without work: an instance has no request, starts or drains."
    )


# Clients and tenants.

COUNTS = ("sessions_finished", "session_s_p50", "session_s_p99", "cancelled", "asked_again",
          "rejected", "wasted_tokens", "fairness")  # fmt: skip
TENANT = {
    "asked_req_per_s": "Asked", "goodput_req_per_s": "Goodput",
    "slo_attainment": "SLO attainment", "ttft_s_p50": "TTFT p50", "ttft_s_p99": "TTFT p99",
    "tpot_s_mean": "TPOT mean", "tokens_per_s": "Tokens served", "hit_token_ratio": "Hit ratio",
    "fair_share_ratio": "Of its fair share", "refused": "Refused", "cancelled": "Cancelled",
}  # fmt: skip


def _has_clients(scenario: Scenario) -> bool:
    """Whether there is anything to tell: tenants, clients that leave or are refused, sessions."""
    c, a = scenario.clients, scenario.admission
    leave = c.timeout_s or c.answer_timeout_s or a.shed_at or a.rate_req_per_s or a.in_flight
    return bool(scenario.tenants or leave or turns_wait(scenario))


def clients(row: RunRow, scenario: Scenario) -> None:
    """Figures of all, a bar and a row for each tenant, why requests ended, and session times."""
    told = [METRICS[key] for key in COUNTS if row.summary.get(key)]
    if told:
        with st.container(horizontal=True):
            for metric in told:
                value = shown(metric.key, row.summary[metric.key])
                st.metric(metric.label, value, help=metric.help, border=True)
    tenants, reasons, session_s = _clients(row.id, scenario)
    if tenants:
        st.subheader("Tenants", anchor=False)
        plot(charts.tenants(tenants), "tenants")
        table = [{"": of["tenant"]} | {label: _cell(key, of[key]) for key, label in TENANT.items()}
                 for of in tenants]  # fmt: skip
        st.dataframe(table, hide_index=True)
        st.caption(
            "Steady state; SLO attainment is of requests that finished. A request that was asked "
            "again counts from when it was asked first. A "
            "fair share: of what all were served, by weight, to nobody more than it asked for."
        )
    curve = charts.Curve("Session", theme.ROLE["memory_pool"], session_s)
    times = charts.distribution([curve], of="sessions")
    why = ("Why requests came to nothing", charts.reasons(reasons), "reasons")
    beside([why] * bool(reasons) + [("Sessions", times, "session-times")] * bool(session_s.size))
    if not reasons:
        st.caption("Every request that ended was answered.")
    if session_s.size:
        st.caption(METRICS["session_s_mean"].help)


def _cell(key: str, value: Any) -> str:
    if value is None or isinstance(value, int):
        return NOTHING if value is None else f"{value:,}"
    return amount(value, "rate", "tokens/s") if key == "tokens_per_s" else shown(key, value)


@st.cache_data(show_spinner="Looking at the clients", max_entries=50)
def _clients(
    run: str, _scenario: Scenario
) -> tuple[list[dict[str, Any]], dict[str, int], np.ndarray]:
    """Figures of the tenants, why requests came to nothing (most first), times of sessions."""
    observed = Observed(_scenario, session.store().runs.table(run, "requests"), {})
    reasons = observed.requests.filter(pl.col("reason") != "")["reason"].cast(str)
    tenants = by_tenant(observed) if _scenario.tenants else []
    counts = dict(reasons.value_counts(sort=True).iter_rows())
    return tenants, counts, np.sort(session_times_s(observed))


# The memory pool.

BINS = 60  # of a run, in which hits are counted by tenant


def memory_pool(row: RunRow, scenario: Scenario) -> None:
    """Hits and fill, bytes by tier, and a map of the memory servers, all over time."""
    windows, servers = record.table(row.id, "windows"), record.table(row.id, "servers")
    warmup_s = scenario.warmup_s
    _figures(row.summary, ("hit_token_ratio", "pool_used_fraction"))
    traffic = record.table(row.id, "traffic")
    tiers = memory.tiers_read(traffic)
    pictures = [
        ("Hit ratio and fill", charts.over_time("pool", windows, warmup_s), "pool-hits"),
        (f"Read from {' and '.join(tiers)}" if tiers else "Nothing was read",
         memory.tiers(windows, traffic, warmup_s), "pool-tiers"),
    ]  # fmt: skip
    if scenario.tenants and scenario.memory_pool.namespaces:
        names = [tenant.name for tenant in scenario.tenants]
        hits = _hits(row.id, scenario.horizon_s / BINS)
        picture = memory.namespaces(hits, names, warmup_s)
        pictures.append(("Hit ratio by namespace", picture, "pool-namespaces"))
    beside(pictures)
    st.subheader("Memory servers", anchor=False)
    plot(memory.servers(servers, warmup_s, dark=dark()), "pool-servers")
    steady = servers.filter(pl.col("t_s") >= warmup_s)
    by_node = steady.group_by("node").agg(pl.col("^(read_bytes|held_s)$").sum())
    by_node = by_node.sort("read_bytes", "node")
    total, most = by_node["read_bytes"].sum(), by_node["read_bytes"][-1]
    if total > 0:
        st.caption(
            "A block lies on the node that its key hashes to, and counts once for each prompt that "
            "reads it; above, on the plane, each die that shares out a prompt's heads reads it "
            f"again. Node {by_node['node'][-1]} served {amount(most, 'bytes')}, "
            f"{most * by_node.height / total:.2f} x the mean; the least "
            f"{amount(by_node['read_bytes'][0], 'bytes')}. {_held_back(by_node)}"
        )


@st.cache_data(show_spinner="Looking at the tenants", max_entries=50)
def _hits(run: str, width_s: float) -> pl.DataFrame:
    """Hit ratio of each tenant's prompts over simulated time."""
    columns = ["tenant", "prefill_start_s", "hit_tokens", "input_tokens"]
    return hits_over_time(session.store().runs.table(run, "requests", columns), width_s)


def _held_back(by_node: pl.DataFrame) -> str:
    """How much longer batches read for memory servers that were hotter than others."""
    if "held_s" not in by_node.columns:
        return "This run is older than reads that wait for a hot server."
    whole_s = float(by_node["held_s"].sum())
    if whole_s <= 0:
        return "No read waited for a hot server: their ports had room for all."
    worst = by_node.sort("held_s", "node")[-1]
    return (
        f"Batches read {seconds(whole_s)} longer in all than from servers that are "
        f"asked alike; node {worst['node'].item()} held them back most, "
        f"by {seconds(worst['held_s'].item())}."
    )


def _wrote(row: RunRow, table: str) -> bool:
    return table in session.store().runs.tables(row.id)


# Whether a run has each section, and what draws it.
SECTIONS = {
    "Instances": (lambda row, s: is_elastic(s) and _wrote(row, "lives"), instances),
    "Day": (lambda row, s: hour_s(s) is not None, day),
    "Clients": (lambda row, s: _has_clients(s), clients),
    "Memory pool": (lambda row, s: s.memory_pool.enabled and _wrote(row, "servers"), memory_pool),
}
