"""The coefficients of a decode or a colocated instance, from operators, machine and network. This
module does not know who sits where (costs.py), nor how a layer is composed (layer.py)."""

from dataclasses import replace

from twin.model import coefficients as c
from twin.model import operators as o
from twin.model.collectives import (
    MoeTraffic,
    adding_bytes_per_s,
    half_all_reduce,
    launch_and_round_s,
)
from twin.model.formats import ACTIVATION_BYTES, FORMATS
from twin.model.offload import core_message_bytes
from twin.model.parallel import Where, stage_of
from twin.model.prompts import mixed_core_coefficients, uses_sparse_kernel
from twin.model.record import scale_computed
from twin.model.roofline import max_of_normals
from twin.model.setting import WHOLE, Cores, Setting
from twin.model.switches import switch_decode, switch_mode


def decode_costs(
    x: Setting, drafts: int, microbatch: str, colocated: bool = False
) -> c.DecodeCosts:
    """Coefficients of a decode instance with `drafts` tokens per iteration. microbatch: "off", "on"
    or "auto". Unless cores are split, one microbatch computes while the other is sent."""
    core_splits = [] if colocated else x.core_splits
    shape, query_tokens = x.shape, 1 + drafts
    takes_turns = not core_splits or x.expert_dies > 0
    split_costs = [
        _layer_coefficients(x, query_tokens, *cores, in_turn=takes_turns)
        for cores in core_splits or [(WHOLE, WHOLE)]
    ]
    dense_work, head_work = o.dense_ffn(shape, x.formats), o.lm_head(shape)
    costs = c.DecodeCosts(
        sequence=_wait_for_slowest(
            _layer_coefficients(x, query_tokens, WHOLE, WHOLE, in_sequence=True), x
        ),
        splits=(*split_costs, *(c.LayerCosts(),) * (c.SPLITS - len(split_costs))),
        dense=x.product(dense_work, 3),
        head=x.product(head_work, 1),
        logits=_logits_collective(x),
        # As measured per logit, or by the bytes that its kernels move after the graph.
        sampling=c.Sampling(
            4 * x.gap_s,
            x.machine.sampling_logit_s * x.whole.vocabulary or x.work_s(o.sampling(x.whole))[3],
        ),
        host=_host_costs(x),
        pipeline=_pipeline_costs(x),
        layout=layout_coefficients(x),
        demand=_demand(x, query_tokens, dense_work, head_work),
        ways=float(len(split_costs)),
        hides=float(not core_splits),
        microbatch={"off": 0.0, "on": 1.0, "auto": 2.0}[microbatch] * x.sends_to_experts,
        query_tokens=float(query_tokens),
        drafts=float(drafts),
        passes=float(x.drafter.passes),
        modules=float(x.drafter.passes if x.drafter.module else 0),
        moe_layers=float(shape.moe_layers),
        dense_layers=float(shape.dense_layers),
        buffer_tokens=float(x.communication.buffer_tokens_per_die),
        concentration=x.concentration,
    )
    return _add_drafter(switch_decode(costs, x), x, query_tokens)


