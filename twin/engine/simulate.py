"""simulate: one question in, one Run out, nothing else touched.

The same scenario, facts and trace give the same bytes: a Run is a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine import recorder
from twin.engine.balancing import Balance
from twin.engine.build import build_world
from twin.engine.clock import ITERATION_EDGES_S, steps_in
from twin.engine.columns import World
from twin.engine.invariants import Check, check_all, ends_of, one_role, pool_consistent
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.elastic import Elastic
from twin.engine.lifecycle.incidents import Incidents
from twin.engine.lifecycle.life import Life
from twin.engine.lifecycle.machine import Machine
from twin.engine.lifecycle.present import Present
from twin.engine.loop import advance, close_books, requests_inside
from twin.engine.record import Log
from twin.engine.setup import Setup, set_up
from twin.engine.unfolding import Unfolding
from twin.facts import Facts
from twin.kernels.compiled import ANSWERS, source_digest
from twin.metrics.events import Event
from twin.metrics.latency import PERCENTILES
from twin.metrics.little import gap, stays_s
from twin.metrics.observed import Observed
from twin.metrics.registry import Summary, summarise
from twin.metrics.steadiness import UNSTEADY, steadiness
from twin.policies.memory_pool import empty_pool
from twin.scenario import Scenario, is_elastic
from twin.workload.generate import TraceTable

# A run is found again by its question and this version, so a change in any source that decides
# what a run says makes it another one.
ENGINE_VERSION = f"1.{source_digest(ANSWERS)[:12]}"

REPORTS = 500  # progress reports of a run, at most

Progress = Callable[[float, dict[str, Any]], bool]


class Cancelled(Exception):
    """The progress callback has stopped the run."""


@dataclass(frozen=True)
class Run:
    """An answer: headline figures, tables, and whether the laws held."""

    scenario: Scenario
    facts_digest: str
    engine_version: str
    digest: str
    summary: Summary
    tables: dict[str, pl.DataFrame]
    checks: list[dict[str, Any]]
    notes: list[str]
    valid: bool


@dataclass(frozen=True)
class Passed:
    """State of a run at its horizon, before tables are made."""

    machine: Machine
    balance: Balance
    events: list[Event]
    pool_check: Check
    elastic: Elastic | None  # None: no instance comes or goes


def simulate(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None,
    progress: Progress | None = None, counts: np.ndarray | None = None,
) -> Run:  # fmt: skip
    """Simulate the scenario's workload on its supernode. `progress` is called with the share done
    and a few live numbers; returning False raises Cancelled. counts f8[layers, experts]: imported
    routing counts. Raises HardwareError, ModelError, ExpertsError, WorkloadError or ScenarioError
    when the scenario cannot run."""
    setup = set_up(scenario, facts, trace, counts)
    return conclude(setup, pass_time(setup, facts, progress), facts)


def pass_time(
    setup: Setup, facts: Facts, progress: Progress | None = None, log: Log | None = None,
    until_s: float | None = None,
) -> Passed:  # fmt: skip
    """Advance to the horizon; returns the machine, its log, and the check of its memory pool. log:
    filled with passes that overlap its span; until_s: stop there, before the horizon. The pool,
    often the largest part of the world, is freed before tables are made."""
    s = setup.scenario
    machine = Machine(setup, facts, build_world(setup))
    if log is not None:
        machine.world.log = log
    agenda, events = Agenda(s.step_s), list[Event]()
    balance = Balance(machine, agenda, events)
    life = Life(machine, agenda, balance.changed)
    Incidents(life, events, balance.missing)
    elastic = Elastic(life) if is_elastic(s) else None
    steps = steps_in(s.horizon_s if until_s is None else min(until_s, s.horizon_s), s.step_s)
    stride = max(1, steps // REPORTS if progress else steps)
    first, report = 0, stride
    unfolding = Unfolding(machine.world)
    while first < steps:
        agenda.run(first)
        due = agenda.next_step()
        last = min(report, steps if due is None else due, steps)
        advance(machine.world, first, last)
        first = last
        if first >= report or first == steps:
            report = first + stride
            if progress is None:
                continue
            unfolding.note(first * s.step_s)
            points = {name: list(values) for name, values in unfolding.points.items()}
            if not progress(first / steps, live(machine.world) | {"points": points}):
                raise Cancelled
    close_books(machine.world)
    balance.finish(s.horizon_s)
    check = pool_consistent(machine.world)
    machine.world.pool = machine.world.ssd = empty_pool(1, 1, 0)
    return Passed(machine, balance, events, check, elastic)


def live(world: World) -> dict[str, float]:
    """Counts of requests to show while a run goes on, by name."""
    c = world.record.counters
    return {
        "arrived": float(c[w.ARRIVED]),
        "finished": float(c[w.FINISHED_DECODE] + c[w.FINISHED_PREFILL]),
        "rejected": float(c[w.REJECTED_ROUTER] + c[w.REJECTED_DECODE]),
        "inside": float(requests_inside(world)),
        "decoding": float(world.decode.in_batch.sum()),
    }


def conclude(setup: Setup, passed: Passed, facts: Facts) -> Run:
    """Tables, summary, checks and digest of a machine at its horizon."""
    world = passed.machine.world
    limits = recorder.capacities(setup)
    stamps = recorder.stamps_of(world, int(world.record.counters[w.ARRIVED]))
    present = Present(setup, passed.elastic)
    tables = recorder.tables(
        setup, passed.machine, passed.balance, passed.events, limits, stamps, present
    )
    little_error = little_gap(world)
    totals = steady_totals(setup, world, limits) | {"little_error": little_error}
    totals |= present.totals()
    npus = present.npus()
    gaps = ITERATION_EDGES_S, world.record.gaps
    summary = summarise(
        Observed(setup.scenario, tables["requests"], totals, npus, tables["events"], gaps, stamps)
    )
    summary["steady_state"] = steadiness(setup.scenario, tables["windows"])
    checks = [*check_all(setup, world, tables), passed.pool_check]
    if passed.elastic is not None:
        checks.append(one_role(setup, passed.elastic.life))
    notes = list(setup.notes) + remarks(setup, world, summary)
    return Run(
        scenario=setup.scenario, facts_digest=facts.digest, engine_version=ENGINE_VERSION,
        digest=result_digest(tables), summary=summary, tables=tables,
        checks=[asdict(c) for c in checks], notes=notes, valid=all(c.ok for c in checks),
    )  # fmt: skip


def little_gap(world: World) -> float:
    """Relative gap between sampled requests inside and the sum of their stays from stamps."""
    book = world.record.windows[:-1]
    inside = sum(
        float(book[:, field].sum())
        for field in (
            w.IN_FRONT_END, w.IN_ROUTER, w.IN_PREFILL_QUEUE,
            w.IN_PREFILL, w.IN_TRANSFER, w.IN_DECODE,
        )
    )  # fmt: skip
    c = world.record.counters
    arrived = int(c[w.ARRIVED])
    arrival_s, end_s = world.request.arrival_s[:arrived], ends_of(world, arrived)
    at_end = arrived - int((end_s <= world.settings.horizon_s).sum())
    at_start = int((arrival_s <= 0.0).sum())
    sampled_s = (inside + 0.5 * (at_start - at_end)) * world.settings.step_s
    return gap(sampled_s, stays_s(arrival_s, end_s, world.settings.horizon_s))


def steady_totals(setup: Setup, world: World, limits: dict[str, float]) -> dict[str, float]:
    """Amounts of the steady state, and counts of the whole run, by name. limits: of
    `recorder.capacities`."""
    steady = world.record.windows[-1]
    c = world.record.counters
    totals = {
        name: float(steady[field])
        for name, field in (
            ("iterations", w.ITERATIONS), ("iteration_s", w.ITERATION_S),
            ("decode_tokens", w.DECODE_TOKENS), ("decode_busy_s", w.DECODE_BUSY_S),
            ("kv_used_s", w.KV_USED_S), ("prefill_batches", w.PREFILL_BATCHES),
            ("prefill_busy_s", w.PREFILL_BUSY_S), ("prefill_tokens", w.PREFILL_TOKENS),
            ("prompt_tokens", w.PROMPT_TOKENS), ("hit_tokens", w.HIT_TOKENS),
            ("samples", w.SAMPLES), ("pool_used", w.POOL_USED),
            ("preemptions", w.PREEMPTIONS),
            ("hbm_amount", w.HBM_BYTES), ("cube_amount", w.FLOPS),
            ("prefill_cube_amount", w.PREFILL_FLOPS),
        )
    }  # fmt: skip
    moved = recorder.by_plane(world)[-1]
    totals |= {f"{name}_amount": float(moved[k]) for k, name in enumerate(w.PLANES)}
    of_class = recorder.by_class(world)[-1]
    totals |= {f"{name}_moved": float(of_class[k]) for k, name in enumerate(w.TRAFFIC)}
    totals["block_bytes"] = world.settings.block_bytes
    totals["block_tokens"] = float(world.settings.block_tokens)
    totals["inside"] = float(steady[w.IN_FRONT_END : w.IN_DECODE + 1].sum())
    totals |= {f"{name}_capacity": limit for name, limit in limits.items()}
    if setup.power is not None:
        totals |= {name: float(watts) for name, watts in asdict(setup.power).items()}
    totals |= {f"{role}_clock": share for role, share in setup.costs.clocks.items()}
    totals["at_start"] = float(setup.at_start)
    totals["finished"] = float(c[w.FINISHED_DECODE] + c[w.FINISHED_PREFILL])
    totals["rejected"] = float(c[w.REJECTED_ROUTER] + c[w.REJECTED_DECODE])
    totals["lost"] = float(c[w.GIVEN_UP])
    totals["cancelled"] = float(c[w.CANCELLED_BY_CLIENT])
    totals["asked_again"] = float(c[w.ASKED_AGAIN])
    totals["wasted_tokens"] = float(c[w.WASTED_TOKENS])
    first = world.request.transfer_end_s
    low, high = setup.scenario.warmup_s, setup.scenario.horizon_s
    begun = (first >= low) & (first <= high)
    totals["first_tokens"] = float(begun[setup.at_start :].sum())
    return totals


def remarks(setup: Setup, world: World, summary: Summary) -> list[str]:
    """Sentences that a reader of the figures has to know."""
    s = setup.scenario
    said = []
    if s.warmup_s > 0:
        said.append(
            f"Steady-state figures leave out the first {s.warmup_s:g} s of {s.horizon_s:g} s."
        )
    if world.record.counters[w.EXHAUSTED] and not s.workload.prompts:
        said.append("The closed loop ran out of prepared requests: its tail is thinner than asked.")
    if (state := summary["steady_state"]) in UNSTEADY:
        said.append(UNSTEADY[str(state)])
    few = int(summary["requests_steady"] or 0)
    if few == 0:
        said.append("No request finished in the steady state: lengthen horizon_s.")
    elif few < 10 * max(PERCENTILES):
        plural = "request" if few == 1 else "requests"
        said.append(f"Only {few} {plural} finished in the steady state: p99 is a rough figure.")
    inside, finished = int(summary["running"] or 0), int(summary["finished"] or 0)
    if inside > finished and s.workload.arrivals != "closed_loop":
        said.append(
            f"{inside:,} requests are still inside and {finished:,} finished: the figures are "
            "those of short stays; lengthen horizon_s and warmup_s."
        )
    return said


def result_digest(tables: dict[str, pl.DataFrame]) -> str:
    """SHA-256 over every table's values, column by column, in a fixed order."""
    content = hashlib.sha256()
    for name in sorted(tables):
        table = tables[name]
        content.update(f"{name} {table.height}".encode())
        # One query for a table: one for each column costs more than the columns hold.
        made = table.select(
            [_plain(column) for column in table.iter_columns() if _converted(column)]
        )
        for column in table.iter_columns():
            kind = column.dtype
            values = made[column.name] if column.name in made.columns else column
            content.update(f"{column.name} {kind}".encode())
            if column.null_count() > 0 and not kind.is_float():
                content.update(column.is_null().to_numpy().data)
            if isinstance(kind, pl.Enum):
                content.update(" ".join(kind.categories).encode())
            if kind == pl.String:
                content.update("\n".join(values.to_list()).encode())
            else:
                content.update(np.ascontiguousarray(values.to_numpy()).data)
    return content.hexdigest()


def _converted(column: pl.Series) -> bool:
    """Whether a column has to be converted before it is hashed: it has nulls, or is an Enum."""
    return column.null_count() > 0 or isinstance(column.dtype, pl.Enum)


def _plain(column: pl.Series) -> pl.Expr:
    """A column as numbers or text without nulls."""
    kind = column.dtype
    plain = pl.col(column.name)
    if isinstance(kind, pl.Enum):
        plain = plain.to_physical()
    # No figure of a run is NaN, so a float that is has no other meaning.
    return plain.fill_null(np.nan if kind.is_float() else "" if kind == pl.String else 0)
