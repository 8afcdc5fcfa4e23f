import pytest

from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.model.collectives import (
    HalfAllReduce,
    adding_bytes_per_s,
    direct_exchange,
    exchange,
    half_all_reduce,
    moe_traffic,
)
from twin.model.layer import collective_s
from twin.model.roofline import load_machine
from twin.model.shape import load_shape
from twin.scenario import Communication, Supernode


@pytest.fixture
def traffic(facts):
    machine = load_machine(facts, load_chip(facts, "ascend-910c"))
    shape = load_shape(facts, "deepseek-r1")

    def of(dies, supernode=None, **switches):
        found = exchange(build_fabric(supernode or Supernode(), facts), range(dies))
        return moe_traffic(shape, Communication(**switches), machine, facts, found)

    return of


def test_more_peers_cost_more_but_not_in_proportion(traffic):
    small, large = traffic(8), traffic(256)
    assert small.dispatch.fixed < large.dispatch.fixed < 5 * small.dispatch.fixed


def test_quantised_messages_are_shorter_but_cost_vector_time(traffic):
    early, late = traffic(64), traffic(64, early_quantisation=False)
    assert late.dispatch.token / early.dispatch.token == pytest.approx(14_336 / 7_680)
    assert late.dispatch.message == 0.0 < early.dispatch.message


def test_the_naive_chain_pays_for_starts_and_synchronisation(traffic):
    assert traffic(64, fused=False).dispatch.fixed > 2 * traffic(64).dispatch.fixed


def test_slower_links_and_node_wide_planes_lengthen_the_exchange(traffic):
    narrow = Supernode(ub_link_gb_per_s=14.0)
    assert traffic(64, narrow).combine.row == pytest.approx(2 * traffic(64).combine.row)
    assert traffic(64, Supernode(scale_up="node")).combine.row > traffic(64).combine.row


def test_a_die_alone_sends_nothing(traffic):
    assert traffic(1).dispatch.token == 0.0


@pytest.fixture
def gathered(facts):
    """Dispatch and combine on Atlas A2 without fused operators: tokens go to all dies."""
    machine = load_machine(facts, load_chip(facts, "ascend-910b"))
    shape = load_shape(facts, "deepseek-r1")
    four = Supernode(chip="ascend-910b", nodes=4, scale_up="node", rdma_gb_per_s_per_npu=25.0,
                     sub_planes=7, ub_link_gb_per_s=28.0)  # fmt: skip

    def of(dies, beside=False, **switches):
        found = exchange(build_fabric(four, facts), range(dies))
        return moe_traffic(
            shape, Communication(fused=False, **switches), machine, facts, found, beside
        )

    return of


def test_gathering_moves_every_token_to_every_die_whatever_the_routing(gathered):
    t = gathered(32)
    assert t.dispatch.row == t.combine.row == 0.0
    # 3 of 4 nodes over 25 GB/s, 28 of 32 dies inside the node: 7,168 B there, BF16 back.
    assert t.combine.token == pytest.approx(2 * t.dispatch.token)
    assert t.dispatch.token > 7_168 * (3 / 25e9 + 28 / 196e9)


def test_streams_of_their_own_hide_what_passes_between_nodes(gathered):
    one, other = gathered(32), gathered(32, beside=True)
    assert other.dispatch.token < one.dispatch.token < 2 * other.dispatch.token
    assert other.combine.fixed < one.combine.fixed


def test_gathering_over_more_nodes_costs_in_proportion_to_the_dies(gathered):
    two, four = gathered(16), gathered(32)
    assert four.dispatch.token / two.dispatch.token == pytest.approx(2.0, rel=0.35)
    assert four.dispatch.fixed > two.dispatch.fixed


@pytest.mark.parametrize(("nodes", "per_node"), [(4, 1), (8, 8), (18, 8)])
def test_an_exchange_knows_on_how_many_nodes_its_dies_are(facts, nodes, per_node):
    s = Supernode(chip="h800", nodes=nodes, npus_per_node=per_node, scale_up="node")
    assert exchange(build_fabric(s, facts), range(nodes * per_node)).nodes == nodes


HGX = {"chip": "h100", "npus_per_node": 8, "scale_up": "node", "sub_planes": 1,
       "ub_link_gb_per_s": 450.0, "rdma_gb_per_s_per_npu": 50.0}  # fmt: skip


def hgx(facts, dies: int, chip: str = "h100"):
    machine = load_machine(facts, load_chip(facts, chip))
    found = exchange(
        build_fabric(Supernode(**HGX | {"chip": chip, "nodes": 4}), facts), range(dies)
    )
    shape = load_shape(facts, "deepseek-r1")
    return moe_traffic(shape, Communication(), machine, facts, direct_exchange(found, chip, facts))


