"""Imported files: traces and tables of expert counts, named by the digest of their content.

A trace is two artefacts (a row per request, a row per segment of blocks), counts are one; a row
says where they came from. So a scenario that names one can be run again without the file. What a
digest covers is the matter of whoever reads such files.
"""

from __future__ import annotations

import time
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from twin.lab.store.artefacts import Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError
from twin.lab.store.models import EXPERT_COUNTS, ScenarioRow, TraceRow
from twin.lab.store.statements import PAGE, Page, insert_once, page_of, remember, require, users

if TYPE_CHECKING:
    from twin.workload.requests import TraceTable

TRACE_BYTES_MAX = 1 << 30  # of a trace's arrays in memory
SEGMENTS = ("segment_first", "segment_blocks")
OFFSET = "segment_offset"  # kept as the number of segments of each request
COUNT = "segments"


class Imports:
    """What traces and expert counts have in common: rows of one table, of some formats."""

    kind: str
    called: str  # in a sentence that says who uses it
    formats: ColumnElement[bool]

    def __init__(self, database: Database, artefacts: Artefacts):
        self._database = database
        self._artefacts = artefacts

    def used(self, digest: str) -> str:
        """Why it may not be deleted: how many scenarios name it; '' when none does."""
        with self._database.read() as session:
            return users(session, self.called, self._naming(digest))

    def delete(self, digest: str) -> None:
        """Delete what no scenario names; its files go with the next sweep.

        Raises StoreError for what is in use, UnknownId for none.
        """
        with self._database.write() as session:
            if used := users(session, self.called, self._naming(digest)):
                raise StoreError(used)
            require(self._row(session, digest), self.kind, digest)
            session.execute(delete(TraceRow).where(TraceRow.digest == digest))

    def _naming(self, digest: str) -> ColumnElement[bool]:
        """Scenarios that name it."""
        raise NotImplementedError

    def _row(self, session: Session, digest: str) -> TraceRow | None:
        return session.scalar(select(TraceRow).where(TraceRow.digest == digest, self.formats))

    def _add(
        self, digest: str, name: str, format_: str, about: dict[str, Any], *frames: pl.DataFrame
    ) -> None:
        """Store files, then their row; the first file has the rows that are counted."""
        stored = [self._artefacts.put(frame) for frame in frames]
        row = TraceRow(
            digest=digest,
            name=name,
            format=format_,
            requests=stored[0].rows if format_ != EXPERT_COUNTS else 0,
            about=about,
            requests_sha256=stored[0].sha256,
            segments_sha256=stored[-1].sha256,
            created_s=time.time(),
        )
        with self._database.write(durable=True) as session:
            for artefact in stored:
                remember(session, self._artefacts, artefact)
            insert_once(session, digest, row)


class Traces(Imports):
    """Save, load, find and delete traces."""

    kind, called = "trace", "this trace is"
    formats = TraceRow.format != EXPERT_COUNTS

    def save(self, trace: TraceTable) -> str:
        """Store a trace, once; returns its digest. Raises StoreError when it is too large."""
        size = sum(v.nbytes for v in _values(trace).values() if isinstance(v, np.ndarray))
        if size > TRACE_BYTES_MAX:
            raise StoreError(
                f"{trace.name} takes {size / 1e6:.0f} MB: a stored trace may take "
                f"{TRACE_BYTES_MAX / 1e6:.0f} MB, keep only its first requests"
            )
        digest = trace.digest
        if self.get(digest) is None:
            requests, segments, about = _split(trace)
            self._add(digest, trace.name, trace.format, about, requests, segments)
        return digest

    def get(self, digest: str) -> TraceRow | None:
        """What is known about a trace, None when it is not here."""
        with self._database.read() as session:
            return self._row(session, digest)

    def load(self, digest: str) -> TraceTable:
        """The trace of a digest, checked against it; raises UnknownId or StoreError."""
        row = require(self.get(digest), self.kind, digest)
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
        r = TraceRow
        order = (r.created_s.desc(), r.digest)
        columns = (r.name, r.format, r.digest)
        with self._database.read() as session:
            query = select(r).where(self.formats)
            return page_of(session, query, text, columns, order, limit, offset)

    def _naming(self, digest: str) -> ColumnElement[bool]:
        return ScenarioRow.trace_digest == digest


@dataclass(frozen=True, slots=True)
class CountsRow:
    """Stored expert counts without the counts."""

    digest: str
    name: str
    layers: int
    experts: int
    note: str
    created_s: float


class ExpertCounts(Imports):
    """Save, list, load and delete expert counts."""

    kind, called = "table of expert counts", "these counts are"
    formats = TraceRow.format == EXPERT_COUNTS

    def save(self, digest: str, name: str, counts: NDArray[np.float64], note: str = "") -> str:
        """Store counts f8[layers, experts] under their digest, once; returns the digest."""
        layers, experts = counts.shape
        about = {"layers": layers, "experts": experts, "note": note}
        self._add(digest, name[:255], EXPERT_COUNTS, about, pl.DataFrame({"count": counts.ravel()}))
        return digest

    def get(self, digest: str) -> CountsRow | None:
        """What is known about some counts, None when they are not here."""
        with self._database.read() as session:
            row = self._row(session, digest)
        return _counts_row(row) if row else None

    def rows(self, limit: int = PAGE) -> list[CountsRow]:
        """Stored counts, newest first."""
        order = (TraceRow.created_s.desc(), TraceRow.digest)
        query = select(TraceRow).where(self.formats).order_by(*order).limit(limit)
        with self._database.read() as session:
            return [_counts_row(row) for row in session.scalars(query)]

    def load(self, digest: str) -> NDArray[np.float64]:
        """The counts f8[layers, experts] of a digest; raises UnknownId or StoreError."""
        with self._database.read() as session:
            row = require(self._row(session, digest), self.kind, digest)
        values = self._artefacts.read(row.requests_sha256)["count"].to_numpy()
        return values.reshape(row.about["layers"], row.about["experts"]).astype(np.float64)

    def _naming(self, digest: str) -> ColumnElement[bool]:
        # A digest of 64 hexadecimal digits stands in a scenario's text for itself alone.
        return ScenarioRow.body.contains(digest, autoescape=True)


def _counts_row(row: TraceRow) -> CountsRow:
    return CountsRow(row.digest, row.name, created_s=row.created_s, **row.about)


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
