"""What stands around the picture of the fabric. Three rates that edits move, with bottlenecks
(bytes/s, one direction, idle links), of a pool's slowest instance; collisions of whole flows that
are hashed to paths; what came of a change; sums and files of the machine."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from twin.facts import Facts
from twin.hardware import demands, prices
from twin.hardware.chip import Chip, HardwareError, load_chip
from twin.hardware.collisions import Collision
from twin.hardware.flows import Load, Plane
from twin.hardware.graph_text import forms
from twin.hardware.machine_file import fabric_text
from twin.hardware.network import Network
from twin.hardware.placement import Instance, place
from twin.hardware.prices import Price
from twin.hardware.validation import problems
from twin.metrics.measures import NOTHING, numbered
from twin.outlook import Outlook
from twin.scenario import MemoryPool, Scenario, with_overrides
from twin.ui import formulas, session
from twin.ui.fields import sentence
from twin.ui.imports import draw_machine_upload
from twin.ui.pages.supernode import editor
from twin.ui.show import draw_download, file_name

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
# A sentence for everything about a machine that cannot work.
cannot_work = lru_cache(maxsize=16)(problems)
totals = lru_cache(maxsize=8)(prices.summary)  # of a fabric, each with its unit in its name
ROUTED = {
    "adaptive": "Rates are for traffic that is balanced over its paths to keep the fullest link "
    "low (adaptive routing).",
    "ecmp": "Rates are for traffic that splits by the capacity of its paths, whatever "
    "else is under way (weighted ECMP).",
    "hashed": "Rates are for flows that are hashed to their paths as a whole, the mean over where "
    "the hash puts them.",
}
ADDED = {
    "adaptive": "An added link comes on top of the paths that the machine has as built: no pair "
    "loses bandwidth by it.",
    "ecmp": "ECMP takes the paths of fewest hops only: an added link that shortens a pair's path "
    "carries all of that pair's traffic, also where the longer paths are wider.",
}
ADDED["hashed"] = ADDED["ecmp"]


class Headline(NamedTuple):
    """A rate that a fabric gives to one kind of transfer, with its bottleneck, or why none."""

    label: str
    bytes_per_s: float | None
    owner: str  # whose rate it is
    bottleneck: str  # what is full first, or why nothing can pass
    latency_s: float | None = None


def make_price_key(net: Network) -> Key:
    """Make a function that returns a key of an instance; instances with equal keys have equal
    prices. Keys hold the dies' positions in their nodes and the rates of these nodes' links. If
    nodes are linked directly, they hold the dies' numbers."""
    tail_node, head_node = net.node[net.tail], net.node[net.head]
    has_direct_links = bool(((tail_node >= 0) & (head_node >= 0) & (tail_node != head_node)).any())
    node_of_link = np.maximum(tail_node, head_node)
    link_order = np.argsort(node_of_link, kind="stable")
    link_values = np.stack([net.capacity, net.latency], axis=1)[link_order]
    first_links = np.searchsorted(node_of_link[link_order], np.arange(net.nodes + 1))
    link_bytes_by_node = [link_values[begin:end].tobytes() for begin, end in pairwise(first_links)]

    def key_of_instance(instance: Instance) -> tuple[bytes, ...]:
        """Key of an instance: equal for instances with equal prices."""
        if has_direct_links:
            return (np.array(instance.die_of_rank).tobytes(),)
        node_of_die, die_position = np.divmod(np.array(instance.die_of_rank), net.dies_per_node)
        nodes = list(dict.fromkeys(node_of_die.tolist()))
        positions = np.stack([np.searchsorted(np.sort(nodes), node_of_die), die_position])
        return (positions.tobytes(), *(link_bytes_by_node[node] for node in nodes))

    return key_of_instance


