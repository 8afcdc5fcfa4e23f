"""What is stored in data/record with digests of facts and rows: choices, cross-validation, and
first errors, which are the twin's errors of rows before anyone saw these.

Choices are figures without a source (marks c, e, and f with `saw`) and chosen settings of rows: one
counts where a tenth more moves a judged row by over a hundredth. Parts of the documents: these, and
how well the twin ranks (Kendall's tau with each published sweep of layouts of one machine)."""

import json
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import tomli_w
from scipy.stats import kendalltau

from twin.extras.evidence.calibrate import CrossValidation, LeftOut, Span, cross_validate
from twin.facts import FactError, Facts
from twin.lab.evidence.bands import coverage_texts
from twin.lab.evidence.judge import answer_row, evidence, headlines, now_text, score_table
from twin.lab.evidence.rows import (
    FIRST,
    SUPERNODE,
    UNSEEN,
    EvidenceError,
    First,
    Row,
    load_first_answers,
    load_published,
    rows_digest,
)
from twin.lab.files import write_text
from twin.lab.library import RECORD, ROOT, load_facts, published_table
from twin.scenario import Scenario, fields, values_by_path

CHANGE, MOVES = 1.1, 0.01  # a tenth more; a hundredth of a row
COUNTED = ("cores", "dies")  # units of what comes in whole numbers only
PUBLISHED_SHAPES = "models."
WATTS = "power."  # no row is of energy, so what draws watts moves none
HEADLINE = "cm384-decode-96-4k-tput"
ONE_SKEW = (
    "One skew is a calibrating constant: the paper's decode rows stand at benchmark balance, skew "
    "0.3, chosen with its experts stage in sight; elsewhere the default is 1, the shape of "
    "production traffic. With the default the headline point of 1,943 tokens/s/NPU reads "
    "{default:,.0f} instead of {chosen:,.0f}."
)
# Parts of data/ of which a row reads only what it names.
READ_BY = {"chips": "supernode.chip", "machines": "supernode.machine",
           "stacks": "deployment.stack", "workloads": "workload.lengths"}  # fmt: skip
LEAST = 3  # rows of a sweep
# What a deployment chooses; all else is the machine, the model, the traffic and the software.
LAYOUT = ("supernode.nodes", "deployment.mode", "deployment.prefill", "deployment.decode",
          "deployment.colocated", "experts.redundant", "experts.placement")  # fmt: skip
SERVED = ("decode.throughput", "decode.tpot", "prefill.throughput", "prefill.requests")


@dataclass(frozen=True, slots=True)
class Figure:
    """One fitted, chosen, assumed or recalled figure."""

    name: str  # of the fact, or what a choice is called
    kind: str  # fitted, chosen, assumed or recalled
    why: str
    saw: Sequence[str]
    field: str = ""  # of the scenario; "": a fact
    fact: str = ""
    rows: Sequence[str] = ()  # whose setting it is; (): a fact that any row may read
    other: Any = None  # the other value, where a tenth more means nothing


@dataclass(frozen=True, slots=True)
class Effect:
    """The row that a change of a figure moves most, and by which share."""

    name: str
    kind: str
    row: str
    share: float  # |new / old - 1|; infinite where the twin then refuses to answer

    @property
    def moves_rows(self) -> bool:
        """Whether the changed figure moves a published row by more than a hundredth."""
        return self.share > MOVES


def unsourced_figures(facts: Facts) -> list[Figure]:
    """Every figure without a source of its own, read from the data files."""
    kind_of_mark = {"c": "recalled", "e": "assumed", "f": "fitted"}
    fact_figures = [
        Figure(fact_name, kind_of_mark[fact.mark], fact.source, fact.saw, fact=fact_name)
        for fact_name, fact in facts.items()
        if fact.mark in kind_of_mark and (fact.mark != "f" or fact.saw) and _is_numeric(fact.value)
        and fact.unit != "W" and not fact_name.startswith((PUBLISHED_SHAPES, WATTS))
    ]  # fmt: skip
    choices = published_table(RECORD / "choices.toml")["choice"]
    return fact_figures + [Figure(**entry, kind="chosen") for entry in choices]


