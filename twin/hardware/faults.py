"""Faults in force: what they do to a fabric, and which dies and servers they leave.

Pure questions about a fabric and a list of faults; when faults begin and end, who notices and what
the serving stack does then is the engine's. A failed element keeps its name and number and loses
its links. A slow die keeps its links: it computes slowly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import edited, members
from twin.hardware.names import Fabric
from twin.hardware.paths import Plane
from twin.hardware.tables import tables
from twin.scenario import Edit, Fault


def broken(fabric: Fabric, faults: Sequence[Fault]) -> Fabric:
    """The fabric with these faults in force, the same graph when none touches a link.

    Faults of one link multiply. Raises HardwareError when a fault names what is not there.
    """
    cuts = []
    for fault in faults:
        if fault.kind == "slow":
            slowed(fabric, fault)
        else:
            left = 0.0 if fault.kind == "fail" else fault.factor
            cuts.append(Edit(element=fault.element, to=fault.to, capacity_factor=left))
    return edited(fabric, edits=cuts) if cuts else fabric


def slowed(fabric: Fabric, fault: Fault) -> list[int]:
    """Numbers of the dies that a fault of kind "slow" slows.

    Raises HardwareError when it names none, or a link.
    """
    if fault.to:
        raise HardwareError(
            f"the link of {fault.element} and {fault.to} does not compute, so it cannot be slow: "
            "name dies alone, or take kind = derate"
        )
    number = {name: i for i, name in enumerate(fabric.graph["dies"])}
    found = [number[v] for v in members(fabric, fault.element) if v in number]
    if not found:
        raise HardwareError(
            f"{fault.element} has no dies that could compute slowly: name a die, an NPU, a node "
            "or a supernode"
        )
    return found


def slow_dies(fabric: Fabric, faults: Sequence[Fault]) -> dict[int, float]:
    """Die number -> share of its computing speed that is left; factors of one die multiply."""
    factors: dict[int, float] = {}
    for fault in faults:
        if fault.kind == "slow":
            for die in slowed(fabric, fault):
                factors[die] = factors.get(die, 1.0) * fault.factor
    return factors


def dies_out(fabric: Fabric) -> frozenset[int]:
    """Dies that cannot serve in an instance that spans nodes.

    They have no UB link left, or their node has no uplink left that reaches another node though
    their UB plane goes beyond it.
    """
    t = tables(fabric)
    out = t.die_links.sum(axis=1) <= 0.0
    if t.wiring.chips:
        alone = t.every_door.sum(axis=1) <= 0.0
        out |= np.repeat(alone, t.dies_per_node)
    return frozenset(np.flatnonzero(out).tolist())


def dies_without(fabric: Fabric, plane: Plane) -> frozenset[int]:
    """Dies that cannot send to another node on a plane: no UB link, NIC or DPU left."""
    t = tables(fabric)
    if plane == "ub" and t.wiring.chips:
        return dies_out(fabric)
    if plane == "vpc":
        none = np.repeat(t.dpus <= 0.0, t.dies_per_node) | (t.die_links.sum(axis=1) <= 0.0)
    else:
        none = t.nics <= 0.0
    return frozenset(np.flatnonzero(none).tolist())


def servers_out(fabric: Fabric) -> frozenset[int]:
    """Nodes whose DRAM is lost: no CPU of theirs has a UB link left."""
    lost = tables(fabric).cpu_links.sum(axis=1) <= 0.0
    return frozenset(np.flatnonzero(lost).tolist())