@lru_cache(maxsize=16)
def headlines(s: Scenario, fabric: Network) -> list[Headline]:
    """Rates that matter to the deployment: all-to-all among dies, KV transfer, memory pool reads.
    Empty if its instances cannot be placed."""
    try:
        instances = place(s, fabric).instances
    except HardwareError:  # the answer above the prices says why
        return []
    price_key_of, tiles = make_price_key(fabric), list[Headline]()

    def instances_of(*roles: str) -> list[Instance]:
        """Instances of these roles."""
        return [i for i in instances if i.role in roles]

    serving_instances = instances_of("decode", "colocated") or instances_of("prefill")
    multi_die_instances = [i for i in serving_instances if i.dies > 1]
    if multi_die_instances:
        label = f"All-to-all, {multi_die_instances[0].role} die"
        tiles.append(_slowest_headline(label, "die", multi_die_instances, price_key_of,
                              lambda i: prices.all_to_all(fabric, i.die_of_rank)))  # fmt: skip
    if s.deployment.mode == "disaggregated":
        plane = s.deployment.kv_transfer_plane
        label, owner = f"KV transfer, die · {PLANES[plane]}", "die" if plane != "vpc" else "node"
        tiles.append(_slowest_headline(
            label, owner, instances_of("prefill", "decode"), price_key_of,
            lambda i: _hand_off_price(fabric, instances, i, plane)))  # fmt: skip
    if s.memory_pool.enabled and s.deployment.mode != "decode_only":
        pool_plane, readers = s.memory_pool.plane, instances_of("prefill", "colocated")
        label, owner = f"Pool read, instance · {PLANES[pool_plane]}", f"{readers[0].role} instance"
        tiles.append(_slowest_headline(label, owner, readers, price_key_of, lambda i:
            prices.pool_read(fabric, i.die_of_rank, pool_plane)))  # fmt: skip
    return tiles


def link_shares(s: Scenario, net: Network, traffic: str) -> np.ndarray[Any, Any]:
    """Share of each directed link's capacity that is used, f8[links], while every instance sends
    traffic of this class (of TRAFFIC) as fast as it can."""
    used_share = np.zeros(net.capacity.size)
    for load in _loads(s, net, place(s, net).instances, traffic):
        bytes_per_s, _ = load.rate_alone(net)
        if 0.0 < bytes_per_s < np.inf:
            used_share[load.links] += bytes_per_s * load.amounts / net.capacity[load.links]
    return np.minimum(used_share, 1.0)


def _loads(s: Scenario, net: Network, placed: Sequence[Instance], traffic: str) -> Iterator[Load]:
    """Yield the loads on links by a class of TRAFFIC; "experts": of prefill if no die decodes."""

    def dies_of(*roles: str) -> list[int]:
        """Dies of instances of these roles."""
        return [die for i in placed if i.role in roles for die in i.die_of_rank]

    prefill_dies, decode_dies = dies_of("prefill", "colocated"), dies_of("decode", "colocated")
    if traffic == "experts":
        multi_die_instances = [
            i for i in placed if i.dies > 1 and (i.role != "prefill" or not decode_dies)
        ]
        yield from (demands.exchange_load(net, i.die_of_rank) for i in multi_die_instances)
    elif traffic == "kv_hand_off" and s.deployment.mode == "disaggregated":
        yield demands.kv_load(net, prefill_dies, decode_dies, s.deployment.kv_transfer_plane)
    elif traffic == "pool_read" and s.memory_pool.enabled and prefill_dies:
        pool_load = demands.pool_load(net, prefill_dies, s.memory_pool.plane)
        if pool_load is not None:
            yield pool_load[0]


def _hand_off_price(
    fabric: Network, instances: Sequence[Instance], instance: Instance, plane: Plane
) -> Price:
    """Rate and bottleneck of KV transfers at the slowest die of an instance. The rate is divided by
    the mean collision factor, by which hashed flows slow each other down."""
    collision = prices.transfer_collision(
        fabric, ((i.role, i.die_of_rank) for i in instances), plane
    )
    port_bytes_per_s = prices.port_rates(fabric, plane)
    first_price = prices.nic(fabric, instance.die_of_rank[0], plane)
    die_bytes_per_s = port_bytes_per_s[prices.ports_of(fabric, instance.die_of_rank, first_price)]
    price = prices.nic(fabric, instance.die_of_rank[int(np.argmin(die_bytes_per_s))], plane)
    return replace(price, bytes_per_s=price.bytes_per_s / collision.mean, collision=collision)


