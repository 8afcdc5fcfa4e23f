"""Placements: every expert lives, whatever is lost; what moves; which layers are chosen."""

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.experts.routing import node_traffic, popularity, rebalance
from twin.experts import (
    EMPTY,
    ExpertsError,
    choose_layers,
    copy_counts,
    die_load,
    hottest_by_layer,
    place,
    received_experts,
    replicas,
)
from twin.facts import facts_from_tables
from twin.lab.library import DATA
from twin.scenario import Experts

FACTS = facts_from_tables({"experts": tomllib.loads((DATA / "experts.toml").read_text())})
PLACEMENTS = ("round_robin", "eplb", "eplb_groups", "greedy", "topology", "perfect")


def loads(experts=256, layers=6, seed=1):
    return popularity(Experts(), experts, layers, FACTS, seed)[0]


def doubled(slots):
    """Dies that hold two copies of one expert."""
    ordered = np.sort(slots, axis=2)
    return int(((np.diff(ordered, axis=2) == 0) & (ordered[:, :, 1:] != EMPTY)).sum())


# Laws


@draws(40)
@given(st.data())
def test_every_expert_lives_on_a_die_and_load_is_conserved(data):
    placement = data.draw(st.sampled_from(PLACEMENTS))
    dies, redundant = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 64))
    room = -(-(64 + redundant) // dies) + data.draw(st.integers(0, 2))
    nodes = data.draw(st.integers(1, 4))
    experts = Experts(placement=placement, redundant=redundant)
    measured = loads(64, 3, data.draw(st.integers(0, 9)))
    slots = place(experts, measured, dies, room, nodes, groups=8)
    held = copy_counts(slots, 64)
    most = 64 + redundant
    if placement in ("greedy", "topology", "perfect"):  # no more copies than dies
        most = min(most, 64 * dies)
    assert held.min() >= 1 and (held.sum(axis=1) == most).all()
    assert replicas(slots, 64).sum(axis=1).tolist() == (held.sum(axis=1) - 64).tolist()
    for nearest in {1, nodes}:
        load = die_load(measured, slots, nearest)
        assert np.allclose(load.mean(axis=1), 1.0)
        assert (hottest_by_layer(measured, slots, nearest) >= 1.0 - 1e-9).all()
        assert node_traffic(measured, slots, nodes, nearest).sum() == pytest.approx(1.0)
    again = place(experts, measured, dies, room, nodes, current=slots, groups=8)
    assert received_experts(slots, again).sum() == 0  # the same load asks for the same experts


@draws(25)
@given(st.sampled_from(PLACEMENTS[1:5]), st.integers(0, 99))
def test_numbering_dies_by_the_current_slots_moves_less_and_balances_alike(placement, seed):
    experts = Experts(placement=placement, redundant=16)
    before, after = loads(64, 3, seed), loads(64, 3, seed) * (1 + 0.1 * (seed % 7))
    after = after * np.random.default_rng(seed).lognormal(0, 0.05, after.shape)
    old = place(experts, before, 16, 5, 4, groups=8)
    plain = place(experts, after, 16, 5, 4, groups=8)
    kept = place(experts, after, 16, 5, 4, current=old, groups=8)
    assert received_experts(old, kept).sum() <= received_experts(old, plain).sum()
    if placement != "topology":
        for a, b in zip(die_load(after, plain), die_load(after, kept), strict=True):
            assert np.allclose(np.sort(a), np.sort(b))
    assert received_experts(old, kept).max() <= 5


# The policies


@pytest.mark.parametrize(
    ("dies", "room", "nodes"), [(32, 9, 4), (144, 2, 2), (16, 18, 8), (32, 9, 3)]
)
def test_groups_of_even_sizes_are_the_original_algorithm(dies, room, nodes):
    measured = loads()
    for placement, of in (("eplb", 1), ("eplb_groups", nodes)):
        slots = place(Experts(placement=placement), measured, dies, room, of, groups=8)
        want = rebalance(measured.astype(np.float32), 288, 8 if of > 1 else 1, of, dies)
        assert slots.reshape(6, -1).tolist() == want.expert.tolist()


def test_hierarchical_keeps_whole_groups_within_a_node():
    slots = place(Experts(placement="eplb_groups"), loads(), 32, 9, 4, groups=8)
    for layer in slots.reshape(6, 4, 72):
        nodes = [set((n[n != EMPTY] // 32).tolist()) for n in layer]
        assert sorted(g for n in nodes for g in n) == list(range(8))


def test_greedy_puts_no_expert_twice_on_a_die_where_eplb_does():
    measured = loads(layers=58)
    eplb = place(Experts(redundant=64), measured, 8, 40)
    greedy = place(Experts(redundant=64, placement="greedy"), measured, 8, 40)
    assert doubled(eplb) > 0 and doubled(greedy) == 0
    assert hottest_by_layer(measured, greedy).mean() < 1.02


def test_topology_spreads_copies_and_sends_less_between_nodes():
    measured = loads(layers=58)
    spread = place(Experts(placement="topology"), measured, 32, 9, 4)
    plain = place(Experts(placement="greedy"), measured, 32, 9, 4)
    for layer in range(58):
        nodes = np.array([np.bincount(n[n >= 0], minlength=256) for n in
                          spread[layer].reshape(4, 72)])  # fmt: skip
        held = nodes.sum(axis=0)
        assert ((nodes > 0).sum(axis=0) >= np.minimum(held, 4) - 1).all()
        assert ((nodes > 0).sum(axis=0) == np.minimum(held, 4)).mean() > 0.98

    def between(slots):
        traffic = node_traffic(measured, slots, 4, 4)
        return traffic.sum() - np.trace(traffic)

    assert between(spread) < between(plain) < 0.75
    assert node_traffic(measured, spread, 4, 1).trace() == pytest.approx(0.25, abs=0.01)
    assert hottest_by_layer(measured, spread, 4).mean() < 1.15


def test_topology_keeps_experts_on_their_nodes_while_the_load_allows():
    experts, before = Experts(placement="topology"), loads(layers=8)
    after = before * np.random.default_rng(1).lognormal(0, 0.1, before.shape)
    old = place(experts, before, 144, 2, 9)
    plain = place(experts, after, 144, 2, 9)
    kept = place(experts, after, 144, 2, 9, current=old)
    assert received_experts(old, kept).sum() < 0.75 * received_experts(old, plain).sum()
    heat = [hottest_by_layer(after, slots, 9).mean() for slots in (plain, kept)]
    assert heat[1] < 1.03 * heat[0]


def test_recorded_one_more_replica_can_worsen_the_peak():
    measured = np.array([[37.0, 25.0, 27.0, 35.0, 23.0, 31.0]])
    peaks = [
        float(hottest_by_layer(measured, place(Experts(redundant=r), measured, 3, 4))[0])
        for r in (0, 1)
    ]
    assert peaks == pytest.approx([1.0112, 1.1882], abs=1e-4)


def test_moves_count_new_experts_and_not_their_order():
    old = np.array([[[0, 1, 2], [3, 4, EMPTY]]])
    new = np.array([[[2, 0, 1], [4, 5, 5]]])
    assert received_experts(old, new).tolist() == [[0, 1]]
    assert received_experts(new, old).tolist() == [[0, 1]]
    with pytest.raises(ExpertsError, match="cannot become slots"):
        received_experts(old, new[:, :1])


def test_replicas_are_all_copies_but_the_first():
    slots = np.array([[[0, 1], [1, 0], [2, EMPTY]]])
    assert replicas(slots, 3).tolist() == [[0, 2, 0]]


def test_which_layers_a_decision_changes():
    measured = loads(layers=58)
    slots = place(Experts(placement="round_robin"), measured, 32, 9)
    heat = hottest_by_layer(measured, slots)
    chosen = {p: choose_layers(p, measured, slots, 2.0, 8).tolist() for p in
              ("none", "oracle", "periodic", "threshold", "layer_budget")}  # fmt: skip
    assert chosen["none"] == chosen["oracle"] == []
    assert chosen["periodic"] == list(range(58))
    assert chosen["threshold"] == [i for i in range(58) if heat[i] > 2.0] != []
    worst = chosen["layer_budget"]
    assert len(worst) == 8 and heat[worst].min() >= np.delete(heat, worst).max()
    assert choose_layers("layer_budget", measured, slots, 2.0, 99).tolist() == list(range(58))
