"""A library as one file: a tar of rows (JSON) and tables (Parquet) named by SHA-256, references
first, so that it is read in bounded memory and a damaged member costs nothing else."""

import hashlib
import io
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Any

from sqlalchemy import Column, inspect, select
from sqlalchemy.orm import Session

from twin.lab.store import models
from twin.lab.store.artefacts import Source
from twin.lab.store.engines import json_text
from twin.lab.store.errors import StoreError, StoreFull
from twin.lab.store.handle import Store
from twin.lab.store.statements import require
from twin.lab.store.values import files_of, sealed

VERSION = 1
TABLE, SCENARIO, FACTS, IMPORT, RUN = "table", "scenario", "facts", "import", "run"
KINDS: dict[str, type[models.Row]] = {
    SCENARIO: models.ScenarioRow, FACTS: models.FactsRow, IMPORT: models.ImportRow,
    RUN: models.RunRow,
}  # fmt: skip
MEMBER = re.compile(rf"twin-([0-9]+)/({'|'.join((TABLE, *KINDS))})/([0-9a-f]{{64}})\.[a-z]+")
# What a scenario's text says too, and what has no use once a run has ended.
UNWRITTEN: dict[type[models.Row], tuple[str, ...]] = {
    models.ScenarioRow: ("name", "question", "source", "trace_digest"),
    models.RunRow: ("live", "beat_s", "owner_name", "owner_host", "owner_pid", "owner_started"),
}
TABLES: dict[str, Any] = {RUN: models.RunTableRow, IMPORT: models.ImportTableRow}
FILES, HOLDERS, WRITTEN = "files", "holders", "written"
LEFT_OUT_MAX = 100  # parts, after which an archive is given up


@dataclass
class Moved:
    """Numbers of exported or imported things by kind, and reasons for what was left out."""

    new: Counter[str] = field(default_factory=Counter)
    here: Counter[str] = field(default_factory=Counter)  # was there before, and stays as it was
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, sentence: str) -> None:
        """Add a left-out part; raises StoreError after very many."""
        self.left_out.append(sentence)
        if len(self.left_out) >= LEFT_OUT_MAX:
            raise StoreError(f"{LEFT_OUT_MAX} parts were damaged, the last: {sentence}; given up")


def write_archive(store: Store, file: IO[bytes], runs: Iterable[str] | None = None) -> Moved:
    """Write a store's visible contents, or some runs and their dependencies."""
    writer = _Writer(store, file, holders=runs is None and not store.visitor)
    if runs is None:
        names = _shown(store)
    else:
        rows = [require(store.runs.get(run), RUN, run) for run in runs]
        names = [row.scenario for row in rows], [], [row.id for row in rows]
    scenarios, imports, ids = names
    for digest in dict.fromkeys(scenarios):
        writer.attempt(writer.scenario, digest)
    for digest in dict.fromkeys((*imports, *writer.used)):
        writer.attempt(writer.imported, digest)
    for run in dict.fromkeys(ids):
        writer.attempt(writer.run, run)
    file.write(bytes(2 * tarfile.BLOCKSIZE))
    return writer.moved


def _shown(store: Store) -> tuple[list[str], list[str], list[str]]:
    """Names of the scenarios, imported files and ended runs that the visitor sees."""
    s, i, r = models.ScenarioRow, models.ImportRow, models.RunRow
    ended = r.state.in_(models.ENDED_STATES)
    queries = (
        store.scenarios.visible(select(s.digest)),
        store.runs.visible(select(r.scenario).where(ended)).distinct(),
        store.traces.visible(select(i.digest)).order_by(i.digest),
        store.runs.visible(select(r.id).where(ended)).order_by(r.queued_s, r.id),
    )
    with store.database.read() as session:
        scenarios, more, imports, ids = (list(session.scalars(query)) for query in queries)
    return sorted({*scenarios, *more}), imports, ids


def export_runs(store: Store, *runs: str) -> bytes:
    """Archive of ended runs with their dependencies. Raises StoreError if any of it is damaged."""
    file = io.BytesIO()
    for sentence in write_archive(store, file, runs).left_out:
        raise StoreError(sentence)
    return file.getvalue()


