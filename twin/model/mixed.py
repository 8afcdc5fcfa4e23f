"""One iteration of a colocated instance: a decode batch and a prompt chunk in the same pass.

The chunk's tokens join the matrix products and the exchange of the decode batch, so weights are
read once for both; its attention comes on top. Colocated instances run operators in sequence.
"""

from __future__ import annotations

import numpy as np

from twin.compiled import kernel
from twin.model import params as q
from twin.model.decode import decode_flops, launch_gap_s, layers_in_sequence_s, outside_s
from twin.model.layer import attention_s, dense_s, moe_s, survey
from twin.model.params import DECODE_OPERATORS
from twin.model.roofline import interpolate

__all__ = ["DECODE_OPERATORS", "mixed_iteration_s"]


@kernel
def mixed_iteration_s(
    p: np.ndarray,
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

    p f8[MIXED_SIZE]: a decode vector and the chunk's attention; requests i8[R], context f8[R] as
    in decode; chunk_tokens prompt tokens and chunk_pairs their query-key pairs, spread evenly
    over the ranks; ops f8[len(DECODE_OPERATORS)]: decode's operators as if alone, and what the
    chunk adds as `prefill_chunk`.
    """
    who, busiest, total = survey(p, requests, context, first, count)
    if total == 0 and chunk_tokens <= 0.0:
        return 0.0
    dies = float(count)
    query = p[q.QUERY_TOKENS]
    hot = interpolate(query * total + chunk_tokens, hot_tokens, hot_factor)
    mine = float(requests[who])
    time = 0.0
    if total > 0:
        time += layers_in_sequence_s(
            p, p[q.MOE_LAYERS], mine, context[who], busiest, total, dies, hot, ops
        )
    alone = time
    tokens = query * mine
    chunk = chunk_tokens / dies
    core = p[q.SEQUENCE + q.CORE_CONTEXT] * context[who] + p[q.CHUNK_PAIR] * chunk_pairs / dies
    attention = attention_s(p, q.SEQUENCE, tokens + chunk, core)
    layer = attention + moe_s(
        p, q.SEQUENCE, query * busiest + chunk, query * total + chunk_tokens, dies, hot
    )
    # Without a chunk the two are equal but for rounding, and a time is never negative.
    ops[q.OP_CHUNK] += max(0.0, layer * p[q.MOE_LAYERS] - alone)
    dense = p[q.DENSE_LAYERS] * (attention + dense_s(p, tokens + chunk))
    ops[q.OP_DENSE] += dense
    time = layer * p[q.MOE_LAYERS] + dense
    time += outside_s(p, mine, context[who], total, dies, hot, ops)
    return time + launch_gap_s(p, time, total, ops)


@kernel
def mixed_hits_s(p: np.ndarray, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds an iteration takes longer for `hit_tokens` cached tokens that its prompts attend to.

    As prefill_hits_s: their latents are projected up to keys and values of all heads, on the
    dies that share the prompts. Comes on top of mixed_iteration_s; ops as there.
    """
    time = p[q.CHUNK_HIT] * hit_tokens
    ops[q.OP_CHUNK] += time
    return time


@kernel
def mixed_flops(
    p: np.ndarray, requests: float, context: float, chunk: float, pairs: float
) -> float:
    """FLOPs of one colocated iteration on all dies; sums over ranks as in decode_flops.

    Of a chunk's tokens none goes through the MTP module or the head.
    """
    layers = p[q.MOE_LAYERS] + p[q.DENSE_LAYERS]
    token = p[q.ATTENTION_FLOPS] * layers + p[q.DENSE_FLOPS] * p[q.DENSE_LAYERS]
    token += p[q.EXPERT_FLOPS] * (p[q.TOP_K] + p[q.SHARED_EXPERTS]) * p[q.MOE_LAYERS]
    decoded = decode_flops(p, requests, context)
    return decoded + chunk * token + pairs * p[q.CHUNK_PAIR_FLOPS]
