"""One prefill batch: every layer on the most loaded die, with or without microbatch overlap.

Composition follows arXiv 2506.12708v2 section 4.3: attention in three stages (sequence, tensor,
sequence parallel; or plain data parallel), then gate, dispatch, experts, combine. With two
microbatches the copy engines carry dispatch and combine of one while the cores compute the other.
This module does not know which prompts are in the batch, only tokens and query-key pairs.
"""

from __future__ import annotations

import math

import numpy as np

from twin.compiled import kernel
from twin.model import params as q
from twin.model.overlap import pipeline_s
from twin.model.params import PREFILL_OPERATORS
from twin.model.roofline import interpolate, roof

__all__ = ["PREFILL_OPERATORS", "prefill_batch_s", "prefill_hits_s"]


@kernel
def _product(weight_s: float, token_s: float, vector_s: float, tokens: float) -> float:
    return roof(token_s * tokens, weight_s) + vector_s * tokens


@kernel
def _expert_rows(p: np.ndarray, tokens: float, hot: float) -> float:
    return tokens * p[q.F_TOP_K] / p[q.F_ROUTED_DIES] * hot


@kernel
def _experts_s(p: np.ndarray, tokens: float, hot: float) -> float:
    """Routed and shared experts on the hottest die for `tokens` of all dies, seconds."""
    shared = p[q.F_SHARED_EXPERTS]
    shared_dies = p[q.F_SHARED_DIES]
    routed = _expert_rows(p, tokens, hot)
    alone = shared > 0.0 and shared_dies > 0.0
    held = p[q.F_SLOTS] if alone else p[q.F_SLOTS] + shared
    rows = routed if alone else routed + shared * tokens / p[q.F_DIES]
    time = _grouped_s(p, held, rows)
    if alone:
        time = max(time, _grouped_s(p, shared, shared * tokens / shared_dies))
    return time


@kernel
def _grouped_s(p: np.ndarray, experts: float, rows: float) -> float:
    read = experts * (1.0 - math.exp(-rows / experts))
    return p[q.F_EXPERT_FIXED] + _product(
        p[q.F_EXPERT_WEIGHT] * read, p[q.F_EXPERT_TOKEN], p[q.F_EXPERT_VECTOR], rows
    )


@kernel
def _dispatch_s(p: np.ndarray, die_tokens: float, rows: float) -> float:
    wire = max(p[q.F_DISPATCH_WIRE] * die_tokens, p[q.F_DISPATCH_RECEIVE] * rows)
    core = p[q.F_DISPATCH_CORE] * die_tokens + p[q.F_DISPATCH_ORDER] * rows
    return p[q.F_DISPATCH_FIXED] + core + wire


@kernel
def _combine_s(p: np.ndarray, die_tokens: float, rows: float) -> float:
    wire = max(p[q.F_COMBINE_RECEIVE] * die_tokens, p[q.F_COMBINE_WIRE] * rows)
    return p[q.F_COMBINE_FIXED] + p[q.F_COMBINE_CORE] * die_tokens + wire


@kernel
def _attention(
    p: np.ndarray,
    layers: float,
    tokens: float,
    die_tokens: float,
    die_pairs: float,
    ops: np.ndarray,
) -> float:
    """Book attention of `layers` passes; returns their seconds."""
    a = p[q.F_INPUT_FIXED] + roof(p[q.F_INPUT_TOKEN] * die_tokens, p[q.F_INPUT_WEIGHT])
    b = p[q.F_GATHER_FIXED] + p[q.F_GATHER_TOKEN] * tokens
    c = p[q.F_CORE_FIXED] + p[q.F_CORE_PAIR] * die_pairs
    d = p[q.F_EXCHANGE_FIXED] + p[q.F_EXCHANGE_TOKEN] * die_tokens
    e = p[q.F_OUTPUT_FIXED] + roof(p[q.F_OUTPUT_TOKEN] * die_tokens, p[q.F_OUTPUT_WEIGHT])
    ops[q.PO_INPUT] += a * layers
    ops[q.PO_GATHER] += b * layers
    ops[q.PO_CORE] += c * layers
    ops[q.PO_EXCHANGE] += d * layers
    ops[q.PO_OUTPUT] += e * layers
    return (a + b + c + d + e) * layers


