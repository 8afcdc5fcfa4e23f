"""The search of a plan: `Search.steps` gives batches of scenarios and gets what they measured, the
same in one process, several, or from a store. All deployments get the same requests (one seed)."""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.facts import Facts
from twin.lab.explain.capacity import with_span
from twin.lab.plan.candidates import Candidate, Space, merit
from twin.lab.plan.price import LUCK
from twin.lab.plan.question import Plan
from twin.lab.plan.space import CHOICES
from twin.lab.plan.trial import Trial, scenario_at
from twin.scenario import Scenario, SpecError

BATCHED = 8  # simulations at a time
SCREENED, NEAR = 0.5, 0.2  # of the budget: one simulation each; neighbours of the best
FRESH = 0.93  # of the formula's rate keeps an SLO, before anything is known
STEP = 1.05  # between two loads of a deployment
LEAST = 1 / 64  # of the formula's rate: no load below is tried
CLOSE = 1.03  # between a load that keeps the SLO and one that does not: near enough
# Factors on the expected figures of a deployment, tried in turn: the formula compares two
# deployments within some per cent.
PROMISING = (1.0, 1.04, 1.08)
LITTLE, UNLIKELY = 0.003, 0.1  # gain over the front that is not worth a run; a small chance
BEST = 3  # deployments whose neighbours are tried

FLOATS = NDArray[np.float64]
Steps = Generator[tuple[Scenario, ...], Sequence[Trial | str], None]


class FormulaRatios(NamedTuple):
    """Ratios of simulated to formula figures."""

    rates: dict[str, float]  # of its largest rate, by limiting pool
    tpot: float


@dataclass
class Tested:
    """A deployment with its simulations."""

    candidate: Candidate
    trials: list[tuple[float, Trial]] = field(default_factory=list)  # by rate
    failed: str = ""

    @property
    def met_rate(self) -> float:
        """Largest rate (requests/s) at which the deployment met all limits; 0 if none is known."""
        return max((rate for rate, trial in self.trials if trial["within"]), default=0.0)

    @property
    def missed_rate(self) -> float:
        """Smallest rate (requests/s) at which the deployment missed a limit; else infinite."""
        return min((rate for rate, trial in self.trials if not trial["within"]), default=math.inf)

    @property
    def best_trial(self) -> Trial | None:
        """Figures of the simulation at the largest rate that met all limits; None without one."""
        best_rate = self.met_rate
        met_trials = (trial for rate, trial in self.trials if rate == best_rate and trial["within"])
        return next(met_trials, None)

    @property
    def is_closed(self) -> bool:
        """Whether no further load is worth a run: met and missed rate are close, the
        missed one is far below what is expected, or it failed."""
        least_per_s = max(self.met_rate * CLOSE, LEAST * self.candidate.price.expected)
        return bool(self.failed) or self.missed_rate <= least_per_s

    @property
    def likely_rate(self) -> float:
        """Best estimate of the deployment's largest rate (requests/s)."""
        if not self.met_rate:
            return self.missed_rate / STEP
        if math.isinf(self.missed_rate):
            return self.met_rate * math.sqrt(STEP)
        return math.sqrt(self.met_rate * max(self.missed_rate, self.met_rate))


