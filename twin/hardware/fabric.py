"""The machine as one graph: dies, CPUs, switch chips and the links between them.

`build_fabric(supernode, facts)` gives its arrays (network.py), of which `graph()` is the networkx
DiGraph; every price is read from it, so a graph with other links is another machine. A vertex is an
element with a name that people use ("die 20.1.0": node 20, NPU 1, die 0; "L1 20.3": node 20,
sub-plane 3; "L2 3.12": sub-plane 3, chip 12). Its attributes:

    chip      of a die: that of its node's kind, where it is not the supernode's own
    kind      die (computes), cpu (offers its DRAM), nic, qingtian (DPU), or a switch: l1, l2, ...
    node, npu, die, index, sub_plane, supernode    its place, where it has one
    rack      name of the rack it stands in ("rack 3", "communication rack 1"), where it has one
    grid      its place in a mesh or torus, one integer a dimension, where it has one
    domain    the scale-up plane it is on: two ends of one domain reach each other over "ub",
              others over "rdma"
    forwards  the planes that it passes on, in words; ends forward none

An edge is one direction of a link, or of a bundle of `links` parallel ones:

    capacity_bytes_per_s, latency_s     of that direction; capacity 0: taken out
    kind, plane, sub_plane              what it is, and where its bytes are counted
    serves                              the planes whose paths may use it, in words
    read_efficiency, write_efficiency   share of the capacity that an operation reaches
    write_extra_s                       what a write takes longer, once a path
    added                               0: as built; n: by the n-th edit that adds something

Planes are "ub" (scale-up), "rdma" (scale-out), "vpc" (storage), "package" (between the dies of an
NPU) and "host": the way of CPUs to what their UB plane does not reach, over the dies of their node
and these dies' NICs. Attributes of the graph: `beyond_node` (what the way out of a node leaves of
a UB rate), `routing` ("adaptive", "ecmp" or "hashed"; a plane may have its own by the supernode's
`ub_routing`, `rdma_routing`), `detour_hops`, `layout` (how it is best drawn: "racks" of a
hierarchy, "grid" of a mesh or torus, "block" of one switched domain, "free"), the supernode and
what it was built from.

Several supernodes are one graph: nodes number through, each supernode has L2 chips of its own
("L2 1:3.12" is of the second), and the RDMA and VPC networks join them. What it does not know:
traffic (flows.py), how switch chips queue, the paths inside the RDMA and VPC networks (each is one
non-blocking vertex), the CPUs' own full mesh (its bandwidth is not published), and DRAM sizes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from twin.facts import Facts
from twin.hardware.builders import plan_of_recipe
from twin.hardware.chip import HardwareError
from twin.hardware.imported import plan_of
from twin.hardware.kinds import BETWEEN, INSIDE, Edge, Names, spelling
from twin.hardware.network import CAPACITY, LATENCY, Network, Plan, network_of_plan
from twin.hardware.recipes import Recipe, recipe
from twin.scenario import Edit, Supernode

MOST_BYTES_PER_S = 1e18  # beyond these an edit is a slip of the pen
MOST_LATENCY_S = 3600.0
Vertices: TypeAlias = dict[str, Mapping[str, Any]]
Links: TypeAlias = dict[Edge, Mapping[str, Any]]


def build_fabric(supernode: Supernode, facts: Facts) -> Network:
    """The network of a supernode with its edits; equal supernodes share one. Raises HardwareError
    if the wiring leaves a node out, or an element or imported machine is unknown."""
    s = supernode
    if s.imported:
        return _network_of(s, facts)
    chips = (kind.chip if kind.has_npus else s.chip for kind in s.kinds)
    kind_recipes = tuple(recipe(s.machine, chip, facts) for chip in chips)
    return _network_of(s, replace(recipe(s.machine, s.chip, facts), further=kind_recipes))


def _supernode_as_built(s: Supernode) -> Supernode:
    """Returns the supernode with only those of its edits that add a link or a switch."""
    adding_edits = additions(s.edits)
    return s if adding_edits == s.edits else s.model_copy(update={"edits": adding_edits})


@lru_cache(maxsize=16)
def _network_of(s: Supernode, source: Recipe | Facts) -> Network:
    """The network of a machine with its edits in force; source: its recipe; if imported, facts."""
    if (as_built := _supernode_as_built(s)) is s:
        plan = plan_of_recipe(s, source) if isinstance(source, Recipe) else plan_of(s, source)
        plan.about.update(made_of=source, supernode=s)
        return network_of_plan(with_additions(plan, s.edits) if s.edits else plan)
    net = with_edits(_network_of(as_built, source), s.edits)
    return replace(net, about={**net.about, "supernode": s}, memo={})


def with_edits(net: Network, edits: Iterable[Edit]) -> Network:
    """The network with edits in force, in order. Elements that edits add must already be in it
    (`with_additions`). Raises HardwareError for rates (bytes/s) or latencies (s) out of bounds."""
    edits = tuple(edit for edit in edits if edit.add == "nothing")
    if not edits:
        return net
    bytes_per_s, latency_s = net.capacity.copy(), net.latency.copy()
    link_share_left = np.ones(bytes_per_s.size)
    for edit in edits:
        links = net.links_at(edit.element, edit.to)
        edit_share_left = net.share_left(links, edit.links_out, edit.element)
        bytes_per_s[links] *= edit.capacity_factor * edit_share_left
        link_share_left[links] *= edit_share_left
        latency_s[links] *= edit.latency_factor
        rates_fit = (bytes_per_s[links] >= 0.0) & (bytes_per_s[links] <= MOST_BYTES_PER_S)
        latencies_fit = (latency_s[links] >= 0.0) & (latency_s[links] <= MOST_LATENCY_S)
        if not (rates_fit & latencies_fit).all():
            raise HardwareError(
                f"{edit.element} gives a link less than 0 or more than {MOST_BYTES_PER_S:g} "
                f"bytes/s, or a latency beyond {MOST_LATENCY_S:g} s: use factors nearer to 1"
            )
    cables_left = np.rint(net.cables * link_share_left).astype(np.int64)
    return net.with_rates(bytes_per_s, latency_s, cables_left)


def network_as_built(net: Network) -> Network:
    """The machine as built: with added links and switches, before any change of a link."""
    return _network_of(_supernode_as_built(net.about["supernode"]), net.about["made_of"])


def additions(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Returns the edits that add a link or a switch."""
    return tuple(edit for edit in edits if edit.add != "nothing")


