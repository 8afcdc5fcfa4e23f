"""What recipes build: counts as published, rates as the closed forms, splits as linear programs."""

from collections import Counter

import networkx as nx
import pytest

from tests.hardware.linear import least_fullest
from tests.hardware.wired import edited, network
from twin.hardware.builders import SCALE_OUT, SCALE_UP
from twin.hardware.chip import HardwareError
from twin.hardware.demands import die_vertices, exchange_load
from twin.hardware.fabric import build_fabric
from twin.hardware.flows import Demand
from twin.hardware.prices import all_to_all, nic, pool_read, summary
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode, fields

FACTS = load_facts()
LINK = 10e9  # bytes/s


def machine(recipe, **changes):
    sold = {path.split(".")[1]: value for path, value in as_sold(recipe, FACTS).items()}
    return build_fabric(Supernode(**(sold | changes)), FACTS)


def plain(recipe, **changes):
    """A recipe of NPUs with one die, one sub-plane and links of 10 GB/s."""
    return machine(
        recipe, **{"chip": "h800", "sub_planes": 1, "ub_link_gb_per_s": LINK / 1e9} | changes
    )


def kinds(fabric):
    links = Counter()
    for a, b, data in fabric.graph().edges(data=True):
        links[data["kind"]] += data["links"] * (a < b)
    return links


@pytest.mark.parametrize("name", [n for n in recipe_names(FACTS) if n != "ub-mesh"])
def test_a_recipe_as_sold_is_one_machine_that_can_be_priced(name):
    fabric = machine(name)
    made_of = fabric.about["made_of"]
    assert made_of.scale_up in SCALE_UP and made_of.scale_out in SCALE_OUT
    assert fabric.about["layout"] in ("racks", "grid", "block", "free")
    assert nx.is_strongly_connected(fabric.graph())
    assert (fabric.capacity > 0.0).all()
    prices = (all_to_all(fabric, range(16)), pool_read(fabric, range(4)), nic(fabric, 0))
    assert all(0.0 < p.bytes_per_s < 1e14 and p.bottleneck for p in prices)


def test_recipes_with_dimensions_are_those_the_field_applies_to():
    meshes = {n for n in recipe_names(FACTS) if f"machines.{n}.dimensions" in FACTS}
    assert set(fields()["supernode.dimensions"].conditions[0].values) == meshes


def test_a_ub_mesh_rack_has_448_direct_links_and_a_pod_48_pairs_of_racks():
    pod = machine("ub-mesh", nodes=128)
    assert kinds(pod)["port-port"] == 16 * 448
    graph = pod.graph()
    pairs = {frozenset((graph.nodes[a]["rack"], graph.nodes[b]["rack"]))
             for a, b, d in graph.edges(data=True) if d["kind"] == "LRS-LRS"}  # fmt: skip
    assert len(pairs) == 48
    assert kinds(pod)["LRS-LRS"] == 48 * 32  # x128 lanes, four a link
    assert graph.nodes["port 9.3"]["grid"] == (3, 1)
    assert summary(pod)["npus"] == 1024


def test_an_nvl72_has_1296_links_to_18_switches():
    fabric = machine("gb200-nvl72")
    assert kinds(fabric)["die-NVSwitch"] == 1296
    assert summary(fabric)["switches"] == 18
    assert all_to_all(fabric, range(72), operation="nominal").bytes_per_s == pytest.approx(900e9)


def test_a_rail_pod_is_non_blocking():
    fabric = machine("hgx-h100", nodes=64)
    assert {data["kind"] for data in fabric.vertex_data} >= {"leaf", "spine"}
    assert nic(fabric, 0, "rdma", "nominal").bytes_per_s == pytest.approx(50e9)
    rail = all_to_all(fabric, range(0, 64 * 8, 8), "rdma", "nominal")  # across two pods
    assert rail.bytes_per_s == pytest.approx(50e9)


def test_a_torus_is_held_by_its_longest_dimension():
    fabric = plain("torus-3d", nodes=8, npus_per_node=8, dimensions="4x4x4")
    rate = 8 * 2 * LINK * 63 / (64 * 4)  # two links to each neighbour, both ways, 4/4 hops
    assert all_to_all(fabric, range(64), operation="nominal").bytes_per_s == pytest.approx(
        rate, rel=0.01
    )


def test_a_full_mesh_of_nodes_is_held_by_the_sum_of_its_hops():
    fabric = plain("full-mesh", nodes=16, npus_per_node=8, dimensions="4x4", l1_uplinks=6)
    rate = 16 * 6 * LINK * 127 / (16 * (6 * 1 + 9 * 2) * 64)
    assert all_to_all(fabric, range(128), operation="nominal").bytes_per_s == pytest.approx(
        rate, rel=0.01
    )


def test_a_dragonfly_is_held_by_its_global_links():
    fabric = plain("dragonfly", nodes=20, npus_per_node=4, dimensions="4x5", l1_uplinks=4)
    rate = LINK * 79 / 16**2  # one link between two groups of 16 dies
    assert all_to_all(fabric, range(80), operation="nominal").bytes_per_s == pytest.approx(
        rate, rel=0.01
    )


