"""Ports of a fabric for the traffic solver: every place where traffic is held, one direction each.

A port is a group of links that traffic is sprayed over evenly enough to be one capacity: a die's
UB links, its NIC, a node's uplinks on one sub-plane, the UB links of a node's CPUs, its Qingtian
DPU, the link between the dies of an NPU. Port numbers are those of the wiring, so they stay the
same when a fabric is edited or broken. What each class of traffic takes from them stands in
hardware/traffic.py; prices (hardware/routes.py) are read from the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from twin.hardware.names import Fabric
from twin.hardware.paths import Plane
from twin.hardware.tables import FLOATS, INTS, Tables, tables

WORDS = {  # port group -> what people read before and after the place
    "up_out": ("L1 uplinks of node ", ", out"),
    "up_in": ("L1 uplinks of node ", ", in"),
    "die_out": ("UB links of ", ", out"),
    "die_in": ("UB links of ", ", in"),
    "nic_out": ("NIC of ", ", out"),
    "nic_in": ("NIC of ", ", in"),
    "cpu_out": ("CPU ports of node ", ", out"),
    "cpu_in": ("CPU ports of node ", ", in"),
    "dpu_out": ("Qingtian DPU of node ", ", out"),
    "dpu_in": ("Qingtian DPU of node ", ", in"),
    "siblings": ("die-die links of ", ""),
    "cut": ("a way that is cut off", ""),
}


@dataclass(frozen=True)
class Ports:
    """Capacity of every port (bytes/s, one direction), f8[R], in the order of `slots`.

    `capacity` is what a read within the node reaches there (nominal times efficiency; uplinks
    also less what the way through L2 chips costs): the unit in which traffic takes. `nominal` is
    the sum of the links. The last port has capacity 0; what is cut off takes it.
    """

    capacity: FLOATS
    nominal: FLOATS
    slots: Mapping[str, slice]  # port group -> its ports: up [nodes * sub_planes], die and nic
    # [dies], cpu and dpu [nodes], siblings [NPUs, none for one die], cut [1]
    sub_planes: int
    dies: tuple[str, ...]
    dies_per_npu: int

    def name(self, port: int) -> str:
        """A port for people: 'L1 uplinks of node 5, sub-plane 3, out'."""
        group, at = self.place(port)
        return self.label(port) + self._behind(group, at)

    def label(self, port: int) -> str:
        """A port without sub-plane and direction: 'L1 uplinks of node 5'."""
        group, at = self.place(port)
        if group.startswith("up_"):
            where = str(at // self.sub_planes)
        elif group.startswith(("die_", "nic_")):
            where = self.dies[at]
        elif group == "siblings":
            where = "NPU " + self.dies[at * self.dies_per_npu][4:].rpartition(".")[0]
        else:
            where = "" if group == "cut" else str(at)
        return WORDS[group][0] + where

    def place(self, port: int) -> tuple[str, int]:
        """(group, number within it) of a port."""
        for group, slot in self.slots.items():
            if slot.start <= port < slot.stop:
                return group, port - slot.start
        raise IndexError(f"port {port} does not exist: there are {self.capacity.size}")

    def _behind(self, group: str, at: int) -> str:
        plane = f", sub-plane {at % self.sub_planes}" if group.startswith("up_") else ""
        return plane + WORDS[group][1]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All ports for people, in order; made when first asked for."""
        return tuple(self.name(i) for i in range(self.capacity.size))

    @property
    def cut(self) -> int:
        """The port of capacity 0."""
        return self.capacity.size - 1


