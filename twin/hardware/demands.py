"""Who sends how much to whom: the classes of traffic of a deployment as demands.

Dies are numbers, as people number them; a demand's ends are vertices of the network. Amounts are
per byte/s of the class: what EACH die sends to all others in an exchange, else the whole of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.flows import Demand, Load, Operation, Pattern, Side, Whole, load_of
from twin.hardware.network import Network, cached_by_network
from twin.hardware.walks import BOOLS, INTS

WAYS = {"ub": ("ub", "host"), "rdma": ("host",), "vpc": ("vpc",)}  # of CPUs' DRAM, by plane


def die_vertices(net: Network, dies: Sequence[int]) -> INTS:
    """Vertices of the dies with these numbers; raises HardwareError for a number without a die."""
    die_numbers = np.asarray(dies, np.int64)
    die_count = net.dies.size
    unknown_dies = die_numbers[(die_numbers < 0) | (die_numbers >= die_count)]
    if unknown_dies.size:
        raise HardwareError(
            f"die {unknown_dies[0]} does not exist: the supernode has dies 0 to {die_count - 1}"
        )
    return np.asarray(net.dies[die_numbers])


def _load(
    net: Network, senders: Side, receivers: Side, planes: Sequence[str], operation: Operation,
    flows: Whole = "pairs",
) -> Load:  # fmt: skip
    """Load of the demand between two sides; a side is (vertices, amount of each vertex)."""
    (out_ends, sent), (in_ends, received) = senders, receivers
    return load_of(net, Demand(out_ends, in_ends, sent, received, tuple(planes), operation, flows))


def _side(ends: INTS, amount: float | None = None) -> Side:
    """A side of a demand: the vertices `ends`, each with `amount`; None: equal shares of sum 1."""
    amount_per_end = 1.0 / max(ends.size, 1) if amount is None else amount
    return tuple(ends.tolist()), (amount_per_end,) * ends.size


@cached_by_network
def _dies_side(net: Network, dies: tuple[int, ...]) -> Side:
    """Dies, with equal shares, as a side of a demand; equal arguments share one object."""
    return _side(die_vertices(net, dies))


def exchange_load(
    net: Network, dies: Sequence[int], plane: str = "ub", operation: Operation = "write"
) -> Load:
    """Load of an all-to-all: each of `dies` sends one unit, evenly to the others. Pairs that UB
    does not join use the RDMA plane at the same time. Bytes between dies of one NPU use the
    switches, too, unless all dies are of one NPU. Raises HardwareError for fewer than two dies."""
    ends = die_vertices(net, dies)
    if ends.size < 2 or np.unique(ends).size < ends.size:
        die_names = [net.vertices[vertex] for vertex in ends[:4].tolist()]
        raise HardwareError(f"all-to-all needs two or more different dies, not {die_names}")
    planes: Sequence[str] = ("ub", "rdma") if plane == "ub" else (plane,)
    if plane == "ub" and _is_one_package(net, ends):
        planes = ("package",)
    receivers = _side(ends, 1.0 / (ends.size - 1.0))
    return _load(net, _side(ends, 1.0), receivers, planes, operation)


def _is_one_package(net: Network, ends: INTS) -> bool:
    """Whether vertices `ends` are dies of one NPU and links in its package join each to each."""
    die_data = [net.vertex_data[die] for die in ends.tolist()]
    packages = {(data["node"], data["npu"]) for data in die_data}
    if len(packages) > 1:
        return False
    is_inner_link = net.open_links("package") & np.isin(net.tail, ends) & np.isin(net.head, ends)
    return int(is_inner_link.sum()) == ends.size * (ends.size - 1)


def pool_load(
    net: Network, dies: Sequence[int], plane: str = "ub", nodes: Sequence[int] | None = None,
    operation: Operation = "read",
) -> tuple[Load, INTS] | None:  # fmt: skip
    """(load, nodes that take part) of reading blocks from, or writing them to, the DRAM of the CPUs
    of `nodes` (None: all nodes); None if no node or die takes part. Blocks are spread over
    reachable nodes by their DRAM (consistent hashing), and over a node's CPUs by their links."""
    dies_side = _dies_side(net, tuple(dies))
    die_nodes = set(net.node[list(dies_side[0])].tolist())
    node_key, lost_nodes = None if nodes is None else tuple(nodes), frozenset[int]()
    while dies_side[0]:
        nodes_and_cpus = _memory_servers(net, node_key, lost_nodes)
        if nodes_and_cpus is None:
            return None
        dram_nodes, cpu_side = nodes_and_cpus
        is_read = operation == "read"
        sides = (cpu_side, dies_side) if is_read else (dies_side, cpu_side)
        load = _load(net, *sides, WAYS[plane], operation)
        newly_lost_nodes = {int(net.node[pair[0 if is_read else 1]]) for pair in load.unreached}
        if not newly_lost_nodes:
            return load, dram_nodes
        far_nodes = set(dram_nodes.tolist()) - die_nodes
        if far_nodes and not far_nodes - newly_lost_nodes:
            return None  # it is the dies that are cut off
        lost_nodes |= newly_lost_nodes
    return None


