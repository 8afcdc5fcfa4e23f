"""From a recipe to a machine: what wires what.

A scale-up network is one entry of SCALE_UP, a scale-out network one of SCALE_OUT: each is a
function of a `Draft`. A new topology is a function, an entry here and a file in data/machines.
Scale-up networks have a hierarchy (L1, L2 and L3 of a Clos, one hop through shared chips), or none:
nD full mesh, torus, dragonfly; racks and pods of meshes. Of these `PAIRS` lists the links of an
abstract grid of cells. The cells are the L1 switches of nodes (the same nodes as CloudMatrix384's,
wired otherwise) or the ports of NPUs (UB-Mesh, tori of chips)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

from twin.hardware.chip import HardwareError
from twin.hardware.draft import MOST_LINKS, Draft, too_large_error
from twin.hardware.network import Plan
from twin.hardware.recipes import Recipe
from twin.scenario import Supernode
from twin.scenario.words import numbered

Pairs = Iterator[tuple[int, int, int]]  # cells (nodes or NPUs, by number), and links between them


def draw_clos(draft: Draft) -> None:
    """Draws CloudMatrix384's network: an L1 switch per sub-plane in every node, L2 switches between
    nodes. With `l2_levels` = 2 nodes form groups with their own L2 chips, half of whose ports lead
    to L3 chips; L2 chip i of every group is joined to the same L3 chips."""
    machine, rack_chips = draft.s, draft.recipe.l2_chips_per_rack_and_sub_plane
    l2_chips = l2_chips_per_sub_plane(machine, rack_chips)  # of a group
    draft.about["l2_chips_per_sub_plane"] = l2_chips
    draft.add_nodes(lambda node: node // machine.nodes if l2_chips else node)
    groups = math.ceil(machine.nodes / nodes_per_group(machine))
    racks = math.ceil(l2_chips / rack_chips)
    supernode_planes = list(product(range(machine.supernodes), range(machine.sub_planes)))
    for (supernode, plane), chip in product(supernode_planes, range(l2_chips * groups)):
        rack_number = (supernode * groups + chip // l2_chips) * racks
        rack_number += chip % l2_chips // rack_chips
        place: dict[str, Any] = {"supernode": supernode, "sub_plane": plane, "index": chip}
        chip_name = switch_name("L2", supernode, plane, chip)
        draft.add(chip_name, "l2", **place, rack=f"communication rack {rack_number}")
    l3_per_l2 = _l3_per_l2(machine, groups) if l2_chips and groups > 1 else 0
    for (supernode, plane), chip in product(supernode_planes, range(l2_chips * l3_per_l2)):
        rack = f"communication rack L3 {supernode}.{chip % l3_per_l2}"
        place = {"supernode": supernode, "sub_plane": plane, "index": chip}
        draft.add(switch_name("L3", supernode, plane, chip), "l3", **place, rack=rack)
    draft.add_networks()
    for node in range(machine.all_nodes):
        draft.link_inside(node)
        supernode, place_of_node = divmod(node, machine.nodes)
        group, node_in_group = divmod(place_of_node, nodes_per_group(machine))
        switches = [(plane, f"L1 {node}.{plane}") for plane in range(machine.sub_planes)]
        for chip, links in deal_uplinks(node_in_group, machine.l1_uplinks, l2_chips):
            bytes_per_s = links * draft.link_bytes_per_s
            for plane, switch in switches:
                l2_chip = switch_name("L2", supernode, plane, group * l2_chips + chip)
                draft.link(switch, l2_chip, "L1-L2", bytes_per_s, plane, links)
    uplinks = machine.l2_ports_per_chip - nodes_per_group(machine)  # of an L2 chip
    for (supernode, plane), chip in product(supernode_planes, range(l2_chips * groups)):
        for l3_number, links in deal_uplinks(chip // l2_chips, uplinks, l3_per_l2):
            l2_chip = switch_name("L2", supernode, plane, chip)
            l3_chip = switch_name("L3", supernode, plane, chip % l2_chips * l3_per_l2 + l3_number)
            draft.link(l2_chip, l3_chip, "L2-L3", links * draft.link_bytes_per_s, plane, links)


def nodes_per_group(s: Supernode) -> int:
    """Number of nodes that share one set of L2 switch chips: all nodes of the supernode, or, with
    `l2_levels` = 2, half as many as an L2 chip has ports."""
    return max(1, s.l2_ports_per_chip // 2) if s.l2_levels == 2 else max(1, s.nodes)


def l2_chips_per_sub_plane(s: Supernode, step: int) -> int:
    """Number of L2 switch chips of a sub-plane (with `l2_levels` = 2: of a group of nodes), by the
    paper's section 3.3.3 and Table 11. They have a port for every L1 uplink and fill whole
    communication racks, of `step` chips per sub-plane each. There are at most as many as an L1 chip
    has uplinks, because an L1 chip must reach every L2 chip of its sub-plane. Returns 0 when
    nothing lies beyond the node; raises HardwareError for too many nodes."""
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
    """Name of a switch by level and numbers (`place`): "L2 3.12", in supernode 1 "L2 1:3.12"."""
    joined_numbers = ".".join(map(str, place))
    return f"{level} {supernode}:{joined_numbers}" if supernode else f"{level} {joined_numbers}"


def _l3_per_l2(s: Supernode, groups: int) -> int:
    """Number of L3 chips joined to each L2 chip, enough for the uplinks of all groups of nodes.
    Raises HardwareError for more groups than L3 chips have ports for."""
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
    """List of (chip, links): how many uplinks of switch number `turn` lead to each chip of the next
    level. Uplinks are dealt round robin from the chip at which the previous switch ended, so chips
    use equally many ports and every switch reaches every chip."""
    if not chips:
        return []
    links, remainder = divmod(uplinks, chips)
    wider_chips = {(turn * uplinks + extra_link) % chips for extra_link in range(remainder)}
    return [(i, links + (i in wider_chips)) for i in range(chips) if links or i in wider_chips]


def draw_one_hop(draft: Draft) -> None:
    """Draws NVL72's network: links from every die to every switch chip, and from CPUs to dies."""
    machine = draft.s
    die_count = machine.npus_per_node * sum(
        draft.recipe_of(node).dies_per_npu for node in range(machine.nodes)
    )
    if die_count > machine.l2_ports_per_chip:
        raise HardwareError(
            f"supernode.nodes = {machine.nodes:,} of {numbered(machine.npus_per_node, 'NPU')} have "
            f"{die_count:,} dies, a switch chip has {machine.l2_ports_per_chip} ports "
            "(l2_ports_per_chip), one a die: take fewer nodes"
        )
    draft.add_nodes(lambda node: node // machine.nodes, switches=False, die_forwards="ub vpc host")
    for supernode, plane in product(range(machine.supernodes), range(machine.sub_planes)):
        rack = f"rack {supernode * math.ceil(machine.nodes / draft.recipe.nodes_per_rack)}"
        place: dict[str, Any] = {"supernode": supernode, "sub_plane": plane, "rack": rack}
        draft.add(switch_name("NVSwitch", supernode, plane), "nvswitch", **place)
    draft.add_networks()
    for node in range(machine.all_nodes):
        dies_per_npu = draft.recipe_of(node).dies_per_npu
        die_bytes_per_s = draft.die_link_bytes_per_s(node)
        for npu in range(machine.npus_per_node):
            draft.link_package(node, npu)
            for die, plane in product(range(dies_per_npu), range(machine.sub_planes)):
                chip = switch_name("NVSwitch", node // machine.nodes, plane)
                draft.link(f"die {node}.{npu}.{die}", chip, "die-NVSwitch", die_bytes_per_s, plane)
        npus_per_cpu = math.ceil(machine.npus_per_node / len(draft.cpus(node)))  # NPUs of one CPU
        cpu_bytes_per_s = draft.recipe.cpu_bytes_per_s / npus_per_cpu / dies_per_npu
        for npu, die in product(range(machine.npus_per_node), range(dies_per_npu)):
            cpu = f"CPU {node}.{npu // npus_per_cpu}"
            draft.link(cpu, f"die {node}.{npu}.{die}", "CPU-die", cpu_bytes_per_s)


def grid_of(shape: Sequence[int], cell: int) -> tuple[int, ...]:
    """Coordinates of a cell (node or NPU, by number) in a grid, the first dimension innermost."""
    coordinates = []
    for size in shape:
        cell, coordinate = divmod(cell, size)
        coordinates.append(coordinate)
    return tuple(coordinates)


def full_mesh_pairs(shape: Sequence[int], links: Sequence[int]) -> Pairs:
    """Yield (cell, cell, links) for all pairs of cells that differ in one coordinate of a grid (nD
    full mesh). links: number of links between two such cells, by dimension."""
    for cell, (axis, length) in product(range(math.prod(shape)), enumerate(shape)):
        stride = math.prod(shape[:axis])  # from a cell to the next in this dimension
        for steps in range(1, length - cell // stride % length):
            yield cell, cell + steps * stride, links[axis]


def torus_pairs(shape: Sequence[int], links: Sequence[int]) -> Pairs:
    """Yield (cell, next cell, links) along each dimension of a torus, whose last cell is also
    linked to the first. links: number of links between such neighbours, by dimension."""
    for cell, (axis, length) in product(range(math.prod(shape)), enumerate(shape)):
        stride, coordinate = math.prod(shape[:axis]), cell // math.prod(shape[:axis]) % length
        if length > 1 and (length > 2 or coordinate == 0):
            yield cell, cell + ((coordinate + 1) % length - coordinate) * stride, links[axis]


def dragonfly_pairs(shape: Sequence[int], links: Sequence[int]) -> Pairs:
    """Yield (router, router, links) for a dragonfly of `shape[1]` groups of `shape[0]` routers. In
    a group all pairs of routers have links[0] links. Each router has links[1] links to other
    groups, dealt evenly over all pairs of groups (consecutive arrangement). Raises HardwareError if
    they cannot join all groups."""
    routers, groups = shape
    local_links, global_links = links
    router_pairs = list(combinations(range(routers), 2))
    for group, (lower_router, upper_router) in product(range(groups), router_pairs):
        yield group * routers + lower_router, group * routers + upper_router, local_links
    pair_links = routers * global_links // max(1, groups - 1)
    if groups > 1 and pair_links < 1:
        raise HardwareError(
            f"a dragonfly of {groups} groups needs {groups - 1} links out of a group, {routers} "
            f"routers with {global_links} have {routers * global_links}: take fewer groups or more "
            "supernode.l1_uplinks"
        )
    for group, peer in combinations(range(groups), 2):
        link_counts: Counter[tuple[int, int]] = Counter()
        for link in range(pair_links):
            our_router = ((peer - group - 1) * pair_links + link) // max(1, global_links)
            their_router = ((group - peer - 1) % groups * pair_links + link) // max(1, global_links)
            ends = group * routers + our_router % routers, peer * routers + their_router % routers
            link_counts[ends] += 1
        for (lower_router, upper_router), link_count in link_counts.items():
            yield lower_router, upper_router, link_count


PAIRS: dict[str, Callable[[Sequence[int], Sequence[int]], Pairs]] = {
    "full_mesh": full_mesh_pairs,
    "torus": torus_pairs,
    "dragonfly": dragonfly_pairs,
}


def shape_of(s: Supernode, recipe: Recipe, cells: int) -> tuple[int, ...]:
    """Number of cells in each dimension of a supernode's mesh: as the scenario says, otherwise as
    the recipe says. Raises HardwareError if their product is not `cells`."""
    shape = tuple(map(int, s.dimensions.split("x"))) if s.dimensions else recipe.dimensions
    if recipe.scale_up == "dragonfly" and len(shape) != 2:
        raise HardwareError(
            f"supernode.dimensions = {'x'.join(map(str, shape))} must be two numbers for a "
            "dragonfly: routers of a group x groups"
        )
    if math.prod(shape) != cells:
        cell_name = "NPUs of a node" if s.scale_up == "node" else (
            "NPUs of a supernode" if recipe.wired == "npu" else "nodes of a supernode"
        )  # fmt: skip
        raise HardwareError(
            f"supernode.dimensions = {'x'.join(map(str, shape))} are {math.prod(shape)}, and the "
            f"{cell_name} are {cells}: let their product be {cells}"
        )
    return shape


def _draw_mesh_of_nodes(draft: Draft) -> None:
    """Draws a mesh, torus or dragonfly of nodes: L1 switches are its routers in every sub-plane."""
    machine, recipe = draft.s, draft.recipe
    shape = shape_of(machine, recipe, machine.nodes)
    if recipe.scale_up == "dragonfly":
        local_links = shape[0] - 1
        global_links = machine.l1_uplinks - local_links
        links_of_axis: list[int] = [1, global_links]
        if global_links < 1 and shape[1] > 1:
            raise _too_few_uplinks_error(machine, local_links + 1)
    else:
        neighbour_counts = [
            size - 1 if recipe.scale_up == "full_mesh" else min(size - 1, 2) for size in shape
        ]
        if machine.l1_uplinks < sum(neighbour_counts):
            raise _too_few_uplinks_error(machine, sum(neighbour_counts))
        links_of_axis = [machine.l1_uplinks // sum(neighbour_counts)] * len(shape)
        spare_links = machine.l1_uplinks % sum(neighbour_counts)
        for axis, neighbours in enumerate(neighbour_counts):  # spare links widen whole dimensions
            if neighbours and spare_links >= neighbours:
                links_of_axis[axis] += 1
                spare_links -= neighbours
    draft.add_nodes(lambda node: node // machine.nodes)
    for node in range(machine.all_nodes):
        for plane in range(machine.sub_planes):
            draft.vertices[f"L1 {node}.{plane}"]["grid"] = grid_of(shape, node % machine.nodes)
    draft.add_networks()
    for node in range(machine.all_nodes):
        draft.link_inside(node)
    pairs = list(PAIRS[recipe.scale_up](shape, links_of_axis))
    for supernode, (node_a, node_b, links) in product(range(machine.supernodes), pairs):
        for plane in range(machine.sub_planes):
            first_node = supernode * machine.nodes
            draft.link(
                f"L1 {first_node + node_a}.{plane}", f"L1 {first_node + node_b}.{plane}", "L1-L1",
                links * draft.link_bytes_per_s, plane, links,
            )  # fmt: skip


def _too_few_uplinks_error(s: Supernode, needed: int) -> HardwareError:
    """HardwareError for L1 switches with fewer uplinks than the `needed` neighbours."""
    return HardwareError(
        f"supernode.l1_uplinks = {s.l1_uplinks} are fewer than the {needed} neighbours of an L1 "
        "switch: take more uplinks, or more and smaller dimensions"
    )


def _draw_mesh_of_npus(draft: Draft) -> None:
    """Draws a mesh or torus of NPUs, each with a port vertex that forwards bytes; if the recipe has
    `racks_across`, racks are joined by their switches."""
    machine, recipe = draft.s, draft.recipe
    is_node_mesh = machine.scale_up == "node"
    cell_count = machine.npus_per_node if is_node_mesh else machine.nodes * machine.npus_per_node
    cells_of_grid = cell_count
    if recipe.racks_across:
        cells_of_grid = min(cell_count, recipe.nodes_per_rack * machine.npus_per_node)
    grid_shape = shape_of(machine, recipe, cells_of_grid)
    nodes_per_domain = 1 if is_node_mesh else machine.nodes
    draft.add_nodes(lambda node: node // nodes_per_domain, switches=False, ports=True)
    pairs = list(PAIRS[recipe.scale_up](grid_shape, recipe.links or (1,) * len(grid_shape)))
    if recipe.racks_across:
        _add_rack_switches(draft)
    draft.add_networks()
    links_per_cell = [0] * math.prod(grid_shape)
    for cell_a, cell_b, link_count in pairs:
        links_per_cell[cell_a] += link_count
        links_per_cell[cell_b] += link_count
    for npu in range(machine.npus):
        node, index = divmod(npu, machine.npus_per_node)
        port, cell = f"port {node}.{index}", npu % math.prod(grid_shape)
        draft.vertices[port]["grid"] = grid_of(grid_shape, cell)
        draft.link_package(node, index)
        port_links = max(1, links_per_cell[cell] + machine.sub_planes * bool(recipe.racks_across))
        dies_per_npu = draft.recipe_of(node).dies_per_npu
        for die in range(dies_per_npu):
            die_bytes_per_s = port_links * draft.die_link_bytes_per_s(node) / dies_per_npu
            draft.link(
                f"die {node}.{index}.{die}", port, "die-port", die_bytes_per_s, links=port_links
            )
    for first_npu in range(0, machine.npus, math.prod(grid_shape)):
        for cell_a, cell_b, link_count in pairs:
            port_a, port_b = (
                divmod(first_npu + cell, machine.npus_per_node) for cell in (cell_a, cell_b)
            )
            draft.link(
                "port {}.{}".format(*port_a), "port {}.{}".format(*port_b), "port-port",
                link_count * draft.link_bytes_per_s, links=link_count,
            )  # fmt: skip
    if recipe.racks_across:
        _link_racks(draft)
        return
    cpu_bytes_per_s = recipe.cpu_bytes_per_s / machine.npus_per_node
    for node in range(machine.all_nodes):
        for cpu, index in product(draft.cpus(node), range(machine.npus_per_node)):
            draft.link(f"CPU {node}.{cpu}", f"port {node}.{index}", "CPU-port", cpu_bytes_per_s)


def _add_rack_switches(draft: Draft) -> None:
    """Draws UB-Mesh's low-radix switches (LRS) of racks, and high-radix ones (HRS) between pods."""
    machine = draft.s
    racks, racks_per_pod = _rack_counts(draft)
    supernodes, planes = range(machine.supernodes), range(machine.sub_planes)
    for supernode, rack, plane in product(supernodes, range(racks), planes):
        rack_name = f"rack {supernode * racks + rack}"
        grid = (*grid_of(draft.recipe.racks_across, rack % racks_per_pod), rack // racks_per_pod)
        place: dict[str, Any] = {"supernode": supernode, "rack": rack_name, "sub_plane": plane}
        draft.add(f"LRS {supernode * racks + rack}.{plane}", "lrs", **place, grid=grid)
    hrs_count = draft.recipe.spine_links if racks > racks_per_pod else 0  # of a sub-plane
    for supernode, plane, hrs in product(supernodes, planes, range(hrs_count)):
        rack_name = f"communication rack {supernode * hrs_count + hrs}"
        place = {"supernode": supernode, "sub_plane": plane, "index": hrs, "rack": rack_name}
        draft.add(switch_name("HRS", supernode, plane, hrs), "hrs", **place)


def _rack_counts(draft: Draft) -> tuple[int, int]:
    """(racks of a supernode, racks of a pod). Raises HardwareError if the nodes do not fill whole
    racks, or several racks do not fill whole pods."""
    machine = draft.s
    racks, remainder = divmod(machine.nodes, draft.recipe.nodes_per_rack)
    racks_per_pod = math.prod(draft.recipe.racks_across)
    if remainder or (racks > 1 and racks % racks_per_pod):
        nodes_per_rack = draft.recipe.nodes_per_rack
        raise HardwareError(
            f"supernode.nodes = {machine.nodes} are not whole racks of {nodes_per_rack} nodes in "
            f"whole pods of {racks_per_pod} racks: take {nodes_per_rack}, or multiples of "
            f"{nodes_per_rack * racks_per_pod}"
        )
    return racks, racks_per_pod


def _link_racks(draft: Draft) -> None:
    """Link NPUs and CPUs to their rack's switches, racks of a pod as a mesh, pods over spines."""
    machine, recipe = draft.s, draft.recipe
    racks, racks_per_pod = _rack_counts(draft)
    link_bytes_per_s = draft.link_bytes_per_s
    cpu_bytes_per_s = recipe.cpu_bytes_per_s / machine.sub_planes
    for node in range(machine.all_nodes):
        rack = node // machine.nodes * racks + node % machine.nodes // recipe.nodes_per_rack
        for plane in range(machine.sub_planes):
            lrs = f"LRS {rack}.{plane}"
            for npu in range(machine.npus_per_node):
                draft.link(f"port {node}.{npu}", lrs, "port-LRS", link_bytes_per_s, plane)
            for cpu in draft.cpus(node):
                draft.link(f"CPU {node}.{cpu}", lrs, "CPU-LRS", cpu_bytes_per_s, plane)
    if racks == 1:
        return
    rack_pairs = list(full_mesh_pairs(recipe.racks_across, [recipe.rack_links] * 8))
    for supernode, pod_start in product(range(machine.supernodes), range(0, racks, racks_per_pod)):
        first_rack = supernode * racks + pod_start
        for (rack_a, rack_b, link_count), plane in product(rack_pairs, range(machine.sub_planes)):
            draft.link(
                f"LRS {first_rack + rack_a}.{plane}", f"LRS {first_rack + rack_b}.{plane}",
                "LRS-LRS", link_count * link_bytes_per_s, plane, link_count,
            )  # fmt: skip
    if racks > racks_per_pod:
        rack_planes = product(range(machine.supernodes), range(racks), range(machine.sub_planes))
        for (supernode, rack, plane), spine_link in product(rack_planes, range(recipe.spine_links)):
            lrs = f"LRS {supernode * racks + rack}.{plane}"
            hrs = switch_name("HRS", supernode, plane, spine_link)
            draft.link(lrs, hrs, "LRS-HRS", link_bytes_per_s, plane)


def draw_mesh(draft: Draft) -> None:
    """Draws a mesh, torus or dragonfly, of NPUs or of nodes, as the recipe says."""
    {"npu": _draw_mesh_of_npus, "node": _draw_mesh_of_nodes}[draft.recipe.wired](draft)


def plan_of_recipe(s: Supernode, recipe: Recipe) -> Plan:
    """Plan of the machine of a recipe; raises HardwareError if it cannot be wired."""
    links_per_die = max(s.sub_planes, sum(recipe.links or (0,)))
    most_dies_per_npu = max(node_recipe.dies_per_npu for node_recipe in (recipe, *recipe.further))
    least_links = s.npus * most_dies_per_npu * (links_per_die + 2)
    if least_links > MOST_LINKS:
        raise too_large_error(least_links)
    draft = Draft(s, recipe)
    SCALE_UP[recipe.scale_up](draft)
    SCALE_OUT[recipe.scale_out](draft)
    draft.link_storage()
    return Plan(draft.about, draft.vertices, draft.links)


def draw_unified(draft: Draft) -> None:
    """Draws RDMA and VPC as one network: NICs reach storage too (arXiv 2506.12708v2 section
    6.1.1)."""
    del draft.vertices["RDMA network"], draft.vertices["VPC network"]
    draft.storage = "RDMA and VPC network"
    draft.about["counted"] = {"host": "rdma", "vpc": "rdma"}
    draft.add(draft.storage, "vpc", "rdma host vpc")
    draft.link_nics(lambda n, die: (draft.storage, "NIC-RDMA"))


def draw_rails(draft: Draft) -> None:
    """Draws a rail-optimised fat tree: NIC number i of each node is linked to leaf switch i of its
    pod, and each leaf switch to all spine switches of the pod."""
    supernode, recipe = draft.s, draft.recipe
    dies_per_npu = max(node_recipe.dies_per_npu for node_recipe in (recipe, *recipe.further))
    rails = supernode.npus_per_node * dies_per_npu
    pod_count = math.ceil(supernode.all_nodes / recipe.nodes_per_pod)
    for pod in range(pod_count):
        for nic in range(rails):
            draft.add(f"leaf {pod}.{nic}", "leaf", index=nic)
        for spine in range(recipe.spines):
            draft.add(f"spine {pod}.{spine}", "spine", index=spine)
    draft.link_nics(lambda n, die: (f"leaf {n // recipe.nodes_per_pod}.{die}", "NIC-leaf"))
    # Non-blocking: a leaf's uplinks carry what the nodes of a whole pod send into it.
    nic_bytes_per_s = supernode.rdma_gb_per_s_per_npu * 1e9 / dies_per_npu
    bytes_per_s = recipe.nodes_per_pod * nic_bytes_per_s / recipe.spines
    cables = max(1, recipe.nodes_per_pod // recipe.spines)
    for pod, spine in product(range(pod_count), range(recipe.spines)):
        spine_name = f"spine {pod}.{spine}"
        for nic in range(rails):
            draft.link(f"leaf {pod}.{nic}", spine_name, "leaf-spine", bytes_per_s, links=cables)
        draft.link(
            spine_name, "RDMA network", "spine-RDMA", rails * bytes_per_s, links=rails * cables
        )


SCALE_UP: Mapping[str, Callable[[Draft], None]] = {
    "clos": draw_clos,
    "one_hop": draw_one_hop,
    "full_mesh": draw_mesh,
    "torus": draw_mesh,
    "dragonfly": draw_mesh,
}

SCALE_OUT: Mapping[str, Callable[[Draft], None]] = {
    # The RDMA network is one non-blocking switch, to which every NIC is linked.
    "one_switch": lambda draft: draft.link_nics(lambda n, die: ("RDMA network", "NIC-RDMA")),
    "unified": draw_unified,
    "rails": draw_rails,
}