def _add_drafter(costs: c.DecodeCosts, x: Setting, query: int) -> c.DecodeCosts:
    """The costs with the coefficients of the layer that drafts: the MTP module, or a drafter's own
    layer. query: tokens of a request that an iteration verifies."""
    if (draft_setting := x.drafter_setting) is None:
        start_product = x.product(o.mtp_projection(x.shape, x.formats), 3)
        return replace(
            costs, drafter=_without_host_kv(costs.sequence), mtp=start_product, later=start_product,
            later_core=_later_pass_core(x, x), draft_head=costs.head, draft_share=1.0,
        )  # fmt: skip
    shape, f, extra_weights = draft_setting.shape, draft_setting.formats, x.drafter.wider_weights
    first_operator, *_ = o.operators_outside_core("decode", "before")
    prolog = draft_setting.product(
        o.with_further_inputs(first_operator.work(shape, f), shape, f, extra_weights),
        first_operator.launches,
        name=first_operator.name,
    )
    draft_costs = _attention_coefficients(draft_setting, query, WHOLE)
    draft_costs = replace(draft_costs, before=(prolog, *draft_costs.before[1:]))
    join_work, dense_work = o.joining_product(shape, f, x.drafter.joined), o.dense_ffn(shape, f)
    head_work = o.lm_head(shape)
    drafter_works = [operator.work(shape, f) for operator in o.operators_outside_core("decode")]
    drafter_works.append(dense_work)
    further_flops = 2.0 * extra_weights
    demand = replace(
        costs.demand,
        draft_bytes=x.drafter.weight_bytes - join_work.weight_bytes,
        draft_first_bytes=join_work.weight_bytes,
        draft_context_bytes=shape.kv_bytes_per_token_layer(f.kv) / x.pool.own.cp_dies,
        draft_flops=sum(work.flops_per_token for work in drafter_works) + further_flops,
        draft_first_flops=join_work.flops_per_token,
        draft_context_flops=shape.decode_core_flops,
        draft_head_flops=head_work.flops_per_token,
    )
    return replace(
        costs,
        drafter=_wait_for_slowest(draft_costs, x),
        later_core=_later_pass_core(draft_setting, x),
        mtp=draft_setting.product(join_work, 1),
        draft_dense=draft_setting.product(dense_work, 3),
        draft_head=draft_setting.product(head_work, 1),
        draft_share=shape.vocabulary / x.shape.vocabulary,
        demand=demand,
    )


def _without_host_kv(mode: c.LayerCosts) -> c.LayerCosts:
    """Coefficients of a layer with all its KV on the die, as for the layer that drafts."""
    return replace(mode, core=replace(mode.core, ahead=0.0, fetch=0.0, fetch_start=0.0))


def _later_pass_core(drafter_setting: Setting, x: Setting) -> c.DecodeCore:
    """Attention core of drafting passes after the first, without selection: they attend to the
    tokens that the first pass selected. drafter_setting: setting of the layer that drafts."""
    draft_costs = c.LayerCosts(core=_core_coefficients(drafter_setting, 1, WHOLE))
    return replace(_without_host_kv(_wait_for_slowest(draft_costs, x)).core, select=0.0)


def _host_costs(x: Setting) -> c.Host:
    """Host coefficients, by facts of the serving stack or the chip family. Every die is a rank with
    its own host process, and a graph's first exchange waits for the last of them."""
    machine, layer_count, rank_count = x.machine, x.shape.layers, x.waiting_dies
    draft_layers = x.drafter.passes if machine.kernel_launch_s else 0  # one a pass
    sync_s = machine.rank_sync_s * (rank_count - 1)
    stage_count = x.pool.own.pp_stages  # a graph each
    stage_gap_s = machine.stage_gap_s if stage_count > 1 else 0.0
    return c.Host(
        launch=stage_count * machine.graph_launch_s,
        gap=machine.host_gap_s + (1.0 - machine.works_ahead) * sync_s,
        answer=machine.works_ahead * machine.host_answer_s,
        apart=(1.0 - machine.works_ahead) * machine.host_answer_s,
        sync=machine.works_ahead * sync_s,
        replay=stage_count
        * (machine.replay_gap_s + machine.host_spread_s * max_of_normals(rank_count) + stage_gap_s),
        drafting=machine.draft_graphs,
        alongside=machine.layer_host_s * layer_count,
        kernels=x.launch_host_s(x.decode_kernels, x.shape.moe_layers, layer_count + draft_layers),
        prompts=machine.kernel_launch_s * machine.linear_prefill_kernels * x.shape.linear_layers,
        before_prompts=machine.prompt_gap_s,
        captured=machine.captured_tokens,
        captured_prompts=machine.captured_prompts,
    )


