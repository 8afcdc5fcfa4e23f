"""What skewed experts put on the links, against counted samples of (token, expert, die) and against
the graph with the weights of every die.

A placement gives the weights (`die_load`). Tokens are drawn here one by one: who has it, which
experts it picks, which copy of each takes it.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest

from tests.draws import some
from twin import experts as x
from twin.engine.contention.flows import shares_by_place
from twin.engine.movement import relative_bytes
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.hardware import demands
from twin.hardware.faults import with_faults
from twin.hardware.flows import Demand, load_of
from twin.lab.library import load_facts
from twin.model.coefficients import Layout
from twin.model.layer import die_and_link_load
from twin.scenario import Experts, Fault, parse_scenario, with_overrides
from twin.steady import predict_steady

FACTS = load_facts()
PLACED = "round_robin", "eplb", "eplb_groups", "greedy"
TOKENS, LAYER, SLOTS = 1_500_000, 40, 3  # a late layer: heavy in few experts


@cache
def machine(uplinks=16):
    """128 dies of 8 nodes that hold the experts of DeepSeek-R1, and their popularity."""
    s = parse_scenario(
        {
            "supernode": {"nodes": 8, "l1_uplinks": uplinks},
            "deployment": {"model": "deepseek-r1", "mode": "decode_only",
                           "decode": {"instances": 1, "npus_per_instance": 64}},
        }
    )  # fmt: skip
    setup = set_up(s, FACTS, None)
    return setup.fabric, setup.routed, x.long_run_chances(setup.process)[LAYER : LAYER + 1]


@cache
def popularity(seed=None):
    """Chances of a layer's experts, f8[1, experts]; seed: of counts as somebody may import them, 0
    with one hot expert."""
    if seed is None:
        return machine()[2]
    draw = np.random.default_rng(seed)
    counts = np.exp(draw.normal(0.0, 0.6, (58, 256))) if seed else np.ones((58, 256))
    if not seed:
        counts[:, 5] = 20.0
    named = {"popularity": "imported", "counts": {"name": "mine", "digest": "0" * 64}}
    process = x.start_process(x.Routed(Experts.model_validate(named), 256, 58, 8, FACTS, 1), counts)
    return x.long_run_chances(process)[:1]


def placed(placement, seed=None):
    _, routed, _ = machine()
    load = popularity(seed)
    rule = Experts(placement=placement, redundant=32)
    return x.place(rule, load, 128, SLOTS, 8, groups=routed.groups)[0]


@cache
def counted(placement, near, seed=None, drawn=TOKENS):
    """Messages from die to die, i8[senders, receivers]; near: a copy on the sender's own node is
    taken where there is one."""
    slots, draw = placed(placement, seed), np.random.default_rng(11)
    chance = popularity(seed)[0]
    copies = [np.flatnonzero((slots == e).any(axis=1)) for e in range(chance.size)]
    table = np.zeros((128, 128), np.int64)
    steps = np.cumsum(np.append(0.0, chance))
    for sender in range(128):  # systematic sampling: each expert with its own chance
        tokens = drawn // 128
        picks = round(chance.sum())
        at = draw.random(tokens)[:, None] + np.arange(picks)
        at *= chance.sum() / picks
        picked = np.searchsorted(steps, at.ravel(), side="right") - 1
        for expert, many in enumerate(np.bincount(picked, minlength=chance.size)):
            home = copies[expert]
            own = home[home // 16 == sender // 16]
            home = own if near and own.size else home
            table[sender] += np.bincount(draw.choice(home, many), minlength=128)
    np.fill_diagonal(table, 0)
    return table


def routed(net, out, into):
    """Load of an all-to-all between 128 dies with such amounts, on the graph."""
    at = tuple(net.dies[:128].tolist())
    return load_of(net, Demand(at, at, tuple(out), tuple(into), ("ub", "rdma")))


def taken(weights):
    """Amounts that dies receive when each sends one unit to the others, by weights."""
    return weights / (weights.sum() - weights.mean())


def dispatch(net, weights):
    return routed(net, np.ones(128), taken(weights))


def carried_by(net, load):
    """Bytes on every link."""
    carried = np.zeros(net.capacity.size)
    carried[load.links] = load.amounts * net.efficiency["write"][load.links]
    return carried


def into_nodes(table):
    """Messages that come into each node from others."""
    whole = table.reshape(8, 16, 8, 16).sum(axis=(1, 3))
    return whole.sum(axis=0) - np.diag(whole)


@pytest.mark.parametrize("placement", some(["eplb_groups"], "round_robin", "eplb", "greedy"))
def test_link_loads_are_those_that_samples_of_tokens_leave(placement):
    net, _, load = machine()
    table = counted(placement, False)
    weights = x.die_load(load, placed(placement)[None])[0]
    found = dispatch(net, weights)
    carried = carried_by(net, found)
    into = table.sum(axis=0) / table.sum()
    ports = np.isin(net.tail, net.of_kind("l1")) & np.isin(net.head, net.dies)
    by_die = np.bincount(net.head[ports], carried[ports], len(net.vertices))[net.dies]
    assert by_die / by_die.sum() == pytest.approx(into, rel=0.02)
    down = np.isin(net.tail, net.of_kind("l2"))
    by_node = np.bincount(net.node[net.head[down]], carried[down], 8)
    crossing = into_nodes(table)
    assert by_node / by_node.sum() == pytest.approx(crossing / crossing.sum(), rel=0.02)
    # Every L2-L1 link of a node carries the same: its whole share is where the node's is.
    for node in range(8):
        links = down & (net.node[net.head] == node)
        share = carried[links] / net.capacity[links]
        assert share == pytest.approx(np.full(share.size, share.mean()), rel=0.02)


def test_placements_that_know_nodes_lower_the_fullest_link_between_them():
    """Copies balanced by load fill nodes more evenly than experts in order; copies spread over
    nodes of which the own one's is taken spare links between nodes as well."""
    fullest = {name: into_nodes(counted(name, name == "topology", drawn=TOKENS // 5)).max()
               for name in ("round_robin", "eplb", "eplb_groups", "topology")}  # fmt: skip
    assert fullest["topology"] < fullest["eplb_groups"] < fullest["round_robin"]
    assert fullest["topology"] < fullest["eplb"] < fullest["round_robin"]


@pytest.mark.parametrize("seed", some([0], *range(1, 9)))
def test_dispatch_and_combine_load_links_as_counted_tokens_do(seed):
    """There and back, between dies and L1 switches and between these and L2, both ways."""
    net, _, _ = machine()
    part = 0.4
    weights = x.die_load(popularity(seed), placed("eplb_groups", seed)[None])[0]
    back = routed(net, taken(weights), np.ones(128))
    carried = part * carried_by(net, dispatch(net, weights)) + (1.0 - part) * carried_by(net, back)
    table = counted("eplb_groups", False, seed)
    whole = part * table + (1.0 - part) * table.T
    between = np.add.reduceat(np.add.reduceat(whole, range(0, 128, 16), 0), range(0, 128, 16), 1)
    np.fill_diagonal(between, 0.0)
    l1, l2 = net.of_kind("l1"), net.of_kind("l2")
    for ends, others, axis in (
        (net.tail, net.head, 0), (net.head, net.tail, 1),  # into, out of
    ):  # fmt: skip
        ports = np.isin(ends, l1) & np.isin(others, net.dies)
        by_die = np.bincount(others[ports], carried[ports], len(net.vertices))[net.dies]
        of_die = whole.sum(axis=axis)
        assert by_die / by_die.sum() == pytest.approx(of_die / of_die.sum(), rel=0.02)
        up = np.isin(ends, l2)
        by_node = np.bincount(net.node[others[up]], carried[up], 8)
        of_node = between.sum(axis=axis)
        assert by_node / by_node.sum() == pytest.approx(of_node / of_node.sum(), rel=0.02)
    assert max(weights) > 1.1


@pytest.mark.parametrize("cut", [[], ["L1 2.0", "L1 2.3"]])
@pytest.mark.parametrize("seed", some([0], *range(1, 9)))
def test_bytes_at_nodes_are_those_of_the_graph_with_the_weights_of_every_die(seed, cut):
    """Also where a node has lost switches: which sub-planes its bytes take then is not unique."""
    net, part = with_faults(machine()[0], [Fault(element=name) for name in cut]), 0.4
    weights = x.die_load(popularity(seed), placed("eplb_groups", seed)[None])[0]
    even = demands.exchange_load(net, range(128))
    node = net.node[net.dies[:128]]
    ends = relative_bytes(node, net.nodes, weights, part)
    places = [net.places[p] for p in even.places]
    factor = np.array([ends[p.direction == "out"][p.node] for p in places])
    share = shares_by_place(net, even, factor)
    there, back = dispatch(net, weights), routed(net, taken(weights), np.ones(128))
    exact = part * shares_by_place(net, there) + (1.0 - part) * shares_by_place(net, back)
    assert there.places.tolist() == back.places.tolist() == even.places.tolist()
    if not cut:
        assert share == pytest.approx(exact, rel=0.02)
    at = np.array([2 * place.node + (place.direction == "out") for place in places])
    by_node = np.bincount(at, share)
    assert by_node == pytest.approx(np.bincount(at, exact), rel=0.02)
    assert seed or np.ptp(by_node[::2]) > 0.2 / 8  # one hot expert: some nodes get more


def test_where_all_dies_get_alike_bytes_are_those_of_the_even_exchange():
    for each in relative_bytes(np.repeat(np.arange(8), 16), 8, np.full(128, 3.0), 0.4):
        assert each == pytest.approx(np.ones(8), rel=1e-12)


@pytest.mark.parametrize("seed", some([1], *range(2, 9)))
def test_eplb_lowers_the_fullest_link_between_nodes(seed):
    """Of imported counts. With one hot expert among 255 equal ones it does not: copies that stay on
    the expert's node fill that node's links."""
    net, _, _ = machine()
    fullest = {}
    for name in ("round_robin", "eplb", "eplb_groups"):
        weights = x.die_load(popularity(seed), placed(name, seed)[None])[0]
        back = routed(net, taken(weights), np.ones(128))
        both = 0.4 * carried_by(net, dispatch(net, weights)) + 0.6 * carried_by(net, back)
        inner = np.isin(net.tail, net.of_kind("l2"))
        fullest[name] = (both / net.capacity)[inner].max()
    assert max(fullest["eplb"], fullest["eplb_groups"]) < fullest["round_robin"]


@pytest.mark.parametrize("uplinks", [4, 12, 16])
@pytest.mark.parametrize(
    "placed_by", some([("eplb", 1), ("round_robin", None)], *product(PLACED, range(9)))
)
def test_an_exchange_takes_as_long_as_its_fullest_link_does(uplinks, placed_by):
    """A port that is as full as its die is hot, or a link that is as full as its node is: against
    the graph with the weights of every die, where nodes share a part of their uplinks."""
    net, _, _ = machine(uplinks)
    load, slots = popularity(placed_by[1]), placed(*placed_by)[None]
    even = demands.exchange_load(net, range(128))
    uneven = dispatch(net, x.die_load(load, slots)[0])
    longer = even.rate_alone(net)[0] / uneven.rate_alone(net)[0]
    tokens = np.array([2.0**19, 2.0**20])
    hot, node = (x.hot_factors(load, at, tokens) for at in (slots, x.slots_by_node(slots, 8)))
    layout = Layout(ports=even.port_time_share(net))
    _, wire = die_and_link_load(layout, 2.0**20, tokens, np.concatenate([hot, node]))
    assert (even.port_time_share(net) == 1.0) == (uplinks == 16)
    assert wire == pytest.approx(longer, rel=0.02)
    assert wire <= hot[1]  # a node is never hotter than its hottest die


def test_where_uplinks_are_few_the_hottest_die_is_not_all():
    """Formula and run of one pass: narrow uplinks take the hottest node's load, and a placement
    that knows nodes is as fast as balanced experts are."""
    narrow = parse_scenario(
        {
            "supernode": {"nodes": 8, "l1_uplinks": 3}, "horizon_s": 40.0, "warmup_s": 10.0,
            "experts": {"redundant": 32},
            "workload": {"arrivals": "closed_loop", "concurrency": 64 * 64, "output_tokens": 400},
            "deployment": {"model": "deepseek-r1", "mode": "decode_only",
                           "decode": {"instances": 1, "npus_per_instance": 64,
                                      "batch_per_npu": 64}},
        }
    )  # fmt: skip
    taken = {}
    for placement in ("perfect", "eplb", "round_robin"):
        s = with_overrides(narrow, {"experts.placement": placement})
        formula = predict_steady(s, FACTS).decode.tpot_s
        found = simulate(s, FACTS).summary["tpot_s_mean"]
        assert found == pytest.approx(formula, rel=0.05)
        taken[placement] = formula
    assert taken["perfect"] < taken["eplb"] < taken["round_robin"]
