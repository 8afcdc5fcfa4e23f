"""What sits alike is routed once, and only where a demand goes: with the answers of routing all."""

import numpy as np
import pytest

from tests.draws import some
from tests.hardware.test_flows import DEMANDS, random_machine
from tests.hardware.wired import all_to_all, demand, fabric, network, settled
from twin.hardware import demands, flows, quotient
from twin.hardware.alike import swap_of
from twin.hardware.fabric import build_fabric, with_edits
from twin.hardware.flows import load_of
from twin.hardware.quotient import Quotient
from twin.hardware.reach import Usable
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
DIES = 32  # of an instance: two nodes


def exchanged(net, ours, theirs):
    """The exchange of vertices for others, if one is found."""
    return swap_of(net, tuple(ours), tuple(theirs))


def machine(nodes, edits=(), **how):
    """The arrays of a supernode of so many nodes, with no answer known."""
    wired = network(build_fabric(Supernode(nodes=nodes, **how), FACTS))
    return (
        wired.with_rates(wired.capacity, wired.latency) if not edits else with_edits(wired, edits)
    )


def seats(net):
    """Dies of every instance but the last, which receives."""
    return [range(k, k + DIES) for k in range(0, net.dies.size - DIES, DIES)]


KINDS = {
    "exchange": demands.exchange_load,
    "read": lambda net, dies: demands.pool_load(net, dies)[0],
    "write": lambda net, dies: demands.pool_load(net, dies, operation="write")[0],
    "vpc": lambda net, dies: demands.pool_load(net, dies, "vpc")[0],
    "storage": demands.storage_read,
    "hand_off": lambda net, dies: demands.kv_load(net, dies, range(net.dies.size)[-DIES:]),
}


def by_link(net, load):
    """Amounts and what is placed, as whole tables."""
    amounts, places = np.zeros(net.tail.size), np.zeros(len(net.places))
    amounts[load.links], places[load.places] = load.amounts, load.bytes_at_places
    return np.concatenate([amounts, places])


@pytest.mark.parametrize("kind", DEMANDS)
def test_the_links_between_ends_carry_what_they_carry_among_all_links(kind):
    narrowed = 0
    for seed in range(40):
        links, ends, draw = random_machine(seed)
        how = {"forwarding": seed % 3 > 0, "detour": seed % 2}
        added = [(ends[0], "v99", 1.0, 1), ("v99", ends[-1], 1.0, 1)] if seed % 5 == 0 else []
        net = network(fabric([*links, *added], ends, **how))
        asked = DEMANDS[kind](net, ends, draw)
        out, into = np.zeros((2, len(net.vertices)))
        out[list(asked.senders)], into[list(asked.receivers)] = asked.out, asked.into
        usable = Usable(net, "ub", out, into)
        *few, (all_links, most) = usable.link_sets(None)
        whole = Quotient(usable, None, all_links, most).route("nominal")
        expected = np.zeros(net.tail.size)
        expected[whole.links] = whole.near + whole.far
        for fewer, reach in few:
            part = Quotient(usable, None, fewer, reach).route("nominal")
            if part is not None:
                narrowed += fewer.size < all_links.size
                found = np.zeros(net.tail.size)
                found[part.links] = part.near + part.far
                assert np.array_equal(found, expected), seed
                assert part.longest_s == whole.longest_s and not part.apart
    assert narrowed >= 10


def test_groups_whose_uplinks_are_dealt_to_other_switches_are_alike():
    dealt = {"l2_levels": 2, "l2_ports_per_chip": 8}  # 4 uplinks of a switch, dealt to 3 in turn
    net = machine(20, **dealt)
    one, two, third = (net.dies[k * 64 : k * 64 + DIES].tolist() for k in (0, 1, 2))
    assert exchanged(net, one, two) is not None
    assert exchanged(net, one, third) is None  # two groups are dealt as the first is, one as this
    loads = [KINDS["read"](net, range(k * 64, k * 64 + DIES)) for k in (0, 1)]
    own = KINDS["read"](machine(20, **dealt), range(64, 64 + DIES))
    np.testing.assert_allclose(by_link(net, loads[1]), by_link(net, own), rtol=1e-12)


