"""Batching: Sarathi's hand trace, budgets kept, and answers' iterations as tokens would give."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from tests.draws import draws, some
from tests.jit import compiled
from twin.kernels import rng
from twin.policies.batching import (
    fetch_pays,
    iteration_chances,
    iterations_needed,
    token_variance,
    tokens_per_iteration,
    tokens_to_take,
)

N = 40_000


def batches(prompts, budget, chunk):
    """Every batch as {prompt: tokens}, first come, first served, until all prompts are done."""
    left = dict(prompts)
    made = []
    while left:
        room, batch = budget, {}
        for name in list(left):
            take = tokens_to_take(left[name], room, chunk, not batch)
            if take <= 0:
                break
            batch[name] = take
            room -= take
            left[name] -= take
            if left[name] == 0:
                del left[name]
            if room <= 0:
                break
        made.append(batch)
    return made


def test_sarathi_hand_trace():
    # Chunk 512 with 3 decodes running: 509 tokens of prompts in an iteration.
    trace = batches({"A": 1200, "B": 100}, budget=509, chunk=509)
    assert trace == [{"A": 509}, {"A": 509}, {"A": 182, "B": 100}]


def test_whole_prompts_wait_or_go_alone():
    trace = batches({"A": 300, "B": 300, "C": 900, "D": 10}, budget=500, chunk=0)
    assert trace == [{"A": 300}, {"B": 300}, {"C": 900}, {"D": 10}]


def test_chunks_keep_a_long_prompt_from_filling_every_batch():
    assert batches({"A": 900, "B": 200}, 500, 300)[0] == {"A": 300, "B": 200}


@draws(100)
@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    st.integers(1, 3000),
    st.integers(0, 3000),
)
def test_every_token_is_taken_once_and_budgets_hold(lengths, budget, chunk):
    made = batches(dict(enumerate(lengths)), budget, chunk)
    total = {k: sum(batch.get(k, 0) for batch in made) for k in range(len(lengths))}
    assert total == dict(enumerate(lengths))
    for batch in made:
        assert sum(batch.values()) <= budget or (chunk == 0 and len(batch) == 1)
        assert chunk == 0 or max(batch.values()) <= chunk


@draws(50)
@given(st.integers(0, 9000), st.integers(0, 9000), st.integers(0, 9000), st.booleans())
def test_plain_python_takes_as_much(remaining, left, chunk, empty):
    asked = (remaining, left, chunk, empty)
    assert tokens_to_take(*asked) == compiled(tokens_to_take)(*asked)


@njit(cache=True)
def token_by_token(tokens, drafts, acceptance, key, n):
    """Iterations of n answers, every draft token flipped on its own."""
    out = np.empty(n)
    for i in range(n):
        own = rng.bits(key, i)
        done, count, flip = 0, 0, 0
        while done < tokens:
            done += 1
            for _ in range(drafts):
                flip += 1
                if rng.uniform(own, flip) >= acceptance:
                    break
                done += 1
            count += 1
        out[i] = count
    return out


@njit(cache=True)
def drawn_at_once(tokens, drafts, acceptance, key, other, n):
    out = np.empty(n)
    for i in range(n):
        out[i] = iterations_needed(tokens, drafts, acceptance, key, other, i)
    return out


KEYS = [rng.stream_key(1, name) for name in ("flips", "acceptance", "rounding")]


@pytest.mark.parametrize("tokens", some([255], 2, 16, 70, 2000))
@pytest.mark.parametrize(("drafts", "acceptance"), [(1, 0.7), (3, 0.7), (2, 0.2), (4, 0.95)])
def test_iterations_have_the_mean_and_spread_of_a_token_by_token_simulation(
    tokens, drafts, acceptance
):
    told = token_by_token(tokens, drafts, acceptance, KEYS[0], N)
    drawn = drawn_at_once(tokens, drafts, acceptance, KEYS[1], KEYS[2], N)
    error = np.sqrt((told.var() + drawn.var()) / N)
    assert abs(drawn.mean() - told.mean()) <= 4 * error + 1e-3 * told.mean()
    # Rounding at random adds at most a quarter of an iteration squared.
    assert abs(drawn.var() - told.var()) <= 0.26 + 0.05 * told.var()


def test_moments_of_an_iterations_tokens():
    # One draft at 0.7: 1 or 2 tokens. Two drafts: 1 (0.3), 2 (0.21), 3 (0.49).
    assert tokens_per_iteration(1, 0.7) == pytest.approx(1.7)
    assert token_variance(1, 0.7) == pytest.approx(0.21)
    assert tokens_per_iteration(2, 0.7) == pytest.approx(2.19)
    assert token_variance(2, 0.7) == pytest.approx(0.3 + 4 * 0.21 + 9 * 0.49 - 2.19**2)


@pytest.mark.parametrize("tokens", [1, 2, 3, 16])
@pytest.mark.parametrize(("drafts", "acceptance"), [(0, 0.7), (2, 0.7), (4, 0.95), (3, 1.0)])
def test_chances_of_iterations_are_those_of_a_token_by_token_simulation(tokens, drafts, acceptance):
    chances = iteration_chances(tokens, drafts, acceptance)
    told = token_by_token(tokens, drafts, acceptance, KEYS[0], N)
    seen = np.bincount(told.astype(int), minlength=tokens + 1)[1:] / N
    assert math.fsum(chances) == pytest.approx(1.0)
    assert np.abs(np.array(chances) - seen).max() <= 4 * 0.5 / math.sqrt(N)


@draws(100)
@given(
    st.integers(0, 5000), st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.99, 1.0]), st.integers(0)
)
def test_iterations_stay_between_all_accepted_and_none(tokens, drafts, acceptance, index):
    asked = (tokens, drafts, acceptance, KEYS[1], KEYS[2], index % 2**40)
    found = iterations_needed(*asked)
    assert -(-tokens // (drafts + 1)) <= found <= tokens
    assert found == compiled(iterations_needed)(*asked)


def test_without_drafts_an_iteration_is_a_token():
    assert iterations_needed(77, 0, 0.9, *KEYS[1:], 3) == 77
    assert iterations_needed(77, 2, 0.0, *KEYS[1:], 3) == 77
    assert iterations_needed(77, 2, 1.0, *KEYS[1:], 3) == 26


def test_what_takes_longer_to_read_than_to_compute_is_not_read():
    assert fetch_pays(1.0, 1.1) and not fetch_pays(1.1, 1.0)
