"""Proof of the best deployments: more seeds, their largest load, what they survive; where none
fits, the smallest relaxation of each limit."""

import math
import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twin.facts import Facts
from twin.lab.explain.capacity import OTHERS, Capacity, at_steady, searching, steady_by_itself
from twin.lab.explain.view import load_of
from twin.lab.plan.candidates import Candidate, Space, score, space_of
from twin.lab.plan.losses import after_loss, lost_elements, margin_after
from twin.lab.plan.question import Plan
from twin.lab.plan.search import BATCHED, FRESH, Search, Steps, Tested
from twin.lab.plan.trial import Trial, scenario_of
from twin.scenario import Scenario, SpecError, with_overrides

SEEDS = tuple(OTHERS + k for k in range(1, 5))  # beyond the scenario's own
NEAREST = 3  # deployments of which more seeds say what they need of a limit
RELAXED = 12  # simulations for each limit, where nothing fits
CARRIED = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of its largest load, tried until a loss is survived
SPARED = (1.1, 1.25, 1.5, 2.0)  # of the load by formula, where nothing smaller survives
SPARES = 4  # deployments of each of these, and those that are near enough to look at again
LONGER, LONGEST_S = 1.2, 10.0  # a TPOT that is tried after another; beyond, nothing helps
LEVELS = 2  # of these with deployments: a formula may promise what simulations do not reach
NEARLY = 3.0  # standard errors of a share of requests: what chance hardly exceeds
PART, TRIED = 0.95, 12  # of a relaxation, the next smaller one; searches for each limit
DIGITS = 5  # of a relaxation
LOAD, LEAST = "load_req_per_s", 0.1  # the least that is tried, of the load
HALVED = 6  # times between these two, for a first guess


@dataclass
class Finalist:
    """A ranked deployment with its proofs."""

    tested: Tested
    rate: float  # the load that it is ranked by, requests/s
    scenario: Scenario  # at that load, long enough for a steady state
    seeds: list[Trial] = field(default_factory=list)  # the scenario's own first
    capacity: Capacity | None = None
    breaks: str = ""  # what is missed first at more load
    losses: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def candidate(self) -> Candidate:
        """The deployment."""
        return self.tested.candidate

    @property
    def shares(self) -> list[float]:
        """Share of the requests that met the SLO, by seed."""
        return [trial["share"] for trial in self.seeds]

    @property
    def survives(self) -> bool:
        """Whether the SLO is met after every tried loss."""
        return all(row["status"] in ("feasible", "unsupported") for row in self.losses.values())


