import pytest

from twin.workload.arrivals import closed_loop_arrivals, first_turns


def test_clients_of_a_ramp_begin_evenly_and_are_let_in_by_the_engine():
    assert first_turns(4, 2.0).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert first_turns(4, 0.0).size == 0
    assert closed_loop_arrivals(2, 3)[:2].tolist() == [0.0, 0.0]
    assert closed_loop_arrivals(2, 3, 1.0).min() == pytest.approx(float("inf"))