def _pipeline_costs(x: Setting) -> c.Pipeline:
    """Coefficients of pipeline stages. The last stage, with the LM head, has no more layers than
    others (vLLM and SGLang, get_pp_indices). `piece`: prompt tokens of a rank in a pass."""
    whole_shape, stage_count = x.whole, x.pool.own.pp_stages
    largest_stage, last_layers = stage_of(whole_shape, x.pool), whole_shape.layers // stage_count
    moe_layers, dense_layers = max(whole_shape.moe_layers, 1), max(whole_shape.dense_layers, 1)
    rank_tokens = x.pool.tokens_per_npu / x.machine.chip.dies_per_npu * x.pool.layer_dies
    return c.Pipeline(
        hop=x.hop,
        stages=float(stage_count),
        most_moe=largest_stage.moe_layers / moe_layers,
        most_dense=largest_stage.dense_layers / dense_layers,
        last_moe=min(last_layers, whole_shape.moe_layers) / moe_layers,
        last_dense=max(0, last_layers - whole_shape.moe_layers) / dense_layers,
        piece=rank_tokens if stage_count > 1 else 0.0,
    )


def colocated_costs(x: Setting, drafts: int, delay: int = 0) -> c.DecodeCosts:
    """Coefficients of a colocated instance: those of decode with operators in sequence, and what a
    piece of a prompt adds. delay: iterations that prompts wait until other ranks have one too.
    Prompts have passes of their own only with one rank or a delay; else other ranks decode."""
    has_prompt_passes = x.pool.layer_dies == x.exchange.peers or delay > 0
    ranks = x.layout.dies / x.pool.layer_dies
    cached_work = o.cached_up(x.shape, x.formats)
    up_projection_s = 0.0 if uses_sparse_kernel(x) else x.many_rows_s(cached_work)
    cached_token_s = up_projection_s * x.pool.layer_dies / x.layout.dies
    # Latents of cached tokens come from all dies first.
    if (context_group := x.groups.get("context")) is not None:
        kv_bytes = x.shape.cached_bytes_per_token(x.formats.kv) / x.shape.layers
        cached_token_s += kv_bytes * context_group.remote / context_group.rate_bytes_per_s / ranks
    chunk = c.Chunk(
        **mixed_core_coefficients(x),
        hit=cached_token_s * x.shape.layers,
        apart=x.machine.prompts_apart * has_prompt_passes,
        sums=_prompt_sum_collective(x),
    )
    return replace(decode_costs(x, drafts, "off", colocated=True), chunk=chunk)


def _prompt_sum_collective(x: Setting) -> c.Collective:
    """Coefficients of the two all-reduces that replace dispatch and combine in passes with prompts
    (`prompt_sums`): no rank is padded to the tokens of the fullest. Zeros: nothing is replaced."""
    if x.summing_network is None or x.is_one_rank or x.machine.prompt_sums <= 0.0:
        return c.Collective()
    traffic = x.traffic(x.optimisations.multi_stream, prompts=True)
    dispatch, combine = traffic.dispatch, traffic.combine
    s_per_token, fixed_s = dispatch.token + combine.token, dispatch.fixed + combine.fixed
    return c.Collective(fixed_s, s_per_token, dispatch.beyond, 2.0 * dispatch.saved)


def layout_coefficients(x: Setting) -> c.Layout:
    """Numbers of experts and dies of an instance, as kernels read them."""
    return c.Layout(
        dies=float(x.layout.dies),
        top_k=float(x.shape.top_k),
        routed_dies=float(x.layout.routed_dies),
        slots=float(x.layout.slots_per_die),
        shared_experts=float(x.shape.shared_experts),
        shared_dies=float(x.layout.shared_dies),
        split=float(x.layout.split),
        expert_dies=float(x.expert_dies),
        domains=float(x.pool.own.domains),
        rank_dies=float(x.pool.layer_dies),
        context_dies=float(x.pool.own.cp_dies),
        ports=x.exchange.ports,
        classed=float(bool(x.layout.loads)),
        classes=tuple(c.Popular(class_load) for class_load in x.layout.loads) or c.Layout().classes,
    )


