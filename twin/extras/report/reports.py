"""The report of a run: headline figures, how it went, how requests fared, what its laws say. That
of a plan: the answer, the ranking, the front, what every limit and choice does."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from twin.engine.simulate import Run
from twin.extras.report import document as doc
from twin.extras.report.document import Part, Point, Series, bars, fold, page, plot, table, tag
from twin.lab.explain.view import has_one_slo
from twin.lab.plan.answer import (
    answer_sentences,
    brief_text,
    equality_note,
    loss_text,
    relaxation_rows,
)
from twin.lab.plan.question import LOSSES, Plan, plan_digest, plan_sentence
from twin.lab.plan.space import CHOICES
from twin.lab.sweep.compare import changed_fields
from twin.lab.sweep.sweep import published_points
from twin.metrics.latency import tpot_s
from twin.metrics.measures import Kind, amount, numbered
from twin.metrics.operators import OPERATORS
from twin.metrics.registry import METRICS, Metric, as_text, metrics_at
from twin.scenario import Scenario, field_info, scenario_digest

TABLES = ("windows", "requests", "operators")  # that the report of a run reads
POINTS = 240  # of a line, at most
OPERATORS_MOST = 12
LIMIT_NEAR = 3.0  # times what is drawn: a limit beyond would leave the rest of a chart narrow
STATES = {"filling": "still filling when it ended", "overloaded": "overloaded: queues grew"}
Row = Mapping[str, Any]
NO_BREAK = "\N{NO-BREAK SPACE}"
# Of a deployment: what it has beyond what it needs, and how that is shown.
MARGINS: dict[str, tuple[str, Kind, str]] = {
    "slo_share": ("Requests in time beyond those that have to be", "share", ""),
    "ttft_s_p99": ("TTFT p99 below its limit", "share", ""),
    "tpot_s_p99": ("TPOT p99 below its limit", "share", ""),
    "power_kw": ("Power below its limit", "share", ""),
    "cost_per_million_tokens": ("Cost below its limit", "share", ""),
    "npus": ("NPUs of the machine that are left", "count", ""),
    "headroom": ("Load beyond its own that keeps the SLO", "share", ""),
    "largest_req_per_s": ("Largest load", "rate", "req/s"),
    "largest_low": ("Largest load, at least", "rate", "req/s"),
    "largest_high": ("Largest load, at most", "rate", "req/s"),
}
NEAR = 4.0  # times the slowest or fastest deployment: published points beyond are not drawn
LEDGER_MOST = 400  # rows of what was not simulated that are listed; the rest is counted


def run_report(run: Run) -> str:
    """HTML of a run's report; without the tables `TABLES` of the run it has no charts."""
    s, summary = run.scenario, run.summary
    state_text = STATES.get(str(summary.get("steady_state")), "")
    remarks = [f"{s.horizon_s:g} s simulated, the first {s.warmup_s:g} s left out of the figures"]
    remarks += [state_text] if state_text else []
    body: list[Part] = [tag("p", "; ".join(remarks), ".", cls="soft")]
    if not run.valid:
        body.append(tag("p", "This run broke a law of its own: do not use its figures.", cls="bad"))
    tiles = (m for m in metrics_at("tile") if m.shows("tile", summary.get(m.key), s))
    body += [doc.tiles((m.tile, as_text(m.key, summary[m.key]), _slo_text(m, run)) for m in tiles)]
    charts = [*_time_charts(run.tables.get("windows")), *_latency_charts(run)]
    if charts:
        body += [tag("h2", "How it went"), tag("div", *charts, cls="charts")]
    body += _operator_bars(run.tables.get("operators"))
    figure_rows = [
        (m.label, as_text(m.key, summary[m.key]), _slo_text(m, run), m.help)
        for m in METRICS.values() if m.shows("table", summary.get(m.key), s)
    ]  # fmt: skip
    headers = ("Figure", "Value", "SLO", "What it counts")
    figure_table = table(headers, figure_rows, numbers=(1,), texts=(0, 3))
    body += [tag("h2", "Figures"), fold(f"All {len(figure_rows)} figures", figure_table)]
    body += [tag("p", note, cls="soft") for note in run.notes]
    law_rows = [(c["statement"], "holds" if c["ok"] else "broken", c["detail"]) for c in run.checks]
    laws_held = sum(bool(c["ok"]) for c in run.checks)
    laws_table = table(("Law", "", ""), law_rows, texts=(0, 2))
    body.append(fold(f"{laws_held} of {len(law_rows)} laws hold", laws_table))
    digests_line = tag(
        "p", f"Result {run.digest[:16]}, engine {run.engine_version[:16]}, facts "
        f"{run.facts_digest[:16]}: the same question gives the same bytes.", cls="soft",
    )  # fmt: skip
    body += [tag("h2", "The question"), scenario_section(s), digests_line]
    return doc.page(s.name, *body)


