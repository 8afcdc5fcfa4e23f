"""Peaks, the shares of them that operators reach, and the time of one operator.

`Machine` joins a chip's peaks (data/chips) with the efficiencies of published operator tables
(data/operators.toml) and the few fitted constants (data/calibration.toml). It knows nothing about
models or networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from twin.compiled import kernel
from twin.facts import FactError, Facts
from twin.hardware.chip import Chip

FITTED = (
    "comm_fixed",
    "quantise",
    "barrier_round",
    "vector_utilisation",
    "kernel_gap",
    "jitter",
    "copy_engine",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """One die: peaks, efficiencies and fitted constants, SI units.

    `cube_share` and `vector_share` in the methods are the part of the die's cores at work.
    """

    chip: Chip
    family: str
    attention_utilisation: float  # of the FP16 peak, decode attention, compute-bound
    attention_peak: float  # FLOP/s the utilisations above and below refer to
    prefill_attention_utilisation: float
    attention_fixed_s: float  # decode attention core: what it takes beyond its roofs
    attention_roof: float  # of decode's attention core: the power of its soft roofline
    kv_bandwidth_utilisation: float  # of HBM bandwidth, decode attention, memory-bound
    gemm_utilisation: float  # of the peak of the weights' number format
    gemm_bandwidth_utilisation: float  # of HBM bandwidth, weights streamed
    core_bytes_per_cycle: float  # of HBM, what one matrix core draws; 0: not known
    core_flops_per_cycle: float  # INT8, of one matrix core
    gate_token_s: float  # vector time of gating one token on all cores
    vector_utilisation: float  # of HBM bandwidth, element-wise kernels
    prefill_compute_share: float  # cores left to compute while microbatches overlap
    routing_in_stream: bool  # prefill's rows are ordered in the stream that computes
    restoring_passes: float  # over experts' answers, to put them back in order of arrival
    graph_launch_s: float  # host time to launch one graph
    host_gap_s: float  # between iterations, on the host
    host_answer_s: float  # host time to hand out one request's token of an iteration
    message_scale_bytes: float  # beside a quantised token on its way to an expert
    tile_small: float  # rows of a product's tile where all fit in one; 0: no tiles
    tile_large: float  # rows of a tile where they do not
    sum_bytes: float  # of a number of an FFN's first INT8 product, before it is scaled
    fitted: dict[str, float]

    @property
    def beside(self) -> bool:
        """Whether vector cores of their own stand beside the matrix cores."""
        return self.family == "ascend"

    def gemm_flops(self, precision: str, cube_share: float = 1.0) -> float:
        """Sustained FLOP/s of a matrix product on a share of the cube cores."""
        return self.chip.peak(precision) * self.gemm_utilisation * cube_share

    def stream_bytes_per_s(self, cube_share: float = 1.0) -> float:
        """Sustained HBM bandwidth of a matrix product that streams its weights, bytes/s."""
        return self.chip.hbm_bytes_per_s * self.gemm_bandwidth_utilisation * self.pull(cube_share)

    def pull(self, cube_share: float) -> float:
        """Share of the sustained HBM bandwidth that a share of the cores draws: linear, then full.

        All cores together draw all of it, so streams on cores of their own never draw more.
        """
        if self.core_bytes_per_cycle <= 0.0:
            return 1.0
        cycles_per_s = self.chip.peak("int8") / self.core_flops_per_cycle  # of all cores together
        needed = self.chip.hbm_bytes_per_s * self.gemm_bandwidth_utilisation
        needed /= cycles_per_s * self.core_bytes_per_cycle
        return min(1.0, cube_share / min(1.0, needed))

    def slowest(self, dies: int) -> float:
        """Time of the slowest of `dies` that do the same work, over the mean time.

        Each die's time varies by a relative standard deviation of `jitter`; a barrier waits for
        the expected maximum.
        """
        return 1.0 + self.fitted["jitter"] * largest_of(dies)

    def vector_bytes_per_s(self, vector_share: float = 1.0) -> float:
        """Sustained HBM bandwidth of element-wise work on a share of the vector cores."""
        return self.chip.hbm_bytes_per_s * self.vector_utilisation * vector_share


def largest_of(count: int) -> float:
    """Expected maximum of `count` standard normal numbers (Blom's approximation)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def family_of(facts: Facts, chip: str) -> str:
    """Which operator tables a chip uses: its own `family` fact, else by its maker's name."""
    name = f"chips.{chip}.family"
    if name in facts:
        return str(facts[name].value)
    return "ascend" if chip.startswith("ascend") else "nvidia"


def load_machine(facts: Facts, chip: Chip, kernel: str = "fused_mla") -> Machine:
    """Peaks and efficiencies of a chip, with one of its decode attention kernels.

    Raises FactError when the family has no operator table or no figure for that kernel.
    """
    family = family_of(facts, chip.name)
    if family not in facts.names("operators"):
        raise FactError(
            f"chips.{chip.name}.family = {family!r} has no table in data/operators.toml: "
            f"add operators.{family} or take one of {facts.names('operators')}"
        )
    table = f"operators.{family}"
    fitted = {name: facts.si(f"calibration.{name}") for name in FITTED}
    own = f"{table}.vector_bandwidth"  # a family without one is the one that was fitted
    core = f"{table}.core_cycle"  # a family without it shares its cores with no stream
    tile = f"{table}.tile_"  # without it a product computes no more than its rows
    soft = f"{table}.attention_roof"  # a family without it: as every operator (`roof`)
    if f"{table}.kernel_gap" in facts:
        fitted["kernel_gap"] = facts.si(f"{table}.kernel_gap")
    reached = f"{table}.attention_compute.{kernel}"
    if reached not in facts:
        raise FactError(
            f"deployment.optimisations.attention_kernel = {kernel!r} has no figure for "
            f"{chip.title}: take one of {facts.names(f'{table}.attention_compute')}"
        )
    attention_format = str(facts[f"{table}.attention_format"].value)
    return Machine(
        chip=chip,
        family=family,
        attention_utilisation=facts.si(reached),
        attention_peak=chip.peak(attention_format),
        prefill_attention_utilisation=facts.si(f"{table}.prefill_attention_compute"),
        attention_fixed_s=facts.si(f"{table}.attention_fixed"),
        attention_roof=facts.si(soft) if soft in facts else 2.0,
        kv_bandwidth_utilisation=facts.si(f"{table}.attention_bandwidth"),
        gemm_utilisation=facts.si(f"{table}.gemm_compute"),
        gemm_bandwidth_utilisation=facts.si(f"{table}.gemm_bandwidth"),
        core_bytes_per_cycle=facts.si(f"{core}_bytes") if f"{core}_bytes" in facts else 0.0,
        core_flops_per_cycle=facts.si(f"{core}_flops") if f"{core}_flops" in facts else 0.0,
        gate_token_s=facts.si(f"{table}.gate_token") / chip.clock,
        vector_utilisation=facts.si(own) if own in facts else fitted["vector_utilisation"],
        prefill_compute_share=facts.si(f"{table}.prefill_compute_share"),
        routing_in_stream=bool(facts[f"{table}.routing_in_stream"].value),
        restoring_passes=facts.si(f"{table}.restoring_passes"),
        graph_launch_s=facts.si(f"{table}.graph_launch"),
        host_gap_s=facts.si(f"{table}.host_gap"),
        host_answer_s=facts.si(f"{table}.host_answer"),
        message_scale_bytes=facts.si(f"{table}.message_scale"),
        tile_small=facts.si(tile + "small") if tile + "small" in facts else 0.0,
        tile_large=facts.si(tile + "large") if tile + "large" in facts else 0.0,
        sum_bytes=facts.si(f"{table}.sum_bytes"),
        fitted=fitted,
    )


@kernel
def roof(computing: float, moving: float) -> float:
    """Seconds of an operator that would compute and move data for so long if alone, seconds.

    The soft roofline: far from the ridge the longer counts, near it the two hinder each other
    (tiles are fetched and used in turn), by the square root of the sum of squares.
    """
    return math.sqrt(computing * computing + moving * moving)


@kernel
def interpolate(x: float, xs: np.ndarray, ys: np.ndarray) -> float:
    """y at x on the polyline through (xs, ys), f8[G] with xs ascending; clamped at both ends."""
    last = xs.shape[0] - 1
    if last < 0:
        return 1.0
    if x <= xs[0]:
        return ys[0]
    for i in range(last):
        if x <= xs[i + 1]:
            return ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i])
    return ys[last]
