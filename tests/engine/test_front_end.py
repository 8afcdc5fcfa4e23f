"""Front end: a hand trace, and first come, first served at equal service against a heap."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.engine.clients.arrivals import front_end_end_s


def leave(arrivals, servers, service, done=front_end_end_s):
    out = []
    for i, arrival in enumerate(arrivals):
        out.append(done(arrival, out[i - servers] if i >= servers else 0.0, service))
    return out


def test_d_d_1_by_hand():
    assert leave([0.0, 1.0, 2.0, 9.0], 1, 2.0) == [2.0, 4.0, 6.0, 11.0]
    assert leave([0.0, 1.0, 2.0, 9.0], 2, 2.0) == [2.0, 3.0, 4.0, 11.0]


@draws(100)
@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=60).map(sorted),
    st.integers(1, 5),
    st.floats(0, 20),
)
def test_the_server_free_first_takes_the_next(arrivals, servers, service):
    free = [0.0] * servers
    expected = []
    for arrival in arrivals:
        expected.append(max(arrival, heapq.heappop(free)) + service)
        heapq.heappush(free, expected[-1])
    found = leave(arrivals, servers, service)
    assert found == expected == leave(arrivals, servers, service, compiled(front_end_end_s))


@pytest.mark.parametrize("service", [0.5, 3.0])
def test_one_more_server_or_a_shorter_service_delays_nobody(service):
    arrivals = [0.37 * k % 11 for k in range(40)]
    arrivals.sort()
    slow = leave(arrivals, 2, service)
    assert all(a <= b for a, b in zip(leave(arrivals, 3, service), slow, strict=True))
    assert all(a <= b for a, b in zip(leave(arrivals, 2, 0.9 * service), slow, strict=True))
