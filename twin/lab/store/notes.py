"""What a visitor writes about runs and scenarios: a name of their own, tags, a note.

Words beside the values, never part of them: a run or a scenario keeps its id or digest whatever is
written about it. Where a server knows its visitors each sees only their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError
from twin.lab.store.models import NoteRow
from twin.lab.store.visitors import Visitor

TITLE_CHARS, TEXT_CHARS, TAG_CHARS, TAGS_MAX = 120, 10_000, 40, 20
WRITTEN = (NoteRow.title, NoteRow.tags, NoteRow.text)  # where a search looks


class Notes:
    """Read and write what one visitor says about things, by id or digest."""

    def __init__(self, database: Database, visitor: Visitor):
        self._database, self._visitor = database, visitor

    def of(self, names: Collection[str]) -> dict[str, NoteRow]:
        """What was written about some of these, by name."""
        query = select(NoteRow).where(NoteRow.visitor == self._visitor.name)
        with self._database.read() as session:
            rows = session.scalars(query.where(NoteRow.name.in_(list(names)))).all()
        return {row.name: row for row in rows}

    def tags(self) -> list[str]:
        """Every tag in use, in alphabetical order."""
        query = select(NoteRow.tags).where(
            NoteRow.visitor == self._visitor.name, NoteRow.tags != ""
        )
        with self._database.read() as session:
            lists = session.scalars(query.distinct()).all()
        return sorted({tag for text in lists for tag in split_tags(text)}, key=str.casefold)

    def write(self, name: str, title: str, tags: Iterable[str], text: str) -> None:
        """Keep this in place of what was written before; nothing at all takes it away. Raises
        StoreError for what is too long."""
        self._visitor.require_writes()
        row = NoteRow(
            visitor=self._visitor.name, name=name, title=" ".join(title.split()),
            tags=joined_tags(tags), text=text.strip(),
        )  # fmt: skip
        require_bounded(row)
        with self._database.write(durable=True) as session:
            forget(session, name, self._visitor.name)
            if row.title or row.tags or row.text:
                session.add(row)


def forget(session: Session, name: str, visitor: str) -> None:
    """Take away what a visitor wrote about something."""
    session.execute(delete(NoteRow).where(NoteRow.name == name, NoteRow.visitor == visitor))


def noted(
    query: Select[Any], column: InstrumentedAttribute[str], visitor: str, tags: Iterable[str]
) -> Select[Any]:
    """A query with what a visitor wrote beside each row; only rows that bear all these tags."""
    beside = (NoteRow.name == column) & (NoteRow.visitor == visitor)
    query = query.outerjoin(NoteRow, beside)
    for tag in tags:
        query = query.where(NoteRow.tags.contains(f"\n{tag}\n", autoescape=True))
    return query


def split_tags(text: str) -> list[str]:
    """The tags of a row.

    >>> split_tags(joined_tags(["b", " a  c ", "b", ""]))
    ['b', 'a c']
    """
    return text.strip("\n").split("\n") if text else []


def joined_tags(tags: Iterable[str]) -> str:
    """Tags as a row keeps them: each once, one a line, a line before the first."""
    clean = dict.fromkeys(filter(None, (" ".join(tag.split()) for tag in tags)))
    return "\n" + "".join(f"{tag}\n" for tag in clean) if clean else ""


def require_bounded(row: NoteRow) -> None:
    """Raise StoreError where a text is longer than it may be."""
    tags = split_tags(row.tags)
    if len(row.title) > TITLE_CHARS:
        raise StoreError(f"a name has at most {TITLE_CHARS} characters")
    if len(row.text) > TEXT_CHARS:
        raise StoreError(f"a note has at most {TEXT_CHARS:,} characters")
    if len(tags) > TAGS_MAX or any(len(tag) > TAG_CHARS for tag in tags):
        raise StoreError(f"at most {TAGS_MAX} tags of at most {TAG_CHARS} characters each")
