"""What a deployment sustains by formula: each kind of instance is priced once, then combined. The
bound is optimistic: no steady simulation beats it (`tests/lab/plan/test_price.py`). What a scenario
names by digest (a trace, expert counts, a machine) each process loads from its own store."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.experts.load import load_compiled_peaks
from twin.facts import Facts
from twin.hardware.imported import find_machine
from twin.lab.kinds import COUNTS, MACHINE, TRACE
from twin.lab.plan.space import (
    BATCH,
    CONTROLLER,
    COUNTED,
    DRAFTS,
    LENT,
    MODE,
    OFFLOAD,
    PREFILL,
    SIZED,
    Machine,
    Settings,
    instance_sizes,
    pool_size,
    roles_of,
)
from twin.lab.store import open_store
from twin.model.batch import LoadCurve
from twin.model.costs import build_costs
from twin.model.mixed import mixed_mean_s
from twin.model.predict import Held, Prediction, Traffic, predict, rank_load
from twin.model.shape import ModelError
from twin.scenario import Scenario, SpecError, value_of, with_overrides
from twin.steady import Assembly, assemble, traffic_of
from twin.workload.offered import offered_load
from twin.workload.requests import TraceTable


class Imports(NamedTuple):
    """Imported values that `simulate` and the formulas take as arguments."""

    trace: TraceTable | None = None
    counts: NDArray[np.float64] | None = None  # [layers, experts]


def imports_of(s: Scenario) -> Imports:
    """Trace and expert counts that a scenario names, or None; also loads its machine."""
    references = [kind.named(s) for kind in (TRACE, COUNTS, MACHINE)]
    if not any(references) and not s.elastic.own.digest:
        return Imports()
    return _load_imports(*(reference.digest if reference else "" for reference in references))


@lru_cache(maxsize=2)
def _load_imports(trace: str, counts: str, machine: str) -> Imports:
    """Trace and counts with these digests ('': None) from the store; also loads the machine."""
    store = open_store()  # from here on machines are found there, and controllers in their folder
    if machine and find_machine(machine) is None:
        store.machines.load(machine)  # says in a sentence why not
    counts_table = store.counts.load(counts).counts if counts else None
    return Imports(store.traces.load(trace) if trace else None, counts_table)


CURVE = (4, 12, 32, 80, 256)  # requests per NPU that are priced; between them a line
# Of the SLO's TPOT: batches beyond the first with so much are priced only where a plan relaxes the
# SLO to there. A choice of time, not of answers: a longer TPOT prices a curve anew.
BEYOND = 1.5
LUCK = 1.05  # of a rate: what a run of some minutes can be above its mean
UNSEEN = ("memory_pool.gb_per_node", "router.policy", CONTROLLER)  # by the formula of an instance
# What a decode instance that offloads attention is priced with, besides its own fields.
LENDERS = (
    *(table[role] for table in (COUNTED, SIZED) for role in ("prefill", "decode")),
    f"{PREFILL}.tokens_per_npu",
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Rates and TPOT of an instance by its requests in progress; or why it is impossible."""

    batches: tuple[float, ...] = ()  # requests per NPU
    rates: tuple[float, ...] = ()  # requests/s of the instance
    tpots_s: tuple[float, ...] = ()
    refused: str = ""
    until_s: float = math.inf  # TPOT up to which it is priced
    tokenised: float = math.inf  # requests/s of the one tokeniser of an instance

    def largest_rate_point(self, batch: float, tpot_s: float) -> tuple[float, float]:
        """(requests/s, TPOT in s) at the largest rate of the instance; batch: limit of requests per
        NPU; tpot_s: limit of TPOT."""
        largest_batch = min(batch, self.batches[-1])
        if math.isinf(largest_batch):
            return self.rates[-1], self.tpots_s[-1]
        if tpot_s >= self.tpots_s[0]:
            return self._point_at(min(largest_batch, _interp(tpot_s, self.tpots_s, self.batches)))
        slope_s = self._slope_s
        batch = self.batches[0] - (self.tpots_s[0] - tpot_s) / slope_s if slope_s > 0.0 else 0.0
        return max(0.0, self._rate_factor * batch / tpot_s), tpot_s

    def tpot_at(self, rate: float, batch: float, npus: int) -> float:
        """TPOT in seconds at a rate (requests/s) of an instance of `npus` NPUs with at most `batch`
        requests per NPU; infinite if no priced batch keeps up. Requests in progress are about
        Poisson: the mean of TPOT one standard deviation above and one below their mean."""
        largest_batch = min(batch, self.batches[-1])
        if rate > self._point_at(largest_batch)[0]:
            return math.inf
        mean_requests = self.requests_at(rate) * npus
        request_counts = (mean_requests + sign * math.sqrt(mean_requests) for sign in (-1.0, 1.0))
        batches = (
            min(largest_batch, max(request_count, 0.0) / npus) for request_count in request_counts
        )
        return sum(map(self.full_tpot_s, batches)) / 2.0

    def full_tpot_s(self, batch: float) -> float:
        """TPOT in seconds while a constant number of requests per NPU (`batch`) is in progress; it
        is extrapolated below the smallest priced batch and constant above the largest."""
        if batch < self.batches[0]:
            return self.tpots_s[0] - self._slope_s * (self.batches[0] - batch)
        return _interp(batch, self.batches, self.tpots_s)

    def requests_at(self, rate: float) -> float:
        """Requests per NPU in progress at a rate of the instance (requests/s), by Little's law."""
        return _interp(rate, (0.0, *self.rates), (0.0, *self.batches))

    def _point_at(self, batch: float) -> tuple[float, float]:
        """(requests/s, TPOT in s) of the instance at a batch (requests per NPU); TPOT is concave,
        so a line between points is a lower bound."""
        tpot_s = _interp(batch, self.batches, self.tpots_s)
        return self._rate_factor * batch / tpot_s, tpot_s

    @property
    def _slope_s(self) -> float:
        """Slope of TPOT at the two smallest batches, s per request per NPU; 0 with one batch."""
        if len(self.batches) < 2:
            return 0.0
        return (self.tpots_s[1] - self.tpots_s[0]) / (self.batches[1] - self.batches[0])

    @property
    def _rate_factor(self) -> float:
        """Requests/s of the instance times TPOT (s), divided by requests per NPU; constant."""
        return self.rates[-1] * self.tpots_s[-1] / self.batches[-1]


