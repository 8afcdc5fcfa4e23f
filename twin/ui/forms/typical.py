"""Faults that people ask about, as dicts of the fields of `twin.scenario.Fault`, and why one cannot
happen to a machine. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, element_names
from twin.hardware.faults import broken
from twin.hardware.placement import Instance
from twin.scenario import Fault, Scenario

Row = dict[str, Any]
LEFT_OUT = ("NIC", "Qingtian")  # too many to choose from; their names can be typed


def typical(s: Scenario, fabric: Fabric, instances: Iterable[Instance]) -> dict[str, list[Row]]:
    """Faults that people ask about, by what they are called, each within this machine."""
    at_s = float(f"{s.warmup_s + 0.3 * (s.horizon_s - s.warmup_s):.3g}")

    def fault(element: str, kind: str = "fail", to: str = "", **more: float) -> Row:
        row = {"at_s": at_s, "element": element, "kind": kind, "to": to} | more
        return Fault.model_validate(row).model_dump()

    dies: tuple[str, ...] = fabric.graph["dies"]
    # A decode instance where there is one; where none can be placed, any die.
    last = [Instance("machine", 0, tuple(range(len(dies)))), *instances][-1]
    die = dies[last.die_of_rank[0]]
    node = int(fabric.nodes[dies[last.die_of_rank[-1]]]["node"])
    offered = {
        f"A die of {last.name}": [fault(die)],
        "A node": [fault(f"node {node}")],
        f"A straggler in {last.name}, half speed": [fault(die, "slow")],
        "An L2 switch": [fault("L2 3.12")],
        "A rack": [fault("rack 0")],
        f"An optical module of an L1 switch of node {node}": [
            fault(f"L1 {node}.3", "module", "sub-plane 3")
        ],
        f"A flapping link of an L1 switch of node {node}": [
            fault(f"L1 {node}.3", "flap", "L2 3.12", duration_s=10.0)
        ],
        "Sub-plane 3": [fault("sub-plane 3")],
        "The RDMA plane at half its rate": [fault("RDMA plane", "derate")],
        f"The memory server of node {node}": [
            fault(f"CPU {node}.{cpu}") for cpu in range(s.supernode.cpus_per_node)
        ],
    }
    return {name: rows for name, rows in offered.items() if not any(wrong(fabric, r) for r in rows)}


def wrong(fabric: Fabric, row: Row) -> str:
    """Why a fault cannot happen to this machine, one sentence; '' when it can."""
    try:
        broken(fabric, [Fault.model_validate(row)])
    except (HardwareError, ValueError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=4)
def offered_names(fabric: Fabric) -> list[str]:
    """Elements to choose from: groups first, then chips by kind."""
    return [name for name in element_names(fabric) if not name.startswith(LEFT_OUT)]
