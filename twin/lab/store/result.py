"""What a finished simulation hands over to be stored, and the seal over it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from twin.lab.store.engines import json_text

ANSWER = ("summary", "checks", "notes", "result_digest", "valid")  # what the seal covers


class Result(Protocol):
    """What a finished simulation hands over; `engine.simulate.Run` is one."""

    @property
    def digest(self) -> str:
        """SHA-256 of its tables."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Headline figures by name."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Tables by name."""

    @property
    def checks(self) -> Sequence[Mapping[str, Any]]:
        """Laws, each with `id`, `statement`, `ok` and `detail`."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the figures must know."""

    @property
    def valid(self) -> bool:
        """Whether all laws held."""


def seal(answer: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """SHA-256 over a result's columns (ANSWER) and the hashes of its tables."""
    return hashlib.sha256(json_text({**answer, "tables": tables}).encode()).hexdigest()


def broken_checks(result: Result) -> str:
    """Which laws do not hold, in one sentence; '' when all do."""
    if result.valid:
        return ""
    broken = [f"{c['id']}: {c['statement']} ({c['detail']})" for c in result.checks if not c["ok"]]
    return "checks do not hold: " + ("; ".join(broken) or "the engine says so, without naming one")