@dataclass
class Finish:
    """Last phase of a search: proofs and relaxations."""

    search: Search
    facts: Facts
    finalists: list[Finalist] = field(default_factory=list)
    fallen: list[Finalist] = field(default_factory=list)  # those that a loss takes out
    relaxations: list[dict[str, Any]] = field(default_factory=list)
    brief: bool = False  # whether it is enough to know that something fits

    def steps(self) -> Steps:
        """Prove the finalists or, if there are none, find relaxations of the limits."""
        yield from self._found()
        self.finalists.sort(key=self._worth)
        del self.finalists[self.search.plan.finalists :]
        if not self.finalists:
            yield from self._relaxed()

    def _found(self) -> Steps:
        """Find the finalists, or else the deployments that nearly suffice; lose those that a loss
        takes out."""
        yield from self._chosen()
        if not self.finalists:
            yield from self._nearly()
            yield from self._capacities(self.finalists)
        if self.search.plan.survives:
            yield from self._losses(self.finalists)
            yield from self._spared()
            self.fallen = [f for f in self.finalists if not f.survives]
            self.finalists = [f for f in self.finalists if f.survives]

    def _worth(self, f: Finalist) -> tuple[float, float, Any]:
        """Finalists in order of score, then of the largest load."""
        load = f.capacity.load if f.capacity else f.rate
        return -score(self.search.plan.goal, f.rate, f.candidate.npus), -load, f.candidate.settings

    def _chosen(self) -> Steps:
        """The best deployment of each kind, proved; one that fails is replaced by the next."""
        search, looked = self.search, set()
        while not self.finalists or not search.over():
            best: dict[Any, Tested] = {f.candidate.different: f.tested for f in self.finalists}
            for t in search.ranked():
                if t.candidate.settings not in looked:
                    best.setdefault(t.candidate.different, t)
            new = [t for t in best.values() if t.candidate.settings not in looked]
            new = new[: search.plan.finalists - len(self.finalists)]
            if not new:
                return
            looked |= {t.candidate.settings for t in new}
            finalists = [self._finalist(t) for t in new]
            if not search.one_load:  # the largest load first: it is what they are ranked by
                yield from self._capacities(finalists)
            yield from self._seeded(finalists)
            holding = [f for f in finalists if self._holds(f)]
            if search.one_load:
                yield from self._capacities(holding)
            self.finalists += holding

    def _nearly(self) -> Steps:
        """If nothing fits: longer runs of deployments that may miss the share by chance only, seed
        after seed until chance hardly explains what is missed."""
        search, near_misses, share = self.search, [], self.search.space.base.slo.share
        for t in search.tested.values():
            for rate, trial in t.trials:
                share_missing = share - trial["share"]
                chance = NEARLY * trial.get("share_error", 0.0)
                if search.one_load and 0.0 < share_missing <= chance:
                    near_misses.append((share_missing, t.candidate.settings, t, rate))
        finalists = [self._finalist(t, rate) for _, _, t, rate in sorted(near_misses)[:SPARES]]
        likely = finalists
        for seed in range(1 + len(SEEDS)):
            yield from self._seeded(likely, slice(seed, seed + 1))
            likely = [f for f in likely if not _hopeless(f, share)]
        for f in finalists:
            if self._holds(f):
                f.tested.trials = [(f.rate, f.seeds[0] | {"within": True})]
                self.finalists.append(f)

    def _finalist(self, t: Tested, rate: float = 0.0) -> Finalist:
        """A deployment at its largest known load, or another load."""
        space, rate = self.search.space, rate or t.low
        s = scenario_of(space, t.candidate.given, rate)
        if space.prices.offered is None and t.best:
            rate = self.search.answered(t.candidate, t.best)
        return Finalist(t, rate, at_steady(s, self.facts, rate))

    def _seeded(self, chosen: Sequence[Finalist], which: slice = slice(None)) -> Steps:
        """Simulate the load of each finalist with several seeds, or with those of a slice."""
        pairs = [
            (f, with_overrides(f.scenario, {"seed": seed}))
            for f in chosen
            for seed in (f.scenario.seed, *SEEDS)[which]
        ]
        for (f, _), trial in (yield from _answers(pairs)):
            if not isinstance(trial, str):
                f.seeds.append(trial | {"within": not self.search.misses(trial)})

    def _holds(self, f: Finalist) -> bool:
        """Whether the mean over seeds meets the SLO; otherwise the earlier result is withdrawn."""
        overloaded = sum(trial["steady_state"] == "overloaded" for trial in f.seeds)
        share = statistics.fmean(f.shares) if f.seeds else 0.0
        if share >= self.search.space.base.slo.share and 2 * overloaded <= len(f.seeds):
            return True
        t, low = f.tested, f.tested.low or f.rate
        last_trial = t.best or t.trials[-1][1]  # of what was only nearly enough: as it missed
        mean = {**last_trial, "share": share, "within": False, "holds": False}
        t.trials = [(r, trial) for r, trial in t.trials if r < low] + [(low, mean)]
        return False

    def _capacities(self, finalists: Sequence[Finalist]) -> Steps:
        """Find the largest load of each finalist, all searches interleaved."""
        space, needed = self.search.space, not (self.brief and self.search.one_load)
        if not needed or not steady_by_itself(space.base) or space.prices.offered is None:
            return
        in_progress: list[tuple[Finalist, Any, Scenario]] = []
        missed_by: dict[int, list[tuple[float, Trial]]] = {
            id(f): [] for f in finalists
        }  # with loads
        for f in finalists:
            begin = f.rate if self.search.one_load else f.tested.middle
            search = searching(f.scenario, self.facts, begin)
            in_progress.append((f, search, next(search)))
        while in_progress:
            answers = yield tuple(scenario for _, _, scenario in in_progress)
            searches = []
            for (f, search, simulated), trial in zip(in_progress, answers, strict=True):
                if not isinstance(trial, str) and not trial["holds"]:
                    missed_by[id(f)].append((load_of(simulated)[1], trial))
                try:
                    scenario = search.send(None if isinstance(trial, str) else trial)
                    searches.append((f, search, scenario))
                except StopIteration as found:
                    f.capacity = found.value
                    above_held = [pair for pair in missed_by[id(f)] if pair[0] > found.value.held]
                    if above_held:  # of the least load that is too much the worst run
                        worst = min(above_held, key=lambda pair: (pair[0], pair[1]["share"]))[1]
                        f.breaks = breaks_first(worst, self.search.plan)
                    if not self.search.one_load and found.value.held:
                        f.rate = found.value.held
                        f.scenario = self._at(f, f.rate)
            in_progress = searches

    def _at(self, f: Finalist, rate: float) -> Scenario:
        """The finalist at another load."""
        return at_steady(scenario_of(self.search.space, f.candidate.given, rate), self.facts, rate)

    def _losses(self, finalists: Sequence[Finalist]) -> Steps:
        """Simulate every loss at the load of each deployment, or at lower loads until the SLO is
        met."""
        one, remaining = self.search.one_load, list(finalists)
        for level in (1.0,) if one else CARRIED:
            largest = [(f, f.rate) for f in remaining]
            for f, rate in largest:
                f.losses, f.rate = {}, level * rate
                if level < 1.0:
                    f.scenario = self._at(f, f.rate)
            for loss in self.search.plan.survives:
                yield from self._lost(loss, remaining)
            for f, rate in largest:
                f.rate = f.rate if f.survives else rate
            remaining = [f for f in remaining if not f.survives]

    def _lost(self, loss: str, finalists: Sequence[Finalist]) -> Steps:
        """Deployments after a loss of the worst element of that kind that they use."""
        pairs = []
        for f in finalists:
            elements = list(lost_elements(f.scenario, self.facts, loss))
            try:
                pairs += [((f, name), after_loss(f.scenario, faults)) for name, faults in elements]
            except SpecError as error:
                f.losses[loss] = {"status": "failed", "reason": str(error)}
            if not elements:
                f.losses[loss] = {"status": "unsupported", "reason": "the machine has none"}
        for ((f, element), s), trial in (yield from _answers(pairs)):
            row = margin_after(s, element, trial)
            worst = f.losses.get(loss)
            if worst is None or (row.get("margin") or -1.0) < (worst.get("margin") or -1.0):
                f.losses[loss] = row

    def _spared(self) -> Steps:
        """If no finalist survives: deployments with more and more reserve, until one does."""
        search, rate = self.search, self.search.space.rate
        for spare in SPARED if rate is not None else ():
            if any(f.survives for f in self.finalists):
                return
            best: dict[Any, Candidate] = {}
            for c in sorted(search.space.open, key=lambda c: (c.npus, c.price.tpot_s, c.settings)):
                suffices = c.price.expected * FRESH >= spare * (rate or 0.0)
                if suffices and c.price.tpot_s < search.space.prices.tpot_s:
                    best.setdefault(c.different, c)
            spared = list(best.values())[:SPARES]
            yield from search.tried([c for c in spared if c.settings not in search.tested])
            more = [self._finalist(t) for c in spared if (t := search.tested[c.settings]).low]
            yield from self._seeded(more)
            more = [f for f in more if self._holds(f)]
            yield from self._losses(more)
            yield from self._capacities([f for f in more if f.survives])
            self.finalists += more

    def _relaxed(self) -> Steps:
        """For each limit alone, the deployment with the smallest relaxation, over several seeds."""
        search, s, plan = self.search, self.search.space.base, self.search.plan
        for limit, key, scale in (
            ("slo.tpot_ms", "needs_tpot_s", 1e3), ("slo.ttft_s", "needs_ttft_s", 1.0),
        ):  # fmt: skip
            yield from self._fastest(limit)
            limit_now = plan.scenario.slo.tpot_ms if scale > 1.0 else s.slo.ttft_s
            yield from self._least(limit, limit_now, key, scale)
        yield from self._least("slo.share", s.slo.share, "share", -1.0)
        for name in ("power_kw", "cost_per_million_tokens"):
            if getattr(plan, name):
                yield from self._least(name, getattr(plan, name), name, 1.0)
        if self.fallen:
            f = max(self.fallen, key=lambda f: len(_survived(f)))
            self._relax("survives", list(plan.survives), _survived(f), f.candidate)
        if plan.npus:
            other = Search(self._space(npus=0), self.facts, search.over)
            yield from other.steps()
            if fitting := other.ranked():
                c = min((t.candidate for t in fitting), key=lambda c: (c.npus, c.settings))
                self._relax("npus", plan.npus, c.npus, c)
        rate = search.space.rate if search.space.prices.offered is not None else None
        if rate is not None and (yield from self._fits(LOAD, LEAST * rate)) is not None:
            yield from self._stepwise(LOAD, rate, (yield from self._carried(rate)))

    def _carried(self, rate: float) -> Generator[tuple[Scenario, ...], Any, float]:
        """About the largest load below `rate` (requests/s) with which one of the nearest simulated
        deployments keeps the limits: halved by single short runs."""
        search, slo = self.search, self.search.space.base.slo
        limits = (("needs_ttft_s", slo.ttft_s), ("needs_tpot_s", 1e-3 * slo.tpot_ms))

        def distance(t: Tested) -> tuple[float, float, Any]:
            trial = t.trials[-1][1]
            needs = [trial[key] / limit for key, limit in limits if trial[key] is not None]
            return min(needs, default=math.inf), -trial["share"], t.candidate.settings

        low, high = LEAST * rate, rate
        simulated = [t for t in search.tested.values() if t.trials]
        nearest = [t.candidate.given for t in sorted(simulated, key=distance)[:SPARES]]
        for _ in range(HALVED if nearest else 0):
            load = (low + high) / 2.0
            trials = yield tuple(scenario_of(search.space, given, load) for given in nearest)
            keeping = [
                given
                for given, trial in zip(nearest, trials, strict=True)
                if not isinstance(trial, str) and not search.misses(trial)
            ]
            if keeping:
                low, nearest = load, keeping
            else:
                high = load
        return low if low > LEAST * rate else high

    def _space(self, **changed: Any) -> Space:
        """The deployments of a plan with another limit or goal."""
        plan = self.search.plan.model_copy(update=changed)
        return space_of(plan, self.facts, self.search.space)

    def _least(self, limit: str, own: Any, key: str, scale: float) -> Steps:
        """The smallest relaxation of a limit, from the smallest need over seeds of deployments that
        were simulated (negative scale: the largest)."""
        search, more = self.search, scale < 0.0
        limited = key in ("power_kw", "cost_per_million_tokens")
        simulated = [
            (-trial[key] if more else trial[key], t.candidate.settings, rate, t.candidate)
            for t in search.tested.values()
            for rate, trial in t.trials
            if trial[key] is not None and (trial["holds"] or not limited)
        ]
        nearest: dict[Any, tuple[float, Candidate]] = {}
        for _, settings, rate, c in sorted(simulated, key=lambda row: row[:3]):
            nearest.setdefault(settings, (rate, c))
        nearest_few = list(nearest.values())[:NEAREST]
        pairs = [(c, s) for rate, c in nearest_few for s in self._seeds(c, rate)]
        needs: dict[Any, list[Any]] = {}
        for (c, _), trial in (yield from _answers(pairs)):
            value = None if isinstance(trial, str) else trial[key]
            needs.setdefault(c.settings, []).append(value)
        suitable = [
            (scale * (max(values) if limited else statistics.fmean(values)), k)
            for k, values in enumerate(needs.values())
            if None not in values
        ]
        need, k = min(suitable, default=(0.0, 0))
        value = abs(need)
        if value > (0.5 if more else 0.0) and (value < own if more else value > own):
            yield from self._stepwise(limit, own, value, nearest_few[k][1])

    def _stepwise(
        self, limit: str, own: float, value: float, nearest: Candidate | None = None,
    ) -> Steps:  # fmt: skip
        """Relax a limit by a step with which a search finds a deployment, and with the next smaller
        one none; steps are a geometric series through `value`, which `nearest` needs: that is all
        where the seconds of the plan are used up."""
        fits: dict[int, Candidate] = {}
        fails: set[int] = set()
        step, stride = 1, 1
        for _ in range(TRIED):
            if (tried := _level(own, value, step)) <= 0.0 or self.search.over():
                break
            c = yield from self._fits(limit, tried)
            if c is None:
                fails.add(step)
            else:
                fits[step] = c
            if not fits:
                step, stride = 1 - stride, 2 * stride
            elif not fails:
                step, stride = 1 + stride, 2 * stride
            elif max(fits) + 1 in fails:
                break
            else:
                step = (max(fits) + min(fails)) // 2
        least = max(fits, default=0)
        if c := fits.get(least, nearest if self.search.over() else None):
            self._relax(limit, own, _level(own, value, least), c)

    def _fits(
        self, limit: str, value: float
    ) -> Generator[tuple[Scenario, ...], Any, Candidate | None]:
        """A deployment that a search finds with another value of a limit."""
        plan, offered = self.search.plan, self.search.space.prices.offered or 1.0
        changed: dict[str, Any] = {limit: value}
        if limit == LOAD:
            changed = {"more": value / offered - 1.0}
        elif limit.startswith("slo."):
            changed = {"scenario": with_overrides(plan.scenario, changed)}
        for first in (True, False):  # the first that keeps the limits is mostly enough
            search = Search(self._space(**changed), self.facts, self.search.over)
            if first:
                search.over = partial(_is_over, search, self.search.over)
            other = Finish(search, self.facts, brief=True)
            yield from search.steps()
            stopped = bool(search.ranked())
            yield from other._found()
            if other.finalists or not stopped:
                break
        return other.finalists[0].candidate if other.finalists else None

    def _seeds(self, c: Candidate, rate: float) -> list[Scenario]:
        """Scenarios of a deployment at a load with every seed, long enough for a steady state."""
        s = at_steady(scenario_of(self.search.space, c.given, rate), self.facts, rate)
        return [with_overrides(s, {"seed": seed}) for seed in (s.seed, *SEEDS)]

    def _fastest(self, limit: str) -> Steps:
        """Simulate deployments with the smallest need by formula; for TPOT, also those of looser
        plans."""
        search = self.search
        space, rate = search.space, (search.space.rate or 0.0)

        def able() -> list[Candidate]:
            new = [c for c in space.open if c.settings not in search.tested]
            return [c for c in new if c.price.expected > FRESH * rate]

        if limit != "slo.tpot_ms":
            order = sorted(able(), key=lambda c: (-c.price.bound, c.npus, c.settings))
            yield from search.tried(order[:RELAXED])
            return
        tpot_s, levels = space.prices.tpot_s, LEVELS
        while levels and tpot_s < LONGEST_S:
            order = sorted(able(), key=lambda c: (c.price.tpot_s, c.npus, c.settings))
            yield from search.tried(order[:RELAXED])
            levels -= bool(order)
            tpot_s *= LONGER
            s = with_overrides(search.plan.scenario, {limit: 1e3 * tpot_s})
            space = self._space(scenario=s)

    def _relax(self, limit: str, own: Any, value: Any, c: Candidate) -> None:
        self.relaxations.append(
            {"limit": limit, "from": own, "to": value, "settings": c.given, "npus": c.npus}
        )


