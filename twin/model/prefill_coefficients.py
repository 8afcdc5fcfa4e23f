"""From operators, machine and network to the coefficients of a prefill instance.

The counterpart of coefficients.py for prefill: attention in one of its parallel forms, then the
MoE layer. What both share, a `Setting` and the seconds of one operator, is there.
"""

from __future__ import annotations

import numpy as np

from twin.model import operators as o
from twin.model import params as q
from twin.model.coefficients import Cores, Setting, many_rows, more_messages, pair_s, route, seconds
from twin.model.collectives import all_gather_s_per_byte, all_to_all_s_per_byte, moe_traffic


def prefill_vector(x: Setting, attention: str, microbatch: bool, mtp: bool) -> np.ndarray:
    """Coefficients of a prefill instance, f8[PREFILL_SIZE]."""
    p = np.zeros(q.PREFILL_SIZE)
    m, s = x.machine, x.shape
    gap = m.fitted["kernel_gap"]
    p[q.F_MOE_LAYERS], p[q.F_DENSE_LAYERS] = s.moe_layers + mtp, s.dense_layers
    p[q.F_MICROBATCH] = float(microbatch)
    p[q.F_CONTENTION] = m.fitted["vector_contention"] if m.family == "ascend" else 0.0
    p[q.F_COMPUTE_SHARE] = m.prefill_compute_share
    p[q.F_DIES], p[q.F_TOP_K] = x.layout.dies, s.top_k
    p[q.F_ROUTED_DIES], p[q.F_SLOTS] = x.layout.routed_dies, x.layout.slots_per_die
    p[q.F_SHARED_EXPERTS], p[q.F_SHARED_DIES] = s.shared_experts, x.layout.shared_dies
    up = output = 1.0  # share of these weights that a die reads
    if attention == "tp":
        _fill_tensor_parallel(p, x)
        assert x.group is not None
        up = output = 1.0 / x.group.peers
    else:
        staged = attention == "sp_tp_sp" and x.layout.dies > 1
        up = 1.0 / min(x.layout.dies, s.heads) if staged else 1.0
        _fill_prefill_attention(p, x, staged)
    _fill_prefill_moe(p, x)
    head = o.lm_head(s)
    p[q.F_HEAD] = head.weight_bytes / m.stream_bytes_per_s() + 2 * gap
    p[q.F_GAP] = m.graph_launch_s
    _fill_prefill_demand(p, x, up, output)
    return p


def _fill_prefill_attention(p: np.ndarray, x: Setting, staged: bool) -> None:
    m, s, f = x.machine, x.shape, x.formats
    gap = m.fitted["kernel_gap"]
    whole = Cores()
    down = seconds(m, o.prefill_down(s, f), whole)
    up = seconds(m, o.prefill_up(s, f), whole)
    heads_share = 1.0 / min(x.layout.dies, s.heads) if staged else 1.0
    p[q.F_INPUT_FIXED] = 4 * gap
    p[q.F_INPUT_WEIGHT] = down[0] + up[0] * heads_share
    p[q.F_INPUT_TOKEN] = many_rows(m, o.prefill_down(s, f)) + many_rows(m, o.prefill_up(s, f))
    p[q.F_CORE_FIXED], p[q.F_CORE_PAIR] = gap, pair_s(x)
    p[q.F_HIT_TOKEN] = many_rows(m, o.cached_up(s, f)) / x.layout.dies
    if staged:
        # Latents travel in the format in which the up-projections read them, or in BF16.
        wire = f.activation_bytes if x.optimisations.flash_comm else o.ACTIVATION_BYTES
        latent = wire * (s.q_lora + s.kv_lora) + o.ACTIVATION_BYTES * s.rope_dim
        p[q.F_GATHER_FIXED] = x.gather.latency_s + gap
        p[q.F_GATHER_TOKEN] = latent * all_gather_s_per_byte(x.gather) / x.layout.dies
        p[q.F_HIT_GATHER] = p[q.F_GATHER_TOKEN]
        values = wire * s.heads * s.value_dim
        if not x.optimisations.layer_in_parallel:
            # Every die has a partial sum of the whole batch; each takes its tokens' sum.
            values = o.ACTIVATION_BYTES * s.hidden * x.layout.dies
        p[q.F_EXCHANGE_FIXED] = x.gather.latency_s + gap
        p[q.F_EXCHANGE_TOKEN] = values * all_to_all_s_per_byte(x.gather)
    output = seconds(m, o.prefill_output(s, f), whole)
    p[q.F_OUTPUT_FIXED] = 3 * gap
    p[q.F_OUTPUT_WEIGHT] = output[0]
    p[q.F_OUTPUT_TOKEN] = many_rows(m, o.prefill_output(s, f))


