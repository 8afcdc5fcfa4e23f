"""The answer of a plan as one JSON object: the front, the ranking, relaxations, gap and ledger."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from twin.lab.evidence.near import known_throughput_ratio
from twin.lab.explain.view import load_of
from twin.lab.plan.candidates import Candidate, merit
from twin.lab.plan.finish import Finalist, Finish
from twin.lab.plan.question import LOSSES
from twin.lab.plan.search import Search
from twin.lab.plan.space import BATCH, CHOICES, COUNTED, DRAFTS, MODE, SIZED
from twin.metrics.measures import numbered
from twin.scenario import field_info, fields
from twin.scenario.words import choice_label

FIGURES = 6
LIMITS = {
    "survives": "Losses that are survived", "npus": "NPUs", "load_req_per_s": "Load (req/s)",
    "power_kw": "Power (kW)", "cost_per_million_tokens": "Cost per million tokens",
}  # fmt: skip
LEDGER_MOST = 12_000
NEXT_GAIN = 1.1  # of its rate: what a next step has to bring


def answer_of(finish: Finish) -> dict[str, Any]:
    """A plan's answer as a JSON object; equal for equal plans with equal simulations."""
    search = finish.search
    ranking_rows = _ranking_rows(finish)
    best_score = ranking_rows[0]["score"] if ranking_rows else 0.0
    plan, space = search.plan, search.space
    finalist_settings = {finalist.candidate.settings for finalist in finish.finalists}
    gap_share = search.score_gap(best_score, finalist_settings) if best_score else None
    status_counts = Counter(status_of(search, candidate)[0] for candidate in space.candidates)
    return _round_numbers({
        "goal": plan.goal,
        "load": {"path": load_of(space.base)[0], "req_per_s": space.rate},
        "ranked": ranking_rows,
        "gap": gap_share, "gap_sentence": "" if gap_share is None
        else gap_text(gap_share, plan.goal, ranking_rows[0]["npus"]),
        "front": _front_rows(search),
        "tornado": _tornado_rows(search, finish.finalists[0]) if finish.finalists else [],
        "relaxations": finish.relaxations,
        "notes": list(space.notes),
        "counts": {"simulations": search.runs, **status_counts},
        "left_out": space.left_out,
    })  # fmt: skip


def gap_text(gap: float, goal: str, npus: int) -> str:
    """Sentence that says by how much other priced deployments may at most beat the best one: by a
    share (`gap`) of its score, or in NPUs for the goal 'npus'. npus: NPUs of the best."""
    if goal == "npus":
        least_npus_text = numbered(round(npus / (1.0 + gap)), "NPU")
        return f"Of those priced none needs fewer than {least_npus_text}."
    amount_text = f" by more than {math.ceil(1e3 * gap) / 10:.1f} %" if gap > 0.0 else ""
    return f"Of those priced none beats the first{amount_text}."


def stage_text(finish: Finish) -> str:
    """Text on what a plan does after its search: proofs, or the limit that it now relaxes."""
    if finish.relax is None or not finish.relax.limit:
        return "Making sure"
    return f"Nothing fits, looking for the smallest change of {limit_name(finish.relax.limit)}"


def interim_answer(finish: Finish) -> dict[str, Any]:
    """The best five simulated deployments so far, relaxations, and counts, as a JSON object."""
    search, best_rows = finish.search, []
    for tested in search.ranking()[:5]:
        best_point = search.proved_point(tested)
        assert best_point is not None
        best_rows.append({"settings": tested.candidate.changes, "npus": tested.candidate.npus,
                     "score": best_point[0], "summary": tested.best_trial})  # fmt: skip
    return _round_numbers({
        "so_far": best_rows, "relaxations": finish.relaxations, "simulations": search.runs,
        "front": _front_rows(search), "deployments": len(search.space.candidates),
    })  # fmt: skip


