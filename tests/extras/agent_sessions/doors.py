"""Sound files, for the tests of all readers of traces."""

import io
import json

import polars as pl


def session(name="s", blocks=(3, 5), size=64, **other):
    requests = [
        {"t": 10.0 * i, "type": "s", "in": n * size + 7, "out": 20, "think_time": 3.0}
        | {"hash_ids": list(range(1, n + 1))}
        for i, n in enumerate(blocks)
    ]
    body = {"id": name, "block_size": size, "hash_id_scope": "local", "requests": requests}
    return body | other


def called(body, at=5.0):
    inner = {"t": at, "type": "subagent", "requests": session(blocks=(2,))["requests"]}
    return {**body, "requests": [*body["requests"], inner]}


TRACES = {"weka": json.dumps(session(), indent=1).encode()}


def sound() -> dict[str, list[tuple[str, bytes]]]:
    file = io.BytesIO()
    blocks = [[1, 2, 3], [1, 2, 3, 4, 5]]
    pl.DataFrame(
        {"trace": ["a", "a"], "subagent": [0, 1], "t": [0.0, 4.0], "input_length": [199, 327],
         "output_length": [1, 2], "think_time": [0.0, None], "hash_ids": blocks}
    ).write_parquet(file)  # fmt: skip
    return {"trace file": [("binary", file.getvalue())]}
