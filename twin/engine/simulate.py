"""simulate: one question in, one Run out, nothing else touched.

The same scenario, facts and trace give the same bytes: a Run is a value."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine import invariants, recorder
from twin.engine.balancing import Balance
from twin.engine.build import build_world
from twin.engine.clock import ITERATION_EDGES_S, steps_in
from twin.engine.columns import Log, World
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.elastic import Elastic
from twin.engine.lifecycle.incidents import Incidents
from twin.engine.lifecycle.life import Life
from twin.engine.lifecycle.machine import Machine
from twin.engine.lifecycle.present import Present
from twin.engine.lifecycle.together import share_links, share_npus
from twin.engine.loop import advance, record_unfinished, requests_inside
from twin.engine.merging import ModelResult, merge_tables, models_table
from twin.engine.movement import recorded_traffic
from twin.engine.setup import Setup, set_up_models
from twin.facts import Facts
from twin.kernels.compiled import ANSWERS, source_digest
from twin.metrics.events import Event
from twin.metrics.latency import PERCENTILES
from twin.metrics.measures import numbered
from twin.metrics.observed import Observed, Several, npus_of, totals_of
from twin.metrics.registry import Summary, summarise
from twin.metrics.steadiness import UNSTEADY, relative_gap, stays_s, steadiness
from twin.policies.memory_pool import empty_pool
from twin.scenario import Scenario, is_elastic, model_names
from twin.workload.generate import TraceTable

# A run is found again by its question and this version, so a change in any source that decides
# what a run says makes it another one.
ENGINE_VERSION = f"1.{source_digest(ANSWERS)[:12]}"

REPORTS = 500  # progress reports of a run, at most
POINTS = 60  # of a run's curves as it unfolds, at most

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


class Unfolding:
    """Mean TTFT, mean TPOT and tokens/s of each past span; requests before `_low` have ended."""

    def __init__(self, world: World):
        """Begin without points: curves of mean TTFT, mean TPOT and tokens/s over simulated time."""
        self._world = world
        self._low = 0
        self._tokens = 0.0
        curve_names = ("t_s", "ttft_s", "tpot_s", "tokens_per_s")
        self.points: dict[str, list[float | None]] = {name: [] for name in curve_names}

    def add_point(self, now_s: float) -> None:
        """Add the means of the span from the last point to now_s, if that span is long enough."""
        world = self._world
        last_point_s = self.points["t_s"][-1] or 0.0 if self.points["t_s"] else 0.0
        span_s = now_s - last_point_s
        if span_s < 0.999 * world.settings.horizon_s / POINTS:
            return
        request, rows = world.request, slice(self._low, int(world.record.counters[w.ARRIVED]))
        first_s, finish_s = request.transfer_end_s[rows], request.finish_s[rows]
        # Requests that were decoding at the start were never routed.
        has_first = (first_s > last_point_s) & (first_s <= now_s) & (request.routed_s[rows] > 0.0)
        tokens_after_first = request.output_tokens[rows] - 1
        has_ended = (finish_s > last_point_s) & (finish_s <= now_s) & (tokens_after_first > 0)
        tpot_s = (finish_s[has_ended] - first_s[has_ended]) / tokens_after_first[has_ended]
        window_sums = world.record.windows[:-1]
        token_field = w.DECODE_TOKENS if world.settings.has_decode else w.PREFILL_TOKENS
        tokens_so_far = float(window_sums[:, token_field].sum())
        for curve_name, point in (
            ("t_s", now_s),
            ("ttft_s", _mean(first_s[has_first] - request.arrival_s[rows][has_first])),
            ("tpot_s", _mean(tpot_s) if world.settings.has_decode else None),
            ("tokens_per_s", (tokens_so_far - self._tokens) / span_s),
        ):
            self.points[curve_name].append(point)
        self._tokens = tokens_so_far
        unfinished = np.flatnonzero(~((finish_s <= now_s) | (request.status[rows] >= w.REJECTED)))
        self._low += int(unfinished[0]) if unfinished.size else len(finish_s)


def _mean(values: np.ndarray) -> float | None:
    """Mean of some values; None without any."""
    return float(values.mean()) if values.size else None


class Running:
    """State of one model during a run: machine, agenda, placement of experts, life cycle."""

    def __init__(self, setup: Setup, facts: Facts) -> None:
        """Build one model's state from its set-up, and enter its rare events into the agenda."""
        self.machine = Machine(setup, facts, build_world(setup))
        self.agenda, self.events = Agenda(setup.scenario.step_s), list[Event]()
        self.balance = Balance(self.machine, self.agenda, self.events)
        self.life = Life(self.machine, self.agenda, self.balance.place_experts)
        Incidents(self.life, self.events, self.balance.count_experts_only_on)
        # None: no instance comes or goes.
        self.elastic = Elastic(self.life) if is_elastic(setup.scenario) else None
        self.unfolding = Unfolding(self.machine.world)
        self.pool_check: invariants.Check
        self.cache_check: invariants.Check | None = None

    @property
    def world(self) -> World:
        """Columns of the model's state."""
        return self.machine.world

    def conclude(self) -> None:
        """End the run at its horizon; check the memory pool and prefix caches and free their memory
        before tables are made."""
        record_unfinished(self.world)
        self.balance.record_final_loads(self.world.settings.horizon_s)
        self.pool_check = invariants.pool_consistent(self.world)
        self.cache_check = invariants.prefix_cache_fits(self.world)
        self.world.pool = self.world.ssd = empty_pool(1, 1, 0)
        self.world.hbm.assign(newer=np.zeros((1, 1)), older=np.zeros((1, 1)))
        self.world.prefix.users = np.zeros((1, 1), np.int16)


