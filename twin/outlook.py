"""A deployment under its offered load, by formula: how many requests are under way, how fast.

Prices come from `steady`, the population of a decode instance from `population`; the engine begins
its runs with the same population.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.attainment import Attainment, attainment
from twin.facts import Facts
from twin.model.batch import batch_line
from twin.model.costs import RoleCosts
from twin.model.predict import Prediction, Traffic
from twin.population import Arriving, Chunk, Stationary, population_of, stationary
from twin.scenario import Scenario, with_overrides
from twin.steady import (
    Assembly,
    Counts,
    asked_for,
    assemble,
    steady,
    traffic_of,
)
from twin.workload.offered import Offered
from twin.workload.requests import TraceTable

MISSED = 1.02  # of the SLO: no load meets it
ROUNDS = 3  # between the longest iteration that the SLO allows and what iterations swing there
LESS, TRIES = 0.97, 8  # of a load at which requests wait for a place too long
FULL = 0.99  # of what is sustained: beyond it queues have no mean
ENOUGH = 3000  # requests: thirty beyond the 99th percentile
LEAST_S, MOST_S = 20.0, 7200.0  # of a warm-up; of what counts
HAND_OFF = 1.5  # cycles of prefill that a request spends in it: half of one waiting, one computed


@dataclass(frozen=True, slots=True)
class Outlook:
    """A deployment under its offered load, by formula."""

    tpot_s: float | None  # at the load, or with every slot full where it is beyond; None: no decode
    rate_req_per_s: float | None  # what is offered; None in a closed loop
    sustained_req_per_s: float  # what all pools sustain
    slo_req_per_s: float  # at which `slo.share` of the requests meet the SLO; 0: none
    limit: str  # the pool that is full first at the latter


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of a sample of requests, tokens, i4[n] each."""

    inputs: NDArray[np.int32]
    outputs: NDArray[np.int32]


def at_load(
    s: Scenario, facts: Facts, parts: Assembly, full: Prediction, traffic: Traffic,
    lengths: Lengths, rate: float, most_iteration_s: float = math.inf,
    reserved_s: float | None = None, patience_s: float = math.inf,
) -> Stationary | None:  # fmt: skip
    """A decode or colocated instance while `rate` requests/s (infinite: a closed loop) reach the
    deployment, of which prefill and front end pass on what they can. None: nothing decodes.

    reserved_s: between a request's place and its first iteration, where it is known better than
    from the load; patience_s: that a request may wait for its place."""
    costs = parts.costs
    role = costs.colocated_role or costs.decode_role
    if role is None:
        return None
    d = s.deployment
    instances = d.colocated.instances if costs.colocated_role else d.decode.instances
    passed = min(rate, full.front_end_requests_per_s)
    if costs.prefill_role is not None and full.prefill is not None:
        passed = min(passed, full.prefill.requests_per_s)
        if full.decode is not None:  # even slots answer no more, and prefill waits for them
            passed = min(passed, full.decode.requests_per_s)
    if reserved_s is None:
        reserved_s = _prefill_s(s, parts, traffic, passed) if costs.prefill_role else 0.0
    clients = math.inf
    if s.workload.arrivals == "closed_loop" and not math.isfinite(most_iteration_s):
        clients = s.workload.concurrency / instances
    away_s = reserved_s + s.workload.think_s + s.front_end.service_ms * 1e-3
    arriving = Arriving(
        lengths.inputs,
        lengths.outputs,
        passed / instances,
        reserved_s,
        clients,
        away_s,
        _burstiness(s) / math.sqrt(instances),  # the router takes turns: gaps of an instance add up
        most_iteration_s,
        patience_s,
    )
    chunk = None
    if costs.colocated_role is not None:
        npus = role.dies // costs.chip.dies_per_npu
        budget = float(d.colocated.chunk_tokens_per_npu * npus)
        chunk = Chunk(traffic.fresh_tokens, traffic.fresh_pairs, budget)
    population = population_of(
        role, parts.decode_imbalance, _slots(s, role, costs.chip.dies_per_npu), d.decode, s.seed,
        costs.mtp_acceptance, s.memory_pool.block_tokens, arriving, chunk,
    )  # fmt: skip
    standing = stationary(population, role.decode, arriving)
    beyond = rate > passed * (1.0 + 1e-9) and math.isfinite(rate)
    standing.overloaded |= beyond
    return standing