def test_a_load_of_which_much_moves_is_stored_with_its_own_links(monkeypatch):
    net = machine(20, l2_levels=2, l2_ports_per_chip=8)
    listed = KINDS["read"](net, range(DIES)).with_ends_swapped(
        exchanged(net, net.dies[:DIES].tolist(), net.dies[64 : 64 + DIES].tolist())
    )
    assert listed.with_own_pattern() is listed
    monkeypatch.setattr(flows, "MANY", 100)
    own = listed.with_own_pattern()
    assert not own.moved.at.size and (np.diff(own.pattern.links) > 0).all()
    assert np.array_equal(by_link(net, own), by_link(net, listed))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{}, {"l2_levels": 2, "l2_ports_per_chip": 8}])
def test_what_sits_alike_has_the_load_of_its_own_problem(kind, how):
    shared = machine(12, **how)
    loads = [KINDS[kind](shared, dies) for dies in seats(shared)]
    assert len({load.pattern for load in loads}) < len(loads)
    for dies, load in zip(seats(shared), loads, strict=True):
        alone = machine(12, **how)
        own = KINDS[kind](alone, dies)
        np.testing.assert_allclose(by_link(shared, load), by_link(alone, own), rtol=1e-12)
        assert load.latency_s == own.latency_s
        assert load.off_node == pytest.approx(own.off_node, rel=1e-12)
        assert load.rate_alone(shared) == own.rate_alone(alone)
        np.testing.assert_array_equal(by_link(shared, settled(load)), by_link(shared, load))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dead", range(2))
def test_loads_that_follow_from_loads_that_followed_are_those_of_their_own_problems(
    monkeypatch, kind, dead
):
    monkeypatch.setattr(flows, "NEAR", 0)  # every load is the base of the next one
    draw = np.random.default_rng(dead)
    cut = [Edit(element=f"die {n}.{draw.integers(8)}.0", to=f"L1 {n}.{draw.integers(7)}",
                capacity_factor=0.0) for n in draw.choice(12, 3 * dead, replace=False)]  # fmt: skip
    shared = machine(12, cut, l2_levels=2, l2_ports_per_chip=8)
    for dies in draw.permutation(np.arange(shared.dies.size - DIES).reshape(-1, DIES)):
        load, alone = KINDS[kind](shared, dies.tolist()), machine(12, cut, l2_levels=2,
                                                                  l2_ports_per_chip=8)  # fmt: skip
        own = KINDS[kind](alone, dies.tolist())
        np.testing.assert_allclose(by_link(shared, load), by_link(alone, own), rtol=1e-9)
        assert (load.latency_s, load.unreached) == (own.latency_s, own.unreached)
        assert (np.diff(load.places) > 0).all() and np.unique(load.links).size == load.links.size


@pytest.mark.parametrize("kind", KINDS)
def test_problems_that_are_solved_do_not_grow_with_the_number_of_alike_instances(kind):
    for nodes in (6, 24):
        net = machine(nodes)
        assert len({KINDS[kind](net, dies).pattern for dies in seats(net)}) == 1


@pytest.mark.parametrize("kind", ["exchange", "read", "hand_off"])
def test_a_dead_link_splits_off_the_instance_that_it_touches_and_no_other(kind):
    element, to = ("NIC 5.3.1", "") if kind == "hand_off" else ("die 5.3.1", "L1 5.2")
    net = machine(16, [Edit(element=element, to=to, capacity_factor=0.5)])
    patterns = [KINDS[kind](net, dies).pattern for dies in seats(net)]
    assert patterns.count(patterns[2]) == 1
    assert len(set(patterns)) == 2


