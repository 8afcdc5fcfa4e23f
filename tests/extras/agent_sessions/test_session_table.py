"""The parquet of recorded sessions: whatever stands in it, a table or one sentence."""

import json
import random

import polars as pl
import pytest

from twin.lab.traces.reader import read_trace, trace_figures
from twin.lab.traces.source import TraceError

SOUND = {
    "trace": ["a", "a", "b"],
    "subagent": [0, 1, 0],
    "t": [0.0, 4.0, 0.0],
    "input_length": [128, 200, 64],
    "output_length": [1, 2, 3],
    "think_time": [0.5, None, 1.0],
    "hash_ids": [[1, 2], [1, 2, 3], []],
}


def written(tmp_path, **changes):
    path = tmp_path / "t.parquet"
    pl.DataFrame(SOUND | changes, strict=False).write_parquet(path)
    return path


def test_a_sound_table_is_read(tmp_path):
    t = read_trace(written(tmp_path))
    assert sorted(t.input_tokens.tolist()) == [64, 128, 200]
    assert (t.blocks, t.block_tokens) == (3, 64)


def test_hashes_of_any_width_name_the_same_blocks(tmp_path):
    high = 2**64 - 1
    wide = read_trace(written(tmp_path, hash_ids=[[high, 2], [high, 2, 3], []]))
    assert wide.digest == read_trace(written(tmp_path)).digest


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"t": ["a", "b", "c"]}, "t is of type String"),
        ({"t": [float("nan"), 0.0, 0.0]}, "row 1: t = nan must be a time from 0 on"),
        ({"t": [0.0, None, 0.0]}, "row 2: t is empty"),
        ({"t": [0.0, -1.0, 0.0]}, "row 2: t = -1.0"),
        ({"input_length": [1, 2, 2**40]}, "row 3: input_length = 1099511627776 must be a whole"),
        ({"input_length": [1.5, 2.0, 3.0]}, "row 1: input_length = 1.5"),
        ({"output_length": [-5, 2, 3]}, "row 1: output_length = -5"),
        ({"think_time": ["x", "y", "z"]}, "think_time is of type String"),
        ({"trace": [None, None, None]}, "trace is of type Null"),
        ({"trace": [None, "a", "a"]}, "every row must name its trace"),
        ({"trace": [[1], [2], [3]]}, "trace is of type List"),
        ({"subagent": ["x", "y", "z"]}, "subagent is of type String"),
        ({"hash_ids": [1, 2, 3]}, "hash_ids is of type Int64"),
        ({"hash_ids": [["a"], [], []]}, "hash_ids is of type List"),
        ({"hash_ids": [None, [1], []]}, "must have a list of hash_ids"),
        ({"hash_ids": [[None, 1], [1], []]}, "some are missing"),
        ({name: [] for name in SOUND}, "hash_ids is of type Null"),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path, changes, said):
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, **changes))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_damaged_table_is_read_or_refused_and_nothing_else(tmp_path):
    data = written(tmp_path).read_bytes()
    chance, path = random.Random(1), tmp_path / "damaged.parquet"
    refused = 0
    for _ in range(150):
        broken = bytearray(data)
        broken[chance.randrange(4, len(data))] = chance.randrange(256)
        path.write_bytes(broken)
        try:
            json.dumps(trace_figures(read_trace(path)), allow_nan=False)
        except TraceError:
            refused += 1
    assert refused > 10
