"""Experts: the hottest die against laws and an exact multinomial simulation."""

import tomllib

import numpy as np

from twin.facts import facts_from_tables
from twin.lab.library import DATA
from twin.serving.experts import imbalance
from twin.spec import Experts

FACTS = facts_from_tables({"experts": tomllib.loads((DATA / "experts.toml").read_text())})


def test_perfect_placement_is_exactly_even():
    got = imbalance(Experts(placement="perfect"), 256, 58, 8, 32, 9, FACTS, 1)
    assert (got.factor == 1.0).all() and (got.die_load == 1.0).all()


def test_loads_are_shares_of_the_mean():
    got = imbalance(Experts(), 256, 58, 8, 32, 9, FACTS, 1)
    assert np.allclose(got.die_load.mean(axis=1), 1.0)
    assert (np.diff(got.factor) < 0).all() and got.factor[-1] >= 1
