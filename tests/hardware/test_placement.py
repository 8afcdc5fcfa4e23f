"""Who sits where: laws that every placement keeps, and what each of them is for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.hardware.wired import network
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.faults import dies_unfit
from twin.hardware.placement import PLACEMENTS, place
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab.library import load_facts
from twin.scenario import Scenario, Supernode, with_overrides

FACTS = load_facts()
OFF = {"capacity_factor": 0.0}
SMALL = {
    "supernode.nodes": 12,
    "deployment.prefill.instances": 3,
    "deployment.prefill.npus_per_instance": 6,
    "deployment.decode.instances": 2,
    "deployment.decode.npus_per_instance": 13,
}


def placed(**settings):
    """Scenario, network and placement."""
    s = with_overrides(Scenario(), SMALL | {k.replace("__", "."): v for k, v in settings.items()})
    net = network(build_fabric(s.supernode, FACTS))
    return s, net, place(s, net)


def off(*elements):
    return [{"element": element, **OFF} for element in elements]


def nodes(net, instance):
    return net.nodes_of(instance.die_of_rank)


def test_packed_instances_take_consecutive_dies_prefill_first():
    instances = place(Scenario(), build_fabric(Scenario().supernode, FACTS)).instances
    assert [i.role for i in instances] == ["prefill"] * 6 + ["decode"]
    assert [d for i in instances for d in i.die_of_rank] == list(range(256 * 2))
    assert (instances[-1].name, instances[-1].dies) == ("decode 0", 320)


def test_colocated_instances_start_at_the_first_die():
    s = with_overrides(Scenario(), {"deployment.mode": "colocated"})
    (one,) = place(s, build_fabric(s.supernode, FACTS)).instances
    assert (one.role, one.die_of_rank) == ("colocated", tuple(range(320)))


ELEMENTS = st.lists(
    st.sampled_from(["node 0", "node 3", "NPU 1.5", "die 4.2.1", "NIC 2.0.0", "L1 5.1", "node 11"]),
    max_size=4, unique=True,
)  # fmt: skip


@draws(20)
@given(st.sampled_from(sorted(PLACEMENTS)), ELEMENTS, st.integers(0, 2))
def test_every_placement_seats_all_on_dies_that_can_serve(policy, gone, first):
    rows = [{"role": "decode", "index": 0, "element": f"node {first}"}]
    s, net, found = placed(
        deployment__placement=policy, supernode__edits=off(*gone), deployment__seats=rows
    )
    used = [d for i in found.instances for d in i.die_of_rank]
    assert len(used) == len(set(used)) == 2 * (3 * 6 + 2 * 13)
    assert not set(used) & dies_unfit(net, s.deployment)
    for i in found.instances:  # whole NPUs
        pairs = np.array(i.die_of_rank).reshape(-1, 2)
        assert (pairs[:, 0] % 2 == 0).all() and (np.diff(pairs) == 1).all()
    assert bool(found.moved) <= (policy in ("packed", "by_hand") and bool(gone))


def test_spread_touches_as_many_nodes_as_it_can():
    _, net, found = placed(deployment__placement="spread")
    for i in found.instances:
        assert len(nodes(net, i)) == min(i.dies // 2, 12)
        assert list(i.die_of_rank) == sorted(i.die_of_rank)  # ranks of one node side by side
    used = [d for i in found.instances for d in i.die_of_rank]
    held = np.bincount(net.node[net.dies[used]])
    assert held.max() - held.min() <= 2  # an NPU


def test_rack_by_rack_keeps_an_instance_in_one_rack_where_it_fits():
    _, net, found = placed(deployment__placement="racks")
    racks = [
        {net.vertex_data[v]["rack"] for v in net.dies[list(i.die_of_rank)].tolist()}
        for i in found.instances
    ]
    assert [len(r) for r in racks] == [1] * 5
    _, net, found = placed(deployment__placement="racks", deployment__decode__npus_per_instance=33)
    assert len(nodes(net, found.instances[-1])) >= 5  # more than a rack of four nodes has


def test_around_what_is_off_packs_what_is_on():
    _, _, found = placed(deployment__placement="around_off", supernode__edits=off("node 0"))
    assert found.instances[0].die_of_rank == tuple(range(16, 28))
    assert not found.moved


def test_an_instance_moves_off_a_node_that_is_off_and_says_so():
    _, net, found = placed(supernode__edits=off("node 3"))
    _, _, before = placed()
    assert found.moved == (
        "decode 0 moved off node 3 to node 6",
        "decode 1 moved off node 3 to node 5",
    )
    for now, then in zip(found.instances, before.instances, strict=True):
        kept = [a for a, b in zip(now.die_of_rank, then.die_of_rank, strict=True) if a == b]
        assert len(kept) == sum(net.node[net.dies[d]] != 3 for d in then.die_of_rank)


def test_one_dead_die_moves_its_npu_alone():
    _, _, found = placed(supernode__edits=off("die 0.2.1"))
    assert found.moved == ("prefill 0 moved off NPU 0.2 to node 5",)
    assert found.instances[0].die_of_rank[4:6] == (88, 89)


def test_where_staying_is_wished_nobody_moves():
    _, _, found = placed(supernode__edits=off("node 0"), deployment__when_off="refuse")
    assert found.instances == placed()[2].instances and not found.moved


@pytest.mark.parametrize("policy", sorted(PLACEMENTS))
def test_more_than_is_on_is_refused_in_one_sentence(policy):
    gone = off(*(f"node {n}" for n in range(7)))
    with pytest.raises(HardwareError, match="needs 44 NPUs but only 40 of 96 are on"):
        placed(deployment__placement=policy, supernode__edits=gone)


def test_rows_seat_by_hand_and_the_others_go_round_them():
    rows = [
        {"role": "decode", "index": 1, "element": "NPU 0.4"},
        {"role": "decode", "index": 1, "element": "node 9"},
        {"role": "prefill", "index": 0, "element": "node 2"},
    ]
    _, _, found = placed(deployment__placement="by_hand", deployment__seats=rows)
    by_name = {i.name: i.die_of_rank for i in found.instances}
    assert by_name["prefill 0"] == tuple(range(32, 44))
    assert by_name["decode 1"] == (8, 9, *range(144, 168))
    assert by_name["prefill 1"] == (*range(8), *range(10, 14))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("decode", 2, "node 1")], "no such instance"),
        ([("decode", 0, "node 99")], "no element is named"),
        ([("decode", 0, "L2 3.1")], "has no NPU"),
        ([("decode", 0, "node 1"), ("prefill", 0, "NPU 1.3")], "gives NPU 1.3 to decode 0"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows, why):
    seats = [{"role": r, "index": i, "element": e} for r, i, e in rows]
    with pytest.raises(HardwareError, match=why):
        placed(deployment__placement="by_hand", deployment__seats=seats)


def test_a_machine_without_racks_is_told_so():
    s, _, _ = placed(deployment__placement="racks")
    graph = build_fabric(s.supernode, FACTS).graph()
    for vertex in graph:
        graph.nodes[vertex].pop("rack", None)
    with pytest.raises(HardwareError, match="not every node of this machine is in a rack"):
        place(s, network(graph))


@pytest.mark.parametrize("policy", ["spread", "racks", "packed", "around_off"])
def test_which_of_two_like_nodes_is_off_makes_no_difference_in_shape(policy):
    """Nodes that nothing tells apart: instances get rows of the same lengths either way."""

    def shape(gone):
        _, net, found = placed(deployment__placement=policy, supernode__edits=off(gone))
        return [
            sorted(np.unique(net.node[net.dies[list(i.die_of_rank)]], return_counts=True)[1])
            for i in found.instances
        ]

    assert shape("node 10") == shape("node 11")


@pytest.mark.parametrize("machine", recipe_names(FACTS))
def test_every_placement_fits_machines_that_are_wired_otherwise(machine):
    sold = as_sold(machine, FACTS) | {"supernode.machine": machine}
    if machine == "ub-mesh":  # of 8,192 NPUs
        sold["supernode.nodes"] = 8
    supernode = Supernode(**{path.split(".")[1]: value for path, value in sold.items()})
    net = network(build_fabric(supernode, FACTS))
    npus = net.npus // 4  # of each of three instances
    asked = {f"deployment.{role}.npus_per_instance": npus for role in ("prefill", "decode")}
    asked |= {"deployment.prefill.instances": 2, "deployment.decode.instances": 1}
    for policy in PLACEMENTS:
        s = with_overrides(Scenario(), sold | asked | {"deployment.placement": policy})
        used = [die for i in place(s, net).instances for die in i.die_of_rank]
        assert len(used) == len(set(used)) == 3 * npus * (net.dies.size // net.npus)
        assert max(used) < net.dies.size
