"""Faults as a person adds them: typical ones, what is wrong with one, in which order. Pure.

A fault is a dict of the fields of `twin.scenario.Fault` here, for a form edits one field at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric
from twin.hardware.faults import broken
from twin.hardware.names import element_names, members
from twin.hardware.placement import Instance
from twin.scenario import Fault, Scenario

Row = dict[str, Any]
LEFT_OUT = ("NIC", "Qingtian")  # too many to choose from; their names can be typed


def typical(s: Scenario, fabric: Fabric, instances: Iterable[Instance]) -> dict[str, list[Row]]:
    """Faults that people ask about, by what they are called, each within this machine."""
    at_s = float(f"{s.warmup_s + 0.3 * (s.horizon_s - s.warmup_s):.3g}")
    placed = list(instances)
    last = placed[-1]  # a decode instance where there is one
    dies: tuple[str, ...] = fabric.graph["dies"]
    die = dies[last.first_die]
    home = int(fabric.nodes[dies[last.first_die + last.dies - 1]]["node"])
    offered = {
        f"A die of {last.name}": [_fault(at_s, die)],
        "A node": [_fault(at_s, f"node {home}")],
        f"A straggler in {last.name}, half speed": [_fault(at_s, die, "slow", 0.5)],
        "An L2 chip": [_fault(at_s, "L2 3.12")],
        "Sub-plane 3": [_fault(at_s, "sub-plane 3")],
        "The RDMA plane at half its rate": [_fault(at_s, "RDMA plane", "derate", 0.5)],
        f"The memory server of node {home}": [
            _fault(at_s, f"CPU {home}.{k}") for k in range(s.supernode.cpus_per_node)
        ],
    }
    return {name: rows for name, rows in offered.items() if not any(wrong(fabric, r) for r in rows)}


def _fault(at_s: float, element: str, kind: str = "fail", factor: float = 0.5) -> Row:
    return Fault(at_s=at_s, element=element, kind=kind, factor=factor).model_dump()


def wrong(fabric: Fabric, row: Row) -> str:
    """Why a fault cannot happen to this machine, one sentence; '' when it can."""
    try:
        if row["kind"] != "slow" and not row["to"]:
            members(fabric, row["element"])  # far quicker than breaking it
        else:
            broken(fabric, [Fault.model_validate(row)])
    except (HardwareError, ValueError) as error:
        return str(error)
    return ""


def offered_names(fabric: Fabric) -> list[str]:
    """Elements to choose from: groups first, then chips by kind."""
    return [name for name in element_names(fabric) if not name.startswith(LEFT_OUT)]
