"""Answers of a question: its runs, the facts they were made with, and the seal over a result."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from twin.facts import Facts, facts_from_tables
from twin.lab.store.artefacts import Artefact
from twin.lab.store.engines import json_text
from twin.lab.store.errors import StoreError
from twin.lab.store.models import DONE, ArtefactRow, RunRow, RunTableRow
from twin.lab.store.scenarios import called

if TYPE_CHECKING:
    from twin.engine.simulate import Run

ANSWER = ("summary", "checks", "notes", "result_digest", "valid")  # what the seal covers


def seal(answer: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """SHA-256 over a result's columns (ANSWER) and the hashes of its tables."""
    return hashlib.sha256(json_text({**answer, "tables": tables}).encode()).hexdigest()


def broken_checks(result: "Run") -> str:
    """Sentence on the laws that do not hold; '' if all do."""
    if result.valid:
        return ""
    broken = [f"{c['id']}: {c['statement']} ({c['detail']})" for c in result.checks if not c["ok"]]
    return "checks do not hold: " + ("; ".join(broken) or "the engine says so, without naming one")


def tables_of(session: Session, run: str) -> dict[str, Artefact]:
    """Names, sizes and hashes of a run's tables."""
    a, t = ArtefactRow, RunTableRow
    query = select(t.name, a.sha256, a.bytes, a.rows).join(a, a.sha256 == t.sha256)
    rows = session.execute(query.where(t.run == run).order_by(t.name))
    return {name: Artefact(sha256, size, height) for name, sha256, size, height in rows}


def same_question(
    session: Session, scenario: str, facts: str, version: str, states: Sequence[str]
) -> str | None:
    """Newest run of a question in one of some states, without a request to stop."""
    r = RunRow
    return session.scalar(
        select(r.id)
        .where(called(r.scenario, scenario), r.facts_digest == facts, r.engine_version == version)
        .where(r.state.in_(list(states)), r.cancel_s.is_(None) | (r.state == DONE))
        .order_by(r.queued_s.desc(), r.id)
        .limit(1)
    )


def contradiction(session: Session, row: RunRow, digest: str) -> str:
    """Sentence if an earlier run of the same question gave other bytes; otherwise ''."""
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
    """Stored text of facts, without notes, which the digest does not cover."""
    rows = {name: [f.value, f.unit, f.source, f.mark, ""] for name, f in facts.items()}
    return json_text(rows)


def facts_of_text(text: str, digest: str) -> Facts:
    """Facts of a stored text; raises StoreError if their digest differs."""
    try:
        rows = json.loads(text).items()
        facts = facts_from_tables({n: dict(zip(FACT, f, strict=True)) for n, f in rows})
    except (AttributeError, LookupError, TypeError, ValueError):
        facts = None
    if facts is None or facts.digest != digest:
        raise StoreError(f"the facts {digest} are damaged on disk: restore a backup")
    return facts