def _hopeless(f: Finalist, share: float) -> bool:
    """Whether a finalist misses the share by more than chance explains, or cannot run."""
    errors = [trial.get("share_error", 0.0) for trial in f.seeds]
    error = math.hypot(*errors) / max(len(errors), 1)
    return not f.seeds or share - statistics.fmean(f.shares) > NEARLY * error


def _is_over(search: Search, over: Callable[[], bool]) -> bool:
    """Whether a search has found a deployment or used up its time."""
    return over() or bool(search.ranked())


def _level(own: float, value: float, step: int) -> float:
    """A limit relaxed by a step of a geometric series; step 0 is `value`."""
    return float(f"{own + (value - own) * PART**step:.{DIGITS}g}")


def breaks_first(trial: Trial, plan: Plan) -> str:
    """TTFT or TPOT, whichever a run misses first: the one that misses alone, otherwise the
    farther."""
    ttft, tpot = trial.get("needs_ttft_s"), trial.get("needs_tpot_s")
    if (ttft is None) != (tpot is None):
        return "TPOT" if ttft is None else "TTFT"
    statistic, slo = "mean" if plan.by == "mean" else "p99", plan.scenario.slo
    excess_by_limit = {
        name: (trial[f"{name.lower()}_s_{statistic}"] or 0.0) / limit
        for name, limit in (("TTFT", slo.ttft_s), ("TPOT", 1e-3 * slo.tpot_ms))
    }
    return max(excess_by_limit, key=lambda name: excess_by_limit[name])


def _answers(
    pairs: Sequence[tuple[Any, Scenario]],
) -> Generator[tuple[Scenario, ...], Any, list[tuple[tuple[Any, Scenario], Trial | str]]]:
    """Pairs (key, scenario) with the simulated figures of each."""
    pairs_answered: list[tuple[tuple[Any, Scenario], Trial | str]] = []
    for k in range(0, len(pairs), BATCHED):
        part = pairs[k : k + BATCHED]
        answers = yield tuple(s for _, s in part)
        pairs_answered += zip(part, answers, strict=True)
    return pairs_answered


def _survived(f: Finalist) -> list[str]:
    return [loss for loss, row in f.losses.items() if row["status"] == "feasible"]
