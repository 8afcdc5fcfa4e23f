"""Nodes of CPUs alone: DRAM of the memory pool on links of their own, and NPUs as without them."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import run, small
from tests.laws.test_paths import STORED, astray, off_the_paths
from twin.hardware.chip import HardwareError
from twin.hardware.demands import dram_ratio, equal_parts
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import make_available
from twin.hardware.machine_file import fabric_text, read_machine
from twin.hardware.placement import place
from twin.hardware.power import power
from twin.hardware.prices import pool_read
from twin.lab.library import load_facts
from twin.policies.memory_pool import server_of
from twin.scenario import SpecError

FACTS = load_facts()
REUSE = STORED | {"deployment.prefill.instances": 4, "memory_pool.gb_per_node": 0.2,
                  "memory_pool.ssd_gb_per_node": 0.0}  # fmt: skip


def alone(nodes=1, cpus=0, **more):
    """A row of nodes of CPUs alone."""
    return {"supernode.kinds": [{"chip": "none", "nodes": nodes, "cpus_per_node": cpus} | more]}


CPUS = {"supernode.nodes": 5} | alone()
# Two CPUs a node with NPUs, eight in one of CPUs alone: 16 CPUs, as four nodes of the recipe have.
APART = CPUS | alone(cpus=8) | {"supernode.cpus_per_node": 2, "memory_pool.gb_per_node": 0.1}


def test_a_node_whose_npus_nobody_uses_could_as_well_have_none():
    five, four = (run(REUSE | more) for more in ({"supernode.nodes": 5}, CPUS))
    assert four.tables["requests"].equals(five.tables["requests"])
    assert four.tables["servers"].equals(five.tables["servers"])
    assert four.summary["hit_token_ratio"] == five.summary["hit_token_ratio"] > 0.1


def test_the_same_cpus_hold_as_much_wherever_they_are():
    on_nodes, apart = (run(REUSE | more) for more in ({}, APART))  # copies take longer than links
    assert apart.summary["hit_token_ratio"] == on_nodes.summary["hit_token_ratio"] > 0.1
    assert apart.summary["ttft_s_mean"] == pytest.approx(on_nodes.summary["ttft_s_mean"], rel=1e-6)


def test_blocks_are_spread_by_dram_and_their_bytes_are_on_paths():
    s = run(REUSE | APART)
    assert off_the_paths(s.tables) == []
    assert astray(s.tables) < 1e-9
    net = build_fabric(small(REUSE | APART).supernode, FACTS)
    parts = equal_parts(net, range(5))
    assert parts.tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
    assert (dram_ratio(net, range(5)), dram_ratio(net, [4])) == (8.0, 4.0)
    up = np.ones(8, np.int8)
    on_last = np.mean([parts[server_of(block, up, 8)] == 4 for block in range(4_000)])
    assert on_last == pytest.approx(0.5, abs=0.03)
    read = s.tables["servers"].group_by("node").agg(pl.col("read_bytes").sum()).sort("node")
    part = read["read_bytes"].to_numpy() / read["read_bytes"].sum()
    assert part[4] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("cpus", [1, 4, 8])
def test_a_read_takes_what_the_narrowest_ports_give_by_hand(cpus):
    """Over UB the ports of all CPUs, which have equal parts; over VPC the DPU of either node of
    readers, through which half of what the other nodes have comes in."""
    share = {name: FACTS.si(f"fabric.efficiency.{name}") for name in ("beyond_node", "vpc")}
    port = FACTS.si("fabric.wiring.cpu_ub_bandwidth") * FACTS.si("fabric.efficiency.cpu_read")
    all_cpus, elsewhere = 16 + cpus, (12 + cpus) / (16 + cpus)
    by_hand = {
        "ub": all_cpus * port * share["beyond_node"],
        "vpc": 50e9 * share["vpc"] / (0.5 * elsewhere),
    }
    for plane, rate in by_hand.items():
        s = small(CPUS | alone(cpus=cpus) | {"memory_pool.plane": plane})
        net = build_fabric(s.supernode, FACTS)
        dies = [die for i in place(s, net).instances for die in i.die_of_rank]
        assert pool_read(net, dies, plane).bytes_per_s == pytest.approx(rate, rel=1e-6)


def test_npus_are_numbered_as_without_such_nodes():
    settings = {"supernode.nodes": 6, "supernode.supernodes": 2, "memory_pool.enabled": False}
    settings["supernode.kinds"] = [
        {"chip": "none", "nodes": 1},
        {"chip": "ascend-950dt", "nodes": 2},
    ]
    s = small(settings)
    net = build_fabric(s.supernode, FACTS)
    assert net.npus == s.supernode.npus == 2 * 5 * 8
    assert net.chips(s.supernode.chip) == (*["ascend-910c"] * 24, *["ascend-950dt"] * 16) * 2
    assert not (net.node[net.dies] % 6 == 3).any()
    assert net.cpus.tolist() == [4] * 12
    with pytest.raises(SpecError, match="needs 96 NPUs but supernode has 80 \\(10 nodes x 8\\)"):
        small(settings | {"deployment.decode.instances": 22})


def test_a_node_of_cpus_that_fails_takes_its_blocks_along():
    fault = {"faults": [{"element": "node 4", "at_s": 2.0, "kind": "fail"}]}
    hurt = run(REUSE | APART | fault)
    assert hurt.valid
    told = [e for e in hurt.tables["events"]["detail"] if "KV blocks of node 4" in e]
    assert len(told) == 1 and not told[0].startswith("0 ")
    read = hurt.tables["servers"].filter((pl.col("node") == 4) & (pl.col("t_s") > 2.5))
    assert read["read_bytes"].sum() == 0
    assert hurt.summary["hit_token_ratio"] < run(REUSE | APART).summary["hit_token_ratio"]


def test_watts_and_price_of_such_nodes_are_parts_of_every_npu():
    cost = {"cost.price_per_npu_hour": 2.0}
    bare = power(small(), FACTS)
    found = power(small(CPUS), FACTS)  # of a node of eight NPUs what stands around them
    assert found.surroundings_w - bare.surroundings_w == pytest.approx(bare.surroundings_w / 4)
    doubled = power(small(CPUS | alone(cpus=8)), FACTS)
    assert doubled.host_w - found.host_w == pytest.approx(bare.host_w / 4)
    stated = power(small(CPUS | alone(npu_w=320.0)), FACTS)
    assert stated.surroundings_w - bare.surroundings_w == pytest.approx(10.0)
    one, dear = (run(REUSE | cost | more) for more in (CPUS, CPUS | alone(price_per_npu_hour=64.0)))
    assert dear.summary["cost_per_million_tokens"] == pytest.approx(
        2.0 * one.summary["cost_per_million_tokens"]
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"supernode.scale_up": "node"}, "set memory_pool.plane = vpc"),
        ({"supernode.supernodes": 2}, "UB does not reach it from everywhere"),
        (alone(nodes=5), "needs 16 NPUs but supernode has 0"),
        ({"deployment.decode.chip": "none"}, "a pool names the chip none and no node has it"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changed, said):
    with pytest.raises(SpecError, match=said):
        small(CPUS | changed)
    small(CPUS | {"supernode.scale_up": "node", "memory_pool.plane": "vpc"})


@pytest.mark.parametrize("recipe", ["torus-3d", "gb200-nvl72"])
def test_a_machine_that_its_npus_hold_together_has_no_such_nodes(recipe):
    s = small(CPUS | {"supernode.machine": recipe, "supernode.dimensions": "8x5",
                      "supernode.l2_ports_per_chip": 96}).supernode  # fmt: skip
    with pytest.raises(HardwareError, match="joins nodes by their NPUs"):
        build_fabric(s, FACTS)


def test_a_machine_with_such_nodes_comes_back_from_its_file():
    drawn = small(APART).supernode
    read = read_machine(fabric_text(build_fabric(drawn, FACTS), "json"), "apart")
    make_available(read)
    net = build_fabric(drawn.model_copy(update={"machine": read.digest, "kinds": ()}), FACTS)
    assert net.cpus.tolist() == [2, 2, 2, 2, 8]
    assert net.dies.size == 64
