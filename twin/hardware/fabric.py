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

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from twin.facts import Facts
from twin.hardware.additions import additions, with_additions
from twin.hardware.builders import plan_of_recipe
from twin.hardware.chip import HardwareError
from twin.hardware.imported import plan_of
from twin.hardware.network import Network, network_of_plan
from twin.hardware.recipes import Recipe, recipe
from twin.scenario import Edit, Supernode

MOST_BYTES_PER_S = 1e18  # beyond these an edit is a slip of the pen
MOST_LATENCY_S = 3600.0


def build_fabric(supernode: Supernode, facts: Facts) -> Network:
    """The network of a supernode with its edits; equal supernodes share one. Raises HardwareError
    when wiring leaves a node out, or for an unknown element or imported machine."""
    return _network_of(supernode, _recipe_or_facts(supernode, facts))


def _recipe_or_facts(s: Supernode, facts: Facts) -> Recipe | Facts:
    """What a machine is built from: its recipe, or all facts for an imported one."""
    if s.imported:
        return facts
    chips = (kind.chip if kind.has_npus else s.chip for kind in s.kinds)
    kind_recipes = tuple(recipe(s.machine, chip, facts) for chip in chips)
    return replace(recipe(s.machine, s.chip, facts), further=kind_recipes)


def _supernode_as_built(s: Supernode) -> Supernode:
    """The supernode with only those of its edits that add a link or a switch."""
    adding_edits = additions(s.edits)
    return s if adding_edits == s.edits else s.model_copy(update={"edits": adding_edits})


@lru_cache(maxsize=16)
def _network_of(s: Supernode, source: Recipe | Facts) -> Network:
    """The network of a machine with all its edits in force; source: its recipe, or the facts."""
    if (as_built := _supernode_as_built(s)) is s:
        plan = plan_of_recipe(s, source) if isinstance(source, Recipe) else plan_of(s, source)
        plan.about.update(made_of=source, supernode=s)
        return network_of_plan(with_additions(plan, s.edits) if s.edits else plan)
    net = with_edits(_network_of(as_built, source), s.edits)
    return replace(net, about={**net.about, "supernode": s}, memo={})


def with_edits(net: Network, edits: Iterable[Edit]) -> Network:
    """The network with edits in force, in order; added elements exist already (additions.py)."""
    edits = tuple(edit for edit in edits if edit.add == "nothing")
    if not edits:
        return net
    rates, latency_s, shares = net.capacity.copy(), net.latency.copy(), np.ones(net.capacity.size)
    for edit in edits:
        links = net.links_at(edit.element, edit.to)
        share_left = net.share_left(links, edit.links_out, edit.element)
        rates[links] *= edit.capacity_factor * share_left
        shares[links] *= share_left
        latency_s[links] *= edit.latency_factor
        _refuse_out_of_bounds(rates[links], latency_s[links], edit.element)
    return net.with_rates(rates, latency_s, np.rint(net.cables * shares).astype(np.int64))


def _refuse_out_of_bounds(bytes_per_s: Any, latency_s: Any, what: str) -> None:
    """Raise HardwareError for rates (bytes/s) or latencies (s) out of bounds; what: the element."""
    rates_fit = (bytes_per_s >= 0.0) & (bytes_per_s <= MOST_BYTES_PER_S)
    if not (rates_fit & (latency_s >= 0.0) & (latency_s <= MOST_LATENCY_S)).all():
        raise HardwareError(
            f"{what} gives a link less than 0 or more than {MOST_BYTES_PER_S:g} bytes/s, or a "
            f"latency beyond {MOST_LATENCY_S:g} s: use factors nearer to 1"
        )


def built(net: Network) -> Network:
    """The machine as built: with added links and switches, before any change of a link."""
    return _network_of(_supernode_as_built(net.about["supernode"]), net.about["made_of"])
