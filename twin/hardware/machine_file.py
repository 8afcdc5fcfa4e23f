"""A machine as a file, in and out: cable list, node-link JSON or GraphML.

What a file leaves out is derived from the names of its vertices ("die 3.1.0": node 3, NPU 1, die 0)
and the planes of its links. `fabric_text` writes any fabric so that it comes back as it is."""

import re
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

from twin.hardware import graph_text
from twin.hardware.graph_text import FabricFileError, GraphText, Rows
from twin.hardware.imported import ImportedMachine
from twin.hardware.kinds import BETWEEN, INSIDE, VERTICES
from twin.hardware.network import Network, lazy_networkx
from twin.scenario import ROUTINGS

MOST_VERTICES, MOST_LINKS = 100_000, 1_000_000  # links of one direction
MOST_NODES = 10_000  # and so the largest number of one
MOST_SUB_PLANES = 63
MOST_BYTES_PER_S, MOST_LATENCY_S = 1e18, 3600.0
ENDS = [kind for kind, known in VERTICES.items() if known.end]
FIRST = [kind for kind, known in VERTICES.items() if known.place]  # a link's kind begins with one
Vertices = Mapping[str, dict[str, Any]]
Links = Mapping[tuple[str, str], dict[str, Any]]
WHOLE = ("node", "npu", "die", "index", "sub_plane", "supernode", "domain")
STORED = {
    "vertex": (*WHOLE, "kind", "rack", "forwards", "chip"),
    "link": ("links", "added", "sub_plane", "kind", "plane", "serves", "read_efficiency",
             "write_efficiency", "write_extra_s", "capacity_bytes_per_s", "latency_s"),
    "graph": ("beyond_node", "routing", "detour_hops", "layout", "l2_chips_per_sub_plane"),
}  # fmt: skip


def read_machine(text: str, name: str) -> ImportedMachine:
    """The machine of a file's text, whose first character tells its form of graph; without such a
    form it is a cable list. Raises FabricFileError with a sentence for every kind of fault."""
    first_letter = text.lstrip("\ufeff \t\r\n")[:1]
    forms = graph_text.forms().items()
    kind = next((name for name, form in forms if form.begins == first_letter), "csv")
    parsed = graph_text.parse_text(text, kind)
    if len(parsed.vertices) > MOST_VERTICES or len(parsed.links) > MOST_LINKS:
        raise FabricFileError(
            [f"The file has {len(parsed.vertices):,} vertices and {len(parsed.links):,} links: a "
             f"machine has at most {MOST_VERTICES:,} and {MOST_LINKS:,}."]
        )  # fmt: skip
    links = dict(_read_links(parsed))
    vertices = _read_vertices(parsed.vertices, links)
    _refuse_unusable(vertices, links)
    in_order = dict(sorted(vertices.items(), key=lambda item: _vertex_sort_key(item[0], item[1])))
    index_of = {vertex: index for index, vertex in enumerate(in_order)}
    link_rows = sorted(links.items(), key=lambda item: (index_of[item[0][0]], index_of[item[0][1]]))
    attributes = {key: parsed.about[key] for key in STORED["graph"] if key in parsed.about}
    errors = []
    beyond_node, detour_hops = attributes.get("beyond_node", 1.0), attributes.get("detour_hops", 0)
    if not (isinstance(beyond_node, int | float) and 0.01 <= beyond_node <= 1.0):
        errors.append("Attribute beyond_node of the graph must be a share from 0.01 to 1.")
    if detour_hops not in (0, 1) or isinstance(detour_hops, bool):
        errors.append("Attribute detour_hops of the graph must be 0 or 1.")
    if attributes.get("routing", "adaptive") not in ROUTINGS:
        errors.append(f"Attribute routing of the graph must be {' or '.join(ROUTINGS)}.")
    if attributes.get("layout", "free") not in ("racks", "grid", "block", "free"):
        errors.append("Attribute layout of the graph must be racks, grid, block or free.")
    if errors:
        raise FabricFileError(errors)
    return ImportedMachine(
        name[:200], attributes, list(in_order.items()), [(*ends, data) for ends, data in link_rows]
    )


