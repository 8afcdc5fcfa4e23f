"""Compiled code reads and writes columns as Python does."""

import numpy as np
import pytest
from numba import config, njit

from twin.kernels import borrowed  # noqa: F401 - tells numba what columns are
from twin.kernels.buffers import Columns, column
from twin.kernels.compiled import entry


class Board(Columns):
    """Cells of two types of numbers."""

    cells = column("i4", "3, 4", "Cells.")
    sums = column("f8", "3", "Their sums.")
    narrow = column("i1", "4", "Small numbers.")


@entry
def _fill_board(board, cells):
    for row in range(board.cells.shape[0]):
        for k in range(board.cells.shape[1]):
            board.cells[row, k] = cells[row, k] - board.narrow[k]
            board.sums[row] += board.cells[row, k]  # a number of another type, of one just written
        board.cells[row, 0] += 1
    return board.cells[1, 2] + board.cells[2].sum()


@entry
def _wide(board):
    return board.cells[0, 0] + 0, board.narrow[0], board.narrow[1:][0]


def test_integers_of_columns_are_read_as_64_bits_wide():
    board = Board({})
    board.narrow[:] = (-3, 4, 0, 0)
    assert _wide(board) == (0, -3, 4)
    (signature,) = _wide.nopython_signatures
    assert [str(kind) for kind in signature.return_type] == ["int64", "int64", "int8"]


def test_compiled_code_reads_and_writes_the_numbers_of_columns():
    board = Board({})
    board.narrow[:] = [-1, 0, 1, 2]
    cells = np.arange(12).reshape(3, 4)
    answer = _fill_board(board, cells)
    expected = cells - board.narrow
    np.testing.assert_array_equal(board.sums, expected.sum(axis=1))
    expected[:, 0] += 1
    np.testing.assert_array_equal(board.cells, expected)
    assert answer == expected[1, 2] + expected[2].sum()


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_a_column_has_no_index_that_counts_from_its_end():
    @njit
    def last(board):
        return board.sums[-1]

    with pytest.raises(IndexError, match="counts from its front"):
        last(Board({}))
