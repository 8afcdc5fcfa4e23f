"""Scale-up networks of switches: L1, L2 and L3 of a Clos, and one hop through shared chips."""

import math
from functools import cache
from itertools import product

from twin.hardware.chip import HardwareError
from twin.hardware.draft import Draft
from twin.scenario import Supernode
from twin.scenario.words import numbered


def draw_clos(draft: Draft) -> None:
    """Draws CloudMatrix384's network: an L1 switch per sub-plane in every node, L2 switches between
    nodes. With `l2_levels` = 2 nodes form groups with their own L2 chips, half of whose ports lead
    to L3 chips; L2 chip i of every group is joined to the same L3 chips."""
    s, per_rack = draft.s, draft.recipe.l2_chips_per_rack_and_sub_plane
    chips = l2_chips_per_sub_plane(s, per_rack)
    draft.about["l2_chips_per_sub_plane"] = chips
    draft.add_nodes(lambda n: n // s.nodes if chips else n)
    groups = math.ceil(s.nodes / nodes_per_group(s))
    racks = math.ceil(chips / per_rack)
    for g, p, i in product(range(s.supernodes), range(s.sub_planes), range(chips * groups)):
        rack = f"communication rack {(g * groups + i // chips) * racks + i % chips // per_rack}"
        name = switch_name("L2", g, p, i)
        draft.add(name, "l2", supernode=g, sub_plane=p, index=i, rack=rack)
    l3_per_l2 = _l3_per_l2(s, groups) if chips and groups > 1 else 0
    for g, p, l3 in product(range(s.supernodes), range(s.sub_planes), range(chips * l3_per_l2)):
        rack = f"communication rack L3 {g}.{l3 % l3_per_l2}"
        name = switch_name("L3", g, p, l3)
        draft.add(name, "l3", supernode=g, sub_plane=p, index=l3, rack=rack)
    draft.add_networks()
    for n in range(s.all_nodes):
        draft.link_inside(n)
        group = n % s.nodes // nodes_per_group(s)
        switches = [(p, f"L1 {n}.{p}") for p in range(s.sub_planes)]
        for i, links in deal_uplinks(n % s.nodes % nodes_per_group(s), s.l1_uplinks, chips):
            rate = links * draft.link_bytes_per_s
            for p, switch in switches:
                upper = switch_name("L2", n // s.nodes, p, group * chips + i)
                draft.link(switch, upper, "L1-L2", rate, p, links)
    uplinks = s.l2_ports_per_chip - nodes_per_group(s)  # of an L2 chip
    for g, p, i in product(range(s.supernodes), range(s.sub_planes), range(chips * groups)):
        for j, links in deal_uplinks(i // chips, uplinks, l3_per_l2):
            upper, rate = switch_name("L3", g, p, i % chips * l3_per_l2 + j), draft.link_bytes_per_s
            draft.link(switch_name("L2", g, p, i), upper, "L2-L3", links * rate, p, links)


def nodes_per_group(s: Supernode) -> int:
    """Number of nodes on one set of L2 chips: all, or with two levels half an L2 chip's ports."""
    return max(1, s.l2_ports_per_chip // 2) if s.l2_levels == 2 else max(1, s.nodes)


def l2_chips_per_sub_plane(s: Supernode, step: int) -> int:
    """Number of L2 switch chips of a sub-plane (of a group), by the paper's section 3.3.3 and Table
    11: enough ports for every L1 uplink, in whole communication racks (`step` chips of each
    sub-plane), but no more than an L1 chip has uplinks, for it must reach every L2 chip of its
    sub-plane. 0 when nothing lies beyond the node."""
    if s.scale_up == "node" or s.nodes == 1:
        return 0
    if s.l2_levels == 2:
        return min(step * math.ceil(s.l1_uplinks / step), s.l1_uplinks)
    if s.nodes > s.l2_ports_per_chip:
        raise HardwareError(
            f"supernode.nodes = {s.nodes} is more than an L2 switch chip has ports "
            f"({s.l2_ports_per_chip}, one a node): nodes {s.l2_ports_per_chip} to {s.nodes - 1} "
            f"could not be reached; take at most {s.l2_ports_per_chip} nodes, chips with "
            f"{s.nodes} ports, l2_levels = 2, or scale_up = node"
        )
    fewest_chips = math.ceil(s.nodes * s.l1_uplinks / s.l2_ports_per_chip)
    return min(step * math.ceil(fewest_chips / step), s.l1_uplinks)


@cache
def switch_name(level: str, supernode: int, *place: int) -> str:
    """Name of a switch by sub-plane and number: "L2 3.12", in the second supernode "L2 1:3.12"."""
    joined_numbers = ".".join(map(str, place))
    return f"{level} {supernode}:{joined_numbers}" if supernode else f"{level} {joined_numbers}"


def _l3_per_l2(s: Supernode, groups: int) -> int:
    """Number of L3 chips joined to each L2 chip, enough for the uplinks of all groups of nodes."""
    uplinks = s.l2_ports_per_chip - nodes_per_group(s)
    most_uplinks = s.l2_ports_per_chip * uplinks
    if groups * uplinks > most_uplinks:
        raise HardwareError(
            f"supernode.nodes = {s.nodes} in {groups} groups is more than L3 switches of "
            f"{s.l2_ports_per_chip} ports can join: take at most "
            f"{s.l2_ports_per_chip * nodes_per_group(s)} nodes"
        )
    return math.ceil(groups * uplinks / s.l2_ports_per_chip)


def deal_uplinks(turn: int, uplinks: int, chips: int) -> list[tuple[int, int]]:
    """(chip, links) of switch number `turn`'s uplinks, dealt round robin from the chip at which the
    previous switch ended: chips use equally many ports, every switch reaches every chip."""
    if not chips:
        return []
    links, remainder = divmod(uplinks, chips)
    wider_chips = {(turn * uplinks + extra_link) % chips for extra_link in range(remainder)}
    return [(i, links + (i in wider_chips)) for i in range(chips) if links or i in wider_chips]


def draw_one_hop(draft: Draft) -> None:
    """Draws NVL72's network: links from every die to every switch chip, and from CPUs to dies."""
    s = draft.s
    die_count = s.npus_per_node * sum(draft.recipe_of(n).dies_per_npu for n in range(s.nodes))
    if die_count > s.l2_ports_per_chip:
        raise HardwareError(
            f"supernode.nodes = {s.nodes:,} of {numbered(s.npus_per_node, 'NPU')} have "
            f"{die_count:,} dies, a switch chip has {s.l2_ports_per_chip} ports "
            "(l2_ports_per_chip), one a die: take fewer nodes"
        )
    draft.add_nodes(lambda n: n // s.nodes, switches=False, die_forwards="ub vpc host")
    for g, p in product(range(s.supernodes), range(s.sub_planes)):
        rack = f"rack {g * math.ceil(s.nodes / draft.recipe.nodes_per_rack)}"
        draft.add(switch_name("NVSwitch", g, p), "nvswitch", supernode=g, sub_plane=p, rack=rack)
    draft.add_networks()
    for n in range(s.all_nodes):
        g, dies_per_npu = n // s.nodes, draft.recipe_of(n).dies_per_npu
        for i in range(s.npus_per_node):
            draft.link_package(n, i)
            for die, p in product(range(dies_per_npu), range(s.sub_planes)):
                bytes_per_s, chip = draft.die_link_bytes_per_s(n), switch_name("NVSwitch", g, p)
                draft.link(f"die {n}.{i}.{die}", chip, "die-NVSwitch", bytes_per_s, p)
        npus_per_cpu = math.ceil(s.npus_per_node / len(draft.cpus(n)))  # NPUs of one CPU
        bytes_per_s = draft.recipe.cpu_bytes_per_s / npus_per_cpu / dies_per_npu
        for i, die in product(range(s.npus_per_node), range(dies_per_npu)):
            draft.link(f"CPU {n}.{i // npus_per_cpu}", f"die {n}.{i}.{die}", "CPU-die", bytes_per_s)
