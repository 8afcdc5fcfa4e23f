"""Three rates that edits move, with bottlenecks (bytes/s, one direction, idle links), of a pool's
slowest instance; collisions of whole flows that are hashed to paths, and their costs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from twin.hardware import demands
from twin.hardware.chip import HardwareError
from twin.hardware.collisions import Collision
from twin.hardware.flows import Load, Plane
from twin.hardware.network import Network
from twin.hardware.placement import Instance, place
from twin.hardware.prices import (
    Price,
    all_to_all,
    nic,
    pool_read,
    port_rates,
    ports_of,
    transfer_collision,
)
from twin.outlook import Outlook
from twin.scenario import Scenario, with_overrides
from twin.ui import formulas

Key = Callable[[Instance], tuple[bytes, ...]]
Collisions = dict[tuple[str, str], Collision]  # by kind of traffic and plane of FIELDS

PLANES = {"ub": "UB", "rdma": "RDMA", "vpc": "VPC"}
FIELDS = {"ub": "supernode.ub_routing", "rdma": "supernode.rdma_routing"}
WAY = {"ub": "ub", "rdma": "rdma", "host": "rdma"}  # plane of a demand -> plane that it takes
TRAFFIC = {  # classes whose load the picture can show
    "experts": "Load of the exchange among dies",
    "kv_hand_off": "Load of the KV transfer",
    "pool_read": "Load of pool reads",
}


class Headline(NamedTuple):
    """One price of a fabric: its rate and bottleneck, or why there is none."""

    label: str
    bytes_per_s: float | None
    per: str  # whose rate it is
    where: str  # what is full first, or why nothing can pass
    latency_s: float | None = None


def price_key(net: Network) -> Key:
    """Function that returns a key of an instance, equal for instances with equal prices: same
    places in alike nodes, or, with links from node to node, the same dies."""
    tail_node, head_node = net.node[net.tail], net.node[net.head]
    has_direct_links = bool(((tail_node >= 0) & (head_node >= 0) & (tail_node != head_node)).any())
    node_of_link = np.maximum(tail_node, head_node)
    links_by_node = np.argsort(node_of_link, kind="stable")
    link_values = np.stack([net.capacity, net.latency], axis=1)[links_by_node]
    first_link = np.searchsorted(node_of_link[links_by_node], np.arange(net.nodes + 1))
    link_bytes_by_node = [link_values[begin:end].tobytes() for begin, end in pairwise(first_link)]

    def key(instance: Instance) -> tuple[bytes, ...]:
        """Bytes of the instance's places and of its nodes' links, or of its dies."""
        if has_direct_links:
            return (np.array(instance.die_of_rank).tobytes(),)
        node_of_die, position = np.divmod(np.array(instance.die_of_rank), net.dies_per_node)
        nodes = list(dict.fromkeys(node_of_die.tolist()))
        positions = np.stack([np.searchsorted(np.sort(nodes), node_of_die), position])
        return (positions.tobytes(), *(link_bytes_by_node[n] for n in nodes))

    return key


@lru_cache(maxsize=16)
def headlines(s: Scenario, fabric: Network) -> list[Headline]:
    """Rates that matter to the deployment: experts' exchange, KV transfer, pool reads."""
    try:
        instances = place(s, fabric).instances
    except HardwareError:  # the answer above the prices says why
        return []
    key_of, prices = price_key(fabric), list[Headline]()

    def pool(*roles: str) -> list[Instance]:
        """Instances of these roles."""
        return [i for i in instances if i.role in roles]

    serving_instances = pool("decode", "colocated") or pool("prefill")
    exchangers = [i for i in serving_instances if i.dies > 1]
    if exchangers:
        label = f"All-to-all, {exchangers[0].role} die"
        prices.append(_slowest(label, "die", exchangers, key_of, lambda i: all_to_all(
            fabric, i.die_of_rank)))  # fmt: skip
    if s.deployment.mode == "disaggregated":
        plane = s.deployment.kv_transfer_plane
        label, per = f"KV transfer, die · {PLANES[plane]}", "die" if plane != "vpc" else "node"
        prices.append(_slowest(label, per, pool("prefill", "decode"), key_of,
                               lambda i: _hand_off_price(fabric, instances, i, plane)))  # fmt: skip
    if s.memory_pool.enabled and s.deployment.mode != "decode_only":
        pool_plane, readers = s.memory_pool.plane, pool("prefill", "colocated")
        label, per = f"Pool read, instance · {PLANES[pool_plane]}", f"{readers[0].role} instance"
        prices.append(_slowest(label, per, readers, key_of, lambda i: pool_read(
            fabric, i.die_of_rank, pool_plane)))  # fmt: skip
    return prices


