"""Errors of the twin's answers, by row and group; groups never mix kinds of rows (`rows.KINDS`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from twin.facts import Facts
from twin.lab.evidence.measures import answer_row
from twin.lab.evidence.rows import (
    KINDS,
    OTHER,
    SUPERNODE,
    UNJUDGED,
    UNSEEN,
    Row,
    bars,
    load_first,
    load_others,
    load_published,
    rows_digest,
    scenario_of,
)
from twin.lab.files import write_text
from twin.lab.library import RECORD, published_table
from twin.scenario import Scenario

JUDGED = tuple(kind for kind in KINDS if kind not in UNJUDGED)
# What of a row stands next to its answer.
SAID = ("id", "system", "group", "regime", "quantity", "unit", "basis", "kind", "because",
        "source", "mark", "note")  # fmt: skip
HONEST = (*UNSEEN, "seen")  # kinds of row that no fit and no arithmetic helped
GROUPS = (SUPERNODE, OTHER)

Judged = Sequence[Mapping[str, Any]]


def evidence(facts: Facts, rows: Sequence[Row] | None = None) -> list[dict[str, Any]]:
    """Rows (None: the published ones) with `twin` in the row's unit and `error` = twin / published
    - 1; `judged_error` is the error that counts (the first of an unseen row, none of a circular or
    unstated one); `outside`: it exceeds the row's `bar`."""
    if rows is None:
        return [dict(answer) for answer in _published(facts)]
    return _judged(facts, rows)


@lru_cache(maxsize=1)
def _published(facts: Facts) -> list[dict[str, Any]]:
    return _judged(facts, load_published())


def _judged(facts: Facts, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows with the twin's answer, its error, first error and verdict."""
    first = load_first()
    others: dict[str, list[list[Any]]] = {}
    for other in load_others():
        others.setdefault(other.row, []).append([other.simulator, other.error])
    answers = []
    for row in rows:
        twin = answer_row(row, facts)
        error = twin / row.value - 1.0
        first_error = first.get(row.id)
        counts = first_error.error if first_error is not None and row.kind in UNSEEN else error
        holds = row.at_most and counts <= 0.0
        judged_error = None if row.kind in UNJUDGED or holds else counts
        bar = bars().of(row)
        answers.append(
            {name: getattr(row, name) for name in SAID}
            | {
                "published": row.value,
                "twin": twin,
                "error": error,
                "judged_error": judged_error,
                "first_error": None if first_error is None else first_error.error,
                "first_commit": "" if first_error is None else first_error.commit,
                "bar": bar,
                "outside": judged_error is not None and abs(judged_error) > bar,
                "others": others.get(row.id, []),
            }
        )
    return answers


@dataclass(frozen=True, slots=True)
class Score:
    """Absolute errors of one kind of rows, as fractions."""

    group: str  # which rows: a group of machines, or a system
    kind: str
    rows: int
    mean: float
    worst: float

    @property
    def text(self) -> str:
        """'7.5 % (22.5 %, 15 rows)': mean, worst, how many."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{100 * self.mean:.1f} % ({100 * self.worst:.1f} %, {rows})"


def score(rows: Judged, group: str, kind: str) -> Score | None:
    """Score of one kind of rows by the errors that count; None without rows."""
    judged_rows = [row for row in rows if row["kind"] == kind and row["judged_error"] is not None]
    if not judged_rows:
        return None
    errors = [abs(row["judged_error"]) for row in judged_rows]
    return Score(group, kind, len(judged_rows), sum(errors) / len(errors), max(errors))


def scores(rows: Judged) -> list[Score]:
    """Scores of every kind of rows of both groups of machines, the strictest kind first."""
    rows_of_group = {group: [row for row in rows if row["group"] == group] for group in GROUPS}
    group_scores = (score(rows_of_group[group], group, kind) for group in GROUPS for kind in JUDGED)
    return [each for each in group_scores if each is not None]


def headline(rows: Judged, group: str) -> Score | None:
    """The worse of a group's scores of unseen and of seen rows; rows of known families apart."""
    own = [each for each in scores(rows) if each.group == group and each.kind in ("unseen", "seen")]
    return max(own, key=lambda each: each.mean, default=None)


def headlines(rows: Judged) -> list[str]:
    """Headline of every group as a sentence, and that of unseen rows of known families."""
    sentences = [headline(rows, group) for group in GROUPS]
    sentences += [score([r for r in rows if r["group"] == g], g, UNSEEN[1]) for g in GROUPS]
    return [
        f"{best.group[0].upper()}{best.group[1:]}: {100 * best.mean:.1f} % off on average, "
        f"{100 * best.worst:.0f} % at worst ({best.rows} {best.kind} rows{_balance(best.group)})."
        for best in sentences
        if best is not None
    ]


def _balance(group: str) -> str:
    """Skew of experts of the supernode's rows, if it is not the default."""
    if group != SUPERNODE:
        return ""
    skews = {scenario_of(row.scenario).experts.skew for row in load_published()
             if row.group == group} - {Scenario().experts.skew}  # fmt: skip
    if not skews:
        return ""
    each = " and ".join(f"{skew:g}" for skew in sorted(skews))
    return f"; the paper's rows at benchmark balance: skew {each}, a calibrating constant"


def score_table(rows: Judged, by: str = "group") -> list[dict[str, str]]:
    """One line a group (or a system): mean error, worst, and number of rows of every kind."""
    table = []
    for name in dict.fromkeys(row[by] for row in rows):
        own = [row for row in rows if row[by] == name]
        by_kind = {kind: score(own, name, kind) for kind in JUDGED}
        table.append(
            {"rows of": name}
            | {kind: "" if each is None else each.text for kind, each in by_kind.items()}
            | {kind: str(sum(row["kind"] == kind for row in own) or "") for kind in UNJUDGED}
        )
    return table


ERRORS = RECORD / "errors.toml"


@lru_cache(maxsize=1)
def stored_errors() -> dict[str, Any]:
    """The last stored errors, with the digests of their facts and rows."""
    return published_table(ERRORS)


def write_errors(facts: Facts, answers: Judged, path: Path = ERRORS) -> None:
    """Store the errors of unseen and seen rows, and today's; raises NotWritten."""
    table = {
        "facts": facts.digest,
        "rows": rows_digest(load_published()),
        "error": {
            row["id"]: round(row["judged_error"], 4)
            for row in answers
            if row["kind"] in HONEST and row["judged_error"] is not None
        },
        "today": {
            row["id"]: round(row["error"], 4)
            for row in answers
            if row["kind"] == "seen" or row["first_error"] is not None
        },
    }
    head = (
        "# Errors of rows that no fit helped (`error`: of unseen rows the first), and of these\n"
        "# and of all with a first error `today`: by `python -m twin evidence --write`.\n\n"
    )
    write_text(path, head + tomli_w.dumps(table))
