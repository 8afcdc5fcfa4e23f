"""Finite runs by formula: work is conserved, slots are never exceeded, waves are waves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.hardware.fabric import build_fabric
from twin.model.costs import build_costs
from twin.model.finite import answer_iterations, burst_run, queue_run
from twin.model.predict import EVEN
from twin.scenario import Scenario, with_overrides


@pytest.fixture
def role(facts):
    fields = {
        "deployment.mode": "colocated",
        "deployment.colocated.npus_per_instance": 32,
        "deployment.decode.mtp_draft_tokens": 0,
        "experts.redundant": 0,
    }
    s = with_overrides(Scenario(), fields)
    return build_costs(s, facts, build_fabric(s.supernode, facts)).colocated_role


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(1, 12))
@draws(60)
def test_dealing_conserves_iterations_and_never_exceeds_the_slots(lengths, slots):
    first, end = answer_iterations(np.array(lengths, float), slots)
    assert (end - first).tolist() == lengths
    under_way = [((first <= n) & (n < end)).sum() for n in range(int(end.max()))]
    assert max(under_way) <= slots
    assert sum(under_way) == sum(lengths)
    # Nobody idles while somebody waits: full until the last answer has begun.
    assert all(count == min(slots, len(lengths)) for count in under_way[: int(first.max())])


def test_equal_answers_run_in_waves(role):
    slots, answers = 640, np.full(1280, 512.0)
    once = queue_run(role, 1024.0, answers[:slots], slots, 1024.0, EVEN)
    twice = queue_run(role, 1024.0, answers, slots, 1024.0, EVEN)
    assert twice.seconds == pytest.approx(2 * once.seconds, rel=1e-6)


def test_a_long_answer_leaves_the_machine_to_itself_and_costs_throughput(role):
    even = np.full(640, 512.0)
    uneven = even.copy()
    uneven[-1] = 4096.0
    short, long = (queue_run(role, 1024.0, a, 640, 1024.0, EVEN) for a in (even, uneven))
    assert uneven.sum() / long.seconds < 0.5 * even.sum() / short.seconds
    # Alone it is faster than in company, so it takes less than in proportion.
    assert long.seconds < 8 * short.seconds


def test_in_a_burst_early_prompts_wait_for_the_last(role):
    at_once = burst_run(role, 1024.0, 512.0, 640, 640 * 1024.0, EVEN)
    in_tenths = burst_run(role, 1024.0, 512.0, 640, 64 * 1024.0, EVEN)
    assert in_tenths.tpot_s > at_once.tpot_s
    assert in_tenths.seconds > at_once.seconds  # weights are read ten times
    assert at_once.seconds > 511 * at_once.tpot_s


def test_a_burst_of_more_prompts_takes_longer_by_whole_passes(role):
    times = [burst_run(role, 1024.0, 2.0, n, 64 * 1024.0, EVEN).seconds for n in (64, 65, 128, 192)]
    assert times == sorted(times)
    assert times[3] - times[2] == pytest.approx(times[2] - times[0], rel=0.15)


def test_no_rank_of_a_burst_computes_more_prompts_than_its_tokens_hold(role):
    for whole in (1.0, 2.0):
        budget = whole * 1000.0 * role.ranks
        fits, rest = (burst_run(role, 1000.0, 2.0, 640, tokens, EVEN) for tokens in
                      (budget, budget + 999.0))  # fmt: skip
        assert rest == fits