def link_shares(s: Scenario, net: Network, traffic: str) -> np.ndarray[Any, Any]:
    """Used share of each directed link, f8[links], if all instances send such traffic at once."""
    shares = np.zeros(net.capacity.size)
    for load in _loads(s, net, place(s, net).instances, traffic):
        bytes_per_s, _ = load.rate_alone(net)
        if 0.0 < bytes_per_s < np.inf:
            shares[load.links] += bytes_per_s * load.amounts / net.capacity[load.links]
    return np.minimum(shares, 1.0)


def _loads(s: Scenario, net: Network, placed: Sequence[Instance], traffic: str) -> Iterator[Load]:
    """Load of a class of traffic on the network, if any; experts: of prefill if none decodes."""

    def dies(*roles: str) -> list[int]:
        """Dies of instances of these roles."""
        return [die for i in placed if i.role in roles for die in i.die_of_rank]

    prefill_dies, decode_dies = dies("prefill", "colocated"), dies("decode", "colocated")
    if traffic == "experts":
        exchangers = [i for i in placed if i.dies > 1 and (i.role != "prefill" or not decode_dies)]
        yield from (demands.exchange_load(net, i.die_of_rank) for i in exchangers)
    elif traffic == "kv_hand_off" and s.deployment.mode == "disaggregated":
        yield demands.kv_load(net, prefill_dies, decode_dies, s.deployment.kv_transfer_plane)
    elif traffic == "pool_read" and s.memory_pool.enabled and prefill_dies:
        pool_load = demands.pool_load(net, prefill_dies, s.memory_pool.plane)
        if pool_load is not None:
            yield pool_load[0]


def _hand_off_price(
    fabric: Network, instances: Sequence[Instance], instance: Instance, plane: Plane
) -> Price:
    """Price of KV transfer by an instance's slowest die, its rate over the mean hash collision."""
    collision = transfer_collision(fabric, ((i.role, i.die_of_rank) for i in instances), plane)
    nic_rates = port_rates(fabric, plane)
    first_price = nic(fabric, instance.die_of_rank[0], plane)
    rates = nic_rates[ports_of(fabric, instance.die_of_rank, first_price)]
    slowest = nic(fabric, instance.die_of_rank[int(np.argmin(rates))], plane)
    return replace(slowest, bytes_per_s=slowest.bytes_per_s / collision.mean, collision=collision)


def _slowest(
    label: str, per: str, instances: Sequence[Instance], key_of: Key,
    price: Callable[[Instance], Price],
) -> Headline:  # fmt: skip
    """Lowest price among instances; where keys are equal, one is priced."""
    instance_by_key = {key_of(instance): instance for instance in reversed(instances)}
    try:
        prices = [price(instance) for instance in instance_by_key.values()]
    except HardwareError as error:
        return Headline(label, None, per, str(error))
    lowest = min(reversed(prices), key=lambda p: p.bytes_per_s)
    return Headline(label, lowest.bytes_per_s, per, lowest.bottleneck, lowest.latency_s)


def hashed_planes(fabric: Network) -> list[str]:
    """Names of a machine's planes that hash whole flows to paths."""
    return [plane for plane in FIELDS if fabric.routing(plane) == "hashed"]


