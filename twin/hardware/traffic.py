"""What each class of traffic takes from the ports: the way of its bytes, in aggregate.

A flow here is a whole class of an instance's traffic (its expert exchange, its pool reads), not a
message. Bytes are spread evenly over the instance's dies and sprayed over sub-planes and L2 chips
by what these carry. Where bytes leave a UB plane (another supernode, or another node where UB
ends at the node) they take the NICs at the same time. A rate is bytes/s; `Takes.alone` is the
price of the flow when nobody else is on the way, and routes.py prices with exactly that.

It does not see single messages, so two dies of a node that were left on different sub-planes are
thought to reach each other, and a byte on its way to a weak port is not held earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.names import Fabric
from twin.hardware.paths import Operation, Plane, beyond_node, efficiency
from twin.hardware.ports import Ports, Takes
from twin.hardware.tables import FLOATS, INTS, tables


class _Flow:
    """Sums up amounts and bytes by port; the cost of a byte follows its operation."""

    def __init__(self, fabric: Fabric, ports: Ports, operation: Operation) -> None:
        self.fabric, self.ports, self.t = fabric, ports, tables(fabric)
        self.amounts = np.zeros(ports.capacity.size)
        self.bytes = np.zeros(ports.capacity.size)
        s = fabric.graph["supernode"]
        self.nodes, self.planes, self.dies = s.all_nodes, s.sub_planes, len(ports.dies)
        self.ub = {"out": np.zeros((self.nodes, self.planes)),
                   "in": np.zeros((self.nodes, self.planes))}  # fmt: skip
        share = fabric.graph["efficiency"]
        beyond = beyond_node(fabric, operation)
        near = efficiency(fabric, "die-L1", "ub", operation)
        # Port time of a byte in the unit of Ports.capacity, which is that of a read in the node.
        self.near = share["npu_read"] / near
        self.far = self.near / beyond
        self.up = share["npu_read"] * share["beyond_node"] / (near * beyond)
        self.cpu = share["cpu_read"] / efficiency(fabric, "CPU-L1", "ub", operation)
        self.nic = share["rdma"] / efficiency(fabric, "die-NIC", "rdma", operation)
        self.dpu = share["vpc"] / efficiency(fabric, "CPU-Qingtian", "vpc", operation)

    def add(self, group: str, at: INTS, bytes_: FLOATS, cost: FLOATS | float) -> None:
        """Bytes at ports of a group, each costing that much of the port's capacity."""
        slot = self.ports.slots[group]
        np.add.at(self.bytes[slot], at, bytes_)
        np.add.at(self.amounts[slot], at, bytes_ * cost)

    def doors(self, way: str, bytes_: FLOATS, among: INTS) -> None:
        """Bytes over uplinks, f8[nodes, sub_planes], of chips that reach another of `among`."""
        used = np.flatnonzero(bytes_.sum(axis=1) > 0.0)
        if not used.size:
            return
        every, open_ = self.t.every_door, self.t.doors(among)
        with np.errstate(divide="ignore", invalid="ignore"):
            wider = np.where(open_ > 0.0, every / open_, 1.0)
        self.add(f"up_{way}", np.arange(bytes_.size), bytes_.ravel(), (self.up * wider).ravel())
        if (bytes_[open_ <= 0.0] > 0.0).any():
            self.cut()

    def cut(self) -> None:
        """There is no way left: take the port that has nothing to give."""
        self.amounts[-1] = 1.0

    def done(self) -> Takes:
        """The flow as one row for the solver."""
        used = np.flatnonzero(self.amounts > 0.0)
        return Takes(used, self.amounts[used], self.bytes[used], self.ub["out"], self.ub["in"])


def _numbers(fabric: Fabric, dies: Sequence[int]) -> INTS:
    numbers = np.asarray(dies, np.int64)
    most = len(fabric.graph["dies"])
    wrong = numbers[(numbers < 0) | (numbers >= most)]
    if wrong.size:
        raise HardwareError(
            f"die {wrong[0]} does not exist: the supernode has dies 0 to {most - 1}"
        )
    return numbers


def _part(weights: FLOATS) -> FLOATS:
    """Rows that sum to 1, even where there is no weight at all."""
    total = weights.sum(axis=-1, keepdims=True)
    even = 1.0 / weights.shape[-1]
    with np.errstate(invalid="ignore"):
        return np.where(total > 0.0, weights / np.where(total > 0.0, total, 1.0), even)


