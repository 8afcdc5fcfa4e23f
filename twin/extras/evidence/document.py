"""The parts of docs/EVIDENCE.md that hang on what was fitted, chosen and left out."""

from __future__ import annotations

import math
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
    made = load_made()
    constants = [
        {"constant": f"`{c.name}`", "value": f"{c.value:g}", "without any one row":
         f"{c.low:.3g} to {c.high:.3g}", "moved most without": c.row,
         "identified": "yes" if c.identified else "no"}
        for c in made.cross.constants
    ]  # fmt: skip
    errors = [
        {"left out": left.name, "rows": str(left.rows), "fitted": f"{100 * left.fitted:.1f} %",
         "predicted": f"{100 * left.predicted:.1f} %"}
        for left in made.cross.left_out
    ]  # fmt: skip
    figures = [
        {"figure": f"`{f.name}`", "kind": f.kind, "row moved most": f.row,
         "by": "all of it" if math.isinf(f.share) else f"{100 * f.share:.1f} %"}
        for f in made.figures
        if f.counts
    ]  # fmt: skip
    counted = f"{made.counted} figures without a source of their own move a row by more than 1 %:"
    return "\n\n".join([table(constants), table(errors), counted, table(figures)])
