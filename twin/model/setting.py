"""What the coefficients of an instance follow from, and the seconds of one operator in it. All
physics of an operator meets here: its work (operators.py), the roofs (roofline.py), the traffic
(collectives.py) and the share of cores it runs on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from twin.facts import Facts
from twin.metrics.operators import operator_names
from twin.model import collectives as wire
from twin.model import operators as o
from twin.model import parallel
from twin.model.coefficients import Collective, Product
from twin.model.drafters import OWN_FORMAT, Drafter
from twin.model.in_host import HostMemory
from twin.model.offload import Offload
from twin.model.roofline import ALL_MODELS, Machine, roofline_s
from twin.model.shape import Shape
from twin.model.stages import ExpertLayout
from twin.scenario import Communication, Optimisations, Pool


@dataclass(frozen=True, slots=True)
class Cores:
    """Shares of an instance's cube and vector cores of a die that a stream has."""

    cube: float = 1.0
    vector: float = 1.0


WHOLE = Cores()


@dataclass(frozen=True, slots=True)
class Setting:
    """Model, machine, network and deployment of an instance, from which its coefficients follow."""

    pool: Pool
    shape: Shape  # what a die has of the model
    whole: Shape
    formats: o.Formats
    machine: Machine
    facts: Facts
    communication: Communication
    optimisations: Optimisations
    layout: ExpertLayout
    exchange: wire.Exchange
    gather: wire.Exchange  # the same dies, data pulled by reads
    # Of dies that share attention, by reads; by parallelism:
    groups: Mapping[str, wire.Exchange] = field(default_factory=dict)
    expert_dies: int = 0  # that hold experts alone (AFD); 0: every die does both
    offload: Offload | None = None  # attention that dies of another pool take over
    lender: Machine | None = None  # these dies
    host: HostMemory | None = None  # where a part of the KV lies
    drafter: Drafter = Drafter(0)

    @property
    def drafter_setting(self) -> Setting | None:
        """Setting of a drafter's own layer; None if the drafter has none."""
        if self.drafter.shape is None:
            return None
        formats = o.Formats(OWN_FORMAT, OWN_FORMAT, OWN_FORMAT, self.formats.kv)
        return replace(self, shape=self.drafter.shape, formats=formats, offload=None, lender=None,
                       host=None)  # fmt: skip

    @property
    def layer_ratio(self) -> float:
        """Number of the model's layers divided by that of a die's layers."""
        return self.whole.layers / self.shape.layers

    @property
    def model_split(self) -> parallel.ModelSplit:
        """Input of the parallelisms' formulas: shapes, number format of KV and group sizes."""
        group_sizes = self.pool.own.tp_dies, self.pool.own.cp_dies, self.pool.own.pp_stages
        return parallel.ModelSplit(self.shape, self.whole, self.formats.kv, *group_sizes)

    @property
    def hop(self) -> Collective:
        """Coefficients to send hidden states to the next pipeline stage, per token of a rank."""
        if (group := self.groups.get("layers")) is None:
            return Collective()
        (collective,) = self.collectives("layers", "after")
        die_bytes = collective.together(self.model_split) / group.peers
        return Collective(group.latency_s + self.gap_s, die_bytes / group.rate_bytes_per_s)

    def collectives(self, name: str, where: parallel.Where) -> list[parallel.Sent]:
        """Collectives of parallelism `name` at a place of a layer, in this instance's phase."""
        phase, collectives = self.pool.phase, parallel.PARALLELISMS[name].sends
        return [sent for sent in collectives if (sent.phase, sent.where) == (phase, where)]

    def exchanged_bytes(self, name: str, where: parallel.Where) -> float:
        """Bytes per token that all dies of a group exchange in the collectives of a parallelism
        (`name`) at a place of a layer (`where`), mean over layers."""
        collectives, shape = self.collectives(name, where), self.shape
        return sum(sent.together(self.model_split) * sent.layers(shape) for sent in collectives)

    @property
    def gap_s(self) -> float:
        """Seconds of launch and tail of one kernel."""
        return self.machine.fitted["kernel_gap"]

    @property
    def product_start_s(self) -> float:
        """Seconds of launch and tail of a product in the format of the attention projections."""
        return self.machine.product_efficiency(self.formats.linear).start_s

    @property
    def sends_to_experts(self) -> bool:
        """Whether tokens are sent to experts: an exchange that a second microbatch can hide."""
        return "experts" in self.shape.stages

    @property
    def head_dies(self) -> int:
        """Number of dies that split the heads of a prompt; each reads all of the prompt's KV."""
        settings, peers = self.pool.own, self.exchange.peers
        return {"dp": 1, "tp": settings.tp_dies, "sp_tp_sp": peers}[settings.attention]

    @property
    def prompt_copies(self) -> int:
        """Number of prefill dies that each have all tokens of a prompt, for some of its heads."""
        settings = self.pool.own
        has_copies = self.pool.phase == "prefill" and settings.attention == "tp"
        return settings.tp_dies if has_copies else 1

    @property
    def small_kernels_s(self) -> float:
        """Seconds of a layer's kernels that belong to no operator, by attention and weights."""
        measured_kernel_s, kind = self.machine.small_kernels, self.shape.kind.kernels
        weight_suffix = "_int8" if self.formats.linear == "int8" else ""
        indexer_s = measured_kernel_s.get("index", 0.0) if self.shape.index_top_k else 0.0
        return measured_kernel_s.get(f"{kind}{weight_suffix}", 0.0) + indexer_s + self.mixing_s[0]

    def choice_s(self, operator: str) -> float:
        """Seconds of choosing experts beyond those of one kernel; operator: of the experts."""
        return self.machine.choice_s if self._has_choice_kernels(operator) else 0.0

    def _has_choice_kernels(self, operator: str) -> bool:
        """Whether the choice of experts takes several kernels: the engine has no single one for
        that number of experts per group, and the experts' kernel (operator) does not choose."""
        shape = self.shape
        efficiency = self.machine.product_efficiency(self.formats.expert, operator)
        experts_per_group = shape.routed_experts // max(shape.expert_groups, 1)
        has_one_kernel = experts_per_group in self.machine.choice_groups
        return bool(shape.router) and not has_one_kernel and efficiency.serves == ALL_MODELS

    @property
    def mixing_s(self) -> tuple[float, float]:
        """(seconds per pass, per token) to mix a layer's residual streams in kernels of its own."""
        machine, shape = self.machine, self.shape
        efficiency = machine.measured_efficiency("mixing", "bf16")
        start_s = efficiency.start_s if efficiency is not None else machine.streams_start_s
        if shape.residual_streams == 1 or start_s <= 0.0:
            return 0.0, 0.0
        token_bytes = o.mixing_bytes(shape, 2 if efficiency is None else 1)
        return start_s, token_bytes / machine.vector_bytes_per_s()

    @property
    def decode_kernels(self) -> float:
        """Number of kernels of a decode layer, if it is launched kernel by kernel."""
        machine, shape = self.machine, self.whole
        if shape.moe_layers and shape.kind.kernels == "gqa":
            return machine.gqa_decode_kernels or machine.decode_kernels
        return (self._is_dense_gqa and machine.dense_decode_kernels) or machine.decode_kernels

    @property
    def prefill_kernels(self) -> float:
        """Number of kernels of a prefill layer, if it is launched kernel by kernel."""
        machine = self.machine
        kernels = (self._is_dense_gqa and machine.dense_prefill_kernels) or machine.prefill_kernels
        return kernels + machine.linear_prefill_kernels * self.whole.linear_share

    @property
    def _is_dense_gqa(self) -> bool:
        """Whether all layers are grouped-query attention and a dense FFN."""
        shape = self.whole
        return not shape.moe_layers and not shape.linear_layers and shape.kind.kernels == "gqa"

    def launch_host_s(self, kernels: float, moe_passes: float, passes: float) -> float:
        """Host seconds to launch a pass kernel by kernel: by the number of `kernels` of a layer, or
        as measured. passes: through layers, of which moe_passes are through ones with experts."""
        host_s_by_part, shape = self.machine.eager_layer_s, self.shape
        kernels += self.machine.index_kernels if kernels and shape.index_top_k else 0.0
        attention_s = host_s_by_part.get("sparse" if shape.index_top_k else shape.kind.kernels, 0.0)
        moe_s = host_s_by_part.get("moe", 0.0)
        if self._has_choice_kernels(self.experts_operator("grouped")):
            moe_s += self.machine.choice_host_s
        ffn_s = moe_s * moe_passes + host_s_by_part.get("dense", 0.0) * (passes - moe_passes)
        kernels_s = self.machine.kernel_launch_s * kernels * passes
        return kernels_s + attention_s * passes + ffn_s

    @property
    def kv_copies(self) -> float:
        """Number of copies of a prompt's KV that the dies which share its heads read together: each
        reads only the KV of its heads, but all latents (MLA)."""
        sharing_dies = self.head_dies if self.sends_to_experts else self.split_dies
        return sharing_dies * self.whole.kv_width_of(sharing_dies) / self.whole.kv_width

    @property
    def split_dies(self) -> int:
        """Number of dies among which the model's heads are split (`whole`, and a die's `shape`)."""
        return self.whole.heads // self.shape.heads

    @property
    def waiting_dies(self) -> int:
        """Number of dies that wait for each other within a layer: those of its widest stage."""
        tp_dies = self.pool.own.tp_dies
        dies_by_stage = {"attention": tp_dies, "dense": tp_dies, "experts": self.exchange.peers}
        return max(dies_by_stage[stage] for stage in self.shape.stages)

    @property
    def is_one_rank(self) -> bool:
        """Whether an instance's dies are one rank that sums the experts' results (on NVIDIA)."""
        is_single_rank = self.pool.layer_dies == self.exchange.peers > 1 and not self.expert_dies
        return is_single_rank and self.machine.family == "nvidia" and self.sends_to_experts

    def experts_operator(self, operator: str) -> str:
        """Name of the operator of a die's experts: `operator` ("grouped" or "contiguous") where
        tokens are sent to them. Dies that have all tokens run another kernel, if one that serves
        this kind of attention was measured: "fused" or "fused_gqa"."""
        if self.summing_network is None:
            return operator
        attention_kernels, weight_format = self.shape.kind.kernels, self.formats.expert
        for fused_name in ("fused", "fused_gqa"):
            efficiency = self.machine.measured_efficiency(fused_name, weight_format)
            if efficiency is not None and efficiency.serves in (ALL_MODELS, attention_kernels):
                return fused_name
        return operator

    @property
    def gathers_tokens(self) -> bool:
        """Whether ranks gather all tokens on all dies, where each die computes its own experts,
        instead of sending messages: on NVIDIA (SGLang, moe-a2a-backend none)."""
        could_send = not self.expert_dies and self.sends_to_experts and self.exchange.peers > 1
        return could_send and not self.communication.fused and self.machine.family == "nvidia"

    @property
    def summing_network(self) -> wire.Exchange | None:
        """Network of dies that have all tokens and sum the results of their experts, or of their
        parts of experts; None if tokens are sent to their experts."""
        if self.layout.split > 1 or (self.gathers_tokens and not self.is_one_rank):
            return self.gather
        return self.groups.get("heads") if self.is_one_rank else None

    @property
    def exchange_bytes(self) -> float:
        """Bytes per token that are sent to experts and back, all layers."""
        shape = self.shape
        if (group := self.summing_network) is not None:
            return o.gathered_bytes(shape, group.peers) * shape.moe_layers
        messages_per_token = shape.top_k * shape.moe_layers
        both_ways_bytes = (
            self._message_bytes * messages_per_token + o.combine_bytes(shape) * messages_per_token
        )
        return both_ways_bytes * (self.exchange.remote * self.message_ratio)

    @property
    def _message_bytes(self) -> float:
        """Bytes of one token that is sent to one expert."""
        is_quantised = self.communication.early_quantisation
        return o.dispatch_bytes(self.shape, is_quantised, self.machine.message_scale_bytes)

    @property
    def dispatch_share(self) -> float | None:
        """Dispatch's share of the bytes to experts and back; None if all dies have all tokens."""
        if self.summing_network is not None:
            return None
        return self._message_bytes / (self._message_bytes + o.combine_bytes(self.shape))

    @property
    def concentration(self) -> float:
        """Requests of a rank with attention per request of a mean rank; over 1 with AFD."""
        return self.exchange.peers / (self.exchange.peers - self.expert_dies)

    @property
    def core_splits(self) -> list[tuple[Cores, Cores]]:
        """Pairs (cores of decode's attention stream, cores of its MoE stream) from which an
        iteration chooses by its load (arXiv 2506.12708v2 section 4.2.3); empty if cores are not
        split."""
        fact_path = f"operators.{self.machine.family}.attention_core_shares"
        core_shares = (
            [] if self.expert_dies or fact_path not in self.facts else self.facts[fact_path].value
        )
        return [(Cores(share, share), Cores(1.0 - share, 1.0 - share)) for share in core_shares]

    @property
    def route(self) -> wire.Exchange:
        """Exchange figures for tokens to experts on other nodes: sent once to each node, or, in
        decode on NVIDIA (low-latency kernels over RDMA), directly to each die."""
        if not self.sends_to_experts:
            return self.exchange
        if self.pool.phase == "decode" and self.machine.family == "nvidia":
            return wire.direct_exchange(self.exchange, self.machine.chip.name, self.facts)
        return wire.two_level_exchange(self.exchange, self.shape.top_k, self.shape.most_nodes)

    @property
    def message_ratio(self) -> float:
        """Messages per token divided by routed ones: over 1 if shared experts have their own
        dies."""
        shape, has_own_dies = self.shape, self.layout.shared_dies > 0
        return 1.0 + (shape.shared_experts / shape.top_k if has_own_dies else 0.0)

    def traffic(
        self, own_streams: bool, cores: Cores = WHOLE, prompts: bool = False
    ) -> wire.MoeTraffic:
        """Coefficients of dispatch and combine. own_streams: transfers between nodes run at the
        same time as those inside; cores: those that sum; prompts: whether a pass has prompts."""
        m, is_prefill = self.machine, self.pool.phase == "prefill"
        if (group := self.summing_network) is not None:
            adding_bytes_per_s = wire.adding_bytes_per_s(m, self.facts, cores.vector)
            has_several_ranks = group.peers > (
                self.head_dies if is_prefill else self.pool.layer_dies
            )
            uses_sums = has_several_ranks and (prompts or is_prefill) and m.prompt_sums > 0.0
            gather_args = has_several_ranks and not uses_sums, 1.0 + uses_sums
            return wire.gathered_traffic(
                self.shape, m, self.facts, group, adding_bytes_per_s, *gather_args
            )
        communication = self.communication
        if is_prefill and not m.prefill_fused:
            communication = communication.model_copy(update={"fused": False})
        return wire.moe_traffic(self.shape, communication, m, self.facts, self.route, own_streams)

    def work_s(
        self, w: o.Work, cores: Cores = WHOLE, operator: str = "gemm"
    ) -> tuple[float, float, float, float]:
        """Seconds of the work `w` on a share of the cores: (reading its weights, once; per token
        its FLOPs, its activations, its vector work). operator: name of the measured efficiency."""
        weight_bytes_per_s = self.machine.stream_bytes_per_s(cores.cube, w.format, operator)
        copy_bytes_per_s = self.machine.vector_bytes_per_s(cores.vector)
        hbm_bytes_per_s = self.machine.chip.hbm_bytes_per_s * self.machine.drawn_share(cores.cube)
        efficiency = self.machine.product_efficiency(w.format, operator)
        row_bytes = efficiency.row_bytes * self.shape.hidden
        return (
            w.weight_bytes / weight_bytes_per_s + w.unpack_bytes / copy_bytes_per_s,
            w.flops_per_token / self.machine.gemm_flops(w.format, cores.cube, operator),
            w.io_bytes_per_token / weight_bytes_per_s,
            w.vector_bytes_per_token / copy_bytes_per_s + row_bytes / hbm_bytes_per_s,
        )

    def product(self, work: o.Work, launches: int, cores: Cores = WHOLE, name: str = "") -> Product:
        """Coefficients of a product and its launches, whose seconds count for operator `name`."""
        weight_s, flop_s, io_s, vector_s = self.work_s(work, cores)
        efficiency = self.machine.product_efficiency(work.format)
        return Product(
            launches * efficiency.start_s, weight_s, flop_s, io_s, vector_s,
            self.operator_index(name), efficiency.tile_small, efficiency.tile_large,
        )  # fmt: skip

    def operator_index(self, name: str) -> float:
        """Index of operator `name` in this phase's seconds by operator; 0 for ""."""
        return float(operator_names(self.pool.phase).index(name)) if name else 0.0

    def products(self, entries: Sequence[o.Plain], cores: Cores = WHOLE) -> tuple[Product, ...]:
        """Coefficients of the products of operators outside the attention core."""
        return tuple(
            self.product(entry.work(self.shape, self.formats), entry.launches, cores, entry.name)
            for entry in entries
        )

    def many_rows_s(self, w: o.Work) -> float:
        """Seconds per token of a product over many rows. Separate vector cores run element-wise
        work at the same time as the product, otherwise it follows the product."""
        machine = self.machine
        flop_s = w.flops_per_token / machine.gemm_flops(w.format)
        if machine.family != "ascend":
            moving_s = w.io_bytes_per_token / machine.stream_bytes_per_s(fmt=w.format)
            return max(flop_s, moving_s) + w.vector_bytes_per_token / machine.vector_bytes_per_s()
        moving_s = (w.io_bytes_per_token + w.vector_bytes_per_token) / machine.stream_bytes_per_s()
        return max(flop_s, moving_s)

    @property
    def selecting_s(self) -> float:
        """Seconds to start the selection before sparse attention's core, mean layer: as measured,
        or two launches; 0 without an indexer."""
        m, shape = self.machine, self.shape
        start_s = shape.is_compressed * m.compressed_start_s or m.indexer_start_s or 2 * self.gap_s
        return start_s * shape.index_share if shape.index_top_k else 0.0

    @property
    def core_kind(self) -> str:
        """Decode's attention core: "latent" (MLA that attends to all context), "mla" or "gqa"."""
        s = self.shape
        is_all_latent = s.kind.kernels == "mla" and not (s.index_top_k or s.is_compressed)
        return "latent" if is_all_latent else s.kind.kernels

    def context_s(
        self, query_tokens: float, cores: Cores = WHOLE, machine: Machine | None = None,
        prompt: bool = False,
    ) -> float:  # fmt: skip
        """Seconds of the attention core per context token of a request (roofline). With an indexer
        each query token reads its own context tokens, and whole blocks of heads are computed; a
        core that serves one query token gathers them first. machine: None: this setting's; prompt:
        for tokens of a prompt; each of the dies that split its heads gathers what all attend to."""
        m, shape, kv_format = machine or self.machine, self.shape, self.formats.kv
        efficiency, block_heads = m.attention_efficiency(kv_format, self.core_kind), m.sparse_heads
        if prompt and shape.index_top_k:  # its kernel, where that was measured
            sparse_efficiency = m.reaches.get(f"sparse.{'bf16' if kv_format == 'bf16' else '8bit'}")
            if sparse_efficiency is not None:
                efficiency, block_heads = sparse_efficiency, sparse_efficiency.tile_small
        flops_per_s = m.chip.peak(efficiency.peak) * m.cores * efficiency.compute * cores.cube
        heads_ratio = self._computed_heads_ratio(prompt, block_heads)
        computing_s = query_tokens * shape.decode_core_flops * heads_ratio / flops_per_s
        read_count = query_tokens if shape.index_top_k else 1.0
        read_bytes = shape.core_bytes_per_token_layer(kv_format) * read_count
        read_bytes *= self.prompt_copies if prompt else 1
        read_s = read_bytes / m.read_bytes_per_s(efficiency.bandwidth, cores.cube)
        if self.independent_cores > 0.0:
            return float(computing_s + read_s)
        roof_power = efficiency.power
        return float((computing_s**roof_power + read_s**roof_power) ** (1.0 / roof_power))

    def _computed_heads_ratio(self, prompt: bool, block: float) -> float:
        """Heads that a sparse kernel computes, in whole blocks of `block` heads, divided by a die's
        heads. prompt: for the kernel of prompts, which dies with few heads do not use."""
        head_count = self.shape.heads / (self.head_dies if self.pool.phase == "prefill" else 1)
        if prompt and head_count >= self.machine.sparse_prompt_from:
            block = max(block, self.machine.sparse_prompt_heads)
        if block <= 0.0 or not self.shape.index_top_k:
            return 1.0
        return math.ceil(head_count / block) * block / head_count

    @property
    def independent_cores(self) -> float:
        """Number of a die's cores, if each serves its own token; 0: all cores share each token."""
        is_sparse_alone = self.machine.sparse_alone > 0.0 and self.shape.index_top_k
        return float(self.machine.chip.cube_cores) * self.machine.cores if is_sparse_alone else 0.0

    def state_bytes(self, query_tokens: float) -> float:
        """Bytes of states moved per token of a pass, mean layer: a request's state is read once,
        and written after each token, so that drafts can be taken back."""
        return self.shape.linear_share * self.shape.state_bytes * (1.0 + 1.0 / query_tokens)

    def state_s(self, query_tokens: float, cores: Cores = WHOLE) -> float:
        """Seconds of decode's linear attention per token of a pass, mean layer: by the bandwidth of
        its kernels, if that was measured, otherwise as element-wise work."""
        m = self.machine
        bytes_per_s = m.chip.hbm_bytes_per_s * m.linear_bandwidth * m.cores * cores.vector
        return self.state_bytes(query_tokens) / (bytes_per_s or m.vector_bytes_per_s(cores.vector))

    def core_start_s(self) -> float:
        """Seconds to start decode's attention core, mean layer, by its kind and as measured."""
        machine, shape = self.machine, self.shape
        start_s = machine.attention_efficiency(self.formats.kv, self.core_kind).start_s
        if shape.index_top_k and machine.sparse_start_s > 0.0:
            start_s = machine.sparse_start_s
        linear_start_s = machine.linear_start_s or start_s
        return (1.0 - shape.linear_share) * start_s + shape.linear_share * linear_start_s

    def index_s(self, query_tokens: float, cores: Cores = WHOLE) -> float:
        """Seconds of decode's indexer per context token of a request, mean layer, and of the core
        over keys that are always attended to; 0 without an indexer. All context is scored, in the
        cache's number format, and scores are written and read once for the selection."""
        machine, shape, kv_format = self.machine, self.shape, self.formats.kv
        if not shape.index_top_k:
            return 0.0
        efficiency = machine.attention_efficiency(kv_format, self.core_kind)
        flops_per_s = machine.chip.peak(efficiency.peak) * machine.cores * efficiency.compute
        compute_s = query_tokens * shape.index_flops / (flops_per_s * cores.cube)
        read_bytes_per_s = machine.read_bytes_per_s(efficiency.bandwidth, cores.cube)
        score_s = query_tokens * o.SCORE_BYTES / machine.vector_bytes_per_s(cores.vector)
        key_bytes = shape.index_bytes_per_token_layer(kv_format)
        key_s = float(roofline_s(compute_s, key_bytes / read_bytes_per_s)) + score_s
        return shape.mean_keys * key_s + shape.pool_keys * self.context_s(query_tokens, cores)
