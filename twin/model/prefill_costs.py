"""The coefficients of a prefill instance, from operators, machine and network. The counterpart of
decode_costs.py: attention in one of its parallel forms, then the MoE layer."""

from dataclasses import dataclass, replace

from twin.model import coefficients as c
from twin.model import operators as o
from twin.model.collectives import Exchange
from twin.model.decode_costs import layout_coefficients, moe_coefficients
from twin.model.formats import ACTIVATION_BYTES
from twin.model.prompts import pair_s, prompt_core_coefficients, uses_sparse_kernel
from twin.model.record import map_numbers
from twin.model.setting import Setting


@dataclass(frozen=True, slots=True)
class _Attention:
    """Effect of a parallel form of attention on its parts."""

    down_rows: float = 1.0  # tokens that a die computes latents of, per token of its own
    up_share: float = 1.0  # of the up-projections' weights that a die reads
    output_share: float = 1.0
    gather: c.Collective = c.Collective()
    exchange: c.Collective = c.Collective()


def prefill_costs(x: Setting, microbatch: bool) -> c.PrefillCosts:
    """Coefficients of a prefill instance; if a die has a part of the model, those of its share."""
    machine, s, f = x.machine, x.shape, x.formats
    split_dies, microbatch = float(x.split_dies), microbatch and x.sends_to_experts
    cp_dies = float(x.pool.own.cp_dies)
    attention = _Attention()
    if x.pool.own.attention == "tp":
        attention = _tensor_parallel_attention(x)
    elif x.pool.own.attention == "sp_tp_sp" and x.layout.dies > 1:
        attention = _staged_attention(x)
    down_work, up_work, out_work = o.prefill_down(s, f), o.prefill_up(s, f), o.prefill_output(s, f)
    lm_head = o.lm_head(s)
    gate, dispatch, experts, combine = _moe_coefficients(x)
    dense_weight_s, token_flop_s, token_io_s, token_vector_s = x.work_s(o.dense_ffn(s, f))
    moe_layers = s.moe_layers + x.drafter.module
    moe_passes = moe_layers * (2 if microbatch else 1)
    return c.PrefillCosts(
        before=(
            c.Product(
                fixed=4 * x.product_start_s + x.small_kernels_s,
                weight=x.work_s(down_work)[0] + x.work_s(up_work)[0] * attention.up_share,
                flop=attention.down_rows * x.many_rows_s(down_work)
                + split_dies * x.many_rows_s(up_work)
                + split_dies * (cp_dies - 1.0) * x.many_rows_s(o.cached_up(s, f))
                + split_dies * x.mixing_s[1],
                place=x.operator_index("attention_input"),
            ),
            *_products_outside_core(x, "before"),
        ),
        gather=attention.gather,
        context=_context_collective(x),
        core=_core_coefficients(x),
        exchange=attention.exchange,
        after=(
            c.Product(
                fixed=3 * x.product_start_s,
                weight=x.work_s(out_work)[0] * attention.output_share,
                flop=split_dies * x.many_rows_s(out_work),
                place=x.operator_index("o_proj"),
            ),
            *_products_outside_core(x, "after"),
        ),
        gate=gate,
        dispatch=dispatch,
        experts=experts,
        combine=combine,
        dense=c.Product(
            fixed=3 * x.product_start_s,
            weight=dense_weight_s,
            flop=split_dies * max(token_flop_s, token_io_s),  # of many rows: they overlap
            vector=split_dies * token_vector_s,
        ),
        drafter=_drafter_product(x),
        drafter_pair=pair_s(x.drafter_setting) if x.drafter_setting else 0.0,
        layout=layout_coefficients(x),
        hop=x.hop,
        demand=map_numbers(_demand(x, moe_layers, attention), lambda _, v: x.layer_ratio * v),
        head=lm_head.weight_bytes / machine.stream_bytes_per_s(fmt=lm_head.format) + 2 * x.gap_s,
        launch=machine.graph_launch_s
        + machine.prompt_gap_s
        + moe_passes * x.traffic(own_streams=False).host_s,
        kernels=x.launch_host_s(x.prefill_kernels, moe_passes, moe_passes + s.dense_layers),
        captured=machine.captured_prompts / x.head_dies,
        moe_layers=float(moe_layers),
        dense_layers=float(s.dense_layers),
        microbatch=float(microbatch),
        split_ffn=float(x.split_dies > 1),
        routing=machine.routing_in_stream,
        compute_share=machine.prefill_compute_share,
    )


