"""Recorded streams of requests: tables as a reader would make them, and packed files."""

import io
import json
import tarfile
from collections.abc import Mapping

import numpy as np

from twin.workload.generate import TraceTable


def made_trace(
    arrival_s: np.ndarray,
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    *,
    has_time: bool = True,
    conversations: bool = True,
    name: str = "made.csv",
) -> TraceTable:
    """Requests without prefixes, each a conversation of its own, or of none."""
    count = len(arrival_s)
    session = np.arange(count) if conversations else np.full(count, -1)
    return TraceTable(
        arrival_s=arrival_s,
        input_tokens=input_tokens.astype(np.int32),
        output_tokens=output_tokens.astype(np.int32),
        session=session.astype(np.int32),
        segment_offset=np.zeros(count + 1, np.int64),
        segment_first=np.zeros(0, np.int64),
        segment_blocks=np.zeros(0, np.int32),
        blocks=0,
        block_tokens=0,
        has_prefix=False,
        has_time=has_time,
        source_row=np.arange(count, dtype=np.int64),
        think_s=np.full(count, np.nan),
        counts={},
        name=name,
        format="made",
    )


def lines(*rows: object) -> bytes:
    """Rows as JSON lines."""
    return "\n".join(json.dumps(row) for row in rows).encode()


def archive(files: Mapping[str, bytes], kind: str = "w") -> bytes:
    """Files by name as a tar; kind "w:gz": compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=kind) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
