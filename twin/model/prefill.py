"""One prefill batch: every layer on the most loaded die, with or without microbatch overlap.
Composition follows arXiv 2506.12708v2 section 4.3: attention in three stages (sequence, tensor,
sequence parallel; or plain data parallel), then gate, dispatch, experts, combine. With two
microbatches the copy engines carry dispatch and combine of one while the cores compute the other.
This module does not know which prompts are in the batch, only tokens and query-key pairs."""

import math

import numpy as np

from twin.kernels.compiled import kernel
from twin.metrics.operators import PREFILL_OPERATORS
from twin.model import layer
from twin.model.coefficients import PrefillCosts, Transfer
from twin.model.roofline import Machine
from twin.model.schedule import pipeline

_GATHER, _CORE, _EXCHANGE, _GATE, _DISPATCH, _EXPERTS, _COMBINE, _DENSE, _HEAD, _GAPS = map(
    PREFILL_OPERATORS.index,
    ("all_gather", "attention_core", "all_to_all", "gate", "dispatch", "experts", "combine",
     "dense_ffn", "lm_head", "launch_gaps"),
)  # fmt: skip

SHORTEST = 0.25  # of a prompt's first piece, which later ones have at least (SGLang)


@kernel
def _experts_s(p: PrefillCosts, tokens: float, hot: float) -> float:
    """Seconds of all experts on the hottest die for `tokens` of all dies; hot: its load / mean."""
    layout = p.layout
    routed_rows, shared_count = layer.routed_rows(layout, tokens) * hot, layout.shared_experts
    if shared_count > 0.0 and layout.shared_dies > 0.0:
        used_experts = layer.used_experts(layout.slots, routed_rows)
        shared_rows = shared_count * tokens / layout.shared_dies
        shared_s = layer.shared_experts_s(layout, p.experts, shared_rows)
        return max(layer.expert_ffn_s(p.experts, used_experts, 0.0, routed_rows), shared_s)
    all_rows = routed_rows + shared_count * tokens * layout.split / layout.dies
    used_experts = layer.used_experts(layout.slots + shared_count, all_rows)
    return layer.expert_ffn_s(p.experts, used_experts, shared_count, all_rows)


@kernel
def _transfer_s(w: Transfer, die_tokens: float, rows: float, moved_rows: float) -> float:
    """Seconds of a dispatch or a combine of `die_tokens` tokens of a die: launch, ordering of
    `rows`, and the wire, whose fullest link carries `moved_rows`."""
    wire_s = max(w.token * die_tokens, w.row * moved_rows)
    wire_s -= w.saved * max(0.0, die_tokens - w.beyond)
    return w.fixed + (w.message * die_tokens + w.order * rows) + wire_s


@kernel
def _add_attention(
    p: PrefillCosts, layers: float, tokens: float, die_tokens: float, die_pairs: float,
    ops: np.ndarray,
) -> float:  # fmt: skip
    """Add seconds of `layers` passes of attention to ops f8[operators]; returns their sum. tokens:
    of all dies; die_tokens, die_pairs: tokens and query-key pairs of the most loaded die."""
    gathers_s = layer.collective_s(p.gather, tokens)
    gathers_s += layer.collective_s(p.context, die_tokens)
    core_s = p.core.fixed + layer.prompt_core_s(p.core, die_tokens, die_pairs)
    core_s += p.core.edge * die_tokens
    exchange_s = layer.collective_s(p.exchange, die_tokens)
    attention_s = 0.0
    for index in range(len(p.before)):
        product_s = layer.product_s(p.before[index], die_tokens)
        ops[int(p.before[index].place)] += product_s * layers
        attention_s += product_s
    attention_s += gathers_s
    attention_s += core_s
    attention_s += exchange_s
    for index in range(len(p.after)):
        product_s = layer.product_s(p.after[index], die_tokens)
        ops[int(p.after[index].place)] += product_s * layers
        attention_s += product_s
    ops[_GATHER] += gathers_s * layers
    ops[_CORE] += core_s * layers
    ops[_EXCHANGE] += exchange_s * layers
    return attention_s * layers


