"""A capacity for tests of what does not read it: a search takes fifty simulations. And a search
that takes a third of the time, for those that do not judge how sure it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.draws import FACTOR
from twin.lab.explain import capacity
from twin.lab.explain.capacity import Capacity
from twin.lab.explain.view import load_of
from twin.scenario import Scenario


def searched(s: Scenario, *_: Any) -> Capacity:
    """The scenario's own load, as if it were the largest."""
    path, load = load_of(s)
    return Capacity(path, load, load, load, runs=0, held=load)


@contextmanager
def ends_soon() -> Iterator[None]:
    """In the suite, a search ends within 3 % where 1.5 % is usual, and the runs that judge its ends
    are half as many, never more, and a quarter as long: a real search all the same.
    tests/lab/test_capacity.py says how its ends are judged, `make long` how well."""
    with pytest.MonkeyPatch.context() as patch:
        if FACTOR == 1:
            patch.setattr(capacity, "LONGER", capacity.LONGER // 4)
            patch.setattr(capacity, "FEWER", capacity.FEWER // 2)
            patch.setattr(capacity, "MANY", capacity.FEWER // 2)
            patch.setattr(capacity, "CLOSE", capacity.CLOSE**2)
        yield
