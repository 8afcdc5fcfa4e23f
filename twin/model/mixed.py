"""One iteration of a colocated instance: a decode batch and a prompt chunk in the same pass.

The chunk's tokens join the matrix products and the exchange of the decode batch, so weights are
read once for both; its attention comes on top. Colocated instances run operators in sequence.
"""

from __future__ import annotations

import numpy as np

from twin.kernels.compiled import kernel
from twin.model.coefficients import DECODE_OPERATORS, Decode
from twin.model.decode import decode_flops, launch_gap_s, layers_in_sequence_s, outside_s
from twin.model.layer import Pass, attention_s, dense_s, moe_s, survey
from twin.model.roofline import interpolate

__all__ = ["DECODE_OPERATORS", "mixed_iteration_s"]

_DENSE = DECODE_OPERATORS.index("dense_ffn")
_CHUNK = DECODE_OPERATORS.index("prefill_chunk")


@kernel
def mixed_iteration_s(
    p: Decode,
    requests: np.ndarray,
    context: np.ndarray,
    first: int,
    count: int,
    chunk_tokens: float,
    chunk_pairs: float,
    hot_tokens: np.ndarray,
    hot_factor: np.ndarray,
    ops: np.ndarray,
) -> float:
    """Seconds of one colocated iteration on ranks first..first+count.

    requests i8[R], context f8[R] as in decode; chunk_tokens prompt tokens and chunk_pairs their
    query-key pairs, spread evenly over the ranks; ops f8[len(DECODE_OPERATORS)]: decode's
    operators as if alone, and what the chunk adds as `prefill_chunk`.
    """
    who, busiest, total = survey(p, requests, context, first, count)
    if total == 0 and chunk_tokens <= 0.0:
        return 0.0
    dies = float(count)
    query = p.query_tokens
    entering = query * total
    hot = interpolate(entering + chunk_tokens, hot_tokens, hot_factor)
    rank_requests, rank_context = float(requests[who]), context[who]
    tokens = query * rank_requests
    alone = 0.0
    if total > 0:
        load = Pass(tokens, rank_context, query * busiest, entering, dies, hot)
        alone += layers_in_sequence_s(p, p.moe_layers, load, ops)
    m = p.sequence
    chunk = chunk_tokens / dies
    core = m.core.context * rank_context + p.chunk.pair * chunk_pairs / dies
    attention = attention_s(m, tokens + chunk, core)
    load = Pass(
        tokens + chunk, rank_context, query * busiest + chunk, entering + chunk_tokens, dies, hot
    )
    layer = attention + moe_s(p, m, load)
    # Without a chunk the two are equal but for rounding, and a time is never negative.
    ops[_CHUNK] += max(0.0, layer * p.moe_layers - alone)
    dense = p.dense_layers * (attention + dense_s(p, tokens + chunk))
    ops[_DENSE] += dense
    time = layer * p.moe_layers + dense
    time += outside_s(p, rank_requests, rank_context, float(total), dies, hot, ops)
    return time + launch_gap_s(p, time, total, ops)


@kernel
def mixed_hits_s(p: Decode, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds an iteration takes longer for `hit_tokens` cached tokens that its prompts attend to.

    As prefill_hits_s: their latents are projected up to keys and values of all heads, on the
    dies that share the prompts. Comes on top of mixed_iteration_s; ops as there.
    """
    time = p.chunk.hit * hit_tokens
    ops[_CHUNK] += time
    return time


@kernel
def mixed_flops(p: Decode, requests: float, context: float, chunk: float, pairs: float) -> float:
    """FLOPs of one colocated iteration on all dies; sums over ranks as in decode_flops.

    Of a chunk's tokens none goes through the MTP module or the head.
    """
    demand, at = p.demand, p.layout
    layers = p.moe_layers + p.dense_layers
    token = demand.attention_flops * layers + demand.dense_flops * p.dense_layers
    token += demand.expert_flops * (at.top_k + at.shared_experts) * p.moe_layers
    return decode_flops(p, requests, context) + chunk * token + pairs * p.chunk.pair_flops
