"""Engines: the only module (with `migrate`'s triggers) that knows the database. SQLAlchemy's
defaults lose updates on SQLite (373 of 480 measured), so a writer begins with BEGIN IMMEDIATE, or
an advisory lock on PostgreSQL; a reader never waits for it."""

import importlib.util
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from twin.lab.store.errors import StoreError, StoreFull

APPLICATION_ID = 0x5457494E  # "TWIN", in the header of every SQLite file of ours
BUSY_TIMEOUT_S = 30
BUSY = "{where} was busy for " + str(BUSY_TIMEOUT_S) + " s: try again in a moment"
REFUSALS = {  # what a driver says: the sentence for a person
    "is locked": BUSY,
    "lock timeout": BUSY,
    "read-only": "{where} cannot be written by one who only reads",
    "is full": "the disk of {where} is full: free some space and try again",
    "disk I/O error": "{where} cannot be written or read: its disk fails, or a quota or limit is "
    "reached; free some space and try again",
    "not a database": "{where} is not a database: move it away or restore a backup",
    "malformed": "{where} is damaged: restore a backup of it",
    "readonly": "{where} cannot be written: give this user the right to write it and in its folder",
    "unable to open": "{where} cannot be opened: give this user the right to read and write it "
    "and in its folder",
}
NO_ROOM_PHRASES = ("is full", "readonly", "disk I/O error")
SOUND_SQLITE = (3, 51, 3)  # the first release without the WAL-reset corruption bug


@dataclass(frozen=True)
class Database:
    """Two engines on one database; `path` is the SQLite file, None for PostgreSQL."""

    url: URL
    writer: Engine
    reader: Engine
    path: Path | None
    warnings: tuple[str, ...] = field(default=())

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Session]:
        """Begin a short, exclusive transaction; yields its session. durable: forced to disk."""
        with self._store_errors(), _session(self.writer) as session, session.begin():
            session.connection(execution_options={"durable": durable})
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Begin a read-only transaction on one consistent state and yield its session."""
        with self._store_errors(), _session(self.reader) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close all connections."""
        self.writer.dispose()
        self.reader.dispose()

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Raise errors of the database as StoreError."""
        try:
            yield
        except DBAPIError as error:
            raise self._refusal(error) from error
        except StatementError as error:
            if isinstance(error.orig, StoreError):  # raised by json_text on the way in
                raise error.orig from None
            raise
        except UnicodeEncodeError as error:
            raise StoreError(
                f"{ascii(error.object)[:80]} is not text in UTF-8: nothing here is called so"
            ) from None
        except PoolTimeout as error:
            raise StoreError(
                "the database is in use by too many at once: try again in a moment"
            ) from error

    def _refusal(self, error: DBAPIError) -> StoreError:
        """The StoreError that says in words what the database refused."""
        location = str(self.path) if self.path else "the database"
        reason = str(error.orig).splitlines()[0]
        if isinstance(error, IntegrityError):
            is_orphan = "foreign key" in reason.lower()
            return StoreError("what this belongs to was deleted meanwhile" if is_orphan else reason)
        for phrase, sentence in REFUSALS.items():
            if phrase in reason:
                error_class = StoreFull if phrase in NO_ROOM_PHRASES else StoreError
                return error_class(sentence.format(where=location))
        return StoreError(f"{location} refused: {reason}")


def _session(engine: Engine) -> Session:
    """A session whose rows keep their values after updates and commits."""
    return Session(engine, expire_on_commit=False, execution_options={"synchronize_session": False})


def open_database(url: str) -> Database:
    """The database of an SQLite or PostgreSQL URL; changes nothing yet. Raises StoreError."""
    try:
        parsed_url = make_url(url)
    except ArgumentError:
        url_examples = "sqlite:////path/twin.db or postgresql://user@host/name"
        raise StoreError(f"TWIN_DB_URL is not a database URL: write {url_examples}") from None
    driver_name = parsed_url.drivername
    if parsed_url.get_backend_name() == "postgresql":
        return _open_postgresql(parsed_url)
    if driver_name not in ("sqlite", "sqlite+pysqlite"):
        raise StoreError(
            f"TWIN_DB_URL names {driver_name}: the twin stores in SQLite or PostgreSQL"
        )
    if parsed_url.query:
        raise StoreError(
            "TWIN_DB_URL takes no options behind a file: write sqlite:////path/twin.db"
        )
    return _open_sqlite(parsed_url)


def _open_postgresql(url: URL) -> Database:
    """A PostgreSQL database. Raises StoreError without its driver."""
    options: dict[str, Any] = {"pool_pre_ping": True, "json_serializer": json_text}
    try:
        writer = create_engine(url, **options)
    except ArgumentError as error:
        raise StoreError(f"TWIN_DB_URL is not a PostgreSQL URL: {error}") from None
    except ImportError:
        reason = 'PostgreSQL needs its driver psycopg: pip install "psycopg[binary]"'
        raise StoreError(reason) from None
    read_options = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
    reader = create_engine(url, **options, execution_options=read_options)

    @event.listens_for(writer, "begin")
    def _begin(connection: Connection) -> None:
        """Lock the database for one writer until the transaction ends."""
        # One writer at a time, as on SQLite: what a writer has read stays true until it commits.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_TIMEOUT_S}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({APPLICATION_ID})")

    return Database(url, writer, reader, None)


def _open_sqlite(url: URL) -> Database:
    """The database of an SQLite file, whose folder is made. Raises StoreError."""
    if not url.database or url.database == ":memory:":
        raise StoreError("the store needs a file: write sqlite:////path/twin.db")
    path = Path(url.database).resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path.parent} cannot be made: {error.strerror}") from None
    url = url.set(database=str(path))
    driver = _sqlite_driver()
    writer = _sqlite_engine(url, driver, writes=True)
    reader = _sqlite_engine(url, driver, writes=False)
    warning = (
        f"SQLite {driver.sqlite_version} has a rare corruption bug that 3.51.3 fixes: "
        "pip install pysqlite3 brings a newer one"
    )
    is_sound_version = driver.sqlite_version_info >= SOUND_SQLITE
    return Database(url, writer, reader, path, () if is_sound_version else (warning,))


def _sqlite_driver() -> Any:
    """Module of the newest available SQLite: Python's own, or the optional package pysqlite3."""
    if importlib.util.find_spec("pysqlite3") is None:
        return sqlite3
    pysqlite3 = importlib.import_module("pysqlite3.dbapi2")
    return pysqlite3 if pysqlite3.sqlite_version_info > sqlite3.sqlite_version_info else sqlite3


