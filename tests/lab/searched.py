"""A capacity for tests of what does not read it: a search takes fifty simulations."""

from typing import Any

from twin.lab.explain.capacity import Capacity
from twin.lab.explain.view import load_of
from twin.scenario import Scenario


def searched(s: Scenario, *_: Any) -> Capacity:
    """The scenario's own load, as if it were the largest."""
    path, load = load_of(s)
    return Capacity(path, load, load, load, runs=0, held=load)
