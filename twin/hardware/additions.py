"""Links and switches that an edit adds to a fabric: the rest of re-wiring is to take some out.

An added link is like those of its kind where the machine has such, else like any of its plane; a
second link between the same two ends joins their bundle. An added switch passes its plane on and
stands nowhere. What else changes links stands in fabric.py."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from twin.hardware.chip import HardwareError
from twin.hardware.kinds import BETWEEN, INSIDE
from twin.hardware.names import Edge, Names, spelling
from twin.hardware.network import CAPACITY, LATENCY, Plan
from twin.scenario import Edit

Vertices: TypeAlias = dict[str, Mapping[str, Any]]
Links: TypeAlias = dict[Edge, Mapping[str, Any]]


def additions(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits that add a link or a switch."""
    return tuple(edit for edit in edits if edit.add != "nothing")


def with_additions(plan: Plan, adding_edits: Iterable[Edit]) -> Plan:
    """The plan with the links and switches that edits add, in order. Raises HardwareError for a
    link without two single ends, a used name, or a plane that the machine lacks."""
    tails, heads, attributes = plan.links
    vertices = dict(plan.vertices)
    links = dict(zip(zip(tails, heads, strict=True), attributes, strict=True))
    for edit_number, edit in enumerate(adding_edits, 1):
        if edit.add == "switch":
            if spelling(edit.element) in Names(vertices).vertices:
                raise HardwareError(
                    f"there is a {edit.element} already: call the added switch otherwise"
                )
            vertices[edit.element] = {"kind": "switch", "forwards": _planes_served(edit.plane)}
        else:
            _add_link(vertices, links, edit, edit_number)
    tails, heads = zip(*links, strict=True)
    return Plan(dict(plan.about), vertices, (tails, heads, tuple(links.values())))


def _add_link(vertices: Vertices, links: Links, edit: Edit, order: int) -> None:
    """Add the link of edit number `order` in both directions, like links between such elements."""
    end_a, end_b = _single_vertex(vertices, edit.element), _single_vertex(vertices, edit.to)
    if end_a == end_b:
        raise HardwareError(f"{end_a} to itself needs no link: name two elements")
    bytes_per_s, latency_s = edit.gb_per_s * 1e9, edit.latency_ns * 1e-9
    for ends in ((end_a, end_b), (end_b, end_a)):
        if (bundle := links.get(ends)) is None:
            new_attributes = {CAPACITY: bytes_per_s, LATENCY: latency_s, "links": 1, "added": order}
            links[ends] = {**_attributes(vertices, links, ends, edit.plane), **new_attributes}
            continue
        if bundle["plane"] != edit.plane:
            raise HardwareError(
                f"{end_a} and {end_b} are joined on the {bundle['plane']} plane already: an added "
                f"link of {edit.plane} cannot join that bundle"
            )
        sums = {CAPACITY: bundle[CAPACITY] + bytes_per_s, LATENCY: max(bundle[LATENCY], latency_s)}
        links[ends] = {**bundle, **sums, "links": bundle["links"] + 1}


def _planes_served(plane: str) -> str:
    """Names of the planes whose bytes an added link of a plane carries, whatever it joins."""
    return INSIDE if plane == "ub" else BETWEEN[plane]


def _single_vertex(vertices: Vertices, name: str) -> str:
    """The vertex that a name stands for. Raises HardwareError if it is none or several."""
    if not name:
        raise HardwareError("an added link joins two elements: name the other end with `to`")
    matches = Names(vertices).find(name)
    if len(matches) > 1:
        raise HardwareError(f"{name} is {len(matches)} elements: an added link joins single ones")
    return matches[0]


def _attributes(vertices: Vertices, links: Links, ends: Edge, plane: str) -> dict[str, Any]:
    """Attributes of a new link: those of a link between such kinds of ends, otherwise of any link
    of its plane, but never of one inside a package, where no traffic that leaves the NPU goes."""
    end_kinds = {vertices[end]["kind"] for end in ends}
    plane_links = [
        ({vertices[tail]["kind"], vertices[head]["kind"]}, attributes)
        for (tail, head), attributes in links.items()
        if attributes["plane"] == plane and attributes["serves"] != "package"
    ]
    if not plane_links:
        raise HardwareError(f"this machine has no {plane} plane that a link could be added to")
    example = next((attributes for kinds, attributes in plane_links if kinds == end_kinds), None)
    attributes = dict(example or plane_links[0][1])
    if example is None:
        attributes |= {"kind": "added", "serves": _planes_served(plane), "write_extra_s": 0.0}
    attributes.pop("sub_plane", None)
    for end in ends:
        if "sub_plane" in vertices[end]:
            attributes["sub_plane"] = vertices[end]["sub_plane"]
    return attributes
