"""Who sends how much to whom: the classes of traffic of a deployment as demands.

Dies are numbers, as people number them; a demand's ends are vertices of the network. Amounts are
per byte/s of the class: what EACH die sends to all others in an exchange, else the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.flows import Demand, Ends, Load, Operation, Pattern, Whole, load_of
from twin.hardware.network import Network
from twin.hardware.walks import BOOLS, FLOATS, INTS

WAYS = {"ub": ("ub", "host"), "rdma": ("host",), "vpc": ("vpc",)}  # of CPUs' DRAM, by plane


def dies_of(net: Network, dies: Sequence[int]) -> INTS:
    """Vertices of dies; raises HardwareError for a number that no die has."""
    numbers = np.asarray(dies, np.int64)
    most = net.dies.size
    bad = numbers[(numbers < 0) | (numbers >= most)]
    if bad.size:
        raise HardwareError(f"die {bad[0]} does not exist: the supernode has dies 0 to {most - 1}")
    return np.asarray(net.dies[numbers])


def _demand(
    senders: INTS, receivers: INTS, out: FLOATS, into: FLOATS, planes: Sequence[str],
    operation: Operation, flows: Whole = "pairs",
) -> Demand:  # fmt: skip
    return Demand(
        Ends(senders.tolist()), Ends(receivers.tolist()), Ends(out.tolist()), Ends(into.tolist()),
        tuple(planes), operation, flows,
    )  # fmt: skip


def _even(ends: INTS) -> FLOATS:
    return np.full(ends.size, 1.0 / ends.size)


def _evenly(net: Network, dies: Sequence[int]) -> tuple[Ends[int], Ends[float]]:
    """Dies as one side of a demand with equal shares; equal arguments share one object."""
    dies_key = tuple(dies)

    def side() -> tuple[Ends[int], Ends[float]]:
        ends = dies_of(net, dies_key)
        return Ends(ends.tolist()), Ends(_even(ends).tolist() if ends.size else ())

    return net.once(("evenly", dies_key), side)


def exchange(
    net: Network, dies: Sequence[int], plane: str = "ub", operation: Operation = "write"
) -> Load:
    """All-to-all among `dies`: each sends one unit, evenly to the others.

    Where the UB plane ends, bytes take the RDMA plane at the same time. A sibling die's bytes use
    the switches like all others, unless there is only one NPU. Raises HardwareError for fewer than
    two different dies."""
    ends = dies_of(net, dies)
    if ends.size < 2 or np.unique(ends).size < ends.size:
        names = [net.vertices[v] for v in ends[:4].tolist()]
        raise HardwareError(f"all-to-all needs two or more different dies, not {names}")
    planes: Sequence[str] = ("ub", "rdma") if plane == "ub" else (plane,)
    if plane == "ub" and _one_package(net, ends):
        planes = ("package",)
    into = np.full(ends.size, 1.0 / (ends.size - 1.0))
    return load_of(net, _demand(ends, ends, np.ones(ends.size), into, planes, operation))


def _one_package(net: Network, at: INTS) -> bool:
    """Whether these dies belong to one NPU and are all joined directly."""
    homes = {(net.vertex_data[v]["node"], net.vertex_data[v]["npu"]) for v in at.tolist()}
    if len(homes) > 1:
        return False
    joined = net.open_links("package") & np.isin(net.tail, at) & np.isin(net.head, at)
    return int(joined.sum()) == at.size * (at.size - 1)


def pool(
    net: Network, dies: Sequence[int], plane: str = "ub", nodes: Sequence[int] | None = None,
    operation: Operation = "read",
) -> tuple[Load, INTS] | None:  # fmt: skip
    """Demand of reading blocks from (or writing them to) the DRAM of the CPUs of `nodes` (default:
    all). Blocks are spread over reachable nodes by their DRAM (consistent hashing), and over a
    node's CPUs by their links. Returns these nodes too; None without any node or die."""
    own, even = _evenly(net, dies)
    own_nodes = set(net.node[list(own)].tolist())
    node_key, lost = None if nodes is None else tuple(nodes), frozenset[int]()
    while own:
        offers = net.once(("lent", node_key, lost), partial(_lent, net, node_key, lost))
        if offers is None:
            return None
        sources, cpus, offered = offers
        ends = (cpus, own, offered, even) if operation == "read" else (own, cpus, even, offered)
        load = load_of(net, Demand(*ends, WAYS[plane], operation))
        side = 0 if operation == "read" else 1
        lost_nodes = {int(net.node[pair[side]]) for pair in load.unreached}
        if not lost_nodes:
            return load, sources
        if not set(sources.tolist()) - lost_nodes - own_nodes and set(sources.tolist()) - own_nodes:
            return None  # it is the dies that are cut off
        lost |= lost_nodes
    return None


Lent: TypeAlias = "tuple[INTS, Ends[int], Ends[float]]"


def dram(net: Network, nodes: Sequence[int]) -> float:
    """DRAM of these nodes, which goes with CPUs, over that of the first NPU's node."""
    of_one = net.cpus[net.node[net.dies[0]]] or net.cpus.max(initial=1)
    return float(net.cpus[list(nodes)].sum() / of_one)


