"""What traffic takes from the ports is what routes charges for it, on whatever is left."""

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric, edited
from twin.hardware.names import element_names
from twin.hardware.ports import port_table, shares
from twin.hardware.routes import all_to_all, nic, pool_read
from twin.hardware.sharing import max_min_rates
from twin.hardware.tables import tables
from twin.hardware.traffic import (
    exchange_takes,
    hand_off_takes,
    pool_takes,
    storage_takes,
    store_takes,
    weights_takes,
)
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
SMALL = [
    build_fabric(s, FACTS)
    for s in (
        Supernode(nodes=4),
        Supernode(nodes=5, l1_uplinks=6, sub_planes=3),
        Supernode(nodes=3, supernodes=2),
        Supernode(nodes=3, scale_up="node"),
        Supernode(nodes=2, chip="h800"),
    )
]
INSTANCES = [range(32 * i, 32 * i + 32) for i in range(6)] + [range(192, 512)]


def alone(ports, takes):
    """The solver's rate of one flow with nobody else on the way."""
    n = takes.ports.size
    ends = np.array([0, n])
    one, free = np.ones(1), np.array([np.inf])
    return max_min_rates(ends, takes.ports, takes.amounts, one, free, ports.capacity)[0]


def priced(ask, *args):
    try:
        return ask(*args).bytes_per_s
    except HardwareError as error:
        assert "cut off" in str(error) or "one node whose CPUs" in str(error)
        return 0.0


def solved(ask, fabric, dies, plane):
    ports = port_table(fabric)
    try:
        return alone(ports, ask(fabric, ports, dies, plane))
    except HardwareError as error:
        assert "one node whose CPUs" in str(error)
        return 0.0


def random_edits(fabric, seed, count):
    rng = random.Random(seed)
    names, links = element_names(fabric), tables(fabric).wiring.edges
    for _ in range(count):
        factors = {
            "capacity_factor": rng.choice([0.0, 0.0, 0.5, 2.0, rng.random()]),
            "latency_factor": rng.choice([1.0, 3.0]),
        }
        if rng.random() < 0.5:
            yield Edit(element=rng.choice(names), **factors)
        else:
            a, b = rng.choice(links)
            yield Edit(element=a, to=b, **factors)


fabrics = st.builds(
    lambda base, seed, count: edited(base, edits=random_edits(base, seed, count)),
    st.sampled_from(SMALL),
    st.integers(0, 10**6),
    st.integers(0, 6),
)


@given(fabrics, st.integers(0, 10**6), st.sampled_from(["ub", "rdma", "vpc"]))
@draws(150)
def test_one_flow_alone_gets_what_routes_says(fabric, seed, plane):
    every = range(len(fabric.graph["dies"]))
    dies = random.Random(seed).sample(every, 2 + seed % (len(every) - 1))
    for price, takes in ((all_to_all, exchange_takes), (pool_read, pool_takes)):
        expected = priced(price, fabric, dies, plane)
        assert solved(takes, fabric, dies, plane) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dies", INSTANCES[-2:], ids=["prefill", "decode"])
@pytest.mark.parametrize("plane", ["ub", "rdma", "vpc"])
def test_the_law_holds_on_the_whole_supernode(dies, plane):
    ports = port_table(FULL)
    for op in ("read", "write", "nominal"):
        price = all_to_all(FULL, dies, plane, op).bytes_per_s
        assert alone(ports, exchange_takes(FULL, ports, dies, plane, op)) == pytest.approx(price)
    price = pool_read(FULL, dies, plane).bytes_per_s
    assert alone(ports, pool_takes(FULL, ports, dies, plane)) == pytest.approx(price)


