"""What a trace is made from: a run by a person's words, found in the store or made now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from twin.lab import ask
from twin.lab.library import load_facts
from twin.lab.perfetto.streams import StreamPlan, stream_plans
from twin.scenario import Scenario, SpecError, with_overrides

if TYPE_CHECKING:
    from twin.lab.job import Watch
    from twin.lab.store import Store

TABLES = ("requests", "windows", "operators", "ranks", "events", "instances")


@dataclass(frozen=True, slots=True)
class Source:
    """A run's question and the tables that a trace reads."""

    scenario: Scenario
    tables: Mapping[str, pl.DataFrame]
    facts_digest: str

    def streams(self) -> dict[str, StreamPlan]:
        """How its instances run in microbatches; empty when today's facts are not the run's."""
        facts = load_facts()
        if facts.digest != self.facts_digest:
            return {}
        return stream_plans(self.scenario, facts, self.tables)


def traced(name: str, settings: Sequence[str], watch: Watch) -> Source:
    """A stored run by id, else the scenario of that name, run now unless it is kept already.

    Raises the rooms' own ValueErrors, each one sentence.
    """
    from twin.lab.runner import find_run, run_now
    from twin.lab.store import open_store

    store = open_store()
    try:
        row = store.runs.get(name)
        if row is not None:
            if settings:
                raise SpecError(f"{name} is a run that was made: settings change a scenario")
            return stored(store, name)
        scenario = with_overrides(ask.scenario_named(name), ask.settings_from(settings))
        run = find_run(store, scenario) or run_now(store, scenario, watch=watch).id
        return stored(store, run)
    finally:
        store.close()


def stored(store: Store, run: str) -> Source:
    """A stored run that is done; raises SpecError while it has no tables."""
    row = store.runs.get(run)
    if row is None:
        raise SpecError(f"run {run} is not kept here")
    have: Mapping[str, Any] = store.runs.tables(run)
    if "requests" not in have:
        raise SpecError(f"run {run} has no results to trace: it is {row.state}")
    tables = {name: store.runs.table(run, name) for name in TABLES if name in have}
    return Source(store.scenarios.load(row.scenario), tables, row.facts_digest)