def exchange_takes(
    fabric: Fabric,
    ports: Ports,
    dies: Sequence[int],
    plane: Plane = "ub",
    operation: Operation = "write",
) -> Takes:
    """Uniform all-to-all among `dies`, per byte/s that EACH die sends to all the others.

    A die's bytes spread over the sub-planes by what each gives it: its own link there, or its
    share of the node's uplinks. Raises HardwareError for fewer than two different dies.
    """
    at = _numbers(fabric, dies)
    if at.size < 2 or np.unique(at).size < at.size:
        raise HardwareError(f"all-to-all needs two or more different dies, not {list(dies)[:4]}")
    flow = _Flow(fabric, ports, operation)
    t = flow.t
    home = at // t.dies_per_node
    if plane == "ub" and _siblings(flow, at):
        return flow.done()
    crowd = np.bincount(home, minlength=flow.nodes)[home]
    domain = t.domain(home)
    with_us = np.bincount(domain)[domain]
    others = at.size - 1
    near = (crowd - 1) / others
    ones = np.ones(at.size)
    if plane == "rdma":
        _both(flow, "nic", at, ones, flow.nic)
        return flow.done()
    if plane == "vpc":
        _both(flow, "die", at, ones, flow.near)
        _both(flow, "dpu", home, 1.0 - near, flow.dpu)
        _spread(flow, ("out", "in"), at, near)
        return flow.done()
    within, away = (with_us - crowd) / others, (at.size - with_us) / others
    among = np.unique(home)
    links = t.die_links[at] * fabric.graph["efficiency"]["npu_read"]
    time = near * flow.near + within * flow.far  # of a die's ports, per byte/s it sends in all
    doors = t.doors(among)[home] * (ports_share(flow) / flow.up)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(time[:, None] > 0.0, links / time[:, None], 0.0)
        fair = np.where(within[:, None] > 0.0, doors / (crowd * within)[:, None], np.inf)
        granted = np.minimum(own, fair)
        full = np.where(granted > 0.0, own / granted, np.inf).min(axis=1, initial=np.inf)
        # A die whose uplinks hold it on some sub-planes cannot fill its ports: they cost more.
        fills = granted.sum(axis=1) * full
        wider = np.where(fills > 0.0, np.maximum(own.sum(axis=1) / fills, 1.0), 1.0)
    split = _part(granted)
    _both(flow, "die", at, near + within, np.where(near + within > 0.0, time * wider, 0.0)
          / np.where(near + within > 0.0, near + within, 1.0))  # fmt: skip
    _both(flow, "nic", at, away, flow.nic)
    over = np.zeros((flow.nodes, flow.planes))
    np.add.at(over, home, within[:, None] * split)
    for way in ("out", "in"):
        flow.doors(way, over, among)
        np.add.at(flow.ub[way], home, (near + within)[:, None] * split)
    return flow.done()


def ports_share(flow: _Flow) -> float:
    """Share of the nominal that Ports.capacity gives an uplink."""
    share = flow.fabric.graph["efficiency"]
    return float(share["npu_read"] * share["beyond_node"])


def _both(flow: _Flow, group: str, at: INTS, bytes_: FLOATS, cost: FLOATS | float) -> None:
    for way in ("out", "in"):
        flow.add(f"{group}_{way}", at, bytes_, cost)