@lru_cache(maxsize=16)
def collisions(s: Scenario, fabric: Network) -> Collisions:
    """The collision factors of the deployment: by traffic and plane those of the worst instance."""
    worst_by: Collisions = {}
    for traffic, load in _traffic_loads(s, fabric):
        for plane, collision in load.collisions:
            key = traffic, WAY.get(plane, plane)
            candidates = worst_by.get(key, Collision()), collision
            worst_by[key] = max(candidates, key=lambda c: (c.mean, c.flows))
    return worst_by


def _traffic_loads(s: Scenario, net: Network) -> Iterator[tuple[str, Load]]:
    """(kind of traffic, its load) for one of all equivalent instances."""
    key_of = price_key(net)
    instances = place(s, net).instances
    distinct_instances = list({(i.role, key_of(i)): i for i in reversed(instances)}.values())[::-1]
    decode_dies = [die for i in instances if i.role == "decode" for die in i.die_of_rank]
    for instance in distinct_instances:
        if instance.dies > 1:
            yield f"Exchange, {instance.role}", demands.exchange_load(net, instance.die_of_rank)
        if instance.role == "prefill" and decode_dies:
            plane = s.deployment.kv_transfer_plane
            yield "KV transfers", demands.kv_load(net, instance.die_of_rank, decode_dies, plane)
        if instance.role != "decode" and s.memory_pool.enabled:
            pool_load = demands.pool_load(net, instance.die_of_rank, s.memory_pool.plane)
            if pool_load is not None:
                yield "Pool reads", pool_load[0]


def draw_hashed_flows(draft: Scenario, fabric: Network) -> None:
    """Draw collisions of flows and their cost; nothing if no plane hashes flows."""
    planes = hashed_planes(fabric)
    if not planes:
        return
    st.subheader("Hashed flows", anchor=False)
    try:
        collision_by = collisions(draft, fabric)
    except HardwareError:
        return  # the page has said above why instances cannot be placed
    st.caption(
        "Time over that of an even split, as each flow stays on one of its equal paths. An "
        "exchange or a read waits for its fullest path, a KV transfer for its own; p99 is over "
        "where the hash puts them. Prices take the mean."
    )
    if not collision_by:
        st.markdown("No traffic of this deployment takes a plane that hashes flows.")
        return
    rows = [
        {"Traffic": traffic, "Plane": PLANES[plane], "Mean": f"{collision.mean:.2f} ×",
         "p99": f"{collision.p99:.2f} ×", "Flows at once": f"{collision.flows:,}"}
        for (traffic, plane), collision in collision_by.items()
    ]  # fmt: skip
    st.dataframe(rows, hide_index=True)
    st.markdown(_cost_sentence(draft, planes, collision_by))


def _cost_sentence(draft: Scenario, planes: list[str], collision_by: Collisions) -> str:
    """One sentence on what hashed flows cost: TPOT, and the duration of KV transfers."""
    even_scenario = with_overrides(draft, {FIELDS[plane]: "ecmp" for plane in planes})
    hashed, even = formulas.outlook(draft), formulas.outlook(even_scenario)
    clauses = []
    if isinstance(hashed, Outlook) and isinstance(even, Outlook) and hashed.tpot_s and even.tpot_s:
        clauses.append(
            f"TPOT is {1e3 * hashed.tpot_s:.3g} ms by formula, and {1e3 * even.tpot_s:.3g} ms with "
            "an even split"
        )
    transfers = (c.mean for (traffic, _), c in collision_by.items() if traffic == "KV transfers")
    if factor := max(transfers, default=0.0):
        clauses.append(
            "KV transfers meet no other on their paths" if factor < 1.005 else
            f"a KV transfer takes {factor:.2f} times as long"
        )  # fmt: skip
    cost_text = "; ".join(clauses) or "no die decodes, and no KV moves"
    return f"{cost_text[0].upper()}{cost_text[1:]}."
