"""One decode iteration: every layer and what is outside of the layers, on the slowest rank. As in
arXiv 2506.12708v2 section 4.2: all operators in sequence on all cores, or two microbatches that
alternate between an attention and an MoE stream, each on a share of the cores, which reads the
weights again. A pass verifies 1 + drafts tokens of every request; each draft that takes a pass is
one more of the drafter's layer (the model's MTP module, or a dense one) and one more graph."""

import numpy as np

from twin.kernels.compiled import kernel
from twin.metrics.operators import DECODE_OPERATORS
from twin.model import layer
from twin.model.coefficients import DecodeCosts, LayerCosts
from twin.model.layer import PassLoad
from twin.model.roofline import roofline_s
from twin.model.schedule import ring_s, stage_seconds, two_microbatches_s

_CORE, _AWAY, _GATE, _DISPATCH, _EXPERTS, _COMBINE, _DENSE, _MTP, _HEAD, _SAMPLING, _GAPS = map(
    DECODE_OPERATORS.index,
    ("attention_core", "offloaded_core", "gate", "dispatch", "experts", "combine", "dense_ffn",
     "mtp", "lm_head", "sampling", "launch_gaps"),
)  # fmt: skip
_HOST = DECODE_OPERATORS.index("kv_swap")


@kernel
def add_attention(m: LayerCosts, times: float, load: PassLoad, ops: np.ndarray) -> float:
    """Add seconds of `times` passes through attention to ops f8[operators]; returns their sum."""
    attention_s = layer.collective_s(m.gather, load.tokens) * times
    ops[int(m.before[0].place)] += attention_s
    for index in range(len(m.before)):
        product_s = layer.product_s(m.before[index], load.tokens) * times
        ops[int(m.before[index].place)] += product_s
        attention_s += product_s
    own_core_s = layer.local_core_s(m.core, load.tokens, load.context)
    core_s = (m.core.fixed + own_core_s) * times
    core_s += layer.collective_s(m.context, load.tokens) * times
    fetch_s = layer.fetch_wait_s(m.core, load.tokens, load.context) * times
    ops[_HOST] += fetch_s
    ops[_CORE] += core_s - fetch_s
    attention_s += core_s
    away_wait_s = (layer.core_s(m.core, load.tokens, load.context) - own_core_s) * times
    ops[_AWAY] += away_wait_s
    attention_s += away_wait_s
    for index in range(len(m.after)):
        product_s = layer.product_s(m.after[index], load.tokens) * times
        ops[int(m.after[index].place)] += product_s
        attention_s += product_s
    scatter_s = layer.collective_s(m.scatter, load.tokens) * times
    ops[int(m.after[0].place)] += scatter_s
    return attention_s + scatter_s


@kernel
def _add_moe(
    p: DecodeCosts, m: LayerCosts, times: float, load: PassLoad, sends: bool, ops: np.ndarray
) -> float:
    """Add to ops f8[operators] the seconds of gate and experts in `times` passes through an MoE
    layer and, if `sends`, those of dispatch and combine; returns their sum."""
    gate_s, dispatch_s, experts_s, combine_s = layer.moe_stages_s(p, m, load)
    ops[_GATE] += gate_s * times
    ops[_EXPERTS] += experts_s * times
    moe_s = (gate_s + experts_s) * times
    if sends:
        ops[_DISPATCH] += dispatch_s * times
        ops[_COMBINE] += combine_s * times
        moe_s += (dispatch_s + combine_s) * times
    return moe_s