def ledger_rows(search: Search) -> list[dict[str, Any]]:
    """A row for each deployment: settings, rates by formula, status, reason, rank, runs."""
    candidate_rows = []
    ranks = {tested.candidate.settings: rank for rank, tested in enumerate(search.ranking(), 1)}
    for candidate in search.space.candidates[:LEDGER_MOST]:
        status, reason = status_of(search, candidate)
        tested = search.tested.get(candidate.settings)
        candidate_rows.append({
            "key": candidate.key, "settings": candidate.changes, "npus": candidate.npus,
            "status": status, "reason": reason, "bound_req_per_s": candidate.price.bound,
            "expected_req_per_s": candidate.price.expected, "limit": candidate.price.limit,
            "rank": ranks.get(candidate.settings), "own": search.space.is_own(candidate),
            "simulated": [
                {"req_per_s": rate_per_s, **{figure: trial.get(figure) for figure in (
                    "share", "tokens_per_s_per_npu", "tpot_s_mean", "ttft_s_p99", "seed",
                    "scenario", "digest")}}
                for rate_per_s, trial in (tested.trials if tested else ())
            ],
        })  # fmt: skip
    return [_round_numbers(candidate_row) for candidate_row in candidate_rows]


def status_of(search: Search, c: Candidate) -> tuple[str, str]:
    """Status of a deployment ('feasible', 'infeasible', ...), and the reason in a sentence."""
    tested = search.tested.get(c.settings)
    if tested is None:
        if c.status != "untested":
            return c.status, c.reason
        return "untested", "others were expected to do better by formula"
    if tested.failed:
        return "failed", tested.failed
    if tested.met_rate:
        return "feasible", ""
    return "infeasible", search.missed_limits_text(
        tested.trials[-1][1]
    ) or "keeps the SLO with too few seeds, or only in short runs"


def _ranking_rows(finish: Finish) -> list[dict[str, Any]]:
    """Rows of the ranked deployments, best first, with margins, losses and the next step."""
    search = finish.search
    ranking: list[dict[str, Any]] = []
    goal = search.plan.goal
    for rank, finalist in enumerate(finish.finalists, 1):
        candidate = finalist.candidate
        score = merit(goal, finalist.rate, candidate.npus)
        best_score = ranking[0]["score"] if ranking else score
        best_scenario = finish.finalists[0].scenario
        comparison = known_throughput_ratio(best_scenario, finalist.scenario, best_score / score)
        ranking.append({
            "rank": rank, "equal_to_first": rank > 1 and comparison.equal,
            "ratio_known_within": comparison.within, "key": candidate.key, "npus": candidate.npus,
            "score": score, "req_per_s": finalist.rate,
            # As arguments of `--set`, with the load and the times of its simulations:
            "settings": candidate.changes | dict([load_of(finalist.scenario)]) | {
                path: getattr(finalist.scenario, path) for path in ("horizon_s", "warmup_s")},
            "summary": finalist.seeds[0],
            "margins": _margins(search, finalist), "losses": finalist.losses,
            "held_back_by": candidate.price.limit, "next_step": next_step_text(search, candidate),
            "own": search.space.is_own(candidate),
        })  # fmt: skip
    return ranking


def equality_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """Text that explains the sign '=' in a ranking: how well a ratio of scores is known."""
    percents = sorted(
        {round(100 * ratio) for ranking_row in rows if (ratio := ranking_row["ratio_known_within"])}
    )
    end_percents = dict.fromkeys(percents[:1] + percents[-1:])
    band_text = " to ".join(f"±{percent} %" for percent in end_percents) or "nothing"
    return f"=: equal to the first within what is known of such a ratio ({band_text})"


def _margins(search: Search, finalist: Finalist) -> dict[str, Any]:
    """A finalist's distance to each limit as a share of the limit, and the headroom of its load."""
    scenario, first_trial, plan = search.space.base, finalist.seeds[0], search.plan
    slo_shares = finalist.shares
    margins: dict[str, Any] = {
        "slo_share": min(slo_shares) - scenario.slo.share, "seeds": len(slo_shares),
        "share_by_seed": slo_shares, "npus": search.space.machine.npus - finalist.candidate.npus,
    }  # fmt: skip
    limit_by_figure = {
        "ttft_s_p99": scenario.slo.ttft_s, "tpot_s_p99": 1e-3 * scenario.slo.tpot_ms,
        "power_kw": plan.power_kw, "cost_per_million_tokens": plan.cost_per_million_tokens,
    }  # fmt: skip
    for figure, limit in limit_by_figure.items():
        if limit and first_trial.get(figure) is not None:
            margins[figure] = 1.0 - first_trial[figure] / limit
    if (capacity := finalist.capacity) is not None:
        base_rate_per_s = search.space.rate or finalist.rate
        margins |= {
            "headroom": capacity.load / base_rate_per_s - 1.0, "largest_req_per_s": capacity.load,
            "largest_low": capacity.low, "breaks_first": finalist.breaks,
            "largest_high": None if math.isinf(capacity.high) else capacity.high,
        }  # fmt: skip
    return margins


