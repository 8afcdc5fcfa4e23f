"""The report of a plan: the answer, the ranking, the front, what every limit and choice does."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twin.extras.report.document import Part, Series, bars, fold, page, plot, table, tag
from twin.extras.report.run import scenario_section
from twin.lab.plan.answer import answer_sentences, brief_text, equality_note, loss_text, relax_rows
from twin.lab.plan.question import LOSSES, Plan, brief_of, plan_digest
from twin.lab.plan.space import CHOICES
from twin.lab.sweep.sweep import published_points
from twin.metrics.measures import Kind, amount
from twin.scenario import field_info
from twin.scenario.words import numbered

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


def plan_report(plan: Plan, answer: Row) -> str:
    """The answer of a plan, the list of all its deployments included, as one HTML file."""
    texts = [s for s in answer_sentences(dict(answer)) if s]
    body: list[Part] = [tag("p", plan.scenario.name, ": ", brief_of(plan), cls="soft")]
    body += [tag("p", sentence) for sentence in texts[1:]]
    if ranked := answer["ranked"]:
        equal_note = tag("p", f"{equality_note(ranked)}. Five seeds each.", cls="soft")
        body += [tag("h2", "Ranking"), _ranking_table(plan, ranked), equal_note]
    if answer["relaxations"]:
        entries = [row | {"NPUs": f"{row['NPUs']:,}"} for row in relax_rows(answer["relaxations"])]
        rows = [list(row.values()) for row in entries]
        body += [tag("h2", "What would have to give"), table(list(entries[0]), rows, right=(4,))]
    body += [tag("h2", "Throughput against speed"), _front_chart(answer)]
    body += [_deployment_section(row) for row in ranked]
    if answer["tornado"]:
        body += [tag("h2", "What each choice alone does to the first"), _tornado(answer["tornado"])]
    body += [tag("h2", "Every deployment"), *_ledger_elements(answer)]
    varied_text = ", ".join(CHOICES[key].label for key in plan.vary)
    made_by = ", ".join(f"{key} {answer[key][:16]}" for key in ("engine", "facts") if key in answer)
    identity = tag(
        "p", f"What may vary: {varied_text}. {plan.simulations} simulations of a search, seed "
        f"{plan.scenario.seed}. The question {plan_digest(plan)[:16]} gives the same bytes with "
        f"the same engine and facts{f': {made_by}' if made_by else ''}.", cls="soft",
    )  # fmt: skip
    body += [tag("h2", "The question"), scenario_section(plan.scenario), identity]
    return page(texts[0], *body)


def _ranking_table(plan: Plan, rows: Sequence[Row]) -> Part:
    """The table of ranked deployments: figures, and the state after each loss of the plan."""
    loss_heads = (f"After: {LOSSES[loss].lower()}" for loss in plan.survives)
    price = "cost_per_million_tokens"  # none without one of an NPU-hour
    has_cost = any(row["summary"].get(price) is not None for row in rows)
    heads = ["", "Deployment", "NPUs", "tokens/s per NPU", "TPOT", "TTFT p99", "Headroom", "Power",
             *(["Cost"] if has_cost else []), "Held back by", *loss_heads]  # fmt: skip
    cells = [
        (f"{r['rank']}{NO_BREAK + '=' if r['equal_to_first'] else ''}",
         brief_text(dict(r["settings"])),
         f"{r['npus']:,}", amount(r["summary"]["tokens_per_s_per_npu"], "rate"),
         amount(r["summary"]["tpot_s_mean"], "time"), amount(r["summary"]["ttft_s_p99"], "time"),
         amount(r["margins"].get("headroom"), "share"),
         amount(r["summary"]["power_kw"], "rate", "kW"),
         *([amount(r["summary"][price], "rate", "/ M tokens")] if has_cost else []),
         r["held_back_by"], *(_loss_element(r["losses"].get(loss, {})) for loss in plan.survives))
        for r in rows
    ]  # fmt: skip
    return table(heads, cells, right=range(2, 8 + has_cost), of_text=(1,))


def _loss_element(after: Row) -> Part:
    """State of a deployment after a loss, in words, in the colour of good or bad."""
    return tag("span", loss_text(after), cls="good" if after.get("status") == "feasible" else "bad")


def _deployment_section(row: Row) -> Part:
    """A ranked deployment, folded: margins, next step, losses, and the command that runs it."""
    settings = (f"--set {shlex.quote(f'{path}={v}')}" for path, v in row["settings"].items())
    command = " ".join(["python -m twin run SCENARIO", *settings])
    margins = [
        (label, amount(value, kind, unit))
        for key, (label, kind, unit) in MARGINS.items()
        if (value := row["margins"].get(key)) is not None
    ]
    losses = [
        (LOSSES.get(loss, loss), state_after.get("element", ""), _loss_element(state_after),
         state_after.get("reason", ""))
        for loss, state_after in row["losses"].items()
    ]  # fmt: skip
    return fold(
        f"{row['rank']}. {brief_text(dict(row['settings']))}",
        *([tag("p", "Next step: ", row["next_step"])] if row["next_step"] else []),
        table(("Margin", "Value"), margins, right=(1,)),
        *([table(("Loss", "Element", "After it", ""), losses)] if losses else []),
        tag("p", "SCENARIO is the question below, as a preset or a file:", cls="soft"),
        tag("pre", command),
    )  # fmt: skip


def _front_chart(answer: Row) -> Part:
    """The chart of tokens/s for one user against tokens/s per NPU, simulated and published."""
    ranks = {row["key"]: str(row["rank"]) for row in answer["ranked"]}
    decoding_points = [p for p in answer["front"] if p["tokens_per_s_per_user"]]
    front_points = sorted((p for p in decoding_points if p["on_front"]), key=_user_speed)
    speeds = [_user_speed(p) for p in decoding_points]
    near_points = [p for p in published_points()
            if speeds and min(speeds) / NEAR < 1.0 / p.tpot_s < NEAR * max(speeds)]  # fmt: skip

    def series_of_points(name: str, rows: Sequence[Row], colour: int, joined: bool) -> Series:
        """A series of simulated deployments, with their ranks and settings as texts."""
        return Series(
            name, [(_user_speed(p), p["tokens_per_s_per_npu"]) for p in rows], colour, joined, True,
            [ranks.get(p["key"], "") for p in rows],
            [f"{brief_text(dict(p['settings']))}, {numbered(p['npus'], 'NPU')}" for p in rows],
        )  # fmt: skip

    series = [
        series_of_points("front", front_points, 0, True),
        series_of_points("simulated", [p for p in decoding_points if not p["on_front"]], 3, False),
        Series("published, decode NPUs alone", [(1.0 / p.tpot_s, p.tokens_per_s_per_npu)
               for p in near_points], 1, False, True, (), [p.name for p in near_points]),
    ]  # fmt: skip
    return plot("Up is cheaper, right is faster for a user", series, "tokens/s for one user",
                "tokens/s per NPU")  # fmt: skip


def _user_speed(point: Row) -> float:
    """Tokens/s for one user of a deployment."""
    return float(point["tokens_per_s_per_user"])


def _tornado(rows: Sequence[Row]) -> Part:
    """Bars of the goal with one setting changed, as a share of the first deployment's."""
    return bars([
        (f"{field.label if (field := field_info(row['path'])) else row['path']}: {row['value']}",
         row["score_ratio"] if row["fits"] else 0.0,
         f"{100 * row['score_ratio']:.0f} %" if row["fits"] else "breaks a limit")
        for row in rows
    ])  # fmt: skip


