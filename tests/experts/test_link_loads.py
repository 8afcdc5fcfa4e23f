"""What skewed experts put on the links, against counted samples of (token, expert, die).

`demands.exchange` takes weights of receivers; a placement gives them (`die_load`). Tokens are drawn
here one by one: who has it, which experts it picks, which copy of each takes it.
"""

from functools import cache

import numpy as np
import pytest

from tests.draws import some
from twin import experts as x
from twin.engine.setup import set_up
from twin.hardware import demands
from twin.lab.library import load_facts
from twin.scenario import Experts, parse_scenario

FACTS = load_facts()
TOKENS, LAYER, SLOTS = 1_500_000, 40, 3  # a late layer: heavy in few experts


@cache
def machine():
    """128 dies of 8 nodes that hold the experts of DeepSeek-R1, and their popularity."""
    s = parse_scenario(
        {
            "supernode": {"nodes": 8},
            "deployment": {"model": "deepseek-r1", "mode": "decode_only",
                           "decode": {"instances": 1, "npus_per_instance": 64}},
        }
    )  # fmt: skip
    setup = set_up(s, FACTS, None)
    return setup.fabric, setup.crowd, x.long_run(setup.crowd.process)[LAYER : LAYER + 1]


def placed(placement):
    _, crowd, load = machine()
    rule = Experts(placement=placement, redundant=32)
    return x.place(rule, load, 128, SLOTS, 8, groups=crowd.groups)[0]


@cache
def counted(placement, near):
    """Messages from die to die, i8[senders, receivers]; near: a copy on the sender's own node is
    taken where there is one."""
    slots, draw = placed(placement), np.random.default_rng(11)
    chance = machine()[2][0]
    copies = [np.flatnonzero((slots == e).any(axis=1)) for e in range(chance.size)]
    table = np.zeros((128, 128), np.int64)
    steps = np.cumsum(np.append(0.0, chance))
    for sender in range(128):  # systematic sampling: each expert with its own chance
        tokens = TOKENS // 128
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


def into_nodes(table):
    """Messages that come into each node from others."""
    whole = table.reshape(8, 16, 8, 16).sum(axis=(1, 3))
    return whole.sum(axis=0) - np.diag(whole)


@pytest.mark.parametrize("placement", some(["eplb_groups"], "round_robin", "eplb", "greedy"))
def test_link_loads_are_those_that_samples_of_tokens_leave(placement):
    net, _, load = machine()
    table = counted(placement, False)
    weights = x.die_load(load, placed(placement)[None])[0]
    found = demands.exchange(net, range(128), weights=weights)
    carried = np.zeros(net.capacity.size)
    carried[found.links] = found.amounts * net.efficiency["write"][found.links]
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
    fullest = {name: into_nodes(counted(name, name == "topology")).max()
               for name in ("round_robin", "eplb", "eplb_groups", "topology")}  # fmt: skip
    assert fullest["topology"] < fullest["eplb_groups"] < fullest["round_robin"]
    assert fullest["topology"] < fullest["eplb"] < fullest["round_robin"]