def simulate(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None,
    progress: Progress | None = None, counts: np.ndarray | None = None,
) -> Run:  # fmt: skip
    """Simulate the scenario's workload on its supernode. `progress` is called with the share done
    and a few live numbers; returning False raises Cancelled. trace, and counts f8[layers, experts]
    of imported routing: of the first model. Raises HardwareError, ModelError, ExpertsError,
    WorkloadError or ScenarioError when the scenario cannot run."""
    setups = set_up_models(scenario, facts, trace, counts)
    running_models = run_models(setups, facts, progress)
    results = list(map(conclude_model, model_names(scenario), setups, running_models))
    if len(results) > 1:
        return conclude_together(scenario, results, facts)
    (result,) = results
    return _make_run(scenario, facts, result.summary, result.tables, result.checks, result.notes)


def run_models(
    setups: Sequence[Setup], facts: Facts, progress: Progress | None = None,
    logs: Sequence[Log] = (), until_s: float = math.inf,
) -> list[Running]:  # fmt: skip
    """Run the models of one machine to the horizon, or to until_s if that is earlier; returns the
    state of each. logs: one for each model, in which passes that overlap its span are recorded."""
    scenario = setups[0].scenario
    models = [Running(setup, facts) for setup in setups]
    for model, log in zip(models, logs, strict=False):
        model.world.log = log
    if len(models) > 1:
        share_npus([model.life for model in models])
    shares_links = share_links([model.machine for model in models])
    step_count = steps_in(min(until_s, scenario.horizon_s), scenario.step_s)
    steps_per_report = max(1, step_count // REPORTS if progress else step_count)
    next_step, next_report_step = 0, steps_per_report
    while next_step < step_count:
        for model in models:
            model.agenda.run(next_step)
        agenda_steps = [step for model in models if (step := model.agenda.next_step()) is not None]
        stop_step = min(next_report_step, step_count, *agenda_steps)
        for first_step in range(next_step, stop_step) if shares_links else (next_step,):
            for model in models:
                advance(model.world, first_step, first_step + 1 if shares_links else stop_step)
        next_step = stop_step
        if next_step >= next_report_step or next_step == step_count:
            next_report_step = next_step + steps_per_report
            now_s = next_step * scenario.step_s
            if progress and not progress(next_step / step_count, _progress_figures(models, now_s)):
                raise Cancelled
    for model in models:
        model.conclude()
    return models


def _progress_figures(models: Sequence[Running], now_s: float) -> dict[str, Any]:
    """Numbers of requests summed over models, by name, and `points`: the first model's curves."""
    curves = models[0].unfolding
    curves.add_point(now_s)
    curve_points = {name: list(values) for name, values in curves.points.items()}
    counts = [request_counts(model.world) for model in models]
    sums = {name: sum(model_numbers[name] for model_numbers in counts) for name in counts[0]}
    return sums | {"points": curve_points}


def request_counts(world: World) -> dict[str, float]:
    """Numbers of arrived, finished, rejected, present and decoding requests so far, by name."""
    counters = world.record.counters
    return {
        "arrived": float(counters[w.ARRIVED]),
        "finished": float(counters[w.FINISHED_DECODE] + counters[w.FINISHED_PREFILL]),
        "rejected": float(counters[w.REJECTED_ROUTER] + counters[w.REJECTED_DECODE]),
        "inside": float(requests_inside(world)),
        "decoding": float(world.decode.in_batch.sum()),
    }


def conclude_model(name: str, setup: Setup, model: Running) -> ModelResult:
    """Tables, figures, checks and notes of the model `name`, whose run has reached the horizon."""
    world = model.machine.world
    capacities = recorder.capacities(setup)
    stamps = recorder.stamps_of(world, int(world.record.counters[w.ARRIVED]))
    present = Present(setup, model.elastic)
    machine, balance, log = model.machine, model.balance, model.events
    tables = recorder.tables(setup, machine, balance, log, capacities, stamps, present)
    totals = steady_totals(setup, world, capacities) | present.totals()
    totals["little_error"] = little_law_gap(world)
    iteration_histogram = ITERATION_EDGES_S, world.record.gaps
    requests, events, npus = tables["requests"], tables["events"], present.npus()
    observed = Observed(setup.scenario, requests, totals, npus, events, iteration_histogram, stamps)
    summary = summarise(observed)
    summary["steady_state"] = steadiness(setup.scenario, tables["windows"])
    checks = [*invariants.check_all(setup, world, tables), model.pool_check]
    if model.elastic is not None:
        checks.append(invariants.npus_not_shared(setup, model.elastic.life))
    if model.cache_check is not None:
        checks.append(model.cache_check)
    notes = list(setup.notes) + remarks(setup, world, summary)
    mean_instances = present.instances(tables["windows"].height)
    return ModelResult(
        name, setup, world.record, capacities, tables, mean_instances, observed, summary, checks,
        notes,
    )  # fmt: skip


def conclude_together(s: Scenario, results: Sequence[ModelResult], facts: Facts) -> Run:
    """Merge the results of several models on one machine into one run; its table `models` has the
    figures of each model."""
    tables, observed = merge_tables(s, results), tuple(result.observed for result in results)
    pool_sizes = np.array([result.pool_gb_per_node for result in results])
    summary = summarise(
        Several(
            s, tables["requests"], totals_of(observed, (pool_sizes / pool_sizes.sum()).tolist()),
            npus_of(observed), tables["events"],
            (observed[0].gaps[0], np.sum([o.gaps[1] for o in observed], axis=0)), parts=observed,
        )
    )  # fmt: skip
    verdicts = [result.summary["steady_state"] for result in results]
    first_state = None if None in verdicts else verdicts[0]
    summary["steady_state"] = next((state for state in UNSTEADY if state in verdicts), first_state)
    checks = [
        replace(check, id=f"{check.id} {model.name}", statement=f"{model.name}: {check.statement}")
        for model in results
        for check in model.checks
    ]
    checks += [
        invariants.within_capacity(tables["windows"]),
        invariants.dies_not_shared(tables["seats"]),
        invariants.figures_finite(tables),
    ]
    tables["models"] = models_table(results)
    notes = [
        note if all(note in other.notes for other in results) else f"{result.name}: {note}"
        for result in results
        for note in result.notes
    ]
    return _make_run(s, facts, summary, tables, checks, list(dict.fromkeys(notes)))


def _make_run(
    s: Scenario, facts: Facts, summary: Summary, tables: dict[str, pl.DataFrame],
    checks: Sequence[invariants.Check], notes: list[str],
) -> Run:  # fmt: skip
    """The run as a value, with the digest of its tables; valid if every check holds."""
    return Run(
        scenario=s, facts_digest=facts.digest, engine_version=ENGINE_VERSION,
        digest=result_digest(tables), summary=summary, tables=tables,
        checks=[asdict(c) for c in checks], notes=notes, valid=all(c.ok for c in checks),
    )  # fmt: skip


def little_law_gap(world: World) -> float:
    """Relative difference of request-seconds in the system by samples at step ends and by
    stamps."""
    request_samples = float(world.record.windows[:-1, w.IN_FRONT_END : w.IN_DECODE + 1].sum())
    arrived = int(world.record.counters[w.ARRIVED])
    arrival_s, end_s = world.request.arrival_s[:arrived], invariants.end_times(world, arrived)
    inside_at_end = arrived - int((end_s <= world.settings.horizon_s).sum())
    inside_at_start = int((arrival_s <= 0.0).sum())
    sampled_s = (request_samples + 0.5 * (inside_at_start - inside_at_end)) * world.settings.step_s
    return relative_gap(sampled_s, stays_s(arrival_s, end_s, world.settings.horizon_s))


def steady_totals(setup: Setup, world: World, limits: dict[str, float]) -> dict[str, float]:
    """Amounts of the steady state and counts of the run, by name; limits: capacities per second."""
    steady_row = world.record.windows[-1]
    counters = world.record.counters
    totals = dict(zip(w.FIELDS, steady_row.tolist(), strict=False))  # operators have no name here
    traffic_bytes = recorded_traffic(world)
    moved_bytes = traffic_bytes.sum(axis=(1, 3))[-1]
    totals |= {f"{name}_amount": float(moved_bytes[plane]) for plane, name in enumerate(w.PLANES)}
    bytes_by_traffic = traffic_bytes.sum(axis=(2, 3))[-1].tolist()
    named_bytes = zip(w.TRAFFIC, bytes_by_traffic, strict=True)
    totals |= {f"{name}_moved": class_bytes for name, class_bytes in named_bytes}
    totals["block_bytes"] = world.settings.block_bytes
    totals["block_tokens"] = float(world.settings.block_tokens)
    totals["inside"] = float(steady_row[w.IN_FRONT_END : w.IN_DECODE + 1].sum())
    totals |= {f"{name}_capacity": limit for name, limit in limits.items()}
    if setup.power:
        power_of_all = {"": setup.power[setup.roles[0]]}
        power_of_role = setup.power if len(setup.roles_by_npu) > 1 else power_of_all
        for role, power in power_of_role.items():
            prefix = f"{role}." if role else ""
            totals |= {prefix + name: float(value) for name, value in asdict(power).items()}
    if len(setup.roles_by_npu) > 1:
        for role, amounts_and_limits in recorder.pool_amounts(setup, steady_row[None]).items():
            for resource, (flops_or_bytes, limit) in zip(
                ("cube", "hbm"), amounts_and_limits, strict=True
            ):
                totals[f"{role}.{resource}_amount"] = float(flops_or_bytes[0])
                totals[f"{role}.{resource}_capacity"] = limit
    totals |= {f"{role}_clock": clock for role, clock in setup.costs.deployed.clocks.items()}
    totals["at_start"] = float(setup.at_start)
    totals["finished"] = float(counters[w.FINISHED_DECODE] + counters[w.FINISHED_PREFILL])
    totals["rejected"] = float(counters[w.REJECTED_ROUTER] + counters[w.REJECTED_DECODE])
    totals["lost"] = float(counters[w.GIVEN_UP])
    totals["cancelled"] = float(counters[w.CANCELLED_BY_CLIENT])
    totals["asked_again"] = float(counters[w.ASKED_AGAIN])
    totals["wasted_tokens"] = float(counters[w.WASTED_TOKENS])
    first_token_s = world.request.transfer_end_s
    begin_s, end_s = setup.scenario.warmup_s, setup.scenario.horizon_s
    is_steady = (first_token_s >= begin_s) & (first_token_s <= end_s)
    totals["first_tokens"] = float(is_steady[setup.at_start :].sum())
    return totals


def remarks(setup: Setup, world: World, summary: Summary) -> list[str]:
    """Sentences that say what the run's figures leave out and which figures are rough."""
    s = setup.scenario
    notes = []
    if s.warmup_s > 0:
        span_text = f"the first {s.warmup_s:g} s of {s.horizon_s:g} s"
        notes.append(f"Steady-state figures leave out {span_text}.")
    if world.record.counters[w.EXHAUSTED] and not s.workload.prompts:
        notes.append(
            "The closed loop ran out of prepared requests: its tail is thinner than asked."
        )
    if (state_name := summary["steady_state"]) in UNSTEADY:
        notes.append(UNSTEADY[str(state_name)])
    requests_steady = int(summary["requests_steady"] or 0)
    if requests_steady == 0:
        notes.append("No request finished after the warm-up: lengthen horizon_s.")
    elif requests_steady < 10 * max(PERCENTILES):
        notes.append(
            f"Only {numbered(requests_steady, 'request')} finished after the warm-up: p99 is a "
            "rough figure."
        )
    running, finished = int(summary["running"] or 0), int(summary["finished"] or 0)
    # A start in the steady state has requests of every age in it, so long stays end there too.
    if running > finished and s.workload.arrivals != "closed_loop" and not setup.at_start:
        notes.append(
            f"{running:,} requests are still inside and {finished:,} finished: the figures are "
            "those of short stays; lengthen horizon_s and warmup_s."
        )
    return notes


def result_digest(tables: dict[str, pl.DataFrame]) -> str:
    """SHA-256 over every table's values, column by column, in a fixed order."""
    tables_hash = hashlib.sha256()
    for name in sorted(tables):
        table = tables[name]
        tables_hash.update(f"{name} {table.height}".encode())
        for column in table.iter_columns():
            dtype = column.dtype
            tables_hash.update(f"{column.name} {dtype}".encode())
            if column.null_count() and not dtype.is_float():  # no figure of a run is NaN
                tables_hash.update(column.is_null().to_numpy().data)
            if isinstance(dtype, pl.Enum):
                tables_hash.update(" ".join(dtype.categories).encode())
            tables_hash.update(_values_as_bytes(column))
    return tables_hash.hexdigest()


def _values_as_bytes(column: pl.Series) -> Any:
    """Values of a column as a buffer, nulls replaced by NaN, 0 or ""."""
    if column.dtype == pl.String:
        return column.fill_null("").str.join("\n").item().encode()
    numbers = column.cat.physical() if isinstance(column.dtype, pl.Enum) else column
    if numbers.null_count():
        numbers = numbers.fill_null(math.nan if numbers.dtype.is_float() else 0)
    return np.ascontiguousarray(numbers.to_numpy())
