"""What a way through the fabric costs: rate, latency and the links that are full first.

Every answer is a `Price` of one demand with no other traffic on the way, read from the load that it
puts on the graph's links (flows.py); who else is there is the engine's business (sharing.py). It
sees no queues in switch chips and no software in front of the ports."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twin.hardware import demands
from twin.hardware.chip import HardwareError
from twin.hardware.collisions import Collision
from twin.hardware.faults import dies_without_path
from twin.hardware.flows import Demand, Load, Operation, Plane, load_of
from twin.hardware.kinds import is_switch
from twin.hardware.network import Network, cached_by_network
from twin.hardware.walks import FLOATS, INTS

OVERLOAD = 0.01  # of a link that is let pass, as in runs


@dataclass(frozen=True)
class Price:
    """Rate (bytes/s, one direction) and latency (s) of a path through the fabric."""

    bytes_per_s: float
    latency_s: float
    bottleneck: str  # the links that are full first
    peers: int = 1  # how many others an endpoint exchanges with
    off_node_fraction: float = 0.0  # share of the bytes that crosses a node's border
    shared_by_dies: int = 1  # dies that share `bytes_per_s` between them
    collision: Collision = Collision()  # of hashed flows: its mean is in `bytes_per_s`
    ports: float = 1.0  # time of the fullest port of an end over that of the fullest link

    def seconds(self, size_bytes: float) -> float:
        """Seconds to transfer `size_bytes` without other traffic."""
        return self.latency_s + size_bytes / self.bytes_per_s


def worst_collision(loads: Iterable[Load]) -> Collision:
    """The collision factor with the largest mean, over all planes of all loads."""
    collisions = [collision for load in loads for _, collision in load.collisions]
    return max(collisions, key=lambda collision: collision.mean, default=Collision())


def _price(net: Network, load: Load, subject: str, **further_fields: Any) -> Price:
    """Price of a load without other traffic. Raises HardwareError, in a sentence about `subject`,
    if a path is cut. further_fields: fields of the Price."""
    bytes_per_s, link = load.rate_alone(net)
    if load.unreached:
        sender, receiver = (net.vertices[vertex] for vertex in load.unreached[0])
        raise HardwareError(
            f"{subject} is cut off: no path of links from {sender} to {receiver} is left; "
            "restore a link there"
        )
    fields = dict[str, Any](off_node_fraction=load.off_node, collision=worst_collision([load]))
    return Price(bytes_per_s, load.latency_s, net.label(link), **fields | further_fields)


def price_between(
    net: Network, src: int | str, dst: int | str, operation: Operation = "write",
    plane: Plane = "ub",
) -> Price:  # fmt: skip
    """Price from `src` to `dst` (a vertex name, or a die's number) over all parallel paths. On the
    VPC plane a die goes over its own node's UB links to the CPU with the DPU; dies of one node stay
    in it, dies of one NPU use their link. Raises HardwareError if the plane does not join them."""
    source, target = _vertex_of(net, src), _vertex_of(net, dst)
    if source == target:
        raise HardwareError(f"{net.vertices[source]} to itself needs no link: name two elements")
    in_package = (net.tail == source) & (net.head == target) & net.open_links("package")
    used_plane = "package" if plane == "ub" and in_package.any() else plane
    load = load_of(net, Demand((source,), (target,), (1.0,), (1.0,), (used_plane,), operation))
    if load.unreached:
        raise HardwareError(
            f"{net.vertices[source]} cannot reach {net.vertices[target]} on the {plane} plane: "
            "no path of links is left"
        )
    return _price(
        net, load, "the way", off_node_fraction=float(net.node[source] != net.node[target])
    )


def _vertex_of(net: Network, element: int | str) -> int:
    """Returns the vertex of a vertex name or of a die's number; raises HardwareError if unknown."""
    if isinstance(element, str):
        if element not in net.number:
            raise HardwareError(f"no element is named {element!r}; names look like 'die 20.1.0'")
        return net.number[element]
    return int(demands.die_vertices(net, [element])[0])


def all_to_all(
    net: Network, dies: Sequence[int], plane: Plane = "ub", operation: Operation = "write"
) -> Price:
    """Price per die when each of `dies` sends equally to all others. The slowest link sets the
    bytes/s, the farthest pair the latency. Raises HardwareError for a die that is cut off."""
    load = demands.exchange_load(net, dies, plane, operation)
    name_text, port_time_share = f"all-to-all over {plane}", load.port_time_share(net)
    return _price(net, load, name_text, peers=len(dies) - 1, ports=port_time_share)


def pool_read(
    net: Network, dies: Sequence[int], plane: Plane = "ub", nodes: Sequence[int] | None = None
) -> Price:
    """Price when all of `dies` together read from the DRAM of the CPUs of `nodes` (None: all).
    Blocks outside a UB plane enter through the dies' NICs. HardwareError if no CPU is reached."""
    pool_load = demands.pool_load(net, dies, plane, nodes)
    if pool_load is None:
        die_vertices = demands.die_vertices(net, dies)
        unlinked_dies = die_vertices[net.rates_out(plane)[die_vertices] <= 0.0]
        has_cpu = net.rates_out(plane)[net.of_kind("cpu")].any()
        cause = "" if has_cpu else "no CPU is on the plane"
        if unlinked_dies.size:
            cause = f"{net.vertices[unlinked_dies[0]]} has no link left"
        raise HardwareError(
            f"a pool read over {plane} needs dies and a node whose CPUs they can reach"
            f"{cause and ', and '}{cause}: link them, or let memory_pool.enabled be off"
        )
    load, memory_nodes = pool_load
    peers = demands.equal_parts(net, memory_nodes).size
    return _price(net, load, f"a pool read over {plane}", peers=peers, shared_by_dies=len(dies))


def host_copy_rates(net: Network, dies: Sequence[int], plane: Plane) -> tuple[float, float]:
    """Bytes/s of all of `dies` together: (into the DRAM of the dies' nodes, out of this DRAM).
    Raises HardwareError where a die does not reach it."""
    nodes = net.nodes_of(dies)
    write_load = demands.pool_load(net, dies, plane, nodes, "write")
    from_host_price = pool_read(net, dies, plane, nodes)
    assert write_load is not None  # as it is read
    to_host_price = _price(net, write_load[0], f"a copy to host memory over {plane}")
    return to_host_price.bytes_per_s, from_host_price.bytes_per_s


def server_port_rate(
    net: Network, dies: Sequence[int], plane: Plane = "ub", nodes: Sequence[int] | None = None,
) -> float:  # fmt: skip
    """Bytes/s of the median memory server for each equal part of its DRAM; 0 without any server."""
    pool_load = demands.pool_load(net, dies, plane, nodes)
    if pool_load is None:
        return 0.0
    load, dram_nodes = pool_load
    is_port, _ = demands.server_ports(net, load.pattern, plane)
    bytes_per_s, links = np.full(net.nodes, np.inf), load.links[is_port]
    link_bytes_per_s = net.capacity[links] / load.amounts[is_port]
    np.minimum.at(bytes_per_s, net.node[net.tail[links]], link_bytes_per_s)
    return float(np.median(bytes_per_s[dram_nodes])) / demands.equal_parts(net, dram_nodes).size


def nic(net: Network, die: int, plane: Plane = "rdma", operation: Operation = "write") -> Price:
    """Price of one die that sends to (or receives from) other nodes on a plane. `shared_by_dies` of
    the price: number of dies that share the limiting links; 1 if these are the die's own."""
    used_plane = "rdma" if plane == "ub" and not net.spans_nodes else plane
    load = demands.one_to_others(net, die, used_plane, operation)
    sharing_dies = net.dies_per_node if used_plane == "vpc" and net.storage_ports != "nic" else 1
    name_text = f"{used_plane} of die {die}"
    return _price(net, load, name_text, off_node_fraction=1.0, shared_by_dies=sharing_dies)


def ports_of(net: Network, dies: Sequence[int], price: Price) -> INTS:
    """Index of each die's port in the result of `port_rates`: the die's number, or its node's if
    dies of a node share a port. price: that of a die on the plane, by `nic`."""
    die_numbers = np.array(dies, np.int64)
    return net.node[net.dies[die_numbers]] if price.shared_by_dies > 1 else die_numbers


def hand_off_bytes_per_s(
    net: Network, price: Price, instances: Iterable[tuple[str, Sequence[int]]], plane: Plane
) -> float:
    """Bytes/s of a KV transfer from or to a die, limited by the best port of the slower pool.
    price: of the first die, by `nic`; instances: (role, numbers of its dies) of each."""
    port_bytes_per_s, best_rate_of = port_rates(net, plane), dict[str, float]()
    for role, dies in instances:
        best_rate = float(port_bytes_per_s[ports_of(net, dies, price)].max())
        best_rate_of[role] = max(best_rate_of.get(role, 0.0), best_rate)
    first_die_rate = float(port_bytes_per_s[ports_of(net, [0], price)[0]])
    rate_share = min(best_rate_of.values()) / first_die_rate if first_die_rate > 0.0 else 1.0
    return price.bytes_per_s * rate_share / price.shared_by_dies


def transfer_collision(
    net: Network, instances: Iterable[tuple[str, Sequence[int]]], plane: Plane
) -> Collision:
    """Collision factor of KV transfers on a plane that hashes whole flows: that of the worst
    prefill instance, each of whose dies sends to a different die of decode. No factor on other
    planes or without linked dies. instances: (role, numbers of its dies) of each instance."""
    planes = ("ub", "rdma") if plane == "ub" else (plane,)
    if all(net.routing(plane_name) != "hashed" for plane_name in planes):
        return Collision()
    unlinked_dies = dies_without_path(net, plane)
    linked = [(role, [die for die in dies if die not in unlinked_dies]) for role, dies in instances]
    decode_dies = [die for role, dies in linked if role == "decode" for die in dies]
    return worst_collision(
        demands.kv_load(net, dies, decode_dies, plane)
        for role, dies in linked if role == "prefill" and dies and decode_dies
    )  # fmt: skip


@cached_by_network
def exchange_overlaps(
    net: Network, instances: tuple[tuple[str, tuple[int, ...]], ...]
) -> dict[tuple[str, str], float]:
    """By (role, sending role): the time that instances of the sending role, if they send all the
    time, add to an exchange of a role, divided by the exchange's time without other traffic; empty
    where no link is shared. An exchange is judged on its fullest link, a role by the mean of its
    instances. instances: (role, numbers of its dies) of each instance."""
    roles = [role for role, _ in instances]
    exchanges, link_loads = [], {role: np.zeros(net.capacity.size) for role in roles}
    for role, dies in instances:
        load = demands.exchange_load(net, dies)
        link_shares = load.amounts * load.rate_alone(net)[0] / net.capacity[load.links]
        link_loads[role][load.links] += link_shares
        exchanges.append((role, load.links, link_shares))
    overlaps = defaultdict[tuple[str, str], float](float)
    total_load = np.sum(list(link_loads.values()), axis=0)
    for role, links, link_shares in exchanges:
        fullest_index = int(np.argmax(total_load[links]))
        fullest_link = links[fullest_index]
        excess_load = float(total_load[fullest_link]) - 1.0
        load_by_role = {other: loads[fullest_link] - link_shares[fullest_index] * (other == role)
                  for other, loads in link_loads.items()}  # fmt: skip
        if excess_load > OVERLOAD:
            for other, role_load in load_by_role.items():
                added_time_share = excess_load * role_load / sum(load_by_role.values())
                overlaps[role, other] += float(added_time_share) / roles.count(role)
    return dict(overlaps)


@cached_by_network
def port_rates(net: Network, plane: Plane) -> FLOATS:
    """Bytes/s f8[ports] of the ports of a plane, each the lower of both directions. A die's port is
    its scale-up links, its NIC, or, for "vpc", its NIC or its node's DPU. Equal calls share the
    array: do not change it."""
    kind_of = {"ub": "die" if net.spans_nodes else "nic", "rdma": "nic", "vpc": net.storage_ports}
    port_kind = kind_of[plane]
    port_vertices = net.of_kind(port_kind)
    plane_links = net.links_of("rdma" if port_kind == "nic" else plane)
    link_sets = [plane_links] if port_kind == "die" else [
        plane_links & (net.kind == link_kind)
        for link_kind in np.unique(net.kind[plane_links & np.isin(net.tail, port_vertices)])
    ]  # fmt: skip
    vertex_count = len(net.vertices)
    rate_sums = [
        np.bincount(ends[links], net.capacity[links], minlength=vertex_count)[port_vertices]
        for links in link_sets
        for ends in (net.tail, net.head)
    ]
    return np.asarray(np.min(rate_sums, axis=0)) if rate_sums else np.zeros(port_vertices.size)


def uplink_matrix(net: Network) -> FLOATS:
    """Nominal bytes/s (one direction) of links out of each node by sub-plane, f8[nodes,
    sub-planes]. Where the UB plane ends at the node: of links from its dies into its switches."""
    plane_links = net.links_of("ub")
    is_uplink = plane_links & (net.node[net.tail] >= 0) & (net.node[net.tail] != net.node[net.head])
    if not is_uplink.any():
        is_uplink = plane_links & np.isin(net.tail, net.dies)
    bytes_per_s = np.zeros((net.nodes, net.sub_planes))
    np.add.at(
        bytes_per_s, (net.node[net.tail[is_uplink]], np.maximum(net.sub_plane[is_uplink], 0)),
        net.capacity[is_uplink],
    )  # fmt: skip
    return bytes_per_s


def summary(net: Network) -> dict[str, float]:
    """Counts of every element, and headline capacities in nominal bytes/s of one direction.
    bisection_bytes_per_s: from half of a supernode's nodes to the others over UB; oversubscription:
    what a node's NPUs can send, divided by its uplinks' capacity (0: no uplinks)."""
    count_of_kind = Counter(data["kind"] for data in net.vertex_data)
    links_of_kind: Counter[str] = Counter()
    links_of_plane: Counter[str] = Counter()
    for link in np.flatnonzero((net.capacity > 0.0) & (net.tail < net.head)).tolist():
        link_data = net.link_data[link]
        links_of_kind[link_data["kind"]] += link_data["links"]
        links_of_plane[link_data["plane"]] += link_data["links"]
    uplink_bytes_per_s = uplink_matrix(net).sum(axis=1) * net.spans_nodes
    node_of_die = net.node[net.dies]
    is_from_die = net.links_of("ub") & np.isin(net.tail, net.dies)
    is_from_die &= ~np.isin(net.head, net.of_kind("cpu"))
    node_bytes_per_s = np.bincount(net.node[net.tail[is_from_die]], net.capacity[is_from_die])
    l2_ports = count_of_kind["l2"] * net.about["supernode"].l2_ports_per_chip
    uplink_rate = float(uplink_bytes_per_s[node_of_die].min())
    most_node_rate = float(node_bytes_per_s.max())
    used_l2_ports = links_of_kind["L1-L2"] + links_of_kind["L2-L3"]
    npu_of_vertex = np.zeros(len(net.vertices), np.int64)
    npu_of_vertex[net.dies] = net.npu
    npu_bytes_per_s = np.bincount(npu_of_vertex[net.tail[is_from_die]], net.capacity[is_from_die])
    return {
        "supernodes": len({d.get("supernode", 0) for d in net.vertex_data if d["kind"] == "die"}),
        "nodes": net.nodes,
        "npus": net.npus,
        "dies": count_of_kind["die"],
        "cpus": count_of_kind["cpu"],
        "l1_chips": count_of_kind["l1"],
        "l2_chips": count_of_kind["l2"],
        "l2_chips_per_sub_plane": net.about["l2_chips_per_sub_plane"],
        "switches": sum(count for kind, count in count_of_kind.items() if is_switch(kind)),
        "sub_planes": net.sub_planes,
        "nics": count_of_kind["nic"],
        "dpus": count_of_kind["qingtian"],
        "ub_links": links_of_plane["ub"],
        "l2_ports": l2_ports,
        "l2_ports_used": used_l2_ports,
        "l2_port_utilisation": used_l2_ports / l2_ports if l2_ports else 0.0,
        "npu_bytes_per_s": float(npu_bytes_per_s.max()),
        "node_npu_bytes_per_s": most_node_rate,
        "node_uplink_bytes_per_s": uplink_rate,
        "oversubscription": most_node_rate / uplink_rate if uplink_rate > 0.0 else 0.0,
        "bisection_bytes_per_s": _bisection_rate(net),
        "rdma_bytes_per_s": float(_capacity_out_of_nodes(net, "nic", "rdma")),
        "vpc_bytes_per_s": float(_capacity_out_of_nodes(net, "qingtian", "vpc")),
    }


def _capacity_out_of_nodes(net: Network, kind: str, plane: str) -> float:
    """Summed bytes/s of a plane's links that leave nodes from vertices of a kind."""
    is_leaving = net.links_of(plane) & np.isin(net.tail, net.of_kind(kind))
    is_leaving &= net.node[net.head] != net.node[net.tail]
    return float(net.capacity[is_leaving].sum())


def _bisection_rate(net: Network) -> float:
    """Least bytes/s, over all supernodes, from one half of the nodes to the other half over UB. For
    nodes joined by switches it is the rate of the weaker half; for nodes joined directly, that of
    the links from the first half to the second."""
    supernode_of_node = np.zeros(net.nodes, np.int64)
    for data in net.vertex_data:
        if "node" in data:
            supernode_of_node[data["node"]] = data.get("supernode", 0)
    is_ub = net.links_of("ub") & (net.node[net.tail] >= 0)
    node_to_node = is_ub & (net.node[net.head] >= 0) & (net.node[net.tail] != net.node[net.head])
    bytes_per_s_to_switches = np.bincount(
        net.node[net.tail[is_ub & (net.node[net.head] < 0)]],
        net.capacity[is_ub & (net.node[net.head] < 0)], minlength=net.nodes,
    ) if net.spans_nodes else np.zeros(net.nodes)  # fmt: skip
    least_bytes_per_s = math.inf
    for supernode in np.unique(supernode_of_node).tolist():
        nodes = np.flatnonzero(supernode_of_node == supernode)
        in_half = np.isin(np.arange(net.nodes), nodes[: nodes.size // 2])
        in_other_half = np.isin(np.arange(net.nodes), nodes[nodes.size // 2 :])
        is_link_out = node_to_node & in_half[net.node[net.tail]] & in_other_half[net.node[net.head]]
        weaker_half_rate = np.sort(bytes_per_s_to_switches[nodes])[: nodes.size // 2].sum()
        least_bytes_per_s = min(
            least_bytes_per_s, float(weaker_half_rate + net.capacity[is_link_out].sum())
        )
    return least_bytes_per_s
