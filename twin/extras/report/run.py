"""The report of a run: headline figures, how it went, how requests fared, what its laws say."""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from twin.engine.simulate import Run
from twin.extras.report import document as doc
from twin.extras.report.document import Part, Point, Series, fold, plot, table, tag
from twin.lab.explain.view import has_one_slo
from twin.lab.sweep.compare import changed_fields
from twin.metrics.latency import tpot_s
from twin.metrics.measures import amount, numbered
from twin.metrics.operators import OPERATORS
from twin.metrics.registry import METRICS, Metric, metrics_at, shown
from twin.scenario import Scenario, field_info, scenario_digest

TABLES = ("windows", "requests", "operators")  # that it reads
POINTS = 240  # of a line, at most
OPERATORS_MOST = 12
NEAR = 3.0  # times what is drawn: a limit beyond would leave the rest of a chart narrow
STATES = {"filling": "still filling when it ended", "overloaded": "overloaded: queues grew"}


def run_report(run: Run) -> str:
    """A run as one HTML file; charts are drawn of those of its tables `TABLES` that exist."""
    s, summary = run.scenario, run.summary
    state = STATES.get(str(summary.get("steady_state")), "")
    notes = [f"{s.horizon_s:g} s simulated, the first {s.warmup_s:g} s left out of the figures"]
    notes += [state] if state else []
    body: list[Part] = [tag("p", "; ".join(notes), ".", cls="soft")]
    if not run.valid:
        body.append(tag("p", "This run broke a law of its own: do not use its figures.", cls="bad"))
    tiles = (m for m in metrics_at("tile") if m.shows("tile", summary.get(m.key), s))
    body += [doc.tiles((m.tile, shown(m.key, summary[m.key]), _slo_text(m, run)) for m in tiles)]
    charts = [*_time_charts(run.tables.get("windows")), *_latency_charts(run)]
    if charts:
        body += [tag("h2", "How it went"), tag("div", *charts, cls="charts")]
    body += _operator_bars(run.tables.get("operators"))
    rows = [
        (m.label, shown(m.key, summary[m.key]), _slo_text(m, run), m.help)
        for m in METRICS.values()
        if m.shows("table", summary.get(m.key), s)
    ]
    figures = table(("Figure", "Value", "SLO", "What it counts"), rows, right=(1,), of_text=(0, 3))
    body += [tag("h2", "Figures"), fold(f"All {len(rows)} figures", figures)]
    body += [tag("p", note, cls="soft") for note in run.notes]
    checks = [(c["statement"], "holds" if c["ok"] else "broken", c["detail"]) for c in run.checks]
    checks_held = sum(bool(c["ok"]) for c in run.checks)
    laws_table = table(("Law", "", ""), checks, of_text=(0, 2))
    body.append(fold(f"{checks_held} of {len(checks)} laws hold", laws_table))
    identity = tag(
        "p", f"Result {run.digest[:16]}, engine {run.engine_version[:16]}, facts "
        f"{run.facts_digest[:16]}: the same question gives the same bytes.", cls="soft",
    )  # fmt: skip
    body += [tag("h2", "The question"), scenario_section(s), identity]
    return doc.page(s.name, *body)


def _slo_text(metric: Metric, run: Run) -> str:
    """The SLO of a figure, in words; "" if it has none, or if tenants or models have their own."""
    if metric.slo is None or not has_one_slo(run.scenario):
        return ""
    return f"SLO {shown(metric.key, metric.slo(run.scenario))}"


def _time_charts(windows: pl.DataFrame | None) -> Iterable[Part]:
    """Yield charts of tokens/s and of numbers of requests over simulated time."""
    if windows is None or not windows.height:
        return
    curves = {
        "Tokens": ("tokens/s", {"output": "output_tokens_per_s", "input": "input_tokens_per_s"}),
        "Requests": ("at a time", {"in decode": "decode_running",
                                  "wait for prefill": "prefill_queue"}),
    }  # fmt: skip
    for title, (unit, columns) in curves.items():
        series = [
            Series(name, averaged_points(windows["t_s"], windows[column]), colour)
            for colour, (name, column) in enumerate(columns.items())
            if column in windows.columns and windows[column].fill_null(0).max()
        ]
        if series:
            yield plot(title, series, "time, s", unit)


