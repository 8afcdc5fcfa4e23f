"""Routers: one family of laws for all, and what makes each of them itself."""

import ast
import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.policies import router
from twin.policies.router import (
    NO_CHOICE,
    RANK_CHOICES,
    ROUTERS,
    View,
    choose_instance,
    choose_rank,
)


def test_every_router_is_dispatched():
    """An unknown code would silently be `least_loaded`, which comes last."""
    source = ast.parse(inspect.getsource(router)).body
    function = next(n for n in source if getattr(n, "name", "") == "choose_instance")
    compared = [n.comparators[0].id for n in ast.walk(function) if isinstance(n, ast.Compare)]
    asked = {getattr(router, name) for name in compared}
    assert asked == set(ROUTERS.values()) - {ROUTERS["least_loaded"]}


loads = st.lists(st.integers(0, 100_000), min_size=1, max_size=12)
chances = st.floats(0, 1, exclude_min=True, exclude_max=True)
SEES = {
    "policy", "view", "routed", "opened", "wait_s", "ttft_s", "queued_tokens", "hit_tokens",
    "here_tokens", "hit_share", "kv_used", "weights", "session", "draw_a", "draw_b",
}  # fmt: skip
PROMPT = 8192  # tokens of the request that is routed; a token takes a millisecond


def seen(name, queued, hits=None, routed=0, session=0, a=0.5, b=0.5, opened=None, weights=None):
    """What `choose_instance` is asked with, by the tokens that wait and are cached."""
    queued = np.array(queued, np.int64)
    hits = np.zeros(queued.size, np.int64) if hits is None else np.array(hits, np.int64)
    opened = np.ones(queued.size, np.int8) if opened is None else np.array(opened, np.int8)
    view = View(
        opened=opened, wait_s=1e-3 * queued, ttft_s=1e-3 * queued + 1e-3 * (PROMPT - hits),
        queued_tokens=queued, hit_tokens=hits, here_tokens=np.zeros_like(hits),
        hit_share=hits / PROMPT,
        kv_used=np.minimum(1.0, queued / 1e6), weights=np.array(weights or (1.0, 1.0, 1.0)),
    )  # fmt: skip
    return ROUTERS[name], view, routed, session, a, b


def choose(name, queued, *more, **asked):
    return choose_instance(*seen(name, queued, *more, **asked))


@pytest.mark.parametrize("name", ROUTERS)
@draws(40)
@given(data=st.data())
def test_no_router_names_an_instance_out_of_service(name, data):
    queued = data.draw(loads)
    opened = data.draw(st.lists(st.booleans(), min_size=len(queued), max_size=len(queued)))
    chosen = choose(
        name, queued, routed=data.draw(st.integers(0, 50)), session=data.draw(st.integers(0, 99)),
        a=data.draw(chances), b=data.draw(chances), opened=opened,
    )  # fmt: skip
    assert opened[chosen] if any(opened) else chosen == NO_CHOICE


@pytest.mark.parametrize("name", ROUTERS)
@draws(60)
@given(data=st.data())
def test_every_router_names_an_instance_and_plain_python_agrees(name, data):
    queued = data.draw(loads)
    hits = data.draw(st.lists(st.integers(0, 4096), min_size=len(queued), max_size=len(queued)))
    asked = {
        "routed": data.draw(st.integers(0, 10**9)),
        "session": data.draw(st.integers(0, 2**31 - 1)),
        "a": data.draw(chances),
        "b": data.draw(chances),
    }
    chosen = choose(name, queued, hits, **asked)
    assert 0 <= chosen < len(queued)
    assert chosen == choose(name, queued, hits, **asked)
    plain = compiled(choose_instance)(*seen(name, queued, hits, **asked))
    assert chosen == plain


def test_no_router_can_see_an_output_length():
    assert {*inspect.signature(choose_instance).parameters, *View.declared} == SEES
    names = {
        n.id if isinstance(n, ast.Name) else n.arg
        for n in ast.walk(ast.parse(inspect.getsource(router)))
        if isinstance(n, ast.Name | ast.arg)
    }
    assert not {n for n in names if "output" in n or "finish" in n or "due" in n}


@pytest.mark.parametrize("name", ["least_loaded", "prefix_affinity", "predicted_ttft", "weighted"])
@draws(40)
@given(queued=st.lists(st.integers(0, 10**6), min_size=2, max_size=8, unique=True), data=st.data())
def test_the_choice_follows_the_instance_when_instances_are_renamed(name, queued, data):
    order = data.draw(st.permutations(range(len(queued))))
    chosen = choose(name, queued)
    renamed = choose(name, [queued[k] for k in order])
    assert order[renamed] == chosen


def test_power_of_two_is_renamed_with_its_draws():
    assert choose("power_of_two", [5, 1, 3], a=0.1, b=0.9) == 2
    assert choose("power_of_two", [3, 1, 5], a=0.9, b=0.1) == 0