def _burstiness(s: Scenario) -> float:
    """Coefficient of variation of the gaps between arrivals."""
    return {"gamma": s.workload.cv, "uniform": 0.0}.get(s.workload.arrivals, 1.0)


def _slots(s: Scenario, role: RoleCosts, dies: int) -> NDArray[np.int64]:
    """Requests each rank may hold: an NPU's batch shared out over its dies."""
    ranks = np.arange(role.dies, dtype=np.int64)
    batch = s.deployment.decode.batch_per_npu
    return batch * (ranks + 1) // dies - batch * ranks // dies


def _prefill_s(s: Scenario, parts: Assembly, traffic: Traffic, rate: float) -> float:
    """Seconds from the router to the first token while `rate` requests/s arrive, about.

    A batch takes what waits: its fixed part over the share of time that prompts leave (the line of
    `batch_line`), at least as long as one prompt takes and at most as a full batch.
    """
    role, d = parts.costs.prefill_role, s.deployment.prefill
    assert role is not None
    budget = float(d.tokens_per_npu) * role.dies / parts.costs.chip.dies_per_npu
    hot = parts.prefill_imbalance.table
    fixed_s, token_s, pair_s = batch_line(role, budget, traffic.input_tokens, hot)
    prompt_s = traffic.fresh_tokens * token_s + traffic.fresh_pairs * pair_s
    prompts = max(1.0, budget / traffic.fresh_tokens)
    busy = min(rate / d.instances * prompt_s, 1.0)
    full_s = fixed_s + prompts * prompt_s
    cycle_s = full_s if busy >= 1.0 else min(full_s, fixed_s / (1.0 - busy))
    return HAND_OFF * max(cycle_s, fixed_s + prompt_s)


def outlook(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None, counts: Counts | None = None
) -> Outlook:
    """How fast tokens come at the offered load, and how much load meets the SLO. Raises as
    `steady`."""
    full = steady(scenario, facts, trace, counts)
    offered = asked_for(scenario, facts, trace)
    rate = offered.rate_req_per_s
    parts = assemble(scenario, facts, trace, counts)
    traffic = traffic_of(scenario, facts, trace)
    if full.decode is None:
        found, limit = _slo_rate(scenario, facts, parts, full, traffic, offered)
        return Outlook(None, rate, full.requests_per_s, found, limit)
    lengths = Lengths(offered.prompts, offered.answers)
    standing = at_load(
        scenario, facts, parts, full, traffic, lengths, math.inf if rate is None else rate
    )
    assert standing is not None
    tpot_s = standing.iteration_s / full.decode.tokens_per_iteration
    found, limit = _slo_rate(scenario, facts, parts, full, traffic, offered)
    sustained = full.requests_per_s
    if rate is None or rate > found:  # else nobody asks: uneven ranks lower it
        reserved_s = (
            _prefill_s(scenario, parts, traffic, found) if parts.costs.prefill_role else 0.0
        )
        standing = at_load(
            scenario, facts, parts, full, traffic, lengths, math.inf, reserved_s=reserved_s
        )
        assert standing is not None
        sustained = max(found, min(sustained, standing.rate_req_per_s * _instances(scenario)))
    return Outlook(tpot_s, rate, sustained, found, limit)


@dataclass(frozen=True, slots=True)
class Standing:
    """How requests fare at a load, by formula."""

    tpot_s: float  # mean; 0: no decode
    prefill_s: float  # from the router to the end of prefill, mean; 0: no prefill by itself
    attained: float  # share of the requests that meet the SLO


def standing_at(
    scenario: Scenario, facts: Facts, rate: float, trace: TraceTable | None = None,
    counts: Counts | None = None,
) -> Standing:  # fmt: skip
    """How requests fare while `rate` requests/s come, or as many as its callers make of a closed
    loop. Raises as `steady`."""
    full = steady(scenario, facts, trace, counts)
    sample = asked_for(scenario, facts, trace)
    parts, traffic = assemble(scenario, facts, trace, counts), traffic_of(scenario, facts, trace)
    judged = attainment(scenario, parts, traffic, sample)
    tpot_s, iteration_s, fluent = 0.0, 0.0, 1.0
    if full.decode is not None:
        lengths = Lengths(sample.prompts, sample.answers)
        offered = math.inf if sample.rate_req_per_s is None else rate
        standing = at_load(scenario, facts, parts, full, traffic, lengths, offered)
        assert standing is not None
        iteration_s = standing.iteration_s
        tpot_s = iteration_s / full.decode.tokens_per_iteration
        fluent = judged.fluent(iteration_s, standing.swing)
    prefill_s = judged.mean_wait_s(rate) if judged.pool else 0.0
    return Standing(tpot_s, prefill_s, judged.in_time(rate, iteration_s) * fluent)


