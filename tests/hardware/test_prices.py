"""Prices come from the graph: the measured table, closed forms, and what an edit changes."""

import pytest

from tests.hardware.wired import edited, edits_of
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.prices import all_to_all, exchange_overlaps, nic, pool_read, price_between
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
NODE_WIDE = build_fabric(Supernode(scale_up="node"), FACTS)
ALL = range(768)

MEASURED = [
    (pair, operation, where)
    for pair in ("npu_npu", "npu_cpu")
    for operation in ("read", "write")
    for where in ("inter_node", "intra_node")
]


@pytest.mark.parametrize(("pair", "operation", "where"), MEASURED)
def test_the_measured_table_comes_out_of_the_graph(pair, operation, where):
    # arXiv 2506.12708v2 Table 1, per die; tolerance 5 %, reached: 1.5 % and 2.5 %.
    node = 20 if where == "inter_node" else 0
    other = f"die {node}.3.0" if pair == "npu_npu" else f"CPU {node}.1"
    price = price_between(FULL, 0, other, operation)
    row = f"fabric.measured.{pair}.{operation}.{where}"
    assert price.bytes_per_s == pytest.approx(FACTS.si(f"{row}.bandwidth"), rel=0.05)
    assert price.latency_s == pytest.approx(FACTS.si(f"{row}.first_512_bytes"), rel=0.05)


def test_nominal_capacities_are_the_specified_ones():
    assert price_between(FULL, 0, 500, "nominal").bytes_per_s == 196e9
    assert price_between(FULL, 0, 1, "nominal").bytes_per_s == 270e9
    assert price_between(FULL, 0, "CPU 3.1", "nominal").bytes_per_s == pytest.approx(160e9)
    assert price_between(FULL, "L1 0.0", "L1 9.0", "nominal").bytes_per_s == 448e9
    assert price_between(FULL, 0, 500, "nominal", "rdma").bytes_per_s == 25e9
    assert price_between(FULL, 0, 500, "nominal", "vpc").bytes_per_s == 50e9


def test_a_bottleneck_is_named():
    assert price_between(FULL, 0, 1).bottleneck == "die-die links of NPU 0.0"
    assert price_between(FULL, 0, "CPU 3.1").bottleneck == "CPU ports of node 3"
    assert "Qingtian" in price_between(FULL, 0, 500, plane="vpc").bottleneck


@pytest.mark.parametrize("dies", [16, 32, 320, 768])
def test_all_to_all_is_bytes_over_injection_bandwidth_plus_latency(dies):
    price = all_to_all(FULL, range(dies), operation="nominal")
    size = 64e6
    farthest = 1.925e-6 if dies > 16 else 1.175e-6
    assert price.seconds(size) == pytest.approx(size / 196e9 + farthest, rel=0.01)
    assert price.peers == dies - 1


@pytest.mark.parametrize(
    ("lost", "bytes_per_s"),
    [
        # 15 of 16 uplinks of one sub-plane carry the 752/767 of the bytes that leave a node.
        ("L2 3.0", 6 * 28e9 + 15 * 28e9 / (16 * 752 / 767)),
        ("sub-plane 3", 6 * 28e9),
        ("L1 5.2", 6 * 28e9),
    ],
)
def test_a_lost_part_costs_what_the_graph_says(lost, bytes_per_s):
    price = all_to_all(edited(FULL, edits_of([lost])), ALL, operation="nominal")
    assert price.bytes_per_s == pytest.approx(bytes_per_s, rel=0.01)


@pytest.mark.parametrize("dies", [range(32), range(192, 512), ALL], ids=len)
def test_all_to_all_is_held_by_injection_at_the_measured_efficiency_too(dies):
    share = FACTS.si("fabric.efficiency.write") * FACTS.si("fabric.efficiency.beyond_node")
    price = all_to_all(FULL, dies)
    size = 64e6
    assert price.seconds(size) == pytest.approx(size / (196e9 * share) + price.latency_s, rel=0.015)
    assert price.bottleneck.startswith("UB links")