@dataclass
class Search:
    """The state of a plan's search."""

    space: Space
    facts: Facts
    over: Callable[[], bool] = lambda: False  # whether the seconds of the plan are used up
    tested: dict[Any, Tested] = field(default_factory=dict)  # by settings of the candidate
    runs: int = 0

    @property
    def plan(self) -> Plan:
        """The plan that this search is to answer."""
        return self.space.plan

    @property
    def has_one_load(self) -> bool:
        """Whether each deployment runs at one load only: the plan's, or all its slots taken."""
        return self.plan.is_load_fixed or self.space.prices.offered is None

    @property
    def is_full(self) -> bool:
        """Whether clients of a closed loop take every slot of a deployment, so that its batch sets
        its load."""
        return not self.plan.is_load_fixed and self.space.prices.offered is None

    def steps(self) -> Steps:
        """Generator of batches of scenarios of the whole search; results are in `tested`."""
        run_budget = self.plan.simulations
        # The scenario's own deployment, where it is one of the candidates: the baseline.
        own_candidate = next(
            (candidate for candidate in self.space.open_candidates if self.space.is_own(candidate)),
            None,
        )
        screening_budget = run_budget if self.has_one_load else SCREENED * run_budget
        yield from self.simulate_new([own_candidate] if own_candidate else [])
        # Neighbours have other choices, or finer batches where these are the load.
        has_neighbours = self.is_full or any(
            not CHOICES[choice_key].crossed for choice_key in self.plan.vary
        )
        screening_end = int(screening_budget * (1.0 - NEAR * has_neighbours))
        # Once each in order of promise, until none promises more.
        untried = [
            candidate
            for candidate in self.space.open_candidates
            if candidate.settings not in self.tested
        ]
        while untried and self.runs < screening_end and not self.over():
            if not (chosen_batch := self._pick(untried, min(BATCHED, screening_end - self.runs))):
                break
            yield from self.simulate_new(chosen_batch)
            untried = [candidate for candidate in untried if candidate.settings not in self.tested]
        # One choice at a time around the best deployments, with matching counts.
        while (runs_left := int(screening_budget) - self.runs) > 0 and not self.over():
            leaders = self.ranking()[:BEST]
            neighbours = self._neighbours([leader.candidate for leader in leaders])[
                : min(BATCHED, runs_left)
            ]
            if not neighbours:
                break
            yield from self.simulate_new(neighbours)
        if not self.has_one_load:
            yield from self._narrow_down(run_budget)

    @property
    def formula_ratios(self) -> FormulaRatios:
        """Median ratios of simulated to formula figures over the tested deployments."""
        ratios_by_pool: dict[str, list[float]] = {}
        tpot_ratios: list[float] = []
        for tested in self.tested.values():
            price = tested.candidate.price
            trial = tested.trials[-1][1] if self.is_full and tested.trials else tested.best_trial
            if tested.trials and not tested.failed and not self.has_one_load:
                rate_ratios = ratios_by_pool.setdefault(price.limit, [])
                rate_ratios.append(tested.likely_rate / max(price.expected, 1e-12))
            if trial and trial["tpot_s_mean"] and 0.0 < price.tpot_s < math.inf:
                tpot_ratios.append(trial["tpot_s_mean"] / price.tpot_s)
        return FormulaRatios(
            {pool: statistics.median(pool_ratios) for pool, pool_ratios in ratios_by_pool.items()},
            statistics.median(tpot_ratios) if tpot_ratios else 1.0,
        )

    def steady_at(self, c: Candidate, rate: float) -> Scenario:
        """Scenario of a deployment at `rate` requests/s, its run long enough for a steady state."""
        return with_span(scenario_at(self.space, c.changes, rate), self.facts, rate)

    def expected_point(self, c: Candidate, ratios: FormulaRatios) -> tuple[float, float]:
        """Expected (score, tokens/s per user): formula figures times ratios of earlier runs."""
        rate_per_s = c.price.expected * ratios.rates.get(c.price.limit, FRESH)
        tpot_s = ratios.tpot * c.price.tpot_s
        if not math.isfinite(tpot_s) or tpot_s <= 0.0:
            tpot_s = self.space.prices.tpot_s
        return merit(self.plan.goal, rate_per_s, c.npus), 1.0 / tpot_s

    def proved_point(self, t: Tested) -> tuple[float, float] | None:
        """Simulated (score, tokens/s per user) of a deployment; None if a limit was missed."""
        if (trial := t.best_trial) is None:
            return None
        is_closed_loop = self.space.prices.offered is None
        req_per_s = self.answered_per_s(t.candidate, trial) if is_closed_loop else t.met_rate
        user_tokens_per_s = 1.0 / (trial["tpot_s_mean"] or trial["ttft_s_mean"] or math.inf)
        return merit(self.plan.goal, req_per_s, t.candidate.npus), user_tokens_per_s

    def answered_per_s(self, c: Candidate, trial: Trial) -> float:
        """Requests/s answered, from tokens/s, because answers of a short run end in waves."""
        return (trial["tokens_per_s_per_npu"] or 0.0) * c.npus / self.space.prices.request_tokens

    def _pick(self, untried: Sequence[Candidate], count: int) -> list[Candidate]:
        """At most `count` candidates with the largest product of gain beyond the front and chance
        to meet the limits; if none is likely to fit, those of shortest TPOT or largest bound."""
        ratios = self.formula_ratios
        proved_points = [
            point
            for tested in self.tested.values()
            if (point := self.proved_point(tested)) is not None
        ]
        eligible = [c for c in untried if self._may_carry_load(c)]
        eligible.sort(key=lambda c: (-c.price.expected, c.settings))
        chances = np.array([self._chance_to_fit(c, ratios.tpot) for c in eligible])
        if not proved_points and not (chances > UNLIKELY).any():
            # None is expected to fit: half by the shortest TPOT, half by the largest bounds.
            by_tpot = sorted(untried, key=lambda c: (c.price.tpot_s, c.npus, c.settings))
            by_bound = sorted(untried, key=lambda c: (-c.price.bound, c.npus, c.settings))
            both_orders = itertools.chain.from_iterable(zip(by_tpot, by_bound, strict=True))
            return list({c.settings: c for c in itertools.islice(both_orders, count)}.values())
        forecasts = np.array([self.expected_point(c, ratios) for c in eligible]).reshape(-1, 2)
        for promise_factor in PROMISING:
            points = promise_factor * forecasts
            chosen_candidates: list[Candidate] = []
            reference_points = proved_points or [tuple(points.min(axis=0))]
            gains = np.min([excess_shares(points, *point) for point in reference_points], axis=0)
            while len(chosen_candidates) < min(count, len(eligible)):
                best_index = int(np.argmax(chances * gains))
                if chances[best_index] * gains[best_index] < LITTLE:
                    break
                chosen_candidates.append(eligible[best_index])
                gains = np.minimum(gains, excess_shares(points, *points[best_index]))
            if chosen_candidates:
                return chosen_candidates
        return []

    def _chance_to_fit(self, c: Candidate, tpot_ratio: float) -> float:
        """Probability that a deployment meets the limits, from simulated deployments: with full
        batches from those with a similar TPOT, at a common load from those with the same limiting
        pool. tpot_ratio: simulated TPOT divided by the formula's."""
        rate_per_s = self.space.rate
        if self.is_full:
            most_tpot_s, formula_tpot_s = self.space.prices.tpot_s / tpot_ratio, c.price.tpot_s
            if formula_tpot_s <= most_tpot_s:
                return 1.0
            prices = (
                tested.candidate.price for tested in self.tested.values() if not tested.met_rate
            )
            return (
                0.0
                if any(most_tpot_s < price.tpot_s <= formula_tpot_s for price in prices)
                else UNLIKELY
            )
        if rate_per_s is None or self.space.prices.offered is None:
            return 1.0
        least_met_ratio, most_missed_ratio = 1.0 / FRESH, 0.0  # ratios of expected to offered rates
        for tested in self.tested.values():
            if tested.trials and tested.candidate.price.limit == c.price.limit:
                ratio = tested.candidate.price.expected / rate_per_s
                if tested.met_rate:
                    least_met_ratio = min(least_met_ratio, ratio)
                else:
                    most_missed_ratio = max(most_missed_ratio, ratio)
        ratio = c.price.expected / rate_per_s
        return (
            0.5 * float(ratio >= least_met_ratio) + 0.5 * float(ratio > most_missed_ratio)
            or UNLIKELY
        )

    def _may_carry_load(self, c: Candidate) -> bool:
        """Whether the largest rate that is possible by formula reaches the rate that all
        deployments are to carry; without such a rate, whether the expected one is above 0."""
        wanted_req_per_s = self.space.rate
        if wanted_req_per_s is None or self.space.prices.offered is None:
            return c.price.expected > 0.0
        return c.price.bound >= wanted_req_per_s

    def _neighbours(self, best: Sequence[Candidate]) -> list[Candidate]:
        """For each of the best and each single change, the most promising untried candidate."""
        for best_candidate in best:
            self.space.add_neighbours(best_candidate)
        formula_ratios, candidates_by_kind = self.formula_ratios, defaultdict(list)
        for candidate in self.space.open_candidates:
            candidates_by_kind[candidate.kind].append(candidate)
        best_by_settings: dict[Any, tuple[float, Candidate]] = {}
        for best_candidate in best:
            for same_kind in candidates_by_kind.values():
                changed_settings = self.space.differing_settings(same_kind[0], best_candidate)
                untried = [
                    candidate for candidate in same_kind if candidate.settings not in self.tested
                ]
                if len(changed_settings) > 1 or (
                    changed_settings and len(untried) < len(same_kind)
                ):
                    continue
                scored_candidates = [
                    (self.expected_point(candidate, formula_ratios)[0], candidate)
                    for candidate in untried
                    if self._may_carry_load(candidate)
                    and self._chance_to_fit(candidate, formula_ratios.tpot) > 0.0
                ]
                if scored_candidates:
                    best_pair = max(
                        scored_candidates, key=lambda pair: (pair[0], pair[1].price.expected)
                    )
                    best_by_settings[best_pair[1].settings] = best_pair
        return [
            candidate
            for _, candidate in sorted(
                best_by_settings.values(), key=lambda p: (-p[0], p[1].settings)
            )
        ]

    def _narrow_down(self, budget: int) -> Steps:
        """Generator: simulates further loads of the best half of deployments, then of the best
        quarter, and so on, until the budget (number of simulations) is used up."""
        top_share = 0.5
        while self.runs < budget and not self.over():
            best_first = sorted(
                self.tested.values(),
                key=lambda t: (-merit(self.plan.goal, t.likely_rate, t.candidate.npus),
                               t.candidate.settings),
            )  # fmt: skip
            top_half = best_first[: max(2 * BATCHED, int(top_share * len(best_first)))]
            open_tested = [tested for tested in top_half if not tested.is_closed]
            batch_limit = BATCHED
            if not self.ranking():  # the load of the same few is lowered until one carries it
                open_tested.sort(key=lambda t: -len(t.trials))
                batch_limit = BEST
            open_tested = open_tested[: min(batch_limit, budget - self.runs)]
            if not open_tested:
                return
            top_share = max(0.5 * top_share, 0.05)
            yield from self._simulate([(tested, _next_load(tested)) for tested in open_tested])

    def simulate_new(self, candidates: Iterable[Candidate]) -> Steps:
        """Generator: simulates each deployment for the first time."""
        ratios_by_limit, tested_and_rates = self.formula_ratios.rates, []
        for candidate in candidates:
            tested = self.tested.setdefault(candidate.settings, Tested(candidate))
            rate_per_s = self.space.rate
            if rate_per_s is None:
                rate_ratio = ratios_by_limit.get(candidate.price.limit, FRESH)
                rate_per_s = max(candidate.price.expected * rate_ratio, 1e-3)
            tested_and_rates.append((tested, rate_per_s))
        yield from self._simulate(tested_and_rates)

    def _simulate(self, pairs: Sequence[tuple[Tested, float]]) -> Steps:
        """Generator: simulates tested deployments at rates (requests/s), and stores the results."""
        simulated_pairs, scenarios = [], []
        for tested, rate_per_s in pairs:
            try:
                scenarios.append(scenario_at(self.space, tested.candidate.changes, rate_per_s))
                simulated_pairs.append((tested, rate_per_s))
            except SpecError as error:
                tested.failed = str(error)
        if not scenarios:
            return
        new_trials = yield tuple(scenarios)
        self.runs += len(scenarios)
        for (tested, rate_per_s), trial in zip(simulated_pairs, new_trials, strict=True):
            if isinstance(trial, str):
                tested.failed = trial
            else:
                tested.trials.append(
                    (rate_per_s, trial | {"within": not self.missed_limits_text(trial)})
                )

    def missed_limits_text(self, trial: Trial) -> str:
        """Sentence on the limits that a simulation misses; '' if it meets all."""
        base, plan, problems = self.space.base, self.plan, []
        if not trial["holds"]:
            statistic = "mean" if plan.by == "mean" else "p99"
            latency_texts = [
                f"{statistic} {name} {1e3 * latency_s:,.4g} ms"
                for name in ("TTFT", "TPOT")
                if (latency_s := trial[f"{name.lower()}_s_{statistic}"]) is not None
            ]
            overload_text = "overloaded, " if trial["steady_state"] == "overloaded" else ""
            share_text = f"{100 * trial['share']:.1f} % of requests keep the SLO, "
            share_text += f"{100 * base.slo.share:g} % have to: "
            share_text = share_text if plan.by == "share" else ""
            problems.append(overload_text + share_text + ", ".join(latency_texts))
        for figure, unit in (("power_kw", "kW"), ("cost_per_million_tokens", "per million tokens")):
            limit, figure_value = getattr(plan, figure), trial[figure]
            if limit and (figure_value is None or figure_value > limit):
                problems.append(f"{figure_value or math.inf:,.4g} {unit}, {limit:g} are allowed")
        return "; ".join(problems)

    def ranking(self) -> list[Tested]:
        """Deployments that met every limit, the best first."""
        points_and_tested = [
            (point, tested)
            for tested in self.tested.values()
            if (point := self.proved_point(tested)) is not None
        ]
        best_first = sorted(
            points_and_tested, key=lambda x: (-x[0][0], -x[0][1], x[1].candidate.settings)
        )
        return [tested for _, tested in best_first]

    def score_gap(self, best_score: float, proved: Container[Any]) -> float:
        """Largest share by which deployments may exceed the best score, according to their bounds,
        without those whose settings are in `proved`."""
        highest_bound = best_score
        for candidate in self.space.open_candidates:
            rate_per_s, tested = candidate.price.bound, self.tested.get(candidate.settings)
            if candidate.settings in proved or (tested and (tested.failed or self.has_one_load)):
                continue
            rate_per_s = min(rate_per_s, LUCK * tested.missed_rate) if tested else rate_per_s
            highest_bound = max(highest_bound, merit(self.plan.goal, rate_per_s, candidate.npus))
        return highest_bound / best_score - 1.0


