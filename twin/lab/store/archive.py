"""A library as one file: a tar of rows (JSON) and tables (Parquet) named by SHA-256, references
first, so that it is read in bounded memory and a damaged member costs nothing else."""

import hashlib
import io
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from sqlalchemy import BigInteger, Column, inspect, select

from twin.lab.files import printable
from twin.lab.store import models
from twin.lab.store.artefacts import Source
from twin.lab.store.engines import json_text
from twin.lab.store.errors import StoreError, StoreFull
from twin.lab.store.handle import Store, files_of, seal_of
from twin.lab.store.models import Cell, Seconds
from twin.lab.store.runs import SEALED, facts_of_text, seal
from twin.lab.store.statements import add_file, insert_once, require
from twin.lab.store.visitors import join_tags, require_bounded, split_tags
from twin.scenario import scenario_from_canonical

VERSION = 1
TABLE, SCENARIO, FACTS, IMPORT, RUN = "table", "scenario", "facts", "import", "run"
KINDS: dict[str, type[models.Row]] = {
    SCENARIO: models.ScenarioRow, FACTS: models.FactsRow, IMPORT: models.ImportRow,
    RUN: models.RunRow,
}  # fmt: skip
MEMBER = re.compile(rf"twin-([0-9]+)/({'|'.join((TABLE, *KINDS))})/([0-9a-f]{{64}})\.[a-z]+")
# What a scenario's text says too, and what has no use once a run has ended.
LEFT_OUT: dict[type[models.Row], tuple[str, ...]] = {
    models.ScenarioRow: ("name", "question", "source", "trace_digest"),
    models.RunRow: ("live", "beat_s", "owner_name", "owner_host", "owner_pid", "owner_started"),
}
TABLES: dict[str, Any] = {RUN: models.RunTableRow, IMPORT: models.ImportTableRow}
FILES, HOLDERS, WRITTEN = "files", "holders", "written"
LEFT_OUT_MAX = 100  # parts, after which an archive is given up


@dataclass
class Report:
    """Numbers of exported or imported things by kind, and reasons for what was left out."""

    new: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)  # was there before, and stays as it was
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, sentence: str) -> None:
        """Note why a part was left out; raises StoreError after LEFT_OUT_MAX of them."""
        self.left_out.append(sentence)
        if len(self.left_out) >= LEFT_OUT_MAX:
            raise StoreError(f"{LEFT_OUT_MAX} parts were damaged, the last: {sentence}; given up")


def write_archive(store: Store, file: IO[bytes], runs: Iterable[str] | None = None) -> Report:
    """Write the visitor's visible contents of a store, or some runs and what they depend on, to a
    file; returns what was written and left out."""
    writer = _Writer(store, file, holders=runs is None and not store.visitor)
    if runs is None:  # all that the visitor sees, of runs those that have ended
        scenario_class, value_class, run_class = models.ScenarioRow, models.ImportRow, models.RunRow
        has_ended = run_class.state.in_(models.ENDED_STATES)
        queries = (
            store.scenarios.limit_to_visible(select(scenario_class.digest)),
            store.runs.limit_to_visible(select(run_class.scenario).where(has_ended)).distinct(),
            store.traces.limit_to_visible(select(value_class.digest)).order_by(value_class.digest),
            store.runs.limit_to_visible(select(run_class.id).where(has_ended)).order_by(
                run_class.queued_s, run_class.id
            ),
        )
        with store.database.read() as session:
            digests, run_digests, imports, run_ids = (
                list(session.scalars(query)) for query in queries
            )
        digests = sorted({*digests, *run_digests})
    else:
        run_rows = [require(store.runs.get(run_id), RUN, run_id) for run_id in runs]
        digests, imports, run_ids = (
            [run_row.scenario for run_row in run_rows],
            [],
            [run_row.id for run_row in run_rows],
        )
    for digest in dict.fromkeys(digests):
        writer.attempt(writer.write_scenario, digest)
    for digest in dict.fromkeys((*imports, *writer.used_imports)):
        writer.attempt(writer.write_import, digest)
    for run_id in dict.fromkeys(run_ids):
        writer.attempt(writer.write_run, run_id)
    file.write(bytes(2 * tarfile.BLOCKSIZE))
    return writer.report


