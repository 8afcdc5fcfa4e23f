"""What is stored in data/record with digests of facts and rows: choices, cross-validation, and
first errors, which are the twin's errors of rows before anyone saw these."""

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import tomli_w

from twin.extras.evidence.calibrate import CrossValidation, LeftOut, Span, cross_validate
from twin.extras.evidence.choices import Moved, all_moved, at_default_skew, one_skew
from twin.facts import Facts
from twin.lab.evidence.judge import answer_row, evidence, headlines, score_table, today
from twin.lab.evidence.near import covered_in_words
from twin.lab.evidence.rows import (
    FIRST,
    SUPERNODE,
    UNSEEN,
    EvidenceError,
    First,
    load_first,
    load_published,
    rows_digest,
)
from twin.lab.files import write_text
from twin.lab.library import RECORD, ROOT, load_facts, published_table

MADE = RECORD / "made.toml"
HEAD = (
    "# What hangs on every figure without a source of its own, and the fit without some of its\n"
    "# rows: made by `python -m twin calibrate --cross-validate --write`.\n\n"
)


@dataclass(frozen=True, slots=True)
class Made:
    """Stored results, and the digests of their inputs."""

    facts: str
    rows: str
    figures: list[Moved]
    cross: CrossValidation
    skew_mean: float  # absolute errors of the supernode's seen rows, all at the default skew
    skew_worst: float

    @property
    def default_skew(self) -> str:
        """Errors of the supernode's seen rows at the default skew."""
        return (
            f"With the default skew everywhere the seen rows of {SUPERNODE} would be "
            f"{100 * self.skew_mean:.0f} % off on average, {100 * self.skew_worst:.0f} % at worst."
        )

    @property
    def counted(self) -> int:
        """Fitted, chosen, assumed or recalled figures that move a row."""
        return sum(figure.counts for figure in self.figures)

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Rows of three tables in words, by title: constants, rows left out, figures that count."""
        return {
            "Which constants the rows identify": [
                {"constant": c.name, "value": f"{c.value:g}",
                 "without any one row": f"{c.low:.3g} to {c.high:.3g}",
                 "moved most without": c.row, "identified": "yes" if c.identified else "no"}
                for c in self.cross.constants
            ],
            "Rows left out": [
                {"left out": left_out.name, "rows": str(left_out.rows),
                 "fitted": f"{100 * left_out.fitted:.1f} %",
                 "predicted": f"{100 * left_out.predicted:.1f} %"}
                for left_out in self.cross.left_out
            ],
            f"{self.counted} figures without a source of their own move a row by more than 1 %": [
                {"figure": f.name, "kind": f.kind, "row moved most": f.row,
                 "by": "all of it" if math.isinf(f.share) else f"{100 * f.share:.1f} %"}
                for f in self.figures if f.counts
            ],
        }  # fmt: skip

    def stale(self, facts: Facts) -> bool:
        """Whether facts or rows have changed since."""
        return (self.facts, self.rows) != (facts.digest, rows_digest(load_published()))


def make(facts: Facts) -> Made:
    """Compute everything; takes some minutes."""
    figures = [replace(each, share=_short(each.share)) for each in all_moved(facts)]
    rows = load_published()
    fitted_rows = [at_default_skew(r) for r in rows if r.group == SUPERNODE and r.kind == "seen"]
    errors = [abs(row["error"]) for row in evidence(facts, fitted_rows)]
    return Made(
        facts.digest, rows_digest(rows), figures, cross_validate(facts),
        _short(sum(errors) / len(errors)), _short(max(errors)),
    )  # fmt: skip


def write_made(made: Made) -> None:
    """Store the results; raises NotWritten."""
    table = asdict(made)
    cross = table.pop("cross")
    table["figure"] = table.pop("figures")
    table |= {"constant": _rounded(cross["constants"]), "left_out": _rounded(cross["left_out"])}
    write_text(MADE, HEAD + tomli_w.dumps(table))


def load_made() -> Made:
    """The last stored results."""
    table = published_table(MADE)
    figures, spans, left = (table.pop(name) for name in ("figure", "constant", "left_out"))
    cross = CrossValidation([Span(**span) for span in spans], [LeftOut(**rows) for rows in left])
    return Made(figures=[Moved(**figure) for figure in figures], cross=cross, **table)


def _rounded(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: _short(v) if isinstance(v, float) else v for k, v in e.items()} for e in entries]


def _short(value: float) -> float:
    return value if math.isinf(value) else float(f"{value:.4g}")


FIRST_HEAD = (
    "# The twin's first answers to rows that it had never answered before: made by\n"
    "# `python -m twin evidence --first`, with the commit that answered. Never changed.\n\n"
)


def keep_first(facts: Facts, path: Path = FIRST, root: Path = ROOT) -> list[dict[str, Any]]:
    """Store first errors of unseen rows; returns new ones. Raises EvidenceError, NotWritten."""
    before = load_first(path)
    rows = [row for row in load_published() if row.kind in UNSEEN and row.id not in before]
    if not rows:
        return []
    commit, new = committed(root), {}
    for row in rows:
        twin = answer_row(row, facts)
        error = round(twin / row.value - 1.0, 6)
        new[row.id] = First(float(f"{twin:.6g}"), error, commit, row.digest)
    entries = {name: asdict(entry) for name, entry in {**before, **new}.items()}
    write_text(path, FIRST_HEAD + tomli_w.dumps(entries))
    return [{"id": name, **asdict(entry)} for name, entry in new.items()]


def committed(root: Path) -> str:
    """Commit of a clone's files; raises EvidenceError if they differ from it."""
    changed = _git(root, "status", "--porcelain", "--untracked-files=all", "--", "twin", "data")
    if changed:
        raise EvidenceError(
            "a first error belongs to a commit: commit the changes in twin/ and data/ first"
        )
    return _git(root, "rev-parse", "HEAD")


def _git(root: Path, *words: str) -> str:
    """Output of a git command in `root`. Raises EvidenceError."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        raise EvidenceError("a first error needs the git clone whose commit answers") from None
    return done.stdout.strip()


# The parts of docs/EVIDENCE.md that hang on what was fitted, chosen and left out.


Rows: TypeAlias = Sequence[Mapping[str, Any]]
Table: TypeAlias = Callable[[Sequence[Mapping[str, str]]], str]  # rows as a Markdown table


def accuracy_table(rows: Rows, table: Table) -> str:
    """Headlines of both groups of machines, and the errors by kind of row."""
    skew = f"{one_skew(load_facts())} {load_made().default_skew}"
    lines = [f"- {line}" for line in (*headlines(rows), today(rows), *covered_in_words(), skew)]
    return "\n".join([*lines, "", table(score_table(rows))])


def cross_table(rows: Rows, table: Table) -> str:
    """Tables of constants without rows, errors of such fits, and figures that count."""
    (_, constants), (_, errors), (counted_figures, figures) = load_made().tables().items()
    for row in (*constants, *figures):
        name = next(iter(row))
        row[name] = f"`{row[name]}`"
    return "\n\n".join([table(constants), table(errors), f"{counted_figures}:", table(figures)])
