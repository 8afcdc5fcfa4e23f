"""Who sits where: instances to consecutive dies.

Dies are numbered node by node, NPU by NPU: die d is on NPU d // dies_per_npu. Prefill instances
come first, then decode instances; colocated instances start at die 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from twin.scenario import Scenario, pools


@dataclass(frozen=True, slots=True)
class Instance:
    """One serving instance and the dies it occupies."""

    role: str  # "prefill", "decode" or "colocated"
    index: int  # within its role
    first_die: int
    dies: int

    @property
    def name(self) -> str:
        """For people: 'prefill 3'."""
        return f"{self.role} {self.index}"


def place_instances(s: Scenario, dies_per_npu: int) -> list[Instance]:
    """Instances in the order of their dies; the scenario's own check keeps them in the machine."""
    placed = []
    first = 0
    for role, count, npus in pools(s):
        for index in range(count):
            placed.append(Instance(role, index, first, npus * dies_per_npu))
            first += npus * dies_per_npu
    return placed
