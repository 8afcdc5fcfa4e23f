"""Finite batches and routing limited to groups, against batches routed token by token."""

import tomllib
from functools import lru_cache

import numpy as np
import pytest

from tests.serving.routing import gate, hottest_of_batches, quantile, tables
from twin.facts import facts_from_tables
from twin.lab.library import DATA
from twin.serving.experts import (
    ExpertsError,
    hot_factors,
    hot_quantiles,
    layer_popularity,
    nodes_reached,
    place,
)
from twin.spec import Experts

FACTS = facts_from_tables({"experts": tomllib.loads((DATA / "experts.toml").read_text())})
SIZES = [(8, 36, 32), (40, 8, 32), (144, 2, 32), (320, 1, 64)]  # dies, slots, redundant


@pytest.mark.parametrize(
    ("dies", "room", "redundant", "batch", "distinct"),
    [(*SIZES[0], 1, True), (*SIZES[0], 16, True), (*SIZES[1], 4, True), (*SIZES[2], 1, True),
     (*SIZES[3], 4, True), (*SIZES[0], 1, False), (*SIZES[1], 16, False), (*SIZES[3], 1, False)],
)  # fmt: skip
def test_mean_and_p99_of_the_hottest_die_within_2_percent(dies, room, redundant, batch, distinct):
    # `make bench` sweeps EP 8-320 and batches 1-128
    tokens = np.array([float(dies * batch)])
    rounds = min(6000, max(150, 200_000 // (dies * batch)))
    seen, said = np.zeros(2), np.zeros(2)
    for seed in (1, 2, 3):
        popularity = layer_popularity(Experts(), 256, 40, 8, FACTS, seed)
        now, measured = popularity.now[20:21], popularity.measured[20:21]
        slots = place(Experts(redundant=redundant), measured, dies, room)
        die, first = tables(slots[0], 256)
        rng = np.random.default_rng(seed)
        most = hottest_of_batches(now[0], die, first, dies * batch, rounds, rng, distinct, dies)
        seen += np.array([most.mean(), quantile(most, 0.99)]) / (batch * 8)
        said += [hot_factors(now, slots, tokens)[0], hot_quantiles(now, slots, tokens)[0]]
    noise = 0.02 if rounds < 1000 else 0.0  # of the simulated p99
    assert said[0] == pytest.approx(seen[0], rel=0.02)
    assert said[1] == pytest.approx(seen[1], rel=0.02 + noise)


@lru_cache
def routed_by_gate(spread):
    rng = np.random.default_rng(1)
    return gate(spread * rng.normal(size=256), 20_000, 8, 4, 8, rng)


def gated(spread, placement, dies, room, redundant, batch):
    """(simulated, said, said without groups) hottest die / mean, then nodes that are reached."""
    rng = np.random.default_rng(2)
    routed = routed_by_gate(spread)
    now = np.bincount(routed.ravel(), minlength=256)[None] / len(routed)
    slots = place(Experts(placement=placement, redundant=redundant), now, dies, room)
    die, first = tables(slots[0], 256)
    count = np.diff(first)

    def dies_of(picks):
        return die[first[picks] + (rng.random(picks.shape) * count[picks]).astype(int)]

    rounds = 1600 // batch
    most = [
        np.bincount(dies_of(routed[rng.integers(0, len(routed), dies * batch)]).ravel()).max()
        for _ in range(rounds)
    ]
    reach = np.mean([len(set(row)) for row in (dies_of(routed[:5000]) * 8 // dies).tolist()])
    tokens = np.array([float(dies * batch)])
    return (
        np.mean(most) / (8 * batch),
        hot_factors(now, slots, tokens, groups=8, top_groups=4)[0],
        hot_factors(now, slots, tokens)[0],
        reach,
        nodes_reached(now, slots, 8, 8, 4)[0],
        nodes_reached(now, slots, 8)[0],
    )


@pytest.mark.parametrize("spread", [0.0, 0.3])
@pytest.mark.parametrize(
    ("placement", "dies", "room", "redundant"),
    [("round_robin", 8, 32, 0), ("round_robin", 32, 8, 0), ("eplb", 32, 9, 32)],
)
@pytest.mark.parametrize("batch", [1, 8])
def test_limited_groups_agree_with_a_real_gate(spread, placement, dies, room, redundant, batch):
    seen, said, plain, reach, reached, unlimited = gated(
        spread, placement, dies, room, redundant, batch
    )
    assert said == pytest.approx(seen, rel=0.02)
    assert reached == pytest.approx(reach, rel=0.03)
    if placement == "round_robin":  # groups lie on nodes: fewer are reached, less evenly
        assert abs(plain - seen) > abs(said - seen) and plain < said
        assert reached < 4.0 < unlimited
    else:  # dies mix groups
        assert plain == pytest.approx(said, rel=0.01)


def test_groups_that_limit_nothing_change_little_and_wrong_ones_are_refused():
    popularity = layer_popularity(Experts(), 256, 2, 8, FACTS, 1)
    slots = place(Experts(), popularity.measured, 32, 9, groups=8)
    for groups, top in ((7, 4), (8, 9), (8, 0)):
        with pytest.raises(ExpertsError, match="must divide evenly over the groups"):
            hot_factors(popularity.now, slots, np.ones(1), groups=groups, top_groups=top)
    with pytest.raises(ExpertsError, match="between 0 and 1"):
        hot_quantiles(popularity.now, slots, np.ones(1), 1.0)


def test_quantiles_rise_and_hold_the_mean_between_them():
    popularity = layer_popularity(Experts(), 256, 4, 8, FACTS, 1)
    slots = place(Experts(), popularity.measured, 40, 8)
    tokens = np.array([1.0, 40.0, 5120.0, 1e5])
    low, mid, high = (hot_quantiles(popularity.now, slots, tokens, q) for q in (0.05, 0.5, 0.99))
    mean = hot_factors(popularity.now, slots, tokens)
    assert (low[1:] < mid[1:]).all() and (mid[1:] < high[1:]).all()
    assert (low[1:] < mean[1:]).all() and (mean[1:] < high[1:]).all()
    assert (np.diff(high / mean)[1:] < 0).all()  # a large batch is no surprise
