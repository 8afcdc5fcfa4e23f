"""A library as one file: a tar whose members are named by the SHA-256 of their bytes.

It holds scenarios, runs that ended with their tables, the facts they were made with, and imported
files. A row is a member of JSON, a table the Parquet file that it is; what a row names comes before
it. So an archive is read once, from its beginning, in bounded memory; every member is checked by
itself, and one that is damaged costs nothing else; an import that was cut off goes on when it is
begun again. Names of members are compared, never opened: nothing is unpacked anywhere else.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, inspect, select
from sqlalchemy.orm import Session

from twin.lab.files import printable
from twin.lab.store.artefacts import Source
from twin.lab.store.engines import json_text
from twin.lab.store.errors import StoreError, StoreFull
from twin.lab.store.models import (
    DONE,
    ENDED_STATES,
    ArtefactRow,
    Cell,
    FactsRow,
    HoldingRow,
    ImportRow,
    ImportTableRow,
    Row,
    RunRow,
    RunTableRow,
    ScenarioRow,
)
from twin.lab.store.questions import facts_of_text
from twin.lab.store.result import ANSWER, seal
from twin.lab.store.statements import insert_once, remember, require
from twin.lab.store.values import sealed
from twin.scenario import scenario_from_canonical

if TYPE_CHECKING:
    from twin.lab.store.handle import Store

VERSION = 1
TABLE, SCENARIO, FACTS, IMPORT, RUN = "table", "scenario", "facts", "import", "run"
KINDS: dict[str, type[Row]] = {
    SCENARIO: ScenarioRow, FACTS: FactsRow, IMPORT: ImportRow, RUN: RunRow,
}  # fmt: skip
MEMBER = re.compile(rf"twin-([0-9]+)/({'|'.join((TABLE, *KINDS))})/([0-9a-f]{{64}})\.[a-z]+")
# What a scenario's text says too, and what is nobody's business once a run has ended.
UNWRITTEN = {
    "name": ScenarioRow, "question": ScenarioRow, "source": ScenarioRow,
    "trace_digest": ScenarioRow, "live": RunRow, "beat_s": RunRow, "owner_name": RunRow,
    "owner_host": RunRow, "owner_pid": RunRow, "owner_started": RunRow,
}  # fmt: skip
TABLES: dict[str, Any] = {RUN: RunTableRow, IMPORT: ImportTableRow}
FILES, HOLDERS = "files", "holders"
ROW_BYTES_MAX, TABLE_BYTES_MAX = 16 << 20, 2 << 30
INTEGER_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
LEFT_OUT_MAX = 100  # parts, after which an archive is given up


@dataclass
class Moved:
    """What went into an archive or came out of it, by kind; and why what was left out was."""

    new: Counter[str] = field(default_factory=Counter)
    here: Counter[str] = field(default_factory=Counter)  # was there before, and stays as it was
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, sentence: str) -> None:
        """Name a part that is left out; raises StoreError after very many."""
        self.left_out.append(sentence)
        if len(self.left_out) >= LEFT_OUT_MAX:
            raise StoreError(f"{LEFT_OUT_MAX} parts were damaged, the last: {sentence}; given up")


# Writing.


def write_archive(store: Store, file: IO[bytes], runs: Iterable[str] | None = None) -> Moved:
    """Write what a store shows, or some runs by id and what belongs to them, to a file.

    Who holds what goes with the whole of a store that knows no visitor.
    """
    writer = _Writer(store, file, holders=runs is None and not store.visitor)
    with store.database.read() as session:
        if runs is None:
            scenarios = session.scalars(store.scenarios.visible(select(ScenarioRow.digest))).all()
            imports = list(chain.from_iterable(
                session.scalars(part.visible(select(ImportRow.digest))) for part in store.imports
            ))  # fmt: skip
            ended = select(RunRow.id).where(RunRow.state.in_(ENDED_STATES))
            runs = session.scalars(store.runs.visible(ended).order_by(RunRow.queued_s)).all()
        else:
            runs, scenarios, imports = list(runs), [], []
        asked = session.scalars(select(RunRow.scenario).where(RunRow.id.in_(runs))).all()
    for digest in dict.fromkeys((*scenarios, *asked)):
        writer.attempt(writer.scenario, digest)
    for digest in dict.fromkeys((*imports, *writer.used)):
        writer.attempt(writer.imported, digest)
    for run in runs:
        writer.attempt(writer.run, run)
    file.write(bytes(2 * tarfile.BLOCKSIZE))
    return writer.moved


class _Writer:
    """Members one after the other, each written once."""

    def __init__(self, store: Store, file: IO[bytes], *, holders: bool):
        self.store, self.moved = store, Moved()
        self.used: list[str] = []  # imported files that scenarios name
        self._file, self._holders = file, holders
        self._written: set[str] = set()

    def attempt(self, write: Callable[[str], None], name: str) -> None:
        """Write one thing; what is damaged is named and left out."""
        try:
            write(name)
        except StoreFull:
            raise
        except ValueError as error:
            self.moved.leave_out(str(error))

    def scenario(self, digest: str) -> None:
        """A scenario; remembers which imported files it names."""
        scenario = self.store.scenarios.load(digest)
        used = (part.kind.named(scenario) for part in self.store.imports)
        named = [value.digest for value in used if value is not None]
        self.used += [d for d in named if any(part.get(d) for part in self.store.imports)]
        self._row(SCENARIO, digest, {})

    def imported(self, digest: str) -> None:
        """An imported file, its tables before it."""
        with self.store.database.read() as session:
            row = require(session.get(ImportRow, digest), IMPORT, digest)
            files = _files(session, IMPORT, digest)
        if sealed(row, files) != row.seal:
            raise StoreError(f"the {row.kind} {row.name} is damaged in the database")
        self._row(IMPORT, digest, files)

    def run(self, run: str) -> None:
        """A run that ended, its facts and tables before it."""
        row = require(self.store.runs.get(run), RUN, run)
        if not row.ended:
            raise StoreError(f"run {run} is {row.state}: export it when it has ended")
        if row.facts_digest not in self._written:
            self.store.facts(row.facts_digest)
            self._row(FACTS, row.facts_digest, {})
        tables = self.store.runs.tables(run)
        self._row(RUN, run, {name: artefact.sha256 for name, artefact in tables.items()})

    def _row(self, kind: str, name: str, files: Mapping[str, str]) -> None:
        """A row as JSON, behind the tables that it names; nothing of it where one is damaged."""
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
        columns = [getattr(model, key) for key in _columns(model)]
        with self.store.database.read() as session:
            query = select(*columns).where(inspect(model).primary_key[0] == name)
            told = dict(require(session.execute(query).mappings().first(), kind, name))
            if self._holders:
                holds = select(HoldingRow.visitor).where(HoldingRow.name == name)
                told[HOLDERS] = list(session.scalars(holds))
        if kind in TABLES:
            told[FILES] = dict(files)
        data = json_text(told).encode()
        self._member(kind, hashlib.sha256(data).hexdigest(), len(data), io.BytesIO(data))
        self._written.add(name)
        self.moved.new[kind] += 1

    def _member(self, kind: str, sha256: str, size: int, source: Source) -> None:
        ending = "parquet" if kind == TABLE else "json"
        info = tarfile.TarInfo(f"twin-{VERSION}/{kind}/{sha256}.{ending}")
        info.size = size
        self._file.write(info.tobuf(tarfile.USTAR_FORMAT))
        while piece := source.read(1 << 20):
            self._file.write(piece)
        self._file.write(bytes(-size % tarfile.BLOCKSIZE))


# Reading.


def read_archive(store: Store, file: IO[bytes], name: str) -> Moved:
    """Take into a store what an archive holds and it lacks; what is damaged is left out.

    name: of the file, for sentences. Raises StoreError for a file that is no library at all.
    """
    moved, recognised = Moved(), False
    for kind, sha256, part in _members(file, name, moved):
        recognised = True
        try:
            if kind == TABLE:
                artefact = store.artefacts.take(part, sha256)
                with store.database.write() as session:
                    remember(session, store.artefacts, artefact)
                continue
            new = _take(store, kind, _told(part, sha256))
            (moved.new if new else moved.here)[kind] += 1
        except StoreFull:
            raise
        except (ValueError, RecursionError) as error:
            moved.leave_out(str(error) or f"the {kind} {sha256} is nested too deeply")
    if not recognised:
        raise StoreError(f"{name} is no library: `library export` writes one")
    return moved


class _Part:
    """The bytes of one member."""

    def __init__(self, file: IO[bytes], size: int):
        self._file, self.left = file, size

    def read(self, most: int) -> bytes:
        """At most so many bytes; none at the end."""
        piece = self._file.read(min(most, self.left))
        self.left = self.left - len(piece) if piece else 0
        return piece


def _members(file: IO[bytes], name: str, moved: Moved) -> Iterator[tuple[str, str, _Part]]:
    """Kind, SHA-256 and bytes of every member; where a header is damaged, from the next one on."""
    ended = lost = False
    while len(block := file.read(tarfile.BLOCKSIZE)) == tarfile.BLOCKSIZE:
        ended = not any(block)
        if ended:
            continue
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, ValueError):
            if not lost:
                moved.leave_out(f"a part of {name} is damaged")
            lost = True
            continue
        lost = False
        part = _Part(file, max(info.size, 0))
        member = MEMBER.fullmatch(info.name)
        if member and int(member[1]) > VERSION:
            raise StoreError(f"{name} was written by a newer twin: update this one")
        if not member or not info.isreg():
            moved.leave_out(f"{printable(info.name)} in {name} is no part of a library")
        elif info.size > (TABLE_BYTES_MAX if member[2] == TABLE else ROW_BYTES_MAX):
            moved.leave_out(f"{info.name} in {name} is larger than any part of a library")
        else:
            yield member[2], member[3], part
        while part.read(1 << 20):  # what nobody wanted
            pass
        file.read(-max(info.size, 0) % tarfile.BLOCKSIZE)
    if not ended:
        moved.leave_out(f"{name} is cut off: what came before is taken, the rest is missing")


def _told(part: _Part, sha256: str) -> dict[str, Any]:
    """The row inside a member; raises StoreError."""
    data = part.read(ROW_BYTES_MAX)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(f"the row {sha256} is damaged (its SHA-256 is not its name)")
    told = json.loads(data)
    if not isinstance(told, dict):
        raise StoreError(f"the row {sha256} is no table of columns")
    return told


@cache
def _columns(model: type[Row]) -> dict[str, Column[Any]]:
    """The columns of a row that are written, by the names of their attributes."""
    mapped = {a.key: a.columns[0] for a in inspect(model).column_attrs}
    return {key: column for key, column in mapped.items()
            if isinstance(column, Column) and UNWRITTEN.get(key) is not model}  # fmt: skip


def _values(kind: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row, each of its type; raises StoreError."""
    columns = _columns(KINDS[kind])
    for key, column in columns.items():
        value = told.get(key)
        if value is None and column.nullable:
            continue
        type_ = column.type.empty if isinstance(column.type, Cell) else column.type.python_type
        most = LONG_MAX if isinstance(column.type, BigInteger) else INTEGER_MAX
        length = getattr(column.type, "length", None)
        if (
            not isinstance(value, (int, float) if type_ is float else type_)
            or (isinstance(value, bool) and type_ is not bool)
            or (type_ is float and not abs(value) < 1e15)  # nor NaN
            or (type_ is int and not 0 <= value <= most)
            or (length and len(value) > length)
        ):
            raise StoreError(f"a {kind} in this archive has no {key} that can be")
    return {key: told.get(key) for key in columns}