def _slo_text(metric: Metric, run: Run) -> str:
    """The SLO of a figure, in words; "" if it has none, or if tenants or models have their own."""
    if metric.slo is None or not has_one_slo(run.scenario):
        return ""
    return f"SLO {as_text(metric.key, metric.slo(run.scenario))}"


def _time_charts(windows: pl.DataFrame | None) -> Iterable[Part]:
    """Yield charts of tokens/s and of numbers of requests, by a run's table of time windows."""
    if windows is None or not windows.height:
        return
    chart_columns = {
        "Tokens": ("tokens/s", {"output": "output_tokens_per_s", "input": "input_tokens_per_s"}),
        "Requests": ("at a time", {"in decode": "decode_running",
                                  "wait for prefill": "prefill_queue"}),
    }  # fmt: skip
    for title, (unit, columns) in chart_columns.items():
        if series := [
            Series(label, averaged_points(windows["t_s"], windows[column]), colour)
            for colour, (label, column) in enumerate(columns.items())
            if column in windows.columns and windows[column].fill_null(0).max()
        ]:
            yield plot(title, series, "time, s", unit)


def averaged_points(x: pl.Series, y: pl.Series) -> Sequence[Point]:
    """Points of a line through (x, y), averaged over neighbours if there are more than `POINTS`."""
    points = np.column_stack([x.to_numpy(), y.cast(pl.Float64).to_numpy()])
    points = points[np.isfinite(points).all(axis=1)]
    point_groups = np.array_split(points, min(POINTS, len(points))) if len(points) else []
    return [(float(group[:, 0].mean()), float(group[:, 1].mean())) for group in point_groups]


def _latency_charts(run: Run) -> Iterable[Part]:
    """Yield charts of TTFT and of TPOT: the share of requests (%) up to each value, and the SLO."""
    requests, scenario = run.tables.get("requests"), run.scenario
    if requests is None or not requests.height:
        return
    finish_s, first_token_s = requests["finish_s"].to_numpy(), requests["first_token_s"].to_numpy()
    is_counted = (finish_s >= scenario.warmup_s) & (first_token_s > 0.0)
    ttft_s = (first_token_s - requests["arrival_s"].to_numpy())[is_counted]
    tpot_ms = 1e3 * tpot_s(requests)[is_counted]
    for title, latencies, unit, slo_limit, colour in (
        ("TTFT", ttft_s, "s", scenario.slo.ttft_s, 0),
        ("TPOT", tpot_ms[np.isfinite(tpot_ms)], "ms", scenario.slo.tpot_ms, 2),
    ):
        if latencies.size:
            fractions = np.linspace(0.0, 1.0, 101)[:-1]  # to p99: one slow request sets no scale
            quantiles = np.quantile(latencies, fractions)
            points = list(zip(quantiles.tolist(), (100 * fractions).tolist(), strict=True))
            is_near = slo_limit < LIMIT_NEAR * points[-1][0]
            drawn_limit = slo_limit if has_one_slo(scenario) and is_near else None
            yield plot(f"{title} up to p99", [Series("", points, colour)], f"{title}, {unit}",
                       "% of requests", limit=drawn_limit, y_most=100.0)  # fmt: skip


def _operator_bars(operators: pl.DataFrame | None) -> Iterable[Part]:
    """Yield a heading and bars for each phase: the operators that take most of an iteration."""
    if operators is None or not operators.height:
        return
    for phase in operators["phase"].unique(maintain_order=True):
        phase_rows = operators.filter(pl.col("phase") == phase).sort("share", descending=True)
        bar_rows = [
            (OPERATORS[row["operator"]].label if row["operator"] in OPERATORS
             else row["operator"].replace("_", " "), row["share"],
             f"{amount(row['share'], 'share')}, {amount(row['per_iteration_s'], 'time')}")
            for row in phase_rows.head(OPERATORS_MOST).iter_rows(named=True) if row["share"]
        ]  # fmt: skip
        if bar_rows:
            yield tag("h2", f"Where an iteration of {phase} spends its time")
            yield doc.bars(bar_rows)