class _Writer:
    """Writer of members, each written once."""

    def __init__(self, store: Store, file: IO[bytes], *, holders: bool):
        self.store, self.moved = store, Moved()
        self.used: list[str] = []  # imported files that scenarios name
        self._file, self._holders = file, holders
        self._written: set[str] = set()

    def attempt(self, write: Callable[[str], None], name: str) -> None:
        """Write one thing; if it is damaged, name it and leave it out."""
        try:
            write(name)
        except StoreFull:
            raise
        except ValueError as error:
            self.moved.leave_out(str(error))

    def scenario(self, digest: str) -> None:
        """Write a scenario and remember its imported files."""
        scenario = self.store.scenarios.load(digest)
        used = (part.kind.named(scenario) for part in self.store.imports.values())
        digests, parts = [v.digest for v in used if v is not None], self.store.imports.values()
        self.used += [d for d in digests if any(part.get(d) for part in parts)]
        self._row(SCENARIO, digest, {})

    def imported(self, digest: str) -> None:
        """Write an imported file, its tables first."""
        with self.store.database.read() as session:
            row = require(session.get(models.ImportRow, digest), IMPORT, digest)
            files = files_of(session, digest)
        if sealed(row, files) != row.seal:
            raise StoreError(f"the {row.kind} {row.name} is damaged in the database")
        self._row(IMPORT, digest, files)

    def run(self, run: str) -> None:
        """Write an ended run, its facts and tables first."""
        row = require(self.store.runs.get(run), RUN, run)
        if not row.ended:
            raise StoreError(f"run {run} is {row.state}: export it when it has ended")
        if row.facts_digest not in self._written:
            self.store.facts(row.facts_digest)
            self._row(FACTS, row.facts_digest, {})
        tables = self.store.runs.tables(run)
        self._row(RUN, run, {name: artefact.sha256 for name, artefact in tables.items()})

    def _row(self, kind: str, name: str, files: Mapping[str, str]) -> None:
        """Write a row as JSON, behind its tables; nothing if one of them is damaged."""
        missing = [sha256 for sha256 in files.values() if sha256 not in self._written]
        for sha256 in missing:
            self.store.artefacts.require_sound(sha256)
        for sha256 in missing:
            with self.store.artefacts.path(sha256).open("rb") as source:
                size = source.seek(0, io.SEEK_END)
                source.seek(0)
                self._member(TABLE, sha256, size, source)
            self._written.add(sha256)
        model = KINDS[kind]
        columns = [getattr(model, key) for key in columns_of(model)]
        with self.store.database.read() as session:
            query = select(*columns).where(inspect(model).primary_key[0] == name)
            fields = dict(require(session.execute(query).mappings().first(), kind, name))
            if self._holders:
                holds = select(models.HoldingRow.visitor).where(models.HoldingRow.name == name)
                fields[HOLDERS] = list(session.scalars(holds))
            if written := self._notes(session, name):
                fields[WRITTEN] = written
        if kind in TABLES:
            fields[FILES] = dict(files)
        data = json_text(fields).encode()
        self._member(kind, hashlib.sha256(data).hexdigest(), len(data), io.BytesIO(data))
        self._written.add(name)
        self.moved.new[kind] += 1

    def _notes(self, session: Session, name: str) -> list[dict[str, Any]]:
        """Notes on a name: the exporter's, or all in a full export, without visitors' names."""
        n, visitor = models.NoteRow, {} if self._holders else {"visitor": ""}
        query = select(*(getattr(n, key) for key in columns_of(n))).where(n.name == name)
        if visitor:
            query = query.where(n.visitor == self.store.visitor)
        rows = session.execute(query.order_by(n.visitor)).mappings()
        return [{**row, **visitor} for row in rows]

    def _member(self, kind: str, sha256: str, size: int, source: Source) -> None:
        """Write one member of the tar, named by its digest."""
        ending = "parquet" if kind == TABLE else "json"
        info = tarfile.TarInfo(f"twin-{VERSION}/{kind}/{sha256}.{ending}")
        info.size = size
        self._file.write(info.tobuf(tarfile.USTAR_FORMAT))
        while piece := source.read(1 << 20):
            self._file.write(piece)
        self._file.write(bytes(-size % tarfile.BLOCKSIZE))


@cache
def columns_of(model: type[models.Row]) -> dict[str, Column[Any]]:
    """Exported columns of a row, by attribute name."""
    mapped = {a.key: a.columns[0] for a in inspect(model).column_attrs}
    return {key: column for key, column in mapped.items()
            if isinstance(column, Column) and key not in UNWRITTEN.get(model, ())}  # fmt: skip
