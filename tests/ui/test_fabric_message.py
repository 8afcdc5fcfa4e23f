"""What the browser is told of a fabric: it knows no wiring, so every link must be told."""

import base64
import json
import zlib

import numpy as np
import pytest

from tests.hardware.wired import network
from twin.hardware.fabric import build_fabric, network_as_built
from twin.hardware.imported import make_available
from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts
from twin.lab.machines import read_machine
from twin.scenario import Edit, Supernode
from twin.ui.fabric_message import (
    edits_message,
    layout,
    link_loads,
    link_values,
    machine_message,
    machine_text,
    plane_colours,
)
from twin.ui.fields import rows_in_words

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
CHANGED = (
    Edit(element="sub-plane 3", capacity_factor=0.5),
    Edit(element="node 7", capacity_factor=0.25, latency_factor=2),
    Edit(element="L1 7.3", to="L2 3.4", capacity_factor=0.1),
    Edit(element="NPU 20.1", capacity_factor=0),
    Edit(element="RDMA plane", capacity_factor=0.75),
)


def told(fabric):
    """Both ends and GB/s of every link, as the browser puts the two messages together."""
    stands, now = machine_message(network_as_built(fabric)), edits_message(fabric)
    ends = np.cumsum(stands["ends"], axis=1).T
    gb = np.array([stands["sorts"][k][2] for k in stands["sort"]])
    gb[np.cumsum(now["links"])] = now["gb"]
    names = stands["name"]
    return {frozenset((names[a], names[b])): g for (a, b), g in zip(ends, gb, strict=True)}


def test_every_link_of_an_edited_fabric_is_told():
    fabric = build_fabric(Supernode(nodes=24, supernodes=2, edits=CHANGED), FACTS)
    seen = {ends: gb for ends, gb in told(fabric).items() if gb}
    assert len(seen) > 9000
    assert seen == pytest.approx(
        {
            frozenset((a, b)): edge["capacity_bytes_per_s"] / 1e9
            for a, b, edge in fabric.graph().edges(data=True)
            if edge["capacity_bytes_per_s"] > 0.0
        },
        rel=1e-5,
    )


def test_an_edit_changes_nothing_of_what_stands_and_little_travels():
    slow = build_fabric(Supernode(edits=CHANGED), FACTS)
    assert machine_message(network_as_built(slow)) == machine_message(network_as_built(FULL))
    text = machine_text(network_as_built(FULL))
    assert len(text) < 40_000
    message = machine_message(network_as_built(FULL))
    assert json.loads(zlib.decompress(base64.b64decode(text))) == message
    assert len(json.dumps(edits_message(FULL))) < 100
    assert len(json.dumps(edits_message(slow))) < 40_000


def test_nodes_of_another_chip_are_told_apart():
    kinds = [{"chip": "h800", "nodes": 3}, {"chip": "ascend-950dt", "nodes": 2}]
    mixed = machine_message(build_fabric(Supernode(nodes=8, kinds=kinds), FACTS))
    assert mixed["chips"] == ["ascend-910c", "h800", "ascend-950dt"]
    assert mixed["chip"] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert len(mixed["dies"]) == 8 * (3 * 2 + 5)
    assert machine_message(FULL)["chips"] == ["ascend-910c"] and not any(
        machine_message(FULL)["chip"]
    )
    known = network(build_fabric(Supernode(nodes=8, supernodes=2, kinds=kinds), FACTS))
    assert known.chips("")[8 * 8 :] == known.chips("")[: 8 * 8]  # in every supernode


def test_nodes_of_cpus_alone_are_a_kind():
    kinds = [{"chip": "none", "nodes": 2, "cpus_per_node": 8}]
    mixed = machine_message(build_fabric(Supernode(nodes=4, kinds=kinds), FACTS))
    assert mixed["chips"] == ["ascend-910c", "none"]
    assert mixed["chip"] == [0, 0, 1, 1]
    assert sum(name.startswith("CPU") for name in mixed["name"]) == 2 * 4 + 2 * 8
    assert rows_in_words("supernode.kinds", kinds) == "2 nodes of CPUs alone"


def test_marks_say_what_edits_make_of_an_element_and_who_holds_one():
    found = edits_message(build_fabric(Supernode(nodes=24, edits=CHANGED), FACTS))
    assert found["edits"] == len(CHANGED)
    assert found["marks"]["sub-plane 3"] == [0.5, 1.0]
    assert found["marks"]["L1 7.3"] == [0.125, 2.0]  # of its sub-plane and its node
    assert found["marks"]["NPU 20.1"] == [0.0, 1.0]
    assert found["marks"]["NIC 7.0.1"] == [0.25, 2.0]
    assert "node 20" not in found["marks"]
    assert {"node 20", "sub-plane 0"} <= set(found["within"])
    assert "sub-plane 3" in found["within"]  # by the link


