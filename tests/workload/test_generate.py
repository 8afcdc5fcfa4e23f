"""Requests made from a workload section: rates, lengths, sharing, and what changes what."""

import math

import numpy as np
import pytest

from twin.facts import FactError, facts_from_tables
from twin.scenario import Workload
from twin.workload.generate import WorkloadError, generate_requests, mean_lengths


def fact(value, unit=""):
    return {"value": value, "unit": unit, "source": "test", "mark": "e"}


FACTS = facts_from_tables(
    {
        "sessions": {
            "turn_gap_sigma": fact(1.0),
            "candidates": fact(160),
            "head_tokens": fact(256),
        },
        "workloads": {
            "test": {
                "levels": fact([0, 0.25, 0.5, 0.75, 1]),
                "input": fact([100, 1000, 2000, 4000, 9000], "tokens"),
                "output": fact([1, 50, 100, 300, 1000], "tokens"),
            }
        },
    }
)


def make(horizon_s=1000.0, seed=1, block_tokens=128, count=None, **fields):
    return generate_requests(Workload(**fields), horizon_s, seed, block_tokens, FACTS, count=count)


def chain(r, i):
    runs = range(r.segment_offset[i], r.segment_offset[i + 1])
    return [r.segment_first[s] + k for s in runs for k in range(r.segment_blocks[s])]


def hit_tokens(r):
    seen = np.zeros(r.blocks, bool)
    hit = 0
    for i in range(len(r)):
        ids = np.array(chain(r, i), np.int64)
        hit += int(np.cumprod(seen[ids]).sum()) * r.block_tokens
        seen[ids] = True
    return hit


@pytest.mark.parametrize(("arrivals", "cv"), [("poisson", 1.0), ("gamma", 3.0), ("gamma", 0.3)])
def test_gaps_have_the_asked_rate_and_variation(arrivals, cv):
    r = make(arrivals=arrivals, rate_req_per_s=50.0, cv=cv)
    gaps = np.diff(r.arrival_s, prepend=0.0)
    assert len(r) / 1000.0 == pytest.approx(50.0, abs=5 * cv * (50.0 / 1000.0) ** 0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)
    assert (np.diff(r.arrival_s) >= 0).all() and r.arrival_s[-1] < 1000.0


def test_uniform_arrivals_are_evenly_spaced():
    r = make(horizon_s=2.0, arrivals="uniform", rate_req_per_s=4.0)
    assert r.arrival_s.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def test_closed_loop_lets_the_first_clients_in():
    r = make(count=5, arrivals="closed_loop", concurrency=3)
    assert r.arrival_s.tolist() == [0.0, 0.0, 0.0, np.inf, np.inf]
    with pytest.raises(WorkloadError, match="needs a count"):
        make(arrivals="closed_loop")


