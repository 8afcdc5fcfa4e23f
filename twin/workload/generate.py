"""Requests with arrival times, lengths and shared KV blocks; each aspect has a random stream."""

from functools import partial
from typing import NamedTuple

import numpy as np

from twin.facts import Facts
from twin.kernels.rng import stream_key
from twin.scenario import Workload
from twin.workload import profile
from twin.workload.lengths import draw_lengths, drawn_lengths, relative_lengths
from twin.workload.prefixes import Turns, find_parents, own_chains, session_chains, shared_chains
from twin.workload.replay import NO_LIMIT, replayed_requests
from twin.workload.requests import MOST_REQUESTS, Requests, Streams, TraceTable, WorkloadError


def generate_requests(
    workload: Workload, horizon_s: float, seed: int, block_tokens: int, facts: Facts,
    trace: TraceTable | None = None, count: int | None = None, answers: bool = False, *,
    even: bool = False,
) -> Requests:  # fmt: skip
    """Requests that arrive in [0, horizon_s) seconds, at most `count`. A closed loop needs `count`;
    its later requests have arrival +inf. block_tokens: tokens in a KV block of the memory pool; a
    trace with coarser blocks has its own. answers: chains include the blocks of the answers. even:
    lengths follow their distribution exactly. Raises WorkloadError or FactError."""
    stream_of = partial(stream_key, seed)
    if workload.arrivals == "trace":
        if trace is None:
            raise WorkloadError("workload.arrivals = trace needs the trace: load its file first")
        rate_clock = profile.Clock(workload, horizon_s, facts)
        return replayed_requests(
            workload, rate_clock, horizon_s, stream_of, block_tokens, trace, count, answers
        )
    if workload.prompts:
        count = workload.prompts if count is None else min(count, workload.prompts)
    arrival_s = _arrival_times_s(workload, horizon_s, stream_of, facts, count)
    input_tokens, output_tokens = _drawn_tokens(workload, arrival_s.size, stream_of, facts, even)
    if workload.arrivals != "closed_loop":
        input_tokens = profile.scaled_lengths(workload, arrival_s, input_tokens, "input", facts)
        output_tokens = profile.scaled_lengths(workload, arrival_s, output_tokens, "output", facts)
    parents = None
    if workload.prefix == "sessions":
        parents = _parent_turns(workload, arrival_s, input_tokens, output_tokens, stream_of, facts)
    answer_tokens = output_tokens if answers else np.zeros_like(output_tokens)
    if workload.prefix == "none":
        chains = own_chains(input_tokens + answer_tokens, block_tokens)
    elif parents is None:
        chains = shared_chains(
            input_tokens, block_tokens, workload.shared_fraction, workload.prefix_groups,
            stream_of("prefix"), answer_tokens,
        )  # fmt: skip
    else:
        head_tokens = int(_session_fact(facts, workload, "head_tokens"))
        chains = session_chains(input_tokens + answer_tokens, parents, block_tokens, head_tokens)
    waits_for, pause_s = None, None
    if parents is not None and workload.turns == "wait" and workload.arrivals != "closed_loop":
        waits_for, pause_s = parents, arrival_s - arrival_s[parents]
    return Requests(
        arrival_s, input_tokens, output_tokens, *chains, block_tokens=block_tokens,
        has_prefix=workload.prefix != "none", waits_for=waits_for, pause_s=pause_s,
    )  # fmt: skip


def _refuse_too_many(expected: float) -> None:
    """Raise WorkloadError if more requests are `expected` than a run may have."""
    if expected > MOST_REQUESTS:
        raise WorkloadError(
            f"the workload asks for about {expected:,.0f} requests, but one run takes at most "
            f"{MOST_REQUESTS:,}: lower the rate or the horizon"
        )