def _slowest_headline(
    label: str, owner: str, instances: Sequence[Instance], key_of: Key,
    price_of: Callable[[Instance], Price],
) -> Headline:  # fmt: skip
    """Headline with the lowest rate of all `instances`; of instances with equal keys only one is
    priced. owner: whose rate it is, such as "die"."""
    instance_by_key = {key_of(instance): instance for instance in reversed(instances)}
    try:
        all_prices = [price_of(instance) for instance in instance_by_key.values()]
    except HardwareError as error:
        return Headline(label, None, owner, str(error))
    lowest_price = min(reversed(all_prices), key=lambda p: p.bytes_per_s)
    return Headline(
        label, lowest_price.bytes_per_s, owner, lowest_price.bottleneck, lowest_price.latency_s
    )


def hashed_planes(fabric: Network) -> list[str]:
    """Names of a machine's planes that hash whole flows to paths."""
    return [plane for plane in FIELDS if fabric.routing(plane) == "hashed"]


@lru_cache(maxsize=16)
def collisions(s: Scenario, fabric: Network) -> Collisions:
    """Highest collision factors of all instances, by (kind of traffic, plane)."""
    worst_collisions: Collisions = {}
    for traffic, load in _traffic_loads(s, fabric):
        for plane, collision in load.collisions:
            traffic_plane = traffic, WAY.get(plane, plane)
            old_and_new = worst_collisions.get(traffic_plane, Collision()), collision
            worst_collisions[traffic_plane] = max(old_and_new, key=lambda c: (c.mean, c.flows))
    return worst_collisions


def _traffic_loads(s: Scenario, net: Network) -> Iterator[tuple[str, Load]]:
    """Yield (kind of traffic, load) of the instances; of instances with equal prices only one."""
    price_key_of = make_price_key(net)
    instances = place(s, net).instances
    instance_by_key = {(i.role, price_key_of(i)): i for i in reversed(instances)}
    distinct_instances = list(instance_by_key.values())[::-1]
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
    st.markdown(_collision_sentence(draft, planes, collision_by))


def _collision_sentence(draft: Scenario, planes: list[str], collision_by: Collisions) -> str:
    """Sentence that compares hashed flows with an even split: TPOT and time of KV transfers."""
    even_scenario = with_overrides(draft, {FIELDS[plane]: "ecmp" for plane in planes})
    hashed, even = formulas.outlook(draft), formulas.outlook(even_scenario)
    clauses = []
    if isinstance(hashed, Outlook) and isinstance(even, Outlook) and hashed.tpot_s and even.tpot_s:
        clauses.append(
            f"TPOT is {1e3 * hashed.tpot_s:.3g} ms by formula, and {1e3 * even.tpot_s:.3g} ms with "
            "an even split"
        )
    factors = (c.mean for (traffic, _), c in collision_by.items() if traffic == "KV transfers")
    if transfer_factor := max(factors, default=0.0):
        clauses.append(
            "KV transfers meet no other on their paths" if transfer_factor < 1.005 else
            f"a KV transfer takes {transfer_factor:.2f} times as long"
        )  # fmt: skip
    cost_text = "; ".join(clauses) or "no die decodes, and no KV moves"
    return f"{cost_text[0].upper()}{cost_text[1:]}."


def draw_prices(draft: Scenario, fabric: Network) -> None:
    """Draw the deployment's `headlines` on this fabric, and their change from the preset's."""
    preset_machine = session.preset().supernode
    draft_on_preset = draft.model_copy(update={"supernode": preset_machine})
    try:
        preset_prices = headlines(draft_on_preset, editor.fabric_of(preset_machine))
    except HardwareError:
        preset_prices = []
    rate_before = {price.label: price.bytes_per_s for price in preset_prices}
    with st.grid(3, min_column_width=150, gap="small"):
        for price in headlines(draft, fabric):
            bytes_per_s_before = rate_before.get(price.label)
            # Always a line below the figure: else the first edit that is priced moves the picture.
            delta, is_changed, rate_text = "now", False, "cut off"
            help_text = sentence(price.bottleneck)
            if price.bytes_per_s is None:
                delta = f"was {_rate_text(bytes_per_s_before)}" if bytes_per_s_before else delta
            else:
                change = price.bytes_per_s / bytes_per_s_before - 1 if bytes_per_s_before else 0.0
                if is_changed := abs(change) >= 5e-5:
                    delta = f"{100 * change:+.3g} % of {_rate_text(bytes_per_s_before or 0.0)}"
                elif bytes_per_s_before:
                    delta = "unchanged"
                latency_text = (
                    f" Latency {1e6 * price.latency_s:.3g} µs." if price.latency_s else ""
                )
                rate_text = _rate_text(price.bytes_per_s)
                help_text = (
                    f"A {price.owner} gets this, one direction, with no other traffic on the way; "
                    f"the slowest one. Full first: {price.bottleneck}.{latency_text} The change is "
                    "against the machine that this draft began with."
                )
            st.metric(price.label, rate_text, delta, delta_color="normal" if is_changed else "off",
                      delta_arrow="auto" if is_changed else "off", help=help_text)  # fmt: skip


