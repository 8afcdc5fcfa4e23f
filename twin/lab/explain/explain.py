"""explain: what a scenario's run means; every sentence rests on a run. The most promising changes
are run with the same seed, those that help with more; the least of the gains is reported. It is an
engine (`lab/runs/job.py`): an explanation is stored and found again as any run is."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from twin.engine.simulate import ENGINE_VERSION as ENGINE
from twin.engine.simulate import Cancelled, Progress, Run, result_digest
from twin.facts import Facts
from twin.kernels.compiled import source_digest
from twin.lab.explain import pools  # noqa: F401  its entries are registered
from twin.lab.explain.capacity import RUNS, Capacity, capacity, stays_steady, with_load
from twin.lab.explain.causes import (
    CAUSE,
    CAUSES,
    DEMAND,
    FAULT,
    Cause,
    Change,
    expected_figures,
    is_possible,
    score_of,
)
from twin.lab.explain.runs import Gain, Runs, gain_on_seeds, run_score, with_shorter_horizon
from twin.lab.explain.view import Summary, View, load_of, share_met, slo_met, waiting_s
from twin.lab.explain.waterfall import EVEN, waterfall
from twin.lab.store.models import EXPLAINED
from twin.metrics.measures import amount, three_figures
from twin.metrics.registry import Summary as Figures
from twin.metrics.steadiness import UNSTEADY
from twin.model.shape import ModelError
from twin.scenario import Scenario, npus_used, require_one_model, with_overrides
from twin.steady import predict_steady
from twin.workload.requests import TraceTable

LOOKS = 5  # changes that are run, without those of faults
AGAIN = 0.5  # factor on what a change promises, for each earlier run for the same cause
WORTH_A_RUN = 0.03  # of the best that was measured: least promise of a change that is run
LOOKED_INTO = 5  # causes that may be confirmed on more seeds, the most promising first,
CONFIRMED = 3  # until so many are confirmed
TRIED = 2  # changes of a cause that may be confirmed
NEARLY = 0.9  # of the best: from here on the less intrusive change is advised
FELT = 0.05  # of a score
WORTH_SAYING = 0.1  # of a score: what a first cause has to bring where the SLO is met
IDEAL = 0.5  # of its score, where no operator can make the change: it shows what is there to gain
OUTRANKS = 0.3  # of what the best other change brings: a fault that brings as much comes first
EXPECTED_RUNS = 12 + RUNS  # for a bar of progress
LOAD = Cause("load", "More traffic than it takes", "Admit less traffic, or add NPUs.",
             lambda _: iter(()), DEMAND)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A confirmed cause: the gain of its removal, and possible actions of an operator."""

    cause: Cause
    named: str  # what of it, where it is of several things
    score: float  # what the suggestion brings, else what an ideal would
    removal: Gain
    suggestion: Gain | None  # None: nothing that was tried helps on every seed


@dataclass(frozen=True)
class Option:
    """A change that promises a gain, or that gains on the scenario's own seed."""

    worth: float  # the score that it promises, or has
    cause: Cause
    change: Change


@dataclass(frozen=True)
class Explanation:
    """Explanation of a run."""

    scenario: Scenario
    summary: Summary
    verdict: str
    holds: bool
    capacity: Capacity
    causes: tuple[Measured, ...]
    waterfall: dict[str, float]  # seconds of a mean request by piece
    runs: int


