"""Runs of one question: the newest one that can be given, and one that disagrees."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

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