def largest_move(
    figure: Figure, facts: Facts, rows: Sequence[Row], answers: Mapping[str, float]
) -> Effect:
    """The row that a change of the figure moves most, by how much; answers: present ones by row."""
    largest_effect = Effect(figure.name, figure.kind, "", 0.0)
    for row in rows:
        if not _may_depend(figure, row):
            continue
        try:
            moved_share = abs(_changed_answer(figure, facts, row) / answers[row.id] - 1.0)
        except (ValueError, FactError):  # without this value the twin has no answer at all
            moved_share = float("inf")
        if moved_share > largest_effect.share:
            largest_effect = replace(largest_effect, row=row.id, share=moved_share)
    return largest_effect


def _may_depend(figure: Figure, row: Row) -> bool:
    """Whether a row can depend on a figure: not on that of another chip, machine or workload."""
    if figure.rows:
        return row.id in figure.rows
    data_folder, entry, *_ = (*figure.fact.split("."), "")
    defaults = values_by_path(Scenario())
    all_settings = [row.scenario] if row.against is None else [row.scenario, row.against]
    chosen_by = READ_BY.get(data_folder)
    if data_folder == "stacks":  # any may be based on it
        return any(chosen_by in settings for settings in all_settings)
    if chosen_by:
        return any(
            settings.get(chosen_by, defaults[chosen_by]) == entry for settings in all_settings
        )
    if data_folder == "operators" and entry in ("ascend", "nvidia"):
        chip = str(row.scenario.get("supernode.chip", defaults["supernode.chip"]))
        return chip.startswith("ascend") == (entry == "ascend")
    return True


def _changed_answer(figure: Figure, facts: Facts, row: Row) -> float:
    """The twin's answer to a row with the figure changed, in the row's unit."""
    if figure.field:
        against = None if row.against is None else _with_other_value(figure, row.against)
        row = replace(row, scenario=_with_other_value(figure, row.scenario), against=against)
    elif (name := figure.fact) in row.facts:
        row = replace(row, facts={**row.facts, name: CHANGE * row.facts[name]})
    else:
        fact = facts[name]
        facts = facts.replaced({name: _increase_by_tenth(fact.value, fact.unit in COUNTED)})
    return answer_row(row, facts)