def equal_parts(net: Network, nodes: Sequence[int] | INTS) -> INTS:
    """Node of each of the equal parts, as few as there can be, of the DRAM of these nodes."""
    rows = np.asarray(nodes, np.int64)
    cpus = net.cpus[rows]
    return np.repeat(rows, cpus // max(1, np.gcd.reduce(cpus, initial=0)))


def _lent(net: Network, nodes: tuple[int, ...] | None, lost: frozenset[int]) -> Lent | None:
    """Nodes with memory servers, their CPUs, and each one's share of the bytes; None without."""
    cpus = net.of_kind("cpu")
    offered = net.offers("ub", cpus)
    if nodes is not None:
        offered = np.where(np.isin(net.node[cpus], np.asarray(nodes)), offered, 0.0)
    offered = np.where(np.isin(net.node[cpus], list(lost)), 0.0, offered)
    if not offered.any():
        return None
    offered_by_node = np.bincount(net.node[cpus], offered)
    sources = np.flatnonzero(offered_by_node)
    lending = offered > 0.0
    home = net.node[cpus][lending]
    shares = offered[lending] / offered_by_node[home] / (net.cpus[sources].sum() / net.cpus[home])
    return sources, Ends(cpus[lending].tolist()), Ends(shares.tolist())


def server_ports(net: Network, load: Load, plane: str) -> tuple[BOOLS, BOOLS]:
    """Whether each link of a pool read's pattern is the port of its node, and whether it is on the
    server's side. A server's port is the narrowest of the links that only it sends over: into its
    node's DPU and NICs, out of the node, and, except over VPC, out of its CPUs."""
    return net.once(("ports", load.pattern, plane), lambda: _server_ports(net, load.pattern, plane))


def _server_ports(net: Network, read: Pattern, plane: str) -> tuple[BOOLS, BOOLS]:
    """Links of a read at ports of memory servers: the narrowest of each node, and all of them."""
    tail, head = net.tail[read.links], net.head[read.links]
    home = net.node[tail]
    ports = np.concatenate([net.of_kind("qingtian"), net.of_kind("nic")])
    side = (home >= 0) & ((net.node[head] < 0) | np.isin(head, ports))
    if plane != "vpc":  # what comes from there goes through a CPU of the reader's node
        side |= np.isin(tail, net.of_kind("cpu"))
    rate = net.capacity[read.links] / read.amounts
    narrowest = np.full(net.nodes, np.inf)
    np.minimum.at(narrowest, home[side], rate[side])
    return side & (rate <= narrowest[home] * (1.0 + 1e-9)), side


def hand_off(
    net: Network, out_dies: Sequence[int], in_dies: Sequence[int], plane: str = "rdma",
    flows: Whole = "each",
) -> Load:  # fmt: skip
    """KV cache from some dies to others, spread evenly over both. Hashed planes: single transfers,
    one per sending die, or all pairs at once (`flows`)."""
    (source, out), (sink, received) = _evenly(net, out_dies), _evenly(net, in_dies)
    if not source or not sink:
        raise HardwareError("a hand-off needs at least one die that sends and one that receives")
    planes = ("ub", "rdma") if plane == "ub" else (plane,)
    return load_of(net, Demand(source, sink, out, received, planes, "write", flows))


def from_storage(net: Network, dies: Sequence[int]) -> Load:
    """Volumes and objects (EVS, OBS) over the VPC plane into `dies`."""
    sink, received = _evenly(net, dies)
    if not sink:
        raise HardwareError("storage is read into at least one die")
    source = net.of_kind("vpc")
    out = Ends(_even(source).tolist())
    return load_of(net, Demand(Ends(source.tolist()), sink, out, received, ("vpc",), "read"))


def _storing(net: Network) -> INTS:
    """CPUs with a DPU that reaches storage."""
    dpus, usable = net.of_kind("qingtian"), net.open_links("vpc")
    linked = usable & np.isin(net.head, dpus) & np.isin(net.tail, net.of_kind("cpu"))
    to_vpc = usable & np.isin(net.tail, dpus) & np.isin(net.head, net.of_kind("vpc"))
    return np.unique(net.tail[linked & np.isin(net.head, net.tail[to_vpc])])


def to_storage(net: Network) -> Load | None:
    """Writes of stored blocks from nodes to storage, each node its own share; None: no node can."""
    hosts, sink = _storing(net), net.of_kind("vpc")
    if not hosts.size:
        return None
    return load_of(net, _demand(hosts, sink, _even(hosts), _even(sink), ("vpc",), "write"))


def into_memory(net: Network, dies: Sequence[int]) -> Load | None:
    """Objects (OBS) over the VPC plane into the DRAM of the nodes of `dies`; None: no way."""
    hosts, source = _storing(net), net.of_kind("vpc")
    hosts = hosts[np.isin(net.node[hosts], net.node[dies_of(net, dies)])]
    if not hosts.size:
        return None
    return load_of(net, _demand(source, hosts, _even(source), _even(hosts), ("vpc",), "read"))


def one_to_others(net: Network, die: int, plane: str, operation: Operation = "write") -> Load:
    """One die that sends equally to every reachable die of other nodes."""
    source = dies_of(net, [die])
    others = net.dies[(net.dies != source[0]) & net.reachable(plane, source)[net.dies]]
    rest = others[net.node[others] != net.node[source[0]]]
    if plane == "ub":
        rest = rest[net.domain[rest] == net.domain[source[0]]]
    if np.unique(net.node[net.dies]).size == 1:  # nowhere else to send to
        rest = others if net.dies.size > 1 else net.of_kind(plane)
    if not rest.size:
        raise HardwareError(
            f"{net.vertices[source[0]]} has no link left on the {plane} plane: restore one"
        )
    return load_of(net, _demand(source, rest, np.ones(1), _even(rest), (plane,), operation, "none"))