def excess_shares(points: FLOATS, x: float, y: float) -> FLOATS:
    """Share f8[n], at least 0, by which each of n points exceeds (x, y); points: f8[n, 2]. It is
    taken on the axis on which it is larger."""
    return np.asarray(np.maximum(0.0, 1.0 - np.array([x, y]) / points).max(axis=1))


def _next_load(t: Tested) -> float:
    """Next load (requests/s) to try with a deployment: beyond or between loads that it met and
    missed."""
    if not t.met_rate:
        return t.missed_rate / STEP**2 ** (len(t.trials) - 1)  # a formula may be far off
    return t.met_rate * STEP if math.isinf(t.missed_rate) else math.sqrt(t.met_rate * t.missed_rate)


def simulate_pairs(
    pairs: Sequence[tuple[Any, Scenario]],
) -> Generator[tuple[Scenario, ...], Any, list[tuple[tuple[Any, Scenario], Trial | str]]]:
    """Generator: yields the scenarios of (key, scenario) pairs in batches; returns a list of (pair,
    figures), with a sentence in place of figures if the run is impossible."""
    trials: list[Trial | str] = []
    for begin in range(0, len(pairs), BATCHED):
        trials += yield tuple(scenario for _, scenario in pairs[begin : begin + BATCHED])
    return list(zip(pairs, trials, strict=True))
