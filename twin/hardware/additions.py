"""Links and switches that an edit adds to a fabric: the rest of re-wiring is to take some out.

An added link is like those of its kind where the machine has such, else like any of its plane; a
second link between the same two ends joins their bundle. An added switch passes its plane on and
stands nowhere. What else changes links stands in fabric.py."""

from collections.abc import Iterable
from typing import Any

from twin.hardware.chip import HardwareError
from twin.hardware.kinds import BETWEEN, INSIDE
from twin.hardware.names import Fabric, Names, plain
from twin.hardware.network import CAPACITY, LATENCY
from twin.scenario import Edit


def additions(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits that add a link or a switch."""
    return tuple(edit for edit in edits if edit.add != "nothing")


def extended(fabric: Fabric, edits: Iterable[Edit]) -> Fabric:
    """A mutable copy of the graph with the additions of the edits, in order. Raises HardwareError
    for a link without two single ends, a used name, or a plane that the machine lacks."""
    graph = fabric.copy()
    for order, edit in enumerate(additions(edits), 1):
        if edit.add == "switch":
            _add_switch(graph, edit)
        else:
            _add_link(graph, edit, order)
    return graph


def _add_switch(graph: Fabric, edit: Edit) -> None:
    """Add a switch to the graph. Raises HardwareError."""
    if plain(edit.element) in _names(graph).vertices:
        raise HardwareError(f"there is a {edit.element} already: call the added switch otherwise")
    graph.add_node(edit.element, kind="switch", forwards=_serves(edit.plane))


def _add_link(graph: Fabric, edit: Edit, order: int) -> None:
    """Add a link in both directions, like present links between such elements."""
    a, b = _end(graph, edit.element), _end(graph, edit.to)
    if a == b:
        raise HardwareError(f"{a} to itself needs no link: name two elements")
    rate, latency_s = edit.gb_per_s * 1e9, edit.latency_ns * 1e-9
    for tail, head in ((a, b), (b, a)):
        if not graph.has_edge(tail, head):
            attributes = {CAPACITY: rate, LATENCY: latency_s, "links": 1, "added": order}
            graph.add_edge(tail, head, **_like(graph, tail, head, edit.plane) | attributes)
            continue
        bundle = graph.edges[tail, head]
        if bundle["plane"] != edit.plane:
            raise HardwareError(
                f"{a} and {b} are joined on the {bundle['plane']} plane already: an added link "
                f"of {edit.plane} cannot join that bundle"
            )
        bundle[CAPACITY] += rate
        bundle[LATENCY] = max(bundle[LATENCY], latency_s)
        bundle["links"] += 1


def _serves(plane: str) -> str:
    """Planes that a link between any two elements of one plane can serve."""
    return INSIDE if plane == "ub" else BETWEEN[plane]


def _names(graph: Fabric) -> Names:
    return Names(dict(graph.nodes(data=True)))


def _end(graph: Fabric, name: str) -> str:
    """The vertex that a name stands for. Raises HardwareError if it is none or several."""
    if not name:
        raise HardwareError("an added link joins two elements: name the other end with `to`")
    ends = _names(graph).of(name)
    if len(ends) > 1:
        raise HardwareError(f"{name} is {len(ends)} elements: an added link joins single ones")
    return ends[0]


def _like(graph: Fabric, tail: str, head: str, plane: str) -> dict[str, Any]:
    """Attributes of a new link: of one that is between such ends, otherwise of one of its plane.
    Links inside a package are no model, because traffic that leaves the NPU never uses them."""
    kinds = {graph.nodes[tail]["kind"], graph.nodes[head]["kind"]}
    plane_links = [
        ({graph.nodes[a]["kind"], graph.nodes[b]["kind"]}, data)
        for a, b, data in graph.edges(data=True)
        if data["plane"] == plane and data["serves"] != "package"
    ]
    if not plane_links:
        raise HardwareError(f"this machine has no {plane} plane that a link could be added to")
    similar = next((data for ends, data in plane_links if ends == kinds), None)
    data = dict(similar or plane_links[0][1])
    if similar is None:
        data |= {"kind": "added", "serves": _serves(plane), "write_extra_s": 0.0}
    data.pop("sub_plane", None)
    for end in (tail, head):
        if "sub_plane" in graph.nodes[end]:
            data["sub_plane"] = graph.nodes[end]["sub_plane"]
    return data
