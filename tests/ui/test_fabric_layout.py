"""Where everything stands on the picture: each vertex once, nothing over anything else."""

from itertools import combinations

import pytest

from tests.hardware.wired import network
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import make_available
from twin.hardware.network import Network
from twin.lab.library import load_facts
from twin.lab.machines import read_machine
from twin.scenario import Supernode
from twin.ui.fabric_layout import boxes

FACTS = load_facts()
MACHINES = [Supernode(), Supernode(nodes=7, supernodes=2), Supernode(scale_up="node", nodes=3)]


def wished(layout: str) -> Network:
    """A small machine that asks for another layout; its nodes are in a grid of four columns."""
    graph = build_fabric(Supernode(nodes=12), FACTS).graph()
    graph.graph["layout"] = layout
    for data in graph.nodes.values():
        if "node" in data:
            data["grid"] = (data["node"] % 4, data["node"] // 4)
    return network(graph)


def apart(one, other):
    (x, y, w, h), (u, v, b, c) = one, other
    return x + w <= u + 0.2 or u + b <= x + 0.2 or y + h <= v + 0.2 or v + c <= y + 0.2


@pytest.mark.parametrize("fabric", [*(build_fabric(s, FACTS) for s in MACHINES), wished("grid")])
def test_every_vertex_has_a_box_inside_its_parent_and_over_no_other(fabric):
    sheet = boxes(fabric)
    assert sorted(sheet.box_of) == list(range(len(network(fabric).vertices)))
    for k, parent in enumerate(sheet.parent):
        if parent >= 0:
            x, y, w, h = sheet.rect[k]
            assert parent < k
            assert min(x, y) >= 0
            assert x + w <= sheet.rect[parent][2] + 0.2
            assert y + h <= sheet.rect[parent][3] + 0.2
    for parent in {*sheet.parent} - {-1}:
        inside = [sheet.rect[k] for k, p in enumerate(sheet.parent) if p == parent]
        assert all(apart(a, b) for a, b in combinations(inside, 2))


def test_racks_are_those_the_graph_names_and_planes_stand_between_them():
    sheet = boxes(build_fabric(Supernode(), FACTS))
    racks = [sheet.name[box] for box, _, what in sheet.blocks if what == "rack"]
    hubs = [sheet.name[box] for box, _, what in sheet.blocks if what == "hub"]
    assert racks == [f"rack {k}" for k in range(12)]
    assert hubs == [*(f"sub-plane {p}" for p in range(7)), "RDMA network", "VPC network"]
    home = sheet.parent[sheet.parent[sheet.parent[sheet.name.index("die 20.3.1")]]]
    assert sheet.name[home] == "rack 5"


def test_switches_of_a_rack_of_nodes_stand_in_it_and_place_it_on_the_grid():
    graph = build_fabric(Supernode(nodes=16), FACTS).graph()
    graph.graph["layout"] = "grid"
    for k, home in enumerate(("rack 0", "rack 1", "rack 2", "rack 3")):
        own = {"kind": "lrs", "rack": home, "grid": (k % 2, k // 2), "forwards": "ub"}
        graph.add_node(f"LRS {k}", **own)
        graph.add_edge(f"LRS {k}", "L1 0.0", **graph.edges["L1 0.0", "L2 0.0"])
    sheet = boxes(network(graph))
    at = {sheet.name[box]: sheet.rect[box][:2] for box, _, _ in sheet.blocks}
    assert {"rack 0", "rack 3"} <= at.keys()
    assert "node 0" not in at
    assert sheet.name[sheet.parent[sheet.name.index("LRS 3")]] == "rack 3"
    assert len({at[f"rack {k}"] for k in range(4)}) == 4


@pytest.mark.parametrize("layout", ["grid", "free"])
def test_blocks_of_a_mesh_or_a_free_graph_have_their_own_places(layout):
    sheet = boxes(wished(layout))
    assert sheet.fixed
    rects = [sheet.rect[box] for box, _, _ in sheet.blocks]
    assert all(apart(a, b) for a, b in combinations(rects, 2))
    if layout == "grid":
        at = {sheet.name[box]: sheet.rect[box][:2] for box, _, _ in sheet.blocks}
        assert at["node 1"][0] == at["node 0"][0]  # the inner dimension goes down: blades are wide
        assert at["node 1"][1] > at["node 0"][1]
        assert at["node 4"][0] > at["node 0"][0]
        assert at["node 4"][1] == at["node 0"][1]


def test_a_free_graph_with_switches_stands_in_levels_and_its_nodes_in_order():
    rows = ["from,to,GB/s,ns,plane"]
    for node in (3, 2, 0, 1):
        dies = [f"die {node}.{i}.{d}" for i in range(4) for d in range(2)]
        rows += [f"{die},leaf {node},98,200,ub" for die in dies]
        rows += [f"leaf {node},spine {s},392,200,ub" for s in range(2)]
    machine = read_machine("\n".join(rows).encode(), "tree.csv")
    make_available(machine)
    sheet = boxes(build_fabric(Supernode(machine=machine.digest, nodes=4, npus_per_node=4), FACTS))
    at = {sheet.name[box]: sheet.rect[box][:2] for box, _, _ in sheet.blocks}
    own = {"node": 4, "leaf": 4, "spine": 2}
    assert {*at} == {f"{kind} {k}" for kind, count in own.items() for k in range(count)}
    for kind, count in own.items():  # one row each, from left to right
        row = [at[f"{kind} {k}"] for k in range(count)]
        assert row == sorted(row) and len({y for _, y in row}) == 1
    assert at["node 0"][1] < at["leaf 0"][1] < at["spine 0"][1]