def _ledger_elements(answer: Row) -> Iterable[Part]:
    """Yield counts of deployments by state, and folded tables of simulated and of priced ones."""
    counts = {k: count for k, count in answer["counts"].items() if k != "simulations"}
    yield tag("p", "; ".join(f"{k}: {count:,}" for k, count in counts.items()), ".", cls="soft")
    rows = [row for row in answer["ledger"] if row["simulated"]]
    ranked_rows = sorted(rows, key=lambda row: row["rank"] or len(rows))
    yield fold(f"{len(rows):,} that were simulated", _deployments_table(ranked_rows))
    if priced_rows := [row for row in answer["ledger"] if not row["simulated"]]:
        more_text = f", the first {LEDGER_MOST} of them" if len(priced_rows) > LEDGER_MOST else ""
        title = f"{len(priced_rows):,} that were priced by formula alone{more_text}"
        yield fold(title, _deployments_table(priced_rows[:LEDGER_MOST]))


def _deployments_table(rows: Sequence[Row]) -> Part:
    """The table of deployments: rank, settings, NPUs, status, number of simulations, reason."""
    cells = [
        (str(row["rank"] or ""),
         brief_text(dict(row["settings"])) + (" (the scenario's own)" if row["own"] else ""),
         f"{row['npus']:,}", row["status"], str(len(row["simulated"]) or ""), row["reason"])
        for row in rows
    ]  # fmt: skip
    heads = ("Rank", "Deployment", "NPUs", "Status", "Simulated", "Reason")
    return table(heads, cells, right=(2, 4), of_text=(1, 5))
