"""KV hand-off: the paper's rank mapping, and ports that transfers share max-min fairly."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws, some
from tests.engine.small import small
from tests.hardware.max_min import Flow, max_min
from tests.jit import compiled
from twin.engine import codes as w
from twin.engine.build import build_world
from twin.engine.columns import Transfers
from twin.engine.contention.kv_transfer import (
    IN,
    OUT,
    advance_transfers,
    die_bytes,
    sender_of,
    sending_die,
    set_rates,
)  # fmt: skip
from twin.engine.contention.traffic import mean_exchange_slowdown
from twin.engine.lifecycle.machine import Machine
from twin.engine.lists import append
from twin.engine.setup import set_up
from twin.lab.library import load_facts


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


def parts(pairs: list[tuple[int, int]], capacity: list[float]) -> Transfers:
    """Parts of transfers from port to port, all in flight."""
    ports = len(capacity)
    one = np.zeros((1, 1), np.int32)
    sizes = {"parts_sent": len(pairs), "transfers": len(pairs), "ports": ports}
    rates = np.array(capacity)
    state = Transfers(
        sizes, capacity=rates, granted=rates.copy(), port_of_prefill=one, port_of_decode=one
    )
    for k, (a, b) in enumerate(pairs):
        state.port_out[k], state.port_in[k] = a, b
        state.crossing[OUT, a] += 1
        state.crossing[IN, b] += 1
    state.active[0] = len(pairs)
    return state


def fair(pairs: list[tuple[int, int]], capacity: list[float]) -> np.ndarray:
    """The same rates by the oracle."""
    both = {(way, port): c for way in (OUT, IN) for port, c in enumerate(capacity)}
    return max_min([Flow({(OUT, a): 1.0, (IN, b): 1.0}) for a, b in pairs], both)


@pytest.mark.parametrize(
    ("pairs", "rates"),
    [
        ([(0, 1)], [8.0]),
        ([(0, 1), (0, 2), (0, 3), (0, 3)], [2.0] * 4),
        ([(0, 1), (0, 2), (3, 2), (4, 2), (5, 2)], [6.0, 2.0, 2.0, 2.0, 2.0]),
        ([(0, 6)], [0.0]),
    ],
)
def test_what_a_full_port_holds_back_is_for_others_of_the_other_port(pairs, rates):
    state = parts(pairs, [8.0] * 6 + [0.0])
    set_rates(state)
    assert state.rate == pytest.approx(rates)


PORTS = st.integers(0, 4)


@given(
    st.lists(st.tuples(PORTS, PORTS), min_size=1, max_size=30),
    st.lists(st.sampled_from([0.0, 1.0, 2.5, 7.0]), min_size=5, max_size=5),
)
@draws(200)
def test_rates_are_max_min_fair_and_no_port_carries_more_than_it_can(pairs, capacity):
    state = parts(pairs, capacity)
    set_rates(state)
    assert state.rate == pytest.approx(fair(pairs, capacity), rel=1e-9, abs=1e-12)
    out, into = np.array(pairs).T
    for way, port in ((OUT, out), (IN, into)):
        used = np.bincount(port, state.rate, len(capacity))
        left = np.array(capacity) - used
        assert (left >= -1e-9).all()
        assert state.rest[way, port] == pytest.approx(left[port], abs=1e-9)


@pytest.mark.parametrize("seed", some([0, 1, 2], *range(3, 50)))
def test_transfers_end_when_a_fluid_that_is_shared_max_min_fairly_does(seed):
    """Forty transfers that begin at random times between random ports of random rates."""
    rng, count = np.random.default_rng(seed), 40
    setup = set_up(small({"memory_pool.enabled": False}), load_facts(), None)
    world = Machine(setup, load_facts(), build_world(setup)).world
    state, request = world.transfer, world.request
    state.capacity[:] = rng.choice([5e9, 20e9, 50e9], state.capacity.size)
    begin_s = np.sort(rng.uniform(0.0, 0.05, count))
    request.rank[:count] = rng.integers(world.decode.context.size, size=count)
    request.prefill_instance[:count] = rng.integers(2, size=count)
    request.input_tokens[:count] = rng.integers(200, 20_000, count)
    request.output_tokens[:count] = 100
    request.ready_s[:count] = begin_s
    for i in range(count):
        append(state.unsent, 0, request.following, i)
    sizes = np.array([die_bytes(world, i) for i in range(count)])
    senders = [int(state.port_of_prefill[request.prefill_instance[i], sender_of(world, i, 0)])
               for i in range(count)]  # fmt: skip
    pairs = [(senders[i], int(state.port_of_decode[request.rank[i], 0])) for i in range(count)]
    step = 0
    while world.record.counters[w.TRANSFERRED] < count:
        step += 1
        advance_transfers(world, step * 5e-3)
    ends_s = fluid(begin_s, sizes, pairs, state.capacity.tolist())
    assert len({port for port, _ in pairs}) < count / 2  # ports are shared
    assert request.ready_s[:count] == pytest.approx(ends_s, rel=1e-9, abs=1e-8)


def fluid(
    begin_s: np.ndarray, sizes: np.ndarray, pairs: list[tuple[int, int]], capacity: list[float]
) -> np.ndarray:
    """End of each transfer (s) if all that are under way share their ports max-min fairly."""
    left, ends_s, now_s = sizes.astype(float), np.full(sizes.size, np.inf), 0.0
    while np.isinf(ends_s).any():
        going = [i for i in range(sizes.size) if begin_s[i] <= now_s and np.isinf(ends_s[i])]
        rates = fair([pairs[i] for i in going], capacity) if going else np.zeros(0)
        due_s = [now_s + left[i] / rate for i, rate in zip(going, rates, strict=True)]
        next_s = min([*due_s, *begin_s[begin_s > now_s]])
        for i, rate, end_s in zip(going, rates, due_s, strict=True):
            left[i] -= rate * (next_s - now_s)
            if end_s <= next_s:
                ends_s[i] = next_s
        now_s = next_s
    return ends_s


def test_an_exchange_is_prolonged_by_the_mean_share_that_it_had_since_the_pass_before():
    setup = set_up(small({"supernode.scale_up": "node"}), load_facts(), None)
    world = Machine(setup, load_facts(), build_world(setup)).world
    assert world.settings.kv_among_experts
    column = world.settings.prefills
    assert mean_exchange_slowdown(world, column) == 1.0
    world.instance.port_times_s[column] = 0.05, 0.01  # a fifth of the time was others'
    assert mean_exchange_slowdown(world, column) == pytest.approx(1.25)
    assert mean_exchange_slowdown(world, column) == 1.0  # it is forgotten
