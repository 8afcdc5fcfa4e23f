"""From operators, machine and network to the coefficients that cost kernels read.

One function for each kind of instance fills a flat vector (params.py). All physics of an operator
meets here: its work (operators.py), the roofs (roofline.py), the traffic (collectives.py) and the
share of cores it runs on. This module does not know who sits where (costs.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twin.facts import Facts
from twin.model import operators as o
from twin.model import params as q
from twin.model.collectives import (
    Exchange,
    direct,
    moe_traffic,
    two_level,
)
from twin.model.memory import ExpertLayout
from twin.model.operators import Formats, Work
from twin.model.roofline import Machine, roof
from twin.model.shape import Shape
from twin.scenario import Communication, Optimisations


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything coefficients follow from."""

    shape: Shape
    formats: Formats
    machine: Machine
    facts: Facts
    communication: Communication
    optimisations: Optimisations
    layout: ExpertLayout
    exchange: Exchange
    gather: Exchange  # the same dies, data pulled by reads
    group: Exchange | None = None  # a tensor-parallel group of prefill's attention, by reads
    expert_dies: int = 0  # that hold experts alone (decode); 0: every die does both


def route(x: Setting, role: str) -> Exchange:
    """How tokens get to experts on other nodes: once to each node, or straight to each die.

    The latter in decode of one chip family (low-latency kernels over RDMA).
    """
    if role != "prefill" and x.machine.family == "nvidia":
        return direct(x.exchange, x.facts)
    return two_level(x.exchange, x.shape.top_k, x.shape.most_nodes)


def more_messages(x: Setting) -> float:
    """Messages of a token over those to its routed experts: a shared expert on dies of its own is
    one more to send to, and one more that answers."""
    return 1.0 + (x.shape.shared_experts / x.shape.top_k if x.layout.shared_dies else 0.0)


@dataclass(frozen=True, slots=True)
class Cores:
    """Share of a die's cube and vector cores that a stream has."""

    cube: float = 1.0
    vector: float = 1.0

    @property
    def copying(self) -> float:
        """Share of full copy speed: half of the vector cores already saturate a port (UBEP)."""
        return min(1.0, self.vector / 0.5)


def seconds(m: Machine, w: Work, cores: Cores) -> tuple[float, float, float, float]:
    """Weight read, FLOP, activation and vector seconds (the last three per token)."""
    rate = m.stream_bytes_per_s(cores.cube)
    return (
        w.weight_bytes / rate,
        w.flops_per_token / m.gemm_flops(w.format, cores.cube),
        w.io_bytes_per_token / rate,
        w.vector_bytes_per_token / m.vector_bytes_per_s(cores.vector),
    )


def many_rows(m: Machine, w: Work) -> float:
    """Seconds a token of a product over many rows.

    Where vector cores stand beside the matrix cores, element-wise work is pipelined with the
    product; where the same cores do both, it comes after it.
    """
    product = w.flops_per_token / m.gemm_flops(w.format)
    if not m.beside:
        moved = w.io_bytes_per_token / m.stream_bytes_per_s()
        return max(product, moved) + w.vector_bytes_per_token / m.vector_bytes_per_s()
    moved = (w.io_bytes_per_token + w.vector_bytes_per_token) / m.stream_bytes_per_s()
    return max(product, moved)


def context_s(x: Setting, query_tokens: float, cores: Cores) -> float:
    """Decode attention core: seconds per context token of a request (roofline)."""
    m = x.machine
    compute = query_tokens * x.shape.decode_core_flops
    compute /= m.attention_peak * m.attention_utilisation * cores.cube
    read = x.shape.kv_bytes_per_token_layer(x.formats.kv)
    read /= m.chip.hbm_bytes_per_s * m.kv_bandwidth_utilisation * m.pull(cores.cube)
    return roof(compute, read)


