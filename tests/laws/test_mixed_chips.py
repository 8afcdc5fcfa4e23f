"""A machine with nodes of several kinds: each pool is priced by its own chip, and kinds that are
equal are no kinds."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.small import small
from twin.engine.build import build_world
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import make_available
from twin.hardware.machine_file import fabric_text, read_machine
from twin.hardware.placement import further_instances, place
from twin.hardware.prices import hand_off_bytes_per_s, nic
from twin.lab.library import load_facts
from twin.outlook import outlook
from twin.scenario import SpecError, with_overrides
from twin.steady import Priced, assemble

FACTS = load_facts()
CHIP = "chips.ascend-910c."
COPIED = {n.replace(CHIP, "chips.ascend-copy."): FACTS[n] for n in FACTS if n.startswith(CHIP)}
DECODE = "deployment.decode.chip"
MIXED = {"supernode.kinds": [{"chip": "ascend-950dt", "nodes": 3}], DECODE: "ascend-950dt"}
EQUAL = {"supernode.kinds": [{"chip": "ascend-copy", "nodes": 3}], DECODE: "ascend-copy"}
WHOLE = {"supernode.chip": "ascend-950dt"}


@pytest.fixture(scope="module")
def with_copy():
    """The facts with the 910C once more, under another name."""
    return FACTS.replaced(COPIED)


def machine(settings):
    """The machine of a run at its start."""
    setup = set_up(small(settings), FACTS, None)
    return Machine(setup, FACTS, build_world(setup))


def test_equal_kinds_are_one_kind_to_the_byte(with_copy):
    s = small({"cost.price_per_npu_hour": 2.0})
    one, two = simulate(s, FACTS), simulate(with_overrides(s, EQUAL), with_copy)
    assert two.digest == one.digest
    assert two.summary == one.summary
    assert outlook(Priced(with_overrides(s, EQUAL), with_copy)) == outlook(Priced(s, FACTS))


def test_each_pool_has_the_memory_and_the_costs_of_its_own_chip():
    mixed = assemble(small(MIXED), FACTS).costs.roles
    first, second = (assemble(small(of), FACTS).costs.roles for of in ({}, WHOLE))
    for role, alone in (("prefill", first), ("decode", second)):
        assert mixed[role].chip == alone[role].chip
        assert mixed[role].memory == alone[role].memory
        assert mixed[role].kv_tokens_per_rank == alone[role].kv_tokens_per_rank
    assert mixed["prefill"].coefficients == first["prefill"].coefficients
    assert mixed["decode"].kv_tokens_per_rank > 2 * first["decode"].kv_tokens_per_rank
    assert mixed["prefill"].dies == 2 * mixed["decode"].dies  # of as many NPUs


def test_watts_and_prices_add_up_by_kind(with_copy):
    s = small({"cost.price_per_npu_hour": 2.0, "horizon_s": 2.0, "warmup_s": 0.5})
    one = simulate(s, FACTS)
    rated_w = FACTS.si("chips.ascend-910c.tdp")

    def run(**more):
        kind = EQUAL["supernode.kinds"][0] | more
        return simulate(with_overrides(s, EQUAL | {"supernode.kinds": [kind]}), with_copy)

    apart = run(npu_w=rated_w * (1.0 + 1e-9))  # two kinds, each with a sum of its own
    windows = [r.tables["windows"]["power_w"].to_numpy() for r in (one, apart)]
    assert apart.summary["power_kw"] == pytest.approx(one.summary["power_kw"], rel=1e-6)
    np.testing.assert_allclose(*windows, rtol=1e-6)
    more, most = (run(npu_w=n * rated_w).summary["power_kw"] for n in (2.0, 3.0))
    assert most - more == pytest.approx(more - one.summary["power_kw"], rel=1e-6)
    dear = run(price_per_npu_hour=6.0).summary["cost_per_million_tokens"]
    assert dear == pytest.approx(2.0 * one.summary["cost_per_million_tokens"])  # half of the NPUs


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({DECODE: "h20"}, "no node has it: take one of ascend-910c, ascend-950dt, or add"),
        ({"deployment.decode.instances": 7, "deployment.prefill.instances": 1},
         "28 NPUs of ascend-950dt and the machine has 24"),
        ({"deployment.prefill.instances": 3}, "12 NPUs of ascend-910c and the machine has 8"),
        ({"supernode.nodes": 2}, "has 3 nodes and the supernode 2: raise supernode.nodes"),
        ({"supernode.chip": "ascend-950dt"}, "a chip twice, or that of supernode.chip"),
        ({"deployment.prefill.on": "decode_npus", "deployment.prefill.chip": "ascend-910c"},
         "needs deployment.prefill.chip = as_machine"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_kinds_is_refused_in_a_sentence(changed, said):
    with pytest.raises(SpecError, match=said):
        small(MIXED | changed)


def test_instances_that_come_and_spares_are_of_their_pools_chip():
    elastic = {"elastic.controller": "queue", "elastic.npus": 32}
    s = small(MIXED | elastic)
    net = build_fabric(s.supernode, FACTS)
    chips = net.chips(s.supernode.chip)
    own = {"prefill": "ascend-910c", "decode": "ascend-950dt"}
    found = [*place(s, net).instances, *further_instances(s, net)]
    assert sum(i.role == "decode" for i in found) == 6  # 24 NPUs
    for i in found:
        assert {chips[npu] for npu in net.npu[list(i.die_of_rank)]} == {own[i.role]}
    alone = machine(MIXED | {"deployment.prefill.instances": 1})
    assert alone.spares(0) == list(range(8, 16))  # of the node with dies of the 910C
    seat = [{"role": "decode", "index": 0, "element": "node 0"}]
    by_hand = {"deployment.placement": "by_hand", "deployment.seats": seat}
    with pytest.raises(HardwareError, match="node 0 has no NPU of ascend-950dt"):
        place(small(MIXED | by_hand), net)


@pytest.mark.parametrize("plane", ["rdma", "vpc"])
def test_kv_goes_at_the_rate_of_the_slower_port(plane):
    slow = MIXED["supernode.kinds"][0] | {"rdma_gb_per_s_per_npu": 5.0}
    settings = {"deployment.kv_transfer_plane": plane}
    rates = {}
    for name, kind in (("as machine", MIXED["supernode.kinds"][0]), ("slow", slow)):
        found = machine(MIXED | settings | {"supernode.kinds": [kind]})
        net, transfer = found.fabric, found.world.transfer
        ends = [(i.role, i.die_of_rank) for i in found.setup.instances]
        price = nic(net, 0, plane)
        by_formula = hand_off_bytes_per_s(net, price, ends, plane)
        ports = transfer.port_of_prefill[0, 0], transfer.port_of_decode[0, 0]
        lesser = min(transfer.granted[port] for port in ports)
        assert by_formula == pytest.approx(lesser / price.shared_by_dies)
        assert np.unique(transfer.port_of_decode).size == (8 if plane == "rdma" else 1)
        rates[name] = by_formula
    # A die of the 950DT has its NPU's NIC for itself, one of the 910C half.
    assert rates["slow"] == pytest.approx(rates["as machine"] * (0.2 if plane == "rdma" else 1.0))


def test_kv_of_another_family_is_laid_out_anew_after_it_has_arrived():
    h800 = MIXED | {"supernode.kinds": [{"chip": "h800", "nodes": 3}], DECODE: "h800"}
    same, other = (assemble(small(s), FACTS).costs for s in (MIXED, h800))
    assert same.handed_bytes_per_s(25e9) == 25e9
    each = 1.0 / 25e9 + 1.0 / other.laid_out_bytes_per_s  # seconds of a byte
    assert other.handed_bytes_per_s(25e9) == pytest.approx(1.0 / each)
    assert other.handed_bytes_per_s(np.zeros(2)).tolist() == [0.0, 0.0]


def test_prefill_has_weights_in_a_format_of_its_own():
    ours = {"deployment.precision.prefill_weights": "bf16"}
    mixed = assemble(small(ours), FACTS).costs
    int8, bf16 = (
        assemble(small({"deployment.precision.weights": fmt}), FACTS).costs
        for fmt in ("int8", "bf16")
    )
    assert mixed.roles["decode"].coefficients == int8.roles["decode"].coefficients
    assert mixed.roles["prefill"].coefficients == bf16.roles["prefill"].coefficients
    assert mixed.roles["prefill"].memory == bf16.roles["prefill"].memory
    fp8 = {"deployment.precision.weights": "fp8"}
    with pytest.raises(HardwareError, match="Ascend 910C computes .* not fp8"):
        assemble(small(MIXED | fp8), FACTS)
    both = assemble(small(MIXED | fp8 | {"deployment.precision.prefill_weights": "int8"}), FACTS)
    assert both.costs.roles["decode"].pool.precision.weights == "fp8"


@pytest.mark.parametrize(
    ("recipe", "dimensions"),
    [("cloudmatrix384", ""), ("torus-3d", "8x4"), ("cloudmatrix-unified", "")],
)
def test_dies_have_the_links_of_their_kind(recipe, dimensions):
    kind = {"chip": "ascend-950dt", "nodes": 3, "rdma_gb_per_s_per_npu": 100.0}
    wiring = {"supernode.machine": recipe, "supernode.dimensions": dimensions}
    s = small(MIXED | wiring | {"supernode.kinds": [kind]}).supernode
    fabric = build_fabric(s, FACTS)
    chips = [fabric.vertex_data[die].get("chip", s.chip) for die in fabric.dies]
    assert chips == ["ascend-910c"] * 16 + ["ascend-950dt"] * 24
    graph = fabric.graph()
    rates = [graph.edges[f"die {n}.0.0", f"NIC {n}.0.0"]["capacity_bytes_per_s"] for n in (0, 1)]
    assert rates == [25e9, 100e9]
    assert (build_fabric(s, FACTS).npus, build_fabric(s, FACTS).dies.size) == (32, 40)


def test_a_mixed_machine_comes_back_from_its_file():
    drawn = small(MIXED)
    fabric = build_fabric(drawn.supernode, FACTS)
    read = read_machine(fabric_text(fabric, "json"), "mixed")
    make_available(read)
    s = with_overrides(drawn, {"supernode.machine": read.digest, "supernode.kinds": []})
    one, other = assemble(drawn, FACTS), assemble(s, FACTS)
    assert other.net.chips(s.supernode.chip) == one.net.chips(s.supernode.chip)
    for role in ("prefill", "decode"):
        costs = one.costs.roles[role], other.costs.roles[role]
        assert costs[0].memory == costs[1].memory
        assert costs[0].exchange_bytes_per_s == pytest.approx(costs[1].exchange_bytes_per_s)
    # A chip with another number of dies than the file gives its NPUs.
    wrong = [(v, d | ({"chip": "h800"} if "npu" in d and d["node"] == 0 else {}))
             for v, d in read.vertices if d["kind"] != "nic"]  # fmt: skip
    make_available(bad := replace(read, vertices=wrong))
    with pytest.raises(HardwareError, match="NPUs of h800 with 2 dies, and such an NPU has 1"):
        build_fabric(with_overrides(s, {"supernode.machine": bad.digest}).supernode, FACTS)