def averaged_points(x: pl.Series, y: pl.Series) -> Sequence[Point]:
    """Points (x, y) of a line, averaged over neighbours if there are more than `POINTS`."""
    pairs = np.column_stack([x.to_numpy(), y.cast(pl.Float64).to_numpy()])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    groups = np.array_split(pairs, min(POINTS, len(pairs))) if len(pairs) else []
    return [(float(group[:, 0].mean()), float(group[:, 1].mean())) for group in groups]


def _latency_charts(run: Run) -> Iterable[Part]:
    """Yield charts of the cumulative share of requests over TTFT and TPOT, with the SLO."""
    table, scenario = run.tables.get("requests"), run.scenario
    if table is None or not table.height:
        return
    finish_s, first_s = table["finish_s"].to_numpy(), table["first_token_s"].to_numpy()
    is_counted = (finish_s >= scenario.warmup_s) & (first_s > 0.0)
    ttft_s = (first_s - table["arrival_s"].to_numpy())[is_counted]
    per_token_ms = 1e3 * tpot_s(table)[is_counted]
    for title, values, unit, limit, colour in (
        ("TTFT", ttft_s, "s", scenario.slo.ttft_s, 0),
        ("TPOT", per_token_ms[np.isfinite(per_token_ms)], "ms", scenario.slo.tpot_ms, 2),
    ):
        if values.size:
            shares = np.linspace(0.0, 1.0, 101)[:-1]  # to p99: one slow request sets no scale
            quantiles = np.quantile(values, shares)
            points = list(zip(quantiles.tolist(), (100 * shares).tolist(), strict=True))
            drawn_limit = limit if has_one_slo(scenario) and limit < NEAR * points[-1][0] else None
            yield plot(f"{title} up to p99", [Series("", points, colour)], f"{title}, {unit}",
                       "% of requests", limit=drawn_limit, y_most=100.0)  # fmt: skip


def _operator_bars(operators: pl.DataFrame | None) -> Iterable[Part]:
    """Yield for each phase a heading and bars: the operators that take most of an iteration."""
    if operators is None or not operators.height:
        return
    for phase in operators["phase"].unique(maintain_order=True):
        phase_rows = operators.filter(pl.col("phase") == phase).sort("share", descending=True)
        rows = [
            (OPERATORS[row["operator"]].label if row["operator"] in OPERATORS
             else row["operator"].replace("_", " "), row["share"],
             f"{amount(row['share'], 'share')}, {amount(row['per_iteration_s'], 'time')}")
            for row in phase_rows.head(OPERATORS_MOST).iter_rows(named=True) if row["share"]
        ]  # fmt: skip
        if rows:
            yield tag("h2", f"Where an iteration of {phase} spends its time")
            yield doc.bars(rows)


def scenario_section(scenario: Scenario) -> Part:
    """HTML of a scenario, folded: its stated fields identify it with this version's defaults."""
    rows = []
    for path, value in changed_fields(Scenario(), scenario).items():
        field = field_info(path)
        if field and path not in ("name", "question", "source"):
            rows.append((path, field.label, f"{value} {field.unit}".rstrip()))
    return tag(
        "div",
        *([tag("p", scenario.question)] if scenario.question else []),
        *([tag("p", "Source: ", scenario.source, cls="soft")] if scenario.source else []),
        fold(f"Unlike the defaults: {numbered(len(rows), 'field')}",
               table(("Field", "", "Value"), rows)),
        tag("p", f"Scenario {scenario_digest(scenario)[:16]}, seed {scenario.seed}.", cls="soft"),
    )  # fmt: skip