def with_additions(plan: Plan, adding_edits: Iterable[Edit]) -> Plan:
    """The plan with the links and switches that edits add, in order. An added link is like the
    links between such kinds of ends, if the machine has any, otherwise like any link of its plane;
    a second link between the same two ends joins their bundle. An added switch forwards its plane
    and has no place. Raises HardwareError for a link without two single ends, a used name, or a
    plane that the machine lacks."""
    tails, heads, attributes = plan.links
    vertices = dict(plan.vertices)
    links = dict(zip(zip(tails, heads, strict=True), attributes, strict=True))
    for edit_number, edit in enumerate(adding_edits, 1):
        if edit.add == "switch":
            if spelling(edit.element) in Names(vertices).by_spelling:
                raise HardwareError(
                    f"there is a {edit.element} already: call the added switch otherwise"
                )
            vertices[edit.element] = {"kind": "switch", "forwards": _planes_served(edit.plane)}
        else:
            _add_link(vertices, links, edit, edit_number)
    tails, heads = zip(*links, strict=True)
    return Plan(dict(plan.about), vertices, (tails, heads, tuple(links.values())))


def _add_link(vertices: Vertices, links: Links, edit: Edit, order: int) -> None:
    """Add the link of an edit in both directions, with the attributes of links between such
    elements. order: number of the edit among those that add something."""
    end_a, end_b = _single_vertex(vertices, edit.element), _single_vertex(vertices, edit.to)
    if end_a == end_b:
        raise HardwareError(f"{end_a} to itself needs no link: name two elements")
    bytes_per_s, latency_s = edit.gb_per_s * 1e9, edit.latency_ns * 1e-9
    for ends in ((end_a, end_b), (end_b, end_a)):
        if (link_data := links.get(ends)) is None:
            new_attributes = {CAPACITY: bytes_per_s, LATENCY: latency_s, "links": 1, "added": order}
            links[ends] = {**_link_attributes(vertices, links, ends, edit.plane), **new_attributes}
            continue
        if link_data["plane"] != edit.plane:
            raise HardwareError(
                f"{end_a} and {end_b} are joined on the {link_data['plane']} plane already: an "
                f"added link of {edit.plane} cannot join that bundle"
            )
        changed = {
            CAPACITY: link_data[CAPACITY] + bytes_per_s,
            LATENCY: max(link_data[LATENCY], latency_s),
        }
        links[ends] = {**link_data, **changed, "links": link_data["links"] + 1}


def _planes_served(plane: str) -> str:
    """Names, separated by spaces, of the planes whose bytes an added link of a plane carries."""
    return INSIDE if plane == "ub" else BETWEEN[plane]


def _single_vertex(vertices: Vertices, name: str) -> str:
    """The vertex that a name stands for. Raises HardwareError if it is none or several."""
    if not name:
        raise HardwareError("an added link joins two elements: name the other end with `to`")
    matches = Names(vertices).find(name)
    if len(matches) > 1:
        raise HardwareError(f"{name} is {len(matches)} elements: an added link joins single ones")
    return matches[0]


def _link_attributes(vertices: Vertices, links: Links, ends: Edge, plane: str) -> dict[str, Any]:
    """Attributes of a new link: those of a link between the same kinds of ends, otherwise of any
    link of its plane, but not of one inside a package, over which no traffic leaves the NPU."""
    end_kinds = {vertices[end]["kind"] for end in ends}
    plane_links = [
        ({vertices[tail]["kind"], vertices[head]["kind"]}, attributes)
        for (tail, head), attributes in links.items()
        if attributes["plane"] == plane and attributes["serves"] != "package"
    ]
    if not plane_links:
        raise HardwareError(f"this machine has no {plane} plane that a link could be added to")
    alike_link = next((attributes for kinds, attributes in plane_links if kinds == end_kinds), None)
    attributes = dict(alike_link or plane_links[0][1])
    if alike_link is None:
        attributes |= {"kind": "added", "serves": _planes_served(plane), "write_extra_s": 0.0}
    attributes.pop("sub_plane", None)
    for end in ends:
        if "sub_plane" in vertices[end]:
            attributes["sub_plane"] = vertices[end]["sub_plane"]
    return attributes
