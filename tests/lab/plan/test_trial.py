"""What a plan stores of a simulation."""

import numpy as np
import pytest

from twin.lab.plan.trial import BLOCKS, error_of_share


def test_misses_that_come_together_leave_a_larger_error_than_those_that_do_not():
    requests = 100 * BLOCKS
    spread, together = np.ones(requests, bool), np.ones(requests, bool)
    spread[:: requests // 40] = False
    together[500:540] = False
    assert spread.sum() == together.sum()
    assert error_of_share(together) > 3.0 * error_of_share(spread)


def test_the_error_of_independent_requests_is_the_binomial_one():
    draws = np.random.default_rng(5).random((400, 40 * BLOCKS)) < 0.9
    errors = [error_of_share(met) ** 2 for met in draws]
    assert np.mean(errors) == pytest.approx(0.9 * 0.1 / draws.shape[1], rel=0.1)


def test_without_requests_or_misses_there_is_no_error():
    assert error_of_share(np.ones(0, bool)) == error_of_share(np.ones(500, bool)) == 0.0
