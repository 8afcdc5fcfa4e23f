"""What serving NPUs draw: idle, and for what they do, with their share of host and network.

A cap on a package lowers the clock of its cores. What they draw beyond idle watts goes with a power
of the clock (voltage follows it), what HBM draws does not; what they compute goes with the clock.

A figure of data/power.toml holds for every machine that does not state its own in data/machines; a
chip states its rated power (`tdp`). Nothing here is measured on the machine: idle watts and rated
power of the Ascend 910C are not published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.scenario import Scenario, pools_by_role


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
    prefill_cube: float = 0.0  # how much more a FLOP of prefill draws than one of decode

    @property
    def surroundings_w(self) -> float:
        """Watts of host, switches and optics, independent of the NPU's load."""
        return self.host_w + self.switches_w + self.optics_w

    def drawn_w(self, prefilling: Any, cube: Any, hbm: Any, of_prefill: Any = 0.0) -> Any:
        """Mean watts of an NPU with its surroundings; numbers or arrays. prefilling: share of time
        in prefill; cube, hbm: use of the matrix units and of HBM, as a share of their peak;
        of_prefill: the part of `cube` that prefill has."""
        cube = cube + self.prefill_cube * of_prefill
        busy_w = self.prefill_w * prefilling + self.cube_w * cube + self.hbm_w * hbm
        return self.idle_w + busy_w + self.surroundings_w


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a pool at full load: shares of time in prefill and of both peaks."""

    prefilling: float
    cube: float
    hbm: float


def clock_share(scenario: Scenario, facts: Facts, role: str, use: Use) -> float:
    """Share of the rated clock at which a pool at full load draws at most `cost.cap_w`. HBM and
    matrix units count as busy as at the full clock. Raises HardwareError if even the lowest clock
    draws more, or the chip's rated power is unknown."""
    chip = pools_by_role(scenario)[role].chip
    cap_w, npu_power = scenario.cost.cap_w, power(scenario, facts, chip=chip)
    if npu_power is None:
        raise HardwareError(
            f"cost.cap_w needs the rated power of {chip}, which is not known: set cost.npu_w"
        )
    fixed_w = npu_power.idle_w + npu_power.hbm_w * use.hbm
    cores_w = npu_power.prefill_w * use.prefilling + npu_power.cube_w * use.cube
    if cap_w >= fixed_w + cores_w:
        return 1.0
    clock_exponent, lowest_clock = facts.si("power.clock_exponent"), facts.si("power.lowest_clock")
    lowest_w = fixed_w + cores_w * lowest_clock**clock_exponent
    if cap_w < lowest_w:
        raise HardwareError(
            f"cost.cap_w = {cap_w:g}: {role} draws {lowest_w:,.0f} W an NPU at the lowest clock: "
            "raise the cap"
        )
    return float(((cap_w - fixed_w) / cores_w) ** (1.0 / clock_exponent))


def power_by_role(
    scenario: Scenario, facts: Facts, clocks: Mapping[str, float], chips: Mapping[str, str]
) -> dict[str, Power]:
    """Power of an NPU by role. clocks: share of the rated clock by role; chips: chip by role.
    Returns {} if the power of any chip is unknown."""
    powers = {role: power(scenario, facts, clocks, chip) for role, chip in chips.items()}
    known_powers = {role: npu_power for role, npu_power in powers.items() if npu_power is not None}
    return known_powers if len(known_powers) == len(powers) else {}


def power(
    scenario: Scenario, facts: Facts, clocks: Mapping[str, float] | None = None, chip: str = ""
) -> Power | None:
    """Power of a scenario's NPUs; None if neither scenario nor chip states the rated power. chip:
    "" is the machine's first chip; clocks: share of the rated clock by role, None: 1 for all."""
    chip = chip or scenario.supernode.chip
    node_kind = scenario.supernode.kind_with(chip)
    tdp_w = (node_kind.npu_w if node_kind else 0.0) or scenario.cost.npu_w
    tdp_w = tdp_w or facts.si(f"chips.{chip}.tdp", 0.0)
    if tdp_w <= 0.0:
        return None
    supernode = scenario.supernode

    def watts_of(name: str) -> float:
        """Watts per NPU of "host", "switches" or "optics": the machine's or the general figure."""
        return facts.si(f"machines.{supernode.machine}.{name}", facts.si(f"power.{name}"))

    host_w, switches_w, optics_w = (watts_of(name) for name in ("host", "switches", "optics"))
    hosts_w = 0.0
    for kind, nodes in supernode.cpu_nodes_per_npu:  # every NPU has an equal part of them
        kind_w = host_w * (kind.cpus_per_node or supernode.cpus_per_node) / supernode.cpus_per_node
        hosts_w += nodes * (
            kind.npu_w or supernode.npus_per_node * (kind_w + switches_w + optics_w)
        )

    # A share of the rated peak at a lower clock is more of the time: watts of a FLOP go with one
    # power of the clock less than watts of a second.
    clock_exponent, clock_of = facts.si("power.clock_exponent"), dict(clocks or {})
    colocated_clock = clock_of.get("colocated", 1.0)
    decode_clock, prefill_clock = (clock_of.get(k, colocated_clock) for k in ("decode", "prefill"))
    return Power(
        idle_w=tdp_w * facts.si("power.idle"),
        prefill_w=tdp_w * facts.si("power.prefill") * prefill_clock**clock_exponent,
        cube_w=tdp_w * facts.si("power.cube") * decode_clock ** (clock_exponent - 1.0),
        hbm_w=tdp_w * facts.si("power.hbm"),
        host_w=host_w + hosts_w,
        switches_w=switches_w,
        optics_w=optics_w,
        prefill_cube=(prefill_clock / decode_clock) ** (clock_exponent - 1.0) - 1.0,
    )