@pytest.mark.parametrize(
    ("name", "asked", "chosen"),
    [
        ("round_robin", {"queued": [9, 9, 9], "routed": 7}, 1),
        ("least_loaded", {"queued": [4, 2, 2]}, 1),
        ("least_loaded", {"queued": [4, 2, 2], "routed": 5}, 2),  # of equals the next in turn
        ("predicted_ttft", {"queued": [900, 0], "hits": [1024, 0]}, 0),
        ("predicted_ttft", {"queued": [1100, 0], "hits": [1024, 0]}, 1),
        ("weighted", {"queued": [100, 0], "hits": [4096, 0], "weights": (1.0, 0.0, 0.0)}, 1),
        ("weighted", {"queued": [100, 0], "hits": [4096, 0], "weights": (0.0, 1.0, 0.0)}, 0),
        ("weighted", {"queued": [100, 0], "hits": [4096, 0], "weights": (1.0, 3.0, 0.0)}, 0),
        ("weighted", {"queued": [9, 5, 7], "weights": (0.0, 0.0, 1.0)}, 1),
        ("power_of_two", {"queued": [4, 2, 0], "a": 0.1, "b": 0.5}, 1),
        ("prefix_affinity", {"queued": [900, 0], "hits": [1024, 0]}, 0),
        ("prefix_affinity", {"queued": [1100, 0], "hits": [1024, 0]}, 1),
        # Dynamo's vector: least of prefill work + load 18, 10, 11.
        ("prefix_affinity", {"queued": [18, 10, 11], "hits": [0, 0, 0]}, 1),
    ],
)
def test_hand_made_choices(name, asked, chosen):
    assert choose(name, **asked) == chosen


def test_sticky_sessions_stay_and_spread_evenly():
    chosen = [choose("session_sticky", [0] * 7, session=s) for s in range(7000)]
    moved = [choose("session_sticky", [99, 0, 0, 0, 0, 0, 0], session=s) for s in range(7000)]
    assert chosen == moved
    assert np.bincount(chosen).max() < 1.1 * 1000


RANKS = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1000)), min_size=1, max_size=10)


def sort_key(name, routed, ranks):
    """What a sort would order ranks by, least first: (slots, tokens) of rank r."""
    running, held = max(sum(s for s, _ in ranks), 1), max(sum(t for _, t in ranks), 1.0)
    return {
        "kv_tokens": lambda r: (ranks[r][1], r),
        "requests": lambda r: (*ranks[r], r),
        "kv_and_requests": lambda r: (running * ranks[r][1] + held * ranks[r][0], ranks[r][1], r),
        "round_robin": lambda r: (r - routed) % len(ranks),
    }[name]


@pytest.mark.parametrize("name", RANK_CHOICES)
@draws(100)
@given(RANKS, st.floats(0, 1200), st.integers(0, 30))
def test_the_rank_is_what_a_sort_would_find(name, ranks, need, routed):
    slots = np.array([s for s, _ in ranks])
    tokens = np.array([t for _, t in ranks])
    full = np.full(slots.size, 4)
    asked = (RANK_CHOICES[name], routed, slots, tokens, slots.sum(), tokens.sum(), full)
    free = [r for r, (s, t) in enumerate(ranks) if s < 4 and t + need <= 1000]
    key = sort_key(name, routed, ranks)
    scratch = np.zeros(slots.size)
    found = choose_rank(*asked, 1000.0, need, scratch)
    if not free:
        assert found == NO_CHOICE
    elif name == "kv_and_requests":  # sums of floats: the best up to rounding
        assert key(found)[0] == pytest.approx(min(key(r)[0] for r in free), rel=1e-12)
    else:
        assert found == min(free, key=key)
    assert found == compiled(choose_rank)(*asked, 1000.0, need, scratch)


def filled(name, needs, ranks=24):
    """(requests, KV tokens) of ranks after requests came one by one and none has left."""
    slots, tokens = np.zeros(ranks, np.int64), np.zeros(ranks)
    limit = np.full(ranks, len(needs))
    for i, need in enumerate(needs):
        r = choose_rank(
            RANK_CHOICES[name], i, slots, tokens, slots.sum(), tokens.sum(), limit, math.inf, need,
            np.zeros(ranks),
        )  # fmt: skip
        slots[r] += 1
        tokens[r] += need
    return slots, tokens


NEEDS = np.exp(np.random.default_rng(5).normal(7.0, 1.3, 700))  # prompts with a long tail


def test_by_kv_tokens_no_rank_is_above_the_mean_by_more_than_one_request():
    # Graham's bound of list scheduling.
    _, tokens = filled("kv_tokens", NEEDS)
    assert tokens.max() <= tokens.mean() + NEEDS.max()
    others = np.sort(tokens)[:-3]  # all but those that got the longest prompts late
    assert others.max() < 1.1 * tokens.mean()


@pytest.mark.parametrize("name", ["requests", "round_robin"])
def test_by_requests_or_in_turn_ranks_differ_by_one_request_at_most(name):
    slots, tokens = filled(name, NEEDS)
    assert slots.max() - slots.min() <= 1
    assert tokens.max() > 1.2 * tokens.mean()  # and their tokens by what the tail brings


def test_both_together_lie_between():
    filled_by = {name: filled(name, NEEDS) for name in RANK_CHOICES}
    slots, tokens = ({n: f[k].std() for n, f in filled_by.items()} for k in (0, 1))
    assert tokens["kv_tokens"] < tokens["kv_and_requests"] < tokens["requests"]
    assert slots["requests"] < slots["kv_and_requests"] < slots["kv_tokens"]


@pytest.mark.parametrize("name", RANK_CHOICES)
def test_requests_all_alike_are_spread_evenly_by_any_choice(name):
    slots, _ = filled(name, np.full(240, 512.0))
    assert (slots == 10).all()


@pytest.mark.parametrize("name", ["round_robin", "power_of_two", "least_loaded", "session_sticky"])
def test_those_that_take_nobody_have_no_turn(name):
    opened = [1, 0, 0, 0, 0, 1, 0, 0, 1, 0]
    draws = np.random.default_rng(1).random((3000, 2))
    chosen = [
        choose(name, [0] * 10, routed=k, session=k, a=a, b=b, opened=opened)
        for k, (a, b) in enumerate(draws)
    ]
    shares = np.bincount(chosen, minlength=10) / len(chosen)
    assert shares[[0, 5, 8]] == pytest.approx([1 / 3] * 3, abs=0.04)
