"""Arrivals of mixed instances that a router chooses between by how long each waits."""

from types import SimpleNamespace

import numpy as np
import pytest

from twin import stationary
from twin.arrivals import arrivals_of_iteration


def instance(count, queued=0, prompt_s=0.0):
    """One of `count` mixed instances, with iterations of 0.1 s on average."""
    return SimpleNamespace(
        instances=float(count), prompt_s=prompt_s, step_s=0.0, expected_s=0.1,
        queued=np.array([queued]), ahead=np.array([0.7]), waits=np.zeros(256),
        chances=np.zeros(256),
    )  # fmt: skip


def passed(p, iterations):
    """Arrivals of each iteration (seconds; 0: a rest), once a pass over them has been seen."""
    stationary._begin_pass(p, p.expected_s, True)
    for took_s in iterations:
        arrivals_of_iteration(p, took_s)
    stationary._begin_pass(p, p.expected_s, True)
    return [arrivals_of_iteration(p, took_s) for took_s in iterations]


@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize("prompt_s", [0.0, 0.02])
def test_all_instances_together_get_what_comes(count, prompt_s):
    """Whoever it goes to: over the iterations of one, arrivals are the rate times the seconds."""
    iterations = np.random.default_rng(count).choice([0.03, 0.05, 0.3], 400, p=[0.5, 0.3, 0.2])
    found = passed(instance(count, queued=2, prompt_s=prompt_s), iterations)
    assert sum(found) * 0.1 == pytest.approx(iterations.sum(), rel=1e-6)


def test_one_alone_gets_what_comes_in_its_own_time_and_of_many_a_long_iteration_gets_no_more():
    iterations = [0.05] * 80 + [0.3] * 20
    alone, of_many = (passed(instance(count), iterations) for count in (1, 64))
    assert alone[-1] == pytest.approx(6.0 * alone[0])
    assert of_many[-1] == pytest.approx(of_many[0], rel=0.01)


def test_one_with_prompts_that_wait_gets_less_and_a_rest_ends_with_the_next_arrival():
    p, busy = instance(4, prompt_s=0.05), [0.05] * 100
    free = passed(p, busy)[0]
    p.queued[0] = 1
    assert arrivals_of_iteration(p, 0.05) < 0.1 * free
    assert arrivals_of_iteration(p, 0.0) == pytest.approx(p.ahead[0])
