"""Machines as recipes: what data/machines/<name>.toml says, with the figures they all share.

A recipe names how its scale-up and its scale-out network are wired (builders.py knows how to) and
states counts, latencies and efficiencies; what it leaves out is CloudMatrix384's, from
data/fabric.toml. Counts and rates that a person may change are fields of the scenario's supernode;
`as_sold` is what a recipe says they are in the machine that can be bought.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from twin.facts import Fact, Facts
from twin.hardware.chip import HardwareError, load_chip
from twin.scenario import Supernode

FOLDER = "machines"


@dataclass(frozen=True)
class Recipe:
    """A recipe with the figures of a chip, SI units. Hashable: the key of what is built from it."""

    name: str
    scale_up: str  # builders.SCALE_UP
    scale_out: str  # builders.SCALE_OUT
    layout: str
    routing: str
    detour_hops: int
    wired: str  # what a mesh, torus or dragonfly joins: "npu" ports or the L1 switches of a "node"
    dimensions: tuple[int, ...]  # of it as sold, innermost first
    links: tuple[int, ...]  # parallel links of a die to each switch, or of two neighbours
    racks_across: tuple[int, ...]  # racks of a pod that are wired as a mesh, by dimension
    rack_links: int  # between the switches of two such racks, on one sub-plane
    spine_links: int  # from a rack's switch beyond its pod, on one sub-plane
    dies_per_npu: int
    cross_die_bytes_per_s: float
    cpu_bytes_per_s: float
    cpu_with_dpu: int
    nodes_per_rack: int
    l2_step: int  # L2 chips of a sub-plane in one communication rack
    nodes_per_pod: int  # of a rail-optimised network, on one set of leaf switches
    spines: int  # of a pod
    hop_s: tuple[tuple[str, float], ...]  # link kind -> latency of one hop
    efficiency: tuple[tuple[str, float], ...]  # kind of link or plane -> share that is reached


def recipe_names(facts: Facts) -> list[str]:
    """Names of all recipes in data/machines, sorted."""
    return facts.names(FOLDER)


@lru_cache(maxsize=64)
def recipe(machine: str, chip_name: str, facts: Facts) -> Recipe:
    """A recipe with the figures of a chip, which may replace the measured UB efficiencies.

    Raises HardwareError listing the known recipes.
    """
    known = recipe_names(facts)
    if machine not in known:
        raise HardwareError(
            f"supernode.machine = {machine!r} is neither a recipe nor an imported machine that is "
            f"stored here: take one of {', '.join(known)}, or import its file first"
        )
    chip = load_chip(facts, chip_name)
    own = facts.group(f"{FOLDER}.{machine}")
    said = {k: f.value for k, f in own.items()}
    wiring = {k: f.value for k, f in facts.group("fabric.wiring").items()} | said
    efficiency = _merged("efficiency", own, facts)
    measured = f"chips.{chip.name}.link_efficiency"
    if measured in facts:
        efficiency |= dict.fromkeys(("npu_read", "cpu_read", "write"), facts.si(measured))
    cpu = own.get("cpu_ub_bandwidth", facts["fabric.wiring.cpu_ub_bandwidth"])
    return Recipe(
        name=machine,
        scale_up=said["scale_up"],
        scale_out=said["scale_out"],
        layout=said["layout"],
        routing=said.get("routing", "adaptive"),
        detour_hops=int(said.get("detour_hops", 0)),
        wired=said.get("wired", "node"),
        dimensions=tuple(said.get("dimensions", ())),
        links=tuple(said.get("links", ())),
        racks_across=tuple(said.get("racks_across", ())),
        rack_links=int(said.get("rack_links", 0)),
        spine_links=int(said.get("spine_links", 0)),
        dies_per_npu=chip.dies_per_npu,
        cross_die_bytes_per_s=chip.cross_die_bytes_per_s,
        cpu_bytes_per_s=cpu.si,
        cpu_with_dpu=int(wiring["cpu_with_dpu"]),
        nodes_per_rack=int(wiring["nodes_per_rack"]),
        l2_step=int(wiring["l2_chips_per_rack_and_sub_plane"]),
        nodes_per_pod=int(said.get("nodes_per_pod", 1)),
        spines=int(said.get("spines", 1)),
        hop_s=tuple(_merged("hop", own, facts).items()),
        efficiency=tuple(sorted(efficiency.items())),
    )


def _merged(group: str, own: dict[str, Fact], facts: Facts) -> dict[str, float]:
    """Figures of a group by name: of the fabric's, and of the recipe where it has its own."""
    head = group + "."
    mine = {k.removeprefix(head): f.si for k, f in own.items() if k.startswith(head)}
    return {name: fact.si for name, fact in facts.group(f"fabric.{group}").items()} | mine


def as_sold(machine: str, facts: Facts) -> dict[str, Any]:
    """Fields of a scenario by dotted path that make it this recipe as it is sold; itself included.

    Every field that shapes a machine is there, so that nothing is left of the one before.
    """
    known = facts.group(f"{FOLDER}.{machine}.sold")
    shaping = {k: f.default for k, f in Supernode.model_fields.items() if k != "edits"}
    values = shaping | {k: f.value for k, f in known.items()} | {"machine": machine}
    return {f"supernode.{name}": value for name, value in values.items()}