def _sqlite_engine(url: URL, driver: Any, *, writes: bool, migrates: bool = False) -> Engine:
    """An engine that reads or writes an SQLite file; migrates: with foreign keys off, so that a
    rebuilt table deletes no rows of others."""
    pool_options = {"poolclass": NullPool} if migrates else {"pool_size": 8, "max_overflow": 40}
    engine = create_engine(
        url, module=driver, json_serializer=json_text, json_deserializer=json_value,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, **pool_options,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def _set_options(connection: Any, _record: Any) -> None:
        """Set the options of a new connection."""
        connection.isolation_level = None  # transactions begin where we say, not where it guesses
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000}")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA foreign_keys={'OFF' if migrates else 'ON'}")
        if not writes:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        """Begin a transaction; a writer's is exclusive from here on."""
        if writes:
            durable = connection.get_execution_options().get("durable", False)
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def migration_connection(database: Database) -> Iterator[Connection]:
    """Begin a transaction for a new schema; yields its connection. Checks references at the end."""
    if database.path is None:
        with database.write() as session:
            yield session.connection()
        return
    engine = _sqlite_engine(database.url, _sqlite_driver(), writes=True, migrates=True)
    with database._store_errors(), engine.connect() as connection:
        connection.execution_options(durable=True)
        with connection.begin():
            yield connection
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
            if connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise StoreError(f"migrating {database.path} would break references: left as it is")


def prepare_file(database: Database, artefact_folder: Path) -> None:
    """Check that an SQLite file is ours or new, and set its write-ahead log. Raises StoreError."""
    path = database.path
    if path is None:
        return
    if path.exists() and not path.stat().st_size and any(artefact_folder.glob("??/*.parquet")):
        raise StoreError(
            f"{path} is empty although results lie in {artefact_folder}: restore a backup of it, "
            "or delete it to begin anew"
        )
    with database.read() as session:
        connection = session.connection()
        program_id = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
        table_count = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
        journal_mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if program_id != APPLICATION_ID and (program_id or table_count):
        raise StoreError(f"{path} is another program's database: point TWIN_DB_URL elsewhere")
    if journal_mode != "wal":
        execute_raw(database, "PRAGMA journal_mode=WAL")


def execute_raw(database: Database, statement: str, *values: str) -> None:
    """Execute a statement that SQLite requires outside transactions."""
    with database._store_errors():
        raw_connection = database.writer.raw_connection()
        try:
            raw_connection.driver_connection.execute(statement, values)  # type: ignore[union-attr]
        finally:
            raw_connection.close()


def check_integrity(database: Database) -> list[str]:
    """Sentences on faults that SQLite reports; empty if none. Misses most single flipped bytes."""
    if database.path is None:
        return []
    with database.read() as session:
        faults = [
            str(check_row[0]) for check_row in session.execute(text("PRAGMA integrity_check"))
        ]
        dangling_rows = session.execute(text("PRAGMA foreign_key_check")).all()
    faults += [f"dangling reference in {check_row[0]}" for check_row in dangling_rows]
    return [fault for fault in faults if fault != "ok"]


def json_text(value: Any) -> str:
    """JSON with sorted keys; takes numpy scalars. Raises StoreError for NaN and infinity."""
    options: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    try:
        return json.dumps(value, default=np.generic.item, **options)
    except ValueError as error:
        raise StoreError(f"a number that is not finite cannot be stored: {error}") from None


def json_value(text: str | bytes) -> Any:
    """The value of a JSON text; None if it is damaged, which the row's seal reports."""
    try:
        return json.loads(text)
    except ValueError:
        return None