@kernel
def after_layers_s(
    p: DecodeCosts, requests: float, context: float, total: float, dies: float, hot: float,
    wire: float, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds of an iteration after the layers (drafts, LM heads, sampling), also added to ops
    f8[operators]. The first drafting pass covers all verified positions, later ones one token per
    request. requests, context: requests and context tokens of the busiest rank; total: requests of
    all ranks; hot, wire: load of the hottest die and of the fullest link, divided by the mean."""
    query_tokens, draft_passes, drafter = p.query_tokens, p.passes, p.drafter
    mtp_s = 0.0
    head_s = roofline_s(p.head.flop * query_tokens * requests, p.head.weight) + p.head.fixed
    head_s += layer.collective_s(p.logits, query_tokens * requests)
    sampled_tokens = query_tokens * requests
    for pass_index in range(int(draft_passes)):
        positions = query_tokens if pass_index == 0 else 1.0
        pass_tokens = positions * requests
        input_product, core = (p.mtp, drafter.core) if pass_index == 0 else (p.later, p.later_core)
        mtp_s += input_product.fixed + input_product.vector * pass_tokens
        mtp_s += roofline_s(input_product.flop * pass_tokens, input_product.weight)
        mtp_s += layer.attention_s(drafter, pass_tokens, layer.core_s(core, pass_tokens, context))
        if p.modules > 0.0:
            die_tokens = pass_tokens / p.layout.rank_dies
            load = PassLoad(pass_tokens, context, die_tokens, positions * total, dies, hot, wire)
            mtp_s += layer.moe_s(p, drafter, load)
        else:
            mtp_s += layer.product_s(p.draft_dense, pass_tokens)
        head_s += roofline_s(p.draft_head.flop * requests, p.draft_head.weight) + p.draft_head.fixed
        head_s += layer.collective_s(p.logits, p.draft_share * requests)
        sampled_tokens += p.draft_share * requests
    sampling_s = p.sampling.fixed * (1.0 + draft_passes) + p.sampling.token * sampled_tokens
    ops[_MTP] += mtp_s
    ops[_HEAD] += head_s
    ops[_SAMPLING] += sampling_s
    return mtp_s + head_s + sampling_s


@kernel
def launch_gap_s(
    p: DecodeCosts, busy: float, total: float, tokens: float, has_prompts: bool, ops: np.ndarray
) -> float:
    """Seconds, also added to ops f8[operators], that the host adds to an iteration in which the NPU
    is `busy` seconds: the gap between iterations, and the time beyond the NPU's that it takes to
    launch 1 + k graphs and to output tokens of `total` requests, since the host works while a graph
    runs (arXiv 2506.12708v2 section 4.2.4). An engine that must know all lengths before it starts a
    graph adds that time for each graph, and one that does not work ahead the time for each request.
    A pass with more `tokens` per rank than the largest captured one (`has_prompts`: one with
    prompts) is launched kernel by kernel."""
    host = p.host
    host_s = host.launch * (1.0 + p.passes) + host.answer * total + host.sync
    is_captured, kernels_s = host.captured <= 0.0 or tokens <= host.captured, host.kernels
    if has_prompts:
        is_captured, kernels_s = tokens <= host.captured_prompts, host.kernels + host.prompts
    host_s += host.alongside if is_captured else max(host.alongside, kernels_s)
    gap_s = host.gap + host.apart * total + host.replay * (1.0 + min(p.passes, host.drafting))
    gap_s += host.before_prompts if has_prompts else 0.0
    gap_s += max(0.0, host_s - busy)
    ops[_GAPS] += gap_s
    return gap_s


@kernel
def layers_in_sequence_s(p: DecodeCosts, layers: float, load: PassLoad, ops: np.ndarray) -> float:
    """Seconds, also added to ops f8[operators], of `layers` MoE layers, operators in sequence."""
    attention_s = add_attention(p.sequence, layers, load, ops)
    return attention_s + _add_moe(p, p.sequence, layers, load, True, ops)


@kernel
def best_split(p: DecodeCosts, load: PassLoad) -> tuple[int, float]:
    """(index of the split of cores whose longer stream is shortest, seconds of a layer with it).
    load: of one microbatch. Cores adjust to the load (arXiv 2506.12708v2 section 4.2.3)."""
    low_index, high_index = 0, int(p.ways) - 1
    while low_index < high_index:  # more cores for attention: its stream shortens, the other grows
        middle_index = (low_index + high_index) // 2
        attention_s, moe_s = layer.layer_s(p, p.splits[middle_index], load)
        if attention_s >= moe_s:
            low_index = middle_index + 1
        else:
            high_index = middle_index
    split_s = two_microbatches_s(p, stage_seconds(p, p.splits[low_index], load))
    if low_index > 0:
        lower_split_s = two_microbatches_s(p, stage_seconds(p, p.splits[low_index - 1], load))
        if lower_split_s < split_s:
            return low_index - 1, lower_split_s
    return low_index, split_s


@kernel
def _add_two_microbatches(
    p: DecodeCosts, m: LayerCosts, layers: float, load: PassLoad, ops: np.ndarray
) -> float:
    """Add the seconds of `layers` MoE layers with two microbatches to ops f8[operators]; returns
    their sum. On split cores only the longer stream counts; otherwise all computing, and the part
    of the exchange that it does not hide."""
    if p.layout.expert_dies > 0.0:
        return _add_ring(p, m, layers, load, 2.0, ops)
    stage_s = stage_seconds(p, m, load)
    layer_passes = 2.0 * layers
    if p.hides > 0.0:
        attention_s = add_attention(m, layer_passes, load, ops)
        attention_s += _add_moe(p, m, layer_passes, load, False, ops)
        # Rounding must not make it negative.
        exposed_s = max(0.0, two_microbatches_s(p, stage_s) * layers - attention_s)
        ops[_DISPATCH] += exposed_s * stage_s.dispatch / (stage_s.dispatch + stage_s.combine)
        ops[_COMBINE] += exposed_s * stage_s.combine / (stage_s.dispatch + stage_s.combine)
        return attention_s + exposed_s
    if stage_s.attention >= stage_s.gate + stage_s.dispatch + stage_s.experts + stage_s.combine:
        return add_attention(m, layer_passes, load, ops)
    return _add_moe(p, m, layer_passes, load, True, ops)


@kernel
def _add_ring(
    p: DecodeCosts, m: LayerCosts, layers: float, load: PassLoad, many: float, ops: np.ndarray
) -> float:
    """Add to ops f8[operators] the seconds of `layers` in which `many` microbatches circulate
    between attention and expert dies; returns their sum. A stage counts by its share of a round."""
    stage_s = stage_seconds(p, m, load)
    layers_s = ring_s(stage_s, many) * layers
    rounds = layers_s / (
        stage_s.attention + stage_s.gate + stage_s.dispatch + stage_s.experts + stage_s.combine
    )
    attention_s = add_attention(m, rounds, load, ops)
    ops[_GATE] += stage_s.gate * rounds
    ops[_DISPATCH] += stage_s.dispatch * rounds
    ops[_EXPERTS] += stage_s.experts * rounds
    ops[_COMBINE] += stage_s.combine * rounds
    moe_round_s = stage_s.gate + stage_s.dispatch + stage_s.experts + stage_s.combine
    return attention_s + moe_round_s * rounds


@kernel
def decode_iteration_s(
    p: DecodeCosts, requests: np.ndarray, context: np.ndarray, first: int, count: int,
    hot_tokens: np.ndarray, hot_factor: np.ndarray, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds of one decode iteration of the instance on ranks first..first + count - 1.

    requests i8[R]: running requests of each rank; context f8[R]: sum of their context tokens;
    hot_tokens f8[G], hot_factor f8[G]: load of the hottest die divided by the mean, by tokens that
    enter an MoE layer at once; with hot_factor f8[2 G] the hottest node's follows. ops
    f8[len(DECODE_OPERATORS)]: the seconds of each operator on the critical path are added to it;
    their sum is the result."""
    slow_rank, most_requests, all_requests = layer.rank_loads(p, requests, context, first, count)
    if all_requests == 0:
        return 0.0
    query = p.query_tokens
    groups = layer.pipeline_groups(p, all_requests)
    pass_share = layer.share_in_pass(requests[slow_rank], groups, count)
    rank_requests = p.concentration * (pass_share * requests[slow_rank])
    rank_context = p.concentration * (pass_share * context[slow_rank])
    fullest_requests = layer.share_in_pass(most_requests, groups, count) * most_requests
    group_size = all_requests / groups  # requests of a group
    moe_tokens = query * group_size
    hot_load, link_load = layer.die_and_link_load(p.layout, moe_tokens, hot_tokens, hot_factor)
    fullest_rank_tokens = query * (p.concentration * fullest_requests)
    load = PassLoad(
        query * rank_requests, rank_context, fullest_rank_tokens / p.layout.rank_dies, moe_tokens,
        count * p.layout.rank_dies, hot_load, link_load,
    )  # fmt: skip
    dense_s = dense_layers_s(p, load, ops)
    after_s = after_layers_s(
        p, rank_requests, rank_context, group_size, load.dies, hot_load, link_load, ops
    )
    moe_layers, domain_count, moe_s = p.moe_layers, p.layout.domains, -1.0
    if p.microbatch > 0.0:
        tokens = 0.5 * moe_tokens / domain_count
        hot_load, link_load = layer.die_and_link_load(p.layout, tokens, hot_tokens, hot_factor)
        half_load = half_pass(load, domain_count, hot_load, link_load)
        split_index, split_s = best_split(p, half_load)
        attention_s, moe_layer_s = layer.layer_s(p, p.sequence, load)
        if split_s < attention_s + moe_layer_s or p.microbatch == 1.0:
            moe_s = _add_two_microbatches(p, p.splits[split_index], moe_layers, half_load, ops)
    if moe_s < 0.0 and domain_count > 1.0:
        tokens = moe_tokens / domain_count
        hot_load, link_load = layer.die_and_link_load(p.layout, tokens, hot_tokens, hot_factor)
        ring_load = PassLoad(
            load.tokens, load.context, load.busiest, tokens, load.dies, hot_load, link_load
        )
        moe_s = _add_ring(p, p.sequence, moe_layers, ring_load, 1.0, ops)
    elif moe_s < 0.0:
        moe_s = layers_in_sequence_s(p, moe_layers, load, ops)
    dense_s, moe_s = layer.add_host_waits(p, dense_s, moe_s, load.context, ops)
    busy_s = dense_s + after_s + moe_s
    gap_s = launch_gap_s(p, busy_s, group_size, fullest_rank_tokens, False, ops)
    pipeline_s = layer.pipeline_extra_s(p, dense_s, moe_s, after_s, gap_s, groups, load.tokens, ops)
    return busy_s + gap_s + pipeline_s


@kernel
def half_pass(load: PassLoad, domains: float, hot: float, wire: float) -> PassLoad:
    """Load of one of two microbatches of a pass, sent by one of `domains` domains of attention
    dies. hot, wire: load of the hottest die and of the fullest link, divided by the mean."""
    return PassLoad(
        0.5 * load.tokens, 0.5 * load.context, 0.5 * load.busiest, 0.5 * load.total / domains,
        load.dies, hot, wire,
    )  # fmt: skip


@kernel
def dense_layers_s(p: DecodeCosts, load: PassLoad, ops: np.ndarray) -> float:
    """Seconds, also added to ops f8[operators], of the layers with a dense FFN, in sequence."""
    attention_s = add_attention(p.sequence, p.dense_layers, load, ops)
    ffn_s = p.dense_layers * layer.dense_s(p, load.tokens)
    ops[_DENSE] += ffn_s
    return attention_s + ffn_s


@kernel
def decode_hbm_bytes(p: DecodeCosts, requests: float, context: float, ranks: float) -> float:
    """HBM bytes (weights, KV) that all dies of an instance with `ranks` move in one iteration.
    requests, context: requests of all ranks and their context tokens. Weights count once for each
    group of requests in a pipeline stage of its own; weights of unused experts do not count."""
    demand, layout = p.demand, p.layout
    layers = p.moe_layers + p.dense_layers + p.modules
    draft_passes = p.passes - p.modules  # of a drafter that is no part of the model
    dies = ranks * layout.rank_dies
    die_bytes = demand.attention_bytes * layers + demand.dense_bytes * p.dense_layers
    die_bytes += demand.head_bytes * (1.0 + p.modules)
    first_pass_bytes = demand.draft_first_bytes * min(draft_passes, 1.0)
    die_bytes += demand.draft_bytes * draft_passes + first_pass_bytes
    groups = layer.pipeline_groups(p, requests)
    routed_rows = layer.routed_rows(layout, p.query_tokens * requests / groups)
    read_slots = layout.routed_dies * layer.used_experts_by_class(layout, layout.slots, routed_rows)
    holding_dies = layout.expert_dies if layout.expert_dies > 0.0 else dies
    shared_dies = layout.shared_dies if layout.shared_dies > 0.0 else holding_dies
    shared_copies = layout.shared_experts * shared_dies
    read_slots += shared_copies
    routed_bytes = demand.expert_bytes * (p.moe_layers + p.modules) * read_slots
    routed_bytes += demand.shared_more_bytes * (p.moe_layers + p.modules) * shared_copies
    weight_bytes = groups * (die_bytes * dies / p.concentration + routed_bytes)
    core, query_tokens = p.sequence.core, p.query_tokens * requests
    read_tokens = layer.attended_tokens(core.reach, query_tokens, context)
    window_tokens = layer.attended_tokens(core.window, query_tokens, context)
    kv_bytes = read_tokens * demand.context_bytes + context * demand.index_bytes
    kv_bytes += window_tokens * demand.windowed_bytes + query_tokens * demand.state_bytes
    draft_kv_bytes = context * demand.draft_context_bytes * draft_passes
    return weight_bytes + layout.rank_dies * kv_bytes * layers + layout.rank_dies * draft_kv_bytes


@kernel
def decode_flops(p: DecodeCosts, requests: float, context: float) -> float:
    """FLOPs that all dies of an instance compute in one iteration. requests, context: requests of
    all ranks and their context tokens. Every layer, the LM head and the first drafting pass compute
    all verified positions, later passes one per request; each drafting pass adds the LM head for
    one token of each request."""
    demand, query, passes = p.demand, p.query_tokens, p.passes
    layers = p.moe_layers + p.dense_layers
    rank_dies = p.layout.rank_dies  # each computes as follows, and a part of the experts' products
    experts_used = p.layout.top_k + p.layout.shared_experts
    moe_flops = demand.expert_flops * experts_used * p.layout.split / rank_dies
    token_flops = demand.attention_flops * layers + demand.dense_flops * p.dense_layers
    token_flops += moe_flops * p.moe_layers + demand.head_flops
    draft_positions = query + passes - 1.0 if passes > 0.0 else 0.0  # in the layer that drafts
    mtp_positions = draft_positions if p.modules > 0.0 else 0.0
    draft_flops = mtp_positions * (demand.attention_flops + moe_flops + demand.mtp_flops)
    draft_flops += p.modules * demand.head_flops
    drafter_positions = draft_positions - mtp_positions
    drafter_flops = drafter_positions * demand.draft_flops
    draft_flops += drafter_flops + min(drafter_positions, query) * demand.draft_first_flops
    draft_flops += (passes - p.modules) * demand.draft_head_flops
    read_tokens = layer.attended_tokens(p.sequence.core.reach, query * requests, context)
    window_tokens = layer.attended_tokens(p.sequence.core.window, query * requests, context)
    pair_flops = read_tokens * demand.context_flops + context * demand.index_flops
    pair_flops += window_tokens * demand.windowed_flops
    pair_flops *= query * layers + mtp_positions
    pair_flops += context * demand.draft_context_flops * drafter_positions
    return rank_dies * (requests * (query * token_flops + draft_flops) + pair_flops)
