"""Machines as recipes: what data/machines/<name>.toml says, with the figures they all share.

A recipe names how its scale-up and its scale-out network are wired (builders.py knows how to) and
states counts, latencies and efficiencies; what it leaves out is CloudMatrix384's, from
data/fabric.toml. Counts and rates that a person may change are fields of the scenario's supernode;
`as_sold` is what a recipe says they are in the machine that can be bought."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from twin.facts import Fact, Facts
from twin.hardware.chip import HardwareError, load_chip
from twin.scenario import Supernode

FOLDER = "machines"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe with the figures of a chip, SI units. Hashable: the key of what is built from it."""

    name: str
    dies_per_npu: int
    cross_die_bytes_per_s: float
    cpu_bytes_per_s: float
    hop_s: tuple[tuple[str, float], ...]  # link kind -> latency of one hop
    efficiency: tuple[tuple[str, float], ...]  # kind of link or plane -> share that is reached
    # As its file says, or data/fabric.toml where that does not.
    scale_up: str  # builders.SCALE_UP
    scale_out: str  # builders.SCALE_OUT
    layout: str
    cpu_with_dpu: int
    nodes_per_rack: int
    l2_chips_per_rack_and_sub_plane: int  # in one communication rack
    routing: str = "adaptive"
    detour_hops: int = 0
    wired: str = "node"  # what a mesh, torus or dragonfly joins: "npu" ports or L1s of a "node"
    dimensions: tuple[int, ...] = ()  # of it as sold, innermost first
    links: tuple[int, ...] = ()  # parallel links of a die to each switch, or of two neighbours
    racks_across: tuple[int, ...] = ()  # racks of a pod that are wired as a mesh, by dimension
    rack_links: int = 0  # between the switches of two such racks, on one sub-plane
    spine_links: int = 0  # from a rack's switch beyond its pod, on one sub-plane
    further: tuple[Recipe, ...] = ()  # of the further kinds of nodes, in order
    nodes_per_pod: int = 1  # of a rail-optimised network, on one set of leaf switches
    spines: int = 1  # of a pod


def recipe_names(facts: Facts) -> list[str]:
    """Names of all recipes in data/machines, sorted."""
    return facts.names(FOLDER)


@lru_cache(maxsize=64)
def recipe(machine: str, chip_name: str, facts: Facts) -> Recipe:
    """A recipe with the figures of a chip; UB efficiencies measured on that chip replace the
    recipe's. Raises HardwareError listing the known recipes."""
    known_names = recipe_names(facts)
    if machine not in known_names:
        raise HardwareError(
            f"supernode.machine = {machine!r} is neither a recipe nor an imported machine that is "
            f"stored here: take one of {', '.join(known_names)}, or import its file first"
        )
    chip = load_chip(facts, chip_name)
    recipe_facts = facts.group(f"{FOLDER}.{machine}")
    wiring_facts = facts.group("fabric.wiring") | recipe_facts
    efficiencies = _figures("efficiency", recipe_facts, facts) | measured_shares(chip_name, facts)
    return Recipe(
        name=machine,
        dies_per_npu=chip.dies_per_npu,
        cross_die_bytes_per_s=chip.cross_die_bytes_per_s,
        cpu_bytes_per_s=wiring_facts["cpu_ub_bandwidth"].si,
        hop_s=tuple(_figures("hop", recipe_facts, facts).items()),
        efficiency=tuple(sorted(efficiencies.items())),
        **{f.name: wiring_facts[f.name].value for f in fields(Recipe) if f.name in wiring_facts},
    )


def measured_shares(chip: str, facts: Facts) -> dict[str, float]:
    """Shares of nominal rates that a chip's UB links reach, by operation; {} if not measured."""
    fact_path = f"chips.{chip}.link_efficiency"
    efficiency_names = ("npu_read", "cpu_read", "write") if fact_path in facts else ()
    return {name: facts.si(fact_path) for name in efficiency_names}


def _figures(group: str, recipe_facts: dict[str, Fact], facts: Facts) -> dict[str, float]:
    """Figures (SI) of a group such as "hop", by name, from the recipe or data/fabric.toml."""
    figures = {name: fact.si for name, fact in facts.group(f"fabric.{group}").items()}
    for name, fact in recipe_facts.items():
        if name.startswith(group + "."):
            figures[name.removeprefix(group + ".")] = fact.si
    return figures


def as_sold(machine: str, facts: Facts) -> dict[str, Any]:
    """Scenario fields, path -> value, that select this recipe as it is sold, its name included.
    Every field that shapes a machine is set, so that nothing of the previous machine remains."""
    sold_facts = facts.group(f"{FOLDER}.{machine}.sold")
    model_fields = Supernode.model_fields
    value_by_field = {name: model_fields[name].default for name in model_fields if name != "edits"}
    value_by_field |= {name: fact.value for name, fact in sold_facts.items()} | {"machine": machine}
    return {f"supernode.{name}": value for name, value in value_by_field.items()}
