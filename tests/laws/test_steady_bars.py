"""Thirty random deployments against hours of simulation: `steady_bars` measures, this judges."""

import pytest

from tests.laws.steady_bars import one_capacity, overload, steady_start

pytestmark = pytest.mark.long


@pytest.mark.parametrize("number", range(30))
def test_minutes_from_the_steady_state_say_what_two_hours_from_an_empty_machine_say(number):
    assert not steady_start(number)["misses"]


@pytest.mark.parametrize("number", range(20))
def test_one_capacity_is_that_of_runs_of_an_hour(number):
    assert not one_capacity(number)["misses"]


@pytest.mark.parametrize("number", range(20))
def test_what_is_beyond_the_capacity_is_called_overloaded(number):
    assert not overload(number)["misses"]