def _with_other_value(figure: Figure, scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a row with the figure's field at its other value, by default a tenth more."""
    other_value = figure.other
    if other_value is None:
        other_value = scenario.get(figure.field, values_by_path(Scenario())[figure.field])
        if not isinstance(other_value, int):
            other_value = CHANGE * other_value
        elif other_value:  # to an even number, as batches are whole requests a die
            other_value = max(other_value + 2, 2 * round(CHANGE * other_value / 2))
    return {**scenario, figure.field: other_value}


def _increase_by_tenth(value: Any, is_counted: bool) -> Any:
    """A number, or a tuple of numbers, increased by a tenth; is_counted: to whole numbers."""
    if isinstance(value, tuple):
        return tuple(_increase_by_tenth(number, is_counted) for number in value)
    return round(CHANGE * value) if is_counted else CHANGE * value


def _is_numeric(value: Any) -> bool:
    """Whether the value of a fact is a number, or a tuple of numbers alone."""
    if isinstance(value, tuple):
        return all(_is_numeric(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def skew_sentence(facts: Facts) -> str:
    """Sentence on the headline point: its tokens/s/NPU at the chosen skew and at the default."""
    row = next(row for row in load_published() if row.id == HEADLINE)
    answer_at_default = answer_row(with_default_skew(row), facts)
    return ONE_SKEW.format(default=answer_at_default, chosen=answer_row(row, facts))


def with_default_skew(row: Row) -> Row:
    """The row with the default expert skew in place of the one that was chosen for it."""
    scenario, against = (
        {path: setting for path, setting in settings.items() if path != "experts.skew"}
        for settings in (row.scenario, row.against or {})
    )
    return replace(row, scenario=scenario, against=None if row.against is None else against)


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
    figures: list[Effect]
    cross: CrossValidation
    skew_mean: float  # absolute errors of the supernode's seen rows, all at the default skew
    skew_worst: float

    @property
    def default_skew_text(self) -> str:
        """Sentence on the errors of CloudMatrix384's seen rows at the default expert skew."""
        return (
            f"With the default skew everywhere the seen rows of {SUPERNODE} would be "
            f"{100 * self.skew_mean:.0f} % off on average, {100 * self.skew_worst:.0f} % at worst."
        )

    @property
    def moving_figure_count(self) -> int:
        """Number of figures without a source whose increase by a tenth moves a row by over 1 %."""
        return sum(figure.moves_rows for figure in self.figures)

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Three tables by title, as rows of texts by column: constants, rows left out of the fit,
        and figures without a source that move a row."""
        return {
            "Which constants the rows identify": [
                {"constant": span.name, "value": f"{span.value:g}",
                 "without any one row": f"{span.low:.3g} to {span.high:.3g}",
                 "moved most without": span.row, "identified": "yes" if span.identified else "no"}
                for span in self.cross.constants
            ],
            "Rows left out": [
                {"left out": entry.name, "rows": str(entry.rows),
                 "fitted": f"{100 * entry.fitted:.1f} %",
                 "predicted": f"{100 * entry.predicted:.1f} %"}
                for entry in self.cross.left_out
            ],
            f"{self.moving_figure_count} figures without a source of their own move a row by more "
            "than 1 %": [
                {"figure": figure.name, "kind": figure.kind, "row moved most": figure.row,
                 "by": "all of it" if math.isinf(figure.share) else f"{100 * figure.share:.1f} %"}
                for figure in self.figures if figure.moves_rows
            ],
        }  # fmt: skip

    def is_stale(self, facts: Facts) -> bool:
        """Whether facts or published rows have changed since the results were stored."""
        return (self.facts, self.rows) != (facts.digest, rows_digest(load_published()))


def compute_made(facts: Facts) -> Made:
    """Compute the results that are stored in data/record/made.toml; takes some minutes."""
    rows = load_published()
    judged_rows = [row for row in rows if row.kind != "unstated"]
    answers = {row.id: answer_row(row, facts) for row in judged_rows}
    effects = [
        largest_move(figure, facts, judged_rows, answers) for figure in unsourced_figures(facts)
    ]
    effects.sort(key=lambda effect: (-effect.share, effect.name))
    seen_rows = [with_default_skew(r) for r in rows if r.group == SUPERNODE and r.kind == "seen"]
    errors = [abs(row["error"]) for row in evidence(facts, seen_rows)]
    return Made(
        facts.digest, rows_digest(rows),
        effects, cross_validate(facts), sum(errors) / len(errors), max(errors),
    )  # fmt: skip


def write_made(results: Made) -> None:
    """Store the results in data/record/made.toml; raises NotWritten."""
    table = asdict(results, dict_factory=_rounded_fields)
    cross, figures = table.pop("cross"), table.pop("figures")
    table |= {"figure": figures, "constant": cross["constants"], "left_out": cross["left_out"]}
    write_text(MADE, HEAD + tomli_w.dumps(table))


def load_made() -> Made:
    """The stored results of data/record/made.toml."""
    table = published_table(MADE)
    figures, spans, left_out = (table.pop(name) for name in ("figure", "constant", "left_out"))
    cross = CrossValidation([Span(**span) for span in spans], [LeftOut(**row) for row in left_out])
    return Made(figures=[Effect(**figure) for figure in figures], cross=cross, **table)


def _rounded_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs (field, value) of a record as a dict, with finite floats to four figures."""
    return {
        field: float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value
        for field, value in pairs
    }


FIRST_HEAD = (
    "# The twin's first answers to rows that it had never answered before: made by\n"
    "# `python -m twin evidence --first`, with the commit that answered. Never changed.\n\n"
)


def add_first_errors(facts: Facts, path: Path = FIRST, root: Path = ROOT) -> list[dict[str, Any]]:
    """Store first errors of UNSEEN rows; returns the new ones. Raises EvidenceError, NotWritten."""
    stored_first = load_first_answers(path)
    rows = [row for row in load_published() if row.kind in UNSEEN and row.id not in stored_first]
    if not rows:
        return []
    commit, new_entries = clean_commit(root), {}
    for row in rows:
        answer = answer_row(row, facts)
        error = round(answer / row.value - 1.0, 6)
        new_entries[row.id] = First(float(f"{answer:.6g}"), error, commit, row.digest)
    entries = {row_id: asdict(entry) for row_id, entry in {**stored_first, **new_entries}.items()}
    write_text(path, FIRST_HEAD + tomli_w.dumps(entries))
    return [{"id": row_id, **asdict(entry)} for row_id, entry in new_entries.items()]


def clean_commit(root: Path) -> str:
    """Hash of a clone's commit; raises EvidenceError if its twin/ or data/ differ from it."""
    changes = _run_git(root, "status", "--porcelain", "--untracked-files=all", "--", "twin", "data")
    if changes:
        raise EvidenceError(
            "a first error belongs to a commit: commit the changes in twin/ and data/ first"
        )
    return _run_git(root, "rev-parse", "HEAD")


def _run_git(root: Path, *arguments: str) -> str:
    """Output of git with these arguments in the clone `root`. Raises EvidenceError."""
    try:
        git_process = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        raise EvidenceError("a first error needs the git clone whose commit answers") from None
    return git_process.stdout.strip()


Rows: TypeAlias = Sequence[Mapping[str, Any]]
Table: TypeAlias = Callable[[Sequence[Mapping[str, str]]], str]  # rows as a Markdown table


def accuracy_table(rows: Rows, table: Table) -> str:
    """Markdown: sentences on how near simulated figures are to published ones, then a table of the
    errors. rows: published figures with their errors; table: function that formats rows."""
    skew_text = f"{skew_sentence(load_facts())} {load_made().default_skew_text}"
    sentences = (*headlines(rows), now_text(rows), *coverage_texts(), skew_text)
    return "\n".join([*(f"- {sentence}" for sentence in sentences), "", table(score_table(rows))])


def cross_table(rows: Rows, table: Table) -> str:
    """Markdown tables of constants, of errors of rows left out of the fit, and of figures that move
    rows; rows: not used; table: formats rows."""
    constant_rows, error_rows, figure_rows = (tables := load_made().tables()).values()
    for table_row in (*constant_rows, *figure_rows):
        first_column = next(iter(table_row))
        table_row[first_column] = f"`{table_row[first_column]}`"
    figures_text = f"{[*tables][2]}:\n\n{table(figure_rows)}"
    return "\n\n".join([table(constant_rows), table(error_rows), figures_text])


@dataclass(frozen=True, slots=True)
class Ranking:
    """A published sweep and the twin's order of it."""

    system: str
    measure: str
    rows: tuple[str, ...]
    differ: tuple[str, ...]  # labels of the fields
    tau: float  # Kendall's tau b: 1 the same order, -1 the reverse


def rankings(twin: Mapping[str, float], published: Sequence[Row] | None = None) -> list[Ranking]:
    """How the twin ranks each published sweep of layouts with three rows or more; twin: its answers
    by row; published: the rows, by default all."""
    sweeps: dict[str, list[Row]] = {}
    for row in load_published() if published is None else published:
        if row.measure in SERVED and row.against is None and row.kind != "derived":
            settings = {key: value for key, value in row.scenario.items() if not _is_layout(key)}
            setup = [row.system, row.measure, row.unit, settings, dict(row.facts), dict(row.args)]
            sweeps.setdefault(json.dumps(setup, sort_keys=True), []).append(row)
    found_rankings = []
    for rows in sweeps.values():
        if len(rows) < LEAST:
            continue
        tau = kendall_tau([row.value for row in rows], [twin[row.id] for row in rows])
        if tau is not None:
            layout_paths = sorted({key for row in rows for key in row.scenario if _is_layout(key)})
            labels = tuple(fields()[path].label for path in layout_paths
                           if len({str(row.scenario.get(path)) for row in rows}) > 1)  # fmt: skip
            row_ids = tuple(row.id for row in rows)
            found_rankings.append(Ranking(rows[0].system, rows[0].measure, row_ids, labels, tau))
    return sorted(found_rankings, key=lambda r: (-len(r.rows), r.system, r.measure))


def _is_layout(path: str) -> bool:
    """Whether the path of a field is in LAYOUT, or below one there: a deployment chooses it."""
    return any(path == layout_path or path.startswith(f"{layout_path}.") for layout_path in LAYOUT)


def kendall_tau(figures: Sequence[float], other_figures: Sequence[float]) -> float | None:
    """Kendall's tau b of two lists of figures, 1 for the same order; None if one has only ties."""
    tau = float(kendalltau(figures, other_figures).statistic)
    return None if math.isnan(tau) else tau


def ranking_table(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Table of published sweeps with Kendall's tau, as texts by column; answers: judged rows."""
    return [
        {"Published sweep": f"{ranking.system}, {ranking.measure.replace('.', ' ')}",
         "What differs": ", ".join(ranking.differ), "Points": str(len(ranking.rows)),
         "Kendall's tau": f"{ranking.tau:+.2f}"}
        for ranking in rankings({row["id"]: row["twin"] for row in answers})
    ]  # fmt: skip


def rankings_table(rows: Rows, table: Table) -> str:
    """Markdown of `ranking_table`; rows: judged ones; table: formats rows as Markdown."""
    return table(ranking_table(rows))
