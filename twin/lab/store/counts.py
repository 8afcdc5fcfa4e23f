"""Stored expert counts: tables named by the digest of their content.

Kept among the rows of imported files, as traces are, under a format of their own; one artefact
holds the counts. What the digest covers is `lab.counts`' matter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, select

from twin.lab.store import models as m
from twin.lab.store.artefacts import Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.statements import PAGE, insert_once, remember, users

FORMAT = "expert counts"


@dataclass(frozen=True, slots=True)
class CountsRow:
    """Stored counts without the counts."""

    digest: str
    name: str
    layers: int
    experts: int
    note: str
    created_s: float


class ExpertCounts:
    """Save, list, load and delete expert counts."""

    def __init__(self, database: Database, artefacts: Artefacts):
        self._database = database
        self._artefacts = artefacts

    def save(self, digest: str, name: str, counts: NDArray[np.float64], note: str = "") -> str:
        """Store counts f8[layers, experts] under their digest, once; returns the digest."""
        layers, experts = counts.shape
        frame = pl.DataFrame({"count": counts.ravel()})
        kept = self._artefacts.put(frame)
        row: dict[str, Any] = {
            "digest": digest,
            "name": name[:255],
            "format": FORMAT,
            "requests": 0,
            "about": {"layers": layers, "experts": experts, "note": note},
            "requests_sha256": kept.sha256,
            "segments_sha256": kept.sha256,
            "created_s": time.time(),
        }
        with self._database.write(durable=True) as connection:
            remember(connection, self._artefacts, kept)
            insert_once(connection, m.traces, "digest", row)
        return digest

    def get(self, digest: str) -> CountsRow | None:
        """What is known about some counts, None when they are not here."""
        with self._database.read() as connection:
            row = connection.execute(_ROWS.where(m.traces.c.digest == digest)).first()
        return _row(row) if row else None

    def rows(self, limit: int = PAGE) -> list[CountsRow]:
        """Stored counts, newest first."""
        query = _ROWS.order_by(m.traces.c.created_s.desc(), m.traces.c.digest).limit(limit)
        with self._database.read() as connection:
            return [_row(row) for row in connection.execute(query)]

    def used(self, digest: str) -> str:
        """Why counts may not be deleted: how many scenarios name them; '' when none does."""
        with self._database.read() as connection:
            return _users(connection, digest)

    def delete(self, digest: str) -> None:
        """Delete counts that no scenario names; their file goes with the next sweep.

        Raises StoreError for counts in use, UnknownId for none.
        """
        mine = (m.traces.c.digest == digest) & (m.traces.c.format == FORMAT)
        with self._database.write() as connection:
            if used := _users(connection, digest):
                raise StoreError(used)
            if not connection.execute(delete(m.traces).where(mine)).rowcount:
                raise UnknownId("table of expert counts", digest)

    def load(self, digest: str) -> NDArray[np.float64]:
        """The counts f8[layers, experts] of a digest; raises UnknownId or StoreError."""
        c = m.traces.c
        query = select(c.requests_sha256, c.about).where(c.digest == digest, c.format == FORMAT)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise UnknownId("table of expert counts", digest)
        values = self._artefacts.read(row.requests_sha256)["count"].to_numpy()
        return values.reshape(row.about["layers"], row.about["experts"]).astype(np.float64)


_ROWS = select(m.traces.c.digest, m.traces.c.name, m.traces.c.about, m.traces.c.created_s).where(
    m.traces.c.format == FORMAT
)


def _users(connection: Connection, digest: str) -> str:
    # A digest of 64 hexadecimal digits stands in a scenario's text for itself alone.
    naming = m.scenarios.c.body.contains(digest, autoescape=True)
    return users(connection, "these counts are", naming)


def _row(row: Any) -> CountsRow:
    about = row.about
    return CountsRow(
        row.digest, row.name, about["layers"], about["experts"], about["note"], row.created_s
    )
