"""KV hand-off: the paper's rank mapping, and equal shares of ports."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.engine.contention.kv_transfer import sending_rank, shared_rate


def test_each_prefill_rank_feeds_ten_decode_ranks():
    # arXiv 2506.12708v2 section 4.3.3: 32 prefill and 320 decode ranks.
    senders = [sending_rank(d, 320, 32) for d in range(320)]
    assert Counter(senders) == dict.fromkeys(range(32), 10)
    assert senders == sorted(senders)


@draws(100)
@given(st.integers(1, 400), st.integers(1, 400))
def test_senders_exist_and_share_the_work_evenly(decode_ranks, prefill_ranks):
    senders = [sending_rank(d, decode_ranks, prefill_ranks) for d in range(decode_ranks)]
    fed = Counter(senders)
    assert min(senders) >= 0 and max(senders) < prefill_ranks
    assert max(fed.values()) <= -(-decode_ranks // prefill_ranks)
    assert senders == [compiled(sending_rank)(d, decode_ranks, prefill_ranks)
                       for d in range(decode_ranks)]  # fmt: skip


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