@pytest.mark.parametrize(("dies", "way", "link"), [(8, "inside", 450e9), (32, "across", 50e9)])
def test_start_and_rate_are_those_of_the_network_that_is_crossed(facts, dies, way, link):
    t, here = hgx(facts, dies), f"chips.h100.operators.exchange.{way}"
    # Leaving the die inside a node, leaving the node across: of eight messages of a token.
    leaving = 8 * ((dies - 1) / dies if way == "inside" else 1 - 8 / dies)
    for phase, fixed, token, size in (
        ("dispatch", t.dispatch.fixed, t.dispatch.token, 7_168 + 224),
        ("combine", t.combine.fixed, t.combine.token, 14_336),
    ):
        assert fixed == facts.si(f"{here}.{phase}_start")
        rate = facts.si(f"{here}.{phase}_rate") * link
        assert token == pytest.approx(leaving * size / rate, rel=0.01)


def test_an_exchange_inside_a_node_starts_sooner_than_one_across(facts):
    assert hgx(facts, 8).dispatch.fixed < 0.6 * hgx(facts, 32).dispatch.fixed


def test_a_chip_without_a_table_says_of_which_other_it_has_its_exchange(facts):
    one, other = hgx(facts, 8, "h20"), hgx(facts, 8, "h200")
    assert facts["chips.h20.exchange_of"].value == "h200"
    assert one == other
    assert hgx(facts, 8, "h100-pcie") == hgx(facts, 8)  # all of its tables are the other's


@pytest.mark.parametrize("dies", [8, 16])
def test_a_gather_inside_a_node_of_atlas_a3_is_the_faster_of_two_algorithms(facts, dies):
    """By hand from the chip's facts: the one for large messages starts later for each other die."""
    found = exchange(build_fabric(Supernode(nodes=1), facts), range(dies), "read")
    half = half_all_reduce(load_machine(facts, load_chip(facts, "ascend-910c")), facts, found)
    table = "chips.ascend-910c.operators.collective.halves"
    start = facts[f"{table}.start"].list_si[list(facts[f"{table}.dies"].value).index(dies)]
    small, large = (196e9 * facts.si(f"{table}.{part}") for part in ("rate", "large_rate"))
    later = start + (dies - 1) * facts.si(f"{table}.peer")
    for moved in (1e5, 4e6, 20e6, 60e6, 600e6):
        cost = half.collective(1.0)
        by_hand = min(start + moved / small, later + moved / large)
        assert collective_s(cost, moved) == pytest.approx(by_hand)
    assert collective_s(cost, 600e6) == pytest.approx(later + 600e6 / large)


def test_a_grade_of_the_same_package_has_its_gathers_and_atlas_a2_has_not(facts):
    def half(chip: str) -> HalfAllReduce:
        found = exchange(build_fabric(Supernode(nodes=1), facts), range(8), "read")
        return half_all_reduce(load_machine(facts, load_chip(facts, chip)), facts, found)

    assert half("ascend-910c-560t") == half("ascend-910c")
    assert half("ascend-910b").saved_s == 0.0


def test_a_reduce_scatter_adds_up_faster_than_element_wise_work(facts):
    machine = load_machine(facts, load_chip(facts, "ascend-910c"))
    share = facts.si("operators.ascend.collective.adding")
    whole = adding_bytes_per_s(machine, facts, 1.0)
    assert whole == pytest.approx(share * machine.chip.hbm_bytes_per_s)
    assert whole > machine.vector_bytes_per_s()
    assert adding_bytes_per_s(machine, facts, 0.5) == pytest.approx(0.5 * whole)
    nvidia = load_machine(facts, load_chip(facts, "h100"))
    assert adding_bytes_per_s(nvidia, facts, 1.0) == nvidia.vector_bytes_per_s()


@pytest.mark.parametrize("chip", ["h100", "h200", "b200", "gb200", "gb300"])
@pytest.mark.parametrize("dies", [2, 4])
def test_an_all_reduce_is_the_faster_of_the_kernels_for_small_and_large_messages(facts, chip, dies):
    """By hand from the chip's facts: half of each kernel's start, and bytes at its share."""
    plane = Supernode(chip=chip)
    found = exchange(build_fabric(plane, facts), range(dies))
    half = half_all_reduce(load_machine(facts, load_chip(facts, chip)), facts, found)
    table = f"chips.{chip}.operators.collective.inside"
    place = list(facts[f"{table}.dies"].value).index(dies)
    link = found.rate_bytes_per_s / facts.si(f"chips.{chip}.link_efficiency")

    def kernel_s(start: str, rate: str, size: float) -> float:
        begin, share = (facts[f"{table}.{part}"].list_si[place] for part in (start, rate))
        return begin / 2 + size / (share * link)

    moved = 14_336.0
    cost = half.collective(moved)
    for tokens in (1.0, 64.0, 512.0, 8_192.0, 65_536.0):
        small = kernel_s("start", "rate", tokens * moved)
        large = kernel_s("large_start", "large_rate", tokens * moved)
        assert collective_s(cost, tokens) == pytest.approx(min(small, large))
    assert collective_s(cost, 65_536.0) > collective_s(cost, 8_192.0)
