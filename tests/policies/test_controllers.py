"""The controller that splits all NPUs between the pools: what it wants, and what moves nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.policies.controllers import GAIN, PoolSeen, Rule, Seen, rebalance

RELEASE = Rule(0.8, 0.5, 1, keep=False)
KEEP = Rule(0.8, 0.5, 1, keep=True)


def seen(
    needs: tuple[float, float], serving: tuple[int, int], npus: int = 128, size: int = 16
) -> Seen:
    """Two pools that need so much; a burst waits before prefill, which has nothing to say."""
    prefill, decode = (
        PoolSeen(count, 0, 0, size, 900, 5.0, 0.1, 3.0, needed)
        for count, needed in zip(serving, needs, strict=True)
    )
    return Seen(30.0, npus, 40.0, {"prefill": prefill, "decode": decode})


def test_each_pool_gets_what_it_needs_and_the_rest_is_given_back():
    assert rebalance(seen((1.2, 3.9), (2, 6)), RELEASE) == (2, 4)
    assert rebalance(seen((0.0, 0.0), (2, 6)), RELEASE) == (1, 1)


def test_a_full_decode_pool_gives_nothing_to_a_burst_of_prompts():
    assert rebalance(seen((1.5, 5.6), (2, 6)), RELEASE) == (2, 6)
    assert rebalance(seen((2.05, 5.7), (2, 6)), RELEASE) == (2, 6)  # too few, and 3 : 5 lacks more


def test_too_few_npus_move_only_for_more_than_the_move_takes():
    assert rebalance(seen((2.2, 5.9), (2, 6)), RELEASE) == (2, 6)
    assert rebalance(seen((3.2, 5.2), (2, 6)), RELEASE) == (3, 5)
    assert rebalance(seen((3.2, 5.2), (2, 5)), RELEASE) == (3, 5)  # one is free: nobody moves


def test_npus_that_are_kept_stay_while_they_are_enough():
    assert rebalance(seen((1.2, 2.0), (3, 5)), KEEP) == (3, 5)
    assert rebalance(seen((1.2, 5.6), (3, 5)), KEEP) == (2, 6)


@given(
    st.tuples(st.floats(0, 12), st.floats(0, 12)), st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([RELEASE, KEEP]),
)  # fmt: skip
@draws(200)
def test_no_other_split_lacks_much_less(needs, serving, rule):
    prefill, decode = rebalance(seen(needs, serving), rule)
    assert min(prefill, decode) >= 1 and prefill + decode <= 8

    def lack(a, b):
        return max(1.0, needs[0] / a, needs[1] / b)

    best = min(lack(a, 8 - a) for a in range(1, 8))
    assert lack(prefill, decode) == pytest.approx(best, rel=1.0 / GAIN - 1.0)
