"""Sweeps: simulations over values of one or two fields, which keep the SLO, and the knee."""

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twin.hardware.chip import HardwareError
from twin.lab.ask import with_settings
from twin.lab.evidence.rows import load_published
from twin.lab.explain import view
from twin.lab.explain.view import has_one_slo
from twin.lab.runs.executor import Runner
from twin.lab.store import RunRow
from twin.lab.sweep.compare import is_number
from twin.metrics.registry import METRICS, Metric, as_text, metrics_at
from twin.scenario import Scenario, SpecError, field_info, value_of
from twin.scenario.words import choice_label, no_field_sentence

AXES_MAX, POINTS_MAX = 2, 64
FIGURES = 3  # of a value between two ends: 116.66667 requests per second would say no more
ATTAINED = "slo_attainment"  # what keeps its SLO where requests differ in it
P99 = 0.99  # of the requests are within a p99
SLOS = [metric for metric in METRICS.values() if metric.slo is not None]


@dataclass(frozen=True, slots=True)
class Axis:
    """A field and its values."""

    path: str
    values: tuple[Any, ...]

    @property
    def label(self) -> str:
        """The field's label."""
        return label_of(self.path)

    def text_of(self, value: Any) -> str:
        """One value of the axis as text with its unit."""
        field = field_info(self.path)
        unit = field.unit if field else ""
        value_text = f"{value:,.6g}" if is_number(value) else choice_label(self.path, value)
        return f"{value_text} {unit}".rstrip()

    @property
    def text(self) -> str:
        """The axis as text that `parse_axis` reads."""
        return f"{self.path}={','.join(_value_text(axis_value) for axis_value in self.values)}"


@dataclass(frozen=True, slots=True)
class Point:
    """The scenario at one value of each axis, or why there is none."""

    values: tuple[Any, ...]
    scenario: Scenario | None
    refusal: str = ""


def label_of(path: str) -> str:
    """The label of a field that exists; raises SpecError."""
    field = field_info(path)
    if field is None:
        raise SpecError(no_field_sentence(path))
    return field.label


def parse_axis(text: str) -> Axis:
    """An axis from text: FIELD=FROM:TO:POINTS, with :log at the end for even ratios, or
    FIELD=A,B,C.

    >>> parse_axis("workload.rate_req_per_s=50:200:4").values
    (50.0, 100.0, 150.0, 200.0)
    >>> parse_axis("deployment.prefill.instances=2:32:5:log").values
    (2, 4, 8, 16, 32)
    >>> parse_axis("deployment.placement=packed,spread").text
    'deployment.placement=packed,spread'
    """
    path, _, values_text = text.partition("=")
    path = path.strip()
    label_of(path)
    range_parts = values_text.split(":")
    if len(range_parts) in (3, 4) and range_parts[3:] in ([], ["log"]):
        try:
            begin, end, count = float(range_parts[0]), float(range_parts[1]), int(range_parts[2])
        except ValueError:
            raise SpecError(_usage_sentence(path)) from None
        return spaced_axis(path, begin, end, count, log=len(range_parts) == 4)
    axis_values = [
        _read_value(path, word.strip()) for word in values_text.split(",") if word.strip()
    ]
    return _axis_of(path, axis_values)


def spaced_axis(path: str, begin: float, end: float, count: int, *, log: bool = False) -> Axis:
    """Axis of `count` values from `begin` to `end`, evenly or (log) in ratios; raises SpecError."""
    field = field_info(path)
    if field is None or field.kind not in (int, float) or not 2 <= count <= POINTS_MAX:
        raise SpecError(_usage_sentence(path))
    if not (math.isfinite(begin) and math.isfinite(end)) or (log and min(begin, end) <= 0):
        raise SpecError(_usage_sentence(path))
    space_values = np.geomspace if log else np.linspace
    axis_values = [float(axis_value) for axis_value in space_values(begin, end, count)]
    inner_values = [float(f"{axis_value:.{FIGURES}g}") for axis_value in axis_values[1:-1]]
    return _axis_of(path, [field.kind(round(value) if field.kind is int else value) for value in
                        (axis_values[0], *inner_values, axis_values[-1])])  # fmt: skip


