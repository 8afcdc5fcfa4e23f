"""Reading a library from the file that `archive` wrote, or from what a stranger calls one."""

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from sqlalchemy import BigInteger, Column, inspect
from sqlalchemy.orm import Session

from twin.lab.files import printable
from twin.lab.store import models
from twin.lab.store.archive import (
    FACTS,
    FILES,
    HOLDERS,
    IMPORT,
    KINDS,
    MEMBER,
    RUN,
    SCENARIO,
    TABLE,
    TABLES,
    VERSION,
    WRITTEN,
    Moved,
    columns_of,
)
from twin.lab.store.engines import json_text
from twin.lab.store.errors import StoreError, StoreFull
from twin.lab.store.handle import Store
from twin.lab.store.models import Cell, Seconds
from twin.lab.store.result import ANSWER, facts_of_text, seal
from twin.lab.store.statements import insert_once, remember, require
from twin.lab.store.values import sealed
from twin.lab.store.visitors import joined_tags, require_bounded, split_tags
from twin.scenario import scenario_from_canonical

ROW_BYTES_MAX, TABLE_BYTES_MAX = 16 << 20, 1 << 30
# A file that says so many times what it takes on the disk has holes: tables are compressed already.
HOLES_MIN, WHOLE_BYTES = 10, 1 << 20
INTEGER_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


def read_archive(store: Store, file: IO[bytes], name: str) -> Moved:
    """Add the archive's parts that the store lacks, except damaged ones. Raises StoreError."""
    _require_whole(file, name)
    counts, recognised = Moved(), False
    for kind, sha256, part in _members(file, name, counts):
        recognised = True
        try:
            if kind == TABLE:
                artefact = store.artefacts.take(part, sha256)
                with store.database.write() as session:
                    remember(session, store.artefacts, artefact)
                continue
            new = _take(store, kind, _row_in(part, sha256))
            (counts.new if new else counts.here)[kind] += 1
        except StoreFull:
            raise
        except StoreError as error:
            counts.leave_out(str(error))
        except (ValueError, RecursionError) as error:
            counts.leave_out(f"the {kind} {sha256} cannot be read: {error}")
    if not recognised:
        raise StoreError(f"{name} is no library: `library export` writes one")
    return counts