def test_unshared_prompts_own_their_whole_blocks():
    r = make(horizon_s=1.0, arrivals="uniform", rate_req_per_s=3.0, input_tokens=300)
    assert [chain(r, i) for i in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert r.blocks == 6 and not r.has_prefix


def test_count_cuts_but_does_not_change():
    few, many = make(count=10), make()
    assert (few.arrival_s == many.arrival_s[:10]).all() and len(few) == 10


def test_a_flood_is_refused():
    with pytest.raises(WorkloadError, match="lower the rate or the horizon"):
        make(horizon_s=1e5, rate_req_per_s=1e5)


def test_another_seed_gives_other_arrivals():
    assert make(seed=1).arrival_s[0] != make(seed=2).arrival_s[0]


def test_one_aspect_leaves_the_others_alone():
    base = make(lengths="test")
    for change in ({"prefix": "sessions"}, {"prefix": "shared"}, {"arrivals": "gamma", "cv": 2.0}):
        other = make(lengths="test", **change)
        n = min(len(base), len(other))
        assert (base.input_tokens[:n] == other.input_tokens[:n]).all()
        assert (base.output_tokens[:n] == other.output_tokens[:n]).all()
        if "prefix" in change:
            assert (base.arrival_s == other.arrival_s).all()


def test_fitted_lengths_have_the_quantiles_of_their_table():
    r = make(lengths="test")
    got = np.percentile(r.input_tokens, [25, 50, 75])
    assert got == pytest.approx([1000, 2000, 4000], rel=0.02)
    mean = np.array(mean_lengths(Workload(lengths="test"), FACTS)[:2])
    sample = r.input_tokens.mean(), r.output_tokens.mean()
    assert sample == pytest.approx(mean, rel=0.02)


def test_a_range_is_drawn_evenly_between_its_ends_each_side_by_itself():
    said = {"lengths": "range", "input_tokens": 1000, "output_tokens": 500, "shortest": 0.6}
    r = make(**said)
    for tokens, most in ((r.input_tokens, 1000), (r.output_tokens, 500)):
        assert tokens.min() >= 0.6 * most and tokens.max() <= most
        assert tokens.mean() == pytest.approx(0.8 * most, rel=0.01)
        assert np.std(tokens) == pytest.approx(0.4 * most / math.sqrt(12.0), rel=0.05)
    assert abs(np.corrcoef(r.input_tokens, r.output_tokens)[0, 1]) < 0.05
    assert mean_lengths(Workload(**said), FACTS)[:2] == pytest.approx((800.0, 400.0))
    whole = make(**said | {"shortest": 1.0})
    assert set(whole.input_tokens) == {1000} and set(whole.output_tokens) == {500}


def test_unknown_lengths_name_what_there_is():
    with pytest.raises(FactError, match="there are: test"):
        make(lengths="nonsense")


def test_shared_prefix_takes_its_fraction_in_whole_blocks():
    r = make(horizon_s=100.0, prefix="shared", shared_fraction=0.5, prefix_groups=4)
    assert {len(chain(r, i)) for i in range(50)} == {32}
    groups = {tuple(chain(r, i)[:16]) for i in range(len(r))}
    assert len(groups) == 4 and r.blocks == 4 * 16 + 16 * len(r)
    ideal = 0.5 * (1 - 4 / len(r))
    assert hit_tokens(r) / r.input_tokens.sum() == pytest.approx(ideal, rel=1e-9)


def test_sessions_extend_their_last_turn():
    r = make(horizon_s=400.0, rate_req_per_s=20, lengths="test", prefix="sessions", turn_gap_s=10)
    last = {}
    followed = 0
    for i in range(len(r)):
        before = last.get(r.session[i])
        if before is not None:
            followed += 1
            ids, old = chain(r, i), chain(r, before)
            assert ids[: len(old)] == old
            assert r.input_tokens[i] > r.input_tokens[before] + r.output_tokens[before]
        last[r.session[i]] = i
        assert len(chain(r, i)) == r.input_tokens[i] // 128
    assert followed / len(r) == pytest.approx(0.4, abs=0.03)


def test_turns_that_wait_are_those_that_would_come_at_their_time():
    """Waiting changes no prompt: only what a turn's arrival means."""
    asked = {"rate_req_per_s": 20, "lengths": "test", "prefix": "sessions", "turn_gap_s": 10}
    timed, waiting = (make(horizon_s=400.0, turns=turns, **asked) for turns in ("timed", "wait"))
    assert (timed.input_tokens == waiting.input_tokens).all() and timed.waits_for is None
    later = np.flatnonzero(waiting.waits_for >= 0)
    before = waiting.waits_for[later]
    assert (waiting.session[before] == waiting.session[later]).all() and (before < later).all()
    assert len(set(before)) == before.size  # a turn has one next turn
    gaps = waiting.arrival_s[later] - waiting.arrival_s[before]
    assert (waiting.pause_s[later] == gaps).all()


def test_tools_ask_sooner_than_people():
    asked = {"rate_req_per_s": 50, "input_tokens": 100, "prefix": "sessions", "turn_gap_s": 40}
    gaps = {}
    for share in (0.0, 0.5, 1.0):
        r = make(horizon_s=1000.0, turns="wait", tool_share=share, tool_gap_s=2.0, **asked)
        gaps[share] = r.pause_s[r.waits_for >= 0]
    assert np.median(gaps[0.0]) == pytest.approx(40, rel=0.15)
    assert np.median(gaps[1.0]) == pytest.approx(2.0, rel=0.3)
    assert (gaps[0.5] < 9.0).mean() == pytest.approx(0.5, abs=0.06)


def test_chains_with_answers_begin_with_the_prompts_and_go_on_in_the_next_turn():
    asked = {"rate_req_per_s": 20, "lengths": "test", "prefix": "sessions", "turn_gap_s": 10}
    workload = Workload(turns="wait", **asked)
    r = generate_requests(workload, 400.0, 1, 128, FACTS, answers=True)
    for i in range(len(r)):
        ids = chain(r, i)
        assert len(ids) == (r.input_tokens[i] + r.output_tokens[i]) // 128
        before = r.waits_for[i]
        if before >= 0:
            own = chain(r, before)
            assert ids[: len(own)] == own


def test_session_gaps_have_their_median():
    r = make(horizon_s=3000.0, rate_req_per_s=5, lengths="test", prefix="sessions", turn_gap_s=20)
    order = np.lexsort((r.arrival_s, r.session))
    same = np.diff(r.session[order]) == 0
    gaps = np.diff(r.arrival_s[order])[same]
    assert np.percentile(gaps, [25, 50, 75]) == pytest.approx([10.2, 20, 39.3], rel=0.12)


def test_sessions_of_fixed_lengths_grow_to_their_mean():
    w = {"prefix": "sessions", "turn_gap_s": 5.0, "follow_up_probability": 0.5}
    r = make(**w, rate_req_per_s=100)
    mean, *_ = mean_lengths(Workload(**w), FACTS)
    assert mean == pytest.approx((4096 + 0.5 * 256) / 0.5)
    assert r.input_tokens.mean() == pytest.approx(mean, rel=0.03)


def test_closed_loop_sessions_follow_the_same_client():
    r = make(count=4000, arrivals="closed_loop", concurrency=100, prefix="sessions", lengths="test")
    _, turns = np.unique(r.session, return_counts=True)
    assert (turns > 1).any() and 1 - turns.size / len(r) == pytest.approx(0.4, abs=0.05)


def test_head_is_common_to_all_sessions():
    r = make(horizon_s=50.0, lengths="test", prefix="sessions")
    assert {tuple(chain(r, i)[:2]) for i in range(len(r)) if r.input_tokens[i] >= 256} == {(0, 1)}
