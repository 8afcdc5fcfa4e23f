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
    patience_s: float = math.inf, judged: Attainment | None = None,
) -> Stationary:  # fmt: skip
    """Steady state of an instance that decodes (colocated or not) while `rate` requests/s, without
    those that a run refuses, reach the deployment, as far as prefill and front end let them
    through; None, infinite: a closed loop, or all that these let through. lengths: i4[n] each of
    prompts and answers, by default a sample's; most_iteration_s: a longest iteration that bounds
    the load; reserved_s: between a request's slot and its first iteration, by formula if None;
    patience_s: the longest wait of a request for its slot; judged: what `attainment` gives."""
    s, full, costs, pool = priced.scenario, priced.prediction, priced.parts.costs, priced.pool
    rate, instances = math.inf if rate is None else rate, pool.instances
    admitted_rate = min(rate, full.front_end_requests_per_s)
    if costs.prefill_role is not None:  # even slots answer no more, and prefill waits for them
        sustained = [p.requests_per_s for p in (full.prefill, full.decode) if p is not None]
        admitted_rate = min([admitted_rate, *sustained])
    clients = math.inf
    if s.workload.arrivals == "closed_loop" and not math.isfinite(most_iteration_s):
        clients = s.workload.concurrency / instances
    away_s = s.workload.think_s + s.front_end.service_ms * 1e-3
    # Of a router's mixed instances that begins an iteration next which takes what comes; else it
    # takes turns, and gaps of an instance add up.
    sharing, cv = 1, {"gamma": s.workload.cv, "uniform": 0.0}.get(s.workload.arrivals, 1.0)
    if costs.colocated_role is not None:
        away_s += costs.tokenise_s * priced.traffic.input_tokens
        own_instances = instances // front_routers(s)
        sharing = own_instances if ROUTERS[s.router.policy] in SEES_WAITS else 1
    inputs, outputs = lengths or (priced.sample.prompts, priced.sample.answers)
    judged = judged or attainment(priced)

    def state_with(slot_s: float) -> Stationary:
        """The steady state where a slot is reserved for these seconds."""
        return stationary_state(priced, Arriving(
            inputs, outputs, admitted_rate / instances, slot_s, clients, slot_s + away_s,
            cv / math.sqrt(instances // sharing), most_iteration_s, patience_s, sharing,
            judged.wire_factor,
        ))  # fmt: skip

    if costs.prefill_role is None or reserved_s is not None:
        state = state_with(reserved_s or 0.0)
    elif math.isinf(clients):
        # Where more come than prefill computes its queue has no mean.
        state = state_with(judged.reserved_s(rate if full.limit == "prefill" else admitted_rate))
    else:  # clients that wait for prefill are as many fewer that decode
        state = state_with(0.0)
        for _ in range(ROUNDS - 1):
            stay_s = away_s + state.life * state.iteration_s
            state = state_with(
                _wait_of_clients_s(judged, admitted_rate, clients * instances, stay_s)
            )
    if rate > admitted_rate * (1.0 + 1e-9) and math.isfinite(rate):
        state.overloaded = True
        if costs.colocated_role is None:  # what is full hands on evenly
            state.token_s = state.iteration_s / tokens_per_iteration(
                s.deployment.decode.mtp_draft_tokens, costs.mtp_acceptance
            )
    return state


def _wait_of_clients_s(
    judged: Attainment, most_rate: float, clients: float, stay_s: float
) -> float:
    """Mean seconds that a slot is reserved for a request of one of `clients` of a closed loop, by
    Little's law: clients = requests/s x (stay_s + these). most_rate: requests/s at most; stay_s:
    seconds of a request elsewhere."""
    high = min(most_rate, clients / stay_s)
    wait_s = judged.reserved_s(high)
    low = clients / (stay_s + wait_s)
    while low * NEAR < high:
        middle = math.sqrt(low * high)
        wait_s = judged.reserved_s(middle)
        low, high = (middle, high) if middle * (stay_s + wait_s) < clients else (low, middle)
    return wait_s


def outlook(prices: Priced) -> Outlook:
    """TPOT (s) at offered load, largest requests/s within the SLO. Raises as `predict_steady`."""
    full, rate, judgement = prices.prediction, prices.sample.rate_req_per_s, attainment(prices)
    slo_rate, limiting = _slo_rate(prices, judgement)
    sustained, tpot_s = min(full.requests_per_s, judgement.max_rate), None
    if full.decode is not None:
        state = state_at(prices, rate, judged=judgement)
        tpot_s = _mean_tpot_s(judgement, state)
        if rate is None or rate > slo_rate:  # else it is not needed: uneven ranks lower it
            if judgement.pool or not state.overloaded:  # else it is the same
                state = state_at(
                    prices, math.inf, reserved_s=judgement.reserved_s(slo_rate), judged=judgement
                )
            sustained = max(slo_rate, min(sustained, state.rate_req_per_s * prices.pool.instances))
    # Of all that is offered: what no KV space has room for is refused, and waits nowhere.
    share = prices.room.admitted_share
    rate = None if rate is None else rate / share
    return Outlook(tpot_s, rate, sustained / share, slo_rate / share, limiting)


def _mean_tpot_s(judged: Attainment, state: Stationary) -> float:
    """Seconds per token after the first, mean over requests; mixed instances: by population."""
    if judged.colocated is not None:
        return state.token_s
    rate = state.rate_req_per_s * judged.scenario.deployment.decode.instances
    return judged.mean_tpot_s(rate, state.token_s * judged.per_iteration, state.swings.joining)


def latencies_and_slo_share(priced: Priced, rate: float) -> tuple[float, float, float]:
    """(mean TPOT in seconds, 0 without decode; mean seconds from the router to the end of prefill,
    0 without a pool of its own; share of the requests that meet the SLO) at `rate` requests/s,
    which a closed loop ignores for TPOT. Raises as `predict_steady`."""
    full, judgement, rate = priced.prediction, attainment(priced), rate * priced.room.admitted_share
    tpot_s, iteration_s, fluent_share = 0.0, 0.0, 1.0
    if full.decode is not None:
        offered_rate = None if priced.sample.rate_req_per_s is None else rate
        state = state_at(priced, offered_rate, judged=judgement)
        iteration_s, tpot_s = state.iteration_s, _mean_tpot_s(judgement, state)
        if _is_open_colocated(priced.scenario):
            return tpot_s, 0.0, _answers_slo_share(judgement, state)
        answer_iteration_s = state.token_s * judgement.per_iteration  # as answers see it
        fluent_share = judgement.tpot_share(answer_iteration_s, state.swings)
    prefill_s = judgement.mean_prefill_s(rate) if judgement.pool else 0.0
    share = judgement.ttft_share(rate, iteration_s, is_long=True)
    return tpot_s, prefill_s, share * fluent_share


def _slo_rate(priced: Priced, judgement: Attainment) -> tuple[float, str]:
    """(the largest requests/s at which `slo.share` of the requests meet their SLO, the limiting
    pool). TPOT bounds the time of an iteration and so decode's rate, TTFT that of prefill."""
    full = priced.prediction
    most_rate, iteration_s, limit = full.requests_per_s, 0.0, full.limit
    if full.decode is not None:
        state = _decode_at_slo(priced, judgement)
        if state is None:
            return 0.0, priced.pool.role
        iteration_s, rate = state.iteration_s, state.rate_req_per_s * priced.pool.instances
        if SAFE * rate < most_rate:
            # What reaches decode is what the stages before it pass on: these may be in the way.
            limit = priced.pool.role if rate < SAME * full.requests_per_s else limit
            most_rate = SAFE * rate
    mode = priced.scenario.deployment.mode
    if mode == "decode_only":
        return most_rate, limit
    prefill_rate = judgement.largest_rate(FULL * most_rate, iteration_s)
    if _is_open_colocated(priced.scenario):
        prefill_rate = _mixed_slo_rate(
            priced, judgement, prefill_rate or LEAST * full.requests_per_s
        )
    if prefill_rate < FULL * most_rate:
        return prefill_rate, "prefill" if mode != "colocated" else "colocated"
    return prefill_rate, limit


def _is_open_colocated(s: Scenario) -> bool:
    """Whether colocated instances serve arrivals that do not wait for answers, so that the
    population at a load has the times of its answers."""
    return s.deployment.mode == "colocated" and s.workload.arrivals != "closed_loop"


def _answers_slo_share(judged: Attainment, state: Stationary) -> float:
    """Share of a mixed instance's answers within the SLO by own times; 0 if overloaded."""
    waits_s, tokens_s = answer_times_s(state)
    if state.overloaded or not waits_s.size:
        return 0.0
    return judged.slo_share(waits_s, tokens_s, state.iteration_s)


def _mixed_slo_rate(priced: Priced, judged: Attainment, rate: float) -> float:
    """The largest requests/s, up to `rate`, at which `slo.share` of a mixed instance's answers meet
    the SLO by their own times: a few tokens come with the prompts of their burst, which no mean of
    iterations says. 0: none down to `LEAST` of it."""

    def meets_slo(load: float) -> bool:
        """Whether `slo.share` of the answers meet the SLO at `load` requests/s."""
        return (
            _answers_slo_share(judged, state_at(priced, load, judged=judged))
            >= priced.scenario.slo.share
        )

    if meets_slo(rate):
        return rate
    if not meets_slo(LEAST * rate):
        return 0.0
    high, low = rate, 0.5 * rate
    while low > LEAST * rate and not meets_slo(low):
        high, low = low, 0.5 * low
    while high > NEARLY * low:
        middle = math.sqrt(high * low)
        high, low = (high, middle) if meets_slo(middle) else (middle, low)
    return SAFE * low


def _decode_at_slo(priced: Priced, judged: Attainment) -> Stationary | None:
    """Steady state of decode at the largest load at which `slo.share` of requests meet TPOT and get
    a slot in time for TTFT; None if none. In a closed loop the number of clients is free."""
    limits = [limit_s for _, limit_s, _ in judged.slo_by_tenant]
    patience_s, reserved_s, swings, mean_error = min(limits), None, Swings(), 0.0
    per_answer = 1.0  # an iteration as answers see it, mean over requests, over the mean iteration

    def bounded_state(rate: float, longest_s: float) -> Stationary:
        """The steady state at `rate` requests/s whose mean iteration lasts at most `longest_s`, for
        the present wait of a slot."""
        return state_at(priced, rate, None, longest_s, reserved_s, patience_s, judged)

    for _ in range(ROUNDS):  # how iterations swing is known once the load is
        longest_s = judged.longest_iteration_s(swings) * (1.0 - SURE * mean_error) / per_answer
        at_bound = bounded_state(math.inf, longest_s)
        per_answer = at_bound.token_s * judged.per_iteration / at_bound.iteration_s
        swings, rate = at_bound.swings, at_bound.rate_req_per_s * priced.pool.instances
        mean_error = at_bound.error if math.isfinite(at_bound.error) else 0.0
        # Where TTFT is met no mean wait is longer; near saturation of prefill it has no bound.
        reserved_s = min(judged.reserved_s(rate), max(limits))
    if at_bound.iteration_s > MISSED * longest_s:
        return None
    if at_bound.overloaded:  # places are full before TPOT is too long
        latest = 1.0 - priced.scenario.slo.share  # share of the requests
        for _ in range(TRIES):
            rate *= LESS
            at_bound = bounded_state(rate, longest_s)
            if at_bound.late <= latest:
                break
        nearer_state = bounded_state(rate / math.sqrt(LESS), longest_s)
        at_bound = nearer_state if nearer_state.late <= latest else at_bound
    return at_bound


def run_and_warmup_s(prices: Priced) -> tuple[float, float]:
    """(seconds of the run, seconds of its warm-up) for a run from the steady state: a warm-up of
    one life of a request, so that most first ones have left, and until most prefixes and sessions
    have been met; then two lives, and `ENOUGH` requests. Raises as `predict_steady`."""
    offered_rate = prices.sample.rate_req_per_s
    rate = prices.prediction.requests_per_s if offered_rate is None else offered_rate
    life_s = prices.scenario.front_end.service_ms * 1e-3
    life_s += attainment(prices).reserved_s(min(rate, prices.prediction.requests_per_s))
    if prices.prediction.decode is not None:
        state = state_at(prices, offered_rate)
        life_s += state.life * state.iteration_s
    workload, reuse_s = prices.scenario.workload, 0.0
    if prices.traffic.hit_tokens > 0.0:
        between_s = {"shared": workload.prefix_groups / rate, "sessions": workload.turn_gap_s}
        reuse_s = min(MET * between_s.get(workload.prefix, 0.0), MOST_S)
    warmup_s = 5.0 * math.ceil(max(life_s, LEAST_S, reuse_s) / 5.0)
    counted_s = min(max(2.0 * life_s, ENOUGH / rate, 3.0 * LEAST_S), MOST_S)
    return 10.0 * math.ceil((warmup_s + counted_s) / 10.0), warmup_s
