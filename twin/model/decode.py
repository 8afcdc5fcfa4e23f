"""One decode iteration: every layer and what is outside of the layers, on the slowest rank.

Composition follows the engine of arXiv 2506.12708v2 section 4.2: either all operators in sequence
on all cores, or two microbatches that alternate between an attention stream and an MoE stream,
each with its share of the cores and each reading the weights again. A verification pass computes
1 + draft tokens for every request; each draft token is one more pass of the MTP module and one
more graph to launch. This module does not know where its coefficients come from (costs.py), nor
which requests run (the engine).
"""

from __future__ import annotations

import math

import numpy as np

from twin.compiled import kernel
from twin.model import params as q
from twin.model.apart import apart_stages, ring_s
from twin.model.layer import (
    attention_s,
    dense_s,
    moe_parts,
    moe_s,
    output_s,
    prolog_s,
    routed_per_die,
    survey,
)
from twin.model.overlap import pipeline_s
from twin.model.params import DECODE_OPERATORS
from twin.model.roofline import interpolate, roof

__all__ = ["DECODE_OPERATORS", "decode_iteration_s"]


@kernel
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


@kernel
def _add_moe(
    p: np.ndarray, m: int, times: float, busiest: float, tokens: float, dies: float, hot: float,
    computing: bool, moving: bool, ops: np.ndarray,
) -> float:  # fmt: skip
    """Book `times` MoE passes, what computes and what moves of them; returns their seconds."""
    gate, dispatch, experts, combine = moe_parts(p, m, busiest, tokens, dies, hot)
    time = 0.0
    if computing:
        ops[q.OP_GATE] += gate * times
        ops[q.OP_EXPERTS] += experts * times
        time += (gate + experts) * times
    if moving:
        ops[q.OP_DISPATCH] += dispatch * times
        ops[q.OP_COMBINE] += combine * times
        time += (dispatch + combine) * times
    return time