def export_runs(store: Store, *runs: str) -> bytes:
    """Archive, as bytes, of ended runs and what they need. Raises StoreError for a damaged part."""
    file = io.BytesIO()
    for sentence in write_archive(store, file, runs).left_out:
        raise StoreError(sentence)
    return file.getvalue()


class _Writer:
    """Writer of members, each written once."""

    def __init__(self, store: Store, file: IO[bytes], *, holders: bool):
        """Prepare to write a store's parts to a file; holders: also the visitors that hold each."""
        self.store, self.report = store, Report()
        self.used_imports: list[str] = []  # imported files that scenarios name
        self._file, self._holders = file, holders
        self._written: set[str] = set()

    def attempt(self, write: Callable[[str], None], name: str) -> None:
        """Write one part by its name; if it is damaged, note the reason and leave it out."""
        try:
            write(name)
        except StoreFull:
            raise
        except ValueError as error:
            self.report.leave_out(str(error))

    def write_scenario(self, digest: str) -> None:
        """Write a scenario's row by its digest and note the imported values that it names."""
        scenario = self.store.scenarios.load(digest)
        value_stores = self.store.imports.values()
        references = filter(
            None, (value_store.kind.named(scenario) for value_store in value_stores)
        )
        digests = [reference.digest for reference in references]
        self.used_imports += [
            digest
            for digest in digests
            if any(value_store.get(digest) for value_store in value_stores)
        ]
        self._write_row(SCENARIO, digest, {})

    def write_import(self, digest: str) -> None:
        """Write an imported value by its digest, its tables first."""
        with self.store.database.read() as session:
            import_row = require(session.get(models.ImportRow, digest), IMPORT, digest)
            files = files_of(session, digest)
        if seal_of(import_row, files) != import_row.seal:
            raise StoreError(f"the {import_row.kind} {import_row.name} is damaged in the database")
        self._write_row(IMPORT, digest, files)

    def write_run(self, run: str) -> None:
        """Write an ended run by its id, its facts and tables first."""
        run_row = require(self.store.runs.get(run), RUN, run)
        if not run_row.ended:
            raise StoreError(f"run {run} is {run_row.state}: export it when it has ended")
        if run_row.facts_digest not in self._written:
            self.store.facts(run_row.facts_digest)
            self._write_row(FACTS, run_row.facts_digest, {})
        tables = self.store.runs.tables(run)
        self._write_row(RUN, run, {name: artefact.sha256 for name, artefact in tables.items()})

    def _write_row(self, kind: str, name: str, files: Mapping[str, str]) -> None:
        """Write the row of a key (`name`) as JSON after its tables (`files`: SHA-256 by table);
        raises StoreError, before it writes, if a table is damaged."""
        new_sha256s = [sha256 for sha256 in files.values() if sha256 not in self._written]
        for sha256 in new_sha256s:
            self.store.artefacts.require_sound(sha256)
        for sha256 in new_sha256s:
            with self.store.artefacts.path(sha256).open("rb") as parquet_file:
                size_bytes = parquet_file.seek(0, io.SEEK_END)
                parquet_file.seek(0)
                self._write_member(TABLE, sha256, size_bytes, parquet_file)
            self._written.add(sha256)
        row_class = KINDS[kind]
        row_columns = [getattr(row_class, key) for key in columns_of(row_class)]
        with self.store.database.read() as session:
            query = select(*row_columns).where(inspect(row_class).primary_key[0] == name)
            json_fields = dict(require(session.execute(query).mappings().first(), kind, name))
            if self._holders:
                holders = select(models.HoldingRow.visitor).where(models.HoldingRow.name == name)
                json_fields[HOLDERS] = list(session.scalars(holders))
            # The exporter's notes; in a full export all, else without the visitor's name.
            note_class, hidden_visitor = models.NoteRow, {} if self._holders else {"visitor": ""}
            query = select(*(getattr(note_class, key) for key in columns_of(note_class)))
            query = query.where(note_class.name == name)
            if hidden_visitor:
                query = query.where(note_class.visitor == self.store.visitor)
            note_rows = session.execute(query.order_by(note_class.visitor)).mappings()
            if notes := [{**note_row, **hidden_visitor} for note_row in note_rows]:
                json_fields[WRITTEN] = notes
        if kind in TABLES:
            json_fields[FILES] = dict(files)
        row_json = json_text(json_fields).encode()
        self._write_member(
            kind, hashlib.sha256(row_json).hexdigest(), len(row_json), io.BytesIO(row_json)
        )
        self._written.add(name)
        self.report.new[kind] += 1

    def _write_member(self, kind: str, sha256: str, size: int, source: Source) -> None:
        """Write one member of the tar: its header, bytes and padding; size in bytes."""
        suffix = "parquet" if kind == TABLE else "json"
        member_header = tarfile.TarInfo(f"twin-{VERSION}/{kind}/{sha256}.{suffix}")
        member_header.size = size
        self._file.write(member_header.tobuf(tarfile.USTAR_FORMAT))
        while chunk := source.read(1 << 20):
            self._file.write(chunk)
        self._file.write(bytes(-size % tarfile.BLOCKSIZE))


