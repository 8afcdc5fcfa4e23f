"""Stored scenarios: values named by the SHA-256 of their canonical form.

A draft may be deleted while no run needs it; a preset or a shared scenario stays.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import delete, func, select, update

from twin.lab.store import models as m
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.statements import PAGE, Page, insert_once, matching, page_of, publish
from twin.scenario import (
    SCHEMA_VERSION,
    Scenario,
    canonical,
    scenario_digest,
    scenario_from_canonical,
)

Kind = Literal["all", "presets", "own"]


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """A stored scenario without its body."""

    digest: str
    name: str
    question: str
    source: str
    trace_digest: str
    parent: str | None
    preset: str
    created_s: float
    published: bool
    runs: int


class Scenarios:
    """Save, find, share and delete scenarios."""

    def __init__(self, database: Database):
        self._database = database

    def save(self, scenario: Scenario, *, preset: str = "", parent: str | None = None) -> str:
        """Store a scenario, once; returns its digest. `parent` is what it was forked from."""
        digest = scenario_digest(scenario)
        row = {
            "digest": digest,
            "schema_version": SCHEMA_VERSION,
            "body": canonical(scenario),
            "name": scenario.name,
            "question": scenario.question,
            "source": scenario.source,
            "trace_digest": scenario.workload.trace.digest,
            "parent": parent if parent != digest else None,
            "preset": preset,
            "created_s": time.time(),
        }
        with self._database.write() as connection:
            new = insert_once(connection, m.scenarios, "digest", row)
            if preset and not new:
                connection.execute(
                    update(m.scenarios).where(m.scenarios.c.digest == digest).values(preset=preset)
                )
        return digest

    def load(self, digest: str) -> Scenario:
        """The scenario of a digest, its stored text checked against it.

        Raises UnknownId, or StoreError when the text was changed on disk.
        """
        with self._database.read() as connection:
            body = connection.execute(
                select(m.scenarios.c.body).where(m.scenarios.c.digest == digest)
            ).scalar_one_or_none()
        if body is None:
            raise UnknownId("scenario", digest)
        if hashlib.sha256(body.encode()).hexdigest() != digest:
            raise StoreError(f"scenario {digest} is damaged on disk: restore a backup")
        return scenario_from_canonical(body)

    def get(self, digest: str) -> ScenarioRow | None:
        """What is known about a scenario, None when it is not here."""
        with self._database.read() as connection:
            row = connection.execute(_ROWS.where(m.scenarios.c.digest == digest)).first()
        return ScenarioRow(*row) if row else None

    def search(
        self,
        text: str = "",
        *,
        kind: Kind = "all",
        limit: int = PAGE,
        offset: int = 0,
    ) -> Page[ScenarioRow]:
        """Scenarios whose name, question or digest holds every word, newest first."""
        c = m.scenarios.c
        query = matching(_ROWS, text, [c.name, c.question, c.source], c.digest)
        if kind != "all":
            query = query.where(c.preset != "" if kind == "presets" else c.preset == "")
        order = (c.preset, c.digest) if kind == "presets" else (c.created_s.desc(), c.digest)
        with self._database.read() as connection:
            return page_of(connection, query, order, lambda row: ScenarioRow(*row), limit, offset)

    def publish(self, digest: str) -> None:
        """From now on the scenario stays: someone was given its link."""
        publish(self._database, m.scenarios, "digest", digest, "scenario")

    def delete(self, digest: str) -> None:
        """Delete a draft; raises StoreError when it is a preset, shared, or has runs."""
        row = self.get(digest)
        if row is None:
            raise UnknownId("scenario", digest)
        if row.preset:
            raise StoreError(f"{row.name} is a preset: it stays")
        if row.published:
            raise StoreError(f"{row.name} was shared: its link must keep working")
        if row.runs:
            raise StoreError(f"{row.name} has {row.runs} runs: delete them first")
        with self._database.write() as connection:
            connection.execute(delete(m.scenarios).where(m.scenarios.c.digest == digest))

    def keep_presets(self, digests: Collection[str]) -> None:
        """Forget the preset mark of scenarios that are presets no longer."""
        with self._database.write() as connection:
            connection.execute(
                update(m.scenarios)
                .where(m.scenarios.c.preset != "", m.scenarios.c.digest.not_in(sorted(digests)))
                .values(preset="")
            )


_ROWS = select(
    m.scenarios.c.digest,
    m.scenarios.c.name,
    m.scenarios.c.question,
    m.scenarios.c.source,
    m.scenarios.c.trace_digest,
    m.scenarios.c.parent,
    m.scenarios.c.preset,
    m.scenarios.c.created_s,
    m.scenarios.c.published_s.is_not(None),
    select(func.count())
    .select_from(m.runs)
    .where(m.runs.c.scenario == m.scenarios.c.digest)
    .scalar_subquery(),
)
