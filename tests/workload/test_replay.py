"""A trace as requests: order kept, copies apart, time squeezed, blocks regrouped."""

import numpy as np
import pytest

from twin.facts import facts_from_tables
from twin.scenario import Trace, Workload
from twin.workload.chains import runs_of
from twin.workload.generate import generate_requests, mean_lengths
from twin.workload.replay import timestamp_quantum
from twin.workload.requests import TraceTable, WorkloadError

FACTS = facts_from_tables({})
CHAINS = [[0, 1], [0, 1, 2], [3], [0, 1, 2, 4, 5]]  # in blocks of 64; the last one partial


def table(arrival_s=(0.0, 3.0, 3.0, 6.0), chains=CHAINS, tokens=(128, 192, 64, 300), **other):
    offset = np.cumsum([0] + [len(c) for c in chains])
    ids = np.array([x for c in chains for x in c], np.int64)
    n = len(arrival_s)
    columns = {
        "arrival_s": np.array(arrival_s, float),
        "input_tokens": np.array(tokens, np.int32),
        "output_tokens": np.full(n, 10, np.int32),
        "session": np.arange(n, dtype=np.int32),
        "blocks": 6,
        "block_tokens": 64,
        "has_prefix": True,
        "has_time": True,
        "source_row": np.arange(1, n + 1),
        "think_s": np.full(n, np.nan),
        "counts": {"dropped: no output tokens": 2},
        "name": "t",
        "format": "test",
    }
    runs = runs_of(offset[:-1], offset[1:], ids)
    names = ("segment_offset", "segment_first", "segment_blocks")
    return TraceTable(**{**columns, **dict(zip(names, runs, strict=True)), **other})


def play(
    trace_table, horizon_s=1e9, seed=1, block_tokens=64, turns="timed", answers=False, **fields
):
    w = Workload(arrivals="trace", turns=turns, trace=Trace(digest="0" * 64, **fields))
    return generate_requests(w, horizon_s, seed, block_tokens, FACTS, trace_table, answers=answers)


def chain(r, i):
    runs = range(r.segment_offset[i], r.segment_offset[i + 1])
    return [int(r.segment_first[s]) + k for s in runs for k in range(r.segment_blocks[s])]


def test_fine_times_stay_and_partial_blocks_go():
    r = play(table(arrival_s=(0, 1, 2.5, 6)))
    assert r.arrival_s.tolist() == [0, 1, 2.5, 6]
    assert [chain(r, i) for i in range(4)] == [[0, 1], [0, 1, 2], [3], [0, 1, 2, 4]]
    assert r.counts == {"dropped: no output tokens": 2}