def explain(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None,
    counts: np.ndarray | None = None, note: Callable[[int], None] = lambda _: None,
) -> Explanation:  # fmt: skip
    """The explanation of a scenario's run; note: gets the number of runs so far. Raises what the
    engine raises, and ExplainError if the run breaks a law of conservation."""
    require_one_model(scenario, "an explanation")
    runs = Runs(facts, trace, counts, note)
    summary = runs.run_with_tables(scenario)
    short_scenario = with_shorter_horizon(scenario, summary)
    base_summary = runs.run_with_tables(short_scenario)
    try:
        full_prediction = predict_steady(short_scenario, facts, trace, counts)
    except ModelError:  # a single request of mean length does not fit
        full_prediction = None
    requests = runs.tables[short_scenario]["requests"]
    waits_s = waiting_s(requests, short_scenario.horizon_s)
    reason_shares = requests["reason"].cast(pl.String).value_counts(normalize=True)
    decode_rows = [
        row
        for row in runs.tables[short_scenario]["operators"].to_dicts()
        if row["phase"] == "decode"
    ]
    decode_s = sum(row["total_s"] for row in decode_rows)
    time_shares = (
        {row["operator"]: row["total_s"] / decode_s for row in decode_rows} if decode_s else {}
    )
    view = View(short_scenario, facts, base_summary, full_prediction, time_shares, trace, counts,
                waiting=waits_s, refused=dict(reason_shares.iter_rows()))  # fmt: skip
    piece_s = waterfall(runs, view)  # first: its re-runs are looks, too
    even_summary = runs.summaries.get(with_overrides(short_scenario, EVEN))
    if even_summary:
        view = replace(view, uneven=run_score(base_summary, even_summary, short_scenario))
    slo_capacity = capacity(short_scenario, facts, runs.summary_of)
    causes = rank_causes(_confirmed_causes(runs, view, slo_capacity))
    run_view = View(scenario, facts, summary, view.full, view.operators)
    verdict_text = verdict(run_view, slo_capacity, causes)
    run_count = len(runs.summaries)
    return Explanation(
        scenario, summary, verdict_text, run_view.meets_slo, slo_capacity, causes, piece_s,
        run_count,
    )  # fmt: skip


def _confirmed_causes(runs: Runs, view: View, limit: Capacity) -> list[Measured]:
    """At most CONFIRMED causes against which a change helps on every seed; limit: the capacity."""
    scenario = view.scenario
    options = _promising_options(view)
    load_path, load_now = load_of(scenario)
    if not view.meets_slo and 0.0 < limit.low < load_now:
        load_change = Change({load_path: load_of(with_load(scenario, limit.low))[1]})
        options.append(Option(math.inf, LOAD, load_change))
    options_by_cause: dict[str, list[Option]] = {}
    for option in _run_options(runs, view, options):
        options_by_cause.setdefault(option.cause.key, []).append(option)
    groups_faults_first = sorted(options_by_cause.values(), key=lambda group: (
        group[0].cause.kind != FAULT, -max(option.worth for option in group)))  # fmt: skip
    confirmed: list[Measured] = []
    for group in groups_faults_first[:LOOKED_INTO]:
        cause = _confirm_cause(runs, view, group) if len(confirmed) < CONFIRMED else None
        if cause and all(cause.removal.settings != other.removal.settings for other in confirmed):
            confirmed.append(cause)
    return confirmed


def _promising_options(view: View) -> list[Option]:
    """Options that causes propose, with expected scores (faults: infinite) of at least FELT."""
    base_figures, options = expected_figures(view, view.scenario), []
    for cause in CAUSES.values():
        for change in cause.changes(view):
            if is_possible(view.scenario, change.settings):
                gain = math.inf if cause.kind == FAULT else score_of(view, change, base_figures)
                net_gain = _net_gain(view, change, gain)
                if net_gain >= FELT:
                    options.append(Option(net_gain, cause, change))
    return options


def _net_gain(view: View, change: Change, gain: float) -> float:
    """Score of a change: `gain` minus the log of the growth in NPUs; half if not `doable`."""
    npus_before_after = [
        npus_used(scenario)
        for scenario in (view.scenario, with_overrides(view.scenario, change.settings))
    ]
    log_npu_growth = math.log(max(1.0, npus_before_after[1] / npus_before_after[0]))
    return (gain - log_npu_growth) * (1.0 if change.doable else IDEAL)