def _read_links(graph: GraphText) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield ((tail, head), attributes) of every directed link; in an undirected graph a cable gives
    both directions. Raises FabricFileError."""
    links_by_ends: dict[tuple[str, str], dict[str, Any]] = {}
    vertex_names, errors = {vertex for vertex, _ in graph.vertices}, []
    for tail, head, stated in graph.links:
        label = f"The link of {tail[:60]!r} and {head[:60]!r}"
        fields = {key: stated[key] for key in STORED["link"] if key in stated}
        bytes_per_s, latency_s = fields.get("capacity_bytes_per_s"), fields.get("latency_s")
        plane = fields.setdefault("plane", "ub")
        if (tail, head) in links_by_ends:
            errors.append(f"{label} stands there twice: add up parallel cables in one line.")
        elif tail == head or tail not in vertex_names or head not in vertex_names:
            errors.append(f"{label} does not join two vertices of the file.")
        elif not (_fits(bytes_per_s, MOST_BYTES_PER_S) and _fits(latency_s, MOST_LATENCY_S)):
            errors.append(
                f"{label} needs a rate of 0 to {MOST_BYTES_PER_S:g} bytes/s (capacity_bytes_per_s "
                f"of a graph's edge) and a latency of 0 to {MOST_LATENCY_S:g} s (latency_s)."
            )
        elif not isinstance(plane, str) or plane not in BETWEEN:
            errors.append(f"{label} is on no plane: take one of {', '.join(BETWEEN)}.")
        elif not all(_fits(fields.get(key, 1.0), 1.0) and fields.get(key, 1.0) for key in SHARES):
            errors.append(f"{label} has an efficiency that is not above 0 and at most 1.")
        elif not (
            _is_whole(fields.get("links", 1)) and _is_whole(fields.get("added", 0))
            and _is_whole(fields.get("sub_plane", 0), MOST_SUB_PLANES)
            and _fits(fields.get("write_extra_s", 0.0), MOST_LATENCY_S)
            and all(_is_word(fields.get(key, "")) for key in ("kind", "serves"))
        ):  # fmt: skip
            errors.append(f"{label} has an attribute that is no such number or word.")
        links_by_ends[tail, head] = fields
    if errors:
        raise FabricFileError(errors)
    for (tail, head), fields in links_by_ends.items():
        plane = "ub" if fields["plane"] == "package" else fields["plane"]
        defaults = {"kind": _link_kind(tail, head), "links": 1, "write_extra_s": 0.0}
        attributes = {**defaults, **fields, "plane": plane}
        if fields["plane"] == "package":
            attributes.setdefault("serves", "package")
        for key in ("capacity_bytes_per_s", "latency_s"):
            attributes[key] = float(attributes[key])
        yield (tail, head), attributes
        if not graph.directed and (head, tail) not in links_by_ends:
            yield (head, tail), dict(attributes)


def _link_kind(*ends: str) -> str:
    """Kind of a link between two vertex names, equal for both directions: "die-L1"."""
    first_words = [name.split(maxsplit=1)[0] if name.split() else "link" for name in ends]
    return "-".join(sorted(first_words, key=lambda w: ((*FIRST, w.lower()).index(w.lower()), w)))


SHARES = ("read_efficiency", "write_efficiency")


def _fits(value: Any, limit: float) -> bool:
    """Whether a value is a number from 0 to `limit`."""
    # A comparison holds for whole numbers that no float can hold, and never for NaN.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0.0 <= value <= limit


def _read_vertices(rows: Rows, links: Links) -> Vertices:
    """Attributes by vertex, as stated, otherwise from its name and links. Raises
    FabricFileError."""
    errors: list[str] = []
    vertices: dict[str, dict[str, Any]] = {}
    for name, stated in rows:
        attributes = _kind_and_place(name) | {
            key: stated[key] for key in STORED["vertex"] if stated.get(key) is not None
        }
        grid_text = stated.get("grid")
        if isinstance(grid_text, str) and re.fullmatch(r"\d{1,6}(x\d{1,6}){0,5}", grid_text):
            attributes["grid"] = [int(number) for number in grid_text.split("x")]
        if name in vertices:
            errors.append(f"The vertex {name[:60]!r} stands there twice.")
        elif not name or len(name) > 60 or not name.isprintable() or "," in name:
            errors.append(f"{name[:60]!r} is no name of 1 to 60 printable letters without commas.")
        elif invalid := [k for k in WHOLE if k in attributes and not _is_whole(attributes[k])]:
            errors.append(f"{name!r}: {invalid[0]} must be a whole number from 0 to {MOST_NODES}.")
        elif not all(_is_word(attributes.get(k, "")) for k in ("kind", "rack", "forwards", "chip")):
            errors.append(f"{name!r}: kind, rack, forwards and chip must be words.")
        elif absent_keys := [
            k for k in getattr(VERTICES.get(attributes["kind"]), "place", ()) if k not in attributes
        ]:
            errors.append(f"{name!r} has no {absent_keys[0]}: call it like die 20.1.0 or CPU 20.2.")
        vertices[name] = attributes
    if errors:
        raise FabricFileError(errors)
    _derive_planes(vertices, links)
    _derive_domains(vertices, links)
    return vertices


def _derive_planes(vertices: Vertices, links: Links) -> None:
    """Derive, where the file does not state them, the planes that links serve and that vertices
    forward. Links of dies and CPUs inside their node also lead to storage and NICs; dies that are
    linked without a switch forward. A cable between two dies on switches counts as an added link,
    so the pair still has its paths over the switches."""
    vertices_on_switch = {
        vertex
        for ends, data in links.items() if data["plane"] == "ub"
        for vertex, far_end in permutations(ends) if vertices[far_end]["kind"] not in ("die", "cpu")
    }  # fmt: skip
    planes_of_vertex: dict[str, set[str]] = {vertex: set() for vertex in vertices}
    for (tail, head), data in links.items():
        tail_data, head_data = vertices[tail], vertices[head]
        end_kinds = {tail_data["kind"], head_data["kind"]}
        is_same_node = "node" in tail_data and tail_data.get("node") == head_data.get("node")
        for end_data in (tail_data, head_data):
            if data["plane"] == "ub" and end_data.get("sub_plane", MOST_NODES) <= MOST_SUB_PLANES:
                data.setdefault("sub_plane", end_data["sub_plane"])
        if data["plane"] == "ub" and ("cpu" in end_kinds or (is_same_node and "die" in end_kinds)):
            data.setdefault("serves", INSIDE)
        serves = set(data.setdefault("serves", BETWEEN[data["plane"]]).split()) - {"package"}
        if end_kinds == {"die"} and "ub" in serves and {tail, head} <= vertices_on_switch:
            data.setdefault("added", 1)
        for vertex, end, far in ((tail, tail_data, head_data), (head, head_data, tail_data)):
            if end["kind"] != "die" or (data["plane"] == "ub" and far["kind"] in ("die", "cpu")):
                planes_of_vertex[vertex] |= serves
    for vertex, attributes in vertices.items():
        kind = attributes["kind"]
        kind_planes = VERTICES[kind].forwards.split() if kind in ENDS else []
        link_planes = planes_of_vertex[vertex] if kind == "die" or not kind_planes else set()
        attributes.setdefault("forwards", " ".join(sorted(link_planes.union(kind_planes))))


def _is_whole(value: Any, limit: int = MOST_NODES) -> bool:
    """Whether a value is a whole number from 0 to `limit`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _is_word(value: Any) -> bool:
    """Whether a value is printable text of at most 60 characters."""
    return isinstance(value, str) and len(value) <= 60 and value.isprintable()


