"""Links and switches that an edit adds to a fabric: the rest of re-wiring is to take some out.

An added link is like those of its kind where the machine has such, else like any of its plane; a
second link between the same two ends joins their bundle. An added switch passes its plane on and
stands nowhere. What else changes links stands in fabric.py."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from twin.hardware.chip import HardwareError
from twin.hardware.kinds import BETWEEN, INSIDE
from twin.hardware.names import Edge, Names, plain
from twin.hardware.network import CAPACITY, LATENCY, Plan
from twin.scenario import Edit

Vertices: TypeAlias = dict[str, Mapping[str, Any]]
Links: TypeAlias = dict[Edge, Mapping[str, Any]]


def additions(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits that add a link or a switch."""
    return tuple(edit for edit in edits if edit.add != "nothing")


def extended(plan: Plan, added: Iterable[Edit]) -> Plan:
    """The plan with the links and switches that edits add, in order. Raises HardwareError for a
    link without two single ends, a used name, or a plane that the machine lacks."""
    tails, heads, attributes = plan.links
    vertices = dict(plan.vertices)
    links = dict(zip(zip(tails, heads, strict=True), attributes, strict=True))
    for order, edit in enumerate(added, 1):
        if edit.add == "switch":
            if plain(edit.element) in Names(vertices).vertices:
                raise HardwareError(
                    f"there is a {edit.element} already: call the added switch otherwise"
                )
            vertices[edit.element] = {"kind": "switch", "forwards": _serves(edit.plane)}
        else:
            _add_link(vertices, links, edit, order)
    tails, heads = zip(*links, strict=True)
    return Plan(dict(plan.about), vertices, (tails, heads, tuple(links.values())))


def _add_link(vertices: Vertices, links: Links, edit: Edit, order: int) -> None:
    """Add a link in both directions, like present links between such elements."""
    a, b = _end(vertices, edit.element), _end(vertices, edit.to)
    if a == b:
        raise HardwareError(f"{a} to itself needs no link: name two elements")
    bytes_per_s, latency_s = edit.gb_per_s * 1e9, edit.latency_ns * 1e-9
    for ends in ((a, b), (b, a)):
        if (bundle := links.get(ends)) is None:
            own_data = {CAPACITY: bytes_per_s, LATENCY: latency_s, "links": 1, "added": order}
            links[ends] = {**_like(vertices, links, ends, edit.plane), **own_data}
            continue
        if bundle["plane"] != edit.plane:
            raise HardwareError(
                f"{a} and {b} are joined on the {bundle['plane']} plane already: an added link "
                f"of {edit.plane} cannot join that bundle"
            )
        sums = {CAPACITY: bundle[CAPACITY] + bytes_per_s, LATENCY: max(bundle[LATENCY], latency_s)}
        links[ends] = {**bundle, **sums, "links": bundle["links"] + 1}


def _serves(plane: str) -> str:
    """Names of the planes whose bytes an added link of a plane carries, between any two
    elements."""
    return INSIDE if plane == "ub" else BETWEEN[plane]


def _end(vertices: Vertices, name: str) -> str:
    """The vertex that a name stands for. Raises HardwareError if it is none or several."""
    if not name:
        raise HardwareError("an added link joins two elements: name the other end with `to`")
    ends = Names(vertices).of(name)
    if len(ends) > 1:
        raise HardwareError(f"{name} is {len(ends)} elements: an added link joins single ones")
    return ends[0]


def _like(vertices: Vertices, links: Links, ends: Edge, plane: str) -> dict[str, Any]:
    """Attributes of a new link: a copy of those of a link between such kinds of ends, otherwise of
    any link of its plane. Links inside a package are not copied, because traffic that leaves the
    NPU never uses them."""
    end_kinds = {vertices[end]["kind"] for end in ends}
    plane_links = [
        ({vertices[a]["kind"], vertices[b]["kind"]}, data)
        for (a, b), data in links.items()
        if data["plane"] == plane and data["serves"] != "package"
    ]
    if not plane_links:
        raise HardwareError(f"this machine has no {plane} plane that a link could be added to")
    similar = next((data for kinds, data in plane_links if kinds == end_kinds), None)
    data = dict(similar or plane_links[0][1])
    if similar is None:
        data |= {"kind": "added", "serves": _serves(plane), "write_extra_s": 0.0}
    data.pop("sub_plane", None)
    for end in ends:
        if "sub_plane" in vertices[end]:
            data["sub_plane"] = vertices[end]["sub_plane"]
    return data
