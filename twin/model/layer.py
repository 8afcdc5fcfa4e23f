"""One decoder layer of decode on one die: seconds of its operators, in one of two modes.

A mode is the offset of a block of coefficients: SEQUENCE (all cores) or SPLIT (one microbatch on
its stream's share of the cores). This module does not know how layers and streams make an
iteration (decode.py) nor where coefficients come from (costs.py).
"""

from __future__ import annotations

import math

import numpy as np

from twin.compiled import kernel
from twin.model import params as q
from twin.model.roofline import roof


@kernel
def prolog_s(p: np.ndarray, m: int, tokens: float) -> float:
    """MLA prolog of `tokens` on one die, seconds; m is SEQUENCE or SPLIT."""
    product = roof(
        p[m + q.PROLOG_FLOP] * tokens, p[m + q.PROLOG_WEIGHT] + p[m + q.PROLOG_IO] * tokens
    )
    return p[m + q.PROLOG_FIXED] + product + p[m + q.PROLOG_VECTOR] * tokens


@kernel
def output_s(p: np.ndarray, m: int, tokens: float) -> float:
    """Value up-projection and output projection of `tokens` on one die, seconds."""
    product = roof(
        p[m + q.OUTPUT_FLOP] * tokens, p[m + q.OUTPUT_WEIGHT] + p[m + q.OUTPUT_IO] * tokens
    )
    return p[m + q.OUTPUT_FIXED] + product + p[m + q.OUTPUT_VECTOR] * tokens


@kernel
def exchange_s(
    p: np.ndarray, send: float, receive: float, sent: float, routed: float, shared: float
) -> float:
    """Wire time: a die exchanges `sent` tokens, the hottest expert die `routed` rows, one with
    the shared expert `shared` rows; unscheduled, these come at once and the rest wait behind."""
    if p[q.IN_CAST] > 0.0:
        return max(send * sent, receive * routed) + receive * shared
    return max(send * sent, receive * max(routed, shared))


@kernel
def routed_per_die(p: np.ndarray, tokens: float) -> float:
    """Rows that a die with routed experts gets on average when `tokens` enter an MoE layer."""
    return tokens * p[q.TOP_K] / p[q.ROUTED_DIES]


@kernel
def ffn_rows_s(p: np.ndarray, m: int, experts: float, rows: float) -> float:
    """A grouped product over `rows` spread over `experts`; unused experts stay unread."""
    if experts <= 0.0 or rows <= 0.0:
        return 0.0
    read = experts * (1.0 - math.exp(-rows / experts))
    weights = max(0.0, p[m + q.EXPERT_WEIGHT] * read - p[m + q.EXPERT_AHEAD])
    product = roof(p[m + q.EXPERT_FLOP] * rows, weights + p[m + q.EXPERT_IO] * rows)
    return p[m + q.EXPERT_FIXED] + product + p[m + q.EXPERT_VECTOR] * rows


@kernel
def moe_parts(
    p: np.ndarray, m: int, busiest: float, tokens: float, dies: float, hot: float
) -> tuple[float, float, float, float]:
    """Seconds of (gate, dispatch, experts, combine) of one pass, as far as each is waited for.

    `busiest`: tokens of the die that sends most; `tokens`: of all dies; `hot`: hottest die's
    routed load over the mean. What static buffers have no room for goes in further rounds.
    """
    gate = p[m + q.GATE_FIXED] + p[m + q.GATE_TOKEN] * busiest
    rounds = 1.0
    if p[q.BUFFER_TOKENS] > 0.0:
        rounds = max(1.0, math.ceil(busiest / p[q.BUFFER_TOKENS]))
    there, experts, back = _round(p, m, busiest / rounds, tokens / rounds, dies, hot)
    return gate, there * rounds, experts * rounds, back * rounds


@kernel
def _round(
    p: np.ndarray, m: int, busiest: float, tokens: float, dies: float, hot: float
) -> tuple[float, float, float]:
    """Seconds of (dispatch, experts, combine) of one round, arguments as above."""
    start = p[m + q.DISPATCH_FIXED] + p[m + q.DISPATCH_MESSAGE] * busiest
    if p[q.EXPERT_DIES] > 0.0:
        dies = p[q.EXPERT_DIES]
    rows = routed_per_die(p, tokens) * hot
    away = p[q.SHARED_EXPERTS] > 0.0 and p[q.SHARED_DIES] > 0.0
    mine = p[q.SHARED_EXPERTS] * tokens / (p[q.SHARED_DIES] if away else dies)
    sent = mine if away else 0.0
    there = exchange_s(p, p[m + q.DISPATCH_SEND], p[m + q.DISPATCH_RECEIVE], busiest, rows, sent)
    back = exchange_s(p, p[m + q.COMBINE_RECEIVE], p[m + q.COMBINE_SEND], busiest, rows, sent)
    if away:
        shared = ffn_rows_s(p, m, p[q.SHARED_EXPERTS], mine)
        experts = max(ffn_rows_s(p, m, p[q.SLOTS], rows), shared)
    elif p[q.BESIDE] > 0.0:
        shared = ffn_rows_s(p, m, p[q.SHARED_EXPERTS], mine)
        experts = ffn_rows_s(p, m, p[q.SLOTS], rows) + max(0.0, shared - start - there)
    else:
        experts = ffn_rows_s(p, m, p[q.SLOTS] + p[q.SHARED_EXPERTS], rows + mine)
    # Two microbatches in turn fill what a tile would: a stage keeps its resource for all its rows.
    in_turn = m != q.SEQUENCE and (p[q.HIDES] > 0.0 or p[q.EXPERT_DIES] > 0.0)
    if p[q.TILES] > 0.0 and not in_turn:  # the longest stage, and one tile of the others
        longest = max(there, experts, back)
        there = there if there == longest else there / p[q.TILES]
        experts = experts if experts == longest else experts / p[q.TILES]
        back = back if back == longest else back / p[q.TILES]
    return start + there, experts, p[m + q.COMBINE_FIXED] + back


@kernel
def moe_s(p: np.ndarray, m: int, busiest: float, tokens: float, dies: float, hot: float) -> float:
    """All of moe_parts together, seconds."""
    gate, dispatch, experts, combine = moe_parts(p, m, busiest, tokens, dies, hot)
    return gate + dispatch + experts + combine


@kernel
def attention_s(p: np.ndarray, m: int, tokens: float, core: float) -> float:
    """Attention of `tokens` on one die, `core` seconds of it in the core without its launch."""
    return prolog_s(p, m, tokens) + p[m + q.CORE_FIXED] + core + output_s(p, m, tokens)


@kernel
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


@kernel
def dense_s(p: np.ndarray, tokens: float) -> float:
    """Dense FFN of one of the first layers for `tokens` on one die, seconds."""
    if p[q.DENSE_WEIGHT] <= 0.0:
        return 0.0
    product = roof(p[q.DENSE_FLOP] * tokens, p[q.DENSE_WEIGHT] + p[q.DENSE_IO] * tokens)
    return p[q.DENSE_FIXED] + product + p[q.DENSE_VECTOR] * tokens