def test_a_ub_mesh_rack_uses_direct_links_and_its_switches():
    fabric = machine("ub-mesh", nodes=8, ub_link_gb_per_s=LINK / 1e9)
    # 14 direct links and two hops over 4 switches; 14 peers are one hop away and 49 two.
    rate = LINK * (14 + 8) * 63 / (14 + 2 * 49)
    assert all_to_all(fabric, range(64), operation="nominal").bytes_per_s == pytest.approx(
        rate, rel=0.01
    )


def test_a_second_level_of_l2_switches_reaches_beyond_its_ports_without_blocking():
    fabric = machine("cloudmatrix384", nodes=96, l2_levels=2)
    assert summary(fabric)["oversubscription"] == 1.0
    ports = Counter()
    graph = fabric.graph()
    for a, _, data in graph.edges(data=True):
        if data["kind"] in ("L1-L2", "L2-L3") and graph.nodes[a]["kind"] in ("l2", "l3"):
            ports[a] += data["links"]
    assert max(ports.values()) <= 48
    every_sixth = range(0, 96 * 16, 6)
    assert all_to_all(fabric, every_sixth, operation="nominal").bytes_per_s == pytest.approx(
        196e9 * fabric.about["beyond_node"] ** 0, rel=0.03
    )


def demand_of(net, dies):
    at = tuple(die_vertices(net, dies).tolist())
    share = (1.0 / (len(at) - 1),) * len(at)
    return Demand(at, at, (1.0,) * len(at), share, ("ub",), "nominal")


SMALL = {
    "cloudmatrix384": {"nodes": 4, "npus_per_node": 2, "sub_planes": 2, "l1_uplinks": 4},
    "dragonfly": {"nodes": 6, "npus_per_node": 2, "dimensions": "2x3", "sub_planes": 1,
                  "l1_uplinks": 3},
    "full-mesh": {"nodes": 9, "npus_per_node": 2, "dimensions": "3x3", "sub_planes": 1,
                  "l1_uplinks": 4},
    "torus-3d": {"nodes": 2, "npus_per_node": 4, "dimensions": "4x2x1"},
    "ub-mesh": {"nodes": 8, "npus_per_node": 2, "dimensions": "2x8"},
    "gb200-nvl72": {"nodes": 4, "sub_planes": 3},
}  # fmt: skip


def fullest(fabric, dies):
    net = network(fabric)
    return 1.0 / exchange_load(net, dies, operation="nominal").rate_alone(net)[0]


@pytest.mark.parametrize("name", SMALL)
def test_a_price_is_near_the_free_optimum_of_its_machine(name):
    fabric = machine(name, **SMALL[name])
    net = network(fabric)
    dies = range(min(16, net.dies.size))
    best = least_fullest(net, demand_of(net, dies), free=True)
    assert best * (1 - 1e-6) <= fullest(fabric, dies) <= 1.12 * best


LOST = [
    [Edit(element="L1 0.0", to="L2 0.1", capacity_factor=0.0)],
    [Edit(element="L1 0.0", to="L2 0.1", capacity_factor=0.5)],
    [Edit(element=f"L1 0.{p}", to="L2 0.0", capacity_factor=0.0) for p in (0,)]
    + [Edit(element="L1 1.0", to="L2 0.1", capacity_factor=0.0)],
    [Edit(element="die 0.0.0", to="L1 0.0", capacity_factor=0.0)],
    [Edit(element="L1 2.1", capacity_factor=0.25)],
    [Edit(element="NPU 1.1", to="L1 1.1", capacity_factor=0.0),
     Edit(element="L2 1.3", capacity_factor=0.0)],
]  # fmt: skip


@pytest.mark.parametrize("lost", LOST, ids=lambda rows: rows[0].element)
def test_lost_uplinks_cost_what_the_linear_program_says(lost):
    fabric = edited(machine("cloudmatrix384", **SMALL["cloudmatrix384"]), edits=lost)
    net = network(fabric)
    dies = range(16)
    best = least_fullest(net, demand_of(net, dies))
    assert best * (1 - 1e-6) <= fullest(fabric, dies) <= 1.03 * best


@pytest.mark.parametrize(
    ("recipe", "changes", "sentence"),
    [
        ("torus-3d", {"dimensions": "4x4"}, "let their product be 384"),
        ("dragonfly", {"dimensions": "48"}, "routers of a group x groups"),
        ("dragonfly", {"dimensions": "2x24", "l1_uplinks": 8}, "take fewer groups"),
        ("dragonfly", {"l1_uplinks": 7}, "fewer than the 8 neighbours"),
        ("full-mesh", {"dimensions": "48"}, "fewer than the 47 neighbours"),
        ("gb200-nvl72", {"nodes": 36}, "take fewer nodes"),
        ("hgx-h100", {"sub_planes": 3}, "take sub_planes = 4"),
        ("ub-mesh", {"nodes": 12}, "whole racks"),
        ("cloudmatrix384", {"nodes": 96}, "l2_levels = 2"),
        ("cloudmatrix384", {"nodes": 1200, "l2_levels": 2}, "take at most 1152 nodes"),
        ("no-such", {"machine": "no-such"}, "take one of atlas-800-a2"),
    ],
)
def test_what_cannot_be_wired_is_told_in_one_sentence(recipe, changes, sentence):
    with pytest.raises(HardwareError, match=sentence):
        machine(recipe, **changes)