def _layer_coefficients(
    x: Setting, query_tokens: int, attention: Cores, moe: Cores, *, in_sequence: bool = False,
    in_turn: bool = False,
) -> c.LayerCosts:  # fmt: skip
    """Coefficients of a layer's operators with `query_tokens` tokens per request. attention, moe:
    cores of the two streams; in_sequence: one stream; in_turn: microbatches take turns on
    all cores."""
    traffic = x.traffic(x.optimisations.multi_stream, moe)
    gate, dispatch, experts, combine = moe_coefficients(x, traffic, moe)
    layer_costs = _attention_coefficients(x, query_tokens, attention)
    gather_collective = replace(layer_costs.gather, fixed=layer_costs.gather.fixed + _norms_s(x))
    prolog, *other_products = layer_costs.before
    prolog = replace(
        prolog, fixed=prolog.fixed + x.small_kernels_s, vector=prolog.vector + x.mixing_s[1]
    )
    layer_costs = replace(
        layer_costs,
        gather=gather_collective,
        before=(prolog, *other_products),
        gate=gate,
        dispatch=dispatch,
        experts=experts,
        combine=combine,
        in_turn=float(in_turn),
    )
    return switch_mode(layer_costs, x, attention, in_sequence)


def _attention_coefficients(x: Setting, query_tokens: int, cores: Cores) -> c.LayerCosts:
    """Coefficients of a layer's attention with `query_tokens` tokens per request. Hidden states are
    gathered on a rank's dies before it, partial sums reduced and scattered after it: an all-reduce
    in two halves, so that a die sends its own tokens to experts (vllm-ascend's sequence
    parallelism: profiled on DeepSeek-V3, TP8)."""
    return c.LayerCosts(
        gather=_collective_coefficients(x, "heads", "before", cores),
        before=x.products(o.operators_outside_core("decode", "before"), cores),
        core=_core_coefficients(x, query_tokens, cores),
        context=_collective_coefficients(x, "context", "core", cores),
        after=x.products(o.operators_outside_core("decode", "after"), cores),
        scatter=_collective_coefficients(x, "heads", "after", cores),
    )


def _collective_coefficients(x: Setting, name: str, where: Where, cores: Cores) -> c.Collective:
    """Coefficients, per token of a rank, of a parallelism's (`name`) collectives at a place of a
    layer (`where`), one after the other: each takes as long as half an all-reduce of its bytes."""
    if (group := x.groups.get(name)) is None:
        return c.Collective()
    collectives = x.collectives(name, where)
    moved_bytes = x.exchanged_bytes(name, where) * group.remote
    start_count = sum(collective.layers(x.shape) for collective in collectives)
    summed_bytes = sum(
        collective.added(x.model_split) * collective.layers(x.shape) for collective in collectives
    )
    added_bytes_per_s = x.machine.vector_bytes_per_s(cores.vector)
    if name == "heads":
        added_bytes_per_s = adding_bytes_per_s(x.machine, x.facts, cores.vector)
    coefficients = half_all_reduce(x.machine, x.facts, group).collective(moved_bytes, start_count)
    return replace(coefficients, token=coefficients.token + summed_bytes / added_bytes_per_s)


def _norms_s(x: Setting) -> float:
    """Extra seconds of a layer whose norms span all heads while the dies of a rank split the heads
    (NVIDIA only, otherwise 0): one more kernel sums squares, a small all-reduce adds the sums."""
    if (group := x.groups.get("heads")) is None or x.machine.family != "nvidia":
        return 0.0
    return x.shape.norm_sums * (x.gap_s + 2.0 * half_all_reduce(x.machine, x.facts, group).start_s)


def _logits_collective(x: Setting) -> c.Collective:
    """Coefficients of the collective of a rank's dies for logits before sampling and for embeddings
    before the first layer: each die has a part of the vocabulary."""
    if (group := x.groups.get("heads")) is None:
        return c.Collective()
    moved_bytes = ACTIVATION_BYTES * (x.whole.vocabulary + x.shape.hidden) * group.remote
    return half_all_reduce(x.machine, x.facts, group).collective(moved_bytes, 2.0)


