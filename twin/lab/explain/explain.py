"""explain: a scenario and facts in, what its run means out; no sentence without a run behind it.

The run is repeated with one cause removed at a time, on the same seed (common random numbers).
What helps there is repeated on two more seeds, and said only if it helped on all: the promise is
the least of the three gains. Candidates, seeds and horizons are fixed, so the same question has
the same explanation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twin.facts import Facts
from twin.lab.explain import causes, pools  # noqa: F401  their entries are registered
from twin.lab.explain.cause import CAUSE, CAUSES, DEMAND, FAULT, Cause, Change, possible
from twin.lab.explain.headroom import Headroom, headroom
from twin.lab.explain.runs import MORE_SEEDS, Runs, seeded, shortened
from twin.lab.explain.view import (
    MET,
    Settings,
    Summary,
    View,
    at_load,
    attained,
    catches_up,
    kept_up,
    load_of,
    served_well,
    tpot_share,
    ttft_share,
)
from twin.lab.explain.waterfall import waterfall
from twin.metrics.registry import METRICS
from twin.model.shape import ModelError
from twin.scenario import Scenario, npus_used, with_overrides
from twin.steady import steady

if TYPE_CHECKING:
    from twin.workload.generate import TraceTable

LOOKED_INTO = 7  # causes that may be confirmed on more seeds, the weightiest first,
CONFIRMED = 4  # until so many are
TRIED = 3  # changes of a cause that may be
NEARLY = 0.9  # of the best: then the less intrusive change is advised
SAID = 0.05  # a metric that moves by less is not worth a sentence
FELT = 0.05  # of a score
CLEAR = 0.02  # more requests within the SLO: enough to let a p99 rise
NAMED = ("slo_attainment", "ttft_s_p99", "tpot_s_p99", "tpot_s_mean", "ttft_s_mean",
         "throughput_req_per_s")  # fmt: skip
LEAST_KEPT_UP = 0.01  # of what arrives
PRICED = 0.8  # of its score, where a change takes more NPUs: they are not free, and hide causes
OUTRANKS = 0.3  # of what the best other change brings: a fault that brings as much comes first
EXPECTED_RUNS = 24  # for a bar of progress
LOAD = Cause("load", "More traffic than it takes", "Admit less traffic, or add NPUs.",
             lambda _: iter(()), DEMAND)  # fmt: skip


@dataclass(frozen=True)
class Gain:
    """What a change does to one metric, on the seeds of the explanation."""

    settings: Settings
    metric: str
    before: float  # mean over the seeds
    after: float
    promise: float  # the least improvement of them, in the metric's unit; above 0
    attained_before: float  # SLO attainment, means
    attained_after: float


@dataclass(frozen=True)
class Measured:
    """A cause that was confirmed: what its removal brings, and what an operator can do."""

    key: str
    label: str
    advice: str
    named: str  # what of it, where it is of several things
    score: float
    removal: Gain
    suggestion: Gain | None  # None: nothing that was tried helps on every seed


@dataclass(frozen=True)
class Look:
    """A change that helps on the scenario's own seed."""

    worth: float  # its score
    cause: Cause
    change: Change


@dataclass(frozen=True)
class Explanation:
    """What a run means."""

    scenario: Scenario
    summary: Summary
    verdict: str
    holds: bool
    headroom: Headroom
    causes: tuple[Measured, ...]
    waterfall: dict[str, float]  # seconds of a mean request by piece
    runs: int

    @property
    def suggestions(self) -> list[tuple[Measured, Gain]]:
        """Causes with something to do about them, the weightiest first."""
        return [(m, m.suggestion) for m in self.causes if m.suggestion is not None]


def explain(
    scenario: Scenario,
    facts: Facts,
    trace: TraceTable | None = None,
    counts: np.ndarray | None = None,
    note: Callable[[int], None] = lambda _: None,
) -> Explanation:
    """Why a scenario's run is as fast as it is.

    Raises what `simulate` raises where the scenario cannot run, and ExplainError where its run
    broke a law of its own.
    """
    from twin.lab.explain.verdict import verdict

    runs = Runs(facts, trace, counts, note)
    summary = runs.needed(scenario)
    asked = shortened(scenario, summary)
    base = runs.needed(asked)
    full = _full(asked, facts, trace, counts)
    view = View(asked, facts, base, full, _shares(runs, asked), trace, counts)
    room = headroom(runs, asked, view.held)
    weighed = ranked(_measured(runs, view, room))
    whole = View(scenario, facts, summary, view.full, view.operators)
    text = verdict(whole, room, weighed)
    pieces = waterfall(runs, view)
    made = len(runs.summaries)
    return Explanation(scenario, summary, text, whole.held, room, weighed, pieces, made)


