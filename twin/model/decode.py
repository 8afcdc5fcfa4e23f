"""One decode iteration: every layer and what is outside of the layers, on the slowest rank.

Composition follows the engine of arXiv 2506.12708v2 section 4.2: either all operators in sequence
on all cores, or two microbatches that alternate between an attention stream and an MoE stream,
each with its share of the cores and each reading the weights again. A verification pass computes
1 + draft tokens for every request; each draft token is one more pass of the MTP module and one
more graph to launch. This module does not know where its coefficients come from (costs.py), nor
which requests run (the engine).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from twin.model import params as q
from twin.model.layer import (
    combine_s,
    dense_s,
    dispatch_s,
    experts_s,
    gate_s,
    moe_s,
    output_s,
    prolog_s,
    routed_per_die,
    slowest_attention,
)
from twin.model.params import DECODE_OPERATORS
from twin.model.roofline import interpolate

__all__ = ["DECODE_OPERATORS", "decode_iteration_s"]


@njit(cache=True)
def _add_attention(
    p: np.ndarray, m: int, times: float, tokens: float, core: float, ops: np.ndarray
) -> float:
    """Book `times` attention passes on the critical path; returns their seconds."""
    a = prolog_s(p, m, tokens) * times
    b = (p[m + q.CORE_FIXED] + core) * times
    c = output_s(p, m, tokens) * times
    ops[q.OP_PROLOG] += a
    ops[q.OP_CORE] += b
    ops[q.OP_O_PROJ] += c
    return a + b + c


@njit(cache=True)
def _add_moe(
    p: np.ndarray,
    m: int,
    times: float,
    busiest: float,
    tokens: float,
    dies: float,
    hot: float,
    ops: np.ndarray,
) -> float:
    """Book `times` MoE passes on the critical path; returns their seconds."""
    rows = routed_per_die(p, tokens) * hot
    a = gate_s(p, m, busiest) * times
    b = dispatch_s(p, m, busiest, rows) * times
    c = experts_s(p, m, tokens, dies, hot) * times
    d = combine_s(p, m, busiest, rows) * times
    ops[q.OP_GATE] += a
    ops[q.OP_DISPATCH] += b
    ops[q.OP_EXPERTS] += c
    ops[q.OP_COMBINE] += d
    return a + b + c + d


@njit(cache=True)
def outside_s(
    p: np.ndarray,
    requests: float,
    context: float,
    total: float,
    dies: float,
    hot: float,
    ops: np.ndarray,
) -> float:
    """What an iteration spends outside of the layers, seconds.

    MTP passes (a whole MoE layer each, in sequence; the first over all verified positions, later
    ones over one token a request), LM head of every graph, sampling, launch of 1 + k graphs.
    `requests` and `context` of the busiest rank, `total` requests of all ranks.
    """
    query = p[q.QUERY_TOKENS]
    drafts = p[q.DRAFTS]
    mtp = 0.0
    head = max(p[q.HEAD_WEIGHT], p[q.HEAD_FLOP] * query * requests) + p[q.HEAD_FIXED]
    drawn = query * requests
    for k in range(int(drafts)):
        width = query if k == 0 else 1.0
        slope = p[q.SEQUENCE + (q.CORE_CONTEXT if k == 0 else q.CORE_CONTEXT_ONE)]
        tokens = width * requests
        mtp += p[q.MTP_FIXED] + p[q.MTP_VECTOR] * tokens
        mtp += max(p[q.MTP_WEIGHT], p[q.MTP_FLOP] * tokens)
        mtp += prolog_s(p, q.SEQUENCE, tokens) + output_s(p, q.SEQUENCE, tokens)
        mtp += p[q.SEQUENCE + q.CORE_FIXED] + slope * context
        mtp += moe_s(p, q.SEQUENCE, tokens, width * total, dies, hot)
        head += max(p[q.HEAD_WEIGHT], p[q.HEAD_FLOP] * requests) + p[q.HEAD_FIXED]
        drawn += requests
    graphs = 1.0 + drafts
    sampling = p[q.SAMPLE_FIXED] * graphs + p[q.SAMPLE_TOKEN] * drawn
    gaps = p[q.GRAPH_GAP] * graphs
    ops[q.OP_MTP] += mtp
    ops[q.OP_LM_HEAD] += head
    ops[q.OP_SAMPLING] += sampling
    ops[q.OP_GAPS] += gaps
    return mtp + head + sampling + gaps


@njit(cache=True)
def layers_in_sequence_s(
    p: np.ndarray,
    layers: float,
    requests: float,
    context: float,
    busiest: float,
    total: float,
    dies: float,
    hot: float,
    ops: np.ndarray,
) -> float:
    """`layers` MoE layers with all operators in sequence on all cores, seconds."""
    query = p[q.QUERY_TOKENS]
    core = p[q.SEQUENCE + q.CORE_CONTEXT] * context
    time = _add_attention(p, q.SEQUENCE, layers, query * requests, core, ops)
    return time + _add_moe(
        p, q.SEQUENCE, layers, query * busiest, query * total, dies, hot, ops
    )


@njit(cache=True)
def layers_in_streams_s(
    p: np.ndarray,
    layers: float,
    requests: float,
    context: float,
    busiest: float,
    total: float,
    dies: float,
    hot: float,
    ops: np.ndarray,
) -> float:
    """`layers` MoE layers as two microbatches on two streams: the longer stream counts.

    Each stream has cores of its own, so the shorter one hides behind the longer.
    """
    half = 0.5 * p[q.QUERY_TOKENS]
    tokens = half * requests
    core = 0.5 * p[q.SPLIT + q.CORE_CONTEXT] * context
    attention = (
        prolog_s(p, q.SPLIT, tokens)
        + p[q.SPLIT + q.CORE_FIXED]
        + core
        + output_s(p, q.SPLIT, tokens)
    )
    moe = moe_s(p, q.SPLIT, half * busiest, half * total, dies, hot)
    if attention >= moe:
        return _add_attention(p, q.SPLIT, 2.0 * layers, tokens, core, ops)
    return _add_moe(
        p, q.SPLIT, 2.0 * layers, half * busiest, half * total, dies, hot, ops
    )


@njit(cache=True)
def streams_layer_s(
    p: np.ndarray, attention: float, busiest: float, total: float, dies: float, hot: float
) -> float:
    """One MoE layer on two streams from its attention seconds a microbatch (for comparison)."""
    half = 0.5 * p[q.QUERY_TOKENS]
    moe = moe_s(p, q.SPLIT, half * busiest, half * total, dies, hot)
    return 2.0 * max(attention, moe)


@njit(cache=True)
def decode_iteration_s(
    p: np.ndarray,
    requests: np.ndarray,
    context: np.ndarray,
    first: int,
    count: int,
    hot_tokens: np.ndarray,
    hot_factor: np.ndarray,
    ops: np.ndarray,
) -> float:
    """Seconds of one decode iteration of the instance on ranks first..first+count.

    p f8[DECODE_SIZE]; requests i8[R] running requests of each rank (die); context f8[R] their
    context tokens summed; hot_tokens, hot_factor f8[G]: hottest die's MoE load over the mean by
    tokens that enter the MoE at once; ops f8[len(DECODE_OPERATORS)] gets the seconds of each
    operator on the critical path added, in all exactly what is returned.
    """
    busiest = 0
    total = 0
    for i in range(first, first + count):
        total += requests[i]
        if requests[i] > busiest:
            busiest = requests[i]
    if total == 0:
        return 0.0
    dies = float(count)
    query = p[q.QUERY_TOKENS]
    entering = query * total
    hot = interpolate(entering, hot_tokens, hot_factor)
    hot_half = interpolate(0.5 * entering, hot_tokens, hot_factor)
    attention, who = slowest_attention(p, q.SEQUENCE, 1.0, requests, context, first, count)
    streams = p[q.MICROBATCH] == 1.0
    split_who = who
    if p[q.MICROBATCH] > 0.0:
        split, split_who = slowest_attention(p, q.SPLIT, 0.5, requests, context, first, count)
        if p[q.MICROBATCH] > 1.0:
            plain = attention + moe_s(p, q.SEQUENCE, query * busiest, entering, dies, hot)
            streams = streams_layer_s(p, split, busiest, total, dies, hot_half) < plain
    time = _dense_layers_s(p, requests[who], context[who], ops)
    if streams:
        time += layers_in_streams_s(
            p, p[q.MOE_LAYERS], requests[split_who], context[split_who],
            busiest, total, dies, hot_half, ops,
        )  # fmt: skip
    else:
        time += layers_in_sequence_s(
            p, p[q.MOE_LAYERS], requests[who], context[who], busiest, total, dies, hot, ops
        )
    return time + outside_s(p, requests[who], context[who], total, dies, hot, ops)


@njit(cache=True)
def _dense_layers_s(p: np.ndarray, requests: float, context: float, ops: np.ndarray) -> float:
    """The first layers: attention in sequence and a dense FFN on every die, seconds."""
    tokens = p[q.QUERY_TOKENS] * requests
    core = p[q.SEQUENCE + q.CORE_CONTEXT] * context
    time = _add_attention(p, q.SEQUENCE, p[q.DENSE_LAYERS], tokens, core, ops)
    ffn = p[q.DENSE_LAYERS] * dense_s(p, tokens)
    ops[q.OP_DENSE] += ffn
    return time + ffn


@njit(cache=True)
def decode_hbm_bytes(p: np.ndarray, requests: float, context: float, dies: float) -> float:
    """HBM bytes all dies of an instance move in one iteration (weights, KV).

    `requests` and `context` are sums over the instance's ranks. Weights count once.
    """
    layers = p[q.MOE_LAYERS] + p[q.DENSE_LAYERS] + p[q.DRAFTS]
    weights = p[q.ATTENTION_BYTES] * layers + p[q.DENSE_BYTES] * p[q.DENSE_LAYERS]
    weights += p[q.HEAD_BYTES] * (1.0 + p[q.DRAFTS])
    shared = 0.0 if p[q.SHARED_DIES] > 0.0 else p[q.SHARED_EXPERTS]
    experts = p[q.EXPERT_BYTES] * (p[q.MOE_LAYERS] + p[q.DRAFTS])
    return dies * (weights + experts * (p[q.SLOTS] + shared)) + context * p[
        q.CONTEXT_BYTES
    ] * layers


@njit(cache=True)
def decode_flops(p: np.ndarray, requests: float, context: float, dies: float) -> float:
    """FLOPs all dies of an instance compute in one iteration (sums over ranks, as above)."""
    query = p[q.QUERY_TOKENS]
    tokens = query * requests
    layers = p[q.MOE_LAYERS] + p[q.DENSE_LAYERS] + p[q.DRAFTS]
    per_token = p[q.ATTENTION_FLOPS] * layers + p[q.DENSE_FLOPS] * p[q.DENSE_LAYERS]
    per_token += p[q.EXPERT_FLOPS] * (p[q.TOP_K] + p[q.SHARED_EXPERTS]) * (
        p[q.MOE_LAYERS] + p[q.DRAFTS]
    )
    per_token += p[q.HEAD_FLOPS] * (1.0 + p[q.DRAFTS])
    return tokens * per_token + query * context * p[q.CONTEXT_FLOPS] * layers