def decode_vector(
    x: Setting, drafts: int, microbatch: str, ways: Sequence[tuple[Cores, Cores]]
) -> np.ndarray:
    """Coefficients of a decode instance, f8[DECODE_SIZE].

    ways: the cores of the attention and of the MoE stream, at most params.SPLITS pairs; none
    means that all cores compute while others' data moves.
    """
    p = np.zeros(q.DECODE_SIZE)
    m, s = x.machine, x.shape
    query = 1 + drafts
    whole = Cores()
    _fill_mode(p, x, q.SEQUENCE, query, whole, whole)
    for way, (attention, moe) in enumerate(ways or [(whole, whole)]):
        _fill_mode(p, x, q.SPLIT + way * q.MODE, query, attention, moe)
    p[q.WAYS], p[q.HIDES] = max(1, len(ways)), float(not ways)
    gap = m.fitted["kernel_gap"]
    p[q.QUERY_TOKENS], p[q.DRAFTS] = query, drafts
    p[q.MOE_LAYERS], p[q.DENSE_LAYERS] = s.moe_layers, s.dense_layers
    p[q.MICROBATCH] = {"off": 0.0, "on": 1.0, "auto": 2.0}[microbatch]
    p[q.TOP_K], p[q.ROUTED_DIES] = s.top_k, x.layout.routed_dies
    p[q.SLOTS], p[q.SHARED_EXPERTS] = x.layout.slots_per_die, s.shared_experts
    p[q.SHARED_DIES] = x.layout.shared_dies
    p[q.BUFFER_TOKENS], p[q.CROWD] = x.communication.buffer_tokens_per_die, 1.0
    if x.expert_dies:
        p[q.EXPERT_DIES] = x.expert_dies
        p[q.CROWD] = x.exchange.peers / (x.exchange.peers - x.expert_dies)
    p[q.IN_CAST] = float(not x.optimisations.shared_expert_scheduling)
    p[q.BESIDE] = float(x.optimisations.multi_stream)
    if x.optimisations.fused_deep_moe:
        p[q.TILES] = float(x.facts["operators.fused_deep_moe.tiles"].value)
    dense = o.dense_ffn(s, x.formats)
    p[q.DENSE_WEIGHT], p[q.DENSE_FLOP], p[q.DENSE_IO], p[q.DENSE_VECTOR] = seconds(m, dense, whole)
    p[q.DENSE_FIXED] = 3 * gap
    projection = o.mtp_projection(s, x.formats)
    p[q.MTP_WEIGHT], p[q.MTP_FLOP], _, p[q.MTP_VECTOR] = seconds(m, projection, whole)
    p[q.MTP_FIXED] = 3 * gap
    head = o.lm_head(s)
    p[q.HEAD_WEIGHT], p[q.HEAD_FLOP], _, _ = seconds(m, head, whole)
    p[q.HEAD_FIXED] = gap
    p[q.SAMPLE_FIXED] = 4 * gap
    p[q.SAMPLE_TOKEN] = seconds(m, o.sampling(s), whole)[3]
    p[q.GRAPH_LAUNCH], p[q.HOST_GAP] = m.graph_launch_s, _host_gap_s(x, drafts)
    p[q.HOST_ANSWER] = m.host_answer_s
    _fill_demand(p, x, dense, head, projection)
    return p


def _host_gap_s(x: Setting, drafts: int) -> float:
    """What the host and the speculation framework add to every iteration, seconds."""
    gap = x.machine.host_gap_s + x.optimisations.host_gap_ms * 1e-3
    if drafts and x.optimisations.speculation == "fusion_spec":
        gap += x.facts.si("operators.fusion_spec.overhead")
    if drafts and x.optimisations.speculation == "unfused":
        gap += (1 + drafts) * x.machine.graph_launch_s
    return gap


def _fill_mode(
    p: np.ndarray, x: Setting, at: int, query: int, attention: Cores, moe: Cores
) -> None:
    m, s, f = x.machine, x.shape, x.formats
    gap = m.fitted["kernel_gap"]
    prolog = seconds(m, o.decode_prolog(s, f), attention)
    p[at + q.PROLOG_FIXED] = 2 * gap
    p[at + q.PROLOG_WEIGHT], p[at + q.PROLOG_FLOP] = prolog[0], prolog[1]
    p[at + q.PROLOG_IO], p[at + q.PROLOG_VECTOR] = prolog[2], prolog[3]
    p[at + q.CORE_FIXED] = gap + m.attention_fixed_s
    p[at + q.CORE_CONTEXT] = context_s(x, query, attention)
    p[at + q.CORE_CONTEXT_ONE] = context_s(x, 1, attention)
    output = seconds(m, o.decode_output(s, f), attention)
    p[at + q.OUTPUT_FIXED] = 3 * gap
    p[at + q.OUTPUT_WEIGHT], p[at + q.OUTPUT_FLOP] = output[0], output[1]
    p[at + q.OUTPUT_IO], p[at + q.OUTPUT_VECTOR] = output[2], output[3]
    gate = seconds(m, o.gate(s, f), moe)
    p[at + q.GATE_FIXED] = 2 * gap + gate[0]
    p[at + q.GATE_TOKEN] = max(gate[1], gate[2]) + m.gate_token_s / moe.vector
    way = route(x, "decode")
    t = moe_traffic(s, x.communication, m, x.facts, way, x.optimisations.multi_stream)
    more = more_messages(x)
    p[at + q.DISPATCH_FIXED] = t.dispatch_fixed_s
    p[at + q.DISPATCH_MESSAGE] = more * t.dispatch_message_s / moe.copying
    p[at + q.DISPATCH_SEND] = more * t.dispatch_send_s
    p[at + q.DISPATCH_RECEIVE] = t.dispatch_receive_s
    expert = seconds(m, o.expert(s, f), moe)
    p[at + q.EXPERT_FIXED] = 2 * gap
    p[at + q.EXPERT_WEIGHT], p[at + q.EXPERT_FLOP] = expert[0], expert[1]
    p[at + q.EXPERT_IO], p[at + q.EXPERT_VECTOR] = expert[2], expert[3]
    if not x.communication.early_quantisation and f.expert != "bf16":
        late = (o.ACTIVATION_BYTES + 1.0) * s.hidden / m.vector_bytes_per_s(moe.vector)
        p[at + q.EXPERT_VECTOR] += late
    p[at + q.COMBINE_FIXED] = t.combine_fixed_s
    p[at + q.COMBINE_SEND] = t.combine_send_s
    p[at + q.COMBINE_RECEIVE] = more * t.combine_receive_s
    _optimise_attention(p, x, at, attention)
    if at == q.SEQUENCE:
        # Every barrier of the exchange waits for the slowest die. With two microbatches under
        # way a die that waits for one computes the other.
        slow = m.slowest(x.exchange.peers)
        p[at : at + q.GATE_TOKEN + 1] *= slow
        p[at + q.EXPERT_FIXED : at + q.EXPERT_VECTOR + 1] *= slow
        _prefetch(p, x)


