"""Published rows, their bars (data/published.toml) and records (data/record/), checked."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from twin.lab.library import PUBLISHED, RECORD, published_table
from twin.scenario import Scenario, with_overrides

SUPERNODE, OTHER = "CloudMatrix384", "other systems"  # groups of rows, as the bars name them
# What a row of each kind can say, the strictest judge first.
KINDS = {
    "unseen": "entered before the twin answered; judged by that first error, for ever",
    "unseen, known family": "as unseen, of a system that has other rows here",
    "seen": "a choice of the model or of the row was made with the figure in sight",
    "derived": "follows from another row: half of a sum, the same run twice",
    "calibrating": "sets a fitted constant, so its error says how well the model's form fits",
    "circular": "a figure in data/ is made from it; judged by nothing",
    "unstated": "settings that decide it are not published but chosen; judged by nothing",
}
UNSEEN = ("unseen", "unseen, known family")
UNJUDGED = ("circular", "unstated")
FIRST = RECORD / "first_errors.toml"


class EvidenceError(ValueError):
    """A published row that cannot be answered: one sentence naming the row and the reason."""


@dataclass(frozen=True)
class Row:
    """One published result; see the head of data/published.toml."""

    id: str
    system: str
    regime: str
    quantity: str
    unit: str
    value: float
    basis: str
    measure: str
    kind: str
    source: str
    mark: str
    because: str = ""  # why it is derived, circular or unstated
    at_most: bool = False  # the published value is a bound: where it holds, it says nothing
    note: str = ""
    scenario: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the row's question and published figure."""
        digested_fields = [self.measure, self.value, self.unit, self.scenario, self.facts,
                           self.args, self.against]  # fmt: skip
        return hashlib.sha256(json.dumps(digested_fields, sort_keys=True).encode()).hexdigest()

    @property
    def family(self) -> str:
        """First part of the measure's name: 'decode', 'prefill', 'exchange', ..."""
        return self.measure.split(".")[0]

    @property
    def group(self) -> str:
        """CloudMatrix384 if the row's system or source names it, otherwise other systems."""
        return SUPERNODE if "CloudMatrix" in f"{self.system} {self.source}" else OTHER


@dataclass(frozen=True, slots=True)
class First:
    """The twin's first answer to a row: written by a command, never changed."""

    twin: float
    error: float  # signed fraction
    commit: str  # of the twin that answered
    asked: str  # digest of the row that was answered


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that the twin sets itself for absolute errors, as fractions."""

    mean: Mapping[str, float]  # mean of a kind of row: fitted, or predicted by group
    worst: Mapping[str, float]  # one row, by group
    exchange: float  # dispatch or combine alone, over EP degree
    figures: int  # without a source of their own that move a row, at most

    def limit(self, row: Row) -> float:
        """Largest absolute error (fraction) that the twin allows itself for this row."""
        return self.exchange if row.family == "exchange" else self.worst[row.group]


@lru_cache(maxsize=4)
def load_published(path: Path = PUBLISHED) -> tuple[Row, ...]:
    """All published rows in the order of the file; raises EvidenceError if one is malformed."""
    rows = []
    for row_entry in published_table(path)["row"]:
        try:
            row = Row(**row_entry)
        except TypeError as error:
            raise EvidenceError(f"{path.name}: row {row_entry.get('id', '?')}: {error}") from None
        if row.kind not in KINDS:
            kinds_text = ", ".join(KINDS)
            raise EvidenceError(f"{path.name}: row {row.id}: kind must be one of {kinds_text}")
        rows.append(row)
    if len({row.id for row in rows}) < len(rows):
        raise EvidenceError(f"{path.name}: two rows share an id")
    return tuple(rows)


def rows_digest(rows: Sequence[Row]) -> str:
    """SHA-256 over the questions and kinds of all rows."""
    row_lines = "".join(f"{row.id} {row.kind} {row.digest}\n" for row in rows)
    return hashlib.sha256(row_lines.encode()).hexdigest()


def load_first_answers(path: Path = FIRST) -> dict[str, First]:
    """The twin's first answers to published rows by row id; empty if none were written."""
    if not path.exists():
        return {}
    return {row_id: First(**entry) for row_id, entry in published_table(path).items()}


def load_missing() -> list[dict[str, str]]:
    """Published results that no scenario can express, with the feature that is `missing`."""
    missing_rows: list[dict[str, str]] = published_table(RECORD / "beyond.toml")["row"]
    return missing_rows


@lru_cache(maxsize=1)
def error_limits() -> Bars:
    """Largest errors (fractions, by group) against published figures that the twin allows itself,
    and its largest number of figures without a source; from data/published.toml."""
    return Bars(**published_table(PUBLISHED)["bars"])


def scenario_of(overrides: Mapping[str, Any]) -> Scenario:
    """The default scenario with overrides by field path; equal overrides give one object."""
    return _scenario_of(json.dumps(dict(overrides)))


@lru_cache(maxsize=1024)
def _scenario_of(overrides: str) -> Scenario:
    """The default scenario with overrides (JSON), cached."""
    return with_overrides(Scenario(), json.loads(overrides))
