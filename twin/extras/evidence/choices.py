"""Figures without a source (marks c, e, and f with `saw`) and chosen settings of rows: one counts
where a tenth more moves a judged row by over a hundredth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from twin.facts import Fact, FactError, Facts
from twin.lab.evidence.judge import answer_row
from twin.lab.evidence.rows import Row, load_published
from twin.lab.library import RECORD, published_table
from twin.scenario import Scenario, leaves

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


@dataclass(frozen=True, slots=True)
class Figure:
    """One fitted, chosen, assumed or recalled figure."""

    name: str  # of the fact, or what a choice is called
    kind: str  # fitted, chosen, assumed or recalled
    why: str
    saw: tuple[str, ...]
    field: str = ""  # of the scenario; "": a fact
    fact: str = ""
    rows: tuple[str, ...] = ()  # whose setting it is; (): a fact that any row may read
    other: Any = None  # the other value, where a tenth more means nothing


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure, and the change of the row that its change moves most."""

    name: str
    kind: str
    row: str
    share: float  # |new / old - 1|; infinite where the twin then refuses to answer

    @property
    def counts(self) -> bool:
        """Whether a published row depends on the figure."""
        return self.share > MOVES


@lru_cache(maxsize=1)
def _choices() -> tuple[Figure, ...]:
    """Figures that were chosen with a published result in sight, from choices.toml."""
    return tuple(
        Figure(
            entry["name"], "chosen", entry["why"], tuple(entry["saw"]), entry.get("field", ""),
            entry.get("fact", ""), tuple(entry["rows"]), entry.get("other"),
        )
        for entry in published_table(RECORD / "choices.toml")["choice"]
    )  # fmt: skip


def figures(facts: Facts) -> list[Figure]:
    """Every figure without a source of its own, read from the data files."""
    kinds = {"c": "recalled", "e": "assumed", "f": "fitted"}
    own_figures = [
        Figure(name, kinds[fact.mark], fact.source, fact.saw, fact=name)
        for name, fact in facts.items()
        if fact.mark in kinds and (fact.mark != "f" or fact.saw) and _numbers(fact.value)
        and fact.unit != "W" and not name.startswith((PUBLISHED_SHAPES, WATTS))
    ]  # fmt: skip
    return [*own_figures, *_choices()]


def moved(figure: Figure, facts: Facts, rows: Sequence[Row], known: Mapping[str, float]) -> Moved:
    """The row that a change of the figure moves most; `known`: the present answers."""
    most = Moved(figure.name, figure.kind, "", 0.0)
    for row in rows:
        if not _concerns(figure, row):
            continue
        try:
            share = abs(_changed(figure, facts, row) / known[row.id] - 1.0)
        except (ValueError, FactError):  # it could not have been otherwise: all hangs on it
            share = float("inf")
        if share > most.share:
            most = replace(most, row=row.id, share=share)
    return most


def _concerns(figure: Figure, row: Row) -> bool:
    """Whether a row can depend on the figure: not if the figure is of another machine or stack."""
    if figure.rows:
        return row.id in figure.rows
    part, name, *_ = (*figure.fact.split("."), "")
    default = leaves(Scenario())
    both_scenarios = [row.scenario] if row.against is None else [row.scenario, row.against]
    field = READ_BY.get(part)
    if part == "stacks":  # any may be based on it
        return any(field in row for row in both_scenarios)
    if field:
        return any(row.get(field, default[field]) == name for row in both_scenarios)
    if part == "operators" and name in ("ascend", "nvidia"):
        chip = str(row.scenario.get("supernode.chip", default["supernode.chip"]))
        return chip.startswith("ascend") == (name == "ascend")
    return True


def all_moved(facts: Facts) -> list[Moved]:
    """Effects of all figures, the largest first; takes some minutes."""
    rows = [row for row in load_published() if row.kind != "unstated"]
    answer_of_row = {row.id: answer_row(row, facts) for row in rows}
    answers = [moved(figure, facts, rows, answer_of_row) for figure in figures(facts)]
    return sorted(answers, key=lambda each: (-each.share, each.name))


def _changed(figure: Figure, facts: Facts, row: Row) -> float:
    """The answer to a row with the figure changed."""
    if figure.field:
        against = None if row.against is None else _with(figure, row.against)
        row = replace(row, scenario=_with(figure, row.scenario), against=against)
    elif (name := figure.fact) in row.facts:
        row = replace(row, facts={**row.facts, name: CHANGE * row.facts[name]})
    else:
        facts = facts.replaced({name: _scaled(facts[name])})
    return answer_row(row, facts)


def _with(figure: Figure, scenario: Mapping[str, Any]) -> dict[str, Any]:
    """A row's settings with the choice changed; a default setting is stated first."""
    value = figure.other
    if value is None:
        value = _more(scenario.get(figure.field, leaves(Scenario())[figure.field]))
    return {**scenario, figure.field: value}


def _scaled(fact: Fact) -> Any:
    """A figure of data/, or a whole table, increased by a tenth; counts by whole numbers."""

    def more(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(more(v) for v in value)
        return round(CHANGE * value) if fact.unit in COUNTED else CHANGE * value

    return more(fact.value)


def _more(value: Any) -> Any:
    """A setting increased by a tenth: a whole number to the next even one, because batches are
    whole requests per die."""
    if isinstance(value, int):
        return max(value + 2, 2 * round(CHANGE * value / 2)) if value else 0
    return CHANGE * value


def _numbers(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_numbers(v) for v in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_skew(facts: Facts) -> str:
    """The headline point at the chosen skew and at the default."""
    row = next(row for row in load_published() if row.id == HEADLINE)
    return ONE_SKEW.format(
        default=answer_row(at_default_skew(row), facts), chosen=answer_row(row, facts)
    )


def at_default_skew(row: Row) -> Row:
    """A row with the default skew of experts, instead of the chosen one."""

    def unchosen(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in settings.items() if k != "experts.skew"}

    against = None if row.against is None else unchosen(row.against)
    return replace(row, scenario=unchosen(row.scenario), against=against)
