"""Where a run begins: on an empty machine, or with the population of the steady state.

Requests that are under way at time zero are rows of the run like all others. They stand before
those that arrive, with what is left of their answers, and their stamps are zero."""

from dataclasses import dataclass, replace

import numpy as np

from twin.engine import codes as w
from twin.model.shape import ModelError
from twin.outlook import state_at
from twin.population import run_population
from twin.scenario import Scenario, may_have_no_instance
from twin.slots import COMING, DECODING, ITERATION
from twin.stationary import Stationary
from twin.steady import Priced
from twin.workload.requests import Requests

APART = 0.25  # of a life: between the populations that several instances begin with


@dataclass(frozen=True)
class Residents:
    """Requests in progress at time zero, in the order in which decode takes them, n rows."""

    rank: np.ndarray  # i4[n], over all decode or colocated instances
    input_tokens: np.ndarray  # i4[n], prompt and what is out of the answer
    output_tokens: np.ndarray  # i4[n], what is left of it, and one
    ready_s: np.ndarray  # f8[n], when its KV is in place; later ones are on their way
    rate_req_per_s: float  # what the deployment answers

    def __len__(self) -> int:
        """Number of requests in progress at time zero."""
        return self.rank.size


def begins_steady(s: Scenario) -> bool:
    """Whether a run begins with a stationary population: not if load, machine or lengths are
    expected to change from the start, nor for a finite benchmark."""
    workload = s.workload
    is_flat = workload.arrivals != "trace" and workload.profile.flat
    has_ramp = workload.arrivals == "closed_loop" and workload.ramp_s != 0.0
    is_endless = workload.prompts == 0
    has_decode = s.deployment.mode != "prefill_only"
    has_limits = may_have_no_instance(s) or is_limited(s)
    return (
        s.start == "steady"
        and is_flat
        and is_endless
        and not has_ramp
        and has_decode
        and not has_limits
    )


def is_limited(s: Scenario) -> bool:
    """Whether admission may refuse or delay requests: then not all offered load is in progress."""
    admission = s.admission
    return bool(
        admission.shed_at or admission.rate_req_per_s or admission.in_flight
        or any(tenant.rate_req_per_s or tenant.in_flight for tenant in s.tenants)
    )  # fmt: skip


def residents(priced: Priced, requests: Requests) -> Residents | None:
    """Requests in progress at time zero, as in the steady state; None: none, or none fits."""
    scenario = priced.scenario
    if not begins_steady(scenario):
        return None
    is_closed = scenario.workload.arrivals == "closed_loop"
    req_per_s = np.inf if is_closed else scenario.workload.rate_req_per_s
    try:
        token_lengths, kv_room = (requests.input_tokens, requests.output_tokens), priced.room
        if not kv_room.all_fit:  # the run refuses the others
            kv_room = priced.room_for(*token_lengths)
            token_lengths = token_lengths[0][kv_room.fits], kv_room.answers[kv_room.fits]
        steady_state = state_at(priced, req_per_s * kv_room.admitted_share, token_lengths)
    except ModelError:  # no request or no mean one fits: the run says so of each of them
        return None
    ranks_per_instance, instance_count = steady_state.population.slots.size, priced.pool.instances
    snapshots = []
    for instance_number in range(instance_count):
        if instance_number > 0:
            pass_arrivals = steady_state.rate_req_per_s * steady_state.iteration_s
            iterations = steady_state.reserved_s / steady_state.iteration_s
            iterations_apart = int(APART * steady_state.life) + 1
            run_population(steady_state.population, 0, iterations_apart, pass_arrivals, iterations)
        snapshots.append(_requests_inside(steady_state, instance_number * ranks_per_instance))
    request_columns = [np.concatenate(columns) for columns in zip(*snapshots, strict=True)]
    if is_closed:  # no more than there are clients
        request_columns = [column[: scenario.workload.concurrency] for column in request_columns]
    ranks, prompt_tokens, tokens_left, ready_s = request_columns
    ready_order = np.argsort(ready_s, kind="stable")
    population_req_per_s = steady_state.rate_req_per_s * instance_count
    if not ranks.size:
        return None
    return Residents(
        ranks[ready_order].astype(np.int32), prompt_tokens[ready_order].astype(np.int32),
        (tokens_left[ready_order] + 1).astype(np.int32), ready_s[ready_order], population_req_per_s,
    )  # fmt: skip


def _requests_inside(
    steady_state: Stationary, first: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(rank, counted from `first`; tokens so far; tokens left; seconds until decode) of each
    request inside an instance in the steady state, four arrays."""
    population, iteration = steady_state.population, steady_state.population.at[ITERATION]
    is_decoding, is_coming = population.status == DECODING, population.status == COMING
    iterations_due = np.maximum(population.due - population.joined, 1)
    tokens_done = population.left * (iteration - population.joined) // iterations_due
    emitted_tokens = np.where(is_decoding, tokens_done, 0)
    row_numbers = np.flatnonzero((is_decoding | is_coming) & (population.left - emitted_tokens > 0))
    iterations_left = np.maximum(population.due - iteration, 1)  # an estimate where prompts queue
    ready_s = np.where(is_coming, iterations_left * steady_state.iteration_s, 0.0)
    return (
        first + population.rank[row_numbers],
        (population.prompt + emitted_tokens)[row_numbers],
        (population.left - emitted_tokens)[row_numbers],
        ready_s[row_numbers],
    )


def with_residents(requests: Requests, in_progress: Residents | None, is_closed: bool) -> Requests:
    """Requests with the residents in front. In a closed loop they replace the clients that begin at
    once, and all later arrivals are infinite until clients send."""
    if in_progress is None:
        return requests
    resident_count = len(in_progress)
    arrival_s = np.full(requests.arrival_s.size, np.inf) if is_closed else requests.arrival_s
    first_session = int(requests.session.max(initial=-1)) + 1
    sessions = first_session + np.arange(resident_count, dtype=np.int32)
    no_segments = np.zeros(resident_count, np.int64)
    turn_before, pause_s = requests.waits_for, requests.pause_s
    if turn_before is not None and pause_s is not None:
        no_turn = np.full(resident_count, w.NONE, turn_before.dtype)
        turn_before = np.where(turn_before >= 0, turn_before + resident_count, turn_before)
        turn_before = np.concatenate((no_turn, turn_before))
        pause_s = np.concatenate((np.zeros(resident_count), pause_s))
    return replace(
        requests,
        arrival_s=np.concatenate((np.zeros(resident_count), arrival_s)),
        input_tokens=np.concatenate((in_progress.input_tokens, requests.input_tokens)),
        output_tokens=np.concatenate((in_progress.output_tokens, requests.output_tokens)),
        session=np.concatenate((sessions, requests.session)),
        segment_offset=np.concatenate((no_segments, requests.segment_offset)),
        waits_for=turn_before, pause_s=pause_s,
    )  # fmt: skip
