"""Finite batches and routing limited to groups, against batches routed token by token."""

import tomllib
from functools import lru_cache

import numpy as np
import pytest

from tests.draws import some
from tests.experts.routing import gate, popularity, simulated, tables
from twin.experts import (
    ExpertsError,
    hot_factors,
    place,
)
from twin.experts.load import peaks_in_numpy
from twin.experts.peak import peaks
from twin.facts import facts_from_tables
from twin.lab.library import DATA
from twin.scenario import Experts

FACTS = facts_from_tables({"experts": tomllib.loads((DATA / "experts.toml").read_text())})
SIZES = {  # dies: (slots, redundant)
    8: (36, 32), 16: (18, 32), 32: (9, 32), 40: (8, 32), 64: (5, 64),
    128: (2, 0), 144: (2, 32), 256: (1, 0), 288: (1, 32), 320: (1, 64),
}  # fmt: skip


def said_over_simulated(shape, dies, batch, rounds, distinct, seeds=(1,)):
    """Mean of the hottest die of layer 20 of 40, by formula over brute force."""
    room, redundant = SIZES[dies]
    tokens = np.array([float(dies * batch)])
    seen = said = 0.0
    for seed in seeds:
        law = popularity(Experts(popularity=shape), 256, 40, FACTS, seed)
        measured, now = (x[20:21] for x in law)
        slots = place(Experts(redundant=redundant), measured, dies, room)
        rng = np.random.default_rng(seed)
        seen += simulated(now[0], slots[0], dies * batch, rounds, rng, distinct)[0]
        said += hot_factors(now, slots, tokens, distinct=distinct)[0]
    return said / seen


# `make bench` sweeps EP 8-320, batches 1-128, three popularities and both ways to draw


@pytest.mark.parametrize(
    ("dies", "batch", "seeds"),
    [
        (40, 4, (1,)),
        *(pytest.param(*more, (1, 2, 3), marks=pytest.mark.long)
          for more in ((8, 1), (320, 4), (8, 16), (32, 4), (40, 4), (144, 1), (320, 128))),
    ],
)  # fmt: skip
def test_mean_of_the_hottest_die_within_2_percent(dies, batch, seeds):
    rounds = min(6000, max(150, 2_000_000 // (dies * batch)))
    ratio = said_over_simulated("skewed", dies, batch, rounds, True, seeds)
    assert ratio == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("shape", ["power_law", "uniform"])
@pytest.mark.parametrize("dies", some([64], 8, 16, 32, 128, 256, 288, 320))
@pytest.mark.parametrize(("batch", "rounds"), [(1, 12_000), (4, 12_000), (128, 1500)])
def test_multinomial_draws_within_1_percent(shape, dies, batch, rounds):
    ratio = said_over_simulated(shape, dies, batch, rounds, False)
    assert ratio == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("dies", [8, 72, 320])
@pytest.mark.parametrize("tokens_each", [0.05, 2.0, 24.0, 25.0, 4000.0])
def test_both_ways_to_the_hottest_die_agree_to_the_last_bit(dies, tokens_each):
    rng = np.random.default_rng(dies)
    mean = np.sort(rng.gamma(2.0, 0.5 * tokens_each, (5, dies)))[:, ::-1].copy()
    mean[1, dies // 2 :] = 0.0  # dies that hold nothing
    mean[2, :3] = mean[2, 0]  # copies of one expert
    spread = rng.uniform(0.3, 3.0, (5, dies))
    spread[3] = 1.0
    assert peaks(mean, spread).tobytes() == peaks_in_numpy(mean, spread).tobytes()


def test_different_picks_even_out_the_hot_expert_of_a_small_batch():
    measured, now = popularity(Experts(popularity="power_law"), 256, 1, FACTS, 1)
    slots = place(Experts(redundant=0), measured, 256, 1)
    tokens = np.array([256.0, 1e6])
    drawn = hot_factors(now, slots, tokens, distinct=False)
    picked = hot_factors(now, slots, tokens)
    assert drawn[0] > 1.01 * picked[0]
    assert drawn[1] == pytest.approx(picked[1], rel=0.002)
    with pytest.raises(ExpertsError, match="ask for a multinomial with groups = 1"):
        hot_factors(now, slots, tokens, groups=8, top_groups=4, distinct=False)


@lru_cache
def routed_by_gate(spread):
    rng = np.random.default_rng(1)
    return gate(spread * rng.normal(size=256), 20_000, 8, 4, 8, rng)


def gated(spread, placement, dies, room, redundant, batch):
    """(simulated, said, said without groups) hottest die / mean."""
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
    tokens = np.array([float(dies * batch)])
    return (
        np.mean(most) / (8 * batch),
        hot_factors(now, slots, tokens, groups=8, top_groups=4)[0],
        hot_factors(now, slots, tokens)[0],
    )


@pytest.mark.parametrize("spread", [0.0, 0.3])
@pytest.mark.parametrize(
    ("placement", "dies", "room", "redundant"),
    [("round_robin", 8, 32, 0), ("round_robin", 32, 8, 0), ("eplb", 32, 9, 32)],
)
@pytest.mark.parametrize("batch", some([8], 1))
def test_limited_groups_agree_with_a_real_gate(spread, placement, dies, room, redundant, batch):
    seen, said, plain = gated(spread, placement, dies, room, redundant, batch)
    assert said == pytest.approx(seen, rel=0.02)
    if placement == "round_robin":  # groups lie on few dies: less even
        assert abs(plain - seen) > abs(said - seen) and plain < said
    else:  # dies mix groups
        assert plain == pytest.approx(said, rel=0.01)


def test_groups_that_limit_nothing_change_little_and_wrong_ones_are_refused():
    measured, now = popularity(Experts(), 256, 2, FACTS, 1)
    slots = place(Experts(), measured, 32, 9, groups=8)
    for groups, top in ((7, 4), (8, 9), (8, 0)):
        with pytest.raises(ExpertsError, match="must divide evenly over the groups"):
            hot_factors(now, slots, np.ones(1), groups=groups, top_groups=top)