@kernel
def prefill_batch_s(
    p: PrefillCosts, new_tokens: float, die_tokens: float, die_pairs: float, hot_tokens: np.ndarray,
    hot_factor: np.ndarray, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds to prefill a batch on an instance. new_tokens: tokens to compute; die_tokens: those
    of the fullest die; die_pairs: its query-key pairs, the sum over requests of new * (cached +
    (new + 1) / 2). hot_tokens, hot_factor f8[G]: load of the hottest die divided by the mean, by
    tokens; with hot_factor f8[2 G] the hottest node's follows. ops f8[len(PREFILL_OPERATORS)]: the
    seconds of each operator are added to it."""
    if new_tokens <= 0.0:
        return 0.0
    batch_s = _add_attention(p, p.dense_layers, new_tokens, die_tokens, die_pairs, ops)
    if p.dense_layers > 0.0:
        ffn_s = layer.product_s(p.dense, die_tokens)
        ops[_DENSE] += ffn_s * p.dense_layers
        batch_s += ffn_s * p.dense_layers
        if p.split_ffn > 0.0:
            gather_s = layer.collective_s(p.gather, new_tokens) * p.dense_layers
            scatter_s = layer.collective_s(p.exchange, die_tokens) * p.dense_layers
            ops[_GATHER] += gather_s
            ops[_EXCHANGE] += scatter_s
            batch_s += gather_s + scatter_s
    if p.drafter.weight > 0.0:  # its layer is dense, so it is booked with those
        drafter_s = layer.product_s(p.drafter, die_tokens) + p.drafter_pair * die_pairs
        ops[_DENSE] += drafter_s
        batch_s += drafter_s
    ops[_HEAD] += p.head
    ops[_GAPS] += p.launch
    batch_s += p.head + p.launch
    if p.moe_layers > 0.0:
        batch_s += _moe_layers_s(p, new_tokens, die_tokens, die_pairs, hot_tokens, hot_factor, ops)
    launch_wait_s = max(0.0, p.kernels - batch_s) if die_tokens > p.captured else 0.0
    ops[_GAPS] += launch_wait_s
    return batch_s + launch_wait_s


@kernel
def _moe_layers_s(
    p: PrefillCosts, new_tokens: float, die_tokens: float, die_pairs: float, hot_tokens: np.ndarray,
    hot_factor: np.ndarray, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds, also added to ops f8[operators], of the layers with experts, in sequence or of two
    microbatches. Arguments: as of `prefill_batch_s`."""
    is_halved = p.microbatch > 0.0
    layers = p.moe_layers
    passes = layers * (2.0 if is_halved else 1.0)
    batch_share = 0.5 if is_halved else 1.0
    tokens = batch_share * new_tokens
    busiest_tokens = batch_share * die_tokens
    hot_load, link_load = layer.die_and_link_load(p.layout, tokens, hot_tokens, hot_factor)
    compute_passes = passes / p.compute_share if is_halved else passes
    before_s = _add_attention(
        p, compute_passes, tokens, busiest_tokens, batch_share * die_pairs, ops
    )
    gate_s = layer.collective_s(p.gate, busiest_tokens) * compute_passes
    experts_s = _experts_s(p, tokens, hot_load) * compute_passes
    before_s += gate_s
    mean_rows = layer.routed_rows(p.layout, tokens)
    hot_rows, link_rows = mean_rows * hot_load, mean_rows * link_load
    dispatch_s = _transfer_s(p.dispatch, busiest_tokens, hot_rows, link_rows) * passes
    combine_s = _transfer_s(p.combine, busiest_tokens, hot_rows, link_rows) * passes
    computing_s = before_s + experts_s
    ops[_GATE] += gate_s
    ops[_EXPERTS] += experts_s
    exposed_s = dispatch_s + combine_s
    if is_halved:
        layer_s = _overlapped_layer_s(p, before_s / passes, dispatch_s / passes, experts_s / passes,
                              combine_s / passes, busiest_tokens, hot_rows)  # fmt: skip
        exposed_s = max(0.0, layer_s * layers - computing_s)  # rounding must not make it negative
    ops[_DISPATCH] += exposed_s * dispatch_s / (dispatch_s + combine_s)
    ops[_COMBINE] += exposed_s * combine_s / (dispatch_s + combine_s)
    return computing_s + exposed_s


@kernel
def _overlapped_layer_s(
    p: PrefillCosts, before_s: float, dispatch_s: float, experts_s: float, combine_s: float,
    die_tokens: float, rows: float,
) -> float:  # fmt: skip
    """Seconds of a layer of two microbatches that overlap. before_s, dispatch_s, experts_s,
    combine_s: stages of one microbatch, of `die_tokens` and `rows`, on the cores that transfers
    leave. Rows are ordered and gathered in the computing stream (`routing`), or at the same time by
    vector cores: then this work delays both streams equally."""
    message_s = p.dispatch.message * die_tokens
    order_s = p.dispatch.order * rows
    gather_s = p.combine.message * die_tokens
    restore_s = p.combine.order * rows
    if p.routing > 0.0:
        slowdown = 1.0 / p.compute_share
        return pipeline(
            before_s + slowdown * (message_s + gather_s),
            dispatch_s - (message_s + order_s),
            experts_s + slowdown * (order_s + restore_s),
            combine_s - (gather_s + restore_s),
        ).period
    return pipeline(
        before_s + message_s + gather_s,
        dispatch_s + message_s + order_s,
        experts_s + order_s + restore_s,
        combine_s + gather_s + restore_s,
    ).period


@kernel
def prefill_hits_s(p: PrefillCosts, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds, also added to ops f8[operators], that `hit_tokens` cached prompt tokens add to a
    batch. A die has read their latents, or gathered them from dies that split prompts, and projects
    them up to keys and values of its heads like computed ones: attention does not absorb."""
    layers = p.moe_layers + p.dense_layers
    projection_s = p.core.hit * hit_tokens * layers
    gather_s = p.context.token * hit_tokens / p.layout.dies * layers
    ops[int(p.before[0].place)] += projection_s
    ops[_GATHER] += gather_s
    return projection_s + gather_s


@kernel
def next_piece(first: float, evening: float, token_s: float, pair_s: float, held: float) -> float:
    """Tokens of a prompt's next piece after `held` tokens, if its first piece has `first` tokens.
    evening: 0: as many tokens; 1: as many as take the same time; in between, a mixture. token_s,
    pair_s: seconds per token and per query-key pair."""
    if evening <= 0.0 or pair_s <= 0.0:
        return first
    first_piece_s = first * (token_s + 0.5 * pair_s * first)
    next_token_s = token_s + pair_s * held
    root_s = math.sqrt(next_token_s * next_token_s + 2.0 * pair_s * first_piece_s)
    equal_time_tokens = (root_s - next_token_s) / pair_s
    return max(SHORTEST * first, first - evening * (first - equal_time_tokens))


@kernel
def layerwise_s(p: PrefillCosts, read_s: float, compute_s: float) -> float:
    """Seconds of a batch that reads each layer's cached KV while it computes earlier layers: the
    longer of read_s and compute_s, plus one layer's part of the other."""
    layers = p.moe_layers + p.dense_layers
    return max(compute_s + read_s / layers, read_s + compute_s / layers)


@kernel
def prefill_hbm_bytes(p: PrefillCosts, new_tokens: float) -> float:
    """HBM bytes that all dies move for a batch: used weights, once, and activations."""
    layout = p.layout
    used_experts = layer.used_experts(layout.slots, layer.routed_rows(layout, new_tokens))
    shared_dies = layout.shared_dies if layout.shared_dies > 0.0 else layout.dies
    shared_copies = layout.shared_experts * shared_dies
    read_slots = layout.routed_dies * used_experts + shared_copies
    weight_bytes = layout.dies * p.demand.weight_bytes + read_slots * p.demand.expert_bytes
    weight_bytes += shared_copies * p.demand.shared_more_bytes
    return weight_bytes + new_tokens * p.demand.token_bytes


@kernel
def prefill_flops(p: PrefillCosts, new_tokens: float, pairs: float) -> float:
    """FLOPs that all dies of an instance compute for a batch; pairs: query-key pairs of it."""
    return new_tokens * p.demand.token_flops + layer.prompt_core_flops(p.core, new_tokens, pairs)


def hbm_share_of_prefill(prefill: Machine, decode: Machine) -> float:
    """Share of the sustained HBM bandwidth for prefill while decode on its dies draws its maximum:
    what prefill's cores draw, in proportion where both together exceed the bandwidth."""
    return prefill.drawn_share(1.0) / max(1.0, prefill.drawn_share(1.0) + decode.drawn_share(1.0))


def hbm_share_of_decode(p: PrefillCosts, tokens: float, machine: Machine) -> float:
    """Share of the sustained HBM bandwidth that prefill `p` leaves to decode: its batch of `tokens`
    moves its bytes in the batch's time. Query-key pairs take time and move few bytes, so they are
    left out: with them decode has more."""
    even_load, dies = np.ones(1), p.layout.dies
    batch_time_s = prefill_batch_s(
        p, tokens, tokens / dies, 0.0, even_load, even_load, np.zeros(len(PREFILL_OPERATORS))
    )
    sustained_bytes_per_s = machine.chip.hbm_bytes_per_s * machine.gemm_bandwidth_utilisation * dies
    return 1.0 - prefill_hbm_bytes(p, tokens) / (batch_time_s * sustained_bytes_per_s)
