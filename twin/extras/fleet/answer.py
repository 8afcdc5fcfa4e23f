"""The answer of a fleet: its runs, supernodes as rows, hour by hour, and what lost ones cost.
Figures are those of all requests in one table: a run of several supernodes counts as often."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from twin.commands.terminal import AsJson, end_with_json, out, print_rows, progress_bar
from twin.extras.fleet.layout import Span, Spans, spans_of
from twin.extras.fleet.question import Fleet, FleetError, Named, load_fleet
from twin.facts import Facts
from twin.lab.library import load_facts
from twin.lab.runs.executor import Runner
from twin.lab.store import RunRow, Store, open_store
from twin.lab.sweep.sweep import Point, run_points
from twin.metrics.hours import hour_s
from twin.metrics.latency import PERCENTILES, mean_and_percentiles, per_second, quotient
from twin.metrics.measures import numbered
from twin.metrics.observed import Observed
from twin.metrics.registry import METRICS, as_text
from twin.scenario import Scenario, npus_used, scenario_digest

COUNTS = ("requests", "finished", "rejected", "lost", "cancelled", "running", "requests_steady",
          "npu_hours", "energy_kwh")  # fmt: skip
COLUMNS = ("requests", "throughput_req_per_s", "slo_attainment", "ttft_s_p99", "tpot_s_p99",
           "npu_hours", "energy_kwh")  # fmt: skip


@dataclass(frozen=True)
class Served:
    """The run of a supernode: its scenario, figures by metric, table of requests and digest."""

    scenario: Scenario
    summary: Mapping[str, Any]
    requests: pl.DataFrame
    digest: str

    @cached_property
    def observed(self) -> Observed:
        """The run as metrics read it; requests in progress at its start are not judged."""
        return Observed.by_requests(self.scenario, self.requests)

    @cached_property
    def ttft_s(self) -> np.ndarray:
        """TTFT of requests whose first token fell in the steady state, f8[n] s."""
        return self.observed.ttft[self.observed.has_first_token]

    @cached_property
    def tpot_s(self) -> np.ndarray:
        """TPOT of requests that finished in the steady state and have one, f8[n] s."""
        return self.observed.tpot[~np.isnan(self.observed.tpot)]

    def hourly_sums(self, begin_s: float, hour_s: float, hours: int) -> dict[str, np.ndarray]:
        """Sums by hour of the fleet, f8[hours] each, of a run that begins at its second `begin_s`:
        'requests' (arrivals), 'finished', 'met' (finished within the SLO), 'tpot_s' (s), 'answers'
        (finished requests that have a TPOT). hour_s: length of an hour; hours: their number."""
        whole_run = Observed(
            self.scenario.model_copy(update={"warmup_s": 0.0}), self.requests,
            self.observed.totals,
        )  # fmt: skip
        arrived_in_run = whole_run.arrived_in_run  # and not at its start
        has_tpot = ~np.isnan(whole_run.tpot) & arrived_in_run
        finish_s = self.requests["finish_s"].to_numpy()[whole_run.is_finished]
        arrival_s = self.requests["arrival_s"].to_numpy()[whole_run.at_start :]
        times_and_weights = {
            "requests": (arrival_s, None), "finished": (finish_s[arrived_in_run], None),
            "met": (finish_s[arrived_in_run], whole_run.within_slo[arrived_in_run]),
            "answers": (finish_s[has_tpot], None),
            "tpot_s": (finish_s[has_tpot], whole_run.tpot[has_tpot]),
        }  # fmt: skip
        return {
            quantity: np.bincount(
                np.minimum((begin_s + times_s) / hour_s, hours - 1).astype(np.int64), weights,
                minlength=hours,
            ).astype(np.float64)
            for quantity, (times_s, weights) in times_and_weights.items()
        }  # fmt: skip


def merged_figures(runs: Sequence[tuple[int, Served]], steady_s: float) -> dict[str, Any]:
    """Figures by the keys of a summary over `steady_s` s; runs: (number of supernodes, run)."""
    sums = {
        key: _weighted_sum([(count, run.summary.get(key)) for count, run in runs]) for key in COUNTS
    }
    met_count = sum(count * run.observed.met_count for count, run in runs)
    tokens_per_s, mean_npus, cost, steady_cost = 0.0, 0.0, 0.0, 0.0
    for count, run in runs:
        observed, run_weight = run.observed, count * (run.observed.steady_s / steady_s)
        tokens_per_s += run_weight * (run.summary.get("output_tokens_per_s") or 0.0)
        mean_npus += run_weight * (run.summary.get("npus") or 0.0)
        run_cost = count * observed.price_per_npu_hour * (run.summary.get("npu_hours") or 0.0)
        cost += run_cost
        steady_cost += run_cost * observed.steady_s / run.scenario.horizon_s
    output_tokens, kwh = tokens_per_s * steady_s, sums["energy_kwh"]
    return {
        **sums,
        "throughput_req_per_s": per_second(float(sums["requests_steady"] or 0.0), steady_s),
        "goodput_req_per_s": per_second(met_count, steady_s),
        "slo_attainment": quotient(met_count, float(sums["requests_steady"] or 0.0)),
        "output_tokens_per_s": tokens_per_s,
        "tokens_per_s_per_npu": quotient(tokens_per_s, mean_npus),
        **merged_percentiles([(count, run.ttft_s) for count, run in runs], "ttft_s"),
        **merged_percentiles([(count, run.tpot_s) for count, run in runs], "tpot_s"),
        "joules_per_token": quotient(3.6e6 * kwh, output_tokens) if kwh is not None else None,
        "cost": cost or None,
        "cost_per_million_tokens": quotient(1e6 * steady_cost, output_tokens) if cost else None,
    }


def _weighted_sum(figures: Sequence[tuple[int, float | None]]) -> float | None:
    """Sum of figures (number of supernodes, figure of each); None if one has no figure."""
    if any(figure is None for _, figure in figures):
        return None
    return sum(count * figure for count, figure in figures if figure is not None)


def merged_percentiles(
    counted: Sequence[tuple[int, np.ndarray]], prefix: str
) -> dict[str, float | None]:
    """Mean and percentiles by the keys of `mean_and_percentiles`, as `prefix`_p50; counted: (count,
    sample f8[n]), each sample being there `count` times.

    >>> merged_percentiles([(2, np.array([1.0])), (1, np.array([4.0]))], "ttft_s")["ttft_s_p50"]
    1.0"""
    all_values = np.concatenate([np.zeros(0), *(sample for _, sample in counted)])
    if not all_values.size:
        return mean_and_percentiles(all_values, prefix)
    copies = np.concatenate([np.full(sample.size, count) for count, sample in counted])
    value_order = np.argsort(all_values, kind="stable")
    sorted_values, count_up_to = all_values[value_order], np.cumsum(copies[value_order])
    positions = (count_up_to[-1] - 1) * (np.array(PERCENTILES) / 100)
    lower_rank = np.floor(positions)
    low_values, high_values = (
        sorted_values[np.searchsorted(count_up_to, np.minimum(rank, count_up_to[-1] - 1), "right")]
        for rank in (lower_rank, lower_rank + 1)
    )
    fraction, value_gap = positions - lower_rank, high_values - low_values
    percentiles = np.where(
        fraction < 0.5,
        low_values + value_gap * fraction,
        high_values - value_gap * (1.0 - fraction),
    )
    mean_value = sum(n * float(sample.sum()) for n, sample in counted) / int(count_up_to[-1])
    keys = [f"{prefix}_mean", *(f"{prefix}_p{percent}" for percent in PERCENTILES)]
    return dict(zip(keys, [mean_value, *map(float, percentiles)], strict=True))


HOURS = 24  # of a run that has no hours of its own


@dataclass(frozen=True, slots=True)
class FleetScenarios:
    """Scenarios of a fleet, with its losses and without; missing: those without a run so far."""

    fleet: Fleet
    spans: Spans
    no_loss: Spans | None
    missing: tuple[Scenario, ...] = ()

    def scenarios(self) -> list[Scenario]:
        """All distinct scenarios of the fleet that are known so far."""
        no_loss_scenarios = self.no_loss.scenario_by_digest if self.no_loss else {}
        return list((no_loss_scenarios | self.spans.scenario_by_digest).values())


def find_scenarios(
    fleet: Fleet, named: Named, facts: Facts, requests_left: Callable[[Scenario], int | None]
) -> FleetScenarios:
    """Scenarios of a fleet known so far; named: finds a scenario by name; requests_left: number of
    unfinished ones at the end of a scenario's run, None: not run. Raises FleetError, SpecError."""
    spans, no_loss_spans = spans_of(fleet, named, facts, requests_left), None
    if fleet.lost:
        no_loss_fleet = fleet.model_copy(update={"lost": ()})
        no_loss_spans = spans_of(no_loss_fleet, named, facts, requests_left, starts_empty=True)
    known = FleetScenarios(fleet, spans, no_loss_spans)
    missing = tuple(s for s in known.scenarios() if requests_left(s) is None)
    return replace(known, missing=missing)