def _run_options(runs: Runs, view: View, candidates: list[Option]) -> list[Option]:
    """Run the most promising options; returns those that improve the run on the scenario's seed,
    with measured scores, in the proposed order."""
    helpful_pairs, runs_left, best_gain = [], LOOKS, FELT
    runs_by_cause: dict[str, int] = {}
    gains_by_cause: dict[str, float] = {}

    def promise_of(k: int) -> float:
        """Promise of option `k` minus its cause's gain, times AGAIN for each run of the cause."""
        cause_key = candidates[k].cause.key
        return (
            candidates[k].worth - gains_by_cause.get(cause_key, 0.0)
        ) * AGAIN ** runs_by_cause.get(cause_key, 0)

    untried_indices = list(range(len(candidates)))
    while runs_left and untried_indices:
        best_index = max(untried_indices, key=promise_of)
        if promise_of(best_index) < max(FELT, WORTH_A_RUN * best_gain):
            break
        index = next(index for index in untried_indices
                     if candidates[index].cause is candidates[best_index].cause
                     and promise_of(index) >= NEARLY * promise_of(best_index))  # fmt: skip
        untried_indices.remove(index)
        option, runs_before = candidates[index], len(runs.summaries)
        summary = runs.summary_with(view.scenario, option.change.settings)
        if option.worth < math.inf and len(runs.summaries) > runs_before:
            runs_by_cause[option.cause.key] = runs_by_cause.get(option.cause.key, 0) + 1
            runs_left -= 1
        if summary is None:
            continue
        net_gain = _net_gain(view, option.change, run_score(view.summary, summary, view.scenario))
        if net_gain >= FELT:
            best_gain = max(best_gain, net_gain if option.cause.kind != DEMAND else 0.0)
            if option.change.doable:
                gains_by_cause[option.cause.key] = max(
                    net_gain, gains_by_cause.get(option.cause.key, 0.0)
                )
            helpful_pairs.append((index, Option(net_gain, option.cause, option.change)))
    if not view.meets_slo:
        helpful_pairs += _smaller_steps(runs, view, candidates, helpful_pairs)
    return [option for _, option in sorted(helpful_pairs, key=lambda pair: pair[0])]


def _smaller_steps(
    runs: Runs, view: View, candidates: list[Option], helpful: list[tuple[int, Option]]
) -> list[tuple[int, Option]]:
    """Options with smaller steps than those in `helpful` that still meet the SLO, so that no more
    is added than needed; both are pairs of the index among candidates and the option."""
    smaller_pairs, seen_indices = [], {index for index, _ in helpful}
    for index, option in helpful:
        if not (option.change.doable and _meets_slo(runs, view, option.change)):
            continue
        for prior in range(index):
            smaller = candidates[prior]
            is_alike = smaller.change.settings.keys() == option.change.settings.keys()
            is_alike = is_alike and smaller.cause is option.cause
            if prior in seen_indices or not is_alike or not _meets_slo(runs, view, smaller.change):
                continue
            summary = runs.summary_with(view.scenario, smaller.change.settings) or {}
            gain = _net_gain(view, smaller.change, run_score(view.summary, summary, view.scenario))
            smaller_pairs.append((prior, Option(gain, smaller.cause, smaller.change)))
            break
    return smaller_pairs


def _meets_slo(runs: Runs, view: View, change: Change) -> bool:
    """Whether the run with a change meets its SLO."""
    summary = runs.summary_with(view.scenario, change.settings)
    return summary is not None and slo_met(summary, with_overrides(view.scenario, change.settings))


