"""What a visitor may see and change where a server has logins, and their private notes. A value is
deleted when its last holder lets go; presets and shared ones are visible to all."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, Table, delete, exists, insert, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError
from twin.lab.store.models import HoldingRow, NoteRow, Row
from twin.lab.store.statements import insert_once, require

Undo = Callable[[], None]  # takes a deletion back; raises StoreError


@dataclass(frozen=True, slots=True)
class Visitor:
    """The visitor of a store; each method works within the caller's transaction."""

    name: str = ""  # whose notes are shown
    known: bool = False  # False: visitors are not known
    writes: bool = True

    def require_writes(self) -> None:
        """Raise StoreError on a read-only server."""
        if not self.writes:
            reason = "this server shows what is stored and keeps nothing"
            raise StoreError(f"{reason}: run a twin of your own to change it")

    def limit_to_held(
        self, query: Select[Any], column: InstrumentedAttribute[str], *others: ColumnElement[bool]
    ) -> Select[Any]:
        """The query, limited to rows that this visitor holds; column: their id or digest; others:
        conditions of rows that every visitor sees."""
        is_own_holding = (HoldingRow.visitor == self.name) & (HoldingRow.name == column)
        is_held = exists().where(is_own_holding).correlate_except(HoldingRow)
        return query.where(or_(is_held, *others)) if self.known and self.writes else query

    def sees(self, session: Session, name: str) -> bool:
        """Whether this visitor may see a run or a scenario: they hold it, or see everything."""
        return not (self.known and self.writes) or self.name in self._holders(session, name)

    def hold(self, session: Session, name: str) -> None:
        """Record that this visitor holds a run (id), a scenario or a file (digest)."""
        self.require_writes()
        if self.known:
            insert_once(session, (self.name, name), HoldingRow(visitor=self.name, name=name))

    def let_go(self, session: Session, kind: str, name: str) -> bool:
        """End this visitor's hold on `name`; True if no other one holds it. Raises StoreError."""
        self.require_writes()
        if not self.known:
            return True
        holders = self._holders(session, name)
        if self.name not in holders:
            raise StoreError(f"this {kind} is somebody else's: only who requested it may do that")
        holding_key = {"name": name, "visitor": self.name}
        session.execute(delete(HoldingRow).filter_by(**holding_key))
        return len(holders) == 1

    def require_sole_holder(self, session: Session, kind: str, name: str) -> None:
        """Raise StoreError unless this visitor alone holds a run, scenario or value."""
        self.require_writes()
        if self.known and (holders := self._holders(session, name)) != {self.name}:
            holder_words = "others' too" if self.name in holders else "somebody else's"
            raise StoreError(
                f"this {kind} is {holder_words}: only who alone requested it may do that"
            )

    def _holders(self, session: Session, name: str) -> Set[str]:
        """Names of the visitors that hold a run, scenario or value."""
        return set(session.scalars(select(HoldingRow.visitor).where(HoldingRow.name == name)))


def undo_of(
    database: Database, session: Session, subject: tuple[str, str],
    deleted: Mapping[type[Row], ColumnElement[bool]], visitor: Visitor,
) -> Undo:  # fmt: skip
    """Function that inserts rows again that are about to be deleted (`deleted`: condition by
    table), with the visitor's note; subject: kind and key of the first row."""
    deleted_rows: list[tuple[type[Row], Table, dict[str, Any]]] = []
    is_own_note = (NoteRow.name == subject[1]) & (NoteRow.visitor == visitor.name)
    condition_by_class: dict[type[Row], ColumnElement[bool]] = {**deleted, NoteRow: is_own_note}
    for row_class, condition in condition_by_class.items():
        table = cast(Table, row_class.__table__)
        row_mappings = session.execute(select(table).where(condition)).mappings()
        deleted_rows += [(row_class, table, dict(mapping)) for mapping in row_mappings]

    def undo() -> None:
        """Insert the deleted rows that are missing."""
        with database.write(durable=True) as new_session:
            for row_class, table, row in deleted_rows:
                primary_key = tuple(row[column.name] for column in table.primary_key)
                if new_session.get(row_class, primary_key) is None:
                    new_session.execute(insert(table), row)
            require(new_session.get(next(iter(deleted)), subject[1]), *subject)
            visitor.hold(new_session, subject[1])

    return undo