def _fill_tensor_parallel(p: np.ndarray, x: Setting) -> None:
    """Attention split by heads over the dies of a group, which have all of the group's tokens.

    Hidden states are gathered before it, and partial sums of the output projection are reduced
    and scattered after it: an all-reduce in two halves. Down-projections are computed on every
    die of the group for all its tokens, since latents are not split.
    """
    m, s, f = x.machine, x.shape, x.formats
    group = x.group
    assert group is not None
    gap, dies = m.fitted["kernel_gap"], group.peers
    whole = Cores()
    down, up = o.prefill_down(s, f), o.prefill_up(s, f)
    p[q.F_INPUT_FIXED] = 4 * gap
    p[q.F_INPUT_WEIGHT] = seconds(m, down, whole)[0] + seconds(m, up, whole)[0] / dies
    p[q.F_INPUT_TOKEN] = dies * many_rows(m, down) + many_rows(m, up)
    p[q.F_CORE_FIXED], p[q.F_CORE_PAIR] = gap, pair_s(x)
    p[q.F_HIT_TOKEN] = many_rows(m, o.cached_up(s, f)) / x.layout.dies
    wire = f.activation_bytes if x.optimisations.flash_comm else o.ACTIVATION_BYTES
    per_byte = all_gather_s_per_byte(group) / x.layout.dies
    p[q.F_GATHER_FIXED] = group.latency_s + gap
    p[q.F_GATHER_TOKEN] = wire * s.hidden * per_byte
    p[q.F_HIT_GATHER] = o.ACTIVATION_BYTES * s.latent * per_byte
    partial = o.ACTIVATION_BYTES * s.hidden * dies  # a die's sums for all tokens of the group
    p[q.F_EXCHANGE_FIXED] = group.latency_s + gap
    p[q.F_EXCHANGE_TOKEN] = partial * all_to_all_s_per_byte(group)
    p[q.F_EXCHANGE_TOKEN] += partial / m.vector_bytes_per_s()
    p[q.F_OUTPUT_FIXED] = 3 * gap
    p[q.F_OUTPUT_WEIGHT] = seconds(m, o.prefill_output(s, f), whole)[0] / dies
    p[q.F_OUTPUT_TOKEN] = many_rows(m, o.prefill_output(s, f))


def _fill_prefill_moe(p: np.ndarray, x: Setting) -> None:
    m, s, f = x.machine, x.shape, x.formats
    gap = m.fitted["kernel_gap"]
    whole = Cores()
    gate = seconds(m, o.gate(s, f), whole)
    p[q.F_GATE_FIXED] = 2 * gap
    p[q.F_GATE_TOKEN] = max(gate[1], gate[2]) + m.gate_token_s
    t = moe_traffic(s, x.communication, m, x.facts, route(x, "prefill"))
    p[q.F_DISPATCH_FIXED], p[q.F_COMBINE_FIXED] = t.dispatch_fixed_s, t.combine_fixed_s
    more = more_messages(x)
    p[q.F_DISPATCH_CORE] = more * t.dispatch_message_s
    row = o.dispatch_bytes(s, x.communication.early_quantisation, m.message_scale_bytes)
    p[q.F_DISPATCH_ORDER] = 2 * row / m.vector_bytes_per_s()
    # Copy engines move prefill's rows (arXiv 2506.12708v2 section 4.3.2), not vector cores.
    rate = m.fitted["copy_engine"] if m.family == "ascend" else 1.0
    p[q.F_DISPATCH_WIRE] = more * t.dispatch_send_s / rate
    p[q.F_DISPATCH_RECEIVE] = t.dispatch_receive_s / rate
    p[q.F_COMBINE_WIRE] = t.combine_send_s / rate
    p[q.F_COMBINE_RECEIVE] = more * t.combine_receive_s / rate
    gathered = (s.top_k + 1) * o.combine_bytes(s)
    p[q.F_COMBINE_CORE] = gathered / m.vector_bytes_per_s()
    expert = seconds(m, o.expert(s, f), whole)
    p[q.F_EXPERT_FIXED], p[q.F_EXPERT_WEIGHT] = 2 * gap, expert[0]
    p[q.F_EXPERT_TOKEN], p[q.F_EXPERT_VECTOR] = max(expert[1], expert[2]), expert[3]
    if not x.communication.early_quantisation and f.expert != "bf16":
        p[q.F_EXPERT_VECTOR] += (o.ACTIVATION_BYTES + 1.0) * s.hidden / m.vector_bytes_per_s()
    dense = seconds(m, o.dense_ffn(s, f), whole)
    p[q.F_DENSE_FIXED], p[q.F_DENSE_WEIGHT] = 3 * gap, dense[0]
    p[q.F_DENSE_TOKEN], p[q.F_DENSE_VECTOR] = max(dense[1], dense[2]), dense[3]


def _fill_prefill_demand(p: np.ndarray, x: Setting, up: float, output: float) -> None:
    """Bytes and FLOPs for utilisation figures; up, output: shares of weights that a die reads."""
    s, f = x.shape, x.formats
    attention = (o.prefill_down(s, f), o.prefill_up(s, f), o.prefill_output(s, f), o.gate(s, f))
    expert, dense = o.expert(s, f), o.dense_ffn(s, f)
    used = s.top_k + s.shared_experts
    layers = p[q.F_MOE_LAYERS] + s.dense_layers
    read = (1.0, up, output, 1.0)
    p[q.F_WEIGHT_BYTES] = dense.weight_bytes * s.dense_layers + layers * sum(
        w.weight_bytes * share for w, share in zip(attention, read, strict=True)
    )
    p[q.F_EXPERT_BYTES] = expert.weight_bytes * p[q.F_MOE_LAYERS]
    p[q.F_TOKEN_BYTES] = (
        sum(w.io_bytes_per_token + w.vector_bytes_per_token for w in attention) * layers
        + used * (expert.io_bytes_per_token + expert.vector_bytes_per_token) * p[q.F_MOE_LAYERS]
    )
    p[q.F_TOKEN_FLOPS] = (
        sum(w.flops_per_token for w in attention) * layers
        + used * expert.flops_per_token * p[q.F_MOE_LAYERS]
        + dense.flops_per_token * s.dense_layers
    )
    p[q.F_PAIR_FLOPS] = s.prefill_core_flops * layers
