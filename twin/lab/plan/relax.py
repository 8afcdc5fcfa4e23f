"""Where nothing fits: for each limit alone the smallest relaxation with which a deployment does, by
searches of their own."""

import math
import statistics
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twin.facts import Facts
from twin.lab.explain.runs import seeded
from twin.lab.plan.candidates import Candidate, Space, space_of
from twin.lab.plan.search import FRESH, Search, Steps, Tested, answers
from twin.lab.plan.trial import SEEDS, by_chance, scenario_of
from twin.scenario import Scenario, with_overrides

NEAREST = 3  # deployments of which more seeds say what they need of a limit
RELAXED = 12  # simulations for each limit, where nothing fits
LONGER, LONGEST_S = 1.2, 10.0  # a TPOT that is tried after another; beyond, nothing helps
LEVELS = 2  # of these with deployments: a formula may promise what simulations do not reach
PART, TRIED = 0.95, 12  # of a relaxation, the next smaller one; searches for each limit
DIGITS = 5  # of a relaxation
LOAD, LEAST = "load_req_per_s", 0.1  # the least that is tried, of the load
HALVED = 6  # times between two loads, for a first guess
NEAR = 4  # deployments of that guess; that carried most, tried first with the next load

Proved = Generator[tuple[Scenario, ...], Any, Candidate | None]