@pytest.mark.parametrize("kind", ["exchange", "read", "write"])
def test_dead_links_split_off_only_the_instances_that_they_touch(kind):
    draw = np.random.default_rng(5)
    nodes = draw.choice(22, 6, replace=False).tolist()
    cut = [Edit(element=f"die {n}.{draw.integers(8)}.0", to=f"L1 {n}.{draw.integers(7)}",
                capacity_factor=0.0) for n in nodes]  # fmt: skip
    net = machine(24, cut)
    patterns = [KINDS[kind](net, dies).pattern for dies in seats(net)]
    touched = {n // 2 for n in nodes}
    of_others = {pattern for k, pattern in enumerate(patterns) if k not in touched}
    assert len(of_others) == 1 and len(set(patterns)) == 1 + len(touched)


@pytest.mark.parametrize("kind", ["exchange", "read", "write"])
@pytest.mark.parametrize("dead", [0, 8])
def test_vertices_of_one_class_are_routed_as_each_by_itself(monkeypatch, kind, dead):
    draw = np.random.default_rng(dead)
    cut = [Edit(element=f"die {n}.{draw.integers(8)}.0", to=f"L1 {n}.{draw.integers(7)}",
                capacity_factor=0.0) for n in draw.choice(24, dead, replace=False)]  # fmt: skip
    found = []
    for bound, wide in ((np.inf, np.inf), (0, 0)):
        monkeypatch.setattr(quotient, "MANY", bound)
        monkeypatch.setattr(flows, "WIDE", wide)
        net = machine(24, cut, l2_levels=2, l2_ports_per_chip=8)
        loads = [KINDS[kind](net, dies) for dies in list(seats(net))[:4]]
        found.append([(by_link(net, load), load) for load in loads])
    for (table, load), (own_table, own) in zip(*found, strict=True):
        np.testing.assert_allclose(own_table, table, rtol=1e-9)
        assert (load.latency_s, load.unreached) == (own.latency_s, own.unreached)


def test_instances_of_a_mesh_that_much_moves_for_share_one_pattern():
    mesh = {"machine": "ub-mesh", "chip": "ascend-950dt", "cpus_per_node": 2, "sub_planes": 4}
    net = machine(256, **mesh)  # two pods of 16 racks
    racks = [range(k, k + 64) for k in range(0, net.dies.size, 64)]
    for kind in ("exchange", "read", "storage"):
        loads = [KINDS[kind](net, dies) for dies in racks]
        assert len({load.pattern for load in loads}) == 1
        assert len({load.rate_alone(net)[0] for load in loads}) == 1


def test_places_are_exchanged_only_where_all_links_at_them_agree():
    spokes = [(f"end {i}", f"leaf {i}", 2.0) for i in range(4)]
    spokes += [(f"leaf {i}", "spine", 1.0 if i < 3 else 1.0 + 1e-12) for i in range(4)]
    net = network(fabric(spokes, [f"end {i}" for i in range(4)], forwarding=False))
    at = net.number
    swap = exchanged(net, [at["end 0"]], [at["end 2"]])
    assert {net.vertices[v] for v in swap.vertices} == {"end 0", "end 2", "leaf 0", "leaf 2"}
    assert exchanged(net, [at["end 0"]], [at["end 3"]]) is None
    assert exchanged(net, [at["end 0"]], [at["leaf 2"]]) is None
    assert exchanged(net, [at["end 0"], at["end 1"]], [at["end 1"], at["end 2"]]) is None


@pytest.mark.parametrize("seed", some([*range(4)], *range(4, 20)))
def test_two_copies_of_any_machine_are_alike(seed):
    links, ends, _ = random_machine(seed)
    copies = [(f"{a}{k}", f"{b}{k}", c) for k in "xyz" for a, b, c in links]
    copies += [(f"{v}{k}", "spine", 1.5) for k in "xyz" for v in ends]
    everyone = [f"{v}{k}" for k in "xyz" for v in ends]
    net, alone = (network(fabric(copies, everyone)) for _ in range(2))
    loads = [load_of(net, all_to_all(net, [f"{v}{k}" for v in ends])) for k in "xyz"]
    assert len({load.pattern for load in loads}) == 1
    own = load_of(alone, all_to_all(alone, [f"{v}z" for v in ends]))
    np.testing.assert_allclose(by_link(net, loads[2]), by_link(alone, own), rtol=1e-12)
    other = load_of(net, demand(net, [f"{v}y" for v in ends], ["spine"]))
    assert other.pattern is not loads[0].pattern