def read_archive_file(store: Store, path: Path) -> Moved:
    """`read_archive` of a file by its path."""
    name = printable(path.name)
    try:
        with path.open("rb") as file:
            return read_archive(store, file, name)
    except (OSError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from None


def _require_whole(file: IO[bytes], name: str) -> None:
    """Raise StoreError for a sparse file, whose holes would be stored as zeros."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # no file on a disk
        return
    on_disk = getattr(status, "st_blocks", status.st_size) * 512
    if status.st_size > max(WHOLE_BYTES, HOLES_MIN * on_disk):
        raise StoreError(
            f"{name} says {status.st_size / 1e6:,.0f} MB and takes {on_disk / 1e6:,.2f} MB on the "
            "disk: a library has no such holes, copy it again"
        )


class _Part:
    """Reader of one member's bytes."""

    def __init__(self, file: IO[bytes], size: int):
        self._file, self.left = file, size

    def read(self, most: int) -> bytes:
        """Read at most a number of bytes; empty at the end."""
        piece = self._file.read(min(most, self.left))
        self.left = self.left - len(piece) if piece else 0
        return piece

    def skip(self) -> None:
        """Move to the end, by seeking if the file can."""
        if self._file.seekable():
            self._file.seek(self.left, os.SEEK_CUR)
            self.left = 0
        while self.read(1 << 20):
            pass


def _members(file: IO[bytes], name: str, moved: Moved) -> Iterator[tuple[str, str, _Part]]:
    """Kind, SHA-256 and bytes of every member; after a damaged header, from the next one on."""
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
        part.skip()
        file.read(-max(info.size, 0) % tarfile.BLOCKSIZE)
    if not ended:
        moved.leave_out(f"{name} is cut off: what came before is taken, the rest is missing")


def _row_in(part: _Part, sha256: str) -> dict[str, Any]:
    """The row inside a member; raises StoreError."""
    data = part.read(ROW_BYTES_MAX)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(f"the row {sha256} is damaged (its SHA-256 is not its name)")
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise StoreError(f"the row {sha256} is no table of columns")
    return fields


def _values(kind: str, model: type[models.Row], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a row, with checked types; raises StoreError."""
    columns = columns_of(model)
    name = printable(str(fields.get(str(inspect(model).primary_key[0].key), "")))
    for key, column in columns.items():
        if wrong := _wrong(column, fields.get(key)):
            raise StoreError(f"the {kind} {name} is left out: its {key} {wrong}")
    return {key: fields.get(key) for key in columns}


def _wrong(column: Column[Any], value: Any) -> str:
    """Fault of a JSON value for a column, '' if it has none."""
    type_: Any = column.type
    if value is None:
        return "" if column.nullable else "is missing"
    if isinstance(type_, (Cell, Seconds)):
        return type_.wrong(value)
    if isinstance(value, bool) != (type_.python_type is bool):
        return "is of another type"
    if type_.python_type is int:
        most = LONG_MAX if isinstance(type_, BigInteger) else INTEGER_MAX
        return "" if isinstance(value, int) and 0 <= value <= most else f"is none of 0 to {most}"
    length = getattr(type_, "length", None)
    if not isinstance(value, type_.python_type):
        return "is of another type"
    return f"is longer than {length} characters" if length and len(value) > length else ""


def _take(store: Store, kind: str, fields: Mapping[str, Any]) -> bool:
    """Store a new row; returns whether it was new. Raises StoreError."""
    values = _values(kind, KINDS[kind], fields)
    files, holders, notes = fields.get(FILES, {}), fields.get(HOLDERS, []), fields.get(WRITTEN, [])
    if not (isinstance(files, dict) and isinstance(holders, list) and isinstance(notes, list)):
        raise StoreError(f"a {kind} here has no {FILES}, {HOLDERS} or {WRITTEN} that can be")
    written = [_note(store, note) for note in notes]
    if kind == SCENARIO:
        body, digest = values["body"], values["digest"]
        if hashlib.sha256(body.encode()).hexdigest() != digest:
            raise StoreError(f"the scenario {digest} is damaged (its SHA-256 is not its digest)")
        name, new = store.scenarios.keep(scenario_from_canonical(body), **values)
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
            held = models.HoldingRow(visitor=visitor[:255], name=name)
            insert_once(session, (visitor, name), held)
        for note in written:
            note.name = name
            insert_once(session, (note.visitor, name), note)
    return new


def _note(store: Store, fields: object) -> models.NoteRow:
    """Store a note; one without a visitor becomes the importing visitor's."""
    if not isinstance(fields, dict):
        raise StoreError("a note in this archive is no table of columns")
    row = models.NoteRow(**_values("note", models.NoteRow, fields))
    row.visitor, row.tags = row.visitor or store.visitor, joined_tags(split_tags(row.tags))
    require_bounded(row)
    return row


def _facts(_: Store, values: Mapping[str, Any], __: Mapping[str, str]) -> models.Row:
    facts_of_text(values["body"], values["digest"])
    return models.FactsRow(**values)


def _imported(store: Store, values: Mapping[str, Any], files: Mapping[str, str]) -> models.Row:
    row = models.ImportRow(**values)
    name = printable(row.name)
    if (part := store.imports.get(row.kind)) is None:
        raise StoreError(f"{name} is of a kind that this twin does not know")
    if sealed(row, dict(files)) != row.seal:
        raise StoreError(f"the {row.kind} {name} is damaged: its seal is broken")
    own = part.kind.split(part.joined(row, files)).about
    wrong = [k for k, value in row.about.items() if json_text(own.get(k)) != json_text(value)]
    if wrong:
        raise StoreError(f"the {row.kind} {name} is left out: its tables have another {wrong[0]}")
    return row


def _run(store: Store, values: Mapping[str, Any], files: Mapping[str, str]) -> models.Row:
    """A run's row. Raises StoreError if its scenario or facts are missing or its seal is broken."""
    run, state = values["id"], values["state"]
    question = store.scenarios.get(values["scenario"])
    if question is None:
        raise StoreError(f"run {printable(run)} asks a scenario that is not here: it is left out")
    with store.database.read() as session:
        facts = values["facts_digest"]
        require(session.get(models.FactsRow, facts), "set of facts", facts)
    unsealed = state != models.DONE and not values["seal"] and not files
    answer = {key: values[key] for key in ANSWER}
    if state not in models.ENDED_STATES or not (unsealed or seal(answer, files) == values["seal"]):
        raise StoreError(f"run {printable(run)} is damaged: its seal is broken")
    no_owner = {"owner_name": "", "owner_host": "", "owner_pid": 0, "owner_started": ""}
    return models.RunRow(**{**values, **no_owner, "scenario": question.digest})


def _add_tables(session: Session, kind: str, name: str, files: Mapping[str, str]) -> None:
    """Add rows of tables to a restored value. Raises StoreError if one is missing."""
    for table, sha256 in files.items():
        if not isinstance(sha256, str) or session.get(models.ArtefactRow, sha256) is None:
            raise StoreError(f"the table {printable(table)} of the {kind} {name} is missing")
        key = {"run": name} if kind == RUN else {"digest": name}
        session.add(TABLES[kind](**key, name=table, sha256=sha256))
    session.flush()
