"""A run repeated up to the end of a span, to the byte, while its instances are watched."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from twin.engine.simulate import ENGINE_VERSION
from twin.engine.window import Pass, Window, watch
from twin.facts import Facts
from twin.lab.library import load_facts
from twin.lab.runs.job import Watch
from twin.lab.runs.runner import find_or_run, run_or_scenario
from twin.lab.store import RunRow, Store, open_store
from twin.lab.store.statements import require
from twin.metrics.latency import STAMPS
from twin.scenario import Scenario, SpecError
from twin.workload.requests import TraceTable

DECODE = "decode"
STAGES = ("front end", "waiting for admission", "prefill queue", "prefill", "KV transfer", DECODE)
PHASES = tuple(zip(STAGES, STAMPS, STAMPS[1:], strict=False))  # name, from stamp, to stamp
MOST_PASSES = 200_000
TABLES = ("requests", "windows", "operators", "ranks", "events", "instances")


@dataclass(frozen=True, slots=True)
class Source:
    """A run's scenario and tables, as traces need them."""

    scenario: Scenario
    tables: Mapping[str, pl.DataFrame]
    facts: Facts
    trace: TraceTable | None = None
    counts: np.ndarray | None = None

    def window(self, begin_s: float, end_s: float, limit: int) -> Window:
        """Passes of instances (at most `limit`) between two times (s), by repeating the run."""
        return watch(self.scenario, self.facts, (begin_s, end_s), limit, self.trace, self.counts)


def source_of(name: str, settings: Sequence[str], progress: Watch) -> Source:
    """Scenario and tables of a run (`name`: its id) or of a scenario's run, made if not stored."""
    with closing(open_store()) as store:
        run_row, scenario = run_or_scenario(store, name, settings)
        if run_row is None or (run_row.state == "done" and not is_repeatable(run_row)):
            run_row = find_or_run(store, scenario, progress)
        return stored_source(store, run_row.id)


def is_repeatable(row: RunRow) -> bool:
    """Whether this engine repeats the run byte for byte."""
    return row.engine_version == ENGINE_VERSION


def stored_source(store: Store, run: str) -> Source:
    """Scenario and tables of a stored run; SpecError without tables or of another engine."""
    run_row = require(store.runs.get(run), "run", run)
    stored_tables: Mapping[str, Any] = store.runs.tables(run)
    if "requests" not in stored_tables:
        raise SpecError(f"run {run} has no results to trace: it is {run_row.state}")
    if not is_repeatable(run_row):
        raise SpecError(
            f"run {run} was made by another version of the engine, which alone repeats it: run "
            "its scenario again"
        )
    scenario, facts = store.scenarios.load(run_row.scenario), load_facts()
    counts_table = store.counts.value_of(scenario)
    tables = {name: store.runs.table(run, name) for name in TABLES if name in stored_tables}
    facts = facts if facts.digest == run_row.facts_digest else store.facts(run_row.facts_digest)
    trace = store.traces.value_of(scenario)
    return Source(scenario, tables, facts, trace, counts_table.counts if counts_table else None)


@dataclass(frozen=True, slots=True)
class Inside:
    """What the instances that served a request did during its stay."""

    prefill: tuple[tuple[str, float], ...]  # seconds by operator of its batches; '' is what waits
    decode_wait_s: float  # from its KV in place to the next iteration
    iterations: int  # that it sat through
    iteration_s: float  # mean
    # Nodes whose memory servers held it back, seconds:
    hot_reads: tuple[tuple[int, float], ...] = ()


def stage_times(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a request by stage, in order, from its row of stamps; only completed stages."""
    return {
        stage: row[end_stamp] - row[begin_stamp]
        for stage, begin_stamp, end_stamp in PHASES
        if row[begin_stamp] is not None and row[end_stamp] is not None
    }


def request_work(run: Source, row: Mapping[str, Any]) -> Inside:
    """What instances did for a request (`row` of the table) during its stay, found by repeating the
    run. Raises what the engine raises."""
    window = run.window(*span_of_request(run, row["request_id"]), MOST_PASSES)

    def passes(role: str, begin: str, end: str) -> list[Pass]:
        """Passes of the instance that served the request in a role, between two of its stamps."""
        begin_s, end_s = row[begin], float("inf") if row[end] is None else row[end]
        if begin_s is None:
            return []
        instance, passes_of = row[f"{role}_instance"], window.passes
        all_passes = passes_of.get((role, instance)) or passes_of.get(("colocated", instance), [])
        return [
            instance_pass
            for instance_pass in all_passes
            if instance_pass.begin_s >= begin_s and instance_pass.end_s <= end_s
        ]

    prefill_passes = passes("prefill", "prefill_start_s", "prefill_end_s")
    seconds_by_operator = defaultdict[str, float](float)
    held_s_by_node = defaultdict[int, float](float)
    for prefill_pass in prefill_passes:
        for operator, busy_s in prefill_pass.operators:
            seconds_by_operator[operator] += busy_s
        if prefill_pass.held_s > 0.0:
            held_s_by_node[prefill_pass.hot_node] += prefill_pass.held_s
    if prefill_passes:  # reads of the memory pool, and batches between its own
        prefill_s = row["prefill_end_s"] - row["prefill_start_s"] if row["prefill_end_s"] else 0.0
        seconds_by_operator[""] = max(0.0, prefill_s - sum(seconds_by_operator.values()))
    decode_passes = passes("decode", "transfer_end_s", "finish_s")
    decode_wait_s = decode_passes[0].begin_s - row["transfer_end_s"] if decode_passes else 0.0
    mean_iteration_s = sum(
        decode_pass.end_s - decode_pass.begin_s for decode_pass in decode_passes
    ) / max(1, len(decode_passes))
    operators, hot_reads = tuple(seconds_by_operator.items()), tuple(held_s_by_node.items())
    return Inside(operators, decode_wait_s, len(decode_passes), mean_iteration_s, hot_reads)


def span_of_request(run: Source, request: int) -> tuple[float, float]:
    """Arrival and last stamp (s) of a request. Raises SpecError for an unknown number."""
    request_rows = run.tables["requests"].filter(pl.col("request_id") == request)
    if not request_rows.height:
        request_count = run.tables["requests"].height
        raise SpecError(
            f"request {request} is not in the run: it has {request_count:,} requests from 0"
        )
    request_row = request_rows.row(0, named=True)
    stamps = [
        stamp
        for column, stamp in request_row.items()
        if column.endswith("_s") and stamp is not None
    ]
    begin_s = float(request_row["arrival_s"])
    return begin_s, max(begin_s + 1e-3, *(float(stamp) for stamp in stamps))
