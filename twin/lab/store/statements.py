"""Statements that several kinds of rows share: insert once, publish, search, a page."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from twin.lab.store.artefacts import Artefact, Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.models import ArtefactRow, Row

T = TypeVar("T")
PAGE = 50  # rows of a page by default


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the matching rows, and the number of all."""

    rows: list[T]
    total: int


def insert_once(session: Session, key: str | tuple[str, ...], row: Row) -> None:
    """Insert a row unless its key exists, atomically."""
    if session.get(type(row), key) is None:
        session.add(row)
        session.flush()


def add_file(session: Session, artefacts: Artefacts, artefact: Artefact) -> None:
    """Add the row of a stored file; raises StoreError if `delete_unused` has just deleted it."""
    if not artefacts.path(artefact.sha256).exists():
        raise StoreError(f"the file of artefact {artefact.sha256} vanished: try again")
    insert_once(session, artefact.sha256, ArtefactRow(**asdict(artefact), created_s=time.time()))


def publish(session: Session, kind: str, key: InstrumentedAttribute[str], name: str) -> None:
    """Note the time of sharing in the row whose column `key` is `name`, unless it has one; raises
    UnknownId without such a row. kind: of the row, for the error."""
    row_class: Any = key.class_
    require(session.scalar(select(key).where(key == name)), kind, name)
    statement = update(row_class).where(key == name, row_class.published_s.is_(None))
    session.execute(statement.values(published_s=time.time()))


def require(row: T | None, kind: str, name: str) -> T:
    """The row, if it is not None; raises UnknownId for a name of this kind otherwise."""
    if row is None:
        raise UnknownId(kind, name)
    return row


def page_of(
    database: Database, query: Select[T], text: str, columns: Sequence[InstrumentedAttribute[str]],
    order: Sequence[Any], limit: int, offset: int,
) -> Page[T]:  # fmt: skip
    """A page of the rows that have every word of a text in one of the columns (in the last column
    at its beginning), and the number of all such rows."""
    *text_columns, name_column = columns
    for search_word in text.split():
        conditions = [column.icontains(search_word, autoescape=True) for column in text_columns]
        query = query.where(or_(*conditions, name_column.startswith(search_word, autoescape=True)))
    count_query = query.with_only_columns(func.count(name_column), maintain_column_froms=True)
    with database.read() as session:
        total_rows = session.execute(count_query).scalar_one()
        page_rows = session.scalars(query.order_by(*order).limit(limit).offset(offset)).all()
    return Page(list(page_rows), total_rows)
