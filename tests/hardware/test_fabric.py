"""The graph is the paper's machine, of any size, and refuses what cannot be wired."""

import math
from dataclasses import FrozenInstanceError

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.hardware.wired import MACHINES, edited, edits_of, network
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.prices import summary, uplink_matrix
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)


def test_cloudmatrix384_has_the_papers_counts():
    counts = summary(FULL)
    expected = {"npus": 384, "dies": 768, "cpus": 192, "l1_chips": 336, "l2_chips": 112}
    assert {name: counts[name] for name in expected} == expected
    assert counts["l2_ports_used"] == counts["l2_ports"] == 5376


def test_nodes_stand_in_twelve_racks_and_l2_chips_in_four():
    racks = [data["rack"] for _, data in FULL.graph().nodes(data=True) if "rack" in data]
    assert len({r for r in racks if r.startswith("rack")}) == 12
    assert {racks.count(f"communication rack {i}") for i in range(4)} == {28}
    assert network(FULL).names.find("rack 5")[0] == "die 20.0.0"
    assert FULL.about["layout"] == "racks"


@pytest.mark.parametrize(
    ("nodes", "logical_switches", "utilisation"), [(48, 56, 1.0), (32, 42, 0.89), (24, 28, 1.0)]
)
def test_l2_chips_follow_table_11(nodes, logical_switches, utilisation):
    # arXiv 2506.12708v2 Table 11; a logical switch is two chips.
    counts = summary(build_fabric(Supernode(nodes=nodes), FACTS))
    assert counts["l2_chips"] == 2 * logical_switches
    assert counts["l2_port_utilisation"] == pytest.approx(utilisation, abs=0.005)


def test_a_node_is_non_blocking_for_its_npus():
    counts = summary(FULL)
    assert counts["npu_bytes_per_s"] == 392e9
    assert counts["node_npu_bytes_per_s"] == counts["node_uplink_bytes_per_s"] == 7 * 448e9
    assert counts["oversubscription"] == 1.0
    assert counts["bisection_bytes_per_s"] == 24 * 7 * 448e9


def test_fewer_uplinks_oversubscribe():
    counts = summary(build_fabric(Supernode(l1_uplinks=8), FACTS))
    assert counts["oversubscription"] == 2.0
    assert counts["l2_chips_per_sub_plane"] == 8


def test_more_nodes_than_ports_cannot_be_reached():
    with pytest.raises(HardwareError, match="nodes 48 to 95 could not be reached"):
        build_fabric(Supernode(nodes=96), FACTS)
    assert build_fabric(Supernode(nodes=96, l2_ports_per_chip=96), FACTS) is not None


sizes = st.builds(
    Supernode,
    nodes=st.integers(1, 12),
    npus_per_node=st.integers(1, 4),
    sub_planes=st.integers(1, 4),
    l1_uplinks=st.integers(1, 20),
    l2_ports_per_chip=st.integers(12, 48),
    chip=st.sampled_from(["ascend-910c", "h800"]),
)


@given(sizes)
@draws(60)
def test_any_size_is_wired_within_its_ports(supernode):
    graph = build_fabric(supernode, FACTS).graph()
    assert nx.is_strongly_connected(graph)
    for v, data in graph.nodes(data=True):
        ports = sum(e["links"] for e in graph.adj[v].values() if e["kind"] == "L1-L2")
        if data["kind"] == "l2":
            assert ports <= supernode.l2_ports_per_chip
            assert {n for n in graph.adj[v]} == {
                f"L1 {n}.{data['sub_plane']}" for n in range(supernode.nodes)
            }
        elif data["kind"] == "l1" and supernode.nodes > 1:
            assert ports == supernode.l1_uplinks


def test_every_link_has_capacity_latency_and_plane():
    for _, _, edge in FULL.graph().edges(data=True):
        assert edge["capacity_bytes_per_s"] > 0
        assert edge["latency_s"] > 0
        assert edge["plane"] in {"ub", "rdma", "vpc"}
        assert edge["serves"]


