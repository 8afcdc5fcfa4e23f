"""Clients and tenants of a finished run: goodput, latencies and refusals of each, and sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.clients import by_tenant, session_times_s
from twin.metrics.measures import NOTHING, amount
from twin.metrics.observed import Observed
from twin.metrics.registry import METRICS, shown
from twin.scenario import Scenario
from twin.ui import charts, session, theme
from twin.ui.charts import clients as charts_clients
from twin.ui.show import plot

COUNTS = ("sessions_finished", "cancelled", "asked_again", "rejected", "wasted_tokens", "fairness")


def applies(scenario: Scenario) -> bool:
    """Whether there is anything to tell: tenants, clients that leave or are refused, sessions."""
    c, a = scenario.clients, scenario.admission
    leave = c.timeout_s or c.answer_timeout_s or a.shed_at or a.rate_req_per_s or a.in_flight
    return bool(scenario.tenants or leave or scenario.workload.turns == "wait")


def section(row: RunRow, scenario: Scenario) -> None:
    """Figures of all, a bar and a row for each tenant, why requests ended, and session times."""
    told = [METRICS[key] for key in COUNTS if row.summary.get(key)]
    if told:
        with st.container(horizontal=True):
            for metric in told:
                value = shown(metric.key, row.summary[metric.key])
                st.metric(metric.label, value, help=metric.help, border=True)
    clients = seen(row.id, scenario)
    if clients.tenants:
        _tenants(clients.tenants)
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Why requests came to nothing", anchor=False)
        plot(charts_clients.reasons(clients.ends), "reasons")
    if clients.session_s.size:
        with right:
            st.subheader("Sessions", anchor=False, help=METRICS["session_s_mean"].help)
            curve = charts.Curve("Session", theme.ROLE["memory_pool"], clients.session_s)
            plot(charts.distribution([curve]), "session-times")


def _tenants(rows: list[dict[str, Any]]) -> None:
    st.subheader("Tenants", anchor=False)
    plot(charts_clients.tenants(rows), "tenants")
    labels = {
        "asked_req_per_s": "Asked", "goodput_req_per_s": "Goodput",
        "slo_attainment": "SLO attainment", "ttft_s_p50": "TTFT p50", "ttft_s_p99": "TTFT p99",
        "tpot_s_mean": "TPOT mean", "tokens_per_s": "Tokens served", "hit_token_ratio": "Hit ratio",
        "refused": "Refused", "cancelled": "Cancelled",
    }  # fmt: skip
    table = [
        {"": row["tenant"]}
        | {
            label: f"{row[key]:,}" if isinstance(row[key], int)
            else amount(row[key], "rate", "tokens/s") if key == "tokens_per_s"
            else NOTHING if row[key] is None else shown(key, row[key])
            for key, label in labels.items()
        }
        for row in rows
    ]  # fmt: skip
    st.dataframe(table, hide_index=True)
    st.caption("Steady state. A request that was asked again counts from when it was asked first.")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the section draws, of one read of a run's requests."""

    tenants: list[dict[str, Any]]
    ends: dict[str, int]  # why requests came to nothing, most first
    session_s: np.ndarray


@st.cache_data(show_spinner="Looking at the clients", max_entries=50)
def seen(run: str, _scenario: Scenario) -> Seen:
    """Figures of the tenants, reasons and session times of a run."""
    observed = Observed(_scenario, session.store().runs.table(run, "requests"), {})
    reasons = observed.requests.filter(pl.col("reason") != "")["reason"].cast(str)
    return Seen(
        by_tenant(observed) if _scenario.tenants else [],
        dict(reasons.value_counts(sort=True).iter_rows()),
        np.sort(session_times_s(observed)),
    )
