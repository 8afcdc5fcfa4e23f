"""The machine as it is: the healthy price is the price, and every change has its own."""

import numpy as np
import pytest

from tests.engine.small import MODES, small
from twin.engine.build import build_world
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.hardware.chip import HardwareError
from twin.lab.library import load_facts
from twin.model.coefficients import DecodeCosts
from twin.model.record import numbers, scale_indices
from twin.scenario import Fault


def machine(settings=None):
    setup = set_up(small(settings), load_facts(), None)
    return Machine(setup, load_facts(), build_world(setup))


def everything(found):
    """All that a price decides, as one vector."""
    c, d, t = found.world.costs, found.world.decode, found.world.transfer
    return np.concatenate([a.ravel().astype(float) for a in (
        c.prefill_now, c.decode_now, c.prefill_alone, c.decode_alone, d.slots,
        d.room, d.kv_tokens, t.granted, t.capacity, t.port_of_prefill, t.port_of_decode,
        found.world.prefill.pool_open, found.world.prefill.ssd_bytes_per_s,
        found.world.traffic.alone, found.world.traffic.parts,
    )])  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_prices_come_back_with_the_links_to_the_last_bit(mode):
    found = machine({"deployment.mode": mode})
    before = everything(found)
    for faults in ([Fault(element="sub-plane 3"), Fault(element="die 0.1.0", kind="slow")], []):
        found.put_in_force(faults)
        for k in range(len(found.members)):
            found.adopt_costs(k, found.price(k))
        found.lay_flows(1.0)
        same = np.array_equal(everything(found), before)
        assert same == (not faults)


def test_a_slow_die_slows_what_its_instance_computes_and_nothing_else():
    found = machine()
    usual = [numbers(found.price(k).coefficients) for k in range(4)]
    found.put_in_force([Fault(element="die 1.1.0", kind="slow", factor=0.5)])
    slow = [numbers(found.price(k).coefficients) for k in range(4)]
    computed = scale_indices(DecodeCosts, "computed")
    np.testing.assert_array_equal(slow[2][computed], 2.0 * usual[2][computed])
    rest = np.setdiff1d(np.arange(usual[2].size), computed)
    np.testing.assert_array_equal(slow[2][rest], usual[2][rest])
    for k in (0, 1, 3):
        np.testing.assert_array_equal(slow[k], usual[k])


def test_fewer_dies_hold_more_experts_and_less_kv_and_serve_no_slot_of_the_lost_one():
    found = machine()
    room = found.world.decode.room[0]
    found.members[2][3] = None
    costs = found.price(2)
    assert costs.dies == 7
    assert costs.kv_tokens_per_rank < found.roles[2].kv_tokens_per_rank
    found.adopt_costs(2, costs)
    assert found.world.decode.slots[3] == 0
    assert found.world.decode.room[0] == room * 7 // 8


def test_kv_goes_to_the_die_that_sits_at_a_rank_and_comes_from_one_that_serves():
    found = machine()
    spare = found.spares(0)[0]
    assert found.spares(0) == list(range(32, 64))
    found.members[2][3], found.members[0][5] = spare, None
    for k in (0, 2):
        found.adopt_costs(k, found.price(k))
    assert found.world.transfer.port_of_decode[3] == spare
    assert found.world.transfer.port_of_prefill[0, 5] in found.serving_dies(0)


def test_each_port_and_instance_has_what_edits_of_the_supernode_left():
    cut = {"element": "NIC 1.0.0", "capacity_factor": 0.25}
    links = {"element": "node 1", "capacity_factor": 0.5}
    whole, edited = machine(), machine({"supernode.edits": [cut]})
    assert edited.world.transfer.granted[16] == 0.25 * whole.world.transfer.granted[16]
    np.testing.assert_array_equal(edited.world.transfer.granted[:16],
                                  whole.world.transfer.granted[:16])  # fmt: skip
    apart = {"deployment.decode.npus_per_instance": 8, "supernode.edits": [links]}
    halved = machine(apart)
    assert halved.roles[2].exchange_bytes_per_s < 0.6 * halved.roles[3].exchange_bytes_per_s


def test_an_instance_starts_without_the_dies_that_an_edit_has_cut_off():
    gone = {"element": "die 1.5.0", "capacity_factor": 0.0}
    found = machine({"supernode.edits": [gone], "deployment.when_off": "refuse"})
    assert len(found.serving_dies(3)) == 7 and found.roles[3].dies == 7
    assert 26 not in found.spares(0)
    cut = [{"element": f"NPU 1.{n}", "capacity_factor": 0.0} for n in range(4, 8)]
    with pytest.raises(HardwareError, match="no die of decode 1 is linked"):
        machine({"supernode.edits": cut, "deployment.when_off": "refuse"})


def test_an_instance_on_a_node_that_is_off_is_whole_elsewhere_at_the_same_price():
    cut = {"element": "node 1", "capacity_factor": 0.0}
    found = machine({"supernode.edits": [cut]})
    assert all(None not in members for members in found.members)
    assert found.serving_dies(2) == tuple(range(32, 40))
    assert found.roles[2].coefficients == machine().roles[2].coefficients
    assert found.setup.notes[-2:] == [
        "decode 0 moved off node 1 to node 2", "decode 1 moved off node 1 to node 2",
    ]  # fmt: skip


def test_dies_without_a_way_for_kv_cannot_serve_while_others_have_one():
    for plane, element in (("rdma", "NIC 1.1.0"), ("vpc", "Qingtian 1")):
        found = machine({"deployment.kv_transfer_plane": plane})
        found.put_in_force([Fault(element=element)])
        assert len(found.out) == (1 if plane == "rdma" else 16)
    found.put_in_force([Fault(element="VPC network")])
    assert not found.out  # nobody's fault: all wait until it is back


@pytest.mark.parametrize("plane", ["rdma", "ub", "vpc"])
def test_a_machine_whose_first_node_is_off_serves_as_another_does(plane):
    cut = {"element": "node 0", "capacity_factor": 0.0}
    asked = {"deployment.kv_transfer_plane": plane}
    found, usual = machine(asked | {"supernode.edits": [cut]}), machine(asked)
    for k in range(4):
        assert found.roles[k].exchange_bytes_per_s == usual.roles[k].exchange_bytes_per_s
    port = found.world.transfer.port_of_prefill[0, 0]
    assert found.world.transfer.granted[port] == usual.world.transfer.granted[0] > 0.0
    assert found.world.settings.fetch_latency_s == usual.world.settings.fetch_latency_s
