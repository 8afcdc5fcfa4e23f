"""A machine's graph as arrays: what routing reads.

`network_of_plan` makes them of a machine's plan, and `Network.graph` the networkx graph. Links are
directed and numbered in the graph's own order. Which way bytes take stands in flows.py, what that
costs in prices.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from twin.hardware.chip import HardwareError
from twin.hardware.kinds import Edge, Names, port_label
from twin.hardware.walks import BOOLS, FLOATS, INTS, hops_from

if TYPE_CHECKING:
    import networkx as nx

COUNTED = {"ub": 1, "rdma": 2, "vpc": 3}  # planes whose bytes are counted at a node's ends
CAPACITY, LATENCY = "capacity_bytes_per_s", "latency_s"
P = ParamSpec("P")
T = TypeVar("T")


def cached_answer(
    answers: dict[Any, T], question: Hashable, compute: Callable[[], T], max_answers: float = 8
) -> T:
    """The answer stored for a question; if there is none, it is computed and stored. At most
    `max_answers` answers are stored, and the oldest is removed first."""
    if question not in answers:
        answers[question] = compute()
        if len(answers) > max_answers:
            del answers[next(iter(answers))]
    return answers[question]


def cached_by_network(
    answer: Callable[Concatenate[Network, P], T],
) -> Callable[Concatenate[Network, P], T]:
    """Returns `answer`, a function or method of a network, with results cached by its arguments."""

    @wraps(answer)
    def cached_call(net: Network, /, *args: P.args, **more: P.kwargs) -> T:
        """Returns the result of `answer`, computed at the first call with these arguments."""
        return net.once((answer, args, *more.items()), lambda: answer(net, *args, **more))

    return cached_call


class Place(NamedTuple):
    """Where bytes leave or enter ends: plane, node, sub-plane (None outside UB), direction."""

    plane: str
    node: int
    sub_plane: int | None
    direction: str  # "out" or "in"


@dataclass(frozen=True, eq=False)
class Rows:
    """Lists of numbers by row: `items[start[r]:start[r + 1]]` belong to row r."""

    start: INTS
    items: INTS

    @classmethod
    def of(cls, rows: INTS, count: int) -> Rows:
        """Returns rows of positions: row r lists the positions at which r occurs in `rows`."""
        row_starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
        return cls(row_starts, np.argsort(rows, kind="stable"))

    def at(self, rows: INTS) -> tuple[INTS, INTS]:
        """Returns (items of the given rows, row after row; number of items of each row)."""
        row_sizes = self.start[rows + 1] - self.start[rows]
        offsets = self.start[rows] - (np.cumsum(row_sizes) - row_sizes)
        return self.items[np.repeat(offsets, row_sizes) + np.arange(row_sizes.sum())], row_sizes


@dataclass(frozen=True, eq=False)
class Network:
    """Vertices and directed links of a graph; an edited copy shares all but three arrays."""

    about: Mapping[str, Any]  # the graph's own attributes
    names: Names
    vertices: tuple[str, ...]
    number: Mapping[str, int]  # vertex -> its place in `vertices`
    dies: INTS  # vertices that compute, in the numbering of dies
    vertex_data: tuple[Mapping[str, Any], ...]
    node: INTS  # node of each vertex; -1: none
    domain: INTS  # scale-up plane each vertex is on; pairs of one domain keep to it
    forwards: INTS  # bits of the planes a vertex passes on
    tail: INTS
    head: INTS
    kind: NDArray[np.str_]  # of each link
    sub_plane: INTS  # of each link; -1: none
    serves: INTS  # bits of the planes that may use a link
    efficiency: Mapping[str, FLOATS]  # operation -> share of the nominal rate it reaches
    write_extra_s: FLOATS  # what a write over a link takes longer than a read, once a path
    planes: tuple[str, ...]  # plane of bit 0, 1, ...
    places: tuple[Place, ...]
    place_plane: NDArray[np.str_]  # plane of each place
    leaves: INTS  # place of each link in `places` for bytes that leave; -1: none
    enters: INTS
    bundle: INTS  # parallel links in each, as built
    added: INTS  # 0: as built; 1, 2, ...: in the order in which edits add links
    cables: INTS  # parallel links in each that are left
    capacity: FLOATS  # bytes/s of one direction now
    latency: FLOATS  # s
    link_data: tuple[Mapping[str, Any], ...]  # attributes of each link as built
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)  # answers, by question

    def with_rates(self, capacity: FLOATS, latency: FLOATS, cables: INTS | None = None) -> Network:
        """The network with other capacities (bytes/s) and latencies (s) of its links. cables:
        parallel links left in each link; None: as before."""
        cables_left = self.cables if cables is None else cables
        return replace(self, capacity=capacity, latency=latency, cables=cables_left, memo={})

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Returns `answer()`, computed at the first call with this question and cached."""
        return cached_answer(self.memo, question, answer, max_answers=math.inf)

    @cached_property
    def place_ends(self) -> tuple[INTS, INTS]:
        """(node of each of `places`, direction of each: 0 out, 1 in), both i8[places]."""
        node_directions = [(place.node, int(place.direction == "in")) for place in self.places]
        node, is_in = np.array(node_directions, np.int64).reshape(-1, 2).T
        return node, is_in

    @cached_property
    def dies_per_node(self) -> int:
        """Largest number of dies of a node."""
        return int(np.bincount(self.node[self.dies]).max())

    def nodes_of(self, dies: Sequence[int]) -> list[int]:
        """Numbers of the nodes in which these dies are, ascending."""
        return np.unique(self.node[self.dies[list(dies)]]).tolist()

    @property
    def nodes(self) -> int:
        """Number of nodes, which are numbered from 0."""
        return int(self.node.max()) + 1

    @cached_property
    def cpus(self) -> INTS:
        """Number of CPUs of each node, i8[nodes]; a node's DRAM is proportional to it."""
        return np.bincount(self.node[self.of_kind("cpu")], minlength=self.nodes)

    @cached_property
    def npu(self) -> INTS:
        """Number of the NPU package that each die is in, i8[dies]."""
        die_data = map(self.vertex_data.__getitem__, self.dies)
        npu_keys = ((data["node"], data["npu"]) for data in die_data)
        npu_number: dict[Any, int] = {}
        return np.array([npu_number.setdefault(key, len(npu_number)) for key in npu_keys], np.int64)

    @property
    def npus(self) -> int:
        """Number of NPU packages."""
        return int(self.npu.max(initial=-1)) + 1

    @cached_property
    def dies_of_npu(self) -> Rows:
        """Lists of the dies of each NPU package."""
        return Rows.of(self.npu, self.npus)

    def npus_of(self, dies: Iterable[int]) -> int:
        """Number of NPU packages in which these dies are."""
        return len(np.unique(self.npu[list(dies)]))

    @cached_property
    def first_dies(self) -> INTS:
        """Vertex of the first die of each NPU package."""
        return self.dies[self.dies_of_npu.items[self.dies_of_npu.start[:-1]]]

    @cached_by_network
    def chips(self, default: str) -> tuple[str, ...]:
        """Name of the chip of each NPU package. default: the chip of dies that name none."""
        return tuple(self.vertex_data[die].get("chip", default) for die in self.first_dies.tolist())

    @property
    def sub_planes(self) -> int:
        """Number of sub-planes of the scale-up plane; 1 where its links have none."""
        return max(1, int(self.sub_plane.max(initial=0)) + 1)

    @property
    def scale_up_plane(self) -> str:
        """Plane of exchanges between nodes: "ub", or "rdma" if the UB plane ends at the node."""
        return "ub" if self.spans_nodes or self.nodes == 1 else "rdma"

    @cached_property
    def storage_ports(self) -> str:
        """Kind of the vertices whose links reach storage: NICs of dies, or DPUs of nodes."""
        is_to_storage = self.links_of("vpc") & np.isin(self.tail, self.of_kind("nic"))
        return "nic" if is_to_storage.any() else "qingtian"

    @cached_by_network
    def of_kind(self, kind: str) -> INTS:
        """Numbers of the vertices of a kind, in the graph's order."""
        return np.flatnonzero([data["kind"] == kind for data in self.vertex_data])

    @cached_property
    def link_lists(self) -> tuple[Rows, Rows]:
        """(links out of each vertex, links into each vertex), both in the order of links."""
        return Rows.of(self.tail, len(self.vertices)), Rows.of(self.head, len(self.vertices))

    def links_of(self, plane: str) -> BOOLS:
        """Whether bytes of a plane may use each link, bool[links]."""
        return self.serves & self.bit(plane) > 0

    @cached_by_network
    def open_links(self, plane: str) -> BOOLS:
        """Whether bytes of a plane may use each link and it has capacity, bool[links]."""
        return self.links_of(plane) & (self.capacity > 0.0)

    @cached_property
    def link_prints(self) -> NDArray[np.uint64]:
        """A hash of each link, u8[links], equal for links that differ only in their ends."""
        properties = self.capacity, self.latency, *self.efficiency.values(), self.added
        return _hashes(np.zeros(self.tail.size, np.uint64), *properties)

    @cached_property
    def link_kinds(self) -> NDArray[np.uint64]:
        """A hash of each link, u8[links], equal where routing and byte counts see no difference."""
        place_planes = np.append(np.unique(self.place_plane, return_inverse=True)[1], -1)
        planes = place_planes[self.leaves], place_planes[self.enters]
        return _hashes(self.link_prints, self.serves, self.write_extra_s, self.sub_plane, *planes)

    @cached_property
    def vertex_kinds(self) -> INTS:
        """A number for each vertex, i8, equal for vertices that differ only in links and node."""
        kinds = [data["kind"] for data in self.vertex_data]
        traits = zip(kinds, self.forwards.tolist(), self.domain.tolist(),
                         (self.node < 0).tolist(), strict=True)  # fmt: skip
        kind_of: dict[Any, int] = {}
        return np.array([kind_of.setdefault(trait, len(kind_of)) for trait in traits], np.int64)

    @cached_property
    def _links_by_ends(self) -> tuple[INTS, INTS]:
        """(keys, links): a key of both ends of each link, ascending, and links in that order."""
        end_keys = self.tail * len(self.vertices) + self.head
        key_order = np.argsort(end_keys, kind="stable")
        return end_keys[key_order], key_order

    def links_between(self, tail: INTS, head: INTS) -> INTS:
        """Number of the link from each `tail[i]` to `head[i]`, i8; -1 if there is none."""
        end_keys, key_order = self._links_by_ends
        wanted_keys = tail * len(self.vertices) + head
        positions = np.minimum(np.searchsorted(end_keys, wanted_keys), end_keys.size - 1)
        return np.where(end_keys[positions] == wanted_keys, key_order[positions], -1)

    def routing(self, plane: str) -> str:
        """Name of the rule by which a plane splits traffic over its paths, a key of
        scenario.ROUTINGS: the scenario's choice, otherwise the machine's."""
        field = {"ub": "ub_routing", "rdma": "rdma_routing", "host": "rdma_routing"}.get(plane)
        rule = getattr(self.about.get("supernode"), field, "as_built") if field else "as_built"
        return str(self.about.get("routing", "adaptive")) if rule == "as_built" else str(rule)

    def bit(self, plane: str) -> int:
        """Integer with the bit of a plane set; 0 where the machine has none of that name."""
        return 1 << self.planes.index(plane) if plane in self.planes else 0

    def members(self, name: str) -> INTS:
        """Vertices of an element or group by name; raises HardwareError for an unknown name."""
        return np.array([self.number[vertex] for vertex in self.names.find(name)], np.int64)

    def links_at(self, element: str, to: str = "") -> INTS:
        """Links at an element, or between it and `to`, in both directions. Either may be a group
        ("NPU 20.1"). Raises HardwareError when there is none."""
        vertices = self.members(element)
        links_out, links_in = (by_vertex.at(vertices)[0] for by_vertex in self.link_lists)
        if to:
            to_vertices = self.members(to)
            links_out = links_out[np.isin(self.head[links_out], to_vertices)]
            links_in = links_in[np.isin(self.tail[links_in], to_vertices)]
        links = np.union1d(links_out, links_in)
        if not links.size:
            raise HardwareError(
                f"no link joins {element} and {to}: name the two ends of one link, such as L1 20.3 "
                "and L2 3.12"
            )
        return links

    def share_left(self, links: INTS, lost: int, what: str) -> FLOATS:
        """Share of each link's capacity, f8[links], that is left after `lost` parallel links
        failed. Whole bundles are lost first, in the graph's order, and both directions alike.
        Raises HardwareError if the links have fewer; what: the element's name in its message."""
        if not lost:
            return np.ones(links.size)
        _, pair_of_link = self.pairs
        distinct_pairs, example_link, pair_index = np.unique(
            pair_of_link[links], return_index=True, return_inverse=True
        )
        cables = self.bundle[links[example_link]]
        if lost > cables.sum():
            raise HardwareError(f"{what} has {cables.sum()} links there, and {lost} cannot be lost")
        cables_lost = np.clip(lost - (np.cumsum(cables) - cables), 0, cables)
        return np.asarray(((cables - cables_lost) / cables)[pair_index])

    @property
    def spans_nodes(self) -> bool:
        """Whether the scale-up plane joins several nodes."""
        domain, node = self.domain[self.dies], self.node[self.dies]
        return bool(np.unique(domain).size < np.unique(node).size)

    @cached_property
    def pairs(self) -> tuple[INTS, INTS]:
        """(one link of each linked pair of vertices, i8[pairs]; pair of each link, i8[links])."""
        vertex_count = len(self.vertices)
        keys = np.minimum(self.tail, self.head) * vertex_count + np.maximum(self.tail, self.head)
        _, example_link, pair_index = np.unique(keys, return_index=True, return_inverse=True)
        return example_link, pair_index

    def graph(self) -> nx.DiGraph:
        """The machine as a networkx graph, with the present capacities and latencies."""
        graph = lazy_networkx().DiGraph(**self.about)
        graph.add_nodes_from(zip(self.vertices, self.vertex_data, strict=True))
        rates_latencies = zip(self.capacity.tolist(), self.latency.tolist(), strict=True)
        for link, (bytes_per_s, latency_s) in enumerate(rates_latencies):
            attributes = {**self.link_data[link], CAPACITY: bytes_per_s, LATENCY: latency_s}
            graph.add_edge(*self.edge(link), **attributes)
        return graph

    def edge(self, link: int) -> Edge:
        """Names of the two ends of a link."""
        return self.vertices[self.tail[link]], self.vertices[self.head[link]]

    def label(self, link: int) -> str:
        """Name of a link for people, such as "UB links of die 0.0.0"; "" if `link` is -1."""
        if link < 0:
            return ""
        end_data = [self.vertex_data[vertex] for vertex in (self.tail[link], self.head[link])]
        return port_label(str(self.kind[link]), *end_data) or (
            f"{self.kind[link]} link from {' to '.join(self.edge(link))}"
        )

    @cached_by_network
    def rates_out(self, plane: str) -> FLOATS:
        """Summed bytes/s of the open links of a plane out of each vertex, f8[vertices]."""
        links = np.flatnonzero(self.open_links(plane))
        bytes_per_s = np.bincount(self.tail[links], self.capacity[links], len(self.vertices))
        return bytes_per_s.astype(np.float64)  # of no links there are whole numbers

    def reachable(self, plane: str, start: INTS) -> BOOLS:
        """Whether each vertex is in `start` or reached from it over open links of a plane."""
        forwards_plane, vertex_count = self.forwards & self.bit(plane) > 0, len(self.vertices)
        forwards_plane[start] = True
        links = np.flatnonzero(self.open_links(plane) & forwards_plane[self.tail])
        return hops_from(start, self.tail[links], self.head[links], vertex_count) < vertex_count

    def linked_parts(self, plane: str) -> Iterator[BOOLS]:
        """Yield bool[dies] for each set of linked dies that reach each other on a plane."""
        is_unassigned = self.rates_out(plane)[self.dies] > 0.0
        is_linked = is_unassigned.copy()
        while is_unassigned.any():
            first_die = self.dies[np.flatnonzero(is_unassigned)[:1]]
            is_in_part = is_linked & self.reachable(plane, first_die)[self.dies]
            is_unassigned &= ~is_in_part
            yield is_in_part


