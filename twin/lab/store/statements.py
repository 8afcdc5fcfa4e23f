"""Statements that several kinds of rows share: insert once, publish, users, search, a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from twin.lab.store import models as m
from twin.lab.store.artefacts import Artefact, Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError, UnknownId

T = TypeVar("T")
PAGE = 50  # rows of a page unless told


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the rows that match, and how many match in all."""

    rows: list[T]
    total: int


def insert_once(connection: Connection, table: Table, key: str, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is there; tells whether it was new."""
    there = select(exists().where(table.c[key] == row[key]))
    if connection.execute(there).scalar():
        return False
    try:
        with connection.begin_nested():
            connection.execute(insert(table).values(row))
    except IntegrityError:
        # Another writer was first; only a database without our write lock lets that happen.
        if not connection.execute(there).scalar():
            raise
        return False
    return True


def remember(connection: Connection, artefacts: Artefacts, artefact: Artefact) -> None:
    """Write the row of a stored file; raises StoreError when a sweep took it just before."""
    if not artefacts.path(artefact.sha256).exists():
        raise StoreError(f"the file of artefact {artefact.sha256} vanished: try again")
    row = {
        "sha256": artefact.sha256,
        "bytes": artefact.bytes,
        "rows": artefact.rows,
        "created_s": time.time(),
    }
    insert_once(connection, m.artefacts, "sha256", row)


def publish(database: Database, table: Table, key: str, name: str, kind: str) -> None:
    """Set `published_s` once; doing it again changes nothing. Raises UnknownId."""
    column = table.c[key]
    with database.write(durable=True) as connection:
        connection.execute(
            update(table)
            .where(column == name, table.c.published_s.is_(None))
            .values(published_s=time.time())
        )
        if not connection.execute(select(exists().where(column == name))).scalar():
            raise UnknownId(kind, name)


def users(connection: Connection, what: str, naming: ColumnElement[bool]) -> str:
    """Why an imported file stays: how many scenarios name it; '' when none does."""
    scenarios = connection.execute(select(func.count()).where(naming)).scalar_one()
    if not scenarios:
        return ""
    joined = m.runs.join(m.scenarios, m.runs.c.scenario == m.scenarios.c.digest)
    named = select(func.count()).select_from(joined).where(naming)
    runs = connection.execute(named).scalar_one()
    count = f"{scenarios:,} scenario{'s' if scenarios > 1 else ''}"
    if runs:
        count += f" with {runs:,} run{'s' if runs > 1 else ''}"
    return f"{what} used by {count}: delete those first"


def matching(
    query: Select[Any], text: str, columns: Sequence[Column[Any]], name: Column[Any]
) -> Select[Any]:
    """Narrow a query to rows in which every word occurs, or whose name begins with it."""
    for word in text.split():
        anywhere = [column.icontains(word, autoescape=True) for column in columns]
        query = query.where(or_(*anywhere, name.startswith(word, autoescape=True)))
    return query


def count_of(connection: Connection, query: Select[Any]) -> int:
    """How many rows a query has in all."""
    narrow = query.with_only_columns(func.count(), maintain_column_froms=True).order_by(None)
    return int(connection.execute(narrow).scalar_one())


def page_of(
    connection: Connection,
    query: Select[Any],
    order: Sequence[Any],
    made: Callable[[Any], T],
    limit: int,
    offset: int,
) -> Page[T]:
    """Some of a query's rows in an order, as what `made` makes of each, and how many there are."""
    total = count_of(connection, query)
    rows = connection.execute(query.order_by(*order).limit(limit).offset(offset)).all()
    return Page([made(row) for row in rows], total)