def scenario_section(scenario: Scenario) -> Part:
    """A scenario as HTML: question, source, and a folded table of its fields unlike defaults."""
    field_rows = []
    for path, value in changed_fields(Scenario(), scenario).items():
        field = field_info(path)
        if field and path not in ("name", "question", "source"):
            field_rows.append((path, field.label, f"{value} {field.unit}".rstrip()))
    return tag(
        "div",
        *([tag("p", scenario.question)] if scenario.question else []),
        *([tag("p", "Source: ", scenario.source, cls="soft")] if scenario.source else []),
        fold(f"Unlike the defaults: {numbered(len(field_rows), 'field')}",
               table(("Field", "", "Value"), field_rows)),
        tag("p", f"Scenario {scenario_digest(scenario)[:16]}, seed {scenario.seed}.", cls="soft"),
    )  # fmt: skip


def plan_report(plan: Plan, answer: Row) -> str:
    """HTML of the report on a plan's answer: sentences, ranking, limits to relax, deployments."""
    sentences = [sentence for sentence in answer_sentences(dict(answer)) if sentence]
    body: list[Part] = [tag("p", plan.scenario.name, ": ", plan_sentence(plan), cls="soft")]
    body += [tag("p", sentence) for sentence in sentences[1:]]
    if ranked_rows := answer["ranked"]:
        equality_text = tag("p", f"{equality_note(ranked_rows)}. Five seeds each.", cls="soft")
        body += [tag("h2", "Ranking"), _ranking_table(plan, ranked_rows), equality_text]
    if answer["relaxations"]:
        limit_rows = relaxation_rows(answer["relaxations"])
        limit_cells = [list((row | {"NPUs": f"{row['NPUs']:,}"}).values()) for row in limit_rows]
        limit_table = table(list(limit_rows[0]), limit_cells, numbers=(4,))
        body += [tag("h2", "What would have to give"), limit_table]
    body += [tag("h2", "Throughput against speed"), _front_chart(answer)]
    body += [_deployment_section(row) for row in ranked_rows]
    if answer["tornado"]:
        choice_bars = bars([
            (f"{field.label if (field := field_info(row['path'])) else row['path']}: "
             f"{row['value']}", row["score_ratio"] if row["fits"] else 0.0,
             f"{100 * row['score_ratio']:.0f} %" if row["fits"] else "breaks a limit")
            for row in answer["tornado"]
        ])  # fmt: skip
        body += [tag("h2", "What each choice alone does to the first"), choice_bars]
    body += [tag("h2", "Every deployment"), *_deployment_list(answer)]
    varied_labels = ", ".join(CHOICES[key].label for key in plan.vary)
    versions_text = ", ".join(
        f"{key} {answer[key][:16]}" for key in ("engine", "facts") if key in answer
    )
    digests_line = tag(
        "p", f"What may vary: {varied_labels}. {plan.simulations} simulations of a search, seed "
        f"{plan.scenario.seed}. The question {plan_digest(plan)[:16]} gives the same bytes with "
        f"the same engine and facts{f': {versions_text}' if versions_text else ''}.", cls="soft",
    )  # fmt: skip
    body += [tag("h2", "The question"), scenario_section(plan.scenario), digests_line]
    return page(sentences[0], *body)


def _ranking_table(plan: Plan, rows: Sequence[Row]) -> Part:
    """HTML table of ranked deployments: figures, and the state after each loss of the plan."""
    loss_headers = (f"After: {LOSSES[loss].lower()}" for loss in plan.survives)
    cost_key = "cost_per_million_tokens"  # none without one of an NPU-hour
    has_cost = any(row["summary"].get(cost_key) is not None for row in rows)
    headers = ["", "Deployment", "NPUs", "tokens/s per NPU", "TPOT", "TTFT p99", "Headroom",
               "Power", *(["Cost"] if has_cost else []), "Held back by", *loss_headers]  # fmt: skip
    cell_rows = [
        (f"{row['rank']}{NO_BREAK + '=' if row['equal_to_first'] else ''}",
         brief_text(dict(row["settings"])),
         f"{row['npus']:,}", amount(row["summary"]["tokens_per_s_per_npu"], "rate"),
         amount(row["summary"]["tpot_s_mean"], "time"),
         amount(row["summary"]["ttft_s_p99"], "time"),
         amount(row["margins"].get("headroom"), "share"),
         amount(row["summary"]["power_kw"], "rate", "kW"),
         *([amount(row["summary"][cost_key], "rate", "/ M tokens")] if has_cost else []),
         row["held_back_by"],
         *(_loss_element(row["losses"].get(loss, {})) for loss in plan.survives))
        for row in rows
    ]  # fmt: skip
    return table(headers, cell_rows, numbers=range(2, 8 + has_cost), texts=(1,))


def _loss_element(state: Row) -> Part:
    """HTML text, coloured good or bad, on whether a deployment meets the SLO after a loss."""
    return tag("span", loss_text(state), cls="good" if state.get("status") == "feasible" else "bad")


