"""The points of a sweep on the page: which are wanted, their runs, and how they become series."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from twin.lab.evidence.bands import MOST
from twin.lab.evidence.near import figure_bands
from twin.lab.explain.view import has_one_slo
from twin.lab.runs.runner import find_run
from twin.lab.store import RunRow
from twin.lab.sweep import sweep
from twin.lab.sweep.sweep import Axis, Point
from twin.metrics.registry import METRICS, Place, metrics_at
from twin.scenario import Scenario, fields, scenario_digest, value_of
from twin.ui import runs as lists
from twin.ui import session
from twin.ui.charts.sweep import SweepPoint
from twin.ui.fields import choice_label, field_of, form_paths, options, sentence, why_idle

STARTED = "sweep-runs"  # session state: the run of each scenario that was started here
NOW = "sweep-now"  # session state: whoever led here wants it simulated at once
SPAN = (0.5, 2.0)  # of a field's value: where a sweep begins and ends by default
POINTS, MOST_POINTS = 7, 32
COST = "cost_per_million_tokens"


def sweepable_fields() -> list[str]:
    """Paths of the draft's fields that have an effect and can be swept."""
    draft, all_fields = session.draft(), fields()
    return [
        path
        for path in form_paths()
        if "[]" not in path
        and (all_fields[path].kind in (int, float, bool) or all_fields[path].options)
        and not why_idle(path, draft)
    ]


def default_axis(path: str) -> Axis:
    """Axis of a sweep of a field from half to twice its value, within its bounds. A field without
    numbers is swept over all its options."""
    field, value = fields()[path], value_of(session.draft(), path)
    if field.kind is bool:
        return Axis(path, (False, True))
    if field.kind not in (int, float):
        return Axis(path, tuple(options(path, session.facts()) or ()))
    low, high = (max(field.low or 0, min(field.high or value, value * ratio)) for ratio in SPAN)
    if low == high:
        low, high = field.low or 0, value or field.step or 1
    return sweep.spaced_axis(path, low, high, POINTS)


def draw_axis_choice(
    axis_number: int, url_axis: Axis | None, default: str = "", other_axis: Axis | None = None
) -> Axis | None:
    """Draw the form of an axis; returns the axis, None without a field. axis_number: 0 for the
    first, 1 for the optional second. url_axis: of the address. default: path of the field if
    url_axis is None. other_axis: its field is not offered."""
    paths = [path for path in sweepable_fields() if other_axis is None or path != other_axis.path]
    first_path = url_axis.path if url_axis and url_axis.path in paths else default
    path = st.selectbox(
        "Sweep" if axis_number == 0 else "For each value of (optional)", paths,
        index=paths.index(first_path) if first_path in paths else None,
        format_func=lambda path: field_of(path).title, key=f"sweep-field-{axis_number}",
        placeholder="Choose or search a field",
    )  # fmt: skip
    if path is None:
        return None
    field = fields()[path]
    axis = url_axis if url_axis and url_axis.path == path else default_axis(path)
    if field.kind not in (int, float):
        known_values = list(default_axis(path).values)  # an address may say others, here and below
        picked_values = st.multiselect(
            "Values", known_values, [value for value in axis.values if value in known_values],
            key=f"sweep-values-{path}",
            format_func=lambda option: choice_label(path, option, session.facts()),
        )  # fmt: skip
        return sweep.parse_axis(
            f"{path}={','.join(str(picked).lower() for picked in picked_values)}"
        )
    number_type, pattern = field.kind, "%d" if field.kind is int else "%.6g"
    lowest, highest = number_type(field.low or 0), number_type(field.high or 1e9)
    with st.container(horizontal=True):
        bounds = [
            st.number_input(
                name, lowest, highest, number_type(min(max(value, lowest), highest)),
                step=number_type(field.step or 1), format=pattern, key=f"sweep-{name}-{path}",
                width=130,
            )
            for name, value in (("From", min(axis.values)), ("To", max(axis.values)))
        ]  # fmt: skip
        points_key = f"sweep-points-{path}"
        point_count = st.number_input(
            "Points", 2, MOST_POINTS, min(len(axis.values), MOST_POINTS), key=points_key, width=100
        )
    low, high = (float(bound if bound is not None else 0) for bound in bounds)
    is_same = (min(axis.values), max(axis.values), len(axis.values)) == (low, high, point_count)
    return (
        axis
        if axis is url_axis and is_same
        else sweep.spaced_axis(path, low, high, int(point_count))
    )


