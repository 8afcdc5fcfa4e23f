"""Proof of the best deployments: more seeds, their largest load, losses that they survive (what is
lost, and when it is judged); where none fits, the smallest relaxation of each limit."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.faults import with_faults
from twin.hardware.placement import Instance, place
from twin.lab.explain.capacity import Capacity, search_steps, stays_steady, with_load, with_span
from twin.lab.explain.runs import with_seeds
from twin.lab.explain.view import load_of
from twin.lab.plan.candidates import Candidate, merit
from twin.lab.plan.question import Plan
from twin.lab.plan.relax import Fit, Proved, Relax
from twin.lab.plan.search import FRESH, Search, Steps, Tested, simulate_pairs
from twin.lab.plan.trial import SEEDS, Trial, chance_error, scenario_at
from twin.scenario import Fault, Scenario, SpecError, with_overrides

CARRIED = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of its largest load, tried until a loss is survived
SPARED = (1.1, 1.25, 1.5, 2.0)  # of the load by formula, where nothing smaller survives
SPARES = 4  # deployments of each of these, and those that are near enough to look at again


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
        """The deployment: its settings and price."""
        return self.tested.candidate

    @property
    def shares(self) -> list[float]:
        """Share of requests that met the SLO in the run of each seed."""
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
    relax: Relax | None = None  # once nothing fits

    def steps(self) -> Steps:
        """Generator of scenarios to run: proves the best deployments, or relaxes the limits."""
        yield from self._find_finalists()
        self.finalists.sort(key=self._sort_key)
        del self.finalists[self.search.plan.finalists :]
        if self.finalists:
            return

        def prove(search: Search) -> Proved:
            """Generator: proves the best of a search; returns the first that passes, or None."""
            other_finish = Finish(search, self.facts, brief=True)
            yield from other_finish._find_finalists()
            return _fit_of(other_finish.finalists[0]) if other_finish.finalists else None

        hardiest = max(self.fallen, key=lambda f: len(_survived_losses(f)), default=None)
        hardiest_losses = (_fit_of(hardiest), _survived_losses(hardiest)) if hardiest else None
        self.relax = Relax(self.search, self.facts, prove, hardiest_losses, self.relaxations)
        yield from self.relax.steps()

    def _find_finalists(self) -> Steps:
        """Generator: finds proved deployments, else near misses, and tries losses on them."""
        yield from self._prove_best()
        if not self.finalists:
            yield from self._find_near_misses()
            yield from self._find_loads(self.finalists)
        if self.search.plan.survives:
            yield from self._try_losses(self.finalists)
            yield from self._find_spares()
            self.fallen = [finalist for finalist in self.finalists if not finalist.survives]
            self.finalists = [finalist for finalist in self.finalists if finalist.survives]

    def _sort_key(self, f: Finalist) -> tuple[float, float, Any]:
        """Sort key of a finalist: the higher score first, then the larger load."""
        load = f.capacity.load if f.capacity else f.rate
        return -merit(self.search.plan.goal, f.rate, f.candidate.npus), -load, f.candidate.settings

    def _prove_best(self) -> Steps:
        """Generator: proves the best deployment of each family; if it fails, the family's next one.
        One that carries less than its load in longer runs stays only if no other passes."""
        search, tried_settings, fallbacks = self.search, set(), list[Finalist]()
        # One is enough to know that something fits, unless losses take it out.
        finalist_limit = 1 if self.brief and not search.plan.survives else search.plan.finalists
        while not (self.finalists or fallbacks) or not search.over():
            tested_by_family: dict[Any, Tested] = {
                finalist.candidate.family: finalist.tested for finalist in self.finalists
            }
            for tested in search.ranking():
                if tested.candidate.settings not in tried_settings:
                    tested_by_family.setdefault(tested.candidate.family, tested)
            untried = [
                tested
                for tested in tested_by_family.values()
                if tested.candidate.settings not in tried_settings
            ]
            untried = untried[: finalist_limit - len(self.finalists)]
            if not untried:
                break
            tried_settings |= {tested.candidate.settings for tested in untried}
            finalists = [self._finalist(tested) for tested in untried]
            if not search.has_one_load:  # the largest load first: it is what they are ranked by
                yield from self._find_loads(finalists)
            yield from self._run_seeds(finalists)
            passing_finalists = [finalist for finalist in finalists if self._confirm_mean(finalist)]
            if search.has_one_load:
                yield from self._find_loads(passing_finalists)
            for finalist in passing_finalists:
                capacity = finalist.capacity
                is_short = capacity is not None and capacity.load < finalist.rate
                (fallbacks if is_short else self.finalists).append(finalist)
        for finalist in fallbacks if self.finalists else ():
            self._replace_results(finalist, holds=True)
        self.finalists = self.finalists or fallbacks

    def _find_near_misses(self) -> Steps:
        """Generator: proves, on more seeds, deployments that may miss the SLO only by chance."""
        search, required_share = self.search, self.search.space.base.slo.share
        near_misses = [
            (missing_share, tested.candidate.settings, tested, rate)
            for tested in search.tested.values()
            if search.has_one_load
            for rate, trial in tested.trials
            if 0.0 < (missing_share := required_share - trial["share"]) <= chance_error(trial)
        ]
        finalists = [
            self._finalist(tested, rate) for _, _, tested, rate in sorted(near_misses)[:SPARES]
        ]
        undecided = finalists
        for seed_index in range(1 + len(SEEDS)):
            yield from self._run_seeds(undecided, slice(seed_index, seed_index + 1))
            undecided = [  # those that miss the share by no more than chance explains
                finalist for finalist in undecided
                if finalist.seeds and required_share - statistics.fmean(finalist.shares)
                <= chance_error({"share_error": _error_of_mean(finalist)})
            ]  # fmt: skip
        for finalist in finalists:
            if self._confirm_mean(finalist):
                finalist.tested.trials = [(finalist.rate, finalist.seeds[0] | {"within": True})]
                self.finalists.append(finalist)

    def _finalist(self, t: Tested, rate: float = 0.0) -> Finalist:
        """A tested deployment as a finalist at a load (requests/s; 0: the largest it carried)."""
        space, rate = self.search.space, rate or t.met_rate
        scenario = scenario_at(space, t.candidate.changes, rate)
        if space.prices.offered is None and t.best_trial:
            rate = self.search.answered_per_s(t.candidate, t.best_trial)
        return Finalist(t, rate, with_span(scenario, self.facts, rate))

    def _run_seeds(self, group: Sequence[Finalist], chosen: slice = slice(None)) -> Steps:
        """Generator: simulates finalists at their loads with the `chosen` seeds: all by default."""
        pairs = [
            (finalist, scenario)
            for finalist in group
            for scenario in with_seeds(finalist.scenario, SEEDS)[chosen]
        ]
        for (finalist, _), trial in (yield from simulate_pairs(pairs)):
            if not isinstance(trial, str):
                finalist.seeds.append(trial | {"within": not self.search.missed_limits_text(trial)})

    def _confirm_mean(self, f: Finalist) -> bool:
        """Whether the mean over seeds meets the SLO; if not, it replaces the search's figures."""
        overloaded_count = sum(trial["steady_state"] == "overloaded" for trial in f.seeds)
        slo_share = statistics.fmean(f.shares) if f.seeds else 0.0
        if slo_share >= self.search.space.base.slo.share and 2 * overloaded_count <= len(f.seeds):
            return True
        self._replace_results(f, holds=False)
        return False

    def _replace_results(self, f: Finalist, *, holds: bool) -> None:
        """Replace a finalist's results at its load and above by the mean over its seeds, marked as
        missing a limit; holds: whether the seeds meet the SLO."""
        tested, missed_rate_per_s = f.tested, f.tested.met_rate or f.rate
        last_trial = tested.best_trial or tested.trials[-1][1]  # the second if only nearly enough
        mean_trial = {
            **last_trial, "share": statistics.fmean(f.shares) if f.seeds else 0.0,
            "within": False, "holds": holds, "share_error": _error_of_mean(f),
        }  # fmt: skip
        lower_trials = [(rate, trial) for rate, trial in tested.trials if rate < missed_rate_per_s]
        tested.trials = [*lower_trials, (missed_rate_per_s, mean_trial)]

    def _find_loads(self, finalists: Sequence[Finalist]) -> Steps:
        """Generator: finds the largest load of each finalist, with all searches interleaved."""
        space, is_needed = self.search.space, not (self.brief and self.search.has_one_load)
        if not is_needed or not stays_steady(space.base) or space.prices.offered is None:
            return
        in_progress: list[tuple[Finalist, Any, Scenario, list[tuple[float, Trial]]]] = []
        for finalist in finalists:
            begin_rate = finalist.rate if self.search.has_one_load else finalist.tested.likely_rate
            load_search = search_steps(finalist.scenario, self.facts, begin_rate, thorough=True)
            in_progress.append((finalist, load_search, next(load_search), []))
        while in_progress:
            new_trials = yield tuple(scenario for _, _, scenario, _ in in_progress)
            still_open = []
            for (finalist, load_search, queried, misses), trial in zip(
                in_progress, new_trials, strict=True
            ):
                if not isinstance(trial, str) and not trial["holds"]:
                    misses.append((load_of(queried)[1], trial))
                try:
                    scenario = load_search.send(None if isinstance(trial, str) else trial)
                    still_open.append((finalist, load_search, scenario, misses))
                except StopIteration as ended:
                    finalist.capacity, met_load = ended.value, ended.value.held
                    # Loads were run as `with_load` rounds them.
                    rounded_load = (
                        load_of(with_load(finalist.scenario, met_load))[1] if met_load else 0.0
                    )
                    missed_loads = [load for load, _ in misses if load > rounded_load]
                    if missed_loads:  # of the least load that is too much
                        trials = [trial for load, trial in misses if load == min(missed_loads)]
                        finalist.breaks = most_missed_limit(trials, self.search.plan)
                    if met_load and not self.search.has_one_load:
                        finalist.rate = met_load
                        finalist.scenario = self.search.steady_at(finalist.candidate, finalist.rate)
            in_progress = still_open

    def _try_losses(self, finalists: Sequence[Finalist]) -> Steps:
        """Generator: simulates each loss of the plan at the finalists' loads; where each has its
        own load, at lower and lower loads until they survive."""
        not_surviving = list(finalists)
        for load_share in (1.0,) if self.search.has_one_load else CARRIED:
            rates_before = [(finalist, finalist.rate) for finalist in not_surviving]
            for finalist, rate_per_s in rates_before:
                finalist.losses, finalist.rate = {}, load_share * rate_per_s
                if load_share < 1.0:
                    finalist.scenario = self.search.steady_at(finalist.candidate, finalist.rate)
            for loss in self.search.plan.survives:
                yield from self._try_loss(loss, not_surviving)
            for finalist, rate_per_s in rates_before:
                finalist.rate = finalist.rate if finalist.survives else rate_per_s
            not_surviving = [finalist for finalist in not_surviving if not finalist.survives]

    def _try_loss(self, loss: str, finalists: Sequence[Finalist]) -> Steps:
        """Generator: simulates finalists after every loss of a kind; stores the worst result."""
        pairs = []
        for finalist in finalists:
            intact_scenario = finalist.scenario
            losses = list(lost_elements(intact_scenario, self.facts, loss))
            try:
                pairs += [
                    ((finalist, name), with_loss(intact_scenario, faults))
                    for name, faults in losses
                ]
            except SpecError as error:
                finalist.losses[loss] = {"status": "failed", "reason": str(error)}
            if not losses:
                finalist.losses[loss] = {"status": "unsupported", "reason": "the machine has none"}
        for ((finalist, element), scenario), trial in (yield from simulate_pairs(pairs)):
            outcome = loss_row(scenario, element, trial)
            worst_outcome = finalist.losses.get(loss)
            if worst_outcome is None or (outcome.get("margin") or -1.0) < (
                worst_outcome.get("margin") or -1.0
            ):
                finalist.losses[loss] = outcome

    def _find_spares(self) -> Steps:
        """Generator: tries the smallest deployments whose expected rate is a multiple of the load
        (SPARED, the smallest first) until a finalist survives all losses."""
        search, rate_per_s = self.search, self.search.space.rate
        for load_multiple in SPARED if rate_per_s is not None else ():
            if any(finalist.survives for finalist in self.finalists):
                return
            smallest_by_family: dict[Any, Candidate] = {}
            smallest_first = sorted(
                search.space.open_candidates,
                key=lambda candidate: (candidate.npus, candidate.price.tpot_s, candidate.settings),
            )
            for candidate in smallest_first:
                is_enough = candidate.price.expected * FRESH >= load_multiple * (rate_per_s or 0.0)
                if is_enough and candidate.price.tpot_s < search.space.prices.tpot_s:
                    smallest_by_family.setdefault(candidate.family, candidate)
            smallest = list(smallest_by_family.values())[:SPARES]
            yield from search.simulate_new(
                [candidate for candidate in smallest if candidate.settings not in search.tested]
            )
            spares = [
                self._finalist(tested)
                for candidate in smallest
                if (tested := search.tested[candidate.settings]).met_rate
            ]
            yield from self._run_seeds(spares)
            spares = [finalist for finalist in spares if self._confirm_mean(finalist)]
            yield from self._try_losses(spares)
            yield from self._find_loads([finalist for finalist in spares if finalist.survives])
            self.finalists += spares