def test_coarse_times_are_spread_in_order():
    t = table(arrival_s=np.repeat([0.0, 3.0, 6.0], [1, 2, 1]))
    r = play(t)
    assert timestamp_quantum(t.arrival_s) == pytest.approx(3.0)
    assert (r.arrival_s // 3 == [0, 1, 1, 2]).all() and len(set(r.arrival_s)) == 4
    assert r.input_tokens.tolist() == [128, 192, 64, 300]
    assert play(t, dequantise=False).arrival_s.tolist() == [0, 3, 3, 6]


def test_spread_is_uniform_over_the_step():
    n = 4000
    t = table(
        arrival_s=np.repeat([0.0, 2.0], n // 2),
        chains=[[0]] * n,
        tokens=[64] * n,
        output_tokens=np.ones(n, np.int32),
    )
    inside = np.sort(play(t).arrival_s % 2 / 2)
    assert np.abs(inside - np.arange(n) / n).max() < 1.95 / n**0.5  # Kolmogorov, 0.1 %


def test_rate_multiplier_squeezes_time_alone():
    t = table(arrival_s=(0, 1, 2.5, 6))
    fast, slow = play(t, rate_multiplier=4.0), play(t)
    assert (fast.arrival_s == slow.arrival_s / 4).all() and fast.blocks == slow.blocks


def test_copies_share_nothing_and_do_not_coincide():
    t = table(arrival_s=(0, 1, 2.5, 6))
    r = play(t, tree_copies=3)
    assert len(r) == 12 and len(set(r.arrival_s)) == 12 and (np.diff(r.arrival_s) >= 0).all()
    copy = r.session // 4
    seen = [{b for i in np.flatnonzero(copy == c) for b in chain(r, i)} for c in range(3)]
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    assert [len(s) for s in seen] == [5, 5, 5] and max(max(s) for s in seen) < r.blocks


def test_first_copy_is_the_trace_itself():
    t = table(arrival_s=(0, 1, 2.5, 6))
    r = play(t, tree_copies=5)
    assert r.arrival_s[r.session < 4].tolist() == [0, 1, 2.5, 6]


def test_horizon_and_max_requests_are_counted():
    t = table(arrival_s=(0, 1, 2.5, 6))
    r = play(t, horizon_s=3.0, max_requests=2)
    assert len(r) == 2
    assert r.counts["after the horizon"] == 1 and r.counts["beyond max_requests"] == 1


SESSIONS = {"session": np.array([0, 0, 1, 0], np.int32), "arrival_s": np.array([0.0, 1, 2, 6])}


def test_turns_wait_for_the_turn_before_in_their_session_and_copy():
    think = np.array([np.nan, 0.25, np.nan, np.nan])
    r = play(table(**SESSIONS, think_s=think), turns="wait", tree_copies=2, rate_multiplier=2.0)
    assert r.arrival_s.size == 8
    for i in range(8):
        before = r.waits_for[i]
        if before >= 0:
            assert r.session[before] == r.session[i] and before < i
            assert r.pause_s[i] == {192: 0.25, 300: 5.0}[int(r.input_tokens[i])]  # not squeezed
    assert (r.waits_for < 0).sum() == 4
    assert play(table(**SESSIONS)).waits_for is None


def test_sessions_that_begin_in_time_are_kept_whole():
    assert play(table(**SESSIONS), horizon_s=1.5).arrival_s.size == 2
    r = play(table(**SESSIONS), horizon_s=1.5, turns="wait")
    assert r.input_tokens.tolist() == [128, 192, 300] and r.waits_for.tolist() == [-1, 0, 1]


def test_answers_lie_where_the_next_prompt_has_them_and_are_new_where_none_follows():
    chains = [[0, 1], [0, 1, 2, 3], [4], [0, 1, 5, 6, 7]]
    outputs = np.array([70, 130, 64, 0], np.int32)
    t = table(**SESSIONS, chains=chains, tokens=(128, 256, 64, 320), blocks=8,
              output_tokens=outputs)  # fmt: skip
    r = play(t, answers=True)
    assert chain(r, 0) == [0, 1, 2]  # 198 tokens: the block that the second turn has there
    assert chain(r, 1) == [0, 1, 2, 3, 8, 9]  # the third turn went another way
    assert chain(r, 2) == [4, 10] and chain(r, 3) == [0, 1, 5, 6, 7] and r.blocks == 11


def test_finer_blocks_are_joined_exactly():
    r = play(table(arrival_s=(0, 1, 2.5, 6)), block_tokens=128)
    assert r.block_tokens == 128
    assert [chain(r, i) for i in range(4)] == [[0], [0], [], [0, 1]]


def test_coarser_blocks_stay_and_it_is_said():
    r = play(table(arrival_s=(0, 1, 2.5, 6)), block_tokens=32)
    assert r.block_tokens == 64 and "keeps the trace's blocks" in r.notes[0]


def test_without_hashes_nothing_is_shared():
    r = play(table(arrival_s=(0, 1, 2.5, 6), has_prefix=False), block_tokens=32)
    ids = [b for i in range(4) for b in chain(r, i)]
    assert len(ids) == len(set(ids)) == (128 + 192 + 64 + 288) // 32 and not r.has_prefix


def test_without_times_arrivals_are_poisson_at_the_rate():
    r = play(table(arrival_s=(0, 0, 0, 0), has_time=False))
    assert (np.diff(r.arrival_s) > 0).all() and "lengths only" in r.notes[0]


def test_seed_and_means():
    t = table()
    assert play(t).arrival_s.tolist() == play(t).arrival_s.tolist()
    assert play(t).arrival_s.tolist() != play(t, seed=2).arrival_s.tolist()
    w = Workload(arrivals="trace", trace=Trace(digest="0" * 64))
    assert mean_lengths(w, FACTS, t)[:2] == (171.0, 10.0)


def test_a_missing_trace_or_a_flood_is_refused():
    w = Workload(arrivals="trace")
    with pytest.raises(WorkloadError, match="load its file first"):
        generate_requests(w, 10.0, 1, 128, FACTS)
    big = table(
        arrival_s=np.arange(20_000.0), chains=[[]] * 20_000, tokens=[1] * 20_000, has_prefix=False
    )
    with pytest.raises(WorkloadError, match="take fewer copies"):
        play(big, tree_copies=4096)


def test_digest_names_the_content():
    assert table().digest == table(name="other").digest
    assert table().digest != table(tokens=(128, 192, 64, 301)).digest
    known = [table(think_s=np.array([np.nan, pause, 1.0, 2.0])) for pause in (0.5, 0.6)]
    assert len({t.digest for t in known} | {table().digest}) == 3  # turns may wait by them
    assert {t.plain_digest for t in known} == {table().digest} == {table().plain_digest}
