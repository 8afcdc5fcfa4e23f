"""Small machines for tests: any wiring as a fabric, with unit efficiencies and no latency."""

from dataclasses import replace

import networkx as nx
import numpy as np

from twin.hardware.fabric import build_fabric, network_as_built
from twin.hardware.flows import Changes, Demand, Pattern
from twin.hardware.network import Network, Plan, network_of_plan
from twin.lab.library import load_facts, presets
from twin.scenario import Edit

# The machines of all presets, each once, by the first preset that has it.
MACHINES = {p.scenario.supernode: p.key for p in reversed(presets())}
MACHINES = {key: machine for machine, key in reversed(MACHINES.items())}


def fabric(links, ends, *, forwarding=True, routing="adaptive", detour=0):
    """A fabric of `links` (a, b, bytes/s, and 1, 2, ... for links that edits add), each both ways;
    ends are dies, others switches."""
    graph = nx.DiGraph(routing=routing, detour_hops=detour, beyond_node=1.0)
    vertices = dict.fromkeys(v for a, b, *_ in links for v in (a, b))
    for v in vertices:
        kind = {"kind": "die", "domain": 0} if v in set(ends) else {"kind": "switch"}
        graph.add_node(v, forwards="ub" if forwarding or v not in set(ends) else "", **kind)
    for a, b, capacity, *added in links:
        for one, other in ((a, b), (b, a)):
            graph.add_edge(
                one, other, capacity_bytes_per_s=float(capacity), latency_s=1e-6, kind="link",
                plane="ub", serves="ub", links=1, read_efficiency=1.0, write_efficiency=1.0,
                write_extra_s=0.0, added=sum(added),
            )  # fmt: skip
    return graph


def network(machine):
    """The arrays of a networkx graph with the attributes of a machine's, or of a machine itself."""
    if isinstance(machine, Network):
        return machine
    links = tuple(zip(*machine.edges(data=True), strict=True)) or ((), (), ())
    return network_of_plan(Plan(machine.graph, dict(machine.nodes(data=True)), links))


def edited(net, edits):
    """The machine with further edits, after those that it has."""
    s = net.about["supernode"]
    return build_fabric(s.model_copy(update={"edits": (*s.edits, *edits)}), load_facts())


def changed_bytes_per_s(net):
    """Bytes/s of each link whose capacity differs from that as built, once, by its two ends."""
    changed = {}
    for link in np.flatnonzero(net.capacity != network_as_built(net).capacity).tolist():
        tail, head = net.edge(link)
        if (head, tail) not in changed:
            changed[tail, head] = float(net.capacity[link])
    return changed


def settled(load):
    """The load with a pattern of its own."""
    links = np.argsort(load.links, kind="stable")
    own = Pattern(load.links[links], load.amounts[links], load.places, load.bytes_at_places)
    return replace(load, pattern=own, moved=Changes(), moved_places=Changes())


def demand(net, senders, receivers, out=None, into=None):
    """A demand among named vertices, even without `out` and `into`."""
    n, m = len(senders), len(receivers)
    return Demand(
        tuple(net.number[v] for v in senders), tuple(net.number[v] for v in receivers),
        tuple(out or [1.0] * n), tuple(into or [1.0 / m] * m), ("ub",), "nominal",
    )  # fmt: skip


def all_to_all(net, ends):
    """Everyone sends one byte/s, in equal parts to all others."""
    return demand(net, ends, ends, None, [1.0 / (len(ends) - 1)] * len(ends))


def edits_of(remove=(), scale=None, latency=None):
    """Edits that multiply capacities and latencies of elements, then take elements out."""
    rows = [Edit(element=name, capacity_factor=by) for name, by in (scale or {}).items()]
    rows += [Edit(element=name, latency_factor=by) for name, by in (latency or {}).items()]
    return rows + [Edit(element=name, capacity_factor=0.0) for name in remove]