def _take(store: Store, kind: str, told: Mapping[str, Any]) -> bool:
    """Store a row that is not here yet; whether it was new. Raises StoreError."""
    values = _values(kind, told)
    files, holders = told.get(FILES, {}), told.get(HOLDERS, [])
    if not isinstance(files, dict) or not isinstance(holders, list):
        raise StoreError(f"a {kind} in this archive has no {FILES} or {HOLDERS} that can be")
    if kind == SCENARIO:
        name, new = _take_scenario(store, values)
    else:
        row = {FACTS: _facts, IMPORT: _imported, RUN: _run}[kind](store, values, files)
        name = str(inspect(KINDS[kind]).primary_key_from_instance(row)[0])
        with store.database.write(durable=True) as session:
            if new := session.get(KINDS[kind], name) is None:
                session.add(row)
                session.flush()
                _add_tables(session, kind, name, files)
    with store.database.write() as session:
        for visitor in {holder for holder in holders if isinstance(holder, str)}:
            insert_once(session, (visitor, name), HoldingRow(visitor=visitor[:255], name=name))
    return new


def _take_scenario(store: Store, values: Mapping[str, Any]) -> tuple[str, bool]:
    body, digest = values["body"], values["digest"]
    if hashlib.sha256(body.encode()).hexdigest() != digest:
        raise StoreError(f"the scenario {digest} is damaged (its SHA-256 is not its digest)")
    return store.scenarios.keep(scenario_from_canonical(body), **values)


