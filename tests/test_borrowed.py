"""Pieces of compiled code that are called by their address do what a call by name does."""

import pytest

from twin.borrowed import Piece, prepare, run_piece
from twin.buffers import Columns, column
from twin.compiled import entry


class Tally(Columns):
    """What was added so far."""

    sums = column("f8", "1", "The sum.")


def _add(tally, amount):
    if amount < 0.0:
        raise ValueError("less than nothing")
    tally.sums[0] += amount


ADD = Piece(_add)


@entry
def _repeat(code, tally, times, amount):
    for _ in range(times):
        run_piece(code, tally, amount)


@pytest.fixture
def tally():
    return Tally({})


def test_a_piece_writes_into_the_columns_that_it_borrows(tally):
    prepare(_repeat, int, Tally, int, float)
    _repeat(ADD.code(Tally), tally, 1_000_000, 0.5)  # and leaves nothing on the stack
    assert tally.sums[0] == 500_000.0
    run_piece(ADD.code(Tally), tally, 0.5)  # from Python, as Python
    assert tally.sums[0] == 500_000.5


def test_what_a_piece_raises_reaches_python(tally):
    with pytest.raises(ValueError, match="less than nothing"):
        _repeat(ADD.code(Tally), tally, 3, -1.0)
    assert tally.sums[0] == 0.0
