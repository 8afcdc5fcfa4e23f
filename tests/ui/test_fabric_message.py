"""What the browser is told of a fabric: it knows no wiring, so every link must be told."""

import base64
import json

import numpy as np
import pytest

from twin.hardware.fabric import build_fabric, built
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode
from twin.ui.fabric_message import capacities, changes, machine

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
CHANGED = (
    Edit(element="sub-plane 3", capacity_factor=0.5),
    Edit(element="node 7", capacity_factor=0.25, latency_factor=2),
    Edit(element="L1 7.3", to="L2 3.4", capacity_factor=0.1),
    Edit(element="NPU 20.1", capacity_factor=0),
    Edit(element="RDMA plane", capacity_factor=0.75),
)


def unpacked(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def told(fabric):
    """Both ends and GB/s of every link, as the browser puts the two messages together."""
    stands, now = machine(built(fabric)), changes(fabric)
    ends = unpacked(stands["ends"], "<u4").reshape(-1, 2)
    gb = np.array([stands["sorts"][k][1] for k in unpacked(stands["sort"], "<u2")])
    gb[unpacked(now["links"], "<u4")] = unpacked(now["gb"], "<f4")
    names = stands["names"]
    return {frozenset((names[a], names[b])): g for (a, b), g in zip(ends, gb, strict=True)}


def test_every_link_of_an_edited_fabric_is_told():
    fabric = build_fabric(Supernode(nodes=24, supernodes=2, edits=CHANGED), FACTS)
    seen = {ends: gb for ends, gb in told(fabric).items() if gb}
    assert len(seen) > 9000
    assert seen == pytest.approx(
        {
            frozenset((a, b)): edge["capacity_bytes_per_s"] / 1e9
            for a, b, edge in fabric.edges(data=True)
            if edge["capacity_bytes_per_s"] > 0.0
        },
        rel=1e-6,
    )


def test_an_edit_changes_nothing_of_what_stands_and_little_travels():
    slow = build_fabric(Supernode(edits=CHANGED), FACTS)
    assert machine(built(slow)) == machine(built(FULL))
    assert len(json.dumps(machine(built(FULL)))) < 300_000
    assert len(json.dumps(changes(FULL))) < 100
    assert len(json.dumps(changes(slow))) < 40_000


def test_marks_say_what_edits_make_of_an_element_and_who_holds_one():
    found = changes(build_fabric(Supernode(nodes=24, edits=CHANGED), FACTS))
    assert found["edits"] == len(CHANGED)
    assert found["marks"]["sub-plane 3"] == [0.5, 1.0]
    assert found["marks"]["L1 7.3"] == [0.125, 2.0]  # of its sub-plane and its node
    assert found["marks"]["NPU 20.1"] == [0.0, 1.0]
    assert found["marks"]["NIC 7.*"] == [0.25, 2.0]
    assert "node 20" not in found["marks"]
    assert {"node 20", "sub-plane 0"} <= set(found["within"])
    assert "sub-plane 3" in found["within"]  # by the link


def test_cells_name_elements_that_can_be_edited():
    stands = machine(FULL)
    rows = [row["text"] for row in stands["rows"]]
    assert rows == [*(f"UB {p}" for p in range(7)), "RDMA", "VPC"]
    names = [name for name, _ in stands["cells"]]
    assert names[9 * 20 + 3] == "L1 20.3"
    assert names[9 * 20 + 7 : 9 * 21] == ["NIC 20.*", "Qingtian 20"]


def test_cells_show_what_leaves_a_node_and_inside_it_where_nothing_does():
    cells = capacities(FULL)
    assert cells.shape == (48, 9)
    assert cells[7].tolist() == [448e9] * 7 + [400e9, 50e9]
    alone = capacities(build_fabric(Supernode(scale_up="node"), FACTS))
    assert alone[7].tolist() == [16 * 28e9] * 7 + [400e9, 50e9]
    off = capacities(
        build_fabric(Supernode(edits=(Edit(element="node 7", capacity_factor=0),)), FACTS)
    )
    assert not off[7].any()
    assert (off[8] == cells[8]).all()