@cache
def columns_of(model: type[models.Row]) -> dict[str, Column[Any]]:
    """Exported columns of a class of rows, by attribute name."""
    column_by_key = {attr.key: attr.columns[0] for attr in inspect(model).column_attrs}
    return {key: column for key, column in column_by_key.items()
            if isinstance(column, Column) and key not in LEFT_OUT.get(model, ())}  # fmt: skip


ROW_BYTES_MAX, TABLE_BYTES_MAX = 16 << 20, 1 << 30
# A file that says so many times what it takes on the disk has holes: tables are compressed already.
HOLES_MIN, WHOLE_BYTES = 10, 1 << 20
INTEGER_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


def read_archive(store: Store, file: IO[bytes], name: str) -> Report:
    """Add the archive's parts that the store does not have, except damaged ones; returns what was
    added, present and left out. Raises StoreError."""
    _refuse_sparse(file, name)
    report, has_any_part = Report(), False
    for kind, sha256, part in _members(file, name, report):
        has_any_part = True
        try:
            if kind == TABLE:
                artefact = store.artefacts.save_bytes(part, sha256)
                with store.database.write() as session:
                    add_file(session, store.artefacts, artefact)
                continue
            is_new = _store_row(store, kind, _read_row(part, sha256))
            (report.new if is_new else report.present)[kind] += 1
        except StoreFull:
            raise
        except StoreError as error:
            report.leave_out(str(error))
        except (ValueError, RecursionError) as error:
            report.leave_out(f"the {kind} {sha256} cannot be read: {error}")
    if not has_any_part:
        raise StoreError(f"{name} is no library: `library export` writes one")
    return report