def next_step_text(search: Search, best: Candidate) -> str:
    """Sentence on the one setting of `best` whose change gives clearly more load by formula for the
    fewest additional NPUs; '' if there is none."""
    next_steps = []
    for candidate in search.space.open_candidates:
        changed_paths = [
            path for path, value in candidate.settings if best.changes.get(path) != value
        ]
        if len(changed_paths) == 1 and candidate.price.expected >= NEXT_GAIN * best.price.expected:
            next_steps.append((candidate.npus - best.npus, candidate, changed_paths[0]))
    if not next_steps:
        return ""
    extra_npus, candidate, path = min(
        next_steps, key=lambda step: (step[0], -step[1].price.expected)
    )
    field = fields()[path]
    gain_percent = 100 * (candidate.price.expected / best.price.expected - 1.0)
    npu_text = numbered(extra_npus, "more NPU") if extra_npus > 0 else "no more NPUs"
    value_label = choice_label(path, candidate.changes[path])
    return f"{field.label} {value_label}: {gain_percent:.0f} % more load by formula, {npu_text}."


def _front_rows(search: Search) -> list[dict[str, Any]]:
    """A row for each simulated deployment that meets the limits, with its tokens/s per NPU and per
    user; `on_front`: whether no other one is better in both."""
    front_rows, npu_key, user_key = [], "tokens_per_s_per_npu", "tokens_per_s_per_user"
    for tested in search.tested.values():
        if (trial := tested.best_trial) is None or not trial[npu_key]:
            continue
        candidate = tested.candidate
        front_rows.append({
            "key": candidate.key, "settings": candidate.changes, "npus": candidate.npus,
            npu_key: trial[npu_key], user_key: 1.0 / (trial["tpot_s_mean"] or math.inf),
            "on_front": False, "req_per_s": tested.met_rate,
        })  # fmt: skip
    fastest_so_far = -math.inf
    for row in sorted(front_rows, key=lambda row: (-row[npu_key], -row[user_key])):
        row["on_front"] = row[user_key] > fastest_so_far
        fastest_so_far = max(fastest_so_far, row[user_key])
    return sorted(front_rows, key=lambda row: (-row[npu_key], *row["settings"].items()))


def _tornado_rows(search: Search, best: Finalist) -> list[dict[str, Any]]:
    """A row for each simulated deployment that differs from the best in one setting: `score_ratio`
    is its score divided by the best one's."""
    point = search.proved_point(best.tested)
    assert point is not None
    score_by_change: dict[tuple[str, Any], float] = {}
    for tested in search.tested.values():
        changed_settings = list(
            search.space.differing_settings(tested.candidate, best.candidate).items()
        )
        if len(changed_settings) == 1 and not tested.failed:
            new_score, _ = search.proved_point(tested) or (0.0, 0.0)
            score_by_change[changed_settings[0]] = max(
                score_by_change.get(changed_settings[0], 0.0), new_score
            )
    sorted_scores = sorted(score_by_change.items(), key=lambda row: (row[0][0], str(row[0][1])))
    return [
        {"path": path, "value": value, "score_ratio": new_score / point[0], "fits": new_score > 0.0}
        for (path, value), new_score in sorted_scores
    ]


def _round_numbers(value: Any) -> Any:
    """A JSON value with its numbers rounded to six figures; NaN and infinity become None."""
    return json.loads(
        json.dumps(value),
        parse_float=lambda number_text: float(f"{float(number_text):.{FIGURES}g}"),
        parse_constant=lambda _: None,
    )