def _rate_text(bytes_per_s: float) -> str:
    """A rate in bytes/s as text, in GB/s or TB/s.

    >>> _rate_text(2.15e10), _rate_text(5.24e12)
    ('21.5 GB/s', '5.24 TB/s')
    """
    if bytes_per_s >= 1e12:
        return f"{bytes_per_s / 1e12:,.4g} TB/s"
    return f"{bytes_per_s / 1e9:,.4g} GB/s"


def draw_outcome() -> None:
    """Draw the sentence on the fabric's last change, if any, in red if it was refused."""
    outcome_text, is_refused = st.session_state.pop(editor.OUTCOME, ("", False))  # drawn once
    if outcome_text:
        colour, icon = ("red", "error") if is_refused else ("green", "check")
        st.markdown(f":small[:{colour}[:material/{icon}: {outcome_text}]]")


def draw_totals(net: Network, facts: Facts, draft: Scenario) -> None:
    """Draw counts and capacities of the whole machine, each with its unit."""
    pool = draft.memory_pool
    chip_of_npu = net.chips(draft.supernode.chip)
    dies_by_chip = Counter(chip_of_npu[npu] for npu in net.npu.tolist())
    chips = [(load_chip(facts, name), die_count) for name, die_count in dies_by_chip.items()]
    st.subheader("In all", anchor=False)
    machine_totals, edits = totals(net), net.about["supernode"].edits
    tiles = _chip_tiles(machine_totals, chips, pool, net) | _rate_tiles(machine_totals, bool(edits))
    with st.grid(5, min_column_width=160):
        for name, (value_text, help_text) in tiles.items():
            st.metric(name, value_text, help=help_text)
    ub_routing, rdma_routing = net.routing("ub"), net.routing("rdma")
    routing_text = (
        f"{PLANES['ub']}: {ROUTED[ub_routing]}  \n{PLANES['rdma']}: {ROUTED[rdma_routing]}"
    )
    st.caption(ROUTED[ub_routing] if ub_routing == rdma_routing else routing_text)
    if any(edit.add == "link" for edit in edits):
        st.caption(ADDED[ub_routing])


def _chip_tiles(
    totals: dict[str, float], dies: Sequence[tuple[Chip, int]], pool: MemoryPool, net: Network
) -> dict[str, tuple[str, str]]:
    """Tiles of NPUs, memory and switches: (value as text, meaning) by title. totals: figures of
    `prices.summary`. dies: (chip, number of its dies). pool: the memory pool."""
    nodes, supernodes = totals["nodes"], totals["supernodes"]
    shared_formats = set.intersection(*(set(chip.flops) for chip, _ in dies))  # that all compute
    peak_flops = {name: sum(die_count * chip.flops[name] for chip, die_count in dies)
             for name in shared_formats}  # fmt: skip
    best_format = max(peak_flops, key=lambda name: (peak_flops[name], name))
    hbm_tb = sum(die_count * chip.hbm_bytes_per_die for chip, die_count in dies) / 1e12
    chips_text = " and ".join(f"{chip.title}, {numbered(n, 'die')}" for chip, n in dies)
    nodes_text = numbered(int(nodes), "node")
    supernodes_text = f" in {supernodes} supernodes" if supernodes > 1 else ""
    l1_chips, l2_chips, chip_count = totals["l1_chips"], totals["l2_chips"], totals["switches"]
    l2_per_plane, port_share = totals["l2_chips_per_sub_plane"], totals["l2_port_utilisation"]
    lenders = demands.lending_nodes(net)
    pool_tb = pool.gb_per_node * demands.dram_ratio(net, lenders) / 1e3 if pool.enabled else 0.0
    peak_unit = "OPS" if best_format[:3] == "int" else "FLOPS"
    node_text = "a node with NPUs, of others by their CPUs" if np.ptp(net.cpus) else "every node"
    tooltip = f"{pool.gb_per_node:,.4g} GB of {node_text}." if pool_tb else "No blocks are stored."
    if pool_tb and (lost_nodes := int(np.count_nonzero(net.cpus)) - len(lenders)):
        tooltip += f" {numbered(lost_nodes, 'node')} without a UB link of a CPU: nothing of these."
    chips_tile = f"{chip_count:,}", "Of every level, scale-up and scale-out."
    if l1_chips + l2_chips == chip_count > 0:
        ports_text = f"{100 * port_share:.0f} % of the L2 ports are used"
        chips_note = f"L1 in the nodes + L2 between them, {l2_per_plane} a sub-plane; {ports_text}."
        chips_tile = f"{l1_chips:,} + {l2_chips:,}", chips_note
    return {
        "NPUs": (f"{totals['npus']:,}", f"{chips_text}, in {nodes_text}{supernodes_text}."),
        "HBM": (f"{hbm_tb:,.1f} TB", "Of all dies."),
        "Memory pool, DRAM": (f"{pool_tb:,.4g} TB" if pool_tb else NOTHING, tooltip),
        f"Peak, {best_format.upper()}": (
            f"{peak_flops[best_format] / 1e15:,.0f} P{peak_unit}",
            "Dense, of all dies; what operators reach of it is the model's work.",
        ),
        "Switch chips": chips_tile,
    }  # fmt: skip


