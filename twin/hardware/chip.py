"""The accelerator package and its dies: peaks and capacities, as published.

A `Chip` is data/chips/<name>.toml in SI units, one value per *die* wherever a die has its own
share. A die is an expert-parallel rank; a package ("NPU") holds one or more. How much of a peak an
operator reaches is in model/roofline.py, how packages are wired in hardware/fabric.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from twin.facts import FactError, Facts


class HardwareError(ValueError):
    """An impossible machine: one sentence naming what, where and what would be right."""


@dataclass(frozen=True)
class Chip:
    """One accelerator package; every figure is per die unless its name says otherwise."""

    name: str
    title: str
    dies_per_npu: int
    cube_cores: int  # matrix cores (AIC; SMs on other makes)
    vector_cores: int  # vector cores (AIV; SMs on other makes)
    hbm_bytes_per_die: float
    hbm_bytes_per_s: float
    cross_die_bytes_per_s: float  # one direction between two dies of a package; 0: one die
    flops: Mapping[str, float]  # precision -> dense FLOP/s (OP/s for integers)
    clock: float = 1.0  # of its cores, as a share of the rated one

    def peak(self, precision: str, weights: str = "") -> float:
        """Dense peak of one die in FLOP/s for the number format `precision`; raises HardwareError
        if the chip lacks it. weights, for that message: format of the weights that needs
        `precision`."""
        if precision not in self.flops:
            reason = f", which {weights} needs" if weights not in ("", precision) else ""
            raise HardwareError(
                f"{self.title} computes {', '.join(sorted(self.flops))}, not {precision}{reason}: "
                "choose one of these as deployment.precision.weights, or as "
                "deployment.precision.prefill_weights"
            )
        return self.flops[precision] * self.clock


@lru_cache(maxsize=16)
def load_chip(facts: Facts, name: str) -> Chip:
    """The chip of that name; raises HardwareError listing the known ones."""
    known_chips = facts.names("chips")
    if name not in known_chips:
        chip_names = ", ".join(known_chips)
        raise HardwareError(f"supernode.chip = {name!r} is not known: take one of {chip_names}")
    path = f"chips.{name}"
    dies_per_npu = facts.count(f"{path}.dies_per_npu")
    if dies_per_npu < 1:
        raise FactError(f"fact {path}.dies_per_npu must be at least 1")
    return Chip(
        name=name,
        title=str(facts[f"{path}.title"].value),
        dies_per_npu=dies_per_npu,
        cube_cores=facts.count(f"{path}.cube_cores"),
        vector_cores=facts.count(f"{path}.vector_cores"),
        hbm_bytes_per_die=facts.si(f"{path}.hbm_capacity"),
        hbm_bytes_per_s=facts.si(f"{path}.hbm_bandwidth"),
        cross_die_bytes_per_s=facts.si(f"{path}.cross_die_bandwidth") if dies_per_npu > 1 else 0.0,
        flops={key: facts.si(f"{path}.flops.{key}") for key in facts.group(f"{path}.flops")},
    )