def _deployment_section(row: Row) -> Part:
    """HTML section of a ranked deployment: margins, next step, losses, the command to run it."""
    set_options = (f"--set {shlex.quote(f'{path}={v}')}" for path, v in row["settings"].items())
    command = " ".join(["python -m twin run SCENARIO", *set_options])
    margin_rows = [
        (label, amount(margin, measure, unit)) for key, (label, measure, unit) in MARGINS.items()
        if (margin := row["margins"].get(key)) is not None
    ]  # fmt: skip
    loss_rows = [
        (LOSSES.get(loss, loss), state_after.get("element", ""), _loss_element(state_after),
         state_after.get("reason", ""))
        for loss, state_after in row["losses"].items()
    ]  # fmt: skip
    return fold(
        f"{row['rank']}. {brief_text(dict(row['settings']))}",
        *([tag("p", "Next step: ", row["next_step"])] if row["next_step"] else []),
        table(("Margin", "Value"), margin_rows, numbers=(1,)),
        *([table(("Loss", "Element", "After it", ""), loss_rows)] if loss_rows else []),
        tag("p", "SCENARIO is the question below, as a preset or a file:", cls="soft"),
        tag("pre", command),
    )  # fmt: skip


def _front_chart(answer: Row) -> Part:
    """Pareto front of a plan's deployments, simulated and published: tokens/s per NPU against
    tokens/s of one user. answer: the plan's result."""
    rank_by_key = {row["key"]: str(row["rank"]) for row in answer["ranked"]}
    decoding_points = [p for p in answer["front"] if p["tokens_per_s_per_user"]]
    front_points = sorted((p for p in decoding_points if p["on_front"]), key=_user_speed)
    speeds = [_user_speed(p) for p in decoding_points]
    published_near = [p for p in published_points()
        if speeds and min(speeds) / NEAR < 1.0 / p.tpot_s < NEAR * max(speeds)]  # fmt: skip

    def series_of_points(name: str, rows: Sequence[Row], colour: int, joined: bool) -> Series:
        """Simulated deployments as a chart's series, labelled by rank, with settings on hover."""
        return Series(
            name, [(_user_speed(p), p["tokens_per_s_per_npu"]) for p in rows], colour, joined, True,
            [rank_by_key.get(p["key"], "") for p in rows],
            [f"{brief_text(dict(p['settings']))}, {numbered(p['npus'], 'NPU')}" for p in rows],
        )  # fmt: skip

    series = [
        series_of_points("front", front_points, 0, True),
        series_of_points("simulated", [p for p in decoding_points if not p["on_front"]], 3, False),
        Series("published, decode NPUs alone", [(1.0 / p.tpot_s, p.tokens_per_s_per_npu)
               for p in published_near], 1, False, True, (), [p.name for p in published_near]),
    ]  # fmt: skip
    return plot("Up is cheaper, right is faster for a user", series, "tokens/s for one user",
                "tokens/s per NPU")  # fmt: skip


def _user_speed(point: Row) -> float:
    """Output tokens/s that one user gets from a deployment, by its row of the answer."""
    return float(point["tokens_per_s_per_user"])


def _deployment_list(answer: Row) -> Iterable[Part]:
    """Yield the numbers of deployments by state, and tables of simulated and of priced ones."""
    state_texts = [
        f"{state}: {count:,}" for state, count in answer["counts"].items() if state != "simulations"
    ]
    yield tag("p", "; ".join(state_texts), ".", cls="soft")
    simulated_rows = [row for row in answer["ledger"] if row["simulated"]]
    ranked_rows = sorted(simulated_rows, key=lambda row: row["rank"] or len(simulated_rows))
    yield fold(f"{len(simulated_rows):,} that were simulated", _deployments_table(ranked_rows))
    if priced_rows := [row for row in answer["ledger"] if not row["simulated"]]:
        more_text = f", the first {LEDGER_MOST} of them" if len(priced_rows) > LEDGER_MOST else ""
        title = f"{len(priced_rows):,} that were priced by formula alone{more_text}"
        yield fold(title, _deployments_table(priced_rows[:LEDGER_MOST]))


def _deployments_table(rows: Sequence[Row]) -> Part:
    """HTML table of deployments: rank, settings, NPUs, status, number of simulations, reason."""
    cell_rows = [
        (str(row["rank"] or ""),
         brief_text(dict(row["settings"])) + (" (the scenario's own)" if row["own"] else ""),
         f"{row['npus']:,}", row["status"], str(len(row["simulated"]) or ""), row["reason"])
        for row in rows
    ]  # fmt: skip
    headers = ("Rank", "Deployment", "NPUs", "Status", "Simulated", "Reason")
    return table(headers, cell_rows, numbers=(2, 4), texts=(1, 5))
