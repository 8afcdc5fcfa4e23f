"""The five functions of `import twin`: load, predict, simulate, sweep and plan. They work in this
process, store nothing, and their answers show as tables in a notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from twin.engine import simulate as engine
from twin.lab.ask import scenario_named, with_settings, with_trace
from twin.lab.library import load_facts
from twin.lab.plan.answer import answer_sentences, brief_text
from twin.lab.plan.drive import carry_out
from twin.lab.plan.question import default_goal, plan_from
from twin.lab.runs.predicted import predict_all
from twin.lab.sweep.sweep import Axis, label_of, meets_slo, points
from twin.lab.traces.reader import read_trace
from twin.metrics.registry import as_text, metrics_at
from twin.scenario import Scenario, parse_scenario

Rows = Sequence[tuple[str, ...]]


class Run(engine.Run):
    """A run that shows its headline figures in a notebook; everything else is the engine's."""

    def _repr_markdown_(self) -> str:
        """Headline figures of the run as a table in Markdown."""
        metrics = [
            metric
            for metric in metrics_at("table")
            if metric.shows("table", self.summary.get(metric.key))
        ]
        figure_rows = [
            (metric.key, as_text(metric.key, self.summary[metric.key])) for metric in metrics
        ]
        return _to_markdown(self.scenario.name, ("figure", "value"), figure_rows, self.notes)


class Prediction(dict[str, Any]):
    """The answer by formula, as `python -m twin predict --json` prints it."""

    def _repr_markdown_(self) -> str:
        """The predicted figures as a table in Markdown."""
        figure_rows = [(key, as_text(key, value)) for key, value in self["summary"].items()]
        return _to_markdown(f"{self['name']}, by formula", ("figure", "value"), figure_rows,
                         (self["advice"], *self["errors"]))  # fmt: skip


class Plan(dict[str, Any]):
    """The answer of a plan, as `python -m twin plan --json` prints it."""

    def _repr_markdown_(self) -> str:
        """The ranked deployments as a table in Markdown."""
        deployment_rows = [
            (str(deployment["rank"]), brief_text(deployment["settings"]), f"{deployment['npus']:,}",
             *(as_text(key, deployment["summary"][key]) for key in PLANNED))
            for deployment in self["ranked"]
        ]  # fmt: skip
        heads = ("", "deployment", "NPUs", *PLANNED)
        return _to_markdown("What to deploy", heads, deployment_rows, answer_sentences(self))


PLANNED = ("tokens_per_s_per_npu", "tpot_s_mean", "ttft_s_p99")


def load(
    scenario: str | Path | Mapping[str, Any] = "quickstart",
    settings: Mapping[str, Any] | None = None,
) -> Scenario:
    """A scenario from a preset's key, a TOML file or nested values; settings: new values by field
    path. Raises SpecError, a ValueError, whose sentence says what is wrong and what would be right.

    >>> load("quickstart", {"workload.rate_req_per_s": 120}).workload.rate_req_per_s
    120.0
    """
    if isinstance(scenario, Mapping):
        return with_settings(parse_scenario(dict(scenario)), dict(settings or {}))
    return with_settings(scenario_named(str(scenario)), dict(settings or {}))


def predict(scenario: Scenario) -> Prediction:
    """The steady state by formula, found in milliseconds: `summary` (SI units), seconds by
    operator, advice, known errors. Raises ValueError where the deployment does not fit."""
    return Prediction(predict_all(scenario))


def simulate(scenario: Scenario, trace: str | Path | None = None) -> Run:
    """Serve the scenario's workload, or a trace, request by request: a run with `summary` (SI
    units), `tables` (polars data frames), `checks` and a `digest`; equal scenarios give equal
    bytes. Raises ValueError if the deployment does not fit, TraceError for an unreadable line."""
    trace_table = None
    if trace is not None:
        trace_table = read_trace(Path(trace))
        scenario = with_trace(scenario, trace_table)
    run = engine.simulate(scenario, load_facts(), trace_table)
    return Run(**{field.name: getattr(run, field.name) for field in fields(run)})


def sweep(scenario: Scenario, over: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Simulate every value of one field, or pair of values of two (`over`: values by path); a row
    for each: fields, `slo_kept`, `why` it has no run, summary (SI units). Raises SpecError for an
    unknown field or too many points."""
    axes = [Axis(path, tuple(values)) for path, values in over.items() if label_of(path)]
    facts, point_rows = load_facts(), []
    for point in points(scenario, axes):
        point_row: dict[str, Any] = {
            axis.path: axis_value for axis, axis_value in zip(axes, point.values, strict=True)
        }
        point_row |= {"slo_kept": None, "why": point.refusal}
        if point.scenario is not None:
            try:
                summary = engine.simulate(point.scenario, facts).summary
                point_row |= {"slo_kept": meets_slo(point.scenario, summary), **summary}
            except ValueError as refusal:  # it does not fit: the sweep goes on
                point_row["why"] = str(refusal)
        point_rows.append(point_row)
    return pl.DataFrame(point_rows, infer_schema_length=None)


def plan(scenario: Scenario, **limits: Any) -> Plan:
    """What to deploy for a scenario: deployments priced by formula, proved by simulation, ranked.
    limits: `goal` (npus, efficiency or rate), `npus`, `power_kw`, `cost_per_million_tokens`,
    `survives` (die, node, sub_plane, memory_server), `vary`, `more`, `simulations`, `seconds`, as
    docs/PLAN.md has them. Raises PlanError, a ValueError, for an unknown or impossible limit."""
    return Plan(carry_out(plan_from(scenario, {"goal": default_goal(scenario)} | limits)))


def _to_markdown(title: str, heads: tuple[str, ...], rows: Rows, sentences: Sequence[str]) -> str:
    """A table in Markdown with a title, and sentences as a list after it."""
    lines = [f"**{title}**", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in sentences)])
