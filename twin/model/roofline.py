"""Peaks, the shares of them that operators reach, and the time of one operator. `Machine` joins a
chip's peaks (data/chips) with efficiencies of published operator tables (data/operators.toml) and
the few fitted constants (data/calibration.toml)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from twin.facts import Fact, FactError, Facts
from twin.hardware.chip import Chip, load_chip
from twin.kernels.compiled import kernel
from twin.model.formats import kernels_of, product_format
from twin.model.shape import ModelError

MEASURED_KERNEL = "fused_mla"  # of decode attention, in tables of chips
NO_EFFICIENCY = ("exchange", "collective", "eager")  # of a chip's tables: networks, and its host
PLAIN = "plain"  # the machine's own figures, no stack's
# Facts about a stack that are none of its figures.
ABOUT = ("base", "release", "family", "kernels", "of_chip", "month")
# Figures of an Efficiency by their names in a chip's tables, and what is a text there.
TEXTS = ("peak", "serves")
FIGURES = {n: n for n in ("compute", "bandwidth", "tile_small", "tile_large", "power", "edge")}
FIGURES |= {"start_s": "start", "row_bytes": "row", "each_s": "each"}
ALL_MODELS = "all"
LATEST = "latest"  # release of a kernel library; after any month as text


def from_fact(fact: str, without: float | None = None) -> Any:
    """A dataclass field with the value of a `fact` of the chip's family in data/operators.toml;
    without: its value if there is no such fact (None: FactError)."""
    return field(metadata={"fact": fact, "without": without})


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of a die's peaks that an operator reaches, and seconds of a call besides these."""

    compute: float  # share of the peak of its number format
    bandwidth: float  # share of HBM's
    tile_small: float = 0.0  # rows of a product's tile where all fit in one; 0: no tiles
    tile_large: float = 0.0  # rows of a tile where they do not
    start_s: float = 0.0  # of one call, with its launches
    power: float = 2.0  # by which attention's computing and reading add up (2: see `roofline_s`)
    peak: str = ""  # number format that attention computes in
    edge: float = 0.0  # query-key pairs that a token of a prompt takes beyond its own
    row_bytes: float = 0.0  # for each number of an expert's answer, after its products
    each_s: float = 0.0  # for each expert of a die, whether it has rows or not
    serves: str = ALL_MODELS  # or the kind of attention of models that a kernel for experts is for


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One die, or a share of its cores: peaks, efficiencies and fitted constants, SI units.
    `cube_share` and `vector_share` in the methods are the working part of these cores."""

    chip: Chip
    family: str
    fitted: dict[str, float]
    reaches: dict[str, Efficiency]  # by operator and format, "gemm.fp8": as measured on this chip
    cores: float = 1.0  # share of the die's cores, cube and vector, that an instance has
    hbm: float = 1.0  # share of the sustained HBM bandwidth that is there for it
    attention_peak: float  # FLOP/s that the next refers to
    prefill_attention_utilisation: float = from_fact("prefill_attention_compute")
    gemm_utilisation: float = from_fact("gemm_compute")  # of the peak of the weights' number format
    gemm_bandwidth_utilisation: float = from_fact("gemm_bandwidth")  # of HBM, weights streamed
    core_bytes_per_cycle: float = 0.0  # of HBM, what a matrix core draws; 0: unknown
    core_flops_per_cycle: float = 0.0  # INT8, of one matrix core
    gate_token_s: float = from_fact("gate_token")  # vector time of gating one token on all cores
    gate_many_s: float = from_fact("gate_many", 0.0)  # the same of each token beyond `gate_beyond`
    gate_beyond: float = from_fact("gate_beyond", 0.0)  # tokens of a die; 0: all take as long
    # Of a choice of experts by groups that is no single kernel; experts of a group for which it is.
    choice_s: float = from_fact("choice", 0.0)
    choice_groups: tuple[int, ...] = ()
    choice_host_s: float = from_fact("choice_host", 0.0)  # of its launches one by one, beyond one
    vector_utilisation: float = from_fact("vector_bandwidth", 0.0)  # of HBM, element-wise kernels
    prefill_compute_share: float = from_fact("prefill_compute_share")  # cores left during transfers
    routing_in_stream: float = from_fact("routing_in_stream")  # 1: rows are sorted where computed
    restoring_passes: float = from_fact("restoring_passes")  # over answers, to restore their order
    # Seconds of a kernel in a pass of decode or of prompts, over those of the kernel alone.
    in_decode: float = from_fact("in_network.decode", 1.0)
    in_prefill: float = from_fact("in_network.prefill", 1.0)
    graph_launch_s: float = from_fact("graph_launch")  # host time to launch one graph
    host_gap_s: float = from_fact("host_gap")  # between iterations, on the host
    prompt_gap_s: float = from_fact("prompt_gap", 0.0)  # before a pass with prompts, on the host
    host_answer_s: float = from_fact("host_answer")  # host time to hand out one request's token
    works_ahead: float = from_fact("works_ahead", 1.0)  # 1: hosts agree and answer meanwhile
    rank_sync_s: float = from_fact("rank_sync", 0.0)  # of this, for each further rank
    replay_gap_s: float = from_fact("replay_gap", 0.0)  # NPU idle before each graph
    host_spread_s: float = from_fact("host_spread", 0.0)  # standard deviation of ranks' starts
    stage_gap_s: float = from_fact("stage_gap", 0.0)  # idle before each stage of a pipeline
    draft_graphs: float = from_fact("draft_graphs", 0.0)  # at most, besides the one that verifies
    layer_host_s: float = from_fact("layer_host", 0.0)  # host work for a layer of a captured pass
    kernel_launch_s: float = from_fact("kernel_launch", 0.0)  # of a pass that was not captured
    int8_start_s: float = from_fact("product_start.int8", 0.0)  # of one product, beyond kernel_gap
    bf16_start_s: float = from_fact("product_start.bf16", 0.0)
    linear_start_s: float = from_fact("linear_start", 0.0)  # of linear attention's kernels
    linear_bandwidth: float = from_fact("linear_bandwidth", 0.0)  # of HBM, its states
    linear_prompts: float = from_fact("linear_prompts", 0.0)  # of the BF16 peak, prompts in chunks
    linear_chain_s: float = from_fact("linear_chain", 0.0)  # there, a token, whatever the heads
    indexer_start_s: float = from_fact("indexer_start", 0.0)  # of the kernel that selects
    compressed_start_s: float = from_fact("compressed_start", 0.0)  # over compressed keys
    selection_start_s: float = from_fact("selection_start", 0.0)  # there, of more than it selects
    index_token_s: float = from_fact("index_token", 0.0)  # of the indexer, a token of a prompt
    streams_start_s: float = from_fact("streams_start", 0.0)  # of mixing a layer's residual streams
    sparse_start_s: float = from_fact("sparse_start", 0.0)  # of the core over what it selected
    sparse_alone: float = from_fact("sparse_alone", 0.0)  # 1: a core has a query token to itself
    # 1: prompts of any length go through the sparse kernel, only selected places are computed
    sparse_every: float = from_fact("sparse_every", 0.0)
    sparse_token_s: float = from_fact("sparse_token", 0.0)  # of a core, before a token's places
    sparse_prompts: float = from_fact("sparse_prompts", 0.0)  # 1: short ones too, with all places
    sparse_longer: float = from_fact("sparse_longer", 0.0)  # 1: those longer than it selects do
    sparse_split: float = from_fact("sparse_split", 0.0)  # 1: dies of a rank split mixed prompts
    sparse_heads: float = from_fact("sparse_heads", 0.0)  # that its kernel computes together
    sparse_prompt_heads: float = from_fact("sparse_prompt_heads", 0.0)  # of prompts, if more
    sparse_prompt_from: float = from_fact("sparse_prompt_from", 0.0)  # heads of a die, at least
    launched_singly: float = from_fact("launched_singly", 0.0)  # share of passes with prompts
    prompt_sums: float = from_fact("prompt_sums", 0.0)  # 1: ranks with prompts gather by sums
    prompts_apart: float = from_fact("prompts_apart", 0.0)  # 1: passes with prompts have no answers
    # Host work for a layer that is launched kernel by kernel, as far as it is known: "moe" of its
    # experts, "dense" of a dense FFN, and of all else by the kernels of its attention.
    eager_layer_s: dict[str, float] = field(default_factory=dict)
    sampling_logit_s: float = from_fact("sampling_logit", 0.0)  # of a logit; 0: bytes that move
    # Of a layer, that no operator has: by kind of attention, and what an indexer has besides.
    small_kernels: dict[str, float] = field(default_factory=dict)
    decode_kernels: float = from_fact("decode_kernels", 0.0)  # of a layer, launched one by one
    prefill_kernels: float = from_fact("prefill_kernels", 0.0)
    dense_decode_kernels: float = from_fact("dense_decode_kernels", 0.0)  # of plain dense layers
    gqa_decode_kernels: float = from_fact("gqa_decode_kernels", 0.0)  # of GQA with experts
    dense_prefill_kernels: float = from_fact("dense_prefill_kernels", 0.0)
    linear_prefill_kernels: float = from_fact("linear_prefill_kernels", 0.0)  # of its core, more
    index_kernels: float = from_fact("index_kernels", 0.0)  # of a layer that selects, besides those
    prefill_fused: float = from_fact("prefill_fused", 1.0)  # 0: all-to-all, whatever decode does
    captured_tokens: float = from_fact("captured_tokens", 0.0)  # of a rank; 0: any number
    captured_prompts: float = from_fact("captured_prompts", 0.0)  # with prompts; 0: no such pass
    message_scale_bytes: float = from_fact("message_scale")  # sent with a quantised token
    tile_small: float = from_fact("tile_small", 0.0)  # rows of a tile where all fit; 0: no tiles
    tile_large: float = from_fact("tile_large", 0.0)  # rows of a tile where they do not
    sum_bytes: float = from_fact("sum_bytes")  # of a number of an FFN's first INT8 product

    def for_model(self, attention: str, weights: str) -> "Machine":
        """This machine for models with a kind of attention and a number format of weights. Without
        latent attention, and where it was measured, products in this format have the kernel with
        one scale per tensor (`gemm_gqa`) instead of one per block, as NVIDIA's checkpoints do."""
        per_tensor_efficiency = self.reaches.get(f"gemm_gqa.{weights}")
        if per_tensor_efficiency is None or attention == "mla":
            return self
        return replace(self, reaches=self.reaches | {f"gemm.{weights}": per_tensor_efficiency})

    def product_efficiency(self, fmt: str, operator: str = "gemm") -> Efficiency:
        """Efficiency of matrix products with weights in number format `fmt`: as measured, otherwise
        the family's. operator: "gemm"; for experts "grouped" (decode) or "contiguous" (prefill)."""
        computed_format = product_format(fmt)
        measured = self.reaches.get(f"contiguous.{computed_format}")
        if operator == "contiguous" and measured:
            # The host's part of a start is that of a pass that is launched kernel by kernel.
            start_s = measured.start_s or self.product_efficiency(fmt, "grouped").start_s
            return replace(measured, start_s=start_s)
        kernel_gap_s = self.fitted["kernel_gap"]
        format_s = {"int8": self.int8_start_s, "bf16": self.bf16_start_s}.get(computed_format, 0.0)
        return self.measured_efficiency(operator, fmt) or Efficiency(
            self.gemm_utilisation,
            self.gemm_bandwidth_utilisation,
            self.tile_small,
            self.tile_large,
            kernel_gap_s + format_s if operator == "gemm" else 2 * (kernel_gap_s + format_s),
        )

    def measured_efficiency(self, operator: str, fmt: str) -> Efficiency | None:
        """Efficiency of an operator as measured on this chip for weights in number format `fmt`:
        with that format's kernels, else with those of the format it computes in; None: not
        measured."""
        format_names = dict.fromkeys((kernels_of(fmt), product_format(fmt)))
        efficiencies = (self.reaches.get(f"{operator}.{name}") for name in format_names)
        return next((efficiency for efficiency in efficiencies if efficiency is not None), None)

    def attention_efficiency(self, kv: str, kind: str = "mla") -> Efficiency:
        """Efficiency of decode's attention core. kv: number format of KV; kind: `mla`, `gqa` or
        `latent` (MLA attending to all its context). Unmeasured kinds have that of `attention`."""
        kv_format = "bf16" if kv == "bf16" else "8bit"
        return self.reaches.get(f"{kind}.{kv_format}") or self.reaches[f"attention.{kv_format}"]

    def prompt_efficiency(self, kv: str, kind: str) -> Efficiency:
        """Efficiency of prefill's attention core; kv: number format of KV; kind: `mla` or `gqa`."""
        table_key = f"prefill_{kind}.{'bf16' if kv == 'bf16' else '8bit'}"
        return self.reaches.get(table_key) or Efficiency(self.prefill_attention_utilisation, 1.0)

    def gemm_flops(self, precision: str, cube_share: float = 1.0, operator: str = "gemm") -> float:
        """Sustained FLOP/s of a matrix product with weights in the number format `precision`."""
        compute_share = self.product_efficiency(precision, operator).compute
        return self.chip.peak(product_format(precision)) * compute_share * cube_share * self.cores

    def stream_bytes_per_s(
        self, cube_share: float = 1.0, fmt: str = "", operator: str = "gemm"
    ) -> float:
        """Sustained bytes/s from HBM of a matrix product that streams weights of format `fmt`."""
        return self.read_bytes_per_s(self.product_efficiency(fmt, operator).bandwidth, cube_share)

    def read_bytes_per_s(self, bandwidth: float, cube_share: float) -> float:
        """Bytes/s of an operator that reaches the share `bandwidth` of the HBM's bytes/s."""
        return self.chip.hbm_bytes_per_s * bandwidth * self.drawn_share(cube_share)

    def drawn_share(self, cube_share: float) -> float:
        """Share of the sustained HBM bandwidth that this share of the cores draws: it grows
        linearly up to 1. Streams on separate cores never draw more than other streams leave them;
        where a chip has too few cores, all cores draw less than its HBM gives. If the draw of a
        core is unknown, it is the share of cores."""
        granted_share = min(1.0, self.hbm / self._drawn_share_alone(self.cores))
        return self._drawn_share_alone(cube_share * self.cores) * granted_share

    def _drawn_share_alone(self, share: float) -> float:
        """Share of HBM bandwidth that a share of the cores draws when other cores draw nothing."""
        if self.core_bytes_per_cycle <= 0.0:
            return share
        cycles_per_s = self.chip.peak("int8") / self.core_flops_per_cycle  # of all cores together
        sustained_bytes_per_s = self.chip.hbm_bytes_per_s * self.gemm_bandwidth_utilisation
        saturating_share = sustained_bytes_per_s / (cycles_per_s * self.core_bytes_per_cycle)
        return min(1.0, share / saturating_share)

    def copy_speed_share(self, vector_share: float) -> float:
        """Share of full copy speed on a share of vector cores: half of them fill a port (UBEP)."""
        return min(1.0, vector_share * self.cores / 0.5)

    def slowest_over_mean(self, dies: int) -> float:
        """Expected time of the slowest of `dies` with equal work, divided by the mean die's. A time
        varies by a relative standard deviation of `jitter`; a barrier waits for the slowest."""
        return 1.0 + self.fitted["jitter"] * max_of_normals(dies)

    def vector_bytes_per_s(self, vector_share: float = 1.0) -> float:
        """Sustained HBM bytes/s of element-wise work on a share of the vector cores."""
        return self.chip.hbm_bytes_per_s * self.vector_utilisation * vector_share * self.cores