def _fit_of(f: Finalist) -> Fit:
    """A finalist's deployment as one that fits, with the simulated seconds of its runs."""
    return Fit(f.candidate, f.scenario.horizon_s)


def _error_of_mean(f: Finalist) -> float:
    """Standard error of the mean over seeds of a finalist's share of requests within the SLO."""
    standard_errors = [trial.get("share_error", 0.0) for trial in f.seeds]
    return math.hypot(*standard_errors) / max(len(standard_errors), 1)


def most_missed_limit(trials: Sequence[Trial], plan: Plan) -> str:
    """'TTFT' or 'TPOT', whichever most of the runs miss first; at a tie, that of the worst run."""
    worst_first = sorted(trials, key=lambda trial: trial["share"])
    return Counter(first_missed_limit(trial, plan) for trial in worst_first).most_common(1)[0][0]


def first_missed_limit(trial: Trial, plan: Plan) -> str:
    """'TTFT' or 'TPOT', whichever a run misses: the only one, or the one that is farther off."""
    needed_ttft_s, needed_tpot_s = trial.get("needs_ttft_s"), trial.get("needs_tpot_s")
    if (needed_ttft_s is None) != (needed_tpot_s is None):
        return "TPOT" if needed_ttft_s is None else "TTFT"
    statistic, slo = "mean" if plan.by == "mean" else "p99", plan.scenario.slo
    ratio_by_limit = {
        limit_name: (trial[f"{limit_name.lower()}_s_{statistic}"] or 0.0) / limit
        for limit_name, limit in (("TTFT", slo.ttft_s), ("TPOT", 1e-3 * slo.tpot_ms))
    }
    return max(ratio_by_limit, key=lambda limit_name: ratio_by_limit[limit_name])


