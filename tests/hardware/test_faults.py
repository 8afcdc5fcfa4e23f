"""Faults leave the graph they should, and name the dies and servers that are gone."""

import numpy as np
import pytest

from tests.hardware.wired import changed_bytes_per_s, network
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.faults import (
    dies_without_path,
    nodes_without_dram,
    speed_by_die,
    unusable_dies,
    with_faults,
)
from twin.hardware.prices import all_to_all
from twin.lab.library import load_facts
from twin.scenario import Fault, Supernode

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)


@pytest.mark.parametrize(
    ("element", "dies", "servers"),
    [
        ("die 20.1.0", {322}, set()),
        ("NPU 20.1", {322, 323}, set()),
        ("node 20", set(range(320, 336)), {20}),
        ("CPU 20.1", set(), set()),
        ("L1 20.3", set(), set()),
        ("L2 3.12", set(), set()),
        ("sub-plane 3", set(), set()),
        ("UB plane", set(range(768)), set(range(48))),
        ("RDMA plane", set(), set()),
    ],
)
def test_a_failure_takes_out_what_it_names(element, dies, servers):
    left = with_faults(FULL, [Fault(element=element)])
    assert unusable_dies(left) == dies
    assert nodes_without_dram(left) == servers
    assert not left.capacity[left.links_at(element)].any()


def test_a_node_without_any_uplink_cannot_serve():
    left = with_faults(FULL, [Fault(element=f"L1 7.{p}") for p in range(7)])
    assert unusable_dies(left) == set(range(112, 128))


def test_a_server_is_lost_with_the_last_of_its_cpus():
    faults = [Fault(element=f"CPU 3.{i}") for i in range(4)]
    assert nodes_without_dram(with_faults(FULL, faults[:3])) == set()
    assert nodes_without_dram(with_faults(FULL, faults)) == {3}


def test_what_a_plane_lost_is_known_by_die():
    left = with_faults(FULL, [Fault(element="NIC 2.0.1"), Fault(element="CPU 4.0")])
    assert dies_without_path(left, "rdma") == {33}
    assert dies_without_path(left, "vpc") == set(range(64, 80))
    assert dies_without_path(left, "ub") == set()
    assert len(dies_without_path(with_faults(FULL, [Fault(element="RDMA network")]), "rdma")) == 768


def test_a_derated_link_keeps_its_share_and_a_slow_die_all_its_links():
    faults = [
        Fault(element="L1 20.3", to="L2 3.12", kind="derate", factor=0.5),
        Fault(element="NPU 1.0", kind="slow", factor=0.5),
        Fault(element="die 1.0.1", kind="slow", factor=0.5),
    ]
    left = with_faults(FULL, faults)
    assert changed_bytes_per_s(left) == {("L1 20.3", "L2 3.12"): 14e9}
    assert speed_by_die(left, faults) == {16: 0.5, 17: 0.25}
    assert with_faults(FULL, faults[1:]) is network(FULL)


def test_a_repaired_fabric_is_the_one_before():
    one = Fault(element="L2 3.12")
    other = Fault(element="node 5", kind="derate", factor=0.3)
    both = with_faults(FULL, [one, other])
    again = with_faults(FULL, [other])
    assert changed_bytes_per_s(both) != changed_bytes_per_s(again)
    assert changed_bytes_per_s(with_faults(FULL, [])) == {}
    assert all_to_all(FULL, range(768)).bytes_per_s > all_to_all(both, range(768)).bytes_per_s


@pytest.mark.parametrize("kind", ["fail", "derate", "slow"])
def test_a_fault_of_nothing_is_refused(kind):
    with pytest.raises(HardwareError, match="no element is named 'NPU 99.1'"):
        with_faults(FULL, [Fault(element="NPU 99.1", kind=kind)])


def test_only_dies_can_be_slow():
    with pytest.raises(HardwareError, match="L2 3.12 has no dies"):
        with_faults(FULL, [Fault(element="L2 3.12", kind="slow")])


def test_a_link_cannot_be_slow():
    with pytest.raises(HardwareError, match="does not compute, so it cannot be slow"):
        with_faults(FULL, [Fault(element="die 0.0.0", to="L1 0.3", kind="slow")])


def test_an_optical_module_takes_exactly_its_share_of_the_links():
    whole = network(FULL)
    for lost in (1, 4, 16):
        fault = Fault(element="L1 20.3", to="sub-plane 3", kind="module", links=lost)
        left = with_faults(FULL, [fault])
        up = whole.links_at("L1 20.3", "sub-plane 3")
        assert whole.bundle[up].sum() == 2 * 16  # both ways
        for ends in (whole.tail, whole.head):  # and alike each way
            own = up[ends[up] == whole.number["L1 20.3"]]
            assert left.capacity[own].sum() == pytest.approx(
                whole.capacity[own].sum() * (1 - lost / 16), rel=1e-12
            )
        rest = np.setdiff1d(np.arange(whole.capacity.size), up)
        assert (left.capacity[rest] == whole.capacity[rest]).all()


def test_a_module_of_a_bundle_leaves_the_rest_of_the_bundle():
    bundled = network(build_fabric(Supernode(nodes=12), FACTS))
    up = bundled.links_at("L1 2.3", "L2 3.0")
    size = int(bundled.bundle[up[0]])
    assert size > 2
    left = with_faults(bundled, [Fault(element="L1 2.3", to="L2 3.0", kind="module", links=2)])
    share = (size - 2) / size
    assert (left.capacity[up] == bundled.capacity[up] * share).all()
    with pytest.raises(HardwareError, match=f"has {size} links there, and {size + 1} cannot"):
        with_faults(bundled, [Fault(element="L1 2.3", to="L2 3.0", kind="module", links=size + 1)])


def test_a_module_needs_both_its_ends():
    with pytest.raises(HardwareError, match="name the other one with `to`"):
        with_faults(FULL, [Fault(element="L1 20.3", kind="module")])


def test_a_rack_takes_its_nodes_with_it():
    left = with_faults(FULL, [Fault(element="rack 1")])
    assert unusable_dies(left) == set(range(64, 128)) and nodes_without_dram(left) == {4, 5, 6, 7}
