"""A table of pieces is the pieces one below the other."""

import numpy as np
import polars as pl

from twin.engine.tabling import stack_pieces

SCHEMA = {"role": pl.String, "place": pl.Int32, "share": pl.Float64}


def test_pieces_stand_below_each_other():
    pieces = [
        {"role": "prefill", "place": np.array([4, 2]), "share": np.array([0.25, 0.75])},
        {"role": None, "place": np.array([7]), "share": np.array([1.0])},
    ]
    one_by_one = [pl.DataFrame(piece | {"role": pl.Series([piece["role"]] * n, dtype=pl.String)})
                  for piece, n in zip(pieces, (2, 1), strict=True)]  # fmt: skip
    apart = pl.concat(one_by_one).cast(SCHEMA)
    assert stack_pieces(SCHEMA, pieces).equals(apart, null_equal=True)


def test_no_piece_is_an_empty_table_of_the_same_columns():
    empty = stack_pieces(SCHEMA, [])
    assert empty.height == 0 and dict(empty.schema) == SCHEMA


def test_nan_is_null_where_gaps_are_meant_and_stays_where_not():
    piece = {"role": "decode", "place": np.array([1, 2]), "share": np.array([np.nan, 0.5])}
    with_gaps, without = (stack_pieces(SCHEMA, [piece], gaps)["share"] for gaps in (True, False))
    assert with_gaps.to_list() == [None, 0.5]
    assert without.null_count() == 0 and without.is_nan().to_list() == [True, False]
