"""A trace table as bytes and back, for the store: equal tables give equal bytes.

Columns as compressed numpy arrays, the rest as JSON. Reading refuses anything else.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import numpy as np

from twin.lab.traces.source import TraceError
from twin.serving.requests import TraceTable

ABOUT = "about"


def pack_trace(table: TraceTable) -> bytes:
    """The table as bytes."""
    arrays: dict[str, np.ndarray] = {}
    about: dict[str, object] = {}
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        else:
            about[field.name] = value
    text = json.dumps(about, sort_keys=True).encode()
    out = io.BytesIO()
    arrays[ABOUT] = np.frombuffer(text, np.uint8)
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def unpack_trace(data: bytes) -> TraceTable:
    """The table that `pack_trace` gave; raises TraceError for other bytes."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
        about = json.loads(columns.pop(ABOUT).tobytes())
        about["warnings"] = tuple(about["warnings"])
        return TraceTable(**columns, **about)
    except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile):
        raise TraceError("the stored trace is damaged: import its file again") from None
