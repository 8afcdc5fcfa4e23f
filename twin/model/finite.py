"""Finite runs by formula: so many requests at once, until the last answer has ended. Slots are full
for a while, then the longest answers are left alone (`drain`); or all prompts are computed before
any answer goes on (`burst`). Kernels are colocated ones; prompts are alike."""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.model.batch import LoadCurve
from twin.model.costs import RoleCosts
from twin.model.mixed import ALIKE, mixed_iteration_s, mixed_mean_s, prompts_by_rank
from twin.model.predict import Held, Traffic, rank_load

WINDOW = 64  # iterations that are priced at their mean load


@dataclass(frozen=True, slots=True)
class Finite:
    """A finite run of one instance."""

    seconds: float  # from the start to the end of the last answer
    tpot_s: float  # mean over requests, from the first token on


def answer_iterations(
    answers: NDArray[np.float64], slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(first iteration, iteration after the last) of each answer, i8[N] each, if each takes the
    first slot that becomes free. answers f8[N]: number of iterations of each answer."""
    free_iterations = [0] * min(slots, answers.size)
    first_iterations = np.empty(answers.size, np.int64)
    answer_lengths = np.maximum(1, np.rint(answers)).astype(np.int64)
    for answer_index, answer_length in enumerate(answer_lengths.tolist()):
        first_iterations[answer_index] = heapq.heappop(free_iterations)
        heapq.heappush(free_iterations, int(first_iterations[answer_index]) + answer_length)
    return first_iterations, first_iterations + answer_lengths


def queue_run(
    role: RoleCosts, prompt: float, answers: NDArray[np.float64], slots: int, most: float,
    hot: LoadCurve, spread: float = 1.0, lengths: tuple[float, ...] = ALIKE,
) -> Finite:  # fmt: skip
    """A finite run: all requests wait from the start, and each takes the next slot that becomes
    free. Prompts, of `prompt` tokens on average, are computed in the iterations of running answers.
    answers f8[N]: iterations of each, in the queue's order; slots: of all dies; most: prompt tokens
    of a rank in an iteration; hot: load of the hottest die by tokens; lengths: equally likely
    lengths of a prompt, divided by the mean; spread: mean square of these."""
    first_iterations, end_iterations = answer_iterations(answers, slots)
    last_end = int(end_iterations.max())
    # Of those under way at an iteration: how many, and the sum and the sum of squares of `first`;
    # first what each iteration changes, then the running sums.
    moment_changes = [np.zeros(last_end + 1) for _ in range(3)]
    for moment, changes in enumerate(moment_changes):
        np.add.at(changes, first_iterations, first_iterations.astype(np.float64) ** moment)
        np.add.at(changes, end_iterations, -(first_iterations.astype(np.float64) ** moment))
    in_progress, first_sum, square_sum = (
        np.cumsum(changes)[:last_end] for changes in moment_changes
    )
    joining_requests = np.bincount(first_iterations, minlength=last_end)
    operator_s = role.operator_sink()
    total_s = request_s = 0.0
    for window_begin in range(0, last_end, WINDOW):
        window = slice(window_begin, min(window_begin + WINDOW, last_end))
        window_iterations = window.stop - window.start
        middle = 0.5 * (window.start + window.stop)
        running_requests = float(in_progress[window].mean())
        mean_age = middle - float(first_sum[window].mean()) / running_requests
        mean_square_age = middle * middle - 2.0 * middle * (middle - mean_age)
        mean_square_age += float(square_sum[window].mean()) / running_requests
        held_tokens = Held(
            mean_age, float(np.sqrt(max(0.0, mean_square_age - mean_age * mean_age)))
        )
        traffic = Traffic(prompt, 0.0, held=held_tokens)
        requests, context = rank_load(running_requests / role.ranks, role.ranks, traffic)
        prompt_tokens = float(joining_requests[window].sum()) * prompt / window_iterations
        pairs = 0.5 * prompt_tokens * (spread * prompt + 1.0)
        prompts = prompts_by_rank(prompt_tokens, pairs, prompt, most, role.ranks, lengths=lengths)
        mean_iteration_s = mixed_mean_s(role.decode, requests, context, prompts, hot, operator_s)
        total_s += window_iterations * mean_iteration_s
        request_s += window_iterations * mean_iteration_s * running_requests
    return Finite(total_s, request_s / float((end_iterations - first_iterations).sum()))


def burst_run(
    role: RoleCosts, prompt: float, answer: float, requests: int, batch_tokens: float,
    hot: LoadCurve,
) -> Finite:  # fmt: skip
    """A finite run in which all requests arrive at once and none decodes while a prompt waits:
    early prompts wait after their first token until the last prompt is computed. Each request has
    `prompt` tokens and `answer` iterations. batch_tokens: prompt tokens of the instance in one
    pass; hot: load of the hottest die by tokens."""
    operator_s = role.operator_sink()
    # Whole prompts, as many as fit the tokens of a rank; where none does, of some ranks one each.
    rank_prompts = batch_tokens / role.ranks // prompt
    pass_prompts = rank_prompts * role.ranks if rank_prompts else max(1.0, batch_tokens // prompt)
    no_decode = np.zeros(role.ranks, np.int64)
    chunk = prompt * np.floor((pass_prompts - np.arange(role.ranks) - 1.0) / role.ranks + 1.0)
    pass_count = int(np.ceil(requests / pass_prompts))
    prompt_pass_s = mixed_iteration_s(
        role.decode, no_decode, no_decode.astype(np.float64), chunk, 0.5 * chunk * (prompt + 1.0),
        0, role.ranks, *hot, operator_s,
    )  # fmt: skip
    traffic = Traffic(prompt, answer, held=Held(0.0, 0.0))
    running_requests, context = rank_load(requests / role.ranks, role.ranks, traffic)
    context += running_requests * 0.5 * answer  # the time is linear in it, so its mean will do
    no_prompts = np.zeros(role.ranks)
    decode_pass_s = mixed_iteration_s(
        role.decode, running_requests, context, no_prompts, no_prompts, 0, role.ranks, *hot,
        operator_s,
    )  # fmt: skip
    decode_passes = max(1.0, answer - 1.0)
    stalled_s = 0.5 * (pass_count - 1) * prompt_pass_s
    return Finite(
        pass_count * prompt_pass_s + decode_passes * decode_pass_s,
        decode_pass_s + stalled_s / decode_passes,
    )