def _survived_losses(f: Finalist) -> list[str]:
    """Kinds of loss after which a finalist meets the SLO."""
    return [loss for loss, outcome in f.losses.items() if outcome["status"] == "feasible"]


AFTER_S = 30.0  # from a recovery until what a loss leaves is judged
JUDGED_S = 40.0  # how long it is judged, at least


def lost_elements(
    s: Scenario, facts: Facts, loss: str
) -> Iterator[tuple[str, tuple[dict[str, Any], ...]]]:
    """Yield (name, faults) of one element of each pool that a loss may hit; nothing if there is
    none. loss: 'die', 'node', 'sub_plane' or 'memory_server'."""
    fabric = build_fabric(s.supernode, facts)
    first_by_role: dict[str, Instance] = {}
    for instance in place(s, fabric).instances:
        first_by_role.setdefault(instance.role, instance)
    for role, instance in first_by_role.items():
        vertex = int(fabric.dies[instance.die_of_rank[-1]])
        node = fabric.vertex_data[vertex]["node"]
        elements = {
            "die": (fabric.vertices[vertex],),
            "node": (f"node {node}",),
            "sub_plane": ("sub-plane 3",),
            "memory_server": tuple(f"CPU {node}.{cpu}" for cpu in range(s.supernode.cpus_per_node)),
        }[loss]
        faults = tuple({"element": element, "at_s": 0.0} for element in elements)
        try:
            with_faults(fabric, [Fault.model_validate(fault) for fault in faults])
        except (HardwareError, ValueError):
            continue
        yield (f"{elements[0]} ({role})" if loss in ("die", "node") else elements[0]), faults
        if loss == "sub_plane":
            return