def _confirm_cause(runs: Runs, view: View, options: list[Option]) -> Measured | None:
    """The cause of a group of options with its least intrusive change that helps on every seed and
    meets the SLO or is nearly the best; None if none helps."""
    scenario = view.scenario
    doable_options = [option for option in options if option.change.doable]
    advised_options = [
        option
        for option in doable_options
        if not view.meets_slo and _meets_slo(runs, view, option.change)
    ]
    best_worth = max((option.worth for option in doable_options), default=0.0)
    advised_options = advised_options or [
        option for option in doable_options if option.worth >= NEARLY * best_worth
    ]
    other_options = sorted(
        (option for option in doable_options if option not in advised_options),
        key=lambda k: -k.worth,
    )
    doable_pair = _first_gain(runs, scenario, [*advised_options, *other_options][:TRIED])
    ideal_options = [option for option in options if not option.change.doable]
    ideal_option = max(ideal_options, key=lambda k: k.worth, default=None)
    if ideal_option and doable_pair and ideal_option.worth <= doable_pair[0].worth:
        ideal_option = None  # what can be done removes enough of it
    ideal_pair = _first_gain(runs, scenario, [ideal_option] if ideal_option else [])
    if not (doable_pair or ideal_pair):
        return None
    top_option, removal_gain = max(
        filter(None, (doable_pair, ideal_pair)), key=lambda row: row[0].worth
    )
    score_gain = doable_pair[0].worth if doable_pair else top_option.worth
    suggestion = doable_pair[1] if doable_pair else None
    if ideal_option is None and suggestion is not None:
        removal_gain = suggestion
    return Measured(top_option.cause, top_option.change.named, score_gain, removal_gain, suggestion)


def _first_gain(runs: Runs, s: Scenario, options: Sequence[Option]) -> tuple[Option, Gain] | None:
    """The first option whose change improves the run on every seed, with its gain; or None."""
    option_gains = ((option, gain_on_seeds(runs, s, option.change.settings)) for option in options)
    return next(((option, gain) for option, gain in option_gains if gain is not None), None)


def rank_causes(measured: list[Measured]) -> tuple[Measured, ...]:
    """Confirmed causes, the first to act on first. Causes with a suggestion are ordered by falling
    score. A fault comes before them if its score is at least OUTRANKS times their best, and is
    ordered among them otherwise. The demand comes after them if their best is at least OUTRANKS
    times its score, and before them otherwise. Causes without a suggestion come last."""
    removable_causes = [m for m in measured if m.cause.kind == CAUSE and m.suggestion is not None]
    best_score = max((m.score for m in removable_causes), default=0.0)

    def sort_key(m: Measured) -> tuple[int, float]:
        """Sort key of a cause: place of its kind, then the higher score."""
        if m.cause.kind == CAUSE and m.suggestion is None:
            return (4, -m.score)
        if m.cause.kind == FAULT:
            return (0 if m.score >= OUTRANKS * best_score else 2, -m.score)
        if m.cause.kind == DEMAND:
            return (3 if best_score >= OUTRANKS * m.score else 1, -m.score)
        return (2, -m.score)

    return tuple(sorted(measured, key=sort_key))


def verdict(view: View, limit: Capacity, causes: Sequence[Measured]) -> str:
    """Sentences: whether the SLO is met, up to which load, and which of `causes` comes first."""
    limit_clause = _limit_clause(view, limit)
    if view.meets_slo:
        sentences = [f"It keeps its SLO{limit_clause}."]
    else:
        met_share = share_met(view.summary)
        share_text = amount(met_share, "share")
        subject = f"Only {share_text} of requests keep" if met_share else "No request keeps"
        if met_share >= view.scenario.slo.share:  # overloaded: the growing queue is not judged yet
            subject = f"{share_text} of the requests that finish keep"
        sentences = [f"{subject} the SLO{limit_clause}."]
    if causes and (not view.meets_slo or causes[0].score > WORTH_SAYING):
        cause_label, cause_name = causes[0].cause.label, causes[0].named
        cause_label = (
            cause_label if cause_label[:2].isupper() else cause_label[0].lower() + cause_label[1:]
        )
        sentences.append(f"First cause: {cause_label}{f' ({cause_name})' if cause_name else ''}.")
    if note := UNSTEADY.get(str(view.summary.get("steady_state"))):
        sentences.insert(1, note)
    if view.free_npus:
        idle_text = "1 NPU is" if view.free_npus == 1 else f"{view.free_npus} NPUs are"
        sentences.append(f"{idle_text} idle.")
    return " ".join(sentences)


