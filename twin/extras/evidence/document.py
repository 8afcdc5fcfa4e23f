"""The parts of docs/EVIDENCE.md that hang on what was fitted, chosen and left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from twin.extras.evidence.choices import one_skew
from twin.extras.evidence.made import load_made
from twin.lab.evidence.judge import headlines, score_table
from twin.lab.library import load_facts

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Table: TypeAlias = Callable[[Sequence[Mapping[str, str]]], str]  # rows as a Markdown table


def accuracy_table(rows: Rows, table: Table) -> str:
    """The headline of either group of machines, and the errors by kind of row."""
    lines = [*headlines(rows), f"{one_skew(load_facts())} {load_made().default_skew}"]
    return "\n".join([*(f"- {line}" for line in lines), "", table(score_table(rows))])


def cross_table(rows: Rows, table: Table) -> str:
    """Where constants go when rows are left out, what such fits predict, and what was counted."""
    (_, constants), (_, errors), (counted, figures) = load_made().tables().items()
    for row in (*constants, *figures):
        name = next(iter(row))
        row[name] = f"`{row[name]}`"
    return "\n\n".join([table(constants), table(errors), f"{counted}:", table(figures)])