def brief_text(settings: Mapping[str, Any]) -> str:
    """A deployment's settings in short: '4 x 16 prefill + 1 x 128 decode, batch 96, MTP 1'."""
    pool_texts = []
    for role, path in COUNTED.items():
        if (count := settings.get(path)) is not None:
            instance_npus = settings.get(SIZED[role])
            count_text = numbered(count, f"{role} instance")  # its size does not vary
            pool_texts.append(f"{count} x {instance_npus} {role}" if instance_npus else count_text)
    short_names = {BATCH: "batch", DRAFTS: "MTP"}
    setting_texts = [
        f"{label} {settings[path]}" for path, label in short_names.items() if path in settings
    ]
    shown_paths = {MODE, *COUNTED.values(), *SIZED.values(), *short_names}
    varied_paths = {path for choice in CHOICES.values() for path in (*choice.values, *choice.along)}
    for path, value in settings.items():
        field = field_info(path)
        if field is not None and path in varied_paths - shown_paths:
            setting_texts.append(f"{field.label} {choice_label(path, value)}")
    return ", ".join(filter(None, [" + ".join(pool_texts), *setting_texts]))


def limit_name(limit: str) -> str:
    """Name of a limit that may be relaxed, for people; limit: a field's path or a key of LIMITS."""
    field = field_info(limit)
    unit = f" ({field.unit})" if field and field.unit else ""
    return f"{field.label}{unit}" if field else LIMITS[limit]


def loss_text(outcome: Mapping[str, Any]) -> str:
    """Text on whether the SLO is met after a loss; outcome: a row of `finish.loss_row`."""
    words = {"feasible": "SLO holds", "infeasible": "SLO breaks", "unsupported": "no such part"}
    return words.get(outcome.get("status", ""), "failed")


def relaxation_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Table rows of the relaxed limits of a plan's answer (`rows`): for each limit the smallest
    change with which a deployment fits."""
    return [
        {"Limit": limit_name(row["limit"]), "Now": limit_text(row["from"]), "Fits at":
         limit_text(row["to"]), "Then": brief_text(row["settings"]), "NPUs": row["npus"],
        "In runs of": f"{row['run_s']:g} s"}
        for row in rows
    ]  # fmt: skip


def limit_text(value: Any) -> str:
    """Value of a limit as text: a number, or names of losses."""
    if isinstance(value, list | tuple):
        return ", ".join(LOSSES[loss].lower() for loss in value) or "none"
    return f"{value:.5g}"


def answer_sentences(answer: dict[str, Any]) -> Sequence[str]:
    """Sentences for people on a plan's answer (the object of `answer_of`)."""
    counts = answer["counts"]
    sentences = [f"{numbered(sum(counts.values()) - counts['simulations'], 'deployment')} priced, "
            f"{numbered(counts['simulations'], 'simulation')}."]  # fmt: skip
    if answer["ranked"]:
        best_row = answer["ranked"][0]
        sentences.insert(
            0, f"{brief_text(best_row['settings'])}: {numbered(best_row['npus'], 'NPU')}."
        )
        sentences += _headroom_sentence(answer.get("goal", ""), best_row["margins"])
        if best_row["next_step"]:
            sentences.append(f"Next step for more load: {best_row['next_step']}")
        sentences.append(answer["gap_sentence"])
    else:
        sentences.insert(0, "Nothing fits within the limits.")
        sentences += [
            f"{limit_name(relaxation['limit'])}: {limit_text(relaxation['to'])} in place of "
            f"{limit_text(relaxation['from'])} makes {brief_text(relaxation['settings'])} "
            f"({numbered(relaxation['npus'], 'NPU')}) fit, in runs of {relaxation['run_s']:g} s."
            for relaxation in answer["relaxations"]
        ]
    return [*sentences, *answer["notes"]]


def _headroom_sentence(goal: str, margins: Mapping[str, Any]) -> list[str]:
    """[sentence on a deployment's largest load and the limit that it misses beyond], or []."""
    if not margins.get("breaks_first"):
        return []
    clause, largest_low = "", margins["largest_low"]
    if goal == "npus":  # others are ranked by their own largest load
        percent = 100 * margins["headroom"]
        clause = f", {abs(percent):.1f} % {'above' if percent > 0.0 else 'below'} the load"
        clause = clause if abs(percent) >= 0.1 else ", which is the load"
        if largest_low * (1.0 + margins["headroom"]) < margins["largest_req_per_s"]:
            clause += " (at its limit: a long run may miss the SLO)"
    largest_high = margins["largest_high"]
    band_text = (
        f" (surely {largest_low:.4g}, at most {largest_high:.4g})"
        if largest_high
        else f" (at least {largest_low:.4g})"
    )
    return [f"It carries {margins['largest_req_per_s']:.4g} requests/s{band_text}{clause}; with "
            f"more, {margins['breaks_first']} misses its limit first."]  # fmt: skip