def _limit_clause(view: View, limit: Capacity) -> str:
    """End of a sentence: the load at which the deployment surely meets its SLO."""
    if not limit.load:
        return "; less traffic alone does not bring it back"
    load_text = f"{three_figures(limit.low)} {limit.unit}"  # what an hour keeps
    if not stays_steady(view.scenario):  # clients that start together drift apart for longer
        load_text += f" over its {view.scenario.horizon_s:g} s"
    if math.isinf(limit.high):
        return f", and would at {load_text}"
    if view.meets_slo and limit.low < load_of(view.scenario)[1]:
        return f", at its limit: it surely does up to {load_text}"
    return f", up to {load_text}" if view.meets_slo else f"; it is met up to {load_text}"


_SOURCES = hashlib.sha256((ENGINE + source_digest(("lab/explain",))).encode()).hexdigest()
ENGINE_VERSION = f"{EXPLAINED}{_SOURCES[:12]}"


def simulate(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None,
    progress: Progress | None = None, counts: np.ndarray | None = None,
) -> Run:  # fmt: skip
    """Explain a scenario as an engine does: returns a run whose tables are causes and waterfall.
    `progress` gets the share of the expected runs and their number; it stops the work (Cancelled)
    by returning False."""

    def note_runs(runs: int) -> None:
        """Report the number of runs. Raises Cancelled if the caller stops the explanation."""
        if progress is not None and not progress(min(0.99, runs / EXPECTED_RUNS), {"runs": runs}):
            raise Cancelled

    answer = explain(scenario, facts, trace, counts, note_runs)
    tables = {"causes": causes_table(answer.causes), "waterfall": waterfall_table(answer.waterfall)}
    shown_keys = ("ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu", "slo_attainment")
    summary: Figures = {figure: answer.summary.get(figure) for figure in shown_keys} | {
        "verdict": answer.verdict, "holds": int(answer.holds),
        "headroom_factor": answer.capacity.low / load_of(answer.scenario)[1],
        "headroom_bounded": int(math.isfinite(answer.capacity.high)),
        "capacity": answer.capacity.load, "capacity_unit": answer.capacity.unit,
        "capacity_low": answer.capacity.low,
        "capacity_high": answer.capacity.high if math.isfinite(answer.capacity.high) else None,
        "runs": answer.runs,
    }  # fmt: skip
    return Run(
        scenario, facts.digest, ENGINE_VERSION, result_digest(tables), summary, tables, [], [], True
    )


def waterfall_table(pieces: Mapping[str, float]) -> pl.DataFrame:
    """Table of the parts of a mean request's time (`pieces`: seconds by part)."""
    columns = {"piece": list(pieces), "seconds": list(pieces.values())}
    return pl.DataFrame(columns, schema={"piece": pl.String, "seconds": pl.Float64})


def causes_table(causes: Sequence[Measured]) -> pl.DataFrame:
    """Table with a JSON object for each cause, in the given order."""
    cause_texts = []
    for measured in causes:
        gains = {"removal": measured.removal, "suggestion": measured.suggestion}
        cause_json = {field: getattr(measured.cause, field) for field in ("key", "label", "advice")}
        cause_json |= {"named": measured.named, "score": measured.score}
        cause_json |= {field: asdict(gain) for field, gain in gains.items() if gain is not None}
        cause_texts.append(json.dumps(cause_json, sort_keys=True))
    return pl.DataFrame({"cause": cause_texts}, schema={"cause": pl.String})


def as_json(
    summary: Mapping[str, Any], causes: pl.DataFrame, waterfall: pl.DataFrame
) -> dict[str, Any]:
    """A stored explanation as one object: summary, seconds by piece of the waterfall, causes."""
    piece_s = dict(zip(waterfall["piece"], waterfall["seconds"], strict=True))
    cause_rows = [json.loads(cause_text) for cause_text in causes["cause"]]
    return {**summary, "waterfall_s": piece_s, "causes": cause_rows}