Pool = tuple[Curve, Curve]  # (expected, optimistic) of one instance, its batch left open
Key = tuple[Any, ...]  # role, and pairs of a field and its value


@dataclass(frozen=True, slots=True)
class Price:
    """Maximum rates of a deployment by formula, requests/s."""

    bound: float
    expected: float
    limit: str  # the pool in the way of more
    tpot_s: float  # at `expected`, at the load that is the same for all, or all slots; 0: no decode
    refused: str = ""


@dataclass
class Prices:
    """Cached prices of the deployments of one scenario."""

    base: Scenario
    facts: Facts
    rate: float | None  # requests/s where every deployment gets the same; None: its own largest
    pool_by_key: dict[Key, Pool] = field(default_factory=dict)
    parts: dict[tuple[Any, ...], Assembly] = field(default_factory=dict)
    beat: Callable[[], None] = lambda: None  # called before each price, and may raise to stop

    def __post_init__(self) -> None:
        """Load the imports, the traffic and the offered rate of the base scenario."""
        self.imports = imports_of(self.base)
        self.traffic = self._base_traffic()
        arrivals = offered_load(self.base, self.facts, self.imports.trace)
        self.request_tokens = self.traffic.output_tokens
        if self.base.deployment.mode == "prefill_only":
            self.request_tokens = self.traffic.input_tokens
        self.offered = arrivals.rate_req_per_s  # None in a closed loop
        self.tpot_s = 1e-3 * self.base.slo.tpot_ms
        front_end = self.base.front_end
        self.front = front_end.api_servers / max(1e-3 * front_end.service_ms, 1e-9)

    def _base_traffic(self) -> Traffic:
        """Traffic of the base scenario; if its deployment does not fit into memory, the traffic of
        one instance of the smallest size that fits. Raises ModelError if none fits."""
        mode_now, trace = self.base.deployment.mode, self.imports.trace
        mode = mode_now if len(roles_of(mode_now)) == 1 else "colocated"
        (role,) = roles_of(mode)
        npus_tried = instance_sizes(role, self.base, Machine.of(self.base, self.facts))
        tried_settings = ({MODE: mode, COUNTED[role]: 1, SIZED[role]: npus} for npus in npus_tried)
        error_to_raise = ModelError("no instance fits")
        for settings in ({}, *tried_settings):
            try:
                return traffic_of(with_overrides(self.base, settings), self.facts, trace)
            except (ModelError, SpecError) as error:
                error_to_raise = error if isinstance(error, ModelError) else error_to_raise
        raise error_to_raise

    def pool_key(self, role: str, settings: Settings) -> Key:
        """Key of an instance's curves: its role, and the settings that change the curves."""
        role_paths = [
            path for path in settings if _affects(role, path) and path not in (BATCH, *UNSEEN)
        ]
        key_settings = {path: settings[path] for path in role_paths}
        if settings.get(OFFLOAD):  # one pool computes on the dies of the other
            offload_paths = (OFFLOAD, LENT, *(LENDERS if role == "decode" else ()))
            key_settings |= {
                path: settings.get(path, value_of(self.base, path)) for path in offload_paths
            }
        if role == "prefill":  # its costs know only whether there are drafts
            draft_tokens = self.base.deployment.decode.mtp_draft_tokens
            key_settings[DRAFTS] = min(1, key_settings.get(DRAFTS, draft_tokens))
        return (role, *sorted(key_settings.items()))

    def pools(self, settings: Settings) -> dict[str, Pool]:
        """(expected, best-case) curve of an instance, by role, for TPOT up to the SLO's."""
        pool_by_role = {}
        for role in roles_of(settings.get(MODE, self.base.deployment.mode)):
            pool_key = self.pool_key(role, settings)
            pool = self.pool_by_key.get(pool_key)
            if pool is None or pool[0].until_s < self.tpot_s:
                self.beat()
                highest_tpot_s = math.inf if pool else BEYOND * self.tpot_s
                pool = self.pool_by_key[pool_key] = self._price_curves(
                    role, dict(pool_key[1:]), highest_tpot_s
                )
            pool_by_role[role] = pool
        return pool_by_role

    def price(self, settings: Settings, pools: Mapping[str, Pool] | None = None) -> Price:
        """Price of a deployment, given as overrides (`settings`); pools: curves, if known."""
        pools = pools or self.pools(settings)
        mode = settings.get(MODE, self.base.deployment.mode)
        bounds_per_s, rates_per_s = {"front end": LUCK * self.front}, {"front end": self.front}
        tpot_s, limit_s = 0.0, self.tpot_s
        batch = float(settings.get(BATCH, self.base.deployment.decode.batch_per_npu))
        npus_taken, npus_per_rate = 0, 0.0  # NPUs, and what a request/s of all pools takes of them
        for role in roles_of(mode):
            instances, npus_each = pool_size(self.base, settings, role)
            curve, best_case = pools[role]
            if curve.refused:
                return Price(0.0, 0.0, role, 0.0, curve.refused)
            batch_and_tpot_s = (math.inf, math.inf) if role == "prefill" else (batch, limit_s)
            rate_per_s, rate_tpot_s = curve.largest_rate_point(*batch_and_tpot_s)
            # TPOT with less than a request on each die is not priced: no bound is below that rate.
            bound_per_s = max(
                best_case.largest_rate_point(*batch_and_tpot_s)[0], best_case.rates[0]
            )
            bounds_per_s[role] = LUCK * instances * bound_per_s
            rates_per_s[role] = instances * rate_per_s
            rates_per_s["front end"] = min(rates_per_s["front end"], instances * curve.tokenised)
            bounds_per_s["front end"] = LUCK * rates_per_s["front end"]
            npus_taken += instances * npus_each
            npus_per_rate += npus_each / max(bound_per_s, 1e-12)
            if role != "prefill":
                tpot_s = rate_tpot_s
                if self.rate is not None:
                    tpot_s = curve.tpot_at(self.rate / instances, batch, npus_each)
                elif self.offered is None:
                    inflow_per_s = (
                        min(rate for pool, rate in rates_per_s.items() if pool != role) / instances
                    )
                    tpot_s = min(
                        curve.tpot_at(inflow_per_s, batch, npus_each), curve.full_tpot_s(batch)
                    )
                    least_tpot_s = best_case.full_tpot_s(batch)
                    slots_taken = math.isinf(curve.tpot_at(inflow_per_s / LUCK, batch, npus_each))
                    if slots_taken and len(roles_of(mode)) == 1 and least_tpot_s > LUCK * limit_s:
                        problem = f"TPOT is {1e3 * least_tpot_s:.4g} ms or more with a full batch, "
                        return Price(0.0, 0.0, role, 0.0, f"{problem}{1e3 * limit_s:g} are allowed")
        limiting_pool = min(rates_per_s, key=lambda pool: (rates_per_s[pool], pool))
        # With a controller, NPUs change pools at no cost until all pools carry the same.
        if settings.get(CONTROLLER, "fixed") != "fixed":
            bounds_per_s = {
                "front end": LUCK * self.front,
                "pools": LUCK * npus_taken / npus_per_rate,
            }
        return Price(min(bounds_per_s.values()), rates_per_s[limiting_pool], limiting_pool, tpot_s)

    def batch_matters(
        self, role: str, settings: Settings, batches: Sequence[int], curve: Curve
    ) -> bool:
        """Whether a deployment's batch sustains more than the next smaller one in `batches`; False
        if TPOT or KV space limits both. curve: the expected one of an instance of the role."""
        batch = settings.get(BATCH)
        smaller_batches = [
            smaller_batch
            for smaller_batch in batches
            if batch is not None and smaller_batch < batch
        ]
        if not smaller_batches or role == "prefill":
            return True
        if curve.refused:
            return False
        rate_per_s, tpot_s = curve.largest_rate_point(float(smaller_batches[-1]), self.tpot_s)
        return rate_per_s > 0.0 and tpot_s < self.tpot_s and smaller_batches[-1] < curve.batches[-1]

    def _price_curves(self, role: str, fields: Settings, until_s: float) -> Pool:
        """(expected, best-case) curve of an instance of a role: rate and TPOT by batch, up to the
        first TPOT beyond `until_s`. fields: the instance's settings by path."""
        mode = {"prefill": "prefill_only", "decode": "decode_only"}.get(role, "colocated")
        # Attention that is offloaded does not make experts less even: parts are those without.
        role_fields = {path: value for path, value in fields.items() if _affects(role, path)}
        one_instance = {**role_fields, MODE: mode, COUNTED[role]: 1, BATCH: CURVE[0], OFFLOAD: 0.0}
        one_of_each = {MODE: "disaggregated", COUNTED["prefill"]: 1, COUNTED["decode"]: 1} | fields
        try:
            base = with_overrides(self.base, one_instance)
            # Pools that differ in draft tokens alone share their imbalance, which is slow to
            # compute and hardly depends on them.
            draft_tokens = self.base.deployment.decode.mtp_draft_tokens
            shared_settings = role_fields | {OFFLOAD: 0.0, DRAFTS: draft_tokens}
            parts_key = (role, *sorted(shared_settings.items()))
            if parts_key not in self.parts:
                scenario = with_overrides(base, shared_settings)
                self.parts[parts_key] = assemble(scenario, self.facts, *self.imports)
            assembly = self.parts[parts_key]
            base = with_overrides(base, one_of_each) if fields.get(OFFLOAD) else base
            instances = getattr(base.deployment, role).instances
        except ValueError as error:
            if not isinstance(error, SpecError) and not type(error).__module__.startswith("twin."):
                raise
            return Curve(refused=str(error)), Curve()
        load_compiled_peaks()
        peaks = assembly.prefill_imbalance.table, assembly.decode_imbalance.table
        tokenised_per_s = math.inf
        if role != "decode":
            tokenised_per_s = assembly.costs.tokenised_prompts_per_s(self.traffic.input_tokens)
        # Contexts dealt evenly over the ranks: a bound, and nearly what is expected.
        uniform = replace(self.traffic, held=Held(self.traffic.held_mean, 0.0))
        if role == "decode":
            uniform = replace(uniform, hit_tokens=0.0)
        batches = {CURVE[0]}
        if role != "prefill":
            batch_now = self.base.deployment.decode.batch_per_npu
            batches = {assembly.costs.roles[role].chip.dies_per_npu, *CURVE, batch_now}
        traffics = [uniform, replace(uniform, hit_tokens=0.0)] if uniform.hit_tokens else [uniform]
        expected: list[Point] = []
        best_points: list[Point] = []
        problem, both_curves = "", (Curve(), Curve())
        for batch in sorted(batches):
            if all(len(curve.tpots_s) > 1 and curve.tpots_s[-1] > until_s for curve in both_curves):
                curve, bound_curve = both_curves
                return replace(curve, until_s=until_s), replace(bound_curve, until_s=until_s)
            try:
                costs = build_costs(with_overrides(base, {BATCH: batch}), self.facts, assembly.net)
                # What is read of a prefix may take longer than computing it.
                predicted = [(traffic, predict(costs, traffic, *peaks)) for traffic in traffics]
            except ValueError as error:
                if not type(error).__module__.startswith("twin."):
                    raise
                problem = problem or str(error)
                continue
            expected.append(max(_point(role, instances, prediction) for _, prediction in predicted))
            bound_arguments = (
                (_point(role, instances, prediction), prediction, traffic)
                for traffic, prediction in predicted
            )
            best_points.append(max(_bound_point(*point, peaks[1]) for point in bound_arguments))
            both_curves = _curve(expected, tokenised_per_s), _curve(best_points, tokenised_per_s)
        return both_curves if expected else (Curve(refused=problem), Curve())


