"""How many requests are under way, against a simulated queue with a server for each."""

import math
from dataclasses import replace

import numpy as np
import pytest

from twin.model import prompt_queue, waiting
from twin.model.prompt_queue import LINE, TABLE, BatchPrice
from twin.model.waiting import (
    Pool,
    Prompts,
    mean_of_fullest,
    relative_variance_in_progress,
    saturated_rate,
    variance_share_of_mean,
    waits_and_next_s,
    waits_s,
)

LIVES = [(20.0, 0.5), (100.0, 0.3), (400.0, 0.2)]
MEAN_LIFE = sum(life * share for life, share in LIVES)


def crowd(cv, rate=0.4, span=400_000):
    """Requests under way at every unit of time, as a simulation counts them."""
    draw = np.random.default_rng(7)
    shape = 1.0 / cv**2
    came = np.cumsum(draw.gamma(shape, 1.0 / (shape * rate), int(1.1 * rate * span)))
    stays = draw.choice([life for life, _ in LIVES], came.size, p=[share for _, share in LIVES])
    change = np.zeros(span + 1)
    for when, by in ((came, 1.0), (came + stays, -1.0)):
        np.add.at(change, when[when < span].astype(int), by)
    return np.cumsum(change)[2_000:span]


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_variance_of_requests_under_way_is_that_of_a_simulated_queue(cv):
    under_way = crowd(cv)
    found = relative_variance_in_progress(LIVES, 0.4 * MEAN_LIFE, cv)
    assert found == pytest.approx(under_way.var() / under_way.mean() ** 2, rel=0.08)