@given(fabrics, st.integers(0, 10**6), st.sampled_from(["ub", "rdma", "vpc"]))
@draws(60)
def test_no_link_carries_more_than_it_has_and_shares_sum_to_one(fabric, seed, plane):
    every = range(len(fabric.graph["dies"]))
    dies = random.Random(seed).sample(every, 2 + seed % (len(every) - 1))
    ports = port_table(fabric)
    half = len(dies) // 2
    flows = [
        exchange_takes(fabric, ports, dies, plane),
        weights_takes(fabric, ports, dies, plane),
        hand_off_takes(fabric, ports, dies[:half], dies[half:], plane),
        storage_takes(fabric, ports, dies),
    ]
    if priced(pool_read, fabric, dies, plane):
        flows += [f(fabric, ports, dies, plane) for f in (pool_takes, store_takes)]
    for takes in flows:
        carried = takes.bytes * alone(ports, takes)
        assert (carried <= ports.nominal[takes.ports] * (1 + 1e-9)).all()
        for way in ("out", "in"):
            parts = [s.share for s in shares(ports, takes) if s.direction == way]
            assert not parts or sum(parts) == pytest.approx(1.0)


@pytest.mark.parametrize("plane", ["ub", "rdma", "vpc"])
def test_a_hand_off_between_two_dies_is_the_price_of_a_port(plane):
    takes = hand_off_takes(FULL, port_table(FULL), [0], [500], plane)
    assert alone(port_table(FULL), takes) == pytest.approx(nic(FULL, 0, plane).bytes_per_s)


def test_two_classes_on_one_plane_share_it_and_on_two_do_not():
    ports = port_table(FULL)
    exchange = exchange_takes(FULL, ports, INSTANCES[-1])

    def rates(hand_off):
        rows = (exchange, hand_off)
        return max_min_rates(
            np.cumsum([0, *(r.ports.size for r in rows)]),
            np.concatenate([r.ports for r in rows]),
            np.concatenate([r.amounts for r in rows]),
            np.array([1.0, 1.0 / len(INSTANCES[-1])]),
            np.array([np.inf, np.inf]),
            ports.capacity,
        )

    apart = rates(hand_off_takes(FULL, ports, INSTANCES[0], INSTANCES[-1], "rdma"))
    together = rates(hand_off_takes(FULL, ports, INSTANCES[0], INSTANCES[-1], "ub"))
    assert apart[0] == pytest.approx(all_to_all(FULL, INSTANCES[-1]).bytes_per_s)
    assert together[0] < 0.95 * apart[0]


def test_capacities_are_nominal_times_efficiency_and_have_names():
    ports = port_table(FULL)
    die, up, dpu = (ports.slots[g].start for g in ("die_out", "up_in", "dpu_out"))
    assert ports.capacity[die] == pytest.approx(7 * 28e9 * FACTS.si("fabric.efficiency.npu_read"))
    assert ports.nominal[up] == 448e9
    assert ports.name(die + 17) == "UB links of die 1.0.1, out"
    assert ports.name(up + 7 * 5 + 3) == "L1 uplinks of node 5, sub-plane 3, in"
    assert ports.name(dpu + 4) == "Qingtian DPU of node 4, out"
    assert len(set(ports.names)) == ports.capacity.size
    assert ports.capacity[ports.cut] == 0.0


def test_port_numbers_outlive_an_edit():
    broken = edited(FULL, remove=["node 3", "sub-plane 2"])
    assert port_table(broken).names == port_table(FULL).names


def test_what_leaves_a_supernode_takes_the_nics():
    two = SMALL[2]
    ports = port_table(two)
    there = exchange_takes(two, ports, [0, 48 + 1])
    groups = {ports.place(int(p))[0] for p in there.ports}
    assert groups == {"nic_out", "nic_in"}
    assert {s.plane for s in shares(ports, there)} == {"rdma"}


def test_tables_and_takes_are_quick():
    best = np.inf
    for attempt in range(3):  # processor time, the least of three: others share it
        broken = edited(FULL, scale={f"L2 3.{attempt}": 0.5})
        start = time.process_time()
        ports = port_table(broken)
        for dies in INSTANCES:
            for ask in (exchange_takes, pool_takes, store_takes, weights_takes):
                ask(broken, ports, dies)
            hand_off_takes(broken, ports, INSTANCES[0], INSTANCES[-1])
            storage_takes(broken, ports, dies)
        best = min(best, time.process_time() - start)
    assert best < 0.1
