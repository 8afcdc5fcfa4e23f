"""How many draws a test makes: a seeded few in the suite, many more and new ones in `make long`.

TWIN_DRAWS is the factor that `make long` sets. With 1 the draws are the same every time.
"""

import os
from typing import Any

import pytest
from hypothesis import settings

FACTOR = int(os.environ.get("TWIN_DRAWS", "1"))
# Whether tests that carry the mark `long` are made at all: tests/conftest.py looks what pytest is
# asked for. Two of five would be made to be left out.
LONG = True

# Of so many examples of a test and more, the suite takes these: the first is the simplest there is.
MANY, KEPT = 20, 3


def draws(many: int, **more: Any) -> settings:
    """Settings of a hypothesis test that draws so many examples times FACTOR, a few of them in the
    suite.
    """
    count = KEPT if FACTOR == 1 and many >= MANY else many * FACTOR
    return settings(
        max_examples=count, derandomize=FACTOR == 1, deadline=None, database=None, **more
    )


def some(few: list[Any], *others: Any) -> list[Any]:
    """Parameters: a few that the suite takes, and others that only `make long` does."""
    more = others if LONG else ()
    return [*few, *(pytest.param(other, marks=pytest.mark.long) for other in more)]


def seeds(few: int) -> list[Any]:
    """Seeds for parametrize: the first few in the suite, all of TWIN_DRAWS in `make long`."""
    return some([*range(few)], *range(few, few * FACTOR))
