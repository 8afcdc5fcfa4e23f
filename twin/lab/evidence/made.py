"""What takes minutes to work out, kept: what hangs on each figure, and the cross-validation.

`python -m twin calibrate --cross-validate --write` makes data/record/made.toml, with digests of
the facts and rows it was made from, so that whoever shows it can say when it is stale.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from twin.facts import Facts
from twin.lab.evidence.choices import MOVES, all_moved, at_default_skew
from twin.lab.evidence.crossval import CrossValidation, LeftOut, Span, cross_validate
from twin.lab.evidence.judge import evidence
from twin.lab.evidence.rows import SUPERNODE, load_published, rows_digest
from twin.lab.files import write_text
from twin.lab.library import RECORD, published_table

MADE = RECORD / "made.toml"
HEAD = (
    "# What hangs on every figure without a source of its own, and the fit without some of its\n"
    "# rows: made by `python -m twin calibrate --cross-validate --write`.\n\n"
)


@dataclass(frozen=True, slots=True)
class Hangs:
    """A figure without a source of its own, and the row that it moves most."""

    name: str
    kind: str
    row: str
    share: float  # by which a change of a tenth moves the row; infinite where it cannot change

    @property
    def counts(self) -> bool:
        """Whether it moves a published row by more than a hundredth."""
        return self.share > MOVES


@dataclass(frozen=True, slots=True)
class Made:
    """The kept answers, and what they were made from."""

    facts: str
    rows: str
    figures: list[Hangs]
    cross: CrossValidation
    skew_mean: float  # absolute errors of the supernode's seen rows, all at the default skew
    skew_worst: float

    @property
    def default_skew(self) -> str:
        """What seen rows of the supernode would be, had no skew been chosen."""
        return (
            f"With the default skew everywhere the seen rows of {SUPERNODE} would be "
            f"{100 * self.skew_mean:.0f} % off on average, {100 * self.skew_worst:.0f} % at worst."
        )

    @property
    def counted(self) -> int:
        """Figures that were fitted, chosen, assumed or recalled, and that move a row."""
        return sum(figure.counts for figure in self.figures)

    def stale(self, facts: Facts) -> bool:
        """Whether facts or rows are others than those it was made from."""
        return (self.facts, self.rows) != (facts.digest, rows_digest(load_published()))


def make(facts: Facts) -> Made:
    """Work everything out; some minutes."""
    figures = [
        Hangs(m.figure.name, m.figure.kind, m.row, _short(m.share)) for m in all_moved(facts)
    ]
    rows = load_published()
    chosen = [at_default_skew(r) for r in rows if r.group == SUPERNODE and r.kind == "seen"]
    errors = [abs(row["error"]) for row in evidence(facts, chosen)]
    return Made(
        facts.digest, rows_digest(rows), figures, cross_validate(facts),
        _short(sum(errors) / len(errors)), _short(max(errors)),
    )  # fmt: skip


def write_made(made: Made, path: Path = MADE) -> None:
    """Keep it; raises NotWritten."""
    cross = made.cross
    table: dict[str, Any] = {
        "facts": made.facts,
        "rows": made.rows,
        "skew_mean": made.skew_mean,
        "skew_worst": made.skew_worst,
        "figure": [asdict(figure) for figure in made.figures],
        "constant": [_rounded(asdict(span)) for span in cross.constants],
        "left_out": [_rounded(asdict(left)) for left in cross.left_out],
    }
    write_text(path, HEAD + tomli_w.dumps(table))


def load_made(path: Path = MADE) -> Made:
    """What was kept last."""
    table = published_table(path)
    return Made(
        table["facts"],
        table["rows"],
        [Hangs(**figure) for figure in table["figure"]],
        CrossValidation(
            [Span(**span) for span in table["constant"]],
            [LeftOut(**left) for left in table["left_out"]],
        ),
        table["skew_mean"],
        table["skew_worst"],
    )


def _rounded(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: _short(v) if isinstance(v, float) else v for k, v in entry.items()}


def _short(value: float) -> float:
    return value if math.isinf(value) else float(f"{value:.4g}")
