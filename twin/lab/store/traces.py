"""Stored traces: request streams named by the digest of their content.

A trace is two artefacts (a row per request, a row per segment of blocks) and a row that says
where it came from; so a scenario that names a trace can be run again without the file.
"""

from __future__ import annotations

import time
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from sqlalchemy import Connection, delete, func, select

from twin.lab.store import models as m
from twin.lab.store.artefacts import Artefacts
from twin.lab.store.counts import FORMAT as EXPERT_COUNTS
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.statements import PAGE, Page, insert_once, matching, page_of, remember, users

if TYPE_CHECKING:
    from twin.workload.requests import TraceTable

TRACE_BYTES_MAX = 1 << 30  # of a trace's arrays in memory
SEGMENTS = ("segment_first", "segment_blocks")
OFFSET = "segment_offset"  # kept as the number of segments of each request
COUNT = "segments"


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A stored trace without its requests."""

    digest: str
    name: str
    format: str
    requests: int
    about: dict[str, Any]  # scalars and the counts of rows left out
    bytes: int  # on disk
    created_s: float


class Traces:
    """Save, load, find and delete traces."""

    def __init__(self, database: Database, artefacts: Artefacts):
        self._database = database
        self._artefacts = artefacts

    def save(self, trace: TraceTable) -> str:
        """Store a trace, once; returns its digest. Raises StoreError when it is too large."""
        size = sum(v.nbytes for v in _values(trace).values() if isinstance(v, np.ndarray))
        if size > TRACE_BYTES_MAX:
            raise StoreError(
                f"{trace.name} takes {size / 1e6:.0f} MB: a stored trace may take "
                f"{TRACE_BYTES_MAX / 1e6:.0f} MB, keep only its first requests"
            )
        digest = trace.digest
        if self.get(digest) is not None:
            return digest
        requests, segments, about = _split(trace)
        first, second = self._artefacts.put(requests), self._artefacts.put(segments)
        row = {
            "digest": digest,
            "name": trace.name,
            "format": trace.format,
            "requests": requests.height,
            "about": about,
            "requests_sha256": first.sha256,
            "segments_sha256": second.sha256,
            "created_s": time.time(),
        }
        with self._database.write(durable=True) as connection:
            remember(connection, self._artefacts, first)
            remember(connection, self._artefacts, second)
            insert_once(connection, m.traces, "digest", row)
        return digest

    def get(self, digest: str) -> TraceRow | None:
        """What is known about a trace, None when it is not here."""
        with self._database.read() as connection:
            row = connection.execute(_ROWS.where(m.traces.c.digest == digest)).first()
        return TraceRow(*row) if row else None

    def load(self, digest: str) -> TraceTable:
        """The trace of a digest, checked against it; raises UnknownId or StoreError."""
        c = m.traces.c
        with self._database.read() as connection:
            row = connection.execute(select(m.traces).where(c.digest == digest)).first()
        if row is None:
            raise UnknownId("trace", digest)
        requests = self._artefacts.read(row.requests_sha256)
        segments = self._artefacts.read(row.segments_sha256)
        trace = _join(requests, segments, row.about | {"name": row.name, "format": row.format})
        if trace.digest != digest:
            raise StoreError(
                f"the trace {row.name} was stored by a twin that read it otherwise: import its "
                "file again"
            )
        return trace

    def search(self, text: str = "", *, limit: int = PAGE, offset: int = 0) -> Page[TraceRow]:
        """Traces whose name or format holds every word, newest first."""
        c = m.traces.c
        query = matching(_ROWS, text, [c.name, c.format], c.digest)
        order = (c.created_s.desc(), c.digest)
        with self._database.read() as connection:
            return page_of(connection, query, order, lambda row: TraceRow(*row), limit, offset)

    def used(self, digest: str) -> str:
        """Why a trace may not be deleted: how many scenarios name it; '' when none does."""
        with self._database.read() as connection:
            return _users(connection, digest)

    def delete(self, digest: str) -> None:
        """Delete a trace that no scenario names; its files go with the next sweep.

        Raises StoreError for a trace in use, UnknownId for none.
        """
        with self._database.write() as connection:
            if used := _users(connection, digest):
                raise StoreError(used)
            mine = (m.traces.c.digest == digest) & (m.traces.c.format != EXPERT_COUNTS)
            gone = connection.execute(delete(m.traces).where(mine))
            if not gone.rowcount:
                raise UnknownId("trace", digest)


_ROWS = select(
    m.traces.c.digest,
    m.traces.c.name,
    m.traces.c.format,
    m.traces.c.requests,
    m.traces.c.about,
    select(func.sum(m.artefacts.c.bytes))
    .where(m.artefacts.c.sha256.in_([m.traces.c.requests_sha256, m.traces.c.segments_sha256]))
    .correlate(m.traces)
    .scalar_subquery(),
    m.traces.c.created_s,
).where(m.traces.c.format != EXPERT_COUNTS)


def _users(connection: Connection, digest: str) -> str:
    return users(connection, "this trace is", m.scenarios.c.trace_digest == digest)


def _values(trace: TraceTable) -> dict[str, Any]:
    return {field.name: getattr(trace, field.name) for field in fields(trace)}


def _split(trace: TraceTable) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """Columns per request, columns per segment, and what is neither."""
    values = _values(trace)
    requests = {COUNT: np.diff(values.pop(OFFSET)).astype(np.int32)}
    segments = {name: values.pop(name) for name in SEGMENTS}
    requests |= {k: v for k, v in values.items() if isinstance(v, np.ndarray)}
    about = {k: v for k, v in values.items() if k not in requests and k not in {"name", "format"}}
    return pl.DataFrame(requests), pl.DataFrame(segments), about


def _join(requests: pl.DataFrame, segments: pl.DataFrame, about: dict[str, Any]) -> TraceTable:
    from twin.workload.requests import TraceTable

    columns = {column.name: column.to_numpy() for column in (*requests, *segments)}
    counts = columns.pop(COUNT)
    offset = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offset[1:])
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in about.items()}
    given: dict[str, Any] = {**columns, **plain, OFFSET: offset}
    known = fields(TraceTable)
    needed = {f.name for f in known if f.default is MISSING and f.default_factory is MISSING}
    if not needed <= set(given) <= {f.name for f in known}:
        raise StoreError(
            f"the trace {about['name']} was stored by another version of the twin: import its "
            "file again"
        )
    return TraceTable(**given)