@dataclass
class Relax:
    """Relaxations of the limits of a search that found nothing."""

    search: Search
    facts: Facts
    proved: Callable[[Search], Proved]  # the first deployment of a search that proofs leave
    fallen: tuple[Candidate, list[str]] | None = None  # one that losses take out; what it survives
    found: list[dict[str, Any]] = field(default_factory=list)
    # Largest load (requests/s) that a deployment keeps, and least that it misses beyond chance, by
    # its settings:
    carried: dict[Any, float] = field(default_factory=dict)
    too_much: dict[Any, float] = field(default_factory=dict)

    def steps(self) -> Steps:
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
        if self.fallen is not None:
            c, survived = self.fallen
            self._relax("survives", list(plan.survives), survived, c)
        if plan.npus:
            other = Search(self._space(npus=0), self.facts, search.over)
            yield from other.steps()
            if fitting := other.ranked():
                c = min((t.candidate for t in fitting), key=lambda c: (c.npus, c.settings))
                self._relax("npus", plan.npus, c.npus, c)
        rate = search.space.rate if search.space.prices.offered is not None else None
        if rate is not None and (carried := (yield from self._most(rate))):
            yield from self._stepwise(LOAD, rate, carried)

    def _most(self, rate: float) -> Generator[tuple[Scenario, ...], Any, float]:
        """About the largest load below `rate` (requests/s) that a deployment carries; 0 if not even
        the least is carried. First by a search in which each has a load of its own, then between
        that load and `rate` by halving for the nearest to the limits: either may miss the best."""
        search = Search(self._space(goal="rate"), self.facts, self.search.over)
        yield from search.steps()
        self._note_loads(search.tested.values())
        low, high = max((t.low for t in search.tested.values()), default=0.0), rate
        trying = [Tested(c) for c in self._nearest()]
        nearest = trying.copy()
        for _ in range(HALVED if trying else 0):
            load = (max(low, LEAST * rate) + high) / 2.0
            scenarios = [scenario_of(self.search.space, t.candidate.given, load) for t in trying]
            for t, trial in zip(trying, (yield tuple(scenarios)), strict=True):
                if not isinstance(trial, str):
                    t.trials.append((load, trial | {"within": not self.search.misses(trial)}))
            if keeping := [t for t in trying if t.low == load]:
                low, trying = load, keeping
            else:
                high = load
        self._note_loads(nearest)
        if low:
            return min(low, PART * rate)  # up from there, little of each search is new
        least = yield from self._fits(LOAD, LEAST * rate)
        return LEAST * rate if least else 0.0

    def _nearest(self) -> list[Candidate]:
        """Simulated deployments that are nearest to the limits."""
        slo = self.search.space.base.slo
        limits = (("needs_ttft_s", slo.ttft_s), ("needs_tpot_s", 1e-3 * slo.tpot_ms))

        def distance(t: Tested) -> tuple[float, float, Any]:
            trial = t.trials[-1][1]
            needs = [trial[key] / limit for key, limit in limits if trial[key] is not None]
            return min(needs, default=math.inf), -trial["share"], t.candidate.settings

        simulated = sorted((t for t in self.search.tested.values() if t.trials), key=distance)
        return [t.candidate for t in simulated[:NEAR]]

    def _note_loads(self, tested: Iterable[Tested]) -> None:
        """Note which loads deployments keep, and which they miss beyond chance."""
        share = self.search.space.base.slo.share
        for t in tested:
            settings = t.candidate.settings
            for rate, trial in t.trials:
                missing, overloaded = share - trial["share"], trial["steady_state"] == "overloaded"
                if trial["within"]:
                    self.carried[settings] = max(rate, self.carried.get(settings, 0.0))
                elif overloaded or missing > by_chance(trial):
                    self.too_much[settings] = min(rate, self.too_much.get(settings, math.inf))

    def _informed(self, search: Search, load: float) -> Steps:
        """Exclude deployments that miss the limits at a smaller load; simulate first those that
        carried most."""
        for k, c in enumerate(search.space.candidates):
            if self.too_much.get(c.settings, math.inf) <= load:
                search.space.candidates[k] = c.refused("misses a limit at a smaller load")
        known = [c for c in search.space.open if c.settings in self.carried]
        known.sort(key=lambda c: (-self.carried[c.settings], c.settings))
        yield from search.tried(known[:NEAR])

    def _space(self, **changed: Any) -> Space:
        """The deployments of a plan with another limit or goal."""
        plan = self.search.plan.model_copy(update=changed)
        return space_of(plan, self.facts, self.search.space)

    def _least(self, limit: str, own: Any, key: str, scale: float) -> Steps:
        """Find the smallest relaxation of a limit. The search begins with the smallest value (with
        a negative scale the largest) that simulated deployments need over all seeds."""
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
        pairs = [
            (c, s) for rate, c in nearest_few for s in seeded(search.at_steady(c, rate), SEEDS)
        ]
        needs: dict[Any, list[Any]] = {}
        for (c, _), trial in (yield from answers(pairs)):
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
        """Find the smallest step of a geometric series through `value` with which a search finds a
        deployment. `nearest` needs `value`; it is the answer if the plan's seconds are used up."""
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
                search.over = partial(lambda s: self.search.over() or bool(s.ranked()), search)
            if limit == LOAD:
                yield from self._informed(search, value)
            yield from search.steps()
            stopped = bool(search.ranked())
            found = yield from self.proved(search)
            if limit == LOAD:
                self._note_loads(search.tested.values())
            if found is not None or not stopped:
                break
        return found

    def _fastest(self, limit: str) -> Steps:
        """Simulate deployments of least need by formula; for TPOT, also those of looser plans."""
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
        while True:
            order = sorted(able(), key=lambda c: (c.price.tpot_s, c.npus, c.settings))
            yield from search.tried(order[:RELAXED])
            levels -= bool(order)
            tpot_s *= LONGER
            if not levels or tpot_s > LONGEST_S:
                return
            s = with_overrides(search.plan.scenario, {limit: 1e3 * tpot_s})
            space = self._space(scenario=s)

    def _relax(self, limit: str, own: Any, value: Any, c: Candidate) -> None:
        to = {"limit": limit, "from": own, "to": value}
        self.found.append(to | {"settings": c.given, "npus": c.npus})


def _level(own: float, value: float, step: int) -> float:
    """A limit relaxed by a step of a geometric series; step 0 is `value`."""
    return float(f"{own + (value - own) * PART**step:.{DIGITS}g}")