def _rate_tiles(totals: dict[str, float], is_edited: bool) -> dict[str, tuple[str, str]]:
    """Tiles of the links' rates: (value as text, meaning) by title. totals: figures of
    `prices.summary`. is_edited: whether the fabric has edits."""
    oversubscription = totals["oversubscription"]
    local_text = "." if oversubscription else ", and none of it leaves the node over UB."
    rdma_tbps, vpc_tbps = (totals[f"{plane}_bytes_per_s"] / 1e12 for plane in ("rdma", "vpc"))
    return {
        "UB of an NPU": (
            f"{totals['npu_bytes_per_s'] / 1e9:,.4g} GB/s",
            "One direction, nominal, its dies together; of kinds that differ the most.",
        ),
        "UB out of the weakest node" if is_edited else "UB out of a node": (
            f"{totals['node_uplink_bytes_per_s'] / 1e9:,.4g} GB/s",
            "One direction, of the weakest node. A node's NPUs can send "
            f"{totals['node_npu_bytes_per_s'] / 1e9:,.4g} GB/s{local_text}",
        ),
        "Oversubscription": (
            f"{oversubscription:.3g} : 1" if oversubscription else NOTHING,
            "What the NPUs of a node can send over what leaves the weakest node over UB; "
            "1 : 1 holds nothing back.",
        ),
        "UB bisection": (
            f"{totals['bisection_bytes_per_s'] / 1e12:,.4g} TB/s",
            "What one half of the nodes can send to the other half, one direction.",
        ),
        "RDMA · VPC": (
            " · ".join(f"{tbps:,.3g} TB/s" if tbps else NOTHING for tbps in (rdma_tbps, vpc_tbps)),
            "All NICs together · all nodes' Qingtian DPUs together, one direction.",
        ),
    }


def draw_files(fabric: Network) -> None:
    """Draw downloads of the fabric, and an upload that replaces the draft's machine."""
    st.markdown("**Take it elsewhere**")
    with st.container(horizontal=True):
        for kind, form in forms().items():
            file = file_name(session.draft().name, f"-fabric.{kind}")
            draw_download(form.title, partial(fabric_text, fabric, kind), file, f"fabric-{kind}")
    st.caption(
        "Every link with its rate and latency, edits included: bytes/s and s in the graphs, which "
        "networkx, Gephi and yEd read, GB/s and ns in the cable list. The box below takes each "
        "back as a machine."
    )
    st.markdown("**Bring one in**")
    st.caption(
        "A cable list begins with the line from,to,GB/s,ns,plane and has a line a cable, as in "
        "die 0.0.0,switch 0,28,200,ub; semicolons or tabs may stand for the commas. Graphs are "
        "read as networkx writes them; an edge has capacity_bytes_per_s, latency_s and plane."
    )
    draw_machine_upload()
