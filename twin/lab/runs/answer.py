"""An answer to a question, here and now, as one object for the command line."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from twin.engine.simulate import Run, simulate
from twin.lab import controllers
from twin.lab.explain.explain import as_json
from twin.lab.kinds import COUNTS, MACHINE
from twin.lab.library import load_facts
from twin.lab.runs.budget import estimate_budget, require_fits
from twin.lab.runs.executor import Runner
from twin.lab.runs.job import EXPLAIN, Watch
from twin.lab.runs.runner import find_or_run, run_now, run_or_scenario
from twin.lab.store import RunRow, open_store
from twin.lab.sweep import sweep
from twin.lab.sweep.compare import LEAST, Comparison, check_run_count, compare, reseed, with_pairs
from twin.metrics.clients import tenant_rows
from twin.metrics.observed import Observed
from twin.policies.controllers import set_controller_loader
from twin.scenario import Scenario, SpecError, scenario_digest
from twin.workload.requests import TraceTable


def answer_scenario(
    scenario: Scenario, trace: TraceTable | None, watch: Watch, *, keep: bool = True,
    tables: Sequence[str] = (), on_run: Callable[[Run], object] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Simulate a scenario in this process; returns its figures as one object. keep: store the run;
    watch: gets progress; tables: names of tables included as rows; on_run: called with the run.
    Raises ValueErrors of the simulation, SpecError for an unknown table."""
    start_s, run_id = time.perf_counter(), ""
    if keep:
        with closing(open_store()) as store:
            if trace is not None:
                store.traces.save(trace)
            run_id, run = run_now(store, scenario, watch=watch)
    else:
        facts, imported_counts = load_facts(), _load_named_values(scenario)
        require_fits(estimate_budget(scenario, facts, len(trace) if trace is not None else 0))
        run = simulate(scenario, facts, trace, watch, imported_counts)
    if missing_tables := [name for name in tables if name not in run.tables]:
        table_names = ", ".join(sorted(run.tables))
        raise SpecError(f"this run has no table {missing_tables[0]}; it has {table_names}")
    on_run(run)
    request_table = run.tables.get("requests")
    answer_fields: dict[str, Any] = {
        "run": run_id or None, "scenario": scenario_digest(scenario), "digest": run.digest,
        "wall_s": round(time.perf_counter() - start_s, 3),
        "requests": int(run.summary["requests"] or 0), "name": scenario.name, "valid": run.valid,
        "broken_checks": [check for check in run.checks if not check["ok"]],
        "notes": list(run.notes), "summary": dict(run.summary),
    }  # fmt: skip
    if scenario.tenants and request_table is not None:
        answer_fields["tenants"] = tenant_rows(Observed.by_requests(scenario, request_table))
    if scenario.models:
        answer_fields["models"] = run.tables["models"].to_dicts()
    if tables:
        answer_fields["tables"] = {name: run.tables[name].to_dicts() for name in tables}
    return answer_fields


def _load_named_values(scenario: Scenario) -> np.ndarray | None:
    """Load the controllers and the machine that a scenario names; returns its imported expert
    counts, f8[layers, experts], or None. Raises StoreError."""
    set_controller_loader(controllers.load_controller)
    if not (COUNTS.named(scenario) or MACHINE.named(scenario)):
        return None
    with closing(open_store()) as store:
        if scenario.supernode.imported:
            store.machines.load(scenario.supernode.machine)
        imported_counts = store.counts.value_of(scenario)
    return None if imported_counts is None else imported_counts.counts


def compare_by_name(
    names: Sequence[str], watching: Callable[[str], Watch], seeds: int = 1
) -> Comparison:
    """Comparison of runs by id, preset or file, the first as baseline; missing runs are simulated.
    watching: progress function for a name; seeds: runs of each scenario, from LEAST on with
    confidence intervals of the differences."""
    check_run_count(len(names))
    with closing(open_store()) as store:
        runs_and_scenarios = [run_or_scenario(store, name) for name in names]  # none is run yet
        run_rows = [
            row or find_or_run(store, scenario, watching(name))
            for name, (row, scenario) in zip(names, runs_and_scenarios, strict=True)
        ]
        scenarios = [scenario for _, scenario in runs_and_scenarios]
        comparison = compare(run_rows, scenarios)
        if seeds < LEAST:
            return comparison
        return with_pairs(comparison, [
            [find_or_run(store, copy, watching(name)).summary for copy in copies]
            for name, copies in zip(names, reseed(scenarios, 0, seeds), strict=True)
        ])  # fmt: skip


def explain_run(
    name: str, settings: Sequence[str], trace: Path | None, watch: Callable[[str], Watch]
) -> dict[str, Any]:
    """Explanation of a run (id) or scenario (preset or file) as a dict; it is stored and reused.
    Raises ValueErrors."""
    with closing(open_store()) as store:
        _, scenario = run_or_scenario(store, name, settings, trace)
        run_row = find_or_run(store, scenario, watch(scenario.name), EXPLAIN)
        head_fields = {"scenario": run_row.scenario, "name": scenario.name, "run": run_row.id}
        tables = (store.runs.table(run_row.id, name) for name in ("causes", "waterfall"))
        return head_fields | as_json(run_row.summary, *tables)


def sweep_fields(scenario: Scenario, over: Sequence[str], watch: Watch) -> dict[str, Any]:
    """Simulate a sweep over one or two fields; returns `over`, `conclusion` and `points`. over: a
    text for each field, as `parse_axis` reads it."""
    axes = [sweep.parse_axis(axis_text) for axis_text in over]
    points = sweep.points(scenario, axes)
    run_rows: list[RunRow | None] = []
    with closing(open_store()) as store, closing(Runner(store, standby=0).start()) as runner:
        for run_row in sweep.run_points(runner, points):
            run_rows.append(run_row)
            watch(len(run_rows) / len(points), {"points": len(run_rows)})
    scenarios = [point.scenario or scenario for point in points]
    summaries = [run_row.summary if run_row else {} for run_row in run_rows]
    conclusion = sweep.conclusion(axes[0], scenarios, summaries) if len(axes) == 1 else ""
    point_rows = sweep.result_rows(axes, points, run_rows)
    return {"over": [axis.text for axis in axes], "conclusion": conclusion, "points": point_rows}
