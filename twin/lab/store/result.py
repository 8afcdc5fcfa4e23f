"""The seal over a stored result, and what its checks say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twin.lab.store.engines import json_text

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
