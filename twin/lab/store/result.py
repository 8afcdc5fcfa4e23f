"""The seal over a stored result, its tables, and what its checks say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from twin.lab.store.artefacts import Artefact
from twin.lab.store.engines import json_text
from twin.lab.store.models import ArtefactRow, RunTableRow

if TYPE_CHECKING:
    from twin.engine.simulate import Run

ANSWER = ("summary", "checks", "notes", "result_digest", "valid")  # what the seal covers


def seal(answer: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """SHA-256 over a result's columns (ANSWER) and the hashes of its tables."""
    return hashlib.sha256(json_text({**answer, "tables": tables}).encode()).hexdigest()


def broken_checks(result: Run) -> str:
    """Which laws do not hold, in one sentence; '' when all do."""
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