def _drawn_tokens(
    workload: Workload, n: int, stream: Streams, facts: Facts, even: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(input tokens i4[n], output tokens i4[n]) of n requests: fixed, or drawn from random streams.
    stream: gives a stream's key by its name; even: lengths follow their distribution exactly."""
    if workload.lengths == "fixed":
        fixed_lengths = (workload.input_tokens, workload.output_tokens)
        return np.full(n, fixed_lengths[0], np.int32), np.full(n, fixed_lengths[1], np.int32)
    input_table, output_table = drawn_lengths(facts, workload)
    return (
        draw_lengths(input_table, stream("input"), n, even=even),
        draw_lengths(output_table, stream("output"), n, even=even),
    )


def _session_fact(facts: Facts, workload: Workload, name: str) -> float:
    """SI value of a fact about sessions: that of the fitted workload, otherwise the common one."""
    fact_path = f"workloads.{workload.lengths}.{name}"
    return facts.si(fact_path if fact_path in facts else f"sessions.{name}")


def _parent_turns(
    workload: Workload, arrival_s: np.ndarray, input_tokens: np.ndarray, output_tokens: np.ndarray,
    stream: Streams, facts: Facts,
) -> np.ndarray:  # fmt: skip
    """Index i4[n] of the earlier turn that each request extends, or -1; raises fixed inputs in
    place to whole prompts. In a closed loop it is `concurrency` requests earlier, and `turn_gap_s`
    has no effect. stream: gives a random stream's key by its name."""
    has_fixed_lengths = workload.lengths == "fixed"
    is_closed = workload.arrivals == "closed_loop"
    turns = Turns(
        workload.follow_up_probability,
        float(workload.concurrency) if is_closed else workload.turn_gap_s,
        0.0 if is_closed else _session_fact(facts, workload, "turn_gap_sigma"),
        1 if has_fixed_lengths else int(_session_fact(facts, workload, "candidates")),
        0.0 if is_closed else workload.tool_share,
        workload.tool_gap_s,
    )
    parents = np.empty(arrival_s.size, np.int32)
    find_parents(
        stream("sessions"), stream("turn gaps"),
        np.arange(arrival_s.size, dtype=np.float64) if is_closed else arrival_s, input_tokens,
        output_tokens, turns, has_fixed_lengths, parents,
    )  # fmt: skip
    return parents


def _arrival_times_s(
    workload: Workload, horizon_s: float, stream: Streams, facts: Facts, count: int | None
) -> np.ndarray:
    """Sorted arrival times (s), f8[n], at most `count`; in a closed loop +inf for requests that
    wait for a client. stream: gives a random stream's key by its name."""
    most_requests = NO_LIMIT if count is None else count
    req_per_s = workload.rate_req_per_s
    if workload.arrivals == "closed_loop":
        if count is None:
            raise WorkloadError("workload.arrivals = closed_loop needs a count of requests")
        _refuse_too_many(count)
        return profile.closed_loop_arrivals(workload.concurrency, count, workload.ramp_s)
    rate_clock = profile.Clock(workload, horizon_s, facts)
    own_horizon_s = rate_clock.own_horizon_s
    _refuse_too_many(min(req_per_s * own_horizon_s, most_requests))
    if workload.arrivals == "uniform":
        return rate_clock.seconds(profile.uniform_arrivals(req_per_s, own_horizon_s, most_requests))
    gap_process = profile.GAMMA if workload.arrivals == "gamma" else profile.POISSON
    unscaled_s = profile.renewal_arrivals(
        stream("arrivals"), gap_process, req_per_s, workload.cv, own_horizon_s, most_requests
    )
    return rate_clock.seconds(unscaled_s)


class MeanLengths(NamedTuple):
    """Mean lengths of a workload's requests, in tokens."""

    input_tokens: float
    output_tokens: float
    prompt_spread: float = 1.0  # mean square of a prompt over the square of its mean
    prompts: tuple[float, ...] = (1.0,)  # equally likely lengths of a prompt, over the mean


def mean_lengths(workload: Workload, facts: Facts, trace: TraceTable | None = None) -> MeanLengths:
    """Long-run mean lengths of the workload, by formula. In sessions of fixed lengths a turn adds
    the input: with follow-up probability p the mean prompt solves E = input + p (E + output)."""
    if workload.arrivals == "trace":
        if trace is None or not len(trace):
            raise WorkloadError("workload.arrivals = trace needs the trace: load its file first")
        inputs, outputs = (
            column.astype(np.int64) for column in (trace.input_tokens, trace.output_tokens)
        )
        mean_prompt = float(inputs.sum() / inputs.size)
        mean_answer = float(outputs.sum() / outputs.size)
        prompt_spread = float((inputs.astype(np.float64) ** 2).mean()) / mean_prompt**2
        return MeanLengths(
            mean_prompt, mean_answer, prompt_spread, relative_lengths(trace.input_tokens)
        )
    if workload.lengths == "fixed":
        mean_prompt, mean_answer = float(workload.input_tokens), float(workload.output_tokens)
        if workload.prefix == "sessions":
            follow_up_chance = workload.follow_up_probability
            mean_prompt = (mean_prompt + follow_up_chance * mean_answer) / (1.0 - follow_up_chance)
        return MeanLengths(mean_prompt, mean_answer)
    input_table, output_table = drawn_lengths(facts, workload)
    prompt_spread = input_table.moment(2) / input_table.mean**2
    return MeanLengths(input_table.mean, output_table.mean, prompt_spread, input_table.multiples)
