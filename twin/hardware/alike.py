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


def renumber(numbers: NUMBERS, of: NUMBERS, images: NUMBERS) -> NUMBERS:
    """The numbers, each that is in the ascending `of` replaced by its counterpart in `images`."""
    positions = np.minimum(np.searchsorted(of, numbers), max(of.size - 1, 0))
    return np.where(of[positions] == numbers, images[positions], numbers) if of.size else numbers


def as_int32(numbers: NUMBERS) -> SHORT:
    """The numbers as int32: a large machine holds hundreds of millions of them."""
    return numbers.astype(np.int32)


@cached_by_network
def swap_of(net: Network, ours: tuple[int, ...], theirs: tuple[int, ...]) -> Swap | None:
    """Exchange of vertices `ours`, and all around them, with `theirs`; None if wiring differs."""
    image = np.full(len(net.vertices), -1)
    mapped, front, images = 0, np.array(ours), np.array(theirs)
    while front.size:
        image[front], image[images] = images, front
        mapped += front.size
        if (image[front] != images).any() or (image[images] != front).any() or mapped > MOST_MOVED:
            return None
        neighbours = _neighbours(net, image, front, images)
        if neighbours is None:
            return None
        front, images = neighbours
    vertices = np.flatnonzero((image >= 0) & (image != np.arange(image.size)))
    is_touched = np.zeros(net.tail.size, bool)
    for links_of in net.link_lists:
        is_touched[links_of.at(vertices)[0]] = True
    links = np.flatnonzero(is_touched)
    image = np.where(image < 0, np.arange(image.size), image)
    image_links = net.links_between(image[net.tail[links]], image[net.head[links]])
    same_kind = (image_links >= 0) & (net.link_kinds[links] == net.link_kinds[image_links])
    same_ends = net.vertex_kinds[vertices] == net.vertex_kinds[image[vertices]]
    if not (same_kind.all() and same_ends.all() and _whole_nodes(net, vertices, image[vertices])):
        return None
    place_pairs = [np.concatenate([net.leaves[k], net.enters[k]]) for k in (links, image_links)]
    is_touched = place_pairs[0] >= 0
    places = _pairs(place_pairs[0][is_touched], place_pairs[1][is_touched], len(net.places))
    return Swap(*map(as_int32, (vertices, image[vertices], links, image_links, *places)))


def _neighbours(net: Network, image: INTS, front: INTS, others: INTS) -> tuple[INTS, INTS] | None:
    """Vertices next to `front` that have no image yet, and their images, neighbours of `others`;
    both are entered in `image`. None where links differ."""
    neighbours = []
    for links_of, ends in zip(net.link_lists, (net.head, net.tail), strict=True):
        (our_links, degrees), (their_links, their_degrees) = links_of.at(front), links_of.at(others)
        if (degrees != their_degrees).any():
            return None
        pair = np.repeat(np.arange(front.size), degrees)
        keys, other_keys = (pair * image.size + ends[links] for links in (our_links, their_links))
        _, shared_positions, their_positions = np.intersect1d(
            keys, other_keys, assume_unique=True, return_indices=True
        )
        # A shared neighbour that is linked otherwise to the other vertex is exchanged, too: with
        # uplinks dealt in turn, two groups of nodes have their wider links to different switches.
        shared_links = our_links[shared_positions]
        same_kind = net.link_kinds[shared_links] == net.link_kinds[their_links[their_positions]]
        shared_vertices = ends[shared_links[same_kind]]
        shared_vertices = shared_vertices[image[shared_vertices] < 0]
        image[shared_vertices] = shared_vertices
        open_links = [np.flatnonzero(image[ends[links]] < 0) for links in (our_links, their_links)]
        if open_links[0].size != open_links[1].size:
            return None
        columns_of = []
        for links, free_links in zip((our_links, their_links), open_links, strict=True):
            by_kind = free_links[np.lexsort((net.link_kinds[links[free_links]], pair[free_links]))]
            columns_of.append((pair[by_kind], net.link_kinds[links[by_kind]], ends[links[by_kind]]))
        columns = zip(columns_of[0][:2], columns_of[1][:2], strict=True)
        if any((our_column != their_column).any() for our_column, their_column in columns):
            return None
        neighbours.append((columns_of[0][2], columns_of[1][2]))
        image[columns_of[0][2]], image[columns_of[1][2]] = columns_of[1][2], columns_of[0][2]
    vertices, images = (np.concatenate(pair_side) for pair_side in zip(*neighbours, strict=True))
    _, first_index = np.unique(vertices, return_index=True)
    if (image[vertices] != images).any() or (image[images] != vertices).any():
        return None
    return vertices[first_index], images[first_index]


def _whole_nodes(net: Network, vertices: INTS, images: INTS) -> bool:
    """Whether vertices that change their node do so with all of it, and to one node (`images`)."""
    moves = net.node[vertices] != net.node[images]
    nodes, moved_counts = np.unique(net.node[vertices[moves]], return_counts=True)
    from_nodes, _ = _pairs(net.node[vertices[moves]], net.node[images[moves]] + 1, net.nodes + 1)
    node_sizes = np.bincount(net.node[net.node >= 0], minlength=net.nodes)
    return nodes.size == from_nodes.size and bool((node_sizes[nodes] == moved_counts).all())


def _pairs(ours: INTS, theirs: INTS, count: int) -> tuple[INTS, INTS]:
    """Distinct ordered pairs (ours, theirs), with theirs below `count`."""
    return np.divmod(np.unique(ours * count + theirs), max(count, 1))
