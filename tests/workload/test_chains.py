"""Chain ids and regrouping against plain-Python twins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.workload.chains import expand_runs, join_blocks, number_chains, runs_of

compiles = draws(60)
ROWS = st.lists(st.lists(st.integers(-3, 3), max_size=8), min_size=1, max_size=8)


def laid_out(rows):
    offset = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    return offset, np.array([x for r in rows for x in r], np.int64)


def chains_in_python(rows, scopes, size=1):
    names = {}
    out = []
    for row, scope in zip(rows, scopes, strict=True):
        ends = range(size, len(row) + 1, size)
        out.append([names.setdefault((scope, tuple(row[:k])), len(names)) for k in ends])
    return out, len(names)


@compiles
@given(ROWS, st.integers(1, 8))
def test_ids_stand_for_the_whole_beginning(rows, apart):
    scopes = [i % apart for i in range(len(rows))]
    offset, ids = laid_out(rows)
    distinct = number_chains(offset[:-1], offset[1:], np.array(scopes, np.int64), ids)
    expected, names = chains_in_python(rows, scopes)
    assert ids.tolist() == [x for row in expected for x in row] and distinct == names


def test_the_table_grows():
    ids = np.arange(100_000, dtype=np.int64)[::-1].copy()
    begin, end = np.array([0, 0]), np.array([100_000, 0])
    assert number_chains(begin, end, np.zeros(2, np.int64), ids) == 100_000
    assert (ids == np.arange(100_000)).all()


@compiles
@given(ROWS)
def test_runs_expand_to_what_they_were_made_of(rows):
    offset, ids = laid_out(rows)
    runs = runs_of(offset[:-1], offset[1:], ids)
    again, expanded = expand_runs(*runs)
    assert again.tolist() == offset.tolist() and expanded.tolist() == ids.tolist()


@compiles
@given(ROWS, st.integers(1, 4))
def test_regrouping_keeps_chain_identity(rows, size):
    offset, ids = laid_out(rows)
    number_chains(offset[:-1], offset[1:], np.zeros(len(rows), np.int64), ids)
    groups = np.diff(offset) // size
    new_offset, new_ids, distinct = join_blocks(offset, ids, groups, size)
    expected, names = chains_in_python(rows, [0] * len(rows), size)
    assert np.diff(new_offset).tolist() == [len(r) for r in expected]
    assert new_ids.tolist() == [x for row in expected for x in row] and distinct == names