def _spread(flow: _Flow, ways: Sequence[str], at: INTS, bytes_: FLOATS) -> None:
    """Note bytes at dies' UB links by node and sub-plane."""
    split = _part(flow.t.die_links[at])
    for way in ways:
        np.add.at(flow.ub[way], at // flow.t.dies_per_node, bytes_[:, None] * split)


def _siblings(flow: _Flow, at: INTS) -> bool:
    """The exchange of one NPU's dies over the links between them; False: it is not that."""
    npus = np.unique(at // flow.t.wiring.dies_per_npu)
    if npus.size > 1 or flow.t.siblings[npus[0]] <= 0.0:
        return False
    cost = efficiency(flow.fabric, "die-L1", "ub", "read") * flow.near
    cost /= flow.fabric.graph["efficiency"]["npu_read"]
    flow.add("siblings", npus, np.array([1.0 / (at.size - 1)]), cost)
    return True


def weights_takes(fabric: Fabric, ports: Ports, dies: Sequence[int], plane: Plane = "ub") -> Takes:
    """Expert weights that move among `dies`, per byte/s that EACH die receives."""
    return exchange_takes(fabric, ports, dies, plane, "write")


def pool_takes(
    fabric: Fabric,
    ports: Ports,
    dies: Sequence[int],
    plane: Plane = "ub",
    nodes: Sequence[int] | None = None,
) -> Takes:
    """Reads from the DRAM of the CPUs of `nodes` (default: all), per byte/s into all dies together.

    Blocks lie evenly over the nodes whose CPUs can be reached. Raises HardwareError when there is
    none, or no die.
    """
    return _pool(_Flow(fabric, ports, "read"), _numbers(fabric, dies), plane, nodes, True)


def store_takes(
    fabric: Fabric,
    ports: Ports,
    dies: Sequence[int],
    plane: Plane = "ub",
    nodes: Sequence[int] | None = None,
) -> Takes:
    """Blocks written back to the pool, per byte/s out of all dies together; see pool_takes."""
    return _pool(_Flow(fabric, ports, "write"), _numbers(fabric, dies), plane, nodes, False)


def pool_sources(
    fabric: Fabric, dies: Sequence[int], plane: Plane = "ub", nodes: Sequence[int] | None = None
) -> INTS:
    """Nodes whose DRAM `dies` can reach, ascending; empty: none.

    CPUs need UB links, and a way out: uplinks to the same UB plane, NICs to another, a DPU on VPC.
    """
    t = tables(fabric)
    homes = np.unique(_numbers(fabric, dies) // t.dies_per_node)
    every = np.arange(t.wiring.supernode.all_nodes)
    asked = every if nodes is None else np.unique(np.asarray(nodes, np.int64))
    alive = asked[t.cpu_links[asked].sum(axis=1) > 0.0]
    inside = (homes.size == 1) & (alive == homes[0]) if homes.size else np.zeros(alive.size, bool)
    if plane == "vpc":
        return np.asarray(alive[(t.dpus[alive] > 0.0) | inside])
    lent = t.nics.reshape(-1, t.dies_per_node).sum(axis=1)[alive] > 0.0
    if plane == "rdma":
        return np.asarray(alive[lent | inside])
    domain, theirs = t.domain(alive), t.domain(homes)
    door = t.doors(np.union1d(alive, homes))[alive].sum(axis=1) > 0.0
    near = np.isin(domain, theirs)
    far = np.array([(theirs != d).any() for d in domain], bool)
    alone = np.array([(homes[theirs == d] == n).all() for d, n in zip(domain, alive, strict=True)],
                     bool)  # fmt: skip
    return np.asarray(alive[(alone | ~near | door) & (~far | lent)])


def _pool(
    flow: _Flow, at: INTS, plane: Plane, nodes: Sequence[int] | None, into_dies: bool
) -> Takes:
    t = flow.t
    sources = pool_sources(flow.fabric, at.tolist(), plane, nodes)
    if not at.size or not sources.size:
        raise HardwareError("a pool read needs at least one die and one node whose CPUs are linked")
    given = np.zeros(flow.nodes)
    given[sources] = 1.0 / sources.size
    taken = np.bincount(at // t.dies_per_node, minlength=flow.nodes) / at.size
    to_dies, from_cpus = ("in", "out") if into_dies else ("out", "in")
    flow.add(f"cpu_{from_cpus}", np.arange(flow.nodes), given, flow.cpu)
    np.add.at(flow.ub[from_cpus], np.arange(flow.nodes), given[:, None] * _part(t.cpu_links))
    _ends(flow, at, plane, given, to_dies, from_cpus)
    _lenders(flow, plane, given, taken, from_cpus)
    return flow.done()


def _ends(flow: _Flow, at: INTS, plane: Plane, peers: FLOATS, mine: str, theirs: str) -> None:
    """Ports of the dies' own side, when `peers` (share by node, sums to 1) are the other ends.

    `mine` is the direction at the dies. Uplinks and DPUs of both sides are counted here.
    """
    t = flow.t
    home = at // t.dies_per_node
    taken = np.bincount(home, minlength=flow.nodes) / at.size
    domain = t.domain(np.arange(flow.nodes))
    here = np.bincount(domain, peers)[domain] - peers  # share on other nodes of the same UB plane
    beyond = 1.0 - here - peers
    beyond[np.abs(beyond) < 1e-12] = 0.0
    each = 1.0 / at.size
    near = peers[home]
    if plane == "vpc":
        flow.add(f"die_{mine}", at, np.full(at.size, each), flow.near)
        every = np.arange(flow.nodes)
        flow.add(f"dpu_{mine}", every, taken * (1.0 - peers), flow.dpu)
        flow.add(f"dpu_{theirs}", every, peers * (1.0 - taken), flow.dpu)
        _spread(flow, (mine,), at, near * each)
        return
    within = here[home] if plane == "ub" else np.zeros(at.size)
    away = beyond[home] if plane == "ub" else 1.0 - near
    on_ub = near + within
    time = near * flow.near + within * flow.far
    cost = np.where(on_ub > 0.0, time / np.where(on_ub > 0.0, on_ub, 1.0), 0.0)
    flow.add(f"die_{mine}", at, on_ub * each, cost)
    _through_nics(flow, mine, at, away * each)
    _spread(flow, (mine,), at, on_ub * each)
    if plane != "ub":
        return
    among = np.union1d(np.flatnonzero(peers), np.unique(home))
    split = _part(t.doors(among))
    comes = taken * here
    goes = peers * (np.bincount(domain, taken)[domain] - taken)
    flow.doors(mine, comes[:, None] * split, among)
    flow.doors(theirs, np.maximum(goes, 0.0)[:, None] * split, among)


def _through_nics(flow: _Flow, way: str, at: INTS, bytes_: FLOATS) -> None:
    """Bytes of dies over the NICs of these dies in each node, by what each NIC carries.

    A die whose NIC is lost so uses its neighbours'.
    """
    t = flow.t
    home = at // t.dies_per_node
    total = np.asarray(np.bincount(home, bytes_, flow.nodes), np.float64)
    carried = np.bincount(home, t.nics[at], flow.nodes)
    crowd = np.bincount(home, minlength=flow.nodes)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(carried[home] > 0.0, t.nics[at] / carried[home], 1.0 / crowd[home])
    flow.add(f"nic_{way}", at, total[home] * part, flow.nic)


def _lenders(flow: _Flow, plane: Plane, given: FLOATS, taken: FLOATS, way: str) -> None:
    """NICs that the dies of a pool's nodes lend to its CPUs, for what leaves their UB plane."""
    if plane == "vpc":
        return
    t = flow.t
    domain = t.domain(np.arange(flow.nodes))
    same = np.bincount(domain, taken)[domain] if plane == "ub" else taken
    crossing = given * (1.0 - same)
    crossing[crossing < 1e-12] = 0.0
    every = np.arange(flow.dies)
    _through_nics(flow, way, every, (crossing / t.dies_per_node)[every // t.dies_per_node])


def hand_off_takes(
    fabric: Fabric,
    ports: Ports,
    out_dies: Sequence[int],
    in_dies: Sequence[int],
    plane: Plane = "rdma",
) -> Takes:
    """KV cache from some dies to others, spread evenly over both, per byte/s in all."""
    flow = _Flow(fabric, ports, "write")
    source, sink = _numbers(fabric, out_dies), _numbers(fabric, in_dies)
    if not source.size or not sink.size:
        raise HardwareError("a hand-off needs at least one die that sends and one that receives")
    t = flow.t
    if plane == "rdma":
        _through_nics(flow, "out", source, np.full(source.size, 1.0 / source.size))
        _through_nics(flow, "in", sink, np.full(sink.size, 1.0 / sink.size))
        return flow.done()
    sends = np.bincount(source // t.dies_per_node, minlength=flow.nodes) / source.size
    receives = np.bincount(sink // t.dies_per_node, minlength=flow.nodes) / sink.size
    _ends(flow, source, plane, receives, "out", "in")
    both = _Flow(fabric, ports, "write")
    _ends(both, sink, plane, sends, "in", "out")
    for group in ("die_in", "nic_in"):  # uplinks and DPUs were counted from the sending side
        slot = ports.slots[group]
        flow.bytes[slot] += both.bytes[slot]
        flow.amounts[slot] += both.amounts[slot]
    flow.ub["in"] += both.ub["in"]
    return flow.done()


def storage_takes(fabric: Fabric, ports: Ports, dies: Sequence[int]) -> Takes:
    """Volumes and objects (EVS, OBS) over the VPC plane into `dies`, per byte/s in all.

    In through the DPU of each node, out of its CPUs and over UB to its dies.
    """
    flow = _Flow(fabric, ports, "read")
    at = _numbers(fabric, dies)
    if not at.size:
        raise HardwareError("storage is read into at least one die")
    home = at // flow.t.dies_per_node
    each = np.full(at.size, 1.0 / at.size)
    flow.add("dpu_in", home, each, flow.dpu)
    flow.add("cpu_out", home, each, flow.cpu)
    flow.add("die_in", at, each, flow.near)
    return flow.done()