def _facts(_: Store, values: Mapping[str, Any], __: Mapping[str, str]) -> Row:
    facts_of_text(values["body"], values["digest"])
    return FactsRow(**values)


def _imported(store: Store, values: Mapping[str, Any], files: Mapping[str, str]) -> Row:
    row = ImportRow(**values)
    if row.kind not in {part.kind.key for part in store.imports}:
        raise StoreError(f"{printable(row.name)} is of a kind that this twin does not know")
    if sealed(row, dict(files)) != row.seal:
        raise StoreError(f"the {row.kind} {printable(row.name)} is damaged: its seal is broken")
    return row


def _run(store: Store, values: Mapping[str, Any], files: Mapping[str, str]) -> Row:
    run, state = values["id"], values["state"]
    asked = store.scenarios.get(values["scenario"])
    if asked is None:
        raise StoreError(f"run {printable(run)} asks a scenario that is not here: it is left out")
    with store.database.read() as session:
        require(session.get(FactsRow, values["facts_digest"]), "set of facts", values["facts_digest"])
    unsealed = state != DONE and not values["seal"] and not files
    answer = {key: values[key] for key in ANSWER}
    if state not in ENDED_STATES or not (unsealed or seal(answer, files) == values["seal"]):
        raise StoreError(f"run {printable(run)} is damaged: its seal is broken")
    nobody = {"owner_name": "", "owner_host": "", "owner_pid": 0, "owner_started": ""}
    return RunRow(**{**values, **nobody, "scenario": asked.digest})


def _add_tables(session: Session, kind: str, name: str, files: Mapping[str, str]) -> None:
    for table, sha256 in files.items():
        if not isinstance(sha256, str) or session.get(ArtefactRow, sha256) is None:
            raise StoreError(f"the table {printable(table)} of the {kind} {name} is missing")
        key = {"run": name} if kind == RUN else {"digest": name}
        session.add(TABLES[kind](**key, name=table, sha256=sha256))
    session.flush()


def _files(session: Session, kind: str, name: str) -> dict[str, str]:
    t = TABLES[kind]
    query = select(t.name, t.sha256).where(inspect(t).primary_key[0] == name)
    return {table: sha256 for table, sha256 in session.execute(query)}
