"""Batching: how much of a prompt joins the next batch, and how many iterations an answer needs."""

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from twin.kernels.compiled import kernel
from twin.kernels.rng import bits, normal, uniform

# Answers up to here are walked token by token: for them the normal law is off by some per cent.
SHORT_TOKENS = 64


@kernel
def tokens_to_take(remaining: int, budget_left: int, chunk_tokens: int, batch_empty: bool) -> int:
    """Tokens of a prompt with `remaining` tokens that join the batch now; 0 ends the batch. Chunked
    (chunk_tokens > 0), a prompt adds at most a chunk and fills the remaining budget. Unchunked, it
    joins whole or waits; a prompt above the whole budget goes alone."""
    if chunk_tokens > 0:
        return min(remaining, chunk_tokens, budget_left)
    return remaining if remaining <= budget_left or batch_empty else 0


@kernel
def tokens_per_iteration(draft_tokens: int, acceptance: float) -> float:
    """Mean tokens an iteration emits: 1 + a + a^2 + ... + a^k for k draft tokens."""
    mean_tokens = 1.0
    accepted_chance = 1.0
    for _ in range(draft_tokens):
        accepted_chance *= acceptance
        mean_tokens += accepted_chance
    return mean_tokens


@kernel
def token_variance(draft_tokens: int, acceptance: float) -> float:
    """Variance of the tokens an iteration emits (a geometric run cut off at k drafts)."""
    second_moment = 0.0
    accepted_chance = 1.0
    for k in range(1, draft_tokens + 1):
        stop_chance = accepted_chance * (1.0 - acceptance)
        second_moment += stop_chance * k * k
        accepted_chance *= acceptance
    second_moment += accepted_chance * (draft_tokens + 1) * (draft_tokens + 1)
    mean_tokens = tokens_per_iteration(draft_tokens, acceptance)
    return second_moment - mean_tokens * mean_tokens


@lru_cache(maxsize=1024)
def iteration_chances(tokens: int, draft_tokens: int, acceptance: float) -> tuple[float, ...]:
    """Probabilities that answers of `tokens` (1 or more) tokens need 1 ... `tokens` iterations."""
    run_chances = [*(acceptance**k for k in range(draft_tokens + 1)), 0.0]  # of k drafts at least
    # Of an iteration's 1, 2, ... tokens.
    emit_chances = [chance - longer_chance for chance, longer_chance in pairwise(run_chances)]
    total_chances, end_chances = [1.0] + [0.0] * (tokens - 1), []  # of 0, 1, ... tokens so far
    for _ in range(tokens):
        next_total_chances = [
            math.fsum(
                total_chances[n - k] * emit_chance
                for k, emit_chance in enumerate(emit_chances, start=1)
                if k <= n
            )
            for n in range(tokens)
        ]
        end_chances.append(math.fsum(total_chances) - math.fsum(next_total_chances))
        total_chances = next_total_chances
    return tuple(end_chances)


def slots_of_ranks(
    ranks: int, batch_per_npu: int, rank_dies: int, dies_per_npu: int
) -> NDArray[np.int64]:
    """Maximum requests of each rank, i8[ranks]: an NPU's batch divided over its dies."""
    dies_before_rank = np.arange(ranks + 1, dtype=np.int64) * rank_dies
    return np.diff(batch_per_npu * dies_before_rank // dies_per_npu)


@kernel
def iterations_needed(
    tokens: int, draft_tokens: int, acceptance: float, key: np.uint64, rounding_key: np.uint64,
    index: int,
) -> int:  # fmt: skip
    """Iterations until `tokens` tokens are emitted, drawn once. index: of the draw, in the streams
    of both keys.
    By renewal theory the number is normal with mean (tokens + overshoot) / m and variance tokens *
    v / m^3; m, v: mean and variance of an iteration's tokens; overshoot: (E[X^2]/m - 1) / 2. It is
    rounded at random so that the mean stays. Short answers are simulated token by token."""
    if tokens <= 0:
        return 0
    if draft_tokens == 0 or acceptance <= 0.0:
        return tokens
    least_iterations = (tokens + draft_tokens) // (draft_tokens + 1)
    if acceptance >= 1.0:
        return least_iterations
    if tokens <= SHORT_TOKENS:
        return simulate_iterations(tokens, draft_tokens, acceptance, np.uint64(bits(key, index)))
    mean_tokens = tokens_per_iteration(draft_tokens, acceptance)
    variance = token_variance(draft_tokens, acceptance)
    overshoot_tokens = ((variance + mean_tokens * mean_tokens) / mean_tokens - 1.0) / 2.0
    iteration_deviation = math.sqrt(variance * tokens / (mean_tokens * mean_tokens * mean_tokens))
    mean_iterations = (tokens + overshoot_tokens) / mean_tokens
    drawn_iterations = (
        mean_iterations + iteration_deviation * normal(key, index) + uniform(rounding_key, index)
    )
    iterations = math.floor(drawn_iterations)
    return int(min(max(iterations, least_iterations), tokens))


@kernel
def simulate_iterations(tokens: int, draft_tokens: int, acceptance: float, key: np.uint64) -> int:
    """Iterations until `tokens` tokens are emitted, each draft token drawn with `acceptance`."""
    emitted_tokens, iterations, draw_count = 0, 0, 0
    while emitted_tokens < tokens:
        iterations += 1
        emitted_tokens += 1
        for _ in range(draft_tokens):
            draw_count += 1
            if uniform(key, draw_count) >= acceptance:
                break
            emitted_tokens += 1
    return iterations


@kernel
def fetch_pays(fetch_s: float, recompute_s: float) -> bool:
    """Whether reading cached KV takes no longer than computing it again."""
    return fetch_s <= recompute_s
