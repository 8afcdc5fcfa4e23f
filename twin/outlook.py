"""A deployment under its offered load, by formula: how many requests are in progress, how
fast. Prices come from `steady`, the population of a decode instance from `population`."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.attainment import FULL, SAFE, Attainment, attainment
from twin.policies.batching import tokens_per_iteration
from twin.policies.router import ROUTERS, SEES_WAITS
from twin.prefill_queue import front_routers
from twin.scenario import Scenario
from twin.stationary import Arriving, Stationary, Swings, answer_times_s, stationary_state
from twin.steady import Priced

MISSED = 1.02  # of the SLO: no load meets it
ROUNDS = 3  # between the longest iteration that the SLO allows and what iterations swing there
SURE = 2.0  # standard errors of an iteration's time that the answer is on the safe side by
LESS, TRIES = 0.97, 8  # of a load at which requests wait for a place too long
SAME = 1.0 - 1e-6  # of what is sustained: all of it
ENOUGH = 3000  # requests: thirty beyond the 99th percentile
LEAST_S, MOST_S = 20.0, 7200.0  # of a warm-up; of what counts, and of a warm-up for prefixes
MET = 3.0  # requests of a prefix or a session before what counts: one prefix of 20 is not met
NEAR = 1.02  # of a rate of a closed loop
LEAST, NEARLY = 1 / 64, 1.06  # of a rate of mixed serving: least one tried; close to the largest


@dataclass(frozen=True, slots=True)
class Outlook:
    """A deployment under its offered load, by formula."""

    tpot_s: float | None  # at the load, or with every slot full where it is beyond; None: no decode
    rate_req_per_s: float | None  # what is offered; None in a closed loop
    sustained_req_per_s: float  # what all pools sustain
    slo_req_per_s: float  # at which `slo.share` of the requests meet the SLO; 0: none
    limit: str  # the pool that is full first at the latter


def state_at(
    priced: Priced, rate: float | None,
    lengths: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None,
    most_iteration_s: float = math.inf, reserved_s: float | None = None,
    patience_s: float = math.inf, judge: Attainment | None = None,
) -> Stationary:  # fmt: skip
    """Steady state of one decode or colocated instance under a load. judge: formulas, computed if
    None.
    rate: requests/s, without refused ones, that reach the whole deployment; front end and prefill
    may let through fewer. None or infinite: a closed loop, or all that they let through.
    lengths: i4[n] tokens of prompts and of answers, by default those of the sample;
    most_iteration_s: upper bound of a mean iteration, which limits the load; reserved_s: seconds
    from a slot's reservation to the first iteration, by formula if None; patience_s: longest wait
    for a slot."""
    s, forecast, costs, pool = priced.scenario, priced.prediction, priced.parts.costs, priced.pool
    rate, instances = math.inf if rate is None else rate, pool.instances
    admitted_rate = min(rate, forecast.front_end_requests_per_s)
    if costs.prefill_role is not None:  # even slots answer no more, and prefill waits for them
        pool_rates = [
            stage.requests_per_s for stage in (forecast.prefill, forecast.decode) if stage
        ]
        admitted_rate = min([admitted_rate, *pool_rates])
    instance_clients = math.inf
    if s.workload.arrivals == "closed_loop" and not math.isfinite(most_iteration_s):
        instance_clients = s.workload.concurrency / instances
    away_s = s.workload.think_s + s.front_end.service_ms * 1e-3
    # Of a router's mixed instances that begins an iteration next which takes what comes; else it
    # takes turns, and gaps of an instance add up.
    sharing_instances = 1
    gap_cv = {"gamma": s.workload.cv, "uniform": 0.0}.get(s.workload.arrivals, 1.0)
    if costs.colocated_role is not None:
        away_s += costs.tokenise_s * priced.traffic.input_tokens
        router_instances = instances // front_routers(s)
        sharing_instances = router_instances if ROUTERS[s.router.policy] in SEES_WAITS else 1
    inputs, outputs = lengths or (priced.sample.prompts, priced.sample.answers)
    judge = judge or attainment(priced)

    def state_with(slot_s: float) -> Stationary:
        """The steady state where slots are reserved for `slot_s` seconds before decode."""
        return stationary_state(priced, Arriving(
            inputs, outputs, admitted_rate / instances, slot_s, instance_clients, slot_s + away_s,
            gap_cv / math.sqrt(instances // sharing_instances), most_iteration_s, patience_s,
            sharing_instances, judge.wire_factor,
        ))  # fmt: skip

    if costs.prefill_role is None or reserved_s is not None:
        state = state_with(reserved_s or 0.0)
    elif math.isinf(instance_clients):
        # Where more come than prefill computes its queue has no mean.
        state = state_with(judge.reserved_s(rate if forecast.limit == "prefill" else admitted_rate))
    else:  # clients that wait for prefill are as many fewer that decode
        state = state_with(0.0)
        for _ in range(ROUNDS - 1):
            stay_s = away_s + state.life * state.iteration_s
            state = state_with(
                _wait_of_clients_s(judge, admitted_rate, instance_clients * instances, stay_s)
            )
    if rate > admitted_rate * (1.0 + 1e-9) and math.isfinite(rate):
        state.overloaded = True
        if costs.colocated_role is None:  # what is full hands on evenly
            state.token_s = state.iteration_s / tokens_per_iteration(
                s.deployment.decode.mtp_draft_tokens, costs.mtp_acceptance
            )
    return state


def _wait_of_clients_s(judge: Attainment, max_rate: float, clients: float, stay_s: float) -> float:
    """Mean seconds that a slot is reserved for a request before its first iteration, in a closed
    loop. By Little's law clients = requests/s x (stay_s + reserved seconds).
    judge: formulas of the deployment; max_rate: upper bound of requests/s; clients: their number;
    stay_s: mean seconds of a request outside the reservation."""
    high_rate = min(max_rate, clients / stay_s)
    wait_s = judge.reserved_s(high_rate)
    low_rate = clients / (stay_s + wait_s)
    while low_rate * NEAR < high_rate:
        mid_rate = math.sqrt(low_rate * high_rate)
        wait_s = judge.reserved_s(mid_rate)
        if mid_rate * (stay_s + wait_s) < clients:
            low_rate = mid_rate
        else:
            high_rate = mid_rate
    return wait_s


def outlook(priced: Priced) -> Outlook:
    """Returns the deployment's TPOT at the offered load, its sustained rate and its largest rate
    within the SLO. Raises the errors of `predict_steady`."""
    forecast, judge = priced.prediction, attainment(priced)
    offered_rate = priced.sample.rate_req_per_s
    slo_rate, limit_role = _slo_rate(priced, judge)
    sustained_rate, tpot_s = min(forecast.requests_per_s, judge.max_rate), None
    if forecast.decode is not None:
        state = state_at(priced, offered_rate, judge=judge)
        tpot_s = _mean_tpot_s(judge, state)
        # At lower rates it is not needed: uneven ranks lower it.
        if offered_rate is None or offered_rate > slo_rate:
            if judge.pool or not state.overloaded:  # else it is the same
                state = state_at(
                    priced, math.inf, reserved_s=judge.reserved_s(slo_rate), judge=judge
                )
            sustained_rate = max(
                slo_rate, min(sustained_rate, state.rate_req_per_s * priced.pool.instances)
            )
    # Of all that is offered: what no KV space has room for is refused, and waits nowhere.
    admitted_share = priced.room.admitted_share
    offered_rate = None if offered_rate is None else offered_rate / admitted_share
    return Outlook(
        tpot_s, offered_rate, sustained_rate / admitted_share, slo_rate / admitted_share, limit_role
    )


def _mean_tpot_s(judge: Attainment, state: Stationary) -> float:
    """Mean seconds per token after the first, over requests, in the steady state `state`. Colocated
    instances: as measured on the population; else by the formulas of `judge`."""
    if judge.colocated is not None:
        return state.token_s
    rate = state.rate_req_per_s * judge.scenario.deployment.decode.instances
    return judge.mean_tpot_s(rate, state.token_s * judge.per_iteration, state.swings.joining)


def latencies_and_slo_share(priced: Priced, rate: float) -> tuple[float, float, float]:
    """Mean latencies and SLO attainment of the deployment at `rate` requests/s.
    Returns (mean TPOT in seconds, 0 without decode; mean seconds from the router to the end of
    prefill, 0 without a prefill pool; share of the requests that meet the SLO). In a closed loop
    the number of clients decides TPOT, not the rate. Raises the errors of `predict_steady`."""
    forecast, judge, rate = priced.prediction, attainment(priced), rate * priced.room.admitted_share
    tpot_s, iteration_s, tpot_met_share = 0.0, 0.0, 1.0
    if forecast.decode is not None:
        offered_rate = None if priced.sample.rate_req_per_s is None else rate
        state = state_at(priced, offered_rate, judge=judge)
        iteration_s, tpot_s = state.iteration_s, _mean_tpot_s(judge, state)
        if _is_open_colocated(priced.scenario):
            return tpot_s, 0.0, _answers_slo_share(judge, state)
        answer_iteration_s = state.token_s * judge.per_iteration  # as answers see it
        tpot_met_share = judge.tpot_share(answer_iteration_s, state.swings)
    prefill_s = judge.mean_prefill_s(rate) if judge.pool else 0.0
    ttft_met_share = judge.ttft_share(rate, iteration_s, is_long=True)
    return tpot_s, prefill_s, ttft_met_share * tpot_met_share


def _slo_rate(priced: Priced, judge: Attainment) -> tuple[float, str]:
    """Returns (the largest requests/s at which `slo.share` of the requests meet their SLO, 0 if
    none does; the role of the limiting pool). The TPOT SLO bounds decode's iteration and so its
    rate; the TTFT SLO bounds the rate of prefill."""
    forecast = priced.prediction
    max_rate, iteration_s, limit_role = forecast.requests_per_s, 0.0, forecast.limit
    if forecast.decode is not None:
        state = _decode_at_slo(priced, judge)
        if state is None:
            return 0.0, priced.pool.role
        iteration_s, decode_rate = state.iteration_s, state.rate_req_per_s * priced.pool.instances
        if SAFE * decode_rate < max_rate:
            # What reaches decode is what the stages before it pass on: these may be in the way.
            limit_role = (
                priced.pool.role if decode_rate < SAME * forecast.requests_per_s else limit_role
            )
            max_rate = SAFE * decode_rate
    mode = priced.scenario.deployment.mode
    if mode == "decode_only":
        return max_rate, limit_role
    prefill_rate = judge.largest_rate(FULL * max_rate, iteration_s)
    if _is_open_colocated(priced.scenario):
        prefill_rate = _mixed_slo_rate(
            priced, judge, prefill_rate or LEAST * forecast.requests_per_s
        )
    if prefill_rate < FULL * max_rate:
        return prefill_rate, "prefill" if mode != "colocated" else "colocated"
    return prefill_rate, limit_role


def _is_open_colocated(s: Scenario) -> bool:
    """Whether colocated instances serve arrivals that do not wait for answers. Then the population
    at a load yields TTFT and TPOT of single answers."""
    return s.deployment.mode == "colocated" and s.workload.arrivals != "closed_loop"


def _answers_slo_share(judge: Attainment, state: Stationary) -> float:
    """Share of a colocated instance's answers whose TTFT and TPOT in the population meet the SLO; 0
    if the instance is overloaded or no answer has ended."""
    waits_s, tpots_s = answer_times_s(state)
    if state.overloaded or not waits_s.size:
        return 0.0
    return judge.slo_share(waits_s, tpots_s, state.iteration_s)


def _mixed_slo_rate(priced: Priced, judge: Attainment, rate: float) -> float:
    """The largest requests/s, up to `rate`, at which `slo.share` of a colocated instance's answers
    meet the SLO; 0 if no rate down to `LEAST` x `rate` does. Judged by the times of each answer:
    short answers come with the prompts of their burst, which a mean iteration does not show."""

    def meets_slo(req_per_s: float) -> bool:
        """Whether `slo.share` of the answers meet the SLO at this rate of requests."""
        return (
            _answers_slo_share(judge, state_at(priced, req_per_s, judge=judge))
            >= priced.scenario.slo.share
        )

    if meets_slo(rate):
        return rate
    if not meets_slo(LEAST * rate):
        return 0.0
    high_rate, low_rate = rate, 0.5 * rate
    while low_rate > LEAST * rate and not meets_slo(low_rate):
        high_rate, low_rate = low_rate, 0.5 * low_rate
    while high_rate > NEARLY * low_rate:
        mid_rate = math.sqrt(high_rate * low_rate)
        high_rate, low_rate = (high_rate, mid_rate) if meets_slo(mid_rate) else (mid_rate, low_rate)
    return SAFE * low_rate


def _decode_at_slo(priced: Priced, judge: Attainment) -> Stationary | None:
    """Steady state of decode at the largest load at which `slo.share` of the requests meet the TPOT
    SLO and get a slot in time for the TTFT SLO; None if no load does. Clients are not limited."""
    ttft_limits_s = [limit_s for _, limit_s, _ in judge.slo_by_tenant]
    patience_s, reserved_s, swings, mean_error = min(ttft_limits_s), None, Swings(), 0.0
    seen_ratio = 1.0  # an iteration as answers see it, mean over requests, over the mean iteration

    def bounded_state(rate: float, longest_s: float) -> Stationary:
        """The steady state at `rate` requests/s of the deployment, or less where a mean iteration
        would exceed `longest_s` seconds, with the latest `reserved_s`."""
        return state_at(priced, rate, None, longest_s, reserved_s, patience_s, judge)

    for _ in range(ROUNDS):  # how iterations swing is known once the load is
        longest_s = judge.longest_iteration_s(swings) * (1.0 - SURE * mean_error) / seen_ratio
        if longest_s <= 0.0:  # what drafts, the host or swings take is longer than the SLO alone
            return None
        bound_state = bounded_state(math.inf, longest_s)
        seen_ratio = bound_state.token_s * judge.per_iteration / bound_state.iteration_s
        swings, rate = bound_state.swings, bound_state.rate_req_per_s * priced.pool.instances
        mean_error = bound_state.error if math.isfinite(bound_state.error) else 0.0
        # Where TTFT is met no mean wait is longer; near saturation of prefill it has no bound.
        reserved_s = min(judge.reserved_s(rate), max(ttft_limits_s))
    if bound_state.iteration_s > MISSED * longest_s:
        return None
    if bound_state.overloaded:  # places are full before TPOT is too long
        max_late_share = 1.0 - priced.scenario.slo.share  # share of the requests
        for _ in range(TRIES):
            rate *= LESS
            bound_state = bounded_state(rate, longest_s)
            if bound_state.late <= max_late_share:
                break
        nearer_state = bounded_state(rate / math.sqrt(LESS), longest_s)
        bound_state = nearer_state if nearer_state.late <= max_late_share else bound_state
    return bound_state


def run_and_warmup_s(priced: Priced) -> tuple[float, float]:
    """(seconds of the run, seconds of its warm-up) for a run that begins in the steady state. The
    warm-up lasts one life of a request, so that most of the first requests have left, and until
    most prefixes and sessions have recurred. The time after it covers two lives of a request and
    `ENOUGH` requests. Raises the errors of `predict_steady`."""
    offered_rate = priced.sample.rate_req_per_s
    rate = priced.prediction.requests_per_s if offered_rate is None else offered_rate
    life_s = priced.scenario.front_end.service_ms * 1e-3
    life_s += attainment(priced).reserved_s(min(rate, priced.prediction.requests_per_s))
    if priced.prediction.decode is not None:
        state = state_at(priced, offered_rate)
        life_s += state.life * state.iteration_s
    workload, reuse_s = priced.scenario.workload, 0.0
    if priced.traffic.hit_tokens > 0.0:
        reuse_gap_s = {"shared": workload.prefix_groups / rate, "sessions": workload.turn_gap_s}
        reuse_s = min(MET * reuse_gap_s.get(workload.prefix, 0.0), MOST_S)
    warmup_s = 5.0 * math.ceil(max(life_s, LEAST_S, reuse_s) / 5.0)
    counted_s = min(max(2.0 * life_s, ENOUGH / rate, 3.0 * LEAST_S), MOST_S)
    return 10.0 * math.ceil((warmup_s + counted_s) / 10.0), warmup_s