@kernel
def prefill_batch_s(
    p: np.ndarray,
    new_tokens: float,
    die_tokens: float,
    die_pairs: float,
    hot_tokens: np.ndarray,
    hot_factor: np.ndarray,
    ops: np.ndarray,
) -> float:
    """Seconds to prefill one batch on one instance.

    p f8[PREFILL_SIZE]; new_tokens computed in the whole batch; die_tokens: those of the most
    loaded die (with sequence-parallel attention total / dies); die_pairs: its query-key pairs, sum
    over requests of new * (cached + (new + 1) / 2); hot_tokens, hot_factor f8[G] as in decode; ops
    f8[len(PREFILL_OPERATORS)] gets seconds per operator added, in all exactly the result.
    """
    if new_tokens <= 0.0:
        return 0.0
    dense = p[q.F_DENSE_LAYERS]
    layers = p[q.F_MOE_LAYERS]
    time = _attention(p, dense, new_tokens, die_tokens, die_pairs, ops)
    if dense > 0.0:
        ffn = p[q.F_DENSE_FIXED] + _product(
            p[q.F_DENSE_WEIGHT], p[q.F_DENSE_TOKEN], p[q.F_DENSE_VECTOR], die_tokens
        )
        ops[q.PO_DENSE] += ffn * dense
        time += ffn * dense
    ops[q.PO_HEAD] += p[q.F_HEAD]
    ops[q.PO_GAPS] += p[q.F_GAP]
    time += p[q.F_HEAD] + p[q.F_GAP]
    passes = layers * (2.0 if p[q.F_MICROBATCH] > 0.0 else 1.0)
    part = 0.5 if p[q.F_MICROBATCH] > 0.0 else 1.0
    tokens = part * new_tokens
    mine = part * die_tokens
    hot = interpolate(tokens, hot_tokens, hot_factor)
    busy = passes / p[q.F_COMPUTE_SHARE] if p[q.F_MICROBATCH] > 0.0 else passes
    before = _attention(p, busy, tokens, mine, part * die_pairs, ops)
    gate = (p[q.F_GATE_FIXED] + p[q.F_GATE_TOKEN] * mine) * busy
    experts = _experts_s(p, tokens, hot) * busy
    before += gate
    rows = _expert_rows(p, tokens, hot)
    sent = _dispatch_s(p, mine, rows) * passes
    answered = _combine_s(p, mine, rows) * passes
    main = before + experts
    ops[q.PO_GATE] += gate
    ops[q.PO_EXPERTS] += experts
    shown = sent + answered
    if p[q.F_MICROBATCH] > 0.0:
        rest = p[q.F_CONTENTION] / passes
        order = p[q.F_DISPATCH_ORDER] * rows * passes
        sending = p[q.F_DISPATCH_CORE] * mine * passes
        gathering = p[q.F_COMBINE_CORE] * mine * passes
        # What both want of the vector cores delays the one as much as the other.
        layer = pipeline_s(
            before / passes + rest * (sending + gathering),
            sent / passes + rest * (sending + order),
            experts / passes + rest * order,
            answered / passes + rest * gathering,
        )  # fmt: skip
        shown = max(0.0, layer * layers - main)  # rounding must not make it negative
    ops[q.PO_DISPATCH] += shown * sent / (sent + answered)
    ops[q.PO_COMBINE] += shown * answered / (sent + answered)
    return time + main + shown


@kernel
def prefill_hits_s(p: np.ndarray, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds a batch takes longer for `hit_tokens` cached tokens that its prompts attend to.

    Their latents are gathered and projected up to keys and values of all heads, as if computed:
    multi-head attention does not absorb. Comes on top of prefill_batch_s; ops as there.
    """
    layers = p[q.F_MOE_LAYERS] + p[q.F_DENSE_LAYERS]
    a = p[q.F_HIT_TOKEN] * hit_tokens * layers
    b = p[q.F_HIT_GATHER] * hit_tokens * layers
    ops[q.PO_INPUT] += a
    ops[q.PO_GATHER] += b
    return a + b


@kernel
def prefill_hbm_bytes(p: np.ndarray, new_tokens: float) -> float:
    """HBM bytes all dies of an instance move for one batch (weights once, activations).

    Experts that no token asks for stay unread.
    """
    slots = p[q.F_SLOTS]
    read = slots * (1.0 - math.exp(-_expert_rows(p, new_tokens, 1.0) / slots))
    held = p[q.F_ROUTED_DIES] * read
    held += p[q.F_SHARED_EXPERTS] * (p[q.F_SHARED_DIES] if p[q.F_SHARED_DIES] else p[q.F_DIES])
    weights = p[q.F_DIES] * p[q.F_WEIGHT_BYTES] + held * p[q.F_EXPERT_BYTES]
    return weights + new_tokens * p[q.F_TOKEN_BYTES]


@kernel
def prefill_flops(p: np.ndarray, new_tokens: float, pairs: float) -> float:
    """FLOPs all dies of an instance compute for one batch."""
    return new_tokens * p[q.F_TOKEN_FLOPS] + pairs * p[q.F_PAIR_FLOPS]