def with_loss(s: Scenario, faults: Sequence[dict[str, Any]]) -> Scenario:
    """The scenario with faults at the end of its warm-up, and a horizon to judge what follows."""
    recovery = s.recovery
    fault_s = min(s.warmup_s, 20.0)
    recovery_s = {"restart": recovery.restart_s, "in_place": recovery.in_place_s}.get(
        recovery.policy, 0.0
    )
    judged_from_s = fault_s + recovery.detection_s + recovery_s + AFTER_S
    judged_s = max(s.horizon_s - s.warmup_s, JUDGED_S)
    fault_rows = [{**fault, "at_s": fault_s} for fault in faults]
    new_times = {
        "warmup_s": math.ceil(judged_from_s),
        "horizon_s": math.ceil(judged_from_s + judged_s),
    }
    return with_overrides(s, {"faults": fault_rows} | new_times)


def loss_row(s: Scenario, element: str, trial: Trial | str) -> dict[str, Any]:
    """Result of a loss as a row: share of requests within the SLO after it, and its margin."""
    if isinstance(trial, str):
        return {"status": "failed", "reason": trial, "element": element, "margin": None}
    return {
        "status": "feasible" if trial["holds"] else "infeasible", "element": element,
        "share": trial["share"], "margin": trial["share"] - s.slo.share, "lost": trial["lost"],
        "ttft_s_p99": trial["ttft_s_p99"], "tpot_s_p99": trial["tpot_s_p99"],
        "steady_state": trial["steady_state"], "faults": [fault.model_dump() for fault in s.faults],
    }  # fmt: skip