def _core_coefficients(x: Setting) -> c.PrefillCore:
    """Coefficients of prefill's attention core, including the FLOPs of a drafter's own layer."""
    up_projection_s = x.many_rows_s(o.cached_up(x.shape, x.formats)) * x.pool.own.cp_dies
    core = c.PrefillCore(
        fixed=x.gap_s + x.selecting_s,
        **prompt_core_coefficients(x, x.layer_ratio * (x.shape.layers + x.drafter.module)),
        hit=0.0 if uses_sparse_kernel(x) else up_projection_s / x.layout.dies,
    )
    if x.drafter_setting is None:
        return core
    drafter_flops = x.layer_ratio * x.drafter_setting.shape.prefill_core_flops
    return replace(core, pair_flops=core.pair_flops + drafter_flops)


def _draft_works(x: Setting, draft_setting: Setting) -> list[o.Work]:
    """Work of each operator of a drafter's layer in prefill. draft_setting: of that layer."""
    shape, formats = draft_setting.shape, draft_setting.formats
    return [
        o.joining_product(shape, formats, x.drafter.joined),
        o.with_further_inputs(
            o.prefill_down(shape, formats), shape, formats, x.drafter.wider_weights
        ),
        o.prefill_output(shape, formats),
        o.dense_ffn(shape, formats),
    ]


def _drafter_product(x: Setting) -> c.Product:
    """Coefficients of a drafter's own layer without its core, per token of a die; 0: no layer."""
    if (drafter_setting := x.drafter_setting) is None:
        return c.Product()
    works = _draft_works(x, drafter_setting)
    return c.Product(
        fixed=11 * drafter_setting.product_start_s,
        weight=sum(drafter_setting.work_s(work)[0] for work in works),
        flop=sum(drafter_setting.many_rows_s(work) for work in works),
    )


def _products_outside_core(x: Setting, where: str) -> list[c.Product]:
    """Coefficients of prefill's operators, except projections, "before" or "after" the core."""
    return [
        c.Product(
            operator.launches * x.gap_s,
            x.work_s(work)[0],
            x.split_dies * x.many_rows_s(work),
            place=x.operator_index(operator.name),
        )
        for operator in o.operators_outside_core("prefill", where)
        for work in [operator.work(x.shape, x.formats)]
    ]


def _gather_s_per_byte(x: Exchange) -> float:
    """Seconds in which a die gathers one byte from each of the other dies of an exchange."""
    return (x.peers - 1) / x.rate_bytes_per_s


def _wire_bytes(x: Setting) -> float:
    """Bytes of an activation in attention's collectives: in the products' input format, or BF16."""
    return x.formats.activation_bytes if x.optimisations.flash_comm else ACTIVATION_BYTES


def _staged_attention(x: Setting) -> _Attention:
    """Effect of attention that is sequence-parallel before and after its core and split by heads in
    it: two collectives."""
    shape = x.shape
    latent_bytes = _wire_bytes(x) * (shape.q_lora + shape.kv_lora)
    latent_bytes += ACTIVATION_BYTES * shape.rope_dim
    token_s = latent_bytes * _gather_s_per_byte(x.gather) / x.layout.dies
    value_bytes = _wire_bytes(x) * shape.heads * shape.value_dim
    if not x.optimisations.layer_in_parallel:
        # Every die has a partial sum of the whole batch; each takes its tokens' sum.
        value_bytes = ACTIVATION_BYTES * shape.hidden * x.layout.dies
    start_s = x.gather.latency_s + x.gap_s
    return _Attention(
        up_share=1.0 / min(x.layout.dies, shape.heads),
        gather=c.Collective(start_s, token_s),
        exchange=c.Collective(start_s, value_bytes * (x.gather.remote / x.gather.rate_bytes_per_s)),
    )


def _tensor_parallel_attention(x: Setting) -> _Attention:
    """Effect of attention split by heads over the dies of a group, each of which has all its
    tokens. An all-reduce in two halves: hidden states are gathered before it, partial sums reduced
    and scattered after it. Latents are not split: each die projects all tokens down."""
    shape, group = x.shape, x.groups["heads"]
    s_per_byte = _gather_s_per_byte(group) / x.layout.dies
    sum_bytes = ACTIVATION_BYTES * shape.hidden * group.peers  # a die's sums for all of the group
    sum_s = sum_bytes * (group.remote / group.rate_bytes_per_s)
    sum_s += sum_bytes / x.machine.vector_bytes_per_s()
    start_s = group.latency_s + x.gap_s
    weight_share = x.split_dies / group.peers
    return _Attention(
        float(group.peers),
        weight_share,
        weight_share,
        c.Collective(start_s, _wire_bytes(x) * shape.hidden * s_per_byte),
        c.Collective(start_s, sum_s),
    )  # fmt: skip