def max_of_normals(count: int) -> float:
    """Expected maximum of `count` standard normal numbers (Blom's approximation)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def family_of(facts: Facts, chip: str) -> str:
    """Chip family whose operator tables a chip has: its `family` fact, otherwise by its maker."""
    return facts.word(f"chips.{chip}.family", "ascend" if chip.startswith("ascend") else "nvidia")


def chip_of_tables(facts: Facts, chip: str, what: str = "operators") -> str:
    """Name of the chip whose measured tables a chip uses: the one that `operators_of` in data/chips
    names, otherwise itself. For the table "exchange" (what) that of `exchange_of` comes first."""
    return facts.word(f"chips.{chip}.{what}_of", facts.word(f"chips.{chip}.operators_of", chip))


def stack_facts(facts: Facts, stack: str, table: str = "stacks") -> dict[str, Fact]:
    """Facts of a stack, or else of its base, in a table, by name of the fact that each replaces."""
    own_facts = facts.group(f"{table}.{stack}")
    base = own_facts.get("base")  # a stack that this one builds on
    own_facts = {fact_name: fact for fact_name, fact in own_facts.items() if fact_name not in ABOUT}
    return own_facts if base is None else stack_facts(facts, str(base.value), table) | own_facts


def kernel_facts(facts: Facts, stack: str, chip: str) -> dict[str, Fact]:
    """Efficiency of a chip's operators with a stack's kernel libraries, by the name of the
    `operators` fact that each replaces. A stack names its `kernels` and the `month` of its release;
    a chip has facts of each library up to some months. The first facts of a month not before the
    stack's are used, and the latest (LATEST) if the stack names no month. A stack with a base has
    the base's libraries, except for what `of_chip` names (chip.operator): that is the chip's."""
    stack_entries = facts.group(f"stacks.{stack}")
    if "kernels" not in stack_entries:
        if "base" not in stack_entries:
            return {}
        base_facts = kernel_facts(facts, str(stack_entries["base"].value), chip)
        chip_paths = tuple(stack_entries["of_chip"].value) if "of_chip" in stack_entries else ()
        return {
            name: fact for name, fact in base_facts.items()
            if not name.removeprefix("chips.").replace(".operators", "", 1).startswith(chip_paths)
        }  # fmt: skip
    release_month = str(stack_entries["month"].value) if "month" in stack_entries else LATEST
    kernel_table: dict[str, Fact] = {}
    measured_chip = chip_of_tables(facts, chip)
    for library in stack_entries["kernels"].value:
        library_path = f"chips.{measured_chip}.kernels.{library}"
        for library_month in [
            released for released in facts.names(library_path) if released >= release_month
        ][:1]:
            kernel_table |= facts.group(f"{library_path}.{library_month}")
    return {f"chips.{measured_chip}.operators.{name}": fact for name, fact in kernel_table.items()}


@lru_cache(maxsize=16)
def facts_of_stack(facts: Facts, stack: str, chip: str) -> Facts:
    """The facts, with a serving stack's (data/stacks.toml) in place of the machine's: host times,
    starts of its kernels; units stay. ModelError: the stack is unknown or for other chips."""
    if stack == PLAIN:
        return facts
    if not facts.group(f"stacks.{stack}"):
        known_stacks = ", ".join([PLAIN, *facts.names("stacks")])
        raise ModelError(
            f"deployment.stack = {stack!r} is not in data/stacks.toml: take {known_stacks}"
        )
    own_facts, family = stack_facts(facts, stack), family_of(facts, chip)
    other_families = {path.split(".")[1] for path in own_facts if path.startswith("operators.")}
    other_families |= {facts.word(f"stacks.{stack}.family", family)}
    other_families -= {family}
    if other_families:
        raise ModelError(
            f"deployment.stack = {stack!r} has figures of {min(other_families)} chips and says "
            f"nothing of {chip}: take {PLAIN}, or another supernode.chip"
        )
    return facts.replaced(
        {path: replace(fact, unit=facts[path].unit) for path, fact in own_facts.items()}
        | kernel_facts(facts, stack, chip)
    )


def _efficiencies(
    facts: Facts, chip: Chip, table: str, kernel: str, gap: float
) -> dict[str, Efficiency]:
    """Shares of a die's peaks that operators reach, by "operator.format": as measured on the chip
    (data/chips); for attention otherwise as on its family (data/operators.toml). table: name of the
    family's facts; kernel: of attention; gap: seconds between two kernels. Raises FactError when
    the family has no figure for that kernel."""
    kernel_fact = f"{table}.attention_compute.{kernel}"
    if kernel_fact not in facts:
        raise FactError(
            f"deployment.optimisations.attention_kernel = {kernel!r} has no figure for "
            f"{chip.title}: take one of {facts.names(f'{table}.attention_compute')}"
        )
    family_efficiency = Efficiency(
        facts.si(kernel_fact),
        facts.si(f"{table}.attention_bandwidth"),
        start_s=gap + facts.si(f"{table}.attention_fixed"),
        power=facts.si(f"{table}.attention_roof", 2.0),
        peak=str(facts[f"{table}.attention_format"].value),
    )
    efficiencies = {"attention.bf16": family_efficiency, "attention.8bit": family_efficiency}
    measured_path = f"chips.{chip_of_tables(facts, chip.name)}.operators"
    for operator in facts.names(measured_path):
        if operator in NO_EFFICIENCY or (operator == "attention" and kernel != MEASURED_KERNEL):
            continue
        operator_table = f"{measured_path}.{operator}"
        for fmt in facts.names(operator_table):
            entry, format_facts = f"{operator}.{fmt}", facts.group(f"{operator_table}.{fmt}")
            if "compute" not in format_facts:  # a start alone: its rates are the family's
                efficiencies[entry] = replace(family_efficiency, start_s=format_facts["start"].si)
                continue
            figure_of = {name: figure for name, figure in FIGURES.items() if figure in format_facts}
            fields: dict[str, Any] = {n: format_facts[figure].si for n, figure in figure_of.items()}
            fields |= {n: str(format_facts[n].value) for n in TEXTS if n in format_facts}
            efficiencies[entry] = Efficiency(**{"bandwidth": 1.0, **fields})
    return efficiencies


def load_machine(
    facts: Facts, chip: Chip, kernel: str = "fused_mla", cores: float = 1.0, hbm: float = 1.0
) -> Machine:
    """Peaks and efficiencies of a die. kernel: of decode attention; cores, hbm: shares of the die's
    cores and of its sustained HBM bandwidth. Raises FactError when the family lacks the figures."""
    family = family_of(facts, chip.name)
    cycle_path = f"chips.{chip_of_tables(facts, chip.name)}.core_cycle"
    if family not in facts.names("operators"):
        raise FactError(
            f"chips.{chip.name}.family = {family!r} has no table in data/operators.toml: "
            f"add operators.{family} or take one of {facts.names('operators')}"
        )
    prefix = f"operators.{family}"
    groups_path = f"{prefix}.choice_groups"
    fitted = {constant: fact.si for constant, fact in facts.group("calibration").items()}
    fitted["kernel_gap"] = facts.si(f"{prefix}.kernel_gap", fitted["kernel_gap"])
    figures = {
        member.name: facts.si(f"{prefix}.{member.metadata['fact']}", member.metadata["without"])
        for member in fields(Machine)
        if member.metadata
    }
    figures["gate_token_s"] /= chip.clock * cores
    figures["gate_many_s"] /= chip.clock * cores
    figures["vector_utilisation"] = figures["vector_utilisation"] or fitted["vector_utilisation"]
    return Machine(
        chip=chip,
        family=family,
        fitted=fitted,
        reaches=_efficiencies(facts, chip, prefix, kernel, fitted["kernel_gap"]),
        core_bytes_per_cycle=facts.si(f"{cycle_path}_bytes", 0.0),
        core_flops_per_cycle=facts.si(f"{cycle_path}_flops", 0.0),
        cores=cores,
        hbm=hbm,
        attention_peak=chip.peak(str(facts[f"{prefix}.attention_format"].value)) * cores,
        eager_layer_s=_eager_layer_s(facts, chip, prefix, figures["launched_singly"]),
        choice_groups=tuple(facts[groups_path].value) if groups_path in facts else (),
        small_kernels={k: fact.si for k, fact in facts.group(f"{prefix}.small_kernels").items()},
        **figures,
    )


def _eager_layer_s(facts: Facts, chip: Chip, prefix: str, share: float) -> dict[str, float]:
    """Host seconds to launch a layer kernel by kernel, for each part of the layer
    (`Machine.eager_layer_s`), times `share`: the share of passes with prompts that are launched so.
    prefix: name of the family's facts. Returns {} if the chip's host was not measured."""
    measured_path = f"chips.{chip_of_tables(facts, chip.name)}.operators.eager"
    if share <= 0.0 or f"{measured_path}.mla.host" not in facts:
        return {}
    attention_s = facts.si(f"{measured_path}.mla.host")
    part_names = facts.names(f"{prefix}.eager_layer")
    part_host_s = {
        name: attention_s * facts.si(f"{prefix}.eager_layer.{name}") for name in part_names
    }
    part_host_s["moe"] = facts.si(f"{measured_path}.moe.host")
    return {name: share * part_s for name, part_s in part_host_s.items()}


@kernel
def roofline_s(computing: float, moving: float) -> float:
    """Seconds of an operator that takes `computing` s if it only computes and `moving` s if it only
    moves bytes: the root of the sum of squares. In this soft roofline the longer time counts far
    from the ridge; near it the two hinder each other (tiles are fetched and used in turn)."""
    return math.sqrt(computing * computing + moving * moving)


@kernel
def interpolate(x: float, xs: np.ndarray, ys: np.ndarray, first: int = 0) -> float:
    """y at x on a polyline of rising xs f8[G] and of ys[first:], constant beyond; 1 if G is 0."""
    last_index = xs.shape[0] - 1
    if last_index < 0:
        return 1.0
    if x <= xs[0]:
        return ys[first]
    for i in range(last_index):
        if x <= xs[i + 1]:
            left_value, right_value = ys[first + i], ys[first + i + 1]
            return left_value + (right_value - left_value) * (x - xs[i]) / (xs[i + 1] - xs[i])
    return ys[first + last_index]


def laid_out_bytes_per_s(facts: Facts, chips: Sequence[str], held_kv: float) -> float:
    """Bytes/s at which a decode die writes received KV anew, because prefill's KV has another
    format or its chip's family wants other blocks; inf if neither is so. held_kv: bytes of decode's
    KV divided by prefill's. Each received byte is read, and its new form written (vLLM's NIXL
    connector: vllm-project/vllm pull requests 26556 and 30275)."""
    if held_kv == 1.0 and len({family_of(facts, chip) for chip in chips}) == 1:
        return math.inf
    machine = load_machine(facts, load_chip(facts, chips[-1]))
    return machine.vector_bytes_per_s() / (1.0 + held_kv)
