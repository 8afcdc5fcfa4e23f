"""Stored scenarios, named by SHA-256; digests of other schemas are aliases. A draft without runs
can be deleted, a preset or a shared scenario cannot."""

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, delete, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session, undefer
from sqlalchemy.orm.interfaces import LoaderOption

from twin.lab.library import presets
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError
from twin.lab.store.models import AliasRow, RunRow, ScenarioRow
from twin.lab.store.statements import PAGE, Page, insert_once, page_of, publish, require
from twin.lab.store.visitors import NOTE_COLUMNS, Undo, Visitor, delete_note, join_notes, undo_of
from twin.metrics.measures import numbered
from twin.scenario import (
    SCHEMA_VERSION,
    Scenario,
    json_text,
    legacy_digests,
    scenario_digest,
    scenario_from_canonical,
)

Kind = Literal["all", "presets", "own"]


class Scenarios:
    """Save, find, share and delete scenarios."""

    def __init__(self, database: Database, visitor: Visitor):
        """Use a database for a visitor."""
        self._database, self._visitor = database, visitor

    def save(self, scenario: Scenario, *, preset: str = "") -> str:
        """Store a scenario once; returns its stored digest. preset: key of the preset, or ''."""
        stored_digest, is_new = self.store_if_new(
            scenario, digest=scenario_digest(scenario), schema_version=SCHEMA_VERSION,
            body=json_text(scenario), preset=preset, created_s=time.time(),
        )  # fmt: skip
        if preset and not is_new:
            has_other_preset = (ScenarioRow.digest == stored_digest) & (
                ScenarioRow.preset != preset
            )
            with self._database.write() as session:
                session.execute(update(ScenarioRow).where(has_other_preset).values(preset=preset))
        return stored_digest

    def store_if_new(self, scenario: Scenario, **columns: Any) -> tuple[str, bool]:
        """Store a scenario unless it is stored; returns its stored digest and whether it was new.
        columns: values of its row, by column."""
        given_digest = columns["digest"]
        digests = (given_digest, scenario_digest(scenario), *legacy_digests(scenario))
        new_row = ScenarioRow(**_columns(scenario), **columns)
        with self._database.write(durable=not columns["preset"]) as session:
            query = select(ScenarioRow.digest).where(ScenarioRow.digest.in_(digests))
            present_digests = session.scalars(query).all()
            stored_digest = present_digests[0] if present_digests else given_digest
            if not present_digests:
                session.add(new_row)
                session.flush()
            self._visitor.hold(session, stored_digest)
            for digest in sorted(set(digests) - {*present_digests, stored_digest}):
                insert_once(session, digest, AliasRow(digest=digest, scenario=stored_digest))
        return stored_digest, not present_digests

    def load(self, digest: str) -> Scenario:
        """The scenario of a digest. Raises UnknownId, or StoreError if it was changed on disk."""
        with self._database.read() as session:
            body_option = undefer(ScenarioRow.body)
            scenario_row = require(self._find(session, digest, body_option), "scenario", digest)
            stored_digest, scenario_text = scenario_row.digest, scenario_row.body
        if hashlib.sha256(scenario_text.encode()).hexdigest() != stored_digest:
            raise StoreError(f"scenario {digest} is damaged on disk: restore a backup")
        return scenario_from_canonical(scenario_text)

    def require_sound(self, digest: str) -> None:
        """Raise StoreError if a scenario's text or a column of its row was changed on disk."""
        scenario, scenario_row = self.load(digest), self.get(digest)
        if damaged := [
            key for key, value in _columns(scenario).items() if getattr(scenario_row, key) != value
        ]:
            raise StoreError(f"the {damaged[0]} of scenario {digest} is damaged: restore a backup")

    def get(self, digest: str) -> ScenarioRow | None:
        """The row of a scenario; None if it is unknown, or another visitor's and not shared."""
        with self._database.read() as session:
            return self._find(session, digest)

    def _find(self, session: Session, digest: str, *options: LoaderOption) -> ScenarioRow | None:
        """The row of a scenario by any of its digests, if the visitor may see it, or None."""
        statement = select(ScenarioRow).where(digest_condition(ScenarioRow.digest, digest))
        scenario_row = session.scalar(statement.options(*options))
        if (
            scenario_row is None
            or scenario_row.preset
            or scenario_row.published
            or self._visitor.sees(session, scenario_row.digest)
        ):
            return scenario_row
        is_shared = RunRow.published_s.is_not(None)
        run_query = select(RunRow.id).where(RunRow.scenario == scenario_row.digest).limit(1)
        run_query = self._visitor.limit_to_held(run_query, RunRow.id, is_shared)
        return scenario_row if session.scalar(run_query) else None

    def search(
        self, text: str = "", *, kind: Kind = "all", tags: Sequence[str] = (), limit: int = PAGE,
        offset: int = 0,
    ) -> Page[ScenarioRow]:  # fmt: skip
        """Scenarios that have each word in name, question, source or note, or as the beginning of
        the digest; newest first, presets by key."""
        preset, digest = ScenarioRow.preset, ScenarioRow.digest
        query = join_notes(select(ScenarioRow), digest, self._visitor.name, tags)
        query = self.limit_to_visible(query)
        if kind != "all":
            query = query.where(preset != "" if kind == "presets" else preset == "")
        order = (preset, digest) if kind == "presets" else (ScenarioRow.created_s.desc(), digest)
        text_columns = (ScenarioRow.name, ScenarioRow.question, ScenarioRow.source, *NOTE_COLUMNS)
        return page_of(self._database, query, text, (*text_columns, digest), order, limit, offset)

    def limit_to_visible(self, query: Select[Any]) -> Select[Any]:
        """The query, limited to presets and the rows that this visitor holds."""
        return self._visitor.limit_to_held(query, ScenarioRow.digest, ScenarioRow.preset != "")

    def publish(self, digest: str) -> None:
        """Mark a scenario and protect it against deletion, because its link was shared."""
        self._visitor.require_writes()
        scenario_row = require(self.get(digest), "scenario", digest)
        with self._database.write(durable=True) as session:
            publish(session, "scenario", ScenarioRow.digest, scenario_row.digest)

    def unpublish(self, digest: str) -> None:
        """Revoke a scenario's link: it finds nothing, unless a run of the scenario is shared."""
        scenario_row = require(self.get(digest), "scenario", digest)
        with self._database.write(durable=True) as session:
            self._visitor.require_sole_holder(session, "scenario", scenario_row.digest)
            statement = update(ScenarioRow).where(ScenarioRow.digest == scenario_row.digest)
            session.execute(statement.values(published_s=None))

    def delete(self, digest: str) -> Undo:
        """Delete a scenario; returns a function that undoes it. Raises StoreError if the scenario
        is a preset, is shared or has runs."""
        with self._database.write(durable=True) as session:
            row = require(self._find(session, digest), "scenario", digest)
            is_own_row, is_alias_of_row = (
                ScenarioRow.digest == row.digest,
                AliasRow.scenario == row.digest,
            )
            condition_by_class = {ScenarioRow: is_own_row, AliasRow: is_alias_of_row}
            undo = undo_of(
                self._database, session, ("scenario", row.digest), condition_by_class, self._visitor
            )
            delete_note(session, row.digest, self._visitor.name)
            if not self._visitor.let_go(session, "scenario", row.digest):
                return undo
            if row.preset:
                raise StoreError(f"{row.name} is a preset: it stays")
            if row.published:
                link_rule = "its link must keep working, or be revoked first"
                raise StoreError(f"{row.name} was shared: {link_rule}")
            if row.runs:
                raise StoreError(f"{row.name} has {numbered(row.runs, 'run')}: delete those first")
            session.execute(delete(ScenarioRow).where(is_own_row))
        return undo

    def store_presets(self) -> list[str]:
        """Store every preset and unmark former ones; returns the presets' digests in order."""
        digests = [self.save(entry.scenario, preset=entry.key) for entry in presets()]
        is_former_preset = (ScenarioRow.preset != "") & ScenarioRow.digest.not_in(digests)
        with self._database.write() as session:
            session.execute(update(ScenarioRow).where(is_former_preset).values(preset=""))
        return digests


def _columns(scenario: Scenario) -> dict[str, str]:
    """Columns of a scenario's row that repeat parts of its text, by name."""
    return {"name": scenario.name, "question": scenario.question, "source": scenario.source,
            "trace_digest": scenario.workload.trace.digest}  # fmt: skip


def digest_condition(column: InstrumentedAttribute[str], digest: str) -> ColumnElement[bool]:
    """Condition that a column is a scenario's stored digest; digest: one of any schema."""
    aliased_digest = select(AliasRow.scenario).where(AliasRow.digest == digest).scalar_subquery()
    return or_(column == digest, column == aliased_digest)


def digests_in_store(session: Session, digests: Sequence[str]) -> dict[str, str]:
    """Stored digest by given digest, which may be of any schema; an unknown one maps to itself."""
    alias_query = select(AliasRow.digest, AliasRow.scenario).where(AliasRow.digest.in_(digests))
    return dict(zip(digests, digests, strict=True)) | dict(session.execute(alias_query).all())
