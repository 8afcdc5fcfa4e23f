"""What a stored run holds, cached by its id; of requests quantiles and means. Draws nothing."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import streamlit as st

from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.hardware.network import Network
from twin.lab.explain.explain import as_json
from twin.lab.explain.streams import mean_load_timelines
from twin.lab.explain.waterfall import operator_seconds
from twin.lab.runs import watched
from twin.lab.runs.job import EXPLAIN, load_engine
from twin.lab.runs.runner import find_run
from twin.lab.store import RunRow
from twin.metrics import latency
from twin.model.timeline import Timeline
from twin.scenario import Scenario
from twin.ui import session

LARGE = "requests"  # the table that may have millions of rows
QUANTILES = 2001  # of a distribution: p99.9 is still a point of its own
SLOWEST = 0.01  # share of requests that the "slowest" row of the TTFT picture is of

_STAMPS = [*latency.STAMPS, "output_tokens"]


class Latencies(NamedTuple):
    """Steady-state latencies: quantiles in seconds, f8[QUANTILES] or empty."""

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    slowest: list[tuple[str, float]]  # mean seconds by stage of the slowest first tokens


@st.cache_resource(show_spinner=False, max_entries=60)
def table(run: str, name: str) -> pl.DataFrame:
    """A small table of a run (its id), cached and shared, so never changed. Raises StoreError."""
    if name == LARGE:
        raise ValueError(f"the table of {LARGE} is read by column, and let go")
    return session.store().runs.table(run, name)


@st.cache_resource(show_spinner=False, max_entries=200)
def scenario(digest: str) -> Scenario:
    """The stored scenario with this digest. Raises StoreError."""
    return session.store().scenarios.load(digest)


@st.cache_data(show_spinner="Reading the requests", max_entries=100)
def latencies(run: str, warmup_s: float) -> Latencies:
    """Quantiles of TTFT and TPOT in s. TTFT counts requests with a first token after the warm-up,
    TPOT requests that finished after it."""
    requests = session.store().runs.table(run, "requests", _STAMPS)
    first_token_s = requests["first_token_s"].to_numpy()
    is_ttft_steady = (first_token_s > 0.0) & (first_token_s >= warmup_s)  # not those at the start
    ends_after_warmup = requests["finish_s"].to_numpy() >= warmup_s
    ttft_s = latency.span_s(requests, "arrival_s", "first_token_s")
    is_slowest = np.zeros(len(is_ttft_steady), bool)
    if is_ttft_steady.any():
        is_slowest = is_ttft_steady & (ttft_s >= np.quantile(ttft_s[is_ttft_steady], 1 - SLOWEST))
    stages_s = ((name, latency.span_s(requests, *ends)[is_slowest])
                for name, *ends in latency.TTFT_PARTS)  # fmt: skip
    stage_means = [
        (stage, float(np.nanmean(stage_s)))
        for stage, stage_s in stages_s
        if np.isfinite(stage_s).any()
    ]
    tpot_s = latency.tpot_s(requests)[ends_after_warmup]
    return Latencies(_quantiles(ttft_s[is_ttft_steady]), _quantiles(tpot_s), stage_means)


def _quantiles(values: np.ndarray) -> np.ndarray:
    """QUANTILES evenly spaced quantiles of the finite values; empty if there are none."""
    # Sorted once: for so many points the quantiles of what is not sorted take longer.
    values = np.sort(values[np.isfinite(values)])
    positions = np.linspace(0.0, len(values) - 1.0, QUANTILES)
    return np.interp(positions, np.arange(len(values)), values) if values.size else values


@st.cache_data(show_spinner=False, max_entries=100)
def stored_explanation(run: str, _row: RunRow) -> dict[str, Any]:
    """Result of an explaining run as JSON: summary, causes, seconds of a mean request by piece."""
    run_store = session.store().runs
    return as_json(_row.summary, *(run_store.table(run, name) for name in ("causes", "waterfall")))


def seconds_by_piece(row: RunRow, scenario: Scenario) -> dict[str, float]:
    """Seconds of a mean request by piece (attention, queueing ...); empty if not explained."""
    explain_run = find_run(session.store(), scenario, engine=EXPLAIN)
    if explain_run is None or row.engine_version != load_engine().ENGINE_VERSION:
        return {}
    return dict(stored_explanation(explain_run.id, explain_run)["waterfall_s"])


@st.cache_resource(show_spinner=False, max_entries=100)
def layer_timelines(run: str, _row: RunRow, _scenario: Scenario) -> dict[str, Timeline]:
    """Timeline of one layer on two streams, by phase; only of phases that run in microbatches."""
    tables = {name: table(run, name) for name in ("windows", "operators", "ranks")}
    tables["requests"] = session.store().runs.table(run, "requests", ["input_tokens"])
    return mean_load_timelines(_scenario, _facts_of_digest(_row.facts_digest), tables)


def iteration_rows(row: RunRow, scenario: Scenario, phase: str) -> list[tuple[str, str, float]]:
    """(stream, operator, busy seconds) of a mean iteration; without two streams, stream is ''."""
    layer_timeline = layer_timelines(row.id, row, scenario).get(phase)
    return operator_seconds(table(row.id, "operators"), phase, layer_timeline)


@st.cache_data(show_spinner=False, max_entries=100)
def slow_requests(run: str, warmup_s: float) -> dict[str, tuple[int, int]]:
    """Numbers (slowest, median) of requests finished after the warm-up, by TTFT, TPOT and E2E."""
    requests = session.store().runs.table(run, "requests", ["request_id", *_STAMPS])
    requests = requests.filter(pl.col("finish_s") >= warmup_s)
    # As the figures count: of TTFT first tokens after the warm-up, of the others answers.
    first_token_s = requests["first_token_s"].to_numpy()
    has_begun = first_token_s > 0.0  # in the run, so not one of those at its start
    is_ttft_steady = has_begun & (first_token_s >= warmup_s)
    ttft_s = latency.span_s(requests, "arrival_s", "first_token_s")
    times_s = {
        "TTFT": np.where(is_ttft_steady, ttft_s, np.nan),
        "TPOT": latency.tpot_s(requests),
        "E2E": np.where(has_begun, latency.span_s(requests, "arrival_s", "finish_s"), np.nan),
    }
    ids_by_criterion = {}
    for criterion, values_s in times_s.items():
        if count := np.isfinite(values_s).sum():  # what is not known is sorted to the end
            ids = requests["request_id"].to_numpy()[np.argsort(values_s, kind="stable")[:count]]
            ids_by_criterion[criterion] = int(ids[-1]), int(ids[count // 2])
    return ids_by_criterion


@st.cache_data(show_spinner=False, max_entries=200)
def request_row(run: str, number: int) -> dict[str, Any] | None:
    """Row of a request, its columns by name; None without a request of that number."""
    matches = session.store().runs.table(run, "requests").filter(pl.col("request_id") == number)
    return matches.row(0, named=True) if matches.height else None


@st.cache_data(show_spinner="Running its span again, watched", max_entries=200)
def passes_of_request(run: str, number: int) -> watched.Inside:
    """Iterations and prefill batches of the instances that served a request, found by running its
    span of time again. Raises the errors of that re-run."""
    row = request_row(run, number)
    assert row is not None
    return watched.request_work(watched.stored_source(session.store(), run), row)


def fabric(row: RunRow, scenario: Scenario) -> Network:
    """The run's machine as a graph, built by the run's facts."""
    return build_fabric(scenario.supernode, _facts_of_digest(row.facts_digest))


@st.cache_resource(show_spinner=False, max_entries=8)
def _facts_of_digest(digest: str) -> Facts:
    """The facts with this digest; the present ones if an earlier twin did not store them."""
    facts = session.facts()
    return facts if facts.digest == digest else facts.replaced(session.store().facts(digest))