def _kind_and_place(name: str) -> dict[str, Any]:
    """Kind and place of a vertex by its name: "CPU 3.1" is CPU 1 of node 3; others are switches."""
    lower_name = name.lower()
    for kind, vertex_kind in VERTICES.items():
        if vertex_kind.named and lower_name == vertex_kind.named and not vertex_kind.place:
            return {"kind": kind}
        if vertex_kind.place and lower_name.startswith(vertex_kind.named + " "):
            place = lower_name[len(vertex_kind.named) :].strip().split(".")
            if len(place) == len(vertex_kind.place) and all(
                re.fullmatch(r"\d{1,6}", n) for n in place
            ):
                return {"kind": kind, **dict(zip(vertex_kind.place, map(int, place), strict=True))}
    return {"kind": "switch"}


def _derive_domains(vertices: Vertices, links: Links) -> None:
    """Set missing scale-up domains of ends: one for each set of vertices that UB links join, in
    order of their first dies; where the file states any domain, an end without one gets its node's
    number."""
    ends = [end for end, data in vertices.items() if data["kind"] in ("die", "cpu", "nic")]
    if any("domain" in vertices[end] for end in ends):
        for end in ends:
            vertices[end].setdefault("domain", vertices[end].get("node", 0))
        return
    nx = lazy_networkx()
    ub_graph = nx.Graph()
    ub_graph.add_nodes_from(vertices)
    ub_graph.add_edges_from(pair for pair, data in links.items() if "ub" in data["serves"].split())
    domain_of: dict[str, int] = {}
    for end in sorted(ends, key=lambda vertex: _vertex_sort_key(vertex, vertices[vertex])):
        if end not in domain_of:
            domain = len(set(domain_of.values()))
            domain_of |= dict.fromkeys(nx.node_connected_component(ub_graph, end), domain)
    domain_of_die = {
        (attributes["node"], attributes["npu"], attributes["die"]): domain_of[end]
        for end, attributes in vertices.items() if attributes["kind"] == "die"
    }  # fmt: skip
    for end in ends:  # a NIC is on the plane of its die
        place = tuple(vertices[end].get(key) for key in ("node", "npu", "die"))
        vertices[end]["domain"] = domain_of_die.get(place, domain_of[end])  # type: ignore[arg-type]