def test_poisson_arrivals_leave_a_poisson_number_whatever_the_lives():
    assert relative_variance_in_progress(LIVES, 50.0, 1.0) == pytest.approx(1.0 / 50.0)
    assert relative_variance_in_progress([(7.0, 1.0)], 50.0, 2.0) == pytest.approx(4.0 / 50.0)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_variance_left_in_a_mean_is_that_of_a_simulated_queue(n):
    under_way = crowd(1.0)
    means = under_way[: under_way.size // n * n].reshape(-1, n).mean(1)
    assert variance_share_of_mean(LIVES, n) == pytest.approx(
        means.var() / under_way.var(), rel=0.12
    )


def prompts_of(arrivals, tokens):
    """Prompts that come at these times, none of which is cached."""
    return Prompts(*(np.array(column, float) for column in (arrivals, tokens, [0.0] * len(tokens))))


def line(tokens):
    """A prompt of so many tokens every second."""
    return prompts_of(range(len(tokens)), tokens)


def by_token(token_s, base_s=0.0):
    """Seconds of a batch that grow with its tokens alone."""
    return BatchPrice(LINE, base_s, token_s, token_s)


@pytest.fixture
def batches(monkeypatch):
    """Batches in the order in which they begin, as (tokens, tokens and pairs of the fullest die),
    each of one second; the queue runs as plain Python."""
    seen = []

    def seconds(_queue, tokens, _pairs, most, most_pairs):
        seen.append((tokens, most, most_pairs))
        return 1.0

    monkeypatch.setattr(prompt_queue, "batch_seconds", seconds)
    monkeypatch.setattr(waiting, "run_queue", prompt_queue.follow_queue)
    return seen


def test_a_pool_that_always_has_prompts_computes_full_batches():
    pool = Pool(3, 400.0, 0.0, by_token(0.01, 1.0), 1.0, 0.01)
    # The first prompt of the sample begins alone.
    assert saturated_rate(line([100.0] * 400), pool) == pytest.approx(3 * 4 / 5.0, rel=3e-3)


def test_whole_prompts_go_to_the_die_with_fewest_tokens_and_the_fullest_sets_the_pace(batches):
    prompts = prompts_of([0.0] * 3, [100.0, 40.0, 30.0])
    waits_s(prompts, Pool(1, 1000.0, 0.0, BatchPrice(), 1.0, 0.0, dies=2), 1.0)
    assert batches[-1] == (70.0, 40.0, 40 * 20.5)  # the first began at once, alone


def test_a_sample_that_is_repeated_keeps_its_rate():
    twice = line([5.0] * 50).repeated(2)
    assert len(twice.fresh) == 100
    assert twice.arrival_s[-1] == pytest.approx(99.0)


def test_a_prompt_in_pieces_leaves_the_rest_of_a_batch_to_the_next(batches):
    prompts = prompts_of([0.0] * 3, [10.0, 900.0, 100.0])
    waits = waits_s(prompts, Pool(1, 500.0, 300.0, BatchPrice(), 1.0, 0.0), 1.0)
    # The first began at once, alone.
    assert [tokens for tokens, _, _ in batches] == [10.0, 400.0, 300.0, 300.0]
    assert waits.tolist() == [1.0, 4.0, 2.0]


def test_a_die_takes_its_share_of_a_batch_s_attention_and_the_rest_of_a_prompt_waits(batches):
    # A pair takes a second and a token none: 40 pairs are a die's share, ten tokens have 55.
    prompts = prompts_of([0.0] * 4, [1.0, 10.0, 4.0, 4.0])
    pool = Pool(1, 100.0, 0.0, BatchPrice(), 1.0, 0.0, dies=2, attention=(0.0, 1.0), share_s=40.0)
    waits = waits_s(prompts, pool, 1.0)
    taken = 10.0 - batches[2][0]
    assert taken == pytest.approx(math.sqrt(80.0))
    assert batches[1][:2] == (pytest.approx(taken + 8.0), pytest.approx(taken))
    assert waits.tolist() == [1.0, 3.0, 2.0, 2.0]


def test_the_largest_rate_does_not_depend_on_long_prompts_at_the_end_of_a_sample():
    pool = Pool(1, 100.0, 10.0, by_token(0.0, 1.0), 1.0, 0.0)
    rates = [
        saturated_rate(line(tokens), pool)
        for tokens in ([10.0] * 390 + [400.0], [400.0] + [10.0] * 390)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_the_batch_that_begins_as_another_ends_is_known_to_the_prompts_of_the_latter():
    pool = Pool(1, 1000.0, 0.0, by_token(0.01), 0.0, 0.01)
    prompts = prompts_of([0.0, 0.5, 0.9, 9.0], [100.0, 200.0, 100.0, 50.0])
    waits, next_s = waits_and_next_s(prompts, pool, 1.0)
    assert waits == pytest.approx([1.0, 3.5, 3.1, 0.5])
    assert next_s == pytest.approx([3.0, 0.0, 0.0, 0.0])  # none waits when the second ends


def test_a_router_that_takes_turns_sends_a_prompt_behind_a_long_one():
    pool = Pool(2, 1000.0, 0.0, by_token(0.01), 0.0, 0.01)
    tokens = [1000.0, 100.0, 100.0]  # one a second: the long one is computed until the tenth
    assert waits_s(line(tokens), pool, 1.0) == pytest.approx([10.0, 1.0, 1.0])
    assert waits_s(line(tokens), replace(pool, in_turn=True), 1.0) == pytest.approx(
        [10.0, 1.0, 9.0]
    )


@pytest.mark.parametrize("in_turn", [False, True])
def test_routers_behind_a_front_router_are_pools_of_their_own(in_turn):
    draw = np.random.default_rng(3)
    arrivals = np.cumsum(draw.exponential(size=400))
    fresh = draw.integers(100, 9000, 400)
    whole = Pool(4, 16e3, 0.0, by_token(1e-4, 0.1), 0.1, 1e-4, in_turn=in_turn)
    apart = waits_s(prompts_of(arrivals, fresh), replace(whole, routers=2), 3.0)
    for own in (slice(0, None, 2), slice(1, None, 2)):
        half = waits_s(prompts_of(arrivals[own], fresh[own]), replace(whole, instances=2), 3.0)
        assert apart[own].tolist() == half.tolist()


def test_a_front_router_with_old_reports_sends_what_comes_in_between_to_one_supernode():
    crowd = prompts_of([0.1 * k for k in range(40)], [1000.0] * 40)
    pool = Pool(2, 1e3, 0.0, by_token(1.5e-4), 0.0, 1.5e-4, routers=2)
    knows, late = (waits_s(crowd, replace(pool, report_s=s), 1.0) for s in (0.0, 1.0))
    assert max(late) > 0.5 > max(knows)


TABLE_PRICE = BatchPrice(
    TABLE, pair_s=1e-9, token_pairs=2e3, table_tokens=np.array([100.0, 2e3, 4e4]),
    table_s=np.array([0.05, 0.1, 1.0]),
)  # fmt: skip


@pytest.mark.parametrize(
    "pool",
    [
        Pool(3, 16e3, 0.0, TABLE_PRICE, 0.1, 2.5e-5),
        Pool(2, 8e3, 3e3, by_token(3e-5, 0.02), 0.1, 3e-5, read_s=1e-6, evening=0.5,
             line=(3e-5, 1e-9)),
        Pool(2, 8e3, 1e3, by_token(3e-5), 0.1, 3e-5, dies=4, is_dealt=True, idle_s=0.03,
             share_s=1e3, routers=2),
        Pool(2, 16e3, 0.0, by_token(3e-5), 0.1, 3e-5, dies=4, attention=(1e-6, 1e-9),
             share_s=0.015, routers=2, report_s=0.5),
    ],
    ids=["table", "pieces", "dealt", "attention"],
)  # fmt: skip
def test_plain_python_and_compiled_code_agree(pool, monkeypatch):
    draw = np.random.default_rng(3)
    prompts = prompts_of(np.cumsum(draw.exponential(size=300)), draw.integers(100, 9000, 300))
    compiled = waits_and_next_s(prompts, pool, 3.0)
    monkeypatch.setattr(waiting, "run_queue", prompt_queue.follow_queue)
    for found, expected in zip(waits_and_next_s(prompts, pool, 3.0), compiled, strict=True):
        assert found.tolist() == expected.tolist()
    assert (compiled[0] > 0.0).all()


@pytest.mark.parametrize(("requests", "ends"), [(0.3, 4), (4.0, 32), (60.0, 32), (9.0, 1)])
def test_the_fullest_end_has_as_many_as_the_most_of_drawn_ones(requests, ends):
    drawn = np.random.default_rng(3).poisson(requests / ends, (200_000, ends)).max(axis=1).mean()
    assert mean_of_fullest(requests, ends) == pytest.approx(drawn, rel=0.01)