def _context_collective(x: Setting) -> c.Collective:
    """Coefficients of the gather of the KV of all dies that split a prompt, per token of a die."""
    if (group := x.groups.get("context")) is None:
        return c.Collective()
    group_bytes = x.exchanged_bytes("context", "before")
    s_per_token = group_bytes * (group.remote / group.rate_bytes_per_s)
    return c.Collective(group.latency_s + x.gap_s, s_per_token)


def _moe_coefficients(x: Setting) -> tuple[c.Gate, c.Transfer, c.Experts, c.Transfer]:
    """Coefficients of a layer's gate, dispatch, experts and combine in prefill."""
    s, m, traffic = x.shape, x.machine, x.traffic(own_streams=False)
    # Copy engines move prefill's rows (arXiv 2506.12708v2 section 4.3.2), not vector cores.
    wire_share = m.fitted["copy_engine"] if m.family == "ascend" and x.layout.split == 1 else 1.0
    gate, dispatch, experts, combine = moe_coefficients(
        x, traffic, rate=wire_share, operator="contiguous"
    )
    message_bytes = o.dispatch_bytes(s, x.communication.early_quantisation, m.message_scale_bytes)
    answer_bytes, copy_bytes_per_s = o.combine_bytes(s), m.vector_bytes_per_s()
    # What a die adds up, per token of its own: its answers, or the answers of its parts to all.
    added_answers = s.top_k + 1 if x.layout.split == 1 else s.top_k * x.layout.split + x.layout.dies
    return (
        replace(gate, fixed=2 * x.gap_s + x.choice_s(x.experts_operator("contiguous"))),
        replace(dispatch, fixed=traffic.dispatch.fixed, order=2 * message_bytes / copy_bytes_per_s),
        replace(experts, flop=max(experts.flop, experts.io), io=0.0),
        replace(
            combine,
            message=added_answers * answer_bytes / copy_bytes_per_s,
            order=m.restoring_passes * 2 * answer_bytes / copy_bytes_per_s,
        ),
    )


def _demand(x: Setting, moe_layers: int, attention: _Attention) -> c.PrefillDemand:
    """Bytes and FLOPs of a prefill batch, as coefficients. attention: effect of its parallel
    layout."""
    s, f = x.shape, x.formats
    attention_works = [
        (o.prefill_down(s, f), 1.0),
        (o.prefill_up(s, f), attention.up_share),
        (o.prefill_output(s, f), attention.output_share),
        *([(o.gate(s, f), 1.0)] if x.sends_to_experts else []),
        *((operator.work(s, f), 1.0) for operator in o.operators_outside_core("prefill")),
    ]
    works = [work for work, _ in attention_works]
    up_work, more_dies = o.cached_up(s, f), x.pool.own.cp_dies - 1  # projected up by each other die
    expert_work, dense_work = o.expert(s, f), o.dense_ffn(s, f)
    token_experts = (s.top_k + s.shared_experts) * x.layout.split
    layer_count = moe_layers + s.dense_layers
    moved_bytes = sum(entry.io_bytes_per_token + entry.vector_bytes_per_token for entry in works)
    moved_bytes += more_dies * (up_work.io_bytes_per_token + up_work.vector_bytes_per_token)
    flops = sum(entry.flops_per_token for entry in works) + more_dies * up_work.flops_per_token
    dies_of_split = float(x.split_dies)  # each computes its share of a token
    state_flops = s.linear_share * s.linear_kind.prompt_flops(s) if s.linear_layers else 0.0
    demand = c.PrefillDemand(
        weight_bytes=dense_work.weight_bytes * s.dense_layers
        + layer_count * sum(work.weight_bytes * share for work, share in attention_works),
        expert_bytes=expert_work.weight_bytes * moe_layers,
        shared_more_bytes=f.shared_more_bytes * s.expert_weights * moe_layers,
        token_bytes=dies_of_split * moved_bytes * layer_count
        + token_experts
        * (expert_work.io_bytes_per_token + expert_work.vector_bytes_per_token)
        * moe_layers,
        token_flops=dies_of_split * (flops + state_flops) * layer_count
        + token_experts * expert_work.flops_per_token * moe_layers
        + dies_of_split * dense_work.flops_per_token * s.dense_layers,
    )
    if (drafter_setting := x.drafter_setting) is None:
        return demand
    works = _draft_works(x, drafter_setting)
    return replace(
        demand,
        weight_bytes=demand.weight_bytes + sum(work.weight_bytes for work in works),
        token_flops=demand.token_flops + sum(work.flops_per_token for work in works),
    )
