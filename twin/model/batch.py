"""What a batch of prompts takes, for those who choose beforehand: routers, and who reads cached KV.
The kernels that the simulation calls for every batch are called here for a few sizes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.model.coefficients import PrefillCosts
from twin.model.costs import RoleCosts
from twin.model.layer import product_s
from twin.model.mixed import mixed_hits_s, mixed_iteration_s
from twin.model.prefill import prefill_batch_s, prefill_hits_s

# Load of the hottest die over the mean: at tokens f8[G], the load [G], an array or on demand.
LoadCurve = tuple[NDArray[np.float64], Any]


def recompute_s_per_token(role: RoleCosts, budget: float, prompt: float, hot: LoadCurve) -> float:
    """Seconds that an instance saves per prompt token that it reads from the memory pool instead of
    computing it, in a full batch. budget: tokens of such a batch (if colocated, of an iteration);
    prompt: mean tokens of a prompt; hot: load of the hottest die by tokens."""
    pass_s = batch_s(role, budget, budget * 0.5 * prompt, hot)
    if isinstance(role.coefficients, PrefillCosts):
        return float(pass_s - prefill_hits_s(role.prefill, budget, role.operator_sink())) / budget
    pass_s -= batch_s(role, 1.0, 0.5 * prompt, hot)
    return float(pass_s - mixed_hits_s(role.decode, budget, role.operator_sink())) / budget


def batch_s(role: RoleCosts, tokens: float, pairs: float, hot: LoadCurve) -> float:
    """Seconds of a batch of `tokens` prompt tokens with `pairs` query-key pairs, without decode.
    hot: load of the hottest die by tokens."""
    operator_s = role.operator_sink()
    if isinstance(role.coefficients, PrefillCosts):
        die_tokens_pairs = tokens / role.stage_dies, pairs / role.stage_dies
        return float(prefill_batch_s(role.prefill, tokens, *die_tokens_pairs, *hot, operator_s))
    ranks = role.ranks
    rank_tokens_pairs = np.full(ranks, tokens / ranks), np.full(ranks, pairs / ranks)
    load_args = np.zeros(ranks, np.int64), np.zeros(ranks), *rank_tokens_pairs, 0, ranks
    return float(mixed_iteration_s(role.decode, *load_args, *hot, operator_s))


def fit_batch_s(
    role: RoleCosts, budget: float, prompt: float, hot: LoadCurve
) -> tuple[float, float, float]:
    """(fixed seconds, seconds per token, seconds per query-key pair) by which routers predict a
    batch, fitted to a half-full and a full batch. budget: tokens of a full batch; prompt: mean
    tokens of a prompt; hot: load of the hottest die by tokens."""
    half_tokens, pairs_per_token = 0.5 * budget, 0.5 * prompt
    half_batch_s = batch_s(role, half_tokens, half_tokens * pairs_per_token, hot)
    full_batch_s = batch_s(role, budget, budget * pairs_per_token, hot)
    double_pairs_s = batch_s(role, budget, 2.0 * budget * pairs_per_token, hot)
    pair_s = (double_pairs_s - full_batch_s) / (budget * pairs_per_token)
    token_s = max(0.0, (full_batch_s - half_batch_s) / half_tokens - pair_s * pairs_per_token)
    return max(0.0, 2.0 * half_batch_s - full_batch_s), token_s, max(0.0, pair_s)


def attention_s_per_token(p: PrefillCosts, tokens: float) -> float:
    """Seconds that one more token adds to a layer's attention and gate on a die that has `tokens`
    tokens, without its query-key pairs."""
    products, half = (*p.before, *p.after), 0.5 * tokens
    added_s = sum(product_s(product, tokens) - product_s(product, half) for product in products)
    return float(added_s / half + p.exchange.token + p.context.token + p.gate.token - p.gate.saved)


def bytes_sent(role: RoleCosts) -> np.ndarray:
    """Bytes that dies send per token, f8[4]: to experts and back and among dies that share
    attention, (within, between nodes); gathered by prefill's attention, (within, between nodes)."""

    def by_distance(total_bytes: float, off_node_share: float) -> np.ndarray:
        """`total_bytes` divided into (bytes within nodes, bytes between nodes), f8[2]."""
        return total_bytes * np.array((1.0 - off_node_share, off_node_share))

    exchange_bytes = by_distance(role.exchange_bytes_per_token, role.off_node_fraction)
    exchange_bytes += by_distance(role.rank_bytes_per_token, role.gather_off_node)
    context_bytes = by_distance(role.context_bytes_per_token, role.context_off_node)
    if role.pool.role != "prefill":
        return np.array((*(exchange_bytes + context_bytes), 0.0, 0.0))
    prefill_costs = role.prefill
    gather_s_per_token = prefill_costs.gather.token * role.stage_dies + prefill_costs.exchange.token
    dense_gathers = (1.0 + prefill_costs.split_ffn) * prefill_costs.dense_layers
    gather_s_per_token *= (prefill_costs.moe_layers + dense_gathers) * role.stages
    gather_bytes = gather_s_per_token * role.gather_bytes_per_s if gather_s_per_token > 0.0 else 0.0
    context_bytes += by_distance(gather_bytes, role.gather_off_node)
    return np.array((*exchange_bytes, *context_bytes))
