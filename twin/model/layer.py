"""One decoder layer of decode on one die: seconds of its operators, in one of two modes.

A mode is the offset of a block of coefficients: SEQUENCE (all cores) or SPLIT (one microbatch on
its stream's share of the cores). This module does not know how layers and streams make an
iteration (decode.py) nor where coefficients come from (costs.py).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from twin.model import params as q
from twin.model.roofline import roof


@njit(cache=True)
def prolog_s(p: np.ndarray, m: int, tokens: float) -> float:
    """MLA prolog of `tokens` on one die, seconds; m is SEQUENCE or SPLIT."""
    product = roof(
        p[m + q.PROLOG_FLOP] * tokens, p[m + q.PROLOG_WEIGHT] + p[m + q.PROLOG_IO] * tokens
    )
    return p[m + q.PROLOG_FIXED] + product + p[m + q.PROLOG_VECTOR] * tokens


@njit(cache=True)
def output_s(p: np.ndarray, m: int, tokens: float) -> float:
    """Value up-projection and output projection of `tokens` on one die, seconds."""
    product = roof(
        p[m + q.OUTPUT_FLOP] * tokens, p[m + q.OUTPUT_WEIGHT] + p[m + q.OUTPUT_IO] * tokens
    )
    return p[m + q.OUTPUT_FIXED] + product + p[m + q.OUTPUT_VECTOR] * tokens


@njit(cache=True)
def gate_s(p: np.ndarray, m: int, tokens: float) -> float:
    """Router of `tokens` on one die, seconds."""
    return p[m + q.GATE_FIXED] + p[m + q.GATE_TOKEN] * tokens


@njit(cache=True)
def dispatch_s(p: np.ndarray, m: int, tokens: float, received: float) -> float:
    """Dispatch: the busiest sender's `tokens`, or what the hottest expert die receives."""
    wire = max(p[m + q.DISPATCH_SEND] * tokens, p[m + q.DISPATCH_RECEIVE] * received)
    return p[m + q.DISPATCH_FIXED] + p[m + q.DISPATCH_MESSAGE] * tokens + wire


@njit(cache=True)
def combine_s(p: np.ndarray, m: int, tokens: float, answered: float) -> float:
    """Combine: the hottest expert die sends `answered` rows back, each die adds up `tokens`."""
    wire = max(p[m + q.COMBINE_SEND] * answered, p[m + q.COMBINE_RECEIVE] * tokens)
    return p[m + q.COMBINE_FIXED] + wire


@njit(cache=True)
def routed_per_die(p: np.ndarray, tokens: float) -> float:
    """Rows that a die with routed experts gets on average when `tokens` enter an MoE layer."""
    return tokens * p[q.TOP_K] / p[q.ROUTED_DIES]


@njit(cache=True)
def ffn_rows_s(p: np.ndarray, m: int, experts: float, rows: float) -> float:
    """A grouped product over `rows` spread over `experts`; unused experts stay unread."""
    if experts <= 0.0 or rows <= 0.0:
        return 0.0
    read = experts * (1.0 - math.exp(-rows / experts))
    product = roof(
        p[m + q.EXPERT_FLOP] * rows, p[m + q.EXPERT_WEIGHT] * read + p[m + q.EXPERT_IO] * rows
    )
    return p[m + q.EXPERT_FIXED] + product + p[m + q.EXPERT_VECTOR] * rows


@njit(cache=True)
def experts_s(p: np.ndarray, m: int, tokens: float, dies: float, hot: float) -> float:
    """Routed and shared experts of `tokens` (all dies together) on the hottest die, seconds."""
    rows = routed_per_die(p, tokens) * hot
    if p[q.SHARED_EXPERTS] > 0.0 and p[q.SHARED_DIES] > 0.0:
        shared_rows = p[q.SHARED_EXPERTS] * tokens / p[q.SHARED_DIES]
        shared = ffn_rows_s(p, m, p[q.SHARED_EXPERTS], shared_rows)
        return max(ffn_rows_s(p, m, p[q.SLOTS], rows), shared)
    shared_rows = p[q.SHARED_EXPERTS] * tokens / dies
    return ffn_rows_s(p, m, p[q.SLOTS] + p[q.SHARED_EXPERTS], rows + shared_rows)


@njit(cache=True)
def moe_s(
    p: np.ndarray, m: int, busiest: float, tokens: float, dies: float, hot: float
) -> float:
    """Gate, dispatch, experts and combine of one pass, seconds.

    `busiest`: tokens of the die that sends most; `tokens`: of all dies; `hot`: hottest die's
    routed load over the mean.
    """
    rows = routed_per_die(p, tokens) * hot
    return (
        gate_s(p, m, busiest)
        + dispatch_s(p, m, busiest, rows)
        + experts_s(p, m, tokens, dies, hot)
        + combine_s(p, m, busiest, rows)
    )


@njit(cache=True)
def attention_s(p: np.ndarray, m: int, tokens: float, core: float) -> float:
    """Attention of `tokens` on one die, `core` seconds of it in the core without its launch."""
    return prolog_s(p, m, tokens) + p[m + q.CORE_FIXED] + core + output_s(p, m, tokens)


@njit(cache=True)
def survey(
    p: np.ndarray, requests: np.ndarray, context: np.ndarray, first: int, count: int
) -> tuple[int, int, int]:
    """(slowest rank, most requests of a rank, requests of all) of ranks first..first+count.

    requests i8[R], context f8[R] (tokens summed over a rank's requests). The slowest is the rank
    whose attention takes longest with all operators in sequence; on split cores it is the same
    but for a hair, because attention costs more with more requests and with more context in
    either mode. For the same reason a rank with no more of either than the slowest so far needs
    no look at its roofs.
    """
    who, busiest, total = first, 0, 0
    slowest, mine, its = -1.0, -1, -1.0
    for i in range(first, first + count):
        r = requests[i]
        c = context[i]
        total += r
        busiest = max(busiest, r)
        if r > mine or c > its:
            tokens = p[q.QUERY_TOKENS] * r
            t = attention_s(p, q.SEQUENCE, tokens, p[q.SEQUENCE + q.CORE_CONTEXT] * c)
            if t > slowest:
                slowest, mine, its = t, r, c
                who = i
    return who, busiest, total


@njit(cache=True)
def dense_s(p: np.ndarray, tokens: float) -> float:
    """Dense FFN of one of the first layers for `tokens` on one die, seconds."""
    if p[q.DENSE_WEIGHT] <= 0.0:
        return 0.0
    product = roof(p[q.DENSE_FLOP] * tokens, p[q.DENSE_WEIGHT] + p[q.DENSE_IO] * tokens)
    return p[q.DENSE_FIXED] + product + p[q.DENSE_VECTOR] * tokens