def _full(s: Scenario, facts: Facts, trace: Any, counts: Any) -> Any:
    """The closed steady state; None where a single request of mean length does not fit."""
    try:
        return steady(s, facts, trace, counts)
    except ModelError:
        return None


def _shares(runs: Runs, s: Scenario) -> dict[str, float]:
    """Share of a decode iteration by operator."""
    table = runs.tables[s]["operators"]
    rows = [row for row in table.to_dicts() if row["phase"] == "decode"]
    total = sum(row["total_s"] for row in rows)
    return {row["operator"]: row["total_s"] / total for row in rows} if total else {}


def score(before: Summary, after: Summary, s: Scenario) -> float:
    """How much better a run is: requests served within the SLO first, then how far from it; and
    where it falls behind, how many more it serves."""
    # Without an upper end: far off, too, what comes nearer to the SLO is better.
    used = [ttft_share(x, s) + tpot_share(x, s) + 1e-3 for x in (before, after)]
    better = 10 * (served_well(after) - served_well(before)) + math.log(used[0] / used[1])
    if catches_up(before, after, s):
        better += math.log(kept_up(after, s) / max(kept_up(before, s), LEAST_KEPT_UP))
    return better


def _measured(runs: Runs, view: View, room: Headroom) -> list[Measured]:
    """Every cause that holds on all seeds."""
    s = view.scenario
    looks = []
    for known in CAUSES.values():
        looks += _looked(runs, view, known, known.changes(view))
    if not view.held and 0 < room.factor < 1:
        path, _ = load_of(s)
        lower = {path: _read_load(at_load(s, room.factor))}
        looks += _looked(runs, view, LOAD, [Change(lower)])
    tried: dict[str, list[Look]] = {}
    for look in looks:
        tried.setdefault(look.cause.key, []).append(look)
    best = sorted(tried.values(), key=lambda group: (group[0].cause.kind != FAULT, -_best(group)))
    measured: list[Measured] = []
    for group in best[:LOOKED_INTO]:
        row = _confirmed(runs, s, group) if len(measured) < CONFIRMED else None
        if row and all(row.removal.settings != other.removal.settings for other in measured):
            measured.append(row)
    return measured


def _best(group: Sequence[Look]) -> float:
    return max(look.worth for look in group)


def _read_load(s: Scenario) -> float:
    return load_of(s)[1]


def _looked(runs: Runs, view: View, known: Cause, changes: Iterable[Change]) -> list[Look]:
    """The changes of a cause that help on the scenario's own seed, in their order."""
    looks, seen, used = [], set(), npus_used(view.scenario)
    for change in changes:
        text = json.dumps(change.settings, sort_keys=True)
        if text in seen or not possible(view.scenario, change.settings):
            continue
        seen.add(text)
        after = runs.changed(view.scenario, change.settings)
        if after is None:
            continue
        worth = score(view.summary, after, view.scenario)
        if npus_used(with_overrides(view.scenario, change.settings)) > used:
            worth *= PRICED
        if worth >= FELT:
            looks.append(Look(worth, known, change))
    return looks


def _confirmed(runs: Runs, s: Scenario, group: list[Look]) -> Measured | None:
    """What of a cause holds on every seed; None where nothing does.

    Of what can be done, the first in the order of the registry (the least intrusive) that brings
    nearly as much as the best, else the best of the others.
    """
    doable = [k for k in group if k.change.doable]
    near = [k for k in doable if k.worth >= NEARLY * _best(doable)]
    others = sorted((k for k in doable if k not in near), key=lambda k: -k.worth)
    able = _first_that_holds(runs, s, [*near, *others][:TRIED])
    ideals = [k for k in group if not k.change.doable]
    ideal = max(ideals, key=lambda k: k.worth, default=None)
    if ideal and able and ideal.worth * NEARLY <= able[0].worth:
        ideal = None  # what can be done removes as much
    whole = _first_that_holds(runs, s, [ideal] if ideal else [])
    if not (able or whole):
        return None
    top, removal = max(filter(None, (able, whole)), key=lambda row: row[0].worth)
    suggestion = able[1] if able else None
    if ideal is None and suggestion is not None:
        removal = suggestion
    known = top.cause
    return Measured(
        known.key, known.label, known.advice, top.change.named, top.worth, removal, suggestion
    )