def _optimise_attention(p: np.ndarray, x: Setting, at: int, cores: Cores) -> None:
    """What one operator for attention, or a stream for its KV branch, saves."""
    m, s = x.machine, x.shape
    saved = 0.0
    if x.optimisations.fused_deep_mla:
        query = o.ACTIVATION_BYTES * s.query_width
        latent = o.ACTIVATION_BYTES * s.heads * (s.kv_lora + s.rope_dim)
        written = 2 * query + (latent if s.attention == "mla" else query)
        p[at + q.PROLOG_IO] -= written / m.stream_bytes_per_s(cores.cube)
        p[at + q.PROLOG_IO] = max(0.0, p[at + q.PROLOG_IO])
        p[at + q.PROLOG_FIXED] -= 2 * m.fitted["kernel_gap"]
        p[at + q.GATE_FIXED] -= 2 * m.fitted["kernel_gap"]  # its weights are still read
        saved += query
    if x.optimisations.multi_stream and at == q.SEQUENCE:
        saved += 4 * o.ACTIVATION_BYTES * (s.kv_lora + s.rope_dim)
    p[at + q.PROLOG_VECTOR] -= saved / m.vector_bytes_per_s(cores.vector)


def _prefetch(p: np.ndarray, x: Setting) -> None:
    """Read ahead while a collective starts and waits, as far as the on-chip cache holds it."""
    if not x.optimisations.weight_prefetch:
        return
    room = x.facts.si("operators.weight_prefetch.bytes") / x.machine.stream_bytes_per_s()
    ahead = min(room, float(p[q.SEQUENCE + q.COMBINE_FIXED]))
    p[q.SEQUENCE + q.PROLOG_WEIGHT] = max(0.0, p[q.SEQUENCE + q.PROLOG_WEIGHT] - ahead)
    p[q.SEQUENCE + q.EXPERT_AHEAD] = min(room, float(p[q.SEQUENCE + q.DISPATCH_FIXED]))


def _fill_demand(p: np.ndarray, x: Setting, dense: Work, head: Work, projection: Work) -> None:
    """Bytes and FLOPs for utilisation figures."""
    s, f = x.shape, x.formats
    parts = (o.decode_prolog(s, f), o.decode_output(s, f), o.gate(s, f))
    expert = o.expert(s, f)
    p[q.ATTENTION_BYTES] = sum(w.weight_bytes for w in parts)
    p[q.EXPERT_BYTES], p[q.DENSE_BYTES] = expert.weight_bytes, dense.weight_bytes
    p[q.HEAD_BYTES] = head.weight_bytes
    p[q.CONTEXT_BYTES] = s.kv_bytes_per_token_layer(f.kv)
    p[q.ATTENTION_FLOPS] = sum(w.flops_per_token for w in parts)
    p[q.CONTEXT_FLOPS] = s.decode_core_flops
    p[q.EXPERT_FLOPS], p[q.DENSE_FLOPS] = expert.flops_per_token, dense.flops_per_token
    p[q.HEAD_FLOPS] = head.flops_per_token
    p[q.MTP_FLOPS] = projection.flops_per_token


def pair_s(x: Setting) -> float:
    """Prefill attention core: seconds per query-key pair of all heads on one die."""
    m = x.machine
    return x.shape.prefill_core_flops / (m.attention_peak * m.prefill_attention_utilisation)


def mixed_vector(x: Setting, drafts: int) -> np.ndarray:
    """Coefficients of a colocated instance, f8[MIXED_SIZE]."""
    p = np.zeros(q.MIXED_SIZE)
    p[: q.DECODE_SIZE] = decode_vector(x, drafts, "off", ())
    p[q.CHUNK_PAIR] = pair_s(x)
    p[q.CHUNK_PAIR_FLOPS] = x.shape.prefill_core_flops * x.shape.layers
    cached = many_rows(x.machine, o.cached_up(x.shape, x.formats)) / x.layout.dies
    p[q.CHUNK_HIT] = cached * x.shape.layers
    return p
