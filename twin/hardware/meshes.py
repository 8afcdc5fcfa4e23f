"""Scale-up networks without a hierarchy: nD full mesh, torus, dragonfly; racks and pods of meshes.

`PAIRS` lists the links of an abstract grid of cells. The cells are the L1 switches of nodes (the
same nodes as CloudMatrix384's, wired otherwise) or the ports of NPUs (UB-Mesh, tori of chips)."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from twin.hardware.chip import HardwareError
from twin.hardware.clos import switch_name
from twin.hardware.draft import Draft
from twin.hardware.recipes import Recipe
from twin.scenario import Supernode

Pairs = Iterator[tuple[int, int, int]]  # two cells and the number of links between them


def grid_of(shape: Sequence[int], cell: int) -> tuple[int, ...]:
    """Coordinates of a cell, the first dimension innermost."""
    place = []
    for size in shape:
        cell, coordinate = divmod(cell, size)
        place.append(coordinate)
    return tuple(place)


def _cell(shape: Sequence[int], place: Sequence[int]) -> int:
    """Number of a cell from its coordinates, the last one running fastest."""
    cell = 0
    for size, coordinate in zip(reversed(shape), reversed(place), strict=True):
        cell = cell * size + coordinate
    return cell


def full_mesh_pairs(shape: Sequence[int], links: Sequence[int]) -> Pairs:
    """All pairs of cells that differ in exactly one coordinate (nD full mesh)."""
    for cell in range(math.prod(shape)):
        place = grid_of(shape, cell)
        for k, size in enumerate(shape):
            for other in range(place[k] + 1, size):
                yield cell, _cell(shape, (*place[:k], other, *place[k + 1 :])), links[k]


def torus_pairs(shape: Sequence[int], links: Sequence[int]) -> Pairs:
    """Each cell with the next one in each dimension, cyclic; a ring of two cells has one bundle."""
    for cell in range(math.prod(shape)):
        place = grid_of(shape, cell)
        for k, size in enumerate(shape):
            following = (place[k] + 1) % size
            if size > 1 and (size > 2 or place[k] == 0):
                yield cell, _cell(shape, (*place[:k], following, *place[k + 1 :])), links[k]


def dragonfly_pairs(shape: Sequence[int], links: Sequence[int]) -> Pairs:
    """Groups of `shape[0]` fully joined routers; each router has links[1] links to other groups,
    dealt evenly over all pairs of the `shape[1]` groups (consecutive arrangement)."""
    routers, groups = shape
    local, of_router = links
    for g, a in product(range(groups), range(routers)):
        for b in range(a + 1, routers):
            yield g * routers + a, g * routers + b, local
    each = routers * of_router // max(1, groups - 1)
    if groups > 1 and each < 1:
        raise HardwareError(
            f"a dragonfly of {groups} groups needs {groups - 1} links out of a group, {routers} "
            f"routers with {of_router} have {routers * of_router}: take fewer groups or more "
            "supernode.l1_uplinks"
        )
    for g in range(groups):
        for h in range(g + 1, groups):
            joined: dict[tuple[int, int], int] = {}
            for k in range(each):
                one = ((h - g - 1) * each + k) // max(1, of_router)
                other = ((g - h - 1) % groups * each + k) // max(1, of_router)
                ends = g * routers + one % routers, h * routers + other % routers
                joined[ends] = joined.get(ends, 0) + 1
            for (a, b), count in joined.items():
                yield a, b, count


PAIRS: dict[str, Callable[[Sequence[int], Sequence[int]], Pairs]] = {
    "full_mesh": full_mesh_pairs,
    "torus": torus_pairs,
    "dragonfly": dragonfly_pairs,
}


def shape_of(s: Supernode, recipe: Recipe, cells: int) -> tuple[int, ...]:
    """Dimensions of a supernode's mesh: the scenario's, otherwise the recipe's. Raises
    HardwareError if their product is not the number of cells."""
    sizes = tuple(int(n) for n in s.dimensions.split("x")) if s.dimensions else recipe.dimensions
    if recipe.scale_up == "dragonfly" and len(sizes) != 2:
        raise HardwareError(
            f"supernode.dimensions = {'x'.join(map(str, sizes))} must be two numbers for a "
            "dragonfly: routers of a group x groups"
        )
    if math.prod(sizes) != cells:
        units = "NPUs of a node" if s.scale_up == "node" else (
            "NPUs of a supernode" if recipe.wired == "npu" else "nodes of a supernode"
        )  # fmt: skip
        raise HardwareError(
            f"supernode.dimensions = {'x'.join(map(str, sizes))} are {math.prod(sizes)}, and the "
            f"{units} are {cells}: let their product be {cells}"
        )
    return sizes


def _of_nodes(draft: Draft) -> None:
    """A mesh, torus or dragonfly of nodes: their L1 switches are its routers, a sub-plane each."""
    s, recipe = draft.s, draft.recipe
    shape = shape_of(s, recipe, s.nodes)
    if recipe.scale_up == "dragonfly":
        local = shape[0] - 1
        uplinks_left = s.l1_uplinks - local
        links: list[int] = [1, uplinks_left]
        if uplinks_left < 1 and shape[1] > 1:
            raise _too_few_uplinks(s, local + 1)
    else:
        links_per_axis = [n - 1 if recipe.scale_up == "full_mesh" else min(n - 1, 2) for n in shape]
        if s.l1_uplinks < sum(links_per_axis):
            raise _too_few_uplinks(s, sum(links_per_axis))
        links = [s.l1_uplinks // sum(links_per_axis)] * len(shape)
        unused_links = s.l1_uplinks % sum(links_per_axis)
        for k, count in enumerate(links_per_axis):  # what is left over makes whole dimensions wider
            if count and unused_links >= count:
                links[k] += 1
                unused_links -= count
    draft.nodes(lambda n: n // s.nodes)
    for n in range(s.all_nodes):
        for p in range(s.sub_planes):
            draft.vertices[f"L1 {n}.{p}"]["grid"] = grid_of(shape, n % s.nodes)
    draft.networks()
    for n in range(s.all_nodes):
        draft.inside(n)
    pairs = list(PAIRS[recipe.scale_up](shape, links))
    for g, (a, b, count) in product(range(s.supernodes), pairs):
        for p in range(s.sub_planes):
            draft.link(
                f"L1 {g * s.nodes + a}.{p}", f"L1 {g * s.nodes + b}.{p}", "L1-L1",
                count * draft.link_bytes_per_s, p, count,
            )  # fmt: skip


def _too_few_uplinks(s: Supernode, needed: int) -> HardwareError:
    return HardwareError(
        f"supernode.l1_uplinks = {s.l1_uplinks} are fewer than the {needed} neighbours of an L1 "
        "switch: take more uplinks, or more and smaller dimensions"
    )


def _of_npus(draft: Draft) -> None:
    """A mesh or torus of NPUs, each with a port that forwards; racks of them may be joined too."""
    s, recipe = draft.s, draft.recipe
    inside = s.scale_up == "node"
    cells = s.npus_per_node if inside else s.nodes * s.npus_per_node
    per_rack = recipe.nodes_per_rack * s.npus_per_node if recipe.racks_across else cells
    shape = shape_of(s, recipe, min(cells, per_rack))
    draft.nodes((lambda n: n) if inside else (lambda n: n // s.nodes), switches=False, ports=True)
    links = recipe.links or (1,) * len(shape)
    pairs = list(PAIRS[recipe.scale_up](shape, links))
    if recipe.racks_across:
        _rack_switches(draft)
    draft.networks()
    links_per_cell = [0] * math.prod(shape)
    for a, b, count in pairs:
        links_per_cell[a] += count
        links_per_cell[b] += count
    for npu in range(s.npus):
        n, i = divmod(npu, s.npus_per_node)
        port, cell = f"port {n}.{i}", npu % math.prod(shape)
        draft.vertices[port]["grid"] = grid_of(shape, cell)
        draft.packages(n, i)
        up = links_per_cell[cell] + s.sub_planes * bool(recipe.racks_across)
        dies = draft.of(n).dies_per_npu
        for d in range(dies):
            rate = max(1, up) * draft.die_link_bytes_per_s(n) / dies
            draft.link(f"die {n}.{i}.{d}", port, "die-port", rate, links=max(1, up))
    for first in range(0, s.npus, math.prod(shape)):
        for a, b, count in pairs:
            one, other = (divmod(first + c, s.npus_per_node) for c in (a, b))
            draft.link(
                "port {}.{}".format(*one), "port {}.{}".format(*other), "port-port",
                count * draft.link_bytes_per_s, links=count,
            )  # fmt: skip
    if recipe.racks_across:
        _between_racks(draft)
    else:
        _cpus_at_ports(draft)


def _cpus_at_ports(draft: Draft) -> None:
    """Link CPUs to the ports of their node."""
    s = draft.s
    rate = draft.recipe.cpu_bytes_per_s / s.npus_per_node
    for n in range(s.all_nodes):
        for i, k in product(draft.cpus(n), range(s.npus_per_node)):
            draft.link(f"CPU {n}.{i}", f"port {n}.{k}", "CPU-port", rate)


def _rack_switches(draft: Draft) -> None:
    """UB-Mesh: low-radix switches of every rack, and high-radix ones between pods of racks."""
    s = draft.s
    racks, per_pod = _racks(draft)
    for g, r, p in product(range(s.supernodes), range(racks), range(s.sub_planes)):
        number = g * racks + r
        grid = (*grid_of(draft.recipe.racks_across, r % per_pod), r // per_pod)
        place: dict[str, Any] = {"supernode": g, "rack": f"rack {number}", "sub_plane": p}
        draft.add(f"LRS {number}.{p}", "lrs", **place, grid=grid)
    spines = draft.recipe.spine_links if racks > per_pod else 0
    for g, p, k in product(range(s.supernodes), range(s.sub_planes), range(spines)):
        rack = f"communication rack {g * spines + k}"
        draft.add(switch_name("HRS", g, p, k), "hrs", supernode=g, sub_plane=p, index=k, rack=rack)


def _racks(draft: Draft) -> tuple[int, int]:
    """Racks of a supernode, and of a pod."""
    s = draft.s
    racks, remainder = divmod(s.nodes, draft.recipe.nodes_per_rack)
    per_pod = math.prod(draft.recipe.racks_across)
    if remainder or (racks > 1 and racks % per_pod):
        rack = draft.recipe.nodes_per_rack
        raise HardwareError(
            f"supernode.nodes = {s.nodes} are not whole racks of {rack} nodes in whole pods of "
            f"{per_pod} racks: take {rack}, or multiples of {rack * per_pod}"
        )
    return racks, per_pod


def _between_racks(draft: Draft) -> None:
    """NPUs and CPUs to their rack's switches; racks of a pod as a mesh; pods over spines."""
    s, recipe = draft.s, draft.recipe
    racks, per_pod = _racks(draft)
    link, cpu = draft.link_bytes_per_s, recipe.cpu_bytes_per_s / s.sub_planes
    for n in range(s.all_nodes):
        rack = n // s.nodes * racks + n % s.nodes // recipe.nodes_per_rack
        for p in range(s.sub_planes):
            for i in range(s.npus_per_node):
                draft.link(f"port {n}.{i}", f"LRS {rack}.{p}", "port-LRS", link, p)
            for i in draft.cpus(n):
                draft.link(f"CPU {n}.{i}", f"LRS {rack}.{p}", "CPU-LRS", cpu, p)
    if racks == 1:
        return
    mesh = list(full_mesh_pairs(recipe.racks_across, [recipe.rack_links] * 8))
    for g, first in product(range(s.supernodes), range(0, racks, per_pod)):
        base = g * racks + first
        for (a, b, count), p in product(mesh, range(s.sub_planes)):
            draft.link(
                f"LRS {base + a}.{p}", f"LRS {base + b}.{p}", "LRS-LRS",
                count * link, p, count,
            )  # fmt: skip
    if racks > per_pod:
        everyone = product(range(s.supernodes), range(racks), range(s.sub_planes))
        for (g, r, p), k in product(everyone, range(recipe.spine_links)):
            above = switch_name("HRS", g, p, k)
            draft.link(f"LRS {g * racks + r}.{p}", above, "LRS-HRS", link, p)


def grid(draft: Draft) -> None:
    """A mesh, torus or dragonfly, of NPUs or of nodes, as the recipe says."""
    {"npu": _of_npus, "node": _of_nodes}[draft.recipe.wired](draft)