def _axis_of(path: str, values: Sequence[Any]) -> Axis:
    """An axis of the distinct values. Raises SpecError for fewer than two."""
    distinct_values = tuple(dict.fromkeys(values))
    if len(distinct_values) < 2:
        raise SpecError(_usage_sentence(path))
    return Axis(path, distinct_values)


def _usage_sentence(path: str) -> str:
    """A sentence on how a person writes a sweep of a field."""
    return (
        f"a sweep of {path} needs two to {POINTS_MAX} values: {path}=FROM:TO:POINTS for a number, "
        f"{path}=A,B,C for any"
    )


def _read_value(path: str, word: str) -> Any:
    """A field's value from a word; raises SpecError for a word that is no number but must be."""
    field = field_info(path)
    field_type = field.kind if field else str
    if field_type is bool:
        return {"true": True, "on": True, "false": False, "off": False}.get(word.lower(), word)
    if field_type in (int, float):
        try:
            return field_type(word)
        except ValueError:
            raise SpecError(_usage_sentence(path)) from None
    return word


def _value_text(value: Any) -> str:
    """A value as text that `parse_axis` reads."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if is_number(value) else str(value)


def points(
    scenario: Scenario, axes: Sequence[Axis], name: Callable[[Scenario], Scenario] | None = None
) -> list[Point]:
    """Points of a sweep; values of the last axis change fastest. name: gives a point's scenario its
    name (None: from its values). Raises SpecError."""
    if not 1 <= len(axes) <= AXES_MAX or len({axis.path for axis in axes}) < len(axes):
        raise SpecError("a sweep goes over one field, or over two different ones")
    point_count = math.prod(len(axis.values) for axis in axes)
    if point_count > POINTS_MAX:
        raise SpecError(f"this sweep has {point_count} points: at most {POINTS_MAX} can be")
    new_points = []
    for point_values in itertools.product(*(axis.values for axis in axes)):
        try:
            path_values = zip((axis.path for axis in axes), point_values, strict=True)
            point_scenario = with_settings(scenario, dict(path_values))
        except (SpecError, HardwareError) as error:
            new_points.append(Point(point_values, None, str(error)))
            continue
        point_scenario = name(point_scenario) if name else _rename(point_scenario, scenario, axes)
        new_points.append(Point(point_values, point_scenario))
    return new_points


def _rename(point_scenario: Scenario, origin: Scenario, axes: Sequence[Axis]) -> Scenario:
    """The scenario of a point, named after the values that differ from the sweep's scenario."""
    change_texts = [
        f"{axis.label} {axis.text_of(point_value)}"
        for axis in axes
        if (point_value := value_of(point_scenario, axis.path)) != value_of(origin, axis.path)
    ]
    new_name = " · ".join([origin.name, *change_texts])[:80]
    return point_scenario.model_copy(update={"name": new_name})


def run_points(runner: Runner, points: Sequence[Point]) -> Iterator[RunRow | None]:
    """Queue a run for each point, then yield its row in order once it has ended; None for a point
    without a scenario. Raises StoreError."""
    run_ids = [runner.submit(point.scenario) if point.scenario else None for point in points]
    for run_id in run_ids:
        ended_row = None
        while run_id is not None and ended_row is None:
            ended_row = runner.wait_for(run_id, 5.0)
        yield ended_row


def broken_limits(scenario: Scenario, summary: dict[str, Any]) -> list[tuple[Metric, float]]:
    """(metric, limit in SI) of each figure that misses the SLO: p99 values, or the share that met
    it; empty if the SLO is met or there are no figures."""
    if meets_slo(scenario, summary) is not False:
        return []
    required_share = scenario.slo.share
    metric_limits = [(metric, metric.slo(scenario) if metric.slo else math.inf) for metric in SLOS]
    limits_broken = [
        (metric, metric_limit)
        for metric, metric_limit in metric_limits
        if (figure := summary.get(metric.key)) is not None and figure > metric_limit
    ]
    p99_decides = has_one_slo(scenario) and required_share >= P99
    return limits_broken if p99_decides and limits_broken else [(METRICS[ATTAINED], required_share)]