def moe_coefficients(
    x: Setting, t: MoeTraffic, cores: Cores = WHOLE, rate: float = 1.0, operator: str = "grouped"
) -> tuple[c.Gate, c.Transfer, c.Experts, c.Transfer]:
    """(gate, dispatch, experts, combine) coefficients of an MoE layer on the `cores` of a stream.
    t: coefficients of dispatch and combine alone; rate: rate of the wire divided by that of writes;
    operator: of experts, "grouped" or "contiguous"."""
    shape, formats, m, operator = x.shape, x.formats, x.machine, x.experts_operator(operator)
    gate_weight_s, gate_flop_s, gate_io_s, _ = x.work_s(o.gate(shape, formats), cores)
    weight_s, flop_s, io_s, vector_s = x.work_s(o.expert(shape, formats), cores, operator)
    efficiency = m.product_efficiency(formats.expert, operator)
    if not x.communication.early_quantisation and FORMATS[formats.expert].computes != "bf16":
        vector_s += (ACTIVATION_BYTES + 1.0) * shape.hidden / m.vector_bytes_per_s(cores.vector)
    dispatch, combine = (
        replace(way, token=x.message_ratio * way.token / rate,
                row=way.row / rate, saved=way.saved / rate)
        for way in (t.dispatch, t.combine)
    )  # fmt: skip
    message_s = x.message_ratio * dispatch.message / m.copy_speed_share(cores.vector)
    dispatch = replace(dispatch, fixed=dispatch.fixed + t.host_s, message=message_s)
    return (
        c.Gate(
            fixed=2 * x.gap_s + gate_weight_s + x.choice_s(operator),
            token=max(gate_flop_s, gate_io_s) + m.gate_token_s / cores.vector,
            beyond=m.gate_beyond,
            saved=(m.gate_token_s - m.gate_many_s) / cores.vector if m.gate_beyond else 0.0,
        ),
        dispatch,
        c.Experts(
            fixed=efficiency.start_s + efficiency.each_s * x.layout.slots_per_die,
            weight=weight_s,
            shared=formats.shared_more_bytes
            * shape.expert_weights
            / m.stream_bytes_per_s(cores.cube, formats.expert, operator),
            flop=flop_s,
            io=io_s,
            vector=vector_s,
            tile_small=efficiency.tile_small,
            tile_large=efficiency.tile_large,
        ),
        combine,
    )


def _wait_for_slowest(layer_costs: c.LayerCosts, x: Setting) -> c.LayerCosts:
    """The layer's coefficients if every barrier of the exchange waits for the slowest die. (With
    two microbatches a die computes one while it waits for the other.)"""
    slowdown = x.machine.slowest_over_mean(x.waiting_dies)
    return replace(
        layer_costs,
        before=tuple(scale_computed(product, slowdown) for product in layer_costs.before),
        core=scale_computed(layer_costs.core, slowdown),
        after=tuple(scale_computed(product, slowdown) for product in layer_costs.after),
        gate=scale_computed(layer_costs.gate, slowdown),
        experts=scale_computed(layer_costs.experts, slowdown),
    )


def _core_coefficients(x: Setting, query: int, cores: Cores) -> c.DecodeCore:
    """Coefficients of the attention core on decode's cores, and of its part on prefill's dies."""
    shape, reach_tokens, cp_dies = x.shape, float(x.shape.reach), x.pool.own.cp_dies
    # A die has the heads of all that split the context, and its share of the tokens.
    all_heads_setting = (
        x if cp_dies == 1 else replace(x, shape=replace(shape, heads=shape.heads * cp_dies))
    )
    context_s = all_heads_setting.context_s(query, cores) / cp_dies * shape.mean_keys
    core = c.DecodeCore(
        fixed=x.core_start_s() + x.selecting_s,
        context=context_s,
        reach=reach_tokens / query,
        index=all_heads_setting.index_s(query, cores) / cp_dies,
        select=x.machine.selection_start_s * shape.index_share if shape.is_compressed else 0.0,
        windowed=shape.window_share * x.context_s(query, cores),
        window=shape.window / query,
        independent_cores=x.independent_cores * cores.cube,
        state=x.state_s(query, cores),
    )
    if (host := x.host) is not None:
        host_read_s = _host_kv_bytes(x, query)[0] / host.read_bytes_per_s(
            shape, x.formats.kv, x.facts
        )
        if shape.index_top_k:  # what is selected is known in the layer, not before
            fetch_start_s = (x.gap_s + host.latency_s) * shape.index_share
            core = replace(core, fetch=host_read_s, fetch_start=fetch_start_s)
        else:
            core = replace(core, ahead=host_read_s)
    if (offloaded := x.offload) is None or x.lender is None:
        return core
    launch_s, round_s = launch_and_round_s(x.machine, x.facts)
    out_bytes, back_bytes = core_message_bytes(x.shape, x.formats.kv)
    transfer_s = out_bytes / offloaded.out_bytes_per_s + back_bytes / offloaded.back_bytes_per_s
    lent_cores = Cores(offloaded.cores, offloaded.cores)
    lender_setting = replace(x, shape=x.whole)  # whose dies compute all heads of a request
    offloaded_s = lender_setting.context_s(query, lent_cores, x.lender)
    served_share = offloaded.served / x.pool.layer_dies
    return replace(
        core,
        context=(1.0 - offloaded.share) * context_s,
        away_start=2.0 * (launch_s + round_s) + offloaded.latency_s,  # each way has two ends
        away_token=offloaded.share * transfer_s,
        away_context=offloaded.share * served_share * offloaded_s,
    )