def sums(fabric):
    """Bytes/s of every cell of the matrix, as the browser adds them up."""
    known = layout(network_as_built(fabric))
    some = known.matrix_cell >= 0
    now = known.lower_direction(network(fabric).capacity)
    size = len(known.nodes) * len(known.boxes.rows)
    return np.bincount(known.matrix_cell[some], now[some], size).reshape(len(known.nodes), -1)


def test_cells_of_the_matrix_sum_what_leaves_a_node_or_enters_a_plane_that_ends_there():
    rows = [text for text, _ in machine_message(FULL)["rows"]]
    assert rows == [*(f"UB {p}" for p in range(7)), "RDMA", "VPC"]
    cells = sums(FULL)
    assert cells[7].tolist() == [448e9] * 7 + [400e9, 50e9]
    alone = sums(build_fabric(Supernode(scale_up="node"), FACTS))
    assert alone[7].tolist() == [16 * 28e9] * 7 + [400e9, 50e9]
    off = sums(build_fabric(Supernode(edits=(Edit(element="node 7", capacity_factor=0),)), FACTS))
    assert not off[7].any()
    assert (off[8] == cells[8]).all()


def test_a_network_for_two_planes_is_one_row_with_one_colour_and_the_loads_of_both():
    fabric = build_fabric(Supernode(machine="cloudmatrix-unified"), FACTS)
    told, colours = machine_message(fabric), plane_colours(fabric)
    assert told["rows"][7:] == [["RDMA and VPC", "vpc"]]
    assert told["planes"] == {"ub": "UB", "rdma": "RDMA and VPC", "vpc": "RDMA and VPC"}
    assert colours["rdma"] == colours["vpc"] == plane_colours(FULL)["vpc"]
    assert len(set(plane_colours(FULL).values())) == 3
    assert sums(fabric)[7].tolist() == [448e9] * 7 + [450e9]
    cells = np.full((48, 9), np.nan)
    cells[3, 7] = 20.0  # of RDMA
    assert set(link_values(fabric, cells)) == {None, 20.0}


@pytest.mark.parametrize("name", ["cloudmatrix384", "hgx-h100", "torus-3d"])
def test_values_of_a_runs_cells_reach_the_links_of_their_plane(name):
    sold = {path.partition(".")[2]: value for path, value in as_sold(name, FACTS).items()}
    fabric = build_fabric(Supernode(**sold), FACTS)
    s = fabric.about["supernode"]
    cells = np.zeros((s.all_nodes, s.sub_planes + 2))
    cells[3, :-2], cells[3, -2], cells[3, -1] = 10.0, 20.0, 30.0
    known, each = layout(fabric), np.array(link_values(fabric, cells), float)
    plane = {"ub": 10.0, "rdma": 20.0, "vpc": 30.0}
    first, _ = known.net.pairs
    counted = [d["plane"] for _, _, d in fabric.graph().edges(data=True)]
    for k in np.flatnonzero(each > 0.0):
        assert each[k] == plane[counted[first[k]]]
        assert 3 in known.net.node[known.ends[k]]
    assert {10.0, 20.0, 30.0} & set(each.tolist())


@pytest.mark.parametrize("cpus", [(), ("CPU 0.0,leaf 0,50,200,ub",)])
def test_a_run_colours_the_links_to_switches_that_are_of_no_sub_plane(cpus):
    dies = [f"die {n}.{i}.{d}" for n in range(2) for i in range(2) for d in range(2)]
    rows = ["from,to,GB/s,ns,plane", *(f"{die},leaf {die[4]},98,200,ub" for die in dies)]
    rows += [*(f"leaf {n},spine 0,392,200,ub" for n in range(2)), *cpus]
    imported = read_machine("\n".join(rows).encode(), "tree.csv")
    make_available(imported)
    fabric = build_fabric(Supernode(machine=imported.digest, nodes=2, npus_per_node=2), FACTS)
    cells = np.zeros((2, network(fabric).sub_planes + 2))
    cells[0, 0], cells[1, 0] = 12.0, 3.0
    assert {12.0, 3.0} <= {*link_values(fabric, cells)}


def test_a_link_is_as_full_as_its_busier_direction():
    net = layout(FULL).net
    each = np.zeros(net.tail.size)
    one, other = net.links_at("L1 20.3", "L2 3.12")
    each[one], each[other] = 0.25, 0.75
    assert sorted(set(link_loads(FULL, each))) == [0.0, 75.0]
