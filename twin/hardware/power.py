"""What serving NPUs draw: idle, and for what they do, with their share of host and network.

A figure of data/power.toml holds for every machine that does not state its own in data/machines; a
chip states its rated power (`tdp`). Nothing here is measured on the machine: idle watts and rated
power of the Ascend 910C are not published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twin.facts import Facts
from twin.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of one NPU and its surroundings; 0 where the chip's rated power is not known."""

    idle_w: float
    prefill_w: float  # more while a batch of prompts computes
    cube_w: float  # more with matrix units at their dense peak
    hbm_w: float  # more with HBM at its full bandwidth
    host_w: float
    switches_w: float
    optics_w: float

    @property
    def around_w(self) -> float:
        """Host, switches and optics: the same whatever the NPU does."""
        return self.host_w + self.switches_w + self.optics_w

    def drawn_w(self, prefilling: Any, cube: Any, hbm: Any) -> Any:
        """Mean watts with surroundings: share of time in prefill, and shares of both peaks; numbers
        or arrays."""
        busy_w = self.prefill_w * prefilling + self.cube_w * cube + self.hbm_w * hbm
        return self.idle_w + busy_w + self.around_w


def power(scenario: Scenario, facts: Facts) -> Power | None:
    """Watts of an NPU of a scenario; None where neither it nor the chip's file states any."""
    rated = f"chips.{scenario.supernode.chip}.tdp"
    tdp_w = scenario.cost.npu_w or (facts.si(rated) if rated in facts else 0.0)
    if tdp_w <= 0.0:
        return None

    def around(name: str) -> float:
        stated = f"machines.{scenario.supernode.machine}.{name}"
        return facts.si(stated if stated in facts else f"power.{name}")

    return Power(
        idle_w=tdp_w * facts.si("power.idle"),
        prefill_w=tdp_w * facts.si("power.prefill"),
        cube_w=tdp_w * facts.si("power.cube"),
        hbm_w=tdp_w * facts.si("power.hbm"),
        host_w=around("host"),
        switches_w=around("switches"),
        optics_w=around("optics"),
    )