def read_archive_file(store: Store, path: Path) -> Report:
    """Add an archive file's parts that the store does not have. Raises StoreError."""
    name = printable(path.name)
    try:
        with path.open("rb") as file:
            return read_archive(store, file, name)
    except (OSError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from None


def _refuse_sparse(file: IO[bytes], name: str) -> None:
    """Raise StoreError for a sparse file, whose holes would be stored as zeros."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # no file on a disk
        return
    disk_bytes = getattr(status, "st_blocks", status.st_size) * 512
    if status.st_size > max(WHOLE_BYTES, HOLES_MIN * disk_bytes):
        raise StoreError(
            f"{name} says {status.st_size / 1e6:,.0f} MB and takes {disk_bytes / 1e6:,.2f} MB on "
            "the disk: a library has no such holes, copy it again"
        )


class _Part:
    """Reader of one member's bytes."""

    def __init__(self, file: IO[bytes], size: int):
        """Prepare to read the next `size` bytes of a file."""
        self._file, self.bytes_left = file, size

    def read(self, limit: int) -> bytes:
        """Read at most a number of bytes of the member; empty at its end."""
        chunk = self._file.read(min(limit, self.bytes_left))
        self.bytes_left = self.bytes_left - len(chunk) if chunk else 0
        return chunk

    def skip(self) -> None:
        """Move to the member's end, by seeking if the file can."""
        if self._file.seekable():
            self._file.seek(self.bytes_left, os.SEEK_CUR)
            self.bytes_left = 0
        while self.read(1 << 20):
            pass


def _members(file: IO[bytes], name: str, report: Report) -> Iterator[tuple[str, str, _Part]]:
    """Yield kind, SHA-256 and reader of each member of an archive; `report` gets damaged ones."""
    was_end_block = after_damage = False
    while len(block := file.read(tarfile.BLOCKSIZE)) == tarfile.BLOCKSIZE:
        was_end_block = not any(block)
        if was_end_block:
            continue
        try:
            member_header = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, ValueError):
            if not after_damage:
                report.leave_out(f"a part of {name} is damaged")
            after_damage = True
            continue
        after_damage = False
        part = _Part(file, max(member_header.size, 0))
        name_match = MEMBER.fullmatch(member_header.name)
        if name_match and int(name_match[1]) > VERSION:
            raise StoreError(f"{name} was written by a newer twin: update this one")
        if not name_match or not member_header.isreg():
            report.leave_out(f"{printable(member_header.name)} in {name} is no part of a library")
        elif member_header.size > (TABLE_BYTES_MAX if name_match[2] == TABLE else ROW_BYTES_MAX):
            report.leave_out(f"{member_header.name} in {name} is larger than any part of a library")
        else:
            yield name_match[2], name_match[3], part
        part.skip()
        file.read(-max(member_header.size, 0) % tarfile.BLOCKSIZE)
    if not was_end_block:
        report.leave_out(f"{name} is cut off: what came before is taken, the rest is missing")


def _read_row(part: _Part, sha256: str) -> dict[str, Any]:
    """The row of a member, as JSON. Raises StoreError if it is damaged."""
    row_bytes = part.read(ROW_BYTES_MAX)
    if hashlib.sha256(row_bytes).hexdigest() != sha256:
        raise StoreError(f"the row {sha256} is damaged (its SHA-256 is not its name)")
    columns = json.loads(row_bytes)
    if not isinstance(columns, dict):
        raise StoreError(f"the row {sha256} is no table of columns")
    return columns


