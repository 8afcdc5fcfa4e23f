"""Runs of one question: the newest one that can be given, one that disagrees, and its facts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.orm import Session

from twin.facts import Facts, facts_from_tables
from twin.lab.store.engines import json_text
from twin.lab.store.errors import StoreError
from twin.lab.store.models import DONE, RunRow
from twin.lab.store.scenarios import called


def same_question(
    session: Session, scenario: str, facts: str, version: str, states: Sequence[str]
) -> str | None:
    """The newest run of a question in one of some states that nobody asked to stop."""
    r = RunRow
    return session.scalar(
        select(r.id)
        .where(called(r.scenario, scenario), r.facts_digest == facts, r.engine_version == version)
        .where(r.state.in_(list(states)), r.cancel_s.is_(None) | (r.state == DONE))
        .order_by(r.queued_s.desc(), r.id)
        .limit(1)
    )


def contradiction(session: Session, row: RunRow, digest: str) -> str:
    """A sentence when an earlier run of the same question gave other bytes; else ''."""
    r = RunRow
    other = session.scalar(
        select(r.id)
        .where(r.scenario == row.scenario, r.facts_digest == row.facts_digest)
        .where(r.engine_version == row.engine_version, r.state == DONE, r.result_digest != digest)
        .limit(1)
    )
    return f"the same question gave another result in run {other}" if other else ""


FACT = ("value", "unit", "source", "mark", "note")


@lru_cache(maxsize=4)
def facts_text(facts: Facts) -> str:
    """Facts as they are stored: without their notes, which the digest does not cover."""
    rows = {name: [f.value, f.unit, f.source, f.mark, ""] for name, f in facts.items()}
    return json_text(rows)


def facts_of_text(text: str, digest: str) -> Facts:
    """The facts of a stored text; raises StoreError where they are not those of the digest."""
    try:
        told = json.loads(text).items()
        facts = facts_from_tables({n: dict(zip(FACT, f, strict=True)) for n, f in told})
    except (AttributeError, LookupError, TypeError, ValueError):
        facts = None
    if facts is None or facts.digest != digest:
        raise StoreError(f"the facts {digest} are damaged on disk: restore a backup")
    return facts