def test_the_rdma_plane_joins_npus_only_and_the_vpc_plane_one_dpu_a_node():
    graph = FULL.graph()
    rdma = {graph.nodes[v]["kind"] for e in graph.edges(data=True) if e[2]["plane"] == "rdma"
            for v in e[:2]}  # fmt: skip
    assert rdma == {"die", "nic", "rdma"}
    vpc = [e for e in graph.edges(data=True) if e[2]["kind"] == "CPU-Qingtian"]
    assert len(vpc) == 2 * 48  # both directions
    assert {e[2]["capacity_bytes_per_s"] for e in vpc} == {50e9}


def test_scale_up_in_the_node_has_no_l2_chips():
    counts = summary(build_fabric(Supernode(scale_up="node"), FACTS))
    assert counts["l2_chips"] == counts["node_uplink_bytes_per_s"] == 0


def test_equal_supernodes_share_one_frozen_machine():
    assert build_fabric(Supernode(nodes=48), FACTS) is build_fabric(Supernode(), FACTS)
    with pytest.raises(FrozenInstanceError):
        FULL.capacity = FULL.capacity
    FULL.graph().remove_node("L2 0.0")  # a graph of one's own
    assert "L2 0.0" in FULL.graph()


@pytest.mark.parametrize(
    ("typed", "count", "first"),
    [
        ("NPU 20.1", 2, "die 20.1.0"),
        ("die 20.1.0", 1, "die 20.1.0"),
        ("npu-20-1", 2, "die 20.1.0"),
        ("l1 20.3", 1, "L1 20.3"),
        ("L2 3.12", 1, "L2 3.12"),
        ("CPU 20.2", 1, "CPU 20.2"),
        ("sub-plane 3", 64, "L1 0.3"),
        ("node 20", 44, "die 20.0.0"),
    ],
)
def test_elements_are_found_by_the_names_people_use(typed, count, first):
    found = network(FULL).names.find(typed)
    assert (len(found), found[0]) == (count, first)


@pytest.mark.parametrize("typed", ["NPU 99.1", "", "node x", "L2 3", "sub-plane 7"])
def test_an_unknown_name_is_refused_with_examples(typed):
    with pytest.raises(HardwareError, match=r"try NPU 20\.1"):
        network(FULL).names.find(typed)


def test_an_edit_makes_a_new_fabric_and_leaves_the_old():
    slower = edited(FULL, edits_of(["L1 7.0"], {"sub-plane 3": 0.5}))
    assert uplink_matrix(slower)[0].tolist() == [448e9] * 3 + [224e9] + [448e9] * 3
    assert uplink_matrix(slower)[7, 0] == 0
    assert (uplink_matrix(FULL) == 448e9).all()
    with pytest.raises(HardwareError, match="no link joins"):
        edited(FULL, [Edit(element="die 0.0.0", to="die 1.0.0")])


def test_the_fitted_constants_are_the_least_squares_of_the_rows_they_name():
    rows = [
        (
            pair == "npu_npu",
            operation == "read",
            where == "inter_node",
            f"{pair}.{operation}.{where}",
        )
        for pair in ("npu_npu", "npu_cpu")
        for operation in ("read", "write")
        for where in ("inter_node", "intra_node")
    ]
    measured = "fabric.measured."
    shares = [
        math.log(FACTS.si(f"{measured}{row}.bandwidth") / (196e9 if npu else 160e9))
        for npu, _, _, row in rows
    ]
    terms = [[r and n, r and not n, not r, far] for n, r, far, _ in rows]
    fit = np.exp(np.linalg.lstsq(np.array(terms, float), np.array(shares), rcond=None)[0])
    names = ("npu_read", "cpu_read", "write", "beyond_node")
    assert [FACTS.si(f"fabric.efficiency.{n}") for n in names] == pytest.approx(fit, abs=6e-4)
    times = [FACTS.si(f"{measured}{row}.first_512_bytes") for _, _, _, row in rows]
    terms = [[1 + n, 1 - n, 2 * far, not r] for n, r, far, _ in rows]
    fit = np.linalg.lstsq(np.array(terms, float), np.array(times), rcond=None)[0]
    names = ("die_l1", "cpu_l1", "l1_l2", "write_extra")
    assert [FACTS.si(f"fabric.hop.{n}") for n in names] == pytest.approx(fit, rel=1e-6)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_every_preset_can_be_wired(machine):
    assert summary(build_fabric(machine, FACTS))["npus"] > 0