def _hashes(total: NDArray[np.uint64], *columns: NDArray[Any]) -> NDArray[np.uint64]:
    """Hash u8[rows] of the values that `columns` (arrays of 8-byte numbers) have in each row; equal
    rows have equal hashes. total u8[rows]: hashes of earlier columns."""
    with np.errstate(over="ignore"):
        for column in columns:
            total = total * np.uint64(0x9E3779B97F4A7C15) + column.view(np.uint64)
            total ^= total >> np.uint64(29)
    return total


@dataclass(frozen=True, eq=False)
class Plan:
    """A machine as built: rows of vertices and links from which the arrays are made."""

    about: dict[str, Any]  # the graph's own attributes
    vertices: Mapping[str, Mapping[str, Any]]
    # Tails, heads and attributes of one-way links: Python would search a tuple of each for garbage.
    links: tuple[Sequence[str], Sequence[str], Sequence[Mapping[str, Any]]]


def lazy_networkx() -> ModuleType:
    """Returns the networkx module, imported late as it takes a tenth of a second."""
    import networkx

    return networkx


def network_of_plan(plan: Plan) -> Network:
    """The network of a machine's plan; its links are in the order in which its graph lists them."""
    vertices, vertex_data = tuple(plan.vertices), tuple(plan.vertices.values())
    number_of_vertex = {vertex: number for number, vertex in enumerate(vertices)}
    tails, heads, attributes = plan.links
    to_number = number_of_vertex.__getitem__
    ends = [np.fromiter(map(to_number, names), np.int64, len(names)) for names in (tails, heads)]
    order = np.argsort(ends[0], kind="stable")
    tail, head = ends[0][order], ends[1][order]
    # Links that are built alike share their attributes: each is read once.
    data_ids = list(map(id, attributes))
    data_by_id = dict(zip(data_ids, attributes, strict=True))
    index_of_id = {data_id: number for number, data_id in enumerate(data_by_id)}
    link_data = list(data_by_id.values())
    data_index = np.fromiter(map(index_of_id.__getitem__, data_ids), np.int64, len(data_ids))[order]

    def column(name: str, kind: type[Any], *default: Any) -> Any:
        """One attribute of all links as an array of type `kind`; default: for links without it."""
        values = [data.get(name, *default) if default else data[name] for data in link_data]
        return np.array(values, kind)[data_index]

    planes = tuple(sorted({name for data in link_data for name in data["serves"].split()}))
    bit_of = {name: 1 << number for number, name in enumerate(planes)}
    to_bits = cache(lambda words: sum(bit_of.get(name, 0) for name in words.split()))
    node = np.array([data.get("node", -1) for data in vertex_data], np.int64)
    sub_plane = column("sub_plane", np.int64, -1)
    plane = np.array([COUNTED.get(data["plane"], 0) for data in link_data], np.int64)[data_index]
    places, leaves, enters = _places(vertex_data, node, tail, head, sub_plane, plane)
    return Network(
        about=plan.about,
        names=Names(plan.vertices),
        vertices=vertices,
        number=number_of_vertex,
        vertex_data=vertex_data,
        dies=np.flatnonzero([data["kind"] == "die" for data in vertex_data]),
        node=node,
        domain=np.array([data.get("domain", -1) for data in vertex_data], np.int64),
        forwards=np.array([to_bits(data.get("forwards", "")) for data in vertex_data], np.int64),
        tail=tail,
        head=head,
        kind=column("kind", np.str_),
        sub_plane=sub_plane,
        serves=np.array([to_bits(data["serves"]) for data in link_data], np.int64)[data_index],
        efficiency={
            "read": column("read_efficiency", np.float64),
            "write": column("write_efficiency", np.float64),
            "nominal": np.ones(tail.size),
        },
        write_extra_s=column("write_extra_s", np.float64, 0.0),
        planes=planes,
        places=places,
        place_plane=np.array([place.plane for place in places], np.str_),
        leaves=leaves,
        enters=enters,
        bundle=column("links", np.int64, 1),
        cables=column("links", np.int64, 1),
        added=column("added", np.int64, 0),
        capacity=column(CAPACITY, np.float64),
        latency=column(LATENCY, np.float64),
        link_data=tuple(map(link_data.__getitem__, data_index.tolist())),
    )