def fleet_answer(
    fleet: Fleet, named: Named, run: Callable[[Sequence[Scenario]], Iterator[Served]],
    facts: Facts | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The answer of a fleet as plain values; named: finds a scenario by name; run: simulates
    scenarios and yields their runs. Raises FleetError, SpecError."""
    run_by_digest: dict[str, Served] = {}  # by the digest of their scenario

    def requests_left(s: Scenario) -> int | None:
        """Number of unfinished requests at the end of a scenario's run; None without a run."""
        done_run = run_by_digest.get(scenario_digest(s))
        return None if done_run is None else int(done_run.summary["running"])

    facts = facts or load_facts()
    while (scenarios := find_scenarios(fleet, named, facts, requests_left)).missing:
        for scenario, done_run in zip(scenarios.missing, run(scenarios.missing), strict=True):
            run_by_digest[scenario_digest(scenario)] = done_run
    return merged_answer(scenarios, run_by_digest)


def stored_run(store: Store, row: RunRow, scenario: Scenario) -> Served:
    """A run of the store with its table of requests; raises FleetError if it is not finished."""
    if row.state != "done":
        raise FleetError(f"the run {row.id} of {scenario.name} {row.state}: {row.message}")
    table = store.runs.table(row.id, "requests")
    columns = [name for name in table.columns if name.endswith("_s")]  # stamps
    columns += [name for name in ("output_tokens", "tenant") if name in table.columns]
    return Served(scenario, row.summary | {"run": row.id}, table.select(columns), row.result_digest)


def run_finder(
    store: Store, runner: Runner, watch: Callable[[float, Mapping[str, Any]], object]
) -> Callable[[Sequence[Scenario]], Iterator[Served]]:
    """A function that yields a run of each scenario, stored or simulated by `runner`; watch: called
    with the finished share and {"runs": finished ones}."""

    def run(scenarios: Sequence[Scenario]) -> Iterator[Served]:
        """Yield the run of each scenario in order; simulates those not stored, reports progress."""
        run_rows = run_points(runner, [Point((), scenario) for scenario in scenarios])
        for done_count, (scenario, row) in enumerate(zip(scenarios, run_rows, strict=True), 1):
            assert row is not None
            watch(done_count / len(scenarios), {"runs": done_count})
            yield stored_run(store, row, scenario)

    return run


def merged_answer(found: FleetScenarios, runs: Mapping[str, Served]) -> dict[str, Any]:
    """The answer of a fleet as plain values; runs: those of all its scenarios, by their digest."""
    layout, traffic = found.spans.layout, found.spans.layout.traffic
    steady_s = traffic.horizon_s - traffic.warmup_s
    hour_length_s = hour_s(traffic) or traffic.horizon_s / HOURS
    hour_count = int(np.ceil(traffic.horizon_s / hour_length_s - 1e-9))
    served_spans = _runs_of_spans(found.spans, runs)
    unit_rows = []
    for unit_index, unit in enumerate(layout.units):
        runs_of_unit = [
            (span.begin_s, run) for _, span, run in served_spans if span.unit == unit_index
        ]
        unit_runs, kind = [run for _, run in runs_of_unit], found.fleet.kinds[unit.kind]
        others_text = f" and {unit.count - 1} alike" if unit.count > 1 else ""
        unit_rows.append({
            "name": f"{kind.name} {unit.numbers[0]}{others_text}", "kind": kind.name,
            "region": kind.region, "numbers": list(unit.numbers), "supernodes": unit.count,
            "seed": unit.seed, "lost_at": [list(span) for span in unit.lost],
            "runs": [run.summary.get("run") for run in unit_runs],
            **(merged_figures([(1, run) for run in unit_runs], steady_s) if unit_runs else {}),
            **_hourly_figures(runs_of_unit, hour_length_s, hour_count),
        })  # fmt: skip
        if not runs_of_unit:
            npu_s = npus_used(layout.kinds[unit.kind]) * traffic.horizon_s
            unit_rows[-1]["npu_hours"] = npu_s / 3600.0
    summary = merged_figures([(count, run) for count, _, run in served_spans], steady_s)
    units_and_rows = zip(layout.units, unit_rows, strict=True)
    if idle_rows := [row for unit, row in units_and_rows if unit.tenants == ()]:
        summary["npu_hours"] += sum(row["supernodes"] * row["npu_hours"] for row in idle_rows)
        summary |= {"energy_kwh": None, "joules_per_token": None}
    no_loss_summary = None
    if found.no_loss is not None:
        no_loss_runs = _runs_of_spans(found.no_loss, runs)
        no_loss_summary = merged_figures([(count, run) for count, _, run in no_loss_runs], steady_s)
    run_texts = sorted(
        f"{count} {span.begin_s!r} {run.digest}" for count, span, run in served_spans
    )
    return {
        "name": found.fleet.name, "supernodes": found.fleet.supernodes,
        "runs": len(found.scenarios()),
        "digest": hashlib.sha256("\n".join(run_texts).encode()).hexdigest(),
        "hour_s": hour_length_s,
        "began_again": sum(burst.requests for burst in layout.bursts),
        "summary": summary, "without_loss": no_loss_summary, "rows": unit_rows,
    }  # fmt: skip


def answer_in_words(answer: Mapping[str, Any]) -> list[str]:
    """Sentences on the answer: finished requests, and what lost supernodes cost."""
    summary, no_loss = answer["summary"], answer["without_loss"]
    requests = summary["requests"] - answer["began_again"]  # those have a row in two runs
    sentences = [
        f"{numbered(answer['supernodes'], 'supernode')} answered {summary['finished']:,} of "
        f"{numbered(requests, 'request')} by the end, from "
        f"{numbered(answer['runs'], 'different simulation')}."
    ]
    if not no_loss:
        return sentences
    figures_text = ", ".join(
        f"{METRICS[key].label} {as_text(key, summary[key])} instead of {as_text(key, no_loss[key])}"
        for key in ("goodput_req_per_s", "slo_attainment", "ttft_s_p99", "tpot_s_p99")
        if as_text(key, summary[key]) != as_text(key, no_loss[key])
        and None not in (summary[key], no_loss[key])
    )
    npu_hours_lost = (no_loss["npu_hours"] or 0.0) - (summary["npu_hours"] or 0.0)
    sentences.append(
        f"{npu_hours_lost:,.3g} NPU-hours were out of service; "
        f"{numbered(answer['began_again'], 'request')} under way began again elsewhere."
        f"{f' {figures_text}.' if figures_text else ''}"
    )
    return sentences


def _runs_of_spans(spans: Spans, runs: Mapping[str, Served]) -> list[tuple[int, Span, Served]]:
    """(number of supernodes, span, run) of each span of time in which equal supernodes serve one
    scenario; runs: by digest of their scenarios."""
    return [
        (spans.layout.units[span.unit].count, span, runs[scenario_digest(span.scenario)])
        for span in spans.spans
    ]


def _hourly_figures(
    runs: Sequence[tuple[float, Served]], hour_s: float, hours: int
) -> dict[str, Any]:
    """Figures of a supernode in each of `hours` hours of `hour_s` s, from its runs (begin s, run):
    requests per second, mean TPOT (s), share of finished requests within the SLO; the last two are
    None where nothing finished."""
    run_sums = [run.hourly_sums(begin_s, hour_s, hours) for begin_s, run in runs]
    totals = {name: sum((sums[name] for sums in run_sums), np.zeros(hours))
             for name in ("requests", "finished", "met", "tpot_s", "answers")}  # fmt: skip

    def ratios(numerator: str, denominator: str) -> list[float | None]:
        """Ratio of two of `totals`, by name, in each hour; None where the denominator is 0."""
        return list(map(quotient, totals[numerator].tolist(), totals[denominator].tolist()))

    req_per_s = (totals["requests"] / hour_s).tolist()
    tpot_s, slo_share = ratios("tpot_s", "answers"), ratios("met", "finished")
    return {"hours": {"rate_req_per_s": req_per_s, "tpot_s": tpot_s, "slo_attainment": slo_share}}


def fleet(
    file: Annotated[Path, typer.Argument(help="A fleet file (.toml), as data/examples has them.")],
    processes: Annotated[int, typer.Option(
        min=0, max=64, help="Runs at a time on this machine; 0: as many as fit.")] = 0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Simulate supernodes behind a front router; each different one is run once and stored."""
    loaded_fleet, scenario_of = load_fleet(file)
    with (
        closing(open_store()) as store, progress_bar(loaded_fleet.name) as watch,
        closing(Runner(store, processes=processes or None, standby=0).start()) as runner,
    ):  # fmt: skip
        answer = fleet_answer(loaded_fleet, scenario_of, run_finder(store, runner, watch))
    end_with_json(answer, as_json)
    fleet_row = answer["summary"] | {"name": "the fleet", "supernodes": answer["supernodes"]}
    fleet_rows = [
        (row["name"], str(row["supernodes"]), *(as_text(key, row.get(key)) for key in COLUMNS))
        for row in (*answer["rows"], fleet_row)
    ]
    headers = ("each of", "supernodes", *(METRICS[key].tile for key in COLUMNS))
    print_rows(answer["name"], headers, fleet_rows)
    for sentence in answer_in_words(answer):
        out.print(sentence)
