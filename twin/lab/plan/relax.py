"""Where nothing fits: searches for the smallest relaxation of each limit alone that is enough."""

import math
import statistics
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from twin.facts import Facts
from twin.lab.explain.runs import with_seeds
from twin.lab.plan.candidates import Candidate, Space, space_of
from twin.lab.plan.search import FRESH, Search, Steps, Tested, simulate_pairs
from twin.lab.plan.trial import SEEDS, chance_error, scenario_at
from twin.scenario import Scenario, field_info, with_overrides

NEAREST = 3  # deployments of which more seeds say what they need of a limit
RELAXED = 12  # simulations for each limit, where nothing fits
LONGER, LONGEST_S = 1.2, 10.0  # a TPOT that is tried after another; beyond, nothing helps
LEVELS = 2  # of these with deployments: a formula may promise what simulations do not reach
DOUBLINGS = 4  # of a TPOT, while no deployment meets TTFT
PART, TRIED = 0.95, 12  # of a relaxation, the next smaller one; searches for each limit
DIGITS = 5  # of a relaxation
LOAD, LEAST = "load_req_per_s", 0.1  # the least that is tried, of the load
HALVED = 6  # times between two loads, for a first guess
NEAR = 4  # deployments of that guess; that carried most, tried first with the next load


class Fit(NamedTuple):
    """A deployment that fits, and the simulated seconds of the runs that show it."""

    candidate: Candidate
    run_s: float


Proved = Generator[tuple[Scenario, ...], Any, Fit | None]