def _slo_rate(
    s: Scenario, facts: Facts, parts: Assembly, full: Prediction, traffic: Traffic, sample: Offered
) -> tuple[float, str]:
    """(the largest rate at which `slo.share` of the requests meet their SLO, the pool in the way of
    more). TPOT bounds the time of an iteration and so decode's rate, TTFT that of prefill."""
    opened = s
    if s.workload.arrivals == "closed_loop":  # as many callers as the rate takes
        opened = with_overrides(s, {"workload.arrivals": "poisson"})
    judged = attainment(opened, parts, traffic, sample)
    most, took_s, limit = full.requests_per_s, 0.0, full.limit
    if full.decode is not None:
        standing = _within(opened, facts, parts, full, traffic, sample, judged)
        if standing is None:
            return 0.0, _decoding(s)
        took_s, by_decode = standing.iteration_s, standing.rate_req_per_s * _instances(s)
        if by_decode < most:
            most, limit = by_decode, _decoding(s)
    if s.deployment.mode == "decode_only":
        return most, limit
    in_time = judged.largest_rate(FULL * most, took_s)
    if in_time < FULL * most:
        return in_time, "prefill" if s.deployment.mode != "colocated" else "colocated"
    return in_time, limit


def _within(
    s: Scenario, facts: Facts, parts: Assembly, full: Prediction, traffic: Traffic,
    sample: Offered, judged: Attainment,
) -> Stationary | None:  # fmt: skip
    """Decode at the largest load at which `slo.share` of the requests meet TPOT and find a place in
    time for TTFT; None: at none."""
    lengths = Lengths(sample.prompts, sample.answers)
    patience_s = min(limit_s for _, limit_s, _ in judged.parts)
    reserved_s, swing = None, 0.0

    def standing(rate: float, longest_s: float) -> Stationary:
        found = at_load(
            s, facts, parts, full, traffic, lengths, rate, longest_s, reserved_s, patience_s
        )
        assert found is not None
        return found

    for _ in range(ROUNDS):  # how iterations swing is known once the load is
        longest_s = judged.longest_iteration_s(swing)
        found = standing(math.inf, longest_s)
        swing, rate = found.swing, found.rate_req_per_s * _instances(s)
        reserved_s = judged.mean_wait_s(rate) if judged.pool else None
    if found.iteration_s > MISSED * longest_s:
        return None
    for _ in range(TRIES if found.overloaded else 0):  # places are full before TPOT is too long
        rate *= LESS
        found = standing(rate, longest_s)
        if found.late <= 1.0 - s.slo.share:
            break
    return found


def _instances(s: Scenario) -> int:
    """How many instances decode."""
    d = s.deployment
    return d.colocated.instances if d.mode == "colocated" else d.decode.instances


def times(scenario: Scenario, facts: Facts) -> tuple[float, float]:
    """(horizon_s, warmup_s) that fit a run from the steady state: a life of a request passes before
    what counts, so that nearly all who were there at the start have left; then two lives, and
    `ENOUGH` requests. Raises as `steady`."""
    full, traffic = steady(scenario, facts), traffic_of(scenario, facts)
    offered = asked_for(scenario, facts)
    closed = offered.rate_req_per_s is None
    rate = full.requests_per_s if closed else offered.rate_req_per_s
    assert rate is not None
    stays_s = scenario.front_end.service_ms * 1e-3
    parts = assemble(scenario, facts)
    if parts.costs.prefill_role is not None:
        stays_s += _prefill_s(scenario, parts, traffic, min(rate, full.requests_per_s))
    lengths = Lengths(offered.prompts, offered.answers)
    standing = at_load(scenario, facts, parts, full, traffic, lengths, math.inf if closed else rate)
    if standing is not None:
        stays_s += standing.life * standing.iteration_s
    warmup_s = 5.0 * math.ceil(max(stays_s, LEAST_S) / 5.0)
    counted_s = min(max(2.0 * stays_s, ENOUGH / rate, 3.0 * LEAST_S), MOST_S)
    return 10.0 * math.ceil((warmup_s + counted_s) / 10.0), warmup_s


def _decoding(s: Scenario) -> str:
    """The pool that decodes."""
    return "colocated" if s.deployment.mode == "colocated" else "decode"
