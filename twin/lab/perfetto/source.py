"""What a trace is made from: a run by a person's words, found in the store or made now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from twin.engine.simulate import ENGINE_VERSION
from twin.engine.window import Window, watch
from twin.facts import Facts
from twin.lab import ask
from twin.lab.library import load_facts
from twin.lab.perfetto.streams import stream_plans
from twin.lab.runs.job import Watch
from twin.lab.store.statements import require
from twin.model.timeline import Timeline
from twin.scenario import Scenario, SpecError, with_overrides

if TYPE_CHECKING:
    from twin.lab.store import RunRow, Store
    from twin.workload.requests import TraceTable

TABLES = ("requests", "windows", "operators", "ranks", "events", "instances")


@dataclass(frozen=True, slots=True)
class Source:
    """A run's question and the tables that a trace reads."""

    scenario: Scenario
    tables: Mapping[str, pl.DataFrame]
    facts: Facts
    trace: TraceTable | None = None
    counts: np.ndarray | None = None

    def window(self, begin_s: float, end_s: float, most: int) -> Window:
        """What the instances did in a span: the run is made again up to its end, and watched."""
        span_s = begin_s, end_s
        return watch(self.scenario, self.facts, span_s, most, self.trace, self.counts)

    def streams(self) -> dict[str, Timeline]:
        """How its instances run in microbatches."""
        return stream_plans(self.scenario, self.facts, self.tables)


def traced(name: str, settings: Sequence[str], progress: Watch) -> Source:
    """A stored run by id, else the scenario of that name, run now unless it is kept already. A run
    of another version of the engine is made anew. Raises the rooms' own ValueErrors."""
    from twin.lab.runs.runner import found_or_made
    from twin.lab.store import open_store

    with closing(open_store()) as store:
        row = store.runs.get(name)
        if row is not None and settings:
            raise SpecError(f"{name} is a run that was made: settings change a scenario")
        if row is not None and (repeatable(row) or row.state != "done"):
            return stored(store, name)
        if row is not None:
            scenario = store.scenarios.load(row.scenario)
        else:
            scenario = with_overrides(ask.scenario_named(name), ask.settings_from(settings))
        return stored(store, found_or_made(store, scenario, progress).id)


def repeatable(row: RunRow) -> bool:
    """Whether this engine makes the run again, to the byte."""
    return row.engine_version == ENGINE_VERSION


def stored(store: Store, run: str) -> Source:
    """A stored run that is done; raises SpecError while it has no tables."""
    row = require(store.runs.get(run), "run", run)
    have: Mapping[str, Any] = store.runs.tables(run)
    if "requests" not in have:
        raise SpecError(f"run {run} has no results to trace: it is {row.state}")
    if not repeatable(row):
        raise SpecError(
            f"run {run} was made by another version of the engine, which alone repeats it: run "
            "its scenario again"
        )
    scenario, facts = store.scenarios.load(row.scenario), load_facts()
    table = store.counts.of(scenario)
    return Source(
        scenario,
        {name: store.runs.table(run, name) for name in TABLES if name in have},
        facts if facts.digest == row.facts_digest else store.facts(row.facts_digest),
        store.traces.of(scenario),
        table.counts if table else None,
    )