def _places(
    vertex_data: Sequence[Mapping[str, Any]], node: INTS, tail: INTS, head: INTS, sub_plane: INTS,
    plane: INTS,
) -> tuple[tuple[Place, ...], INTS, INTS]:  # fmt: skip
    """(places, leaves, enters): the places where bytes are counted, and for each link the number of
    its place for bytes that leave a node's ends, and for bytes that enter them (-1: none). plane
    i8[links]: number in COUNTED of each link's plane, 0 if its bytes are not counted."""
    end, other_end = np.stack([tail, head], 1), np.stack([head, tail], 1)  # as they leave, enter
    is_chip, is_nic = (
        np.array([data["kind"] in kinds for data in vertex_data])
        for kinds in (("die", "cpu"), ("nic", "qingtian"))
    )
    is_counted = np.where(plane[:, None] == 1, is_chip[end], is_nic[end] & ~is_chip[other_end])
    links, direction = np.nonzero(is_counted & (plane[:, None] > 0) & (node[end] >= 0))
    key_shape = len(COUNTED) + 1, node.max() + 1, sub_plane.max(initial=-1) + 2, 2
    place_numbers = plane[links], node[end[links, direction]], sub_plane[links] + 1, direction
    keys = np.ravel_multi_index(place_numbers, key_shape)
    distinct_keys, first_at, place_index = np.unique(keys, return_index=True, return_inverse=True)
    place_order = np.argsort(first_at, kind="stable")  # as the graph's links come to them
    rank_of_place = np.empty_like(place_order)
    rank_of_place[place_order] = np.arange(place_order.size)
    place_of_link = np.full((2, tail.size), -1, np.int64)
    place_of_link[direction, links] = rank_of_place[place_index]
    plane_names = ("", *COUNTED)
    places = tuple(
        Place(
            plane_names[plane_number],
            node_number,
            sub_code - 1 if sub_code else None,
            ("out", "in")[direction_index],
        )
        for plane_number, node_number, sub_code, direction_index in np.stack(
            np.unravel_index(distinct_keys[place_order], key_shape), 1
        ).tolist()
    )
    return places, place_of_link[0], place_of_link[1]