def _host_kv_bytes(x: Setting, query: float) -> tuple[float, float]:
    """(bytes that a die reads from host memory per context token attended to, mean layer; bytes
    that it writes there per new token, all layers). query: query tokens per request."""
    if (host := x.host) is None:
        return 0.0, 0.0
    read_share = (1.0 - (x.offload.share if x.offload else 0.0)) / x.pool.own.cp_dies
    kv_format = x.formats.kv
    read_bytes = read_share * host.read_bytes(x.shape, kv_format, query)
    return read_bytes, read_share * host.token_bytes(x.shape, kv_format)


def _demand(x: Setting, query: float, dense_work: o.Work, head_work: o.Work) -> c.Demand:
    """Bytes and FLOPs of an iteration, for figures of utilisation; query: tokens per request."""
    s, formats = x.shape, x.formats
    gate_work, expert_work = o.gate(s, formats), o.expert(s, formats)
    choice_flops = gate_work.flops_per_token / x.pool.layer_dies  # of a die's tokens
    choice_work = replace(gate_work, flops_per_token=choice_flops)
    works = [*(entry.work(s, formats) for entry in o.operators_outside_core("decode")), choice_work]
    context_dies = x.pool.own.cp_dies  # of a context: a die reads one
    core_bytes = s.core_bytes_per_token_layer(formats.kv)
    index_key_bytes = s.index_bytes_per_token_layer(formats.kv)
    cached_bytes = core_bytes * (query if s.index_top_k else 1.0)
    state_flops = s.linear_share * s.linear_kind.core_flops(s) if s.linear_layers else 0.0
    host_kv, (read_bytes, written_bytes) = x.host, _host_kv_bytes(x, query)
    return c.Demand(
        attention_bytes=sum(work.weight_bytes for work in works),
        expert_bytes=expert_work.weight_bytes,
        shared_more_bytes=formats.shared_more_bytes * s.expert_weights,
        dense_bytes=dense_work.weight_bytes,
        head_bytes=head_work.weight_bytes,
        context_bytes=cached_bytes * s.mean_keys / context_dies,
        windowed_bytes=cached_bytes * s.window_share,
        windowed_flops=s.decode_core_flops * s.window_share,
        index_bytes=(s.mean_keys * index_key_bytes + s.pool_keys * core_bytes) / context_dies,
        state_bytes=x.state_bytes(query),
        index_flops=s.mean_keys * s.index_flops / context_dies + s.pool_keys * s.decode_core_flops,
        attention_flops=sum(work.flops_per_token for work in works) + state_flops,
        context_flops=s.decode_core_flops * s.mean_keys,
        expert_flops=expert_work.flops_per_token,
        dense_flops=dense_work.flops_per_token,
        head_flops=head_work.flops_per_token,
        mtp_flops=o.mtp_projection(s, formats).flops_per_token,
        host_bytes=read_bytes,
        host_s=1.0 / host_kv.read_bytes_per_s(s, formats.kv, x.facts) if host_kv else 0.0,
        written_bytes=written_bytes,
        written_s=1.0 / host_kv.out_bytes_per_s if host_kv else 0.0,
    )