@kernel
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
    ones over one token a request), LM head of every graph, sampling.
    `requests` and `context` of the busiest rank, `total` requests of all ranks.
    """
    query = p[q.QUERY_TOKENS]
    drafts = p[q.DRAFTS]
    mtp = 0.0
    head = roof(p[q.HEAD_FLOP] * query * requests, p[q.HEAD_WEIGHT]) + p[q.HEAD_FIXED]
    drawn = query * requests
    for k in range(int(drafts)):
        width = query if k == 0 else 1.0
        slope = p[q.SEQUENCE + (q.CORE_CONTEXT if k == 0 else q.CORE_CONTEXT_ONE)]
        tokens = width * requests
        mtp += p[q.MTP_FIXED] + p[q.MTP_VECTOR] * tokens
        mtp += roof(p[q.MTP_FLOP] * tokens, p[q.MTP_WEIGHT])
        mtp += attention_s(p, q.SEQUENCE, tokens, slope * context)
        mtp += moe_s(p, q.SEQUENCE, tokens, width * total, dies, hot)
        head += roof(p[q.HEAD_FLOP] * requests, p[q.HEAD_WEIGHT]) + p[q.HEAD_FIXED]
        drawn += requests
    sampling = p[q.SAMPLE_FIXED] * (1.0 + drafts) + p[q.SAMPLE_TOKEN] * drawn
    ops[q.OP_MTP] += mtp
    ops[q.OP_LM_HEAD] += head
    ops[q.OP_SAMPLING] += sampling
    return mtp + head + sampling


@kernel
def launch_gap_s(p: np.ndarray, busy: float, total: int, ops: np.ndarray) -> float:
    """What the host adds to an iteration in which the NPU is `busy` for so many seconds.

    The gap between iterations, and what launching 1 + k graphs and handing out the tokens of
    `total` requests takes longer than the NPU: the host works while a graph runs (arXiv
    2506.12708v2 section 4.2.4).
    """
    host = p[q.GRAPH_LAUNCH] * (1.0 + p[q.DRAFTS]) + p[q.HOST_ANSWER] * total
    gap = p[q.HOST_GAP] + max(0.0, host - busy)
    ops[q.OP_GAPS] += gap
    return gap


@kernel
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
        p, q.SEQUENCE, layers, query * busiest, query * total, dies, hot, True, True, ops
    )


@kernel
def streams(
    p: np.ndarray, m: int, requests: float, context: float, busiest: float, total: float,
    dies: float, hot: float,
) -> tuple[float, float]:  # fmt: skip
    """Seconds of the attention and the MoE stream for one microbatch of one layer, block m."""
    half = 0.5 * p[q.QUERY_TOKENS]
    core = 0.5 * p[m + q.CORE_CONTEXT] * context
    attention = attention_s(p, m, half * requests, core)
    return attention, moe_s(p, m, half * busiest, half * total, dies, hot)


@kernel
def split_layer_s(
    p: np.ndarray, m: int, requests: float, context: float, busiest: float, total: float,
    dies: float, hot: float,
) -> tuple[float, bool]:  # fmt: skip
    """(seconds of a layer of two microbatches, whether the first stream is the longer).

    On split cores each stream passes both microbatches; where cores are not split (HIDES) the
    microbatches take turns on all cores and on the wire (overlap.py).
    """
    if p[q.EXPERT_DIES] > 0.0:
        a, b, c, d = apart_stages(p, m, requests, context, busiest, total, dies, hot)
        return ring_s(a, b, c, d), a >= c
    if p[q.HIDES] > 0.0:
        half = 0.5 * p[q.QUERY_TOKENS]
        core = 0.5 * p[m + q.CORE_CONTEXT] * context
        before = attention_s(p, m, half * requests, core)
        gate, dispatch, experts, combine = moe_parts(p, m, half * busiest, half * total, dies, hot)
        # What an exchange takes beside its bytes, the cores are busy with: nothing hides it.
        sends = p[m + q.DISPATCH_FIXED] + p[m + q.DISPATCH_MESSAGE] * half * busiest
        before += gate + sends
        experts += p[m + q.COMBINE_FIXED]
        combine -= p[m + q.COMBINE_FIXED]
        return pipeline_s(before, dispatch - sends, experts, combine), True
    one, other = streams(p, m, requests, context, busiest, total, dies, hot)
    return 2.0 * max(one, other), one >= other


@kernel
def best_split(
    p: np.ndarray, requests: float, context: float, busiest: float, total: float, dies: float,
    hot: float,
) -> tuple[int, float]:  # fmt: skip
    """The block whose longer stream is shortest, and a layer's seconds with it.

    The engine adjusts the cores of the streams to the load (arXiv 2506.12708v2 section 4.2.3).
    """
    low, high = 0, int(p[q.WAYS]) - 1
    while low < high:  # more cores for attention: its stream shortens, the other grows
        middle = (low + high) // 2
        m = q.SPLIT + middle * q.MODE
        _, attention_longer = split_layer_s(p, m, requests, context, busiest, total, dies, hot)
        if attention_longer:
            low = middle + 1
        else:
            high = middle
    best = q.SPLIT + low * q.MODE
    shortest, _ = split_layer_s(p, best, requests, context, busiest, total, dies, hot)
    if low > 0:
        m = best - q.MODE
        found, _ = split_layer_s(p, m, requests, context, busiest, total, dies, hot)
        if found < shortest:
            return m, found
    return best, shortest


@kernel
def layers_in_streams_s(
    p: np.ndarray, m: int, layers: float, requests: float, context: float, busiest: float,
    total: float, dies: float, hot: float, ops: np.ndarray,
) -> float:  # fmt: skip
    """`layers` MoE layers as two microbatches on two streams: the longer stream counts.

    Without split cores all computing counts, and of the exchange what it does not hide.
    """
    half = 0.5 * p[q.QUERY_TOKENS]
    core = 0.5 * p[m + q.CORE_CONTEXT] * context
    layer, attention_longer = split_layer_s(p, m, requests, context, busiest, total, dies, hot)
    passes = 2.0 * layers
    time = 0.0
    if p[q.EXPERT_DIES] > 0.0:
        return _add_ring(p, m, layers, requests, context, busiest, total, dies, hot, ops)
    if p[q.HIDES] > 0.0:
        time += _add_attention(p, m, passes, half * requests, core, ops)
        time += _add_moe(p, m, passes, half * busiest, half * total, dies, hot, True, False, ops)
        shown = max(0.0, layer * layers - time)  # rounding must not make it negative
        _, dispatch, _, combine = moe_parts(p, m, half * busiest, half * total, dies, hot)
        ops[q.OP_DISPATCH] += shown * dispatch / (dispatch + combine)
        ops[q.OP_COMBINE] += shown * combine / (dispatch + combine)
        return time + shown
    if attention_longer:
        return _add_attention(p, m, passes, half * requests, core, ops)
    return _add_moe(p, m, passes, half * busiest, half * total, dies, hot, True, True, ops)


@kernel
def _add_ring(
    p: np.ndarray, m: int, layers: float, requests: float, context: float, busiest: float,
    total: float, dies: float, hot: float, ops: np.ndarray,
) -> float:  # fmt: skip
    """Book `layers` of two microbatches between attention and expert dies; returns the seconds.

    Each stage is booked in proportion to its share of the way around, whatever bounds the ring.
    """
    a, b, c, d = apart_stages(p, m, requests, context, busiest, total, dies, hot)
    time = ring_s(a, b, c, d) * layers
    part = time / (a + b + c + d)
    half = 0.5 * p[q.QUERY_TOKENS]
    gate = p[m + q.GATE_FIXED] + p[m + q.GATE_TOKEN] * half * busiest
    core = 0.5 * p[m + q.CORE_CONTEXT] * context
    booked = _add_attention(p, m, part, half * requests, core, ops)
    ops[q.OP_GATE] += gate * part
    ops[q.OP_DISPATCH] += b * part
    ops[q.OP_EXPERTS] += c * part
    ops[q.OP_COMBINE] += d * part
    return booked + (gate + b + c + d) * part


@kernel
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
    who, busiest, total = survey(p, requests, context, first, count)
    if total == 0:
        return 0.0
    dies = float(count)
    entering = p[q.QUERY_TOKENS] * total
    hot = interpolate(entering, hot_tokens, hot_factor)
    mine, its = p[q.CROWD] * requests[who], p[q.CROWD] * context[who]
    most, whole = p[q.CROWD] * busiest, float(total)
    time = _dense_layers_s(p, mine, its, ops)
    time += outside_s(p, mine, its, whole, dies, hot, ops)
    layers = p[q.MOE_LAYERS]
    if p[q.MICROBATCH] > 0.0:
        hot_half = interpolate(0.5 * entering, hot_tokens, hot_factor)
        m, split = best_split(p, mine, its, most, whole, dies, hot_half)
        tokens = p[q.QUERY_TOKENS] * mine
        core = p[q.SEQUENCE + q.CORE_CONTEXT] * its
        plain = attention_s(p, q.SEQUENCE, tokens, core)
        plain += moe_s(p, q.SEQUENCE, p[q.QUERY_TOKENS] * most, entering, dies, hot)
        if split < plain or p[q.MICROBATCH] == 1.0:
            time += layers_in_streams_s(p, m, layers, mine, its, most, whole, dies, hot_half, ops)
            return time + launch_gap_s(p, time, total, ops)
    time += layers_in_sequence_s(p, layers, mine, its, most, whole, dies, hot, ops)
    return time + launch_gap_s(p, time, total, ops)


@kernel
def _dense_layers_s(p: np.ndarray, requests: float, context: float, ops: np.ndarray) -> float:
    """The first layers: attention in sequence and a dense FFN on every die, seconds."""
    tokens = p[q.QUERY_TOKENS] * requests
    core = p[q.SEQUENCE + q.CORE_CONTEXT] * context
    time = _add_attention(p, q.SEQUENCE, p[q.DENSE_LAYERS], tokens, core, ops)
    ffn = p[q.DENSE_LAYERS] * dense_s(p, tokens)
    ops[q.OP_DENSE] += ffn
    return time + ffn


@kernel
def decode_hbm_bytes(p: np.ndarray, requests: float, context: float, dies: float) -> float:
    """HBM bytes all dies of an instance move in one iteration (weights, KV).

    `requests` and `context` are sums over the instance's ranks. Weights count once, and those
    of experts that no token asks for not at all.
    """
    layers = p[q.MOE_LAYERS] + p[q.DENSE_LAYERS] + p[q.DRAFTS]
    weights = p[q.ATTENTION_BYTES] * layers + p[q.DENSE_BYTES] * p[q.DENSE_LAYERS]
    weights += p[q.HEAD_BYTES] * (1.0 + p[q.DRAFTS])
    rows = routed_per_die(p, p[q.QUERY_TOKENS] * requests)
    held = p[q.ROUTED_DIES] * p[q.SLOTS] * (1.0 - math.exp(-rows / p[q.SLOTS]))
    holding = p[q.EXPERT_DIES] if p[q.EXPERT_DIES] > 0.0 else dies
    held += p[q.SHARED_EXPERTS] * (p[q.SHARED_DIES] if p[q.SHARED_DIES] > 0.0 else holding)
    experts = p[q.EXPERT_BYTES] * (p[q.MOE_LAYERS] + p[q.DRAFTS]) * held
    read = weights * dies / p[q.CROWD] + experts
    return read + context * p[q.CONTEXT_BYTES] * layers


@kernel
def decode_flops(p: np.ndarray, requests: float, context: float) -> float:
    """FLOPs all dies of an instance compute in one iteration (sums over ranks, as above).

    Every layer and the head see all verified positions; the first pass of the MTP module sees
    them too, later ones one token a request, and each ends in the head for one token a request.
    """
    query = p[q.QUERY_TOKENS]
    drafts = p[q.DRAFTS]
    layers = p[q.MOE_LAYERS] + p[q.DENSE_LAYERS]
    moe = p[q.EXPERT_FLOPS] * (p[q.TOP_K] + p[q.SHARED_EXPERTS])
    token = p[q.ATTENTION_FLOPS] * layers + p[q.DENSE_FLOPS] * p[q.DENSE_LAYERS]
    token += moe * p[q.MOE_LAYERS] + p[q.HEAD_FLOPS]
    drafted = query + drafts - 1.0 if drafts > 0.0 else 0.0  # positions in the MTP module
    module = drafted * (p[q.ATTENTION_FLOPS] + moe + p[q.MTP_FLOPS]) + drafts * p[q.HEAD_FLOPS]
    pairs = context * p[q.CONTEXT_FLOPS] * (query * layers + drafted)
    return requests * (query * token + module) + pairs
