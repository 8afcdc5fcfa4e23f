"""Two places of a machine that nothing tells apart, and loads that follow from each other by that.

A `Swap` exchanges the dies of two instances, and of all around them what must be exchanged with
these: an automorphism of the network that is its own inverse. So the load of a demand at one place
is that of the same demand at the other, with the links exchanged. It is found by going on from the
dies: neighbours that two exchanged vertices share by links of one kind stay, the others are paired
in order, by kind of link. That may find none where there is one; what it finds is checked link by
link, so a link that is gone tells two places apart."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.hardware.network import Network, cached_by_network
from twin.hardware.walks import INTS

SHORT = NDArray[np.int32]
NUMBERS: TypeAlias = "INTS | SHORT"
MOST_MOVED = 65_536  # vertices to one side; for more, a load of its own is as quickly found


@dataclass(frozen=True, eq=False)
class Swap:
    """An exchange of vertices, links and places with others, each list ascending."""

    vertices: SHORT
    to_vertices: SHORT
    links: SHORT  # all links at these vertices
    to_links: SHORT
    places: SHORT
    to_places: SHORT


def map_numbers(numbers: NUMBERS, old: NUMBERS, new: NUMBERS) -> NUMBERS:
    """`numbers` with every number old[i] (ascending) replaced by new[i]."""
    positions = np.minimum(np.searchsorted(old, numbers), max(old.size - 1, 0))
    return np.where(old[positions] == numbers, new[positions], numbers) if old.size else numbers


def as_int32(numbers: NUMBERS) -> SHORT:
    """The numbers as int32: a large machine holds hundreds of millions of them."""
    return numbers.astype(np.int32)


@cached_by_network
def swap_of(net: Network, ours: tuple[int, ...], theirs: tuple[int, ...]) -> Swap | None:
    """Returns the exchange of vertices `ours` with `theirs`, and of the neighbours that must move
    with them, after which the network has the same links; None if none is found."""
    image = np.full(len(net.vertices), -1)  # of each vertex; -1: none yet
    moved_count, new_vertices, new_images = 0, np.array(ours), np.array(theirs)
    while new_vertices.size:
        image[new_vertices], image[new_images] = new_images, new_vertices
        moved_count += new_vertices.size
        is_wrong = (image[new_vertices] != new_images) | (image[new_images] != new_vertices)
        if is_wrong.any() or moved_count > MOST_MOVED:
            return None
        neighbour_pairs = _next_pairs(net, image, new_vertices, new_images)
        if neighbour_pairs is None:
            return None
        new_vertices, new_images = neighbour_pairs
    moved = np.flatnonzero((image >= 0) & (image != np.arange(image.size)))
    touches_moved_vertex = np.zeros(net.tail.size, bool)
    for link_lists in net.link_lists:
        touches_moved_vertex[link_lists.at(moved)[0]] = True
    links = np.flatnonzero(touches_moved_vertex)
    image = np.where(image < 0, np.arange(image.size), image)
    image_links = net.links_between(image[net.tail[links]], image[net.head[links]])
    is_alike = (image_links >= 0) & (net.link_kinds[links] == net.link_kinds[image_links])
    is_same_kind = net.vertex_kinds[moved] == net.vertex_kinds[image[moved]]
    if not (is_alike.all() and is_same_kind.all() and _moves_whole_nodes(net, moved, image[moved])):
        return None
    place_lists = [np.append(net.leaves[link], net.enters[link]) for link in (links, image_links)]
    has_place = place_lists[0] >= 0
    places = _distinct_pairs(place_lists[0][has_place], place_lists[1][has_place], len(net.places))
    return Swap(*map(as_int32, (moved, image[moved], links, image_links, *places)))


def _next_pairs(net: Network, image: INTS, ours: INTS, theirs: INTS) -> tuple[INTS, INTS] | None:
    """Pair the neighbours of `ours[i]` without an image with neighbours of `theirs[i]`. Returns
    (vertices, their images), which are also entered in `image` (i8[vertices], -1: none yet); None
    where the links of a pair differ."""
    image_pairs = []
    for links_of, far_end in zip(net.link_lists, (net.head, net.tail), strict=True):
        our_links, our_degrees = links_of.at(ours)
        their_links, their_degrees = links_of.at(theirs)
        if (our_degrees != their_degrees).any():
            return None
        pair_index = np.repeat(np.arange(ours.size), our_degrees)
        end_keys = [pair_index * image.size + far_end[links] for links in (our_links, their_links)]
        _, shared_positions, their_positions = np.intersect1d(
            end_keys[0], end_keys[1], assume_unique=True, return_indices=True
        )
        # A shared neighbour that is linked otherwise to the other vertex is exchanged, too: with
        # uplinks dealt in turn, two groups of nodes have their wider links to different switches.
        shared_links = our_links[shared_positions]
        is_same_kind = net.link_kinds[shared_links] == net.link_kinds[their_links[their_positions]]
        shared_vertices = far_end[shared_links[is_same_kind]]
        shared_vertices = shared_vertices[image[shared_vertices] < 0]
        image[shared_vertices] = shared_vertices
        link_columns = []  # of ours and theirs, for each link left: pair, kind of link, far end
        for links in (our_links, their_links):
            unpaired = np.flatnonzero(image[far_end[links]] < 0)
            unpaired = unpaired[np.lexsort((net.link_kinds[links[unpaired]], pair_index[unpaired]))]
            ends = far_end[links[unpaired]]
            link_columns.append((pair_index[unpaired], net.link_kinds[links[unpaired]], ends))
        (our_pairs, our_kinds, our_ends), (their_pairs, their_kinds, their_ends) = link_columns
        has_same_pairs = np.array_equal(our_pairs, their_pairs)
        if not (has_same_pairs and np.array_equal(our_kinds, their_kinds)):
            return None
        image_pairs.append((our_ends, their_ends))
        image[our_ends], image[their_ends] = their_ends, our_ends
    vertices, images = (np.concatenate(pair_side) for pair_side in zip(*image_pairs, strict=True))
    _, first_positions = np.unique(vertices, return_index=True)
    if (image[vertices] != images).any() or (image[images] != vertices).any():
        return None
    return vertices[first_positions], images[first_positions]


def _moves_whole_nodes(net: Network, vertices: INTS, images: INTS) -> bool:
    """Whether exchanging `vertices` for `images` moves whole nodes only, each to one node."""
    is_moved = net.node[vertices] != net.node[images]  # to another node
    old_node, new_node = net.node[vertices[is_moved]], net.node[images[is_moved]]
    nodes, moved_counts = np.unique(old_node, return_counts=True)
    distinct_nodes, _ = _distinct_pairs(old_node, new_node + 1, net.nodes + 1)
    node_sizes = np.bincount(net.node[net.node >= 0], minlength=net.nodes)
    return nodes.size == distinct_nodes.size and bool((node_sizes[nodes] == moved_counts).all())


def _distinct_pairs(first: INTS, second: INTS, limit: int) -> tuple[INTS, INTS]:
    """The distinct pairs (first[i], second[i]), ascending, as two arrays; limit > max(second)."""
    return np.divmod(np.unique(first * limit + second), max(limit, 1))
