"""Differences over pairs of seeds: their interval, and what is chance in words."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from tests.lab.test_compare import run
from twin.lab.sweep.compare import compare, mean_difference, reseed, with_pairs
from twin.scenario import Scenario, with_overrides

NAME = "ttft_s_p50"


def compared(*summaries):
    """A comparison of runs with one figure, each with its seeds; the first is the baseline."""
    rows = [run(f"r{i}", **{NAME: own[0]}) for i, own in enumerate(summaries)]
    plain = compare(rows, [Scenario()] * len(rows))
    made = [[None if v is None else {NAME: v} for v in own] for own in summaries]
    return next(row for row in with_pairs(plain, made).metrics if row.name == NAME)


def test_the_interval_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(5)
    base = rng.uniform(1.0, 2.0, 7)
    value = base + rng.normal(0.1, 0.05, 7)
    found = mean_difference(list(zip(value.tolist(), base.tolist(), strict=True)))
    low, high = ttest_rel(value, base).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))


def test_what_the_requests_share_is_no_noise():
    swings = [1.0, 1.6, 0.7, 1.2, 2.0]
    row = compared(swings, [0.9 * v for v in swings])
    assert row.verdicts[1] == "better" and "equal" not in row.paired_text(1)
    assert row.paired_text(1).startswith("−10.0 ±") and row.paired_text(0) == ""


def test_what_is_chance_is_said_in_words():
    row = compared([1.0, 1.1, 0.9, 1.0, 1.0], [1.02, 1.05, 0.95, 1.0, 0.97])
    assert row.verdicts[1] == "noise" and row.paired_text(1).startswith("equal within noise (−")
    assert row.cell_texts()[1].endswith("%)")


def test_figures_alike_in_all_pairs_are_the_same():
    assert compared([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).verdicts[1] == "same"
    rounded = compared([0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.3])  # a sum in another order
    assert rounded.verdicts[1] == "same" and rounded.paired_text(1) == ""


def test_two_pairs_or_seeds_that_only_one_has_say_nothing():
    row = compared([1.0, 1.1, None, 1.2], [2.0, 2.1, 2.2, None])
    assert row.paired == (None, None) and row.verdicts[1] == "worse"


def test_all_have_the_seeds_of_the_baseline():
    other = with_overrides(Scenario(), {"seed": 77, "workload.rate_req_per_s": 5.0})
    made = reseed([other, Scenario()], baseline=1, count=3)
    own = Scenario().seed
    assert [[s.seed for s in each] for each in made] == [[own, own + 1, own + 2]] * 2
    assert math.isclose(made[0][2].workload.rate_req_per_s, 5.0)
