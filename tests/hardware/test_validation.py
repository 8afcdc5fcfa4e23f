"""What cannot work in a machine is said in sentences."""

import pytest

from tests.hardware.wired import MACHINES
from twin.hardware.validation import problems
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()


def of(*edits, **fields):
    return problems(Supernode(edits=tuple(Edit(**e) for e in edits), **fields), FACTS)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_preset_has_none(machine):
    assert problems(machine, FACTS) == []


def test_too_few_ports_are_told_by_the_rule_of_the_paper():
    assert "more than an L2 switch chip has ports (48" in of(nodes=96)[0]
    assert of(nodes=48) == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"element": "NPU 99.1"}, "Edit 1 changes nothing: no element is named 'NPU 99.1'"),
        ({"element": "die 0.0.0", "to": "die 1.0.0"}, "Edit 1 changes nothing: no link joins"),
        (
            {"element": "die 3.0.0", "to": "UB plane", "capacity_factor": 0},
            "NPU 3.0 has a die without a UB link",
        ),
        ({"element": "NIC 3.0.0", "capacity_factor": 0}, "NPU 3.0 has a die off the RDMA plane"),
        ({"element": "RDMA network", "capacity_factor": 0}, "and 380 more: each has a die off"),
        ({"element": "Qingtian 4", "capacity_factor": 0}, "Node 4 is off the VPC plane"),
    ],
)
def test_what_cannot_work_is_named(edit, said):
    found = of(edit)
    assert len(found) == 1
    assert said in found[0]


def test_a_node_without_uplinks_cannot_reach_the_rest():
    cut = [{"element": f"L1 4.{p}", "to": f"sub-plane {p}", "capacity_factor": 0} for p in range(7)]
    assert of(*cut) == [
        "Node 4 cannot reach the rest of its UB plane: restore uplinks to L2 chips."
    ]
    assert of(*cut[:6]) == []


def test_every_fault_has_a_sentence_of_its_own():
    found = of(
        {"element": "node 9", "capacity_factor": 0},
        {"element": "nothing"},
        {"element": "L2 3.12", "capacity_factor": 0},
    )
    assert [f.split()[0] for f in found] == ["Edit", "NPU", "NPU", "Node", "Node"] or len(
        found
    ) == 5
    assert all(f.endswith(".") for f in found)