@dataclass
class Relax:
    """Relaxations of the limits of a search that found nothing."""

    search: Search
    facts: Facts
    proved: Callable[[Search], Proved]  # the first deployment of a search that proofs leave
    fallen: tuple[Fit, list[str]] | None = None  # one that losses take out; what it survives
    relaxations: list[dict[str, Any]] = field(default_factory=list)
    limit: str = ""  # that is being relaxed: a field's path, or a key of `answer.LIMITS`
    # Largest load (requests/s) that a deployment keeps, and least that it misses beyond chance, by
    # its settings:
    carried: dict[Any, float] = field(default_factory=dict)
    too_much: dict[Any, float] = field(default_factory=dict)

    def limits(self) -> list[str]:
        """Limits to relax, in order: paths of fields, and keys of `answer.LIMITS`."""
        plan, has_load = self.search.plan, self.search.space.rate is not None
        other_limits = {
            "power_kw": plan.power_kw, "cost_per_million_tokens": plan.cost_per_million_tokens,
            "survives": self.fallen is not None, "npus": plan.npus,
            LOAD: has_load and self.search.space.prices.offered is not None,
        }  # fmt: skip
        slo_limits = ("slo.tpot_ms", "slo.ttft_s", "slo.share")
        return [*slo_limits, *(limit_key for limit_key, is_set in other_limits.items() if is_set)]

    def share_done(self) -> float:
        """Share of the limits of which the relaxation is done, 0 to 1."""
        all_limits = self.limits()
        return all_limits.index(self.limit) / len(all_limits) if self.limit else 0.0

    def steps(self) -> Steps:
        """Generator of scenarios to run: finds the smallest relaxation of each limit in turn."""
        for limit in self.limits():
            self.limit = limit
            yield from self._relax_limit(limit)

    def _relax_limit(self, limit: str) -> Steps:
        """Generator: finds the smallest relaxation of one limit with which something fits."""
        search, scenario, plan = self.search, self.search.space.base, self.search.plan
        if limit == "slo.tpot_ms":
            yield from self._try_fastest(limit)
            yield from self._relax_least(limit, plan.scenario.slo.tpot_ms, "needs_tpot_s", 1e3)
        elif limit == "slo.ttft_s":
            yield from self._try_fastest(limit)
            yield from self._relax_least(limit, scenario.slo.ttft_s, "needs_ttft_s", 1.0)
        elif limit == "slo.share":
            yield from self._relax_least(limit, scenario.slo.share, "share", -1.0)
        elif limit == "survives" and self.fallen is not None:
            fit, survived_losses = self.fallen
            self._add_relaxation(limit, list(plan.survives), survived_losses, fit)
        elif limit == "npus":
            any_size_search = Search(self._changed_space(npus=0), self.facts, search.over)
            yield from any_size_search.steps()
            if fitting := any_size_search.ranking():
                smallest = min(fitting, key=lambda t: (t.candidate.npus, t.candidate.settings))
                candidate = smallest.candidate
                run_s = scenario_at(search.space, candidate.changes, smallest.met_rate).horizon_s
                self._add_relaxation(limit, plan.npus, candidate.npus, Fit(candidate, run_s))
        elif limit == LOAD and (rate_per_s := search.space.rate) is not None:
            if carried_per_s := (yield from self._max_load(rate_per_s)):
                yield from self._relax_steps(LOAD, rate_per_s, carried_per_s)
        else:  # power or cost
            yield from self._relax_least(limit, getattr(plan, limit), limit, 1.0)

    def _max_load(self, rate: float) -> Generator[tuple[Scenario, ...], Any, float]:
        """Generator: returns about the largest load (requests/s) below `rate` that any deployment
        carries; 0 if it is less than LEAST times `rate`. A search with the largest load of each
        deployment comes first, then bisection with those nearest to the limits."""
        rate_search = Search(self._changed_space(goal="rate"), self.facts, self.search.over)
        yield from rate_search.steps()
        self._note_loads(rate_search.tested.values())
        carried_per_s = max(
            (deployment.met_rate for deployment in rate_search.tested.values()), default=0.0
        )
        missed_per_s = rate
        tested = [Tested(candidate) for candidate in self._nearest_candidates()]
        nearest_deployments = tested.copy()
        for _ in range(HALVED if tested else 0):
            tried_rate = (max(carried_per_s, LEAST * rate) + missed_per_s) / 2.0
            scenarios = [
                scenario_at(self.search.space, deployment.candidate.changes, tried_rate)
                for deployment in tested
            ]
            for deployment, trial in zip(tested, (yield tuple(scenarios)), strict=True):
                if not isinstance(trial, str):
                    deployment.trials.append(
                        (tried_rate, trial | {"within": not self.search.missed_limits_text(trial)})
                    )
            if carriers := [
                deployment for deployment in tested if deployment.met_rate == tried_rate
            ]:
                carried_per_s, tested = tried_rate, carriers
            else:
                missed_per_s = tried_rate
        self._note_loads(nearest_deployments)
        if carried_per_s:
            return min(carried_per_s, PART * rate)  # up from there, little of each search is new
        return LEAST * rate if (yield from self._find_fit(LOAD, LEAST * rate)) else 0.0

    def _nearest_candidates(self) -> list[Candidate]:
        """Simulated deployments that come nearest to their limit of TTFT or TPOT, best first."""
        slo = self.search.space.base.slo
        limits = (("needs_ttft_s", slo.ttft_s), ("needs_tpot_s", 1e-3 * slo.tpot_ms))

        def distance(t: Tested) -> tuple[float, float, Any]:
            """Sort key: smallest ratio of needed to present limit, then the larger share."""
            trial = t.trials[-1][1]
            needed_ratios = [trial[key] / limit for key, limit in limits if trial[key] is not None]
            return min(needed_ratios, default=math.inf), -trial["share"], t.candidate.settings

        nearest_first = sorted(
            (deployment for deployment in self.search.tested.values() if deployment.trials),
            key=distance,
        )
        return [deployment.candidate for deployment in nearest_first[:NEAR]]

    def _note_loads(self, tested: Iterable[Tested]) -> None:
        """Store for each deployment the largest load (requests/s) that it carries, and the smallest
        at which it misses a limit by more than chance."""
        required_share = self.search.space.base.slo.share
        for deployment in tested:
            settings = deployment.candidate.settings
            for rate_per_s, trial in deployment.trials:
                is_overloaded = trial["steady_state"] == "overloaded"
                if trial["within"]:
                    self.carried[settings] = max(rate_per_s, self.carried.get(settings, 0.0))
                elif is_overloaded or required_share - trial["share"] > chance_error(trial):
                    self.too_much[settings] = min(rate_per_s, self.too_much.get(settings, math.inf))

    def _changed_space(self, **fields: Any) -> Space:
        """The priced deployments of the plan with new values of some fields, by name."""
        new_plan = self.search.plan.model_copy(update=fields)
        return space_of(new_plan, self.facts, self.search.space)

    def _relax_least(self, limit: str, base: Any, key: str, scale: float) -> Steps:
        """Generator: finds the smallest relaxation of a limit from its present value (`base`).
        It begins with the value that the nearest simulated deployments need over all seeds. key:
        figure of a run with the needed value; scale: factor from the figure's unit to the limit's,
        negative if the limit relaxes downwards."""
        search, is_share = self.search, scale < 0.0
        is_resource = key in ("power_kw", "cost_per_million_tokens")
        needed_values = [
            (
                -trial[key] if is_share else trial[key],
                tested.candidate.settings,
                rate_per_s,
                tested.candidate,
            )
            for tested in search.tested.values()
            for rate_per_s, trial in tested.trials
            if trial[key] is not None and (trial["holds"] or not is_resource)
        ]
        nearest_by_settings: dict[Any, tuple[float, Candidate]] = {}
        for _, settings, rate_per_s, candidate in sorted(needed_values, key=lambda row: row[:3]):
            nearest_by_settings.setdefault(settings, (rate_per_s, candidate))
        nearest_pairs = list(nearest_by_settings.values())[:NEAREST]
        candidates_and_scenarios = [
            (candidate, scenario)
            for rate_per_s, candidate in nearest_pairs
            for scenario in with_seeds(search.steady_at(candidate, rate_per_s), SEEDS)
        ]
        needs_by_settings: dict[Any, list[Any]] = {}
        for (candidate, _), trial in (yield from simulate_pairs(candidates_and_scenarios)):
            need = None if isinstance(trial, str) else trial[key]
            needs_by_settings.setdefault(candidate.settings, []).append(need)
        mean_needs = [
            (scale * (max(needs) if is_resource else statistics.fmean(needs)), index)
            for index, needs in enumerate(needs_by_settings.values())
            if None not in needs
        ]
        smallest_need, index = min(mean_needs, default=(0.0, 0))
        need = abs(smallest_need)
        if need > (0.5 if is_share else 0.0) and (need < base if is_share else need > base):
            rate_per_s, nearest_candidate = nearest_pairs[index]
            run_s = search.steady_at(nearest_candidate, rate_per_s).horizon_s
            yield from self._relax_steps(limit, base, need, Fit(nearest_candidate, run_s))

    def _relax_steps(
        self, limit: str, base: float, value: float, nearest: Fit | None = None,
    ) -> Steps:  # fmt: skip
        """Generator: finds the smallest step of a geometric series from `base` through `value` at
        which a search finds a deployment. nearest: one that fits at `value`, if time runs out."""
        fitting_by_step: dict[int, Fit] = {}
        failing_steps: set[int] = set()
        step_number, step_size, limit_field = 1, 1, field_info(limit)
        highest_limit = limit_field.high if limit_field and limit_field.high else math.inf
        for _ in range(TRIED):
            tried_limit = _relaxed_limit(base, value, step_number)
            if not 0.0 < tried_limit <= highest_limit or self.search.over():
                break
            fit = yield from self._find_fit(limit, tried_limit)
            if fit is None:
                failing_steps.add(step_number)
            else:
                fitting_by_step[step_number] = fit
            if not fitting_by_step:
                step_number, step_size = 1 - step_size, 2 * step_size
            elif not failing_steps:
                step_number, step_size = 1 + step_size, 2 * step_size
            elif max(fitting_by_step) + 1 in failing_steps:
                break
            else:
                step_number = (max(fitting_by_step) + min(failing_steps)) // 2
        last_step = max(fitting_by_step, default=0)
        if fit := fitting_by_step.get(last_step, nearest if self.search.over() else None):
            self._add_relaxation(limit, base, _relaxed_limit(base, value, last_step), fit)

    def _find_fit(
        self, limit: str, value: float
    ) -> Generator[tuple[Scenario, ...], Any, Fit | None]:
        """Generator: searches with another limit; returns a deployment that fits, or None."""
        plan, offered_per_s = self.search.plan, self.search.space.prices.offered or 1.0
        overrides: dict[str, Any] = {limit: value}
        if limit == LOAD:
            overrides = {"more": value / offered_per_s - 1.0}
        elif limit.startswith("slo."):
            overrides = {"scenario": with_overrides(plan.scenario, overrides)}
        for stop_at_first in (True, False):  # the first that keeps the limits is mostly enough
            search = Search(self._changed_space(**overrides), self.facts, self.search.over)
            if stop_at_first:
                search.over = partial(lambda s: self.search.over() or bool(s.ranking()), search)
            if limit == LOAD:  # without those that miss the limits at a smaller load
                reason, candidates = "misses a limit at a smaller load", search.space.candidates
                for index, candidate in enumerate(candidates):
                    if self.too_much.get(candidate.settings, math.inf) <= value:
                        candidates[index] = replace(candidate, status="infeasible", reason=reason)
                carriers = [
                    candidate
                    for candidate in search.space.open_candidates
                    if candidate.settings in self.carried
                ]
                carriers.sort(
                    key=lambda candidate: (-self.carried[candidate.settings], candidate.settings)
                )
                yield from search.simulate_new(carriers[:NEAR])
            yield from search.steps()
            stopped_early = bool(search.ranking())
            fit = yield from self.proved(search)
            if limit == LOAD:
                self._note_loads(search.tested.values())
            if fit is not None or not stopped_early:
                break
        return fit

    def _try_fastest(self, limit: str) -> Steps:
        """Generator: simulates untried deployments with the shortest TPOT by formula, also under
        longer TPOT limits; for another limit than TPOT those with the largest bounds."""
        search = self.search
        space, rate_per_s = search.space, (search.space.rate or 0.0)

        def options() -> list[Candidate]:
            """Untried deployments in `space` whose expected rate by formula reaches the load."""
            untried = [
                candidate
                for candidate in space.open_candidates
                if candidate.settings not in search.tested
            ]
            return [
                candidate for candidate in untried if candidate.price.expected > FRESH * rate_per_s
            ]

        if limit != "slo.tpot_ms":
            best_first = sorted(options(), key=lambda c: (-c.price.bound, c.npus, c.settings))
            yield from search.simulate_new(best_first[:RELAXED])
            return
        tpot_s, levels_left = space.prices.tpot_s, LEVELS
        while True:
            best_first = sorted(options(), key=lambda c: (c.price.tpot_s, c.npus, c.settings))
            yield from search.simulate_new(best_first[:RELAXED])
            levels_left -= bool(best_first)
            tpot_s *= LONGER
            if not levels_left or tpot_s > LONGEST_S:
                break
            space = self._space_within(tpot_s)
        life_s = search.space.life_s
        for _ in range(DOUBLINGS):  # so far runs were too short for it, or TTFT was missed by all
            trials = (trial for tested in search.tested.values() for _, trial in tested.trials)
            tpot_s *= 2.0
            if tpot_s > LONGEST_S or any(trial["needs_tpot_s"] is not None for trial in trials):
                break
            space = self._space_within(tpot_s)
            best_first = sorted(options(), key=lambda c: (-c.price.bound, c.npus, c.settings))
            # Runs in which requests of such a TPOT begin and end.
            search.space.life_s = life_s * tpot_s / search.space.prices.tpot_s
            yield from search.simulate_new(best_first[:RELAXED])
        search.space.life_s = life_s

    def _space_within(self, tpot_s: float) -> Space:
        """The priced deployments of the plan with another SLO of TPOT (s)."""
        slo_settings = {"slo.tpot_ms": 1e3 * tpot_s}
        return self._changed_space(scenario=with_overrides(self.search.plan.scenario, slo_settings))

    def _add_relaxation(self, limit: str, value_now: Any, value: Any, fit: Fit) -> None:
        """Add a relaxation: a limit, its present value, and the value with which `fit` fits."""
        candidate, run_s = fit
        relaxation = {"limit": limit, "from": value_now, "to": value, "run_s": run_s}
        self.relaxations.append(
            relaxation | {"settings": candidate.changes, "npus": candidate.npus}
        )


def _relaxed_limit(base: float, value: float, step: int) -> float:
    """The limit at a step from `value` (step 0) to `base`; each step leaves PART of the
    distance."""
    return float(f"{base + (value - base) * PART**step:.{DIGITS}g}")