def _vertex_sort_key(name: str, data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort key of a vertex: dies first, by node, NPU and die; then the others by kind and name."""
    numbers = tuple(data.get(key, -1) for key in ("node", "npu", "die", "sub_plane", "index"))
    return (data["kind"] != "die", data["kind"], numbers, name)


def _refuse_unusable(vertices: Vertices, links: Links) -> None:
    """Raise FabricFileError for a machine without dies or paths, with unequal NPU packages, or with
    a die that is cabled to the RDMA plane without a NIC, whose port would have no rate."""
    dies = [vertex for vertex, data in vertices.items() if data["kind"] == "die"]
    if not dies:
        raise FabricFileError(["The machine has no dies: call them die NODE.NPU.DIE."])
    for ends in (ends for ends, data in links.items() if data["plane"] == "rdma"):
        die_end, far_end = sorted(ends, key=lambda vertex: vertices[vertex]["kind"] != "die")
        if vertices[die_end]["kind"] == "die" and vertices[far_end]["kind"] != "nic":
            die_numbers = ".".join(str(vertices[die_end][key]) for key in ("node", "npu", "die"))
            raise FabricFileError(
                [f"'{die_end}' is cabled to '{far_end}' on the RDMA plane without a NIC: cable it "
                 f"to 'NIC {die_numbers}', and that to '{far_end}'."]
            )  # fmt: skip
    dies_of_package: dict[tuple[str, int, int], set[int]] = {}
    for vertex in dies:
        data = vertices[vertex]
        package = data.get("chip", ""), data["node"], data["npu"]
        dies_of_package.setdefault(package, set()).add(data["die"])
    dies_per_npu_of: dict[str, int] = {}  # by chip
    for (chip, node, npu), package_dies in dies_of_package.items():
        if package_dies != set(range(dies_per_npu_of.setdefault(chip, len(package_dies)))):
            raise FabricFileError(
                [f"NPU {node}.{npu} has the dies {sorted(package_dies)}: every NPU needs "
                 "as many as others of its chip, numbered from 0."]
            )  # fmt: skip
    nx = lazy_networkx()
    graph = nx.Graph(ends for ends, link in links.items() if link["capacity_bytes_per_s"] > 0.0)
    die_counts = (len(part.intersection(dies)) for part in nx.connected_components(graph))
    if len(dies) > 1 and max(die_counts, default=0) < 2:
        raise FabricFileError(["No path of links joins any two dies of the machine."])


def machine_text(machine: ImportedMachine) -> str:
    """An imported machine as node-link JSON, which is read back as the same machine."""
    vertices = [
        (name, {**data, "grid": "x".join(map(str, data["grid"]))} if "grid" in data else data)
        for name, data in machine.vertices
    ]
    contents = GraphText(machine.about, vertices, machine.links, directed=True)
    return graph_text.compose_text(contents, "json")


def fabric_text(net: Network, kind: str) -> str:
    """A machine, with its attributes and edits, as the text of a file; kind: a form of graphs, such
    as "json", or "csv" for a cable list."""
    graph = net.graph()
    if kind == "csv":
        return graph_text.cable_list(
            (tail, head, data["capacity_bytes_per_s"], data["latency_s"],
             "package" if data["serves"] == "package" else data["plane"])
            for tail, head, data in graph.edges(data=True)
        )  # fmt: skip
    vertices = []
    for vertex, data in graph.nodes(data=True):
        fields = {key: data[key] for key in STORED["vertex"] if key in data}
        if "grid" in data:
            fields["grid"] = "x".join(map(str, data["grid"]))
        vertices.append((vertex, fields))
    links = [
        (tail, head, {key: data[key] for key in STORED["link"] if key in data})
        for tail, head, data in graph.edges(data=True)
    ]
    attributes = {key: net.about[key] for key in STORED["graph"] if key in net.about}
    return graph_text.compose_text(GraphText(attributes, vertices, links, directed=True), kind)
