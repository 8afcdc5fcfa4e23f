"""The published rows, and the bars they are held to: data/published.toml, read and checked.

Each row names what to measure and how the scenario differs from the default; which rows calibrate
is said there. Nothing here knows what the twin answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from twin.lab.library import PUBLISHED, published_table
from twin.scenario import Scenario, with_overrides

SUPERNODE, OTHER = "CloudMatrix384", "other systems"  # groups of rows, as the bars name them


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
    calibrates: bool
    source: str
    mark: str
    note: str = ""
    scenario: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] | None = None

    @property
    def family(self) -> str:
        """The kind of measure: decode, prefill, exchange, ..."""
        return self.measure.split(".")[0]

    @property
    def group(self) -> str:
        """CloudMatrix384 where the row's system or its source says so, else other systems."""
        return SUPERNODE if "CloudMatrix" in f"{self.system} {self.source}" else OTHER


@dataclass(frozen=True, slots=True)
class Bars:
    """Absolute errors that the twin sets itself as bars, as fractions."""

    mean: Mapping[str, float]  # mean of a kind of row: fitted, or predicted by group
    worst: Mapping[str, float]  # one row, by group
    exchange: float  # dispatch or combine alone, over EP degree

    def of(self, row: Row) -> float:
        """The largest absolute error that is no miss for this row."""
        return self.exchange if row.family == "exchange" else self.worst[row.group]


def load_published(path: Path = PUBLISHED) -> list[Row]:
    """All published rows in the order of the file; raises EvidenceError for a malformed one."""
    rows = []
    for entry in published_table(path)["row"]:
        try:
            rows.append(Row(**entry))
        except TypeError as error:
            raise EvidenceError(f"{path.name}: row {entry.get('id', '?')}: {error}") from None
    if len({row.id for row in rows}) < len(rows):
        raise EvidenceError(f"{path.name}: two rows share an id")
    return rows


@lru_cache(maxsize=1)
def bars() -> Bars:
    """The bars of data/published.toml."""
    return Bars(**published_table(PUBLISHED)["bars"])


def scenario_of(overrides: Mapping[str, Any]) -> Scenario:
    """The default scenario with a row's overrides."""
    return with_overrides(Scenario(), dict(overrides))