TITLE_CHARS, TEXT_CHARS, TAG_CHARS, TAGS_MAX = 120, 10_000, 40, 20
NOTE_COLUMNS = (NoteRow.title, NoteRow.tags, NoteRow.text)  # where a search looks


class Notes:
    """Notes of one visitor on runs and scenarios, by id or digest."""

    def __init__(self, database: Database, visitor: Visitor):
        """Use a database for a visitor's notes."""
        self._database, self._visitor = database, visitor

    def notes_on(self, names: Collection[str]) -> dict[str, NoteRow]:
        """This visitor's notes on runs and scenarios, by id or digest."""
        query = select(NoteRow).where(NoteRow.visitor == self._visitor.name)
        with self._database.read() as session:
            note_rows = session.scalars(query.where(NoteRow.name.in_(list(names)))).all()
        return {note_row.name: note_row for note_row in note_rows}

    def tags(self) -> list[str]:
        """Every tag in this visitor's notes, in alphabetical order."""
        is_own_note = NoteRow.visitor == self._visitor.name
        query = select(NoteRow.tags).where(is_own_note, NoteRow.tags != "")
        with self._database.read() as session:
            tag_texts = session.scalars(query.distinct()).all()
        return sorted(
            {tag for tag_text in tag_texts for tag in split_tags(tag_text)}, key=str.casefold
        )

    def write(self, name: str, title: str, tags: Iterable[str], text: str) -> None:
        """Replace the note on a run or scenario; an empty one is removed. Raises StoreError."""
        self._visitor.require_writes()
        note_row = NoteRow(
            visitor=self._visitor.name, name=name, title=" ".join(title.split()),
            tags=join_tags(tags), text=text.strip(),
        )  # fmt: skip
        require_bounded(note_row)
        with self._database.write(durable=True) as session:
            delete_note(session, name, self._visitor.name)
            if note_row.title or note_row.tags or note_row.text:
                session.add(note_row)


def delete_note(session: Session, name: str, visitor: str) -> None:
    """Delete a visitor's note on a run or scenario."""
    session.execute(delete(NoteRow).where(NoteRow.name == name, NoteRow.visitor == visitor))


def join_notes(
    query: Select[Any], column: InstrumentedAttribute[str], visitor: str, tags: Iterable[str]
) -> Select[Any]:
    """A query joined with a visitor's notes, limited to rows that have all these tags."""
    query = query.outerjoin(NoteRow, (NoteRow.name == column) & (NoteRow.visitor == visitor))
    for tag in tags:
        query = query.where(NoteRow.tags.contains(f"\n{tag}\n", autoescape=True))
    return query


def split_tags(text: str) -> list[str]:
    """The tags of a stored text.

    >>> split_tags(join_tags(["b", " a  c ", "b", ""]))
    ['b', 'a c']
    """
    return text.strip("\n").split("\n") if text else []


def join_tags(tags: Iterable[str]) -> str:
    """Tags as stored in a row: each once, one per line, with a line break first."""
    distinct_tags = dict.fromkeys(filter(None, (" ".join(tag.split()) for tag in tags)))
    return "\n" + "".join(f"{tag}\n" for tag in distinct_tags) if distinct_tags else ""


def require_bounded(row: NoteRow) -> None:
    """Raise StoreError if a note's title, text or tags are longer than allowed."""
    tags = split_tags(row.tags)
    if len(row.title) > TITLE_CHARS:
        raise StoreError(f"a name has at most {TITLE_CHARS} characters")
    if len(row.text) > TEXT_CHARS:
        raise StoreError(f"a note has at most {TEXT_CHARS:,} characters")
    if len(tags) > TAGS_MAX or any(len(tag) > TAG_CHARS for tag in tags):
        raise StoreError(f"at most {TAGS_MAX} tags of at most {TAG_CHARS} characters each")