def _interp(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """y at x on the lines between points (xs, ys), xs growing; constant beyond the end points."""
    right_index = bisect_right(xs, x)
    if right_index in (0, len(xs)):
        return ys[min(right_index, len(xs) - 1)]
    return ys[right_index - 1] + (ys[right_index] - ys[right_index - 1]) / (
        xs[right_index] - xs[right_index - 1]
    ) * (x - xs[right_index - 1])


Point = tuple[float, float, float]  # requests/s of an instance, requests per NPU, TPOT


def _point(role: str, count: int, answer: Prediction) -> Point:
    """(requests/s, requests per NPU, TPOT in s) of one of the `count` instances of an `answer`."""
    if role == "prefill" or answer.decode is None:
        assert answer.prefill is not None
        return answer.prefill.requests_per_s / count, math.inf, 0.0
    return answer.decode.requests_per_s / count, answer.decode.batch_per_npu, answer.decode.tpot_s


def _bound_point(point: Point, prediction: Prediction, traffic: Traffic, peaks: LoadCurve) -> Point:
    """Best case of a `point` (requests/s, requests per NPU, TPOT in s): prompts of a colocated
    instance fill as few iterations as chunks allow. peaks: imbalance of experts by load."""
    role, (rate_per_s, batch, tpot_s) = prediction.costs.colocated_role, point
    if role is None or prediction.decode is None or prediction.prefill is None:
        return rate_per_s, batch, tpot_s
    chunk_tokens = role.prompt_tokens
    mixed_share = min(1.0, prediction.prefill.batch_tokens / chunk_tokens)  # of iterations
    query_pairs = chunk_tokens / traffic.fresh_tokens * traffic.fresh_pairs
    requests, context_tokens = rank_load(role.slots(batch), role.ranks, traffic)
    rank_shares = np.full(role.ranks, 1.0 / role.ranks)
    mixes = [  # share of iterations, and of each rank: prompt tokens, query-key pairs
        (mixed_share, chunk_tokens * rank_shares, query_pairs * rank_shares),
        (1.0 - mixed_share, 0.0 * rank_shares, 0.0 * rank_shares),
    ]
    mean_s = mixed_mean_s(role.decode, requests, context_tokens, mixes, peaks, role.operator_sink())
    time_ratio = min(1.0, mean_s / prediction.decode.iteration_s)
    return rate_per_s / time_ratio, batch, tpot_s * time_ratio


def _curve(points: Sequence[Point], tokenised: float) -> Curve:
    """The curve through points of growing batch and rate; tokenised: requests/s of a tokeniser."""
    rising_points = [points[0]]
    for point in points[1:]:
        if point[0] > rising_points[-1][0] and point[1] > rising_points[-1][1]:
            rising_points.append(point)
    rates_per_s, batches, tpots_s = zip(*rising_points, strict=True)
    return Curve(batches, rates_per_s, tpots_s, tokenised=tokenised)


@cache
def _affects(role: str, path: str) -> bool:
    """Whether a field (its path) affects what an instance of a pool sustains."""
    if path == MODE or path in COUNTED.values():
        return False
    section = path.removeprefix("deployment.").partition(".")[0]
    if section in ("prefill", "colocated"):
        return section == role
    if section == "decode" and path != DRAFTS:
        return role == "decode"
    return not (role == "decode" and path.startswith("memory_pool"))
