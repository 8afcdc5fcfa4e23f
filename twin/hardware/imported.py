"""A machine that came from a file: a value, named by the digest of its content.

The core opens no store: `set_source` says where machines are kept, and `plan_of` looks there for
what a scenario names. How a file becomes a machine stands in machine_file.py."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from twin.facts import Facts
from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.network import Plan
from twin.hardware.recipes import measured_shares
from twin.scenario import Supernode
from twin.scenario.words import numbered

if TYPE_CHECKING:
    from twin.hardware.graph_text import LinkRows, Rows

UNSTATED = {
    "beyond_node": 1.0, "routing": "adaptive", "detour_hops": 0, "layout": "free",
    "l2_chips_per_sub_plane": 0,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ImportedMachine:
    """Vertices and directed links with their attributes, in canonical order."""

    name: str  # for people; not part of what it is
    about: Mapping[str, Any]  # attributes of the graph
    vertices: Rows
    links: LinkRows

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of attributes, vertices and links: equal for equal machines."""
        contents = [dict(sorted(self.about.items())), self.vertices, self.links]
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()

    @property
    def routing(self) -> str:
        """Name of the rule that splits traffic over paths, a key of scenario.ROUTINGS."""
        return str(self.about.get("routing", UNSTATED["routing"]))

    def with_routing(self, routing: str) -> ImportedMachine:
        """Returns the machine with another routing rule, or itself if the rule is the same."""
        if routing == self.routing:
            return self
        return replace(self, about={**self.about, "routing": routing})

    @property
    def npus(self) -> int:
        """Number of NPU packages."""
        return len({(die["node"], die["npu"]) for _, die in self.vertices if die["kind"] == "die"})

    @property
    def dies_per_npu(self) -> int:
        """Largest number of dies of an NPU package, among packages that state no chip; among all
        packages if each states one."""
        die_data = [data for _, data in self.vertices if data["kind"] == "die"]
        dies_without_chip = [data for data in die_data if "chip" not in data]
        return 1 + max(data["die"] for data in dies_without_chip or die_data)

    @property
    def die_counts_by_chip(self) -> dict[str, set[int]]:
        """For each chip that dies state: the set of die counts of its NPU packages."""
        dies_of_npu = Counter((data["chip"], data["node"], data["npu"]) for _, data in self.vertices
                        if data["kind"] == "die" and "chip" in data)  # fmt: skip
        return {
            chip: {count for (npu_chip, *_), count in dies_of_npu.items() if npu_chip == chip}
            for chip, *_ in dies_of_npu
        }


Source = Callable[[str], ImportedMachine]  # by digest; ValueError: one sentence
_sources: list[Source] = []
_brought: WeakValueDictionary[str, ImportedMachine] = WeakValueDictionary()


def set_source(source: Source) -> None:
    """Set the function that returns a stored machine by its digest, or raises ValueError."""
    _sources[:] = [source]
    _machine_of.cache_clear()


def make_available(machine: ImportedMachine) -> None:
    """Make a machine, stored or not, available while the caller holds a reference to it."""
    _brought[machine.digest] = machine


def available_machine(digest: str) -> ImportedMachine | None:
    """The machine with this digest, if made available and still referenced; otherwise None."""
    return _brought.get(digest)


@lru_cache(maxsize=8)
def _machine_of(digest: str) -> ImportedMachine:
    """Returns the imported machine of a digest; raises ValueError or LookupError if unknown."""
    machine = available_machine(digest)
    return _sources[0](digest) if machine is None else machine


def find_machine(digest: str) -> ImportedMachine | None:
    """Returns an imported machine by its digest; None if it is unknown here."""
    try:
        return _machine_of(digest)
    except (ValueError, LookupError):
        return None


def npus_of(s: Supernode) -> int:
    """Number of a supernode's NPUs; if imported that of its file, 0 if it is not stored."""
    if not s.imported:
        return s.npus
    machine = find_machine(s.machine)
    return machine.npus if machine else 0


def plan_of(s: Supernode, facts: Facts) -> Plan:
    """Plan of the imported machine that a supernode names. Efficiencies that its file does not
    state are the measured ones. Raises HardwareError."""
    if (machine := find_machine(s.machine)) is None:
        raise HardwareError(
            f"the machine {s.machine} is not stored here: ask for its file and import that first"
        )
    dies_per_npu, chip = machine.dies_per_npu, load_chip(facts, s.chip)
    if dies_per_npu != chip.dies_per_npu:
        raise HardwareError(
            f"the NPUs of {machine.name} have {numbered(dies_per_npu, 'die')} each, and "
            f"{chip.title} has {chip.dies_per_npu}: choose another supernode.chip"
        )
    for chip_name, die_counts in machine.die_counts_by_chip.items():
        if die_counts != {expected := load_chip(facts, chip_name).dies_per_npu}:
            raise HardwareError(
                f"{machine.name} has NPUs of {chip_name} with "
                f"{numbered(max(die_counts - {expected}), 'die')}, and such an NPU has {expected}: "
                "let their dies have another chip"
            )
    efficiency = {name: fact.si for name, fact in facts.group("fabric.efficiency").items()}
    efficiency |= measured_shares(s.chip, facts)
    efficiency["package"] = efficiency["npu_read"]
    tails, heads, attributes = [], [], []
    for tail, head, link_data in machine.links:
        plane = link_data["plane"]
        read_key, write_key = ("npu_read", "write") if plane == "ub" else (plane, plane)
        defaults = {
            "read_efficiency": efficiency[read_key],
            "write_efficiency": efficiency[write_key],
        }
        tails.append(tail)
        heads.append(head)
        attributes.append({**defaults, **link_data})
    links = tails, heads, attributes
    return Plan(UNSTATED | dict(machine.about), dict(machine.vertices), links)