def _first_that_holds(runs: Runs, s: Scenario, looks: Sequence[Look]) -> tuple[Look, Gain] | None:
    for look in looks:
        if (gain := gained(runs, s, look.change.settings)) is not None:
            return look, gain
    return None


def gained(runs: Runs, s: Scenario, settings: Settings) -> Gain | None:
    """What a change brings on all seeds; None where it fails or harms on one of them."""
    pairs = []
    for asked in seeded(s, MORE_SEEDS):
        before, after = runs.of(asked), runs.changed(asked, settings)
        if before is None or after is None or harms(before, after, asked):
            return None
        pairs.append((before, after))
    behind = all(catches_up(before, after, s) for before, after in pairs)
    named = NAMED if behind else NAMED[:-1]  # else as many finish as arrive, whatever is changed
    known = [found for metric in named if (found := _gain_in(metric, pairs, s)) is not None]
    at = [float(np.mean([attained(pair[k]) for pair in pairs])) for k in (0, 1)]
    if CLEAR < at[0] < MET:  # where some requests keep the SLO and others do not, that counts
        known = [found for found in known if found[1] == "slo_attainment"]
    if not known:
        return None
    _, metric, before_mean, after_mean, promise = max(known)
    return Gain(settings, metric, before_mean, after_mean, promise, *at)


def harms(before: Summary, after: Summary, s: Scenario) -> bool:
    """Whether a change lowers the SLO attainment, or brings a p99 close to the SLO."""
    rises = served_well(after) - served_well(before)
    if rises < 0 or attained(after) < attained(before):
        return True
    # Where a run falls behind, TTFT is that of the few served early: more of them may lengthen it.
    times = (tpot_share,) if catches_up(before, after, s) else (ttft_share, tpot_share)
    return rises < CLEAR and any(
        share(after, s) > max(share(before, s) * 1.02, 0.85) for share in times
    )


def _gain_in(
    metric: str, pairs: list[tuple[Summary, Summary]], s: Scenario
) -> tuple[float, str, float, float, float] | None:
    """(weight, metric, before, after, least improvement); None where it does not clearly move."""
    figures = [[figure_of(metric, x, s) for x in pair] for pair in pairs]
    if any(x is None for pair in figures for x in pair):
        return None
    rows = np.array(figures, float)
    sign = 1.0 if METRICS[metric].better == "higher" else -1.0
    moved = sign * (rows[:, 1] - rows[:, 0])
    mean, least = float(moved.mean()), float(moved.min())
    whole = max(abs(float(rows[:, 0].mean())), 1e-12)
    if least <= 0 or least < 0.5 * mean or least < SAID * whole:
        return None
    if metric == "slo_attainment":
        weight = 10 * least
        if least < CLEAR:
            return None
    elif metric == "throughput_req_per_s":
        weight = least / whole
    elif metric.startswith("ttft"):
        weight = least / s.slo.ttft_s * (1.0 if metric.endswith("p99") else 0.5)
    else:
        weight = least / (1e-3 * s.slo.tpot_ms) * (1.0 if metric.endswith("p99") else 0.5)
    return weight, metric, float(rows[:, 0].mean()), float(rows[:, 1].mean()), least


def figure_of(metric: str, summary: Summary, s: Scenario) -> float | None:
    """A metric of a run. Where nobody was served the SLO attainment is 0 and a first token takes
    longer than the run: so long is what is said."""
    value = summary.get(metric)
    if value is not None:
        return float(value)
    if metric == "slo_attainment":
        return 0.0
    return s.horizon_s if metric.startswith("ttft") else None


def ranked(measured: list[Measured]) -> tuple[Measured, ...]:
    """Faults first where they weigh, what is asked for last unless nothing else mends it."""
    kind = {m.key: LOAD.kind if m.key == "load" else CAUSES[m.key].kind for m in measured}
    best = {k: max((m.score for m in measured if kind[m.key] == k), default=0.0)
            for k in (FAULT, CAUSE, DEMAND)}  # fmt: skip

    def order(m: Measured) -> tuple[int, float]:
        if kind[m.key] == FAULT:
            return (0 if m.score >= OUTRANKS * best[CAUSE] else 2, -m.score)
        if kind[m.key] == DEMAND:
            return (3 if best[CAUSE] >= OUTRANKS * m.score else 1, -m.score)
        return (2, -m.score)

    return tuple(sorted(measured, key=order))


def applied(s: Scenario, gain: Gain) -> Scenario:
    """The scenario with a suggestion."""
    return with_overrides(s, gain.settings)