def runs_of_points(points: Sequence[Point]) -> list[RunRow | None]:
    """Run of each point, in the order of the points: started by this session, or else finished, or
    else unfinished. None: the point has no run."""
    store, run_ids = session.store(), st.session_state.get(STARTED, {})
    under_way = lists.unfinished_runs()

    def run_of(scenario: Scenario) -> RunRow | None:
        """Run of a scenario: started here, finished or unfinished; None without any."""
        digest = scenario_digest(scenario)
        run = run_ids.get(digest)
        return store.runs.get(run) if run else find_run(store, scenario) or under_way.get(digest)

    return [None if point.scenario is None else run_of(point.scenario) for point in points]


def simulate(points: Sequence[Point], rows: Sequence[RunRow | None]) -> None:
    """Callback: queue the scenario of every point without a run; rows: the points' runs."""
    run_ids = st.session_state.setdefault(STARTED, {})
    with session.toast_refusals():
        for scenario in scenarios_without_run(points, rows):
            run_ids[scenario_digest(scenario)] = session.start_run(scenario)


def scenarios_without_run(points: Sequence[Point], rows: Sequence[RunRow | None]) -> list[Scenario]:
    """Scenarios of the points that have no run, or one that ended without results."""
    return [
        point.scenario
        for point, row in zip(points, rows, strict=True)
        if point.scenario is not None and (row is None or (row.ended and not row.summary))
    ]


def stop_points(rows: Sequence[RunRow | None]) -> None:
    """Callback: stop the runs that have not ended. rows: the points' runs."""
    for row in rows:
        if row is not None and not row.ended:
            session.stop_run(row.id)


def series(
    axes: Sequence[Axis], points: Sequence[Point], rows: Sequence[RunRow | None]
) -> Mapping[str, list[SweepPoint]]:
    """Points along the first axis with their runs' figures, by the value of the second axis as text
    ('' without one). rows: the run of each point."""
    series_by_name: dict[str, list[SweepPoint]] = {}
    for point, row in zip(points, rows, strict=True):
        if (scenario := point.scenario) is None:
            continue
        summary = row.summary if row else {}
        slo_limits = {m.key: m.slo(scenario) for m in sweep.SLOS if m.slo and has_one_slo(scenario)}
        series_name = f"{axes[1].label} {axes[1].text_of(point.values[1])}" if axes[1:] else ""
        band_estimates = figure_bands(scenario, session.facts(), run=True)
        bands = {estimate.figure.metric: estimate.ends(MOST) for estimate in band_estimates}
        meets_slo = bool(sweep.meets_slo(scenario, summary))
        simulated_point = SweepPoint(point.values[0], summary, meets_slo, slo_limits, bands)
        series_by_name.setdefault(series_name, []).append(simulated_point)
    return series_by_name


def scenarios(axes: Sequence[Axis], points: Sequence[Point]) -> dict[str, Scenario]:
    """Scenario of every possible point, by its values as text."""
    scenario_of: dict[str, Scenario] = {}
    for point in points:
        if point.scenario is not None:
            pairs = zip(axes, point.values, strict=True)
            scenario_of[", ".join(axis.text_of(value) for axis, value in pairs)] = point.scenario
    return scenario_of


def table_rows(axes: Sequence[Axis], points: Sequence[Point], rows: Sequence[RunRow | None]) -> Any:
    """The points as rows of the page's table, with the link of each run."""
    return [
        {
            **{axis.label: axis.text_of(value)
               for axis, value in zip(axes, point.values, strict=True)},
            "SLO": "" if row is None or point.scenario is None or not row.summary
            else "met" if sweep.meets_slo(point.scenario, row.summary) else "broken",
            **{f"{METRICS[key].label} ({METRICS[key].unit})": row.summary.get(key) if row else None
               for key in metric_keys("sweep", rows)},
            "State": row.state if row else sentence(point.refusal) if point.refusal else "not run",
            "Run": f"/run?run={row.id}" if row else None,
        }
        for point, row in zip(points, rows, strict=True)
    ]  # fmt: skip


def metric_keys(place: Place, rows: Sequence[RunRow | None]) -> list[str]:
    """Keys of the metrics that are shown at a place of the pages (sweep, panel ...); energy per
    token only if no run has a cost per token."""
    has_cost = any(row and row.summary.get(COST) is not None for row in rows)
    unused_key = "joules_per_token" if has_cost else COST
    return [metric.key for metric in metrics_at(place) if metric.key != unused_key]