def _row_values(kind: str, model: type[models.Row], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values of a row's columns, by name, from archived `fields`; raises StoreError."""
    column_by_key = columns_of(model)
    name = printable(str(fields.get(str(inspect(model).primary_key[0].key), "")))
    for column_key, column in column_by_key.items():
        if fault_text := _fault_of(column, fields.get(column_key)):
            raise StoreError(f"the {kind} {name} is left out: its {column_key} {fault_text}")
    return {column_key: fields.get(column_key) for column_key in column_by_key}


def _fault_of(column: Column[Any], value: Any) -> str:
    """What is wrong with a JSON value for a column, '' if nothing is."""
    column_type: Any = column.type
    if value is None:
        return "" if column.nullable else "is missing"
    if isinstance(column_type, (Cell, Seconds)):
        return column_type.fault_of(value)
    if isinstance(value, bool) != (column_type.python_type is bool):
        return "is of another type"
    if column_type.python_type is int:
        maximum = LONG_MAX if isinstance(column_type, BigInteger) else INTEGER_MAX
        return (
            "" if isinstance(value, int) and 0 <= value <= maximum else f"is none of 0 to {maximum}"
        )
    longest = getattr(column_type, "length", None)
    if not isinstance(value, column_type.python_type):
        return "is of another type"
    return f"is longer than {longest} characters" if longest and len(value) > longest else ""


def _store_row(store: Store, kind: str, fields: Mapping[str, Any]) -> bool:
    """Store a row with its holders and notes; returns whether it was new. Raises StoreError."""
    columns = _row_values(kind, KINDS[kind], fields)
    files, holders, notes = fields.get(FILES, {}), fields.get(HOLDERS, []), fields.get(WRITTEN, [])
    if not (isinstance(files, dict) and isinstance(holders, list) and isinstance(notes, list)):
        raise StoreError(f"a {kind} here has no {FILES}, {HOLDERS} or {WRITTEN} that can be")
    note_rows = [_note_row(store, note) for note in notes]
    if kind == SCENARIO:
        scenario_text, digest = columns["body"], columns["digest"]
        if hashlib.sha256(scenario_text.encode()).hexdigest() != digest:
            raise StoreError(f"the scenario {digest} is damaged (its SHA-256 is not its digest)")
        row_key, is_new = store.scenarios.store_if_new(
            scenario_from_canonical(scenario_text), **columns
        )
    else:
        new_row = {FACTS: _facts_row, IMPORT: _import_row, RUN: _run_row}[kind](
            store, columns, files
        )
        row_key = str(inspect(KINDS[kind]).primary_key_from_instance(new_row)[0])
        with store.database.write(durable=True) as session:
            if is_new := session.get(KINDS[kind], row_key) is None:
                session.add(new_row)
                session.flush()
            for table, sha256 in files.items() if is_new else ():
                if not isinstance(sha256, str) or session.get(models.ArtefactRow, sha256) is None:
                    raise StoreError(
                        f"the table {printable(table)} of the {kind} {row_key} is missing"
                    )
                owner_key = {"run": row_key} if kind == RUN else {"digest": row_key}
                session.add(TABLES[kind](**owner_key, name=table, sha256=sha256))
    with store.database.write() as session:
        for visitor in {holder for holder in holders if isinstance(holder, str)}:
            holding = models.HoldingRow(visitor=visitor[:255], name=row_key)
            insert_once(session, (visitor, row_key), holding)
        for note in note_rows:
            note.name = row_key
            insert_once(session, (note.visitor, row_key), note)
    return is_new


def _note_row(store: Store, fields: object) -> models.NoteRow:
    """The checked row of a note; without a visitor the importing one's. Raises StoreError."""
    if not isinstance(fields, dict):
        raise StoreError("a note in this archive is no table of columns")
    row = models.NoteRow(**_row_values("note", models.NoteRow, fields))
    row.visitor, row.tags = row.visitor or store.visitor, join_tags(split_tags(row.tags))
    require_bounded(row)
    return row


def _facts_row(_: Store, values: Mapping[str, Any], __: Mapping[str, str]) -> models.Row:
    """The row of facts, after a check of their digest. Raises StoreError."""
    facts_of_text(values["body"], values["digest"])
    return models.FactsRow(**values)


def _import_row(store: Store, values: Mapping[str, Any], files: Mapping[str, str]) -> models.Row:
    """The row of an imported value, after a check of its seal and tables. Raises StoreError."""
    import_row = models.ImportRow(**values)
    name = printable(import_row.name)
    if (value_store := store.imports.get(import_row.kind)) is None:
        raise StoreError(f"{name} is of a kind that this twin does not know")
    if seal_of(import_row, dict(files)) != import_row.seal:
        raise StoreError(f"the {import_row.kind} {name} is damaged: its seal is broken")
    about = value_store.kind.split(value_store.join(import_row, files)).about
    for key, value in import_row.about.items():
        if json_text(about.get(key)) != json_text(value):
            raise StoreError(
                f"the {import_row.kind} {name} is left out: its tables have another {key}"
            )
    return import_row


def _run_row(store: Store, values: Mapping[str, Any], files: Mapping[str, str]) -> models.Row:
    """The checked row of a run. Raises StoreError if scenario or facts are missing, or damaged."""
    run, state = values["id"], values["state"]
    scenario_row = store.scenarios.get(values["scenario"])
    if scenario_row is None:
        raise StoreError(f"run {printable(run)} asks a scenario that is not here: it is left out")
    with store.database.read() as session:
        facts_digest = values["facts_digest"]
        require(session.get(models.FactsRow, facts_digest), "set of facts", facts_digest)
    needs_no_seal = state != models.DONE and not values["seal"] and not files
    is_sealed = seal({key: values[key] for key in SEALED}, files) == values["seal"]
    if state not in models.ENDED_STATES or not (needs_no_seal or is_sealed):
        raise StoreError(f"run {printable(run)} is damaged: its seal is broken")
    no_owner = {"owner_name": "", "owner_host": "", "owner_pid": 0, "owner_started": ""}
    return models.RunRow(**{**values, **no_owner, "scenario": scenario_row.digest})
