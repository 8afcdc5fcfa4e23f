"""KV hand-off: the paper's rank mapping, and equal shares of ports."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.engine.contention.kv_transfer import sending_die, shared_rate


def senders_of(ranks: int, dies: int, senders: int, of: int) -> list[list[int]]:
    """The prefill die that sends to each die of each decode rank."""
    return [[sending_die(r, ranks, k, dies, senders, of) for k in range(dies)]
            for r in range(ranks)]  # fmt: skip


def test_each_prefill_rank_feeds_ten_decode_ranks():
    # arXiv 2506.12708v2 section 4.3.3: 32 prefill and 320 decode ranks.
    senders = sum(senders_of(320, 1, 1, 32), [])
    assert Counter(senders) == dict.fromkeys(range(32), 10)
    assert senders == sorted(senders)


def test_dies_of_a_rank_draw_from_as_many_prefill_dies():
    """As there: group = rank // (ranks / (prefill dies / dies)), sender = group * dies + die."""
    for r, senders in enumerate(senders_of(16, 4, 4, 32)):
        assert senders == [r // 2 * 4 + die for die in range(4)]
    # SGLang: where prefill has fewer, consecutive decode dies draw from the same one.
    assert senders_of(1, 8, 2, 2) == [[0, 0, 0, 0, 1, 1, 1, 1]]


@draws(100)
@given(st.integers(1, 400), st.integers(1, 32), st.integers(1, 400), st.data())
def test_senders_exist_and_share_the_work_evenly(ranks, dies, of, data):
    senders = data.draw(st.integers(1, min(dies, of)))
    rows = senders_of(ranks, dies, senders, of)
    fed = Counter(sum(rows, []))
    assert min(fed) >= 0 and max(fed) < of
    assert all(len(set(row)) == senders for row in rows)
    assert max(fed.values()) <= -(-ranks // (of // senders)) * -(-dies // senders)
    assert rows[-1][-1] == compiled(sending_die)(ranks - 1, ranks, dies - 1, dies, senders, of)


@pytest.mark.parametrize(
    ("out", "into", "rate"),
    [((8.0, 1), (8.0, 1), 8.0), ((8.0, 4), (8.0, 2), 2.0), ((8.0, 1), (3.0, 2), 1.5)],
)
def test_a_transfer_gets_its_share_of_the_busier_port(out, into, rate):
    assert shared_rate(*out, *into) == rate == compiled(shared_rate)(*out, *into)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
@draws(100)
def test_no_port_carries_more_than_it_can(flows):
    out, into = Counter(a for a, _ in flows), Counter(b for _, b in flows)
    rates = [shared_rate(5.0, out[a], 7.0, into[b]) for a, b in flows]
    for port in range(4):
        sent = sum(r for r, (a, _) in zip(rates, flows, strict=True) if a == port)
        received = sum(r for r, (_, b) in zip(rates, flows, strict=True) if b == port)
        assert sent <= 5.0 * (1 + 1e-12) and received <= 7.0 * (1 + 1e-12)