def meets_slo(scenario: Scenario, summary: dict[str, Any]) -> bool | None:
    """Whether a run meets its whole SLO; None without figures."""
    if summary.get("steady_state") != "overloaded" and summary.get(ATTAINED) is None:
        return None
    return view.slo_met(summary, scenario)


def knees(met: Sequence[bool | None]) -> list[int]:
    """Indices of the points before each change between SLO met and missed; met: None if unknown."""
    judged_indices = [i for i, is_met in enumerate(met) if is_met is not None]
    return [i for i, next_index in itertools.pairwise(judged_indices) if met[i] != met[next_index]]


def conclusion(
    axis: Axis, scenarios: Sequence[Scenario], summaries: Sequence[dict[str, Any]]
) -> str:
    """Sentence on where a sweep of one field meets its SLO; '' with fewer than two known points."""
    scenario_summaries = list(zip(scenarios, summaries, strict=True))
    are_met = [meets_slo(scenario, summary) for scenario, summary in scenario_summaries]
    known_indices = [i for i, is_met in enumerate(are_met) if is_met is not None]
    if len(known_indices) < 2:
        return ""
    change_indices, value_texts = knees(are_met), [axis.text_of(value) for value in axis.values]
    if not change_indices:
        verdict = "The SLO holds" if are_met[known_indices[0]] else "The SLO is not met"
        first_index, last_index = known_indices[0], known_indices[-1]
        return f"{verdict} anywhere from {value_texts[first_index]} to {value_texts[last_index]}."
    index_before = change_indices[0]  # of the last value before the first change
    next_index = next(i for i in known_indices if i > index_before)
    met_index, miss_index = sorted((index_before, next_index), key=lambda i: not are_met[i])
    metric, broken_limit = broken_limits(*scenario_summaries[miss_index])[0]
    figure = as_text(metric.key, summaries[miss_index][metric.key])
    limit_text = as_text(metric.key, broken_limit)
    reason = f"at {value_texts[miss_index]} {metric.label} is {figure}, {limit_text} is the limit"
    direction = "up to" if are_met[index_before] else "from"
    change_count = len(change_indices)
    change_text = "" if change_count == 1 else f" It changes {change_count} times along the way."
    return f"Holds its SLO {direction} {value_texts[met_index]}; {reason}.{change_text}"


@dataclass(frozen=True, slots=True)
class Published:
    """A published operating point of decode: tokens/s per user and per NPU."""

    name: str
    tpot_s: float
    tokens_per_s_per_npu: float
    source: str


def published_points() -> list[Published]:
    """Operating points with a published TPOT and a published throughput per NPU."""
    published_rows = load_published()
    row_by_stem = {
        row.id.removesuffix("-tput"): row for row in published_rows if row.id.endswith("-tput")
    }
    return [
        Published(
            f"{row.system}, {row.value:g} ms", 1e-3 * row.value, row_by_stem[stem].value, row.source
        )
        for row in published_rows
        if (stem := row.id.removesuffix("-tpot")) in row_by_stem
        and (row.measure, row.unit) == ("decode.tpot", "ms")
        and row_by_stem[stem].unit == "tokens/s/NPU"
    ]


def result_rows(
    axes: Sequence[Axis], points: Sequence[Point], rows: Sequence[RunRow | None]
) -> list[dict[str, Any]]:
    """A row per point: its values, its run, whether it meets the SLO, and its figures in SI."""
    metric_keys = [metric.key for metric in metrics_at("comparison")]
    return [
        {axis.path: axis_value for axis, axis_value in zip(axes, point.values, strict=True)} | {
            "run": row.id if row else None, "state": row.state if row else "refused",
            "why": row.message if row else point.refusal,
            "slo_kept": meets_slo(point.scenario, row.summary) if row and point.scenario else None,
            **{key: row.summary.get(key) if row else None for key in metric_keys},
        }
        for point, row in zip(points, rows, strict=True)
    ]  # fmt: skip


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same columns as CSV."""
    csv_buffer = io.StringIO()
    writer = csv.DictWriter(csv_buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return csv_buffer.getvalue()