def test_losing_one_of_a_nodes_uplinks_costs_its_node_what_the_graph_says():
    # 15 of 16 links of one L1 chip are left for the 752/767 of its dies' bytes.
    lost = edited(FULL, edits=[Edit(element="L1 20.3", to="L2 3.12", capacity_factor=0)])
    assert all_to_all(lost, ALL, operation="nominal").bytes_per_s == pytest.approx(
        6 * 28e9 + 15 * 28e9 / (16 * 752 / 767), rel=0.01
    )
    others = [d for d in ALL if d // 16 != 20]
    assert all_to_all(lost, others, operation="nominal").bytes_per_s == pytest.approx(196e9)


def test_losing_all_uplinks_of_a_node_on_a_sub_plane_costs_that_sub_plane():
    lost = edited(FULL, edits=[Edit(element="L1 20.3", to="sub-plane 3", capacity_factor=0)])
    # Nothing of what leaves node 20 can take sub-plane 3 any more; what stays in it can.
    price = all_to_all(lost, ALL, operation="nominal")
    assert price.bytes_per_s == pytest.approx(6 * 28e9 * 767 / 752, rel=0.01)
    assert all_to_all(lost, range(320, 336), operation="nominal").bytes_per_s == pytest.approx(
        196e9
    )


def test_traffic_is_sprayed_over_the_chips_and_sub_planes_that_are_left():
    half = edited(FULL, edits_of([f"L2 3.{i}" for i in range(8)]))
    assert price_between(half, "L1 0.3", "L1 9.3", "nominal").bytes_per_s == 8 * 28e9
    assert price_between(half, "L1 0.2", "L1 9.2", "nominal").bytes_per_s == 448e9
    assert price_between(half, 0, 500, "nominal").bytes_per_s == 196e9  # one link needs one chip
    thin = edited(half, edits=[Edit(element="L1 0.3", to="L2 3.15", capacity_factor=0.5)])
    assert price_between(thin, "L1 0.3", "L1 9.3", "nominal").bytes_per_s == 7.5 * 28e9
    # Two nodes that were left on different halves of a sub-plane's chips do not meet there.
    apart = [Edit(element="L1 0.3", to=f"L2 3.{i}", capacity_factor=0) for i in range(8)]
    apart += [Edit(element="L1 9.3", to=f"L2 3.{i}", capacity_factor=0) for i in range(8, 16)]
    split = edited(FULL, edits=apart)
    assert price_between(split, 0, 9 * 16, "nominal").bytes_per_s == 6 * 28e9


def test_oversubscription_halves_what_leaves_a_node():
    half = build_fabric(Supernode(l1_uplinks=8), FACTS)
    price = all_to_all(half, ALL, operation="nominal")
    assert price.bytes_per_s == pytest.approx(98e9 * 767 / 752)
    assert price.bottleneck.startswith("L1 uplinks")


def test_unevenly_dealt_uplinks_lose_nothing():
    # 32 nodes: 16 uplinks over 12 chips of a sub-plane, some pairs joined twice.
    fabric = build_fabric(Supernode(nodes=32), FACTS)
    assert all_to_all(fabric, range(512), operation="nominal").bytes_per_s == pytest.approx(196e9)


def test_beyond_a_node_wide_plane_the_nics_carry_the_rest():
    assert all_to_all(NODE_WIDE, range(16)).bottleneck.startswith("UB links")
    price = all_to_all(NODE_WIDE, range(32), operation="nominal")
    assert price.bytes_per_s == pytest.approx(25e9 * 31 / 16)
    assert price.bottleneck.startswith("NIC")
    with pytest.raises(HardwareError, match="cannot reach die 1.0.0 on the ub plane"):
        price_between(NODE_WIDE, 0, 16)


def test_the_two_dies_of_one_npu_use_the_link_between_them():
    assert all_to_all(FULL, [4, 5], operation="nominal").bytes_per_s == 270e9


def test_the_pool_fills_dies_at_their_ports_over_ub_and_at_the_dpu_over_vpc():
    ub, vpc = pool_read(FULL, range(32)), pool_read(FULL, range(32), "vpc")
    assert ub.bytes_per_s == pytest.approx(32 * 164e9, rel=0.01)
    assert ub.bottleneck.startswith("UB links")
    assert vpc.bytes_per_s == pytest.approx(2 * 40e9 * 48 / 47)
    assert vpc.bottleneck.startswith("Qingtian DPU")


def test_a_pool_on_few_nodes_is_held_by_their_cpus():
    price = pool_read(FULL, range(320), nodes=[40])
    assert price.bottleneck == "L1 uplinks of node 40" or price.bottleneck.startswith("CPU ports")
    assert price.bytes_per_s == pytest.approx(4 * 150.6e9, rel=0.03)


def test_a_die_sends_kv_through_its_own_nic_but_shares_the_dpu():
    assert nic(FULL, 7, "rdma", "nominal").bytes_per_s == pytest.approx(25e9)
    assert nic(FULL, 7, "ub", "nominal").bytes_per_s == pytest.approx(196e9)
    dpu = nic(FULL, 7, "vpc", "nominal")
    assert (dpu.bytes_per_s, dpu.shared_by_dies) == (pytest.approx(50e9), 16)


def test_what_is_cut_off_says_so():
    with pytest.raises(HardwareError, match="NIC 0.0.0"):
        price_between(edited(FULL, edits_of(["NIC 0.0.0"])), 0, "NIC 0.0.0", plane="rdma")
    with pytest.raises(HardwareError, match="die 0.0.0 has no link left on the rdma plane"):
        nic(edited(FULL, edits_of(["NIC 0.0.0"])), 0)
    with pytest.raises(HardwareError, match="cut off: no path of links from die 3.0.0"):
        all_to_all(edited(FULL, edits_of(["die 3.0.0"])), ALL)
    with pytest.raises(HardwareError, match="dies 0 to 767"):
        nic(FULL, 768)


def test_editing_one_link_changes_exactly_its_own_answers():
    slow = edited(FULL, [Edit(element="die 0.0.0", to="L1 0.0", capacity_factor=0.5)])
    assert price_between(slow, 0, 40, "nominal").bytes_per_s == 182e9
    assert price_between(slow, 2, 40, "nominal").bytes_per_s == 196e9
    assert all_to_all(slow, range(32), operation="nominal").bytes_per_s == 182e9


def test_a_longer_link_delays_what_is_sprayed_over_it():
    edit = Edit(
        element="L1 9.0", to="L2 0.3", latency_factor=1 + 1e-6 / FACTS.si("fabric.hop.l1_l2")
    )
    far = edited(FULL, edits=[edit])
    assert price_between(far, 0, 9 * 16).latency_s == pytest.approx(
        price_between(FULL, 0, 9 * 16).latency_s + 1e-6
    )


def test_exchanges_that_share_no_link_which_both_fill_do_not_overlap():
    groups = (("prefill", tuple(range(32))), ("decode", tuple(range(32, 96))))
    assert exchange_overlaps(FULL, groups) == {}


def test_exchanges_of_the_same_dies_take_one_time_longer_for_each_other_one():
    dies = tuple(range(96))
    overlaps = exchange_overlaps(FULL, (("prefill", dies), ("prefill", dies), ("decode", dies)))
    pairs = {("prefill", "prefill"): 1.0, ("prefill", "decode"): 1.0, ("decode", "prefill"): 2.0}
    assert {pair: value for pair, value in overlaps.items() if value} == pytest.approx(pairs)
