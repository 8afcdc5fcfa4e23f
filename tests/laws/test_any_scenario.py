"""Every law holds on any valid scenario: a few in the suite, five thousand in `make long`."""

import pytest

from tests.draws import some
from tests.laws.any_scenario import outcome

BLOCKS = [range(first, first + 100) for first in range(0, 5000, 100)]
# Numbers that once broke a law, or took the twin for ever.
ONCE_BROKEN: list[int] = []


@pytest.mark.parametrize("numbers", some([range(4), ONCE_BROKEN], *BLOCKS), ids=str)
def test_any_valid_scenario_keeps_every_law_or_is_refused_in_a_sentence(numbers):
    for number in numbers:
        assert "\n" not in outcome(number), number
