"""How well the twin does: published rows beside its answers, and errors in four groups.

What a row can say depends on its kind (`rows.KINDS`): rows that calibrate, that were seen while
choices were made, that follow from another row, and that nobody had seen are never mixed, and
circular and unstated rows are judged by nothing. README, documents, page and command line ask here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twin.facts import Facts
from twin.lab.evidence.measures import answer_row
from twin.lab.evidence.rows import (
    KINDS,
    OTHER,
    SUPERNODE,
    UNJUDGED,
    Row,
    bars,
    load_first,
    load_others,
    load_published,
)

JUDGED = tuple(kind for kind in KINDS if kind not in UNJUDGED)
HONEST = ("unseen", "seen")  # kinds of row that no fit and no arithmetic helped
GROUPS = (SUPERNODE, OTHER)

Judged = Sequence[Mapping[str, Any]]


def evidence(facts: Facts, rows: Sequence[Row] | None = None) -> list[dict[str, Any]]:
    """Each published row with `twin` in the row's unit and `error` = twin / published - 1.

    `judged_error` is the error that counts: of an unseen row the first one, of a row that is
    circular or unstated, or of a bound that is kept, none. `outside`: beyond the row's `bar`.
    """
    first = load_first()
    others: dict[str, list[list[Any]]] = {}
    for other in load_others():
        others.setdefault(other.row, []).append([other.simulator, other.error])
    answers = []
    for row in load_published() if rows is None else rows:
        twin = answer_row(row, facts)
        error = twin / row.value - 1.0
        begun = first.get(row.id)
        counts = begun.error if begun is not None and row.kind == "unseen" else error
        kept = row.at_most and counts <= 0.0
        judged = None if row.kind in UNJUDGED or kept else counts
        bar = bars().of(row)
        answers.append(
            {
                "id": row.id,
                "system": row.system,
                "group": row.group,
                "regime": row.regime,
                "quantity": row.quantity,
                "unit": row.unit,
                "basis": row.basis,
                "published": row.value,
                "twin": twin,
                "error": error,
                "kind": row.kind,
                "because": row.because,
                "judged_error": judged,
                "first_error": None if begun is None else begun.error,
                "first_commit": "" if begun is None else begun.commit,
                "bar": bar,
                "outside": judged is not None and abs(judged) > bar,
                "others": others.get(row.id, []),
                "source": row.source,
                "mark": row.mark,
                "note": row.note,
            }
        )
    return answers


@dataclass(frozen=True, slots=True)
class Score:
    """How well one kind of rows is met: absolute errors as fractions."""

    group: str  # which rows: a group of machines, or a system
    kind: str
    rows: int
    mean: float
    worst: float
    worst_row: str
    mean_bar: float | None  # None: no bar is set for such rows
    outside: int

    @property
    def text(self) -> str:
        """'7.5 % (22.5 %, 15 rows)': mean, worst, how many."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{100 * self.mean:.1f} % ({100 * self.worst:.1f} %, {rows})"


def score(rows: Judged, group: str, kind: str) -> Score | None:
    """The errors that count of one kind of rows; None where there is no such row."""
    chosen = [row for row in rows if row["kind"] == kind and row["judged_error"] is not None]
    if not chosen:
        return None
    errors = [abs(row["judged_error"]) for row in chosen]
    worst = max(chosen, key=lambda row: (abs(row["judged_error"]), row["id"]))
    return Score(
        group, kind, len(chosen), sum(errors) / len(errors), max(errors),
        f"{worst['quantity']} ({worst['system']})",
        bars().mean.get("calibrating" if kind == "calibrating" else group),
        sum(row["outside"] for row in chosen),
    )  # fmt: skip


def scores(rows: Judged) -> list[Score]:
    """Every kind of rows of either group of machines, the strictest judge first."""
    told = [
        score([row for row in rows if row["group"] == group], group, kind)
        for group in GROUPS
        for kind in JUDGED
    ]
    return [each for each in told if each is not None]


def headline(rows: Judged, group: str) -> Score | None:
    """The least flattering of the honest scores of a group: rows unseen, or seen, the worse."""
    own = [each for each in scores(rows) if each.group == group and each.kind in HONEST]
    return max(own, key=lambda each: each.mean, default=None)


def headlines(rows: Judged) -> list[str]:
    """The headline of every group as a sentence."""
    told = []
    for group in GROUPS:
        if (best := headline(rows, group)) is not None:
            told.append(
                f"{group[0].upper()}{group[1:]}: {100 * best.mean:.1f} % off on average, "
                f"{100 * best.worst:.0f} % at worst ({best.rows} {best.kind} rows)."
            )
    return told


def score_table(rows: Judged, by: str = "group") -> list[dict[str, str]]:
    """One line a group (or a system): mean error, worst, and number of rows of every kind."""
    names = list(dict.fromkeys(row[by] for row in rows))
    table = []
    for name in names:
        own = [row for row in rows if row[by] == name]
        told = {kind: score(own, name, kind) for kind in JUDGED}
        table.append(
            {"rows of": name}
            | {kind: "" if each is None else each.text for kind, each in told.items()}
            | {kind: str(sum(row["kind"] == kind for row in own) or "") for kind in UNJUDGED}
        )
    return table
