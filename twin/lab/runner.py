"""Asking for runs: what a question needs is stored, then the run is queued or carried out here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twin.facts import Facts
from twin.lab.budget import Budget, estimate, require_fits
from twin.lab.job import ENGINE, Watch, execute, load_engine, uses_counts, uses_trace
from twin.lab.library import load_facts
from twin.lab.store import Owner, Store, StoreError
from twin.scenario import Scenario, scenario_digest

if TYPE_CHECKING:
    from twin.engine.simulate import Run
    from twin.workload.generate import TraceTable


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that was carried out here: its id in the store, and its result."""

    id: str
    result: Run


def add_run(
    store: Store,
    scenario: Scenario,
    *,
    trace: TraceTable | None = None,
    facts: Facts | None = None,
    owner: Owner | None = None,
    again: bool = True,
    engine: str = ENGINE,
    waiting: Iterable[Budget] = (),
) -> str:
    """Store a question and a run of it; returns the run's id. Raises StoreError, TooLarge.

    `waiting` is what runs that were queued before will take. With `again` false an identical run
    that is queued, running or done is returned instead.
    """
    store.artefacts.require_space()
    wanted = scenario.workload.trace.digest
    if trace is not None and uses_trace(scenario) and trace.digest == wanted:
        store.traces.save(trace)
    if lacks := lacking_trace(store, scenario) or lacking_counts(store, scenario):
        raise StoreError(lacks)
    facts = facts or load_facts()
    require_fits(budget_of(store, scenario, facts), waiting)
    saved = store.scenarios.save(scenario)
    version = load_engine(engine).version
    return store.runs.add(saved, facts, version, scenario.seed, owner=owner, again=again)


def budget_of(store: Store, scenario: Scenario, facts: Facts) -> Budget:
    """What a run of a scenario is estimated to take; of a trace that is kept here."""
    row = store.traces.get(scenario.workload.trace.digest) if uses_trace(scenario) else None
    return estimate(scenario, facts, row.rows if row is not None else 0)


def lacking_trace(store: Store, scenario: Scenario) -> str:
    """That the trace a scenario replays is not stored here; '' when it is, or there is none."""
    wanted = scenario.workload.trace
    if not uses_trace(scenario) or store.traces.get(wanted.digest) is not None:
        return ""
    return f"the trace {wanted.name or wanted.digest} is not stored here: import its file first"


def lacking_counts(store: Store, scenario: Scenario) -> str:
    """That the expert counts a scenario uses are not stored here; '' as for a trace."""
    wanted = scenario.experts.counts
    if not uses_counts(scenario) or store.counts.get(wanted.digest) is not None:
        return ""
    name = wanted.name or wanted.digest
    return f"the expert counts {name} are not stored here: import their file first"


def run_now(
    store: Store,
    scenario: Scenario,
    *,
    trace: TraceTable | None = None,
    facts: Facts | None = None,
    watch: Watch | None = None,
    engine: str = ENGINE,
) -> Finished:
    """Carry out a run in this process and store it, as the background does.

    `watch(fraction, live)` gets progress. Raises what the engine raises, after storing how it
    ended; an interrupt from the keyboard leaves a cancelled run.
    """
    owner = Owner.here()
    run = add_run(store, scenario, trace=trace, facts=facts, owner=owner, engine=engine)
    row = store.runs.get(run)
    if row is None:
        raise StoreError(f"run {run} was deleted before it began")
    loaded = load_engine(engine)
    return Finished(run, execute(store, row, owner, loaded, facts=facts, trace=trace, watch=watch))


def find_run(
    store: Store, scenario: Scenario, *, facts: Facts | None = None, engine: str = ENGINE
) -> str | None:
    """The id of a done run of exactly this question, None when there is none."""
    digest = (facts or load_facts()).digest
    return store.runs.find(scenario_digest(scenario), digest, load_engine(engine).version)