def lending_nodes(net: Network) -> list[int]:
    """Nodes whose DRAM can hold blocks, ascending: any of their CPUs has an open UB link."""
    cpus = net.of_kind("cpu")
    return np.unique(net.node[cpus[net.rates_out("ub")[cpus] > 0.0]]).tolist()


def dram_ratio(net: Network, nodes: Sequence[int]) -> float:
    """DRAM of these nodes divided by that of the first NPU's node, both counted by their CPUs."""
    usual_cpus = net.cpus[net.node[net.dies[0]]] or net.cpus.max(initial=1)
    return float(net.cpus[list(nodes)].sum() / usual_cpus)


def equal_parts(net: Network, nodes: Sequence[int] | INTS) -> INTS:
    """Divides `nodes`' DRAM into the fewest equal parts; returns the node of each, i8[parts]."""
    node_numbers = np.asarray(nodes, np.int64)
    cpu_counts = net.cpus[node_numbers]
    return np.repeat(node_numbers, cpu_counts // max(1, np.gcd.reduce(cpu_counts, initial=0)))


@cached_by_network
def _memory_servers(
    net: Network, nodes: tuple[int, ...] | None, lost_nodes: frozenset[int]
) -> tuple[INTS, Side] | None:
    """(nodes with memory servers; their CPUs, each with its share of all blocks); None without any.
    nodes: nodes that may have servers, None: all; lost_nodes: nodes left out."""
    cpus = net.of_kind("cpu")
    cpu_bytes_per_s = net.rates_out("ub")[cpus]
    if nodes is not None:
        cpu_bytes_per_s = np.where(np.isin(net.node[cpus], np.asarray(nodes)), cpu_bytes_per_s, 0.0)
    cpu_bytes_per_s = np.where(np.isin(net.node[cpus], list(lost_nodes)), 0.0, cpu_bytes_per_s)
    if not cpu_bytes_per_s.any():
        return None
    node_bytes_per_s = np.bincount(net.node[cpus], cpu_bytes_per_s)
    dram_nodes = np.flatnonzero(node_bytes_per_s)
    is_lending = cpu_bytes_per_s > 0.0
    cpu_node = net.node[cpus][is_lending]
    inverse_node_share = net.cpus[dram_nodes].sum() / net.cpus[cpu_node]
    cpu_block_shares = cpu_bytes_per_s[is_lending] / node_bytes_per_s[cpu_node] / inverse_node_share
    return dram_nodes, (tuple(cpus[is_lending].tolist()), tuple(cpu_block_shares.tolist()))


@cached_by_network
def server_ports(net: Network, read: Pattern, plane: str) -> tuple[BOOLS, BOOLS]:
    """For each link of a pool read's pattern: (whether it is its server's port, whether it is on
    the server's side), bool[links]. A server's port is the narrowest link that only this server
    sends over: into its node's DPU and NICs, out of the node, and, except on VPC, out of its
    CPUs."""
    tail, head = net.tail[read.links], net.head[read.links]
    tail_node = net.node[tail]
    port_vertices = np.concatenate([net.of_kind("qingtian"), net.of_kind("nic")])
    is_server_side = (tail_node >= 0) & ((net.node[head] < 0) | np.isin(head, port_vertices))
    if plane != "vpc":  # what comes from there goes through a CPU of the reader's node
        is_server_side |= np.isin(tail, net.of_kind("cpu"))
    limit_bytes_per_s = net.capacity[read.links] / read.amounts
    least_bytes_per_s = np.full(net.nodes, np.inf)
    np.minimum.at(least_bytes_per_s, tail_node[is_server_side], limit_bytes_per_s[is_server_side])
    is_narrowest = limit_bytes_per_s <= least_bytes_per_s[tail_node] * (1.0 + 1e-9)
    return is_server_side & is_narrowest, is_server_side


def kv_load(
    net: Network, out_dies: Sequence[int], in_dies: Sequence[int], plane: str = "rdma",
    flows: Whole = "each",
) -> Load:  # fmt: skip
    """Load of a KV transfer from `out_dies` to `in_dies`, spread evenly over both. flows, on hashed
    planes: "each" (single transfers, one per sending die) or "pairs" (all pairs at once)."""
    if not len(out_dies) or not len(in_dies):
        raise HardwareError("a hand-off needs at least one die that sends and one that receives")
    planes = ("ub", "rdma") if plane == "ub" else (plane,)
    sides = _dies_side(net, tuple(out_dies)), _dies_side(net, tuple(in_dies))
    return _load(net, *sides, planes, "write", flows)


def storage_read(net: Network, dies: Sequence[int]) -> Load:
    """Load of reading volumes and objects (EVS, OBS) over the VPC plane into `dies`."""
    if not len(dies):
        raise HardwareError("storage is read into at least one die")
    return _load(net, _side(net.of_kind("vpc")), _dies_side(net, tuple(dies)), ("vpc",), "read")


def _cpus_at_storage(net: Network) -> INTS:
    """Vertices of CPUs whose DPU reaches storage."""
    dpus, open_links = net.of_kind("qingtian"), net.open_links("vpc")
    is_cpu_to_dpu = open_links & np.isin(net.head, dpus) & np.isin(net.tail, net.of_kind("cpu"))
    is_dpu_to_vpc = open_links & np.isin(net.tail, dpus) & np.isin(net.head, net.of_kind("vpc"))
    return np.unique(net.tail[is_cpu_to_dpu & np.isin(net.head, net.tail[is_dpu_to_vpc])])


def storage_write(net: Network) -> Load | None:
    """Load of writing blocks to storage, equally from all CPUs that reach it; None if none does."""
    cpus = _cpus_at_storage(net)
    if not cpus.size:
        return None
    return _load(net, _side(cpus), _side(net.of_kind("vpc")), ("vpc",), "write")


def memory_read(net: Network, dies: Sequence[int]) -> Load | None:
    """Load of reading objects (OBS) over the VPC plane into the DRAM of the nodes of `dies`; None
    if no CPU of these nodes reaches storage."""
    cpus = _cpus_at_storage(net)
    cpus = cpus[np.isin(net.node[cpus], net.node[die_vertices(net, dies)])]
    if not cpus.size:
        return None
    return _load(net, _side(net.of_kind("vpc")), _side(cpus), ("vpc",), "read")


def one_to_others(net: Network, die: int, plane: str, operation: Operation = "write") -> Load:
    """Load of one die that sends equally to all dies of other nodes that it reaches on a plane.
    Raises HardwareError if it reaches none."""
    sender = die_vertices(net, [die])
    reachable_dies = net.dies[(net.dies != sender[0]) & net.reachable(plane, sender)[net.dies]]
    receivers = reachable_dies[net.node[reachable_dies] != net.node[sender[0]]]
    if plane == "ub":
        receivers = receivers[net.domain[receivers] == net.domain[sender[0]]]
    if np.unique(net.node[net.dies]).size == 1:  # nowhere else to send to
        receivers = reachable_dies if net.dies.size > 1 else net.of_kind(plane)
    if not receivers.size:
        raise HardwareError(
            f"{net.vertices[sender[0]]} has no link left on the {plane} plane: restore or add one, "
            "or choose another deployment.kv_transfer_plane"
        )
    return _load(net, _side(sender, 1.0), _side(receivers), (plane,), operation, "none")