@dataclass(frozen=True)
class Takes:
    """What one flow of traffic takes from the ports, per unit of its rate.

    `ports` (ascending, each once) with `amounts` in the unit of `Ports.capacity`, ready as one
    row of `max_min_rates`; `bytes` are the bytes that really pass, for recording against
    `Ports.nominal`. `ub_out` and `ub_in`, f8[nodes, sub_planes], are the bytes that dies and CPUs
    of a node put into and take from its L1 chips.
    """

    ports: INTS
    amounts: FLOATS
    bytes: FLOATS
    ub_out: FLOATS
    ub_in: FLOATS

    def alone(self, ports: Ports) -> tuple[float, int]:
        """Rate with nobody else on the way, and the port that is full first; (inf, -1): no port.

        Of several that are full together the first is named: uplinks before the ports they hold.
        """
        if not self.ports.size:
            return float("inf"), -1
        rates = ports.capacity[self.ports] / self.amounts
        least = float(rates.min())
        return least, int(self.ports[int((rates <= least * (1.0 + 1e-9)).argmax())])


@dataclass(frozen=True)
class Share:
    """Where a class's bytes go: share of what leaves (or enters) its ends, by place."""

    plane: Plane
    node: int
    sub_plane: int | None  # None off the UB plane
    direction: str  # "out" or "in"
    share: float


def port_table(fabric: Fabric) -> Ports:
    """The ports of a fabric; one table a fabric, made when first asked for."""
    found: Ports | None = fabric.graph.get("ports")
    if found is None:
        found = fabric.graph["ports"] = _table(fabric, tables(fabric))
    return found


def _table(fabric: Fabric, t: Tables) -> Ports:
    share: Mapping[str, float] = fabric.graph["efficiency"]
    up = t.every_door.ravel()
    groups = {
        "up": (up, share["npu_read"] * share["beyond_node"]),
        "die": (t.die_links.sum(axis=1), share["npu_read"]),
        "nic": (t.nics, share["rdma"]),
        "cpu": (t.cpu_links.sum(axis=1), share["cpu_read"]),
        "dpu": (t.dpus, share["vpc"]),
    }
    parts = [(f"{g}_{way}", *groups[g]) for g in groups for way in ("out", "in")]
    sibling = t.siblings if t.wiring.dies_per_npu > 1 else np.zeros(0)
    parts += [("siblings", sibling, share["npu_read"]), ("cut", np.zeros(1), 1.0)]
    slots, start = {}, 0
    for group, nominal, _ in parts:
        slots[group] = slice(start, start + nominal.size)
        start += nominal.size
    return Ports(
        capacity=np.concatenate([nominal * reached for _, nominal, reached in parts]),
        nominal=np.concatenate([nominal for _, nominal, _ in parts]),
        slots=slots,
        sub_planes=t.wiring.supernode.sub_planes,
        dies=fabric.graph["dies"],
        dies_per_npu=t.wiring.dies_per_npu,
    )


def shares(ports: Ports, takes: Takes) -> list[Share]:
    """Where the bytes of a flow leave (or enter) dies and CPUs: plane, node, sub-plane, direction.

    Each byte is counted on the plane that carries it between its ends, so the shares of a
    direction sum to 1. Links between the dies of an NPU count as none.
    """
    dense = np.zeros(ports.capacity.size)
    dense[takes.ports] = takes.bytes
    per_node = len(ports.dies) // takes.ub_out.shape[0]
    found: list[Share] = []
    for way, ub in (("out", takes.ub_out), ("in", takes.ub_in)):
        nics = dense[ports.slots[f"nic_{way}"]].reshape(-1, per_node).sum(axis=1)
        dpus = dense[ports.slots[f"dpu_{way}"]]
        total = ub.sum() + nics.sum() + dpus.sum()
        if total <= 0.0:
            continue
        for n, p in zip(*np.nonzero(ub), strict=True):
            found.append(Share("ub", int(n), int(p), way, float(ub[n, p] / total)))
        off: tuple[tuple[Plane, FLOATS], ...] = (("rdma", nics), ("vpc", dpus))
        for plane, bytes_ in off:
            for n in np.flatnonzero(bytes_).tolist():
                found.append(Share(plane, n, None, way, float(bytes_[n] / total)))
    return found
