"""The tables as classes (a test compares them with `migrations/`). Times are Unix seconds; JSON is
short, long values are artefacts. A row that was read has no session. Types of columns are checked
in archives and at every read; an invalid value reads as empty, and the row's seal reports it."""

from collections.abc import Callable
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, composite, mapped_column

from twin.lab.store.owner import Owner
from twin.metrics.registry import METRICS

SECONDS_MAX = 9e9  # since 1970: the year 2255; nanoseconds in 64 bits end in 2262
FIGURE_MAX = float(1 << 63)


class Cell(sa.TypeDecorator[Any]):
    """A JSON column that holds values of one type: a dict or a list."""

    impl, cache_ok = sa.JSON, True

    def __init__(
        self,
        json_type: type[dict[str, Any]] | type[list[Any]],
        fault_of: Callable[[Any], str] = lambda _: "",
    ) -> None:
        """A column for values of a type; fault_of: returns what is wrong with a value, or ''."""
        super().__init__()
        self.json_type, self._fault_of_content = json_type, fault_of

    def fault_of(self, value: Any) -> str:
        """What is wrong with a value, '' if nothing is."""
        if not isinstance(value, self.json_type):
            return "is no table" if self.json_type is dict else "is no list"
        return self._fault_of_content(value)

    def process_result_value(self, value: Any, _dialect: Any) -> Any:
        """A stored value, or an empty one of the right type if it is invalid."""
        return self.json_type() if self.fault_of(value) else value


class Seconds(sa.TypeDecorator[float]):
    """A column of a point in time (Unix seconds), a duration (s) or a share."""

    impl, cache_ok = sa.Double, True

    def fault_of(self, value: Any) -> str:
        """What is wrong with a value, '' if nothing is."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_valid = is_number and 0 <= value < SECONDS_MAX
        return "" if is_valid else f"is no time from 0 to {SECONDS_MAX:g} s"

    def process_result_value(self, value: Any, _dialect: Any) -> float | None:
        """A stored value; 0 if it is invalid."""
        return value if value is None or not self.fault_of(value) else 0.0


def fault_of_figures(summary: dict[str, Any]) -> str:
    """What is wrong with a summary, '' if nothing: figures are numbers, or states as text."""
    for metric_key, figure in summary.items():
        metric = METRICS.get(metric_key)
        is_number = isinstance(figure, (int, float)) and abs(figure) < FIGURE_MAX  # nor NaN
        is_text = isinstance(figure, str) and (metric is None or metric.unit == "state")
        if not (is_number or is_text or figure is None):
            return f"has no figure for {metric_key}"
    return ""


def fault_of_checks(checks: list[Any]) -> str:
    """What is wrong with a result's checks, '' if nothing is."""
    type_by_key = {"id": str, "statement": str, "ok": bool, "detail": str}
    for check in checks:
        check_row = {"detail": "", **check} if isinstance(check, dict) else {}
        if not all(
            isinstance(check_row.get(key), value_type) for key, value_type in type_by_key.items()
        ):
            return f"has a check without {', '.join(type_by_key)}"
    return ""


def fault_of_notes(notes: list[Any]) -> str:
    """What is wrong with a result's notes, '' if nothing is."""
    return "" if all(isinstance(note, str) for note in notes) else "has a note that is no text"


QUEUED, RUNNING = "queued", "running"
DONE, FAILED, CANCELLED, INTERRUPTED = "done", "failed", "cancelled", "interrupted"
ENDED_STATES = (DONE, FAILED, CANCELLED, INTERRUPTED)
# Every change of state that may happen; the database refuses all others.
TRANSITIONS = ((QUEUED, RUNNING), (QUEUED, CANCELLED), *((RUNNING, end) for end in ENDED_STATES))

DIGEST = sa.String(64)
# Named before their classes are.
_RUNS = sa.table("runs", sa.column("scenario"))
_IMPORT_TABLES = sa.table("import_tables", sa.column("digest"), sa.column("sha256"))


class Row(DeclarativeBase):
    """A row of any table."""

    metadata = sa.MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        float: Seconds,  # there is no other
        str: sa.Text,
        dict[str, Any]: Cell(dict),
    }


class ScenarioRow(Row):
    """A stored scenario; `published`: its link was given away."""

    __tablename__ = "scenarios"

    digest: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    schema_version: Mapped[int]
    # Canonical JSON: its SHA-256 is the digest.
    body: Mapped[str] = mapped_column(deferred=True)
    name: Mapped[str] = mapped_column(sa.String(120))
    question: Mapped[str]
    source: Mapped[str]
    trace_digest: Mapped[str] = mapped_column(DIGEST)  # "" without a trace; may not be stored here
    parent: Mapped[str | None] = mapped_column(DIGEST)  # what it was forked from: of older twins
    preset: Mapped[str] = mapped_column(sa.String(120))  # key of the preset it is, or ""
    created_s: Mapped[float] = mapped_column(index=True)
    published_s: Mapped[float | None]

    runs: Mapped[int] = column_property(  # how many it has
        sa.select(sa.func.count())
        .select_from(_RUNS)
        .where(_RUNS.c.scenario == digest)
        .correlate_except(_RUNS)
        .scalar_subquery()
    )

    @property
    def published(self) -> bool:
        """Whether the scenario's link was shared and not revoked."""
        return self.published_s is not None


class AliasRow(Row):
    """Another digest of a stored scenario: what a newer or older schema calls it."""

    __tablename__ = "scenario_aliases"

    digest: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    scenario: Mapped[str] = mapped_column(
        DIGEST, sa.ForeignKey("scenarios.digest", ondelete="CASCADE"), index=True
    )


class FactsRow(Row):
    """A set of facts that runs were made with."""

    __tablename__ = "facts"

    digest: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    body: Mapped[str]
    created_s: Mapped[float]


EXPLAINED = "explain."  # an engine version that begins so is of an explanation, not of a run


class RunRow(Row):
    """A run without its tables."""

    __tablename__ = "runs"
    __table_args__ = (
        sa.Index("ix_runs_state_queued_s", "state", "queued_s"),
        sa.Index("ix_runs_scenario_facts_digest", "scenario", "facts_digest"),
    )

    id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    # The question: pinned when the run is made.
    scenario: Mapped[str] = mapped_column(DIGEST, sa.ForeignKey("scenarios.digest"))
    facts_digest: Mapped[str] = mapped_column(DIGEST, sa.ForeignKey("facts.digest"))
    engine_version: Mapped[str] = mapped_column(sa.String(64))
    seed: Mapped[int] = mapped_column(sa.BigInteger)
    queued_s: Mapped[float] = mapped_column(index=True)
    # The attempt.
    state: Mapped[str] = mapped_column(sa.String(16))
    cancel_s: Mapped[float | None]  # when a stop was requested
    progress: Mapped[float] = mapped_column(default=0.0)  # 0..1
    live: Mapped[dict[str, Any]] = mapped_column(default=dict)
    started_s: Mapped[float | None]
    beat_s: Mapped[float | None]
    owner_name: Mapped[str] = mapped_column("owner", sa.String(64))  # "" until claimed
    owner_host: Mapped[str] = mapped_column(sa.String(255))
    owner_pid: Mapped[int] = mapped_column(sa.BigInteger)
    owner_started: Mapped[str] = mapped_column(sa.String(64))
    owner: Mapped[Owner] = composite(owner_name, owner_host, owner_pid, owner_started)
    # The answer: written once, with the change to a final state.
    finished_s: Mapped[float | None]
    wall_s: Mapped[float | None]
    message: Mapped[str] = mapped_column(default="")
    valid: Mapped[bool] = mapped_column(default=False)
    result_digest: Mapped[str] = mapped_column(DIGEST, default="")
    summary: Mapped[dict[str, Any]] = mapped_column(Cell(dict, fault_of_figures), default=dict)
    checks: Mapped[list[dict[str, Any]]] = mapped_column(Cell(list, fault_of_checks), default=list)
    notes: Mapped[list[str]] = mapped_column(Cell(list, fault_of_notes), default=list)
    seal: Mapped[str] = mapped_column(DIGEST, default="")  # SHA-256 over the answer and its tables
    published_s: Mapped[float | None]

    name: Mapped[str] = column_property(
        sa.select(ScenarioRow.name)
        .where(ScenarioRow.digest == scenario)
        .correlate_except(ScenarioRow)
        .scalar_subquery()
    )

    @property
    def ended(self) -> bool:
        """Whether the run's state is final."""
        return self.state in ENDED_STATES

    @property
    def damaged(self) -> bool:
        """Whether the figures of a finished run cannot be read."""
        return self.state == DONE and not self.summary


class HoldingRow(Row):
    """A visitor's hold on a run or a scenario (see `visitors`)."""

    __tablename__ = "holdings"

    visitor: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True, index=True)  # id or digest


class NoteRow(Row):
    """A visitor's note on a run or a scenario (see `visitors`)."""

    __tablename__ = "notes"

    visitor: Mapped[str] = mapped_column(sa.String(255), primary_key=True)  # "" without logins
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True, index=True)  # id or digest
    title: Mapped[str] = mapped_column(sa.String(120))  # shown in place of the scenario's name
    tags: Mapped[str]  # one a line
    text: Mapped[str]


class ArtefactRow(Row):
    """A stored file."""

    __tablename__ = "artefacts"

    sha256: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    bytes: Mapped[int] = mapped_column(sa.BigInteger)
    rows: Mapped[int] = mapped_column(sa.BigInteger)
    created_s: Mapped[float]


class RunTableRow(Row):
    """The file of a run's table."""

    __tablename__ = "run_tables"

    run: Mapped[str] = mapped_column(
        sa.String(64), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    sha256: Mapped[str] = mapped_column(DIGEST, sa.ForeignKey("artefacts.sha256"), index=True)


class ImportRow(Row):
    """An imported value without its tables: a trace, expert counts (see `lab.kinds`)."""

    __tablename__ = "imports"
    __table_args__ = (sa.Index("ix_imports_kind_created_s", "kind", "created_s"),)

    digest: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(64))
    name: Mapped[str] = mapped_column(sa.String(255))
    format: Mapped[str] = mapped_column(sa.String(64))
    about: Mapped[dict[str, Any]]  # scalars, and the counts of rows left out
    rows: Mapped[int] = mapped_column(sa.BigInteger)  # of its first table: requests of a trace
    seal: Mapped[str] = mapped_column(DIGEST)  # SHA-256 over all this and its tables
    created_s: Mapped[float]

    SEALED: ClassVar = ("digest", "kind", "name", "format", "about", "rows")

    bytes: Mapped[int] = column_property(
        sa.select(sa.func.sum(ArtefactRow.bytes))
        .join(_IMPORT_TABLES, _IMPORT_TABLES.c.sha256 == ArtefactRow.sha256)
        .where(_IMPORT_TABLES.c.digest == digest)
        .correlate_except(ArtefactRow, _IMPORT_TABLES)
        .scalar_subquery()
    )


class ImportTableRow(Row):
    """The file of an imported value's table."""

    __tablename__ = "import_tables"

    digest: Mapped[str] = mapped_column(
        DIGEST, sa.ForeignKey("imports.digest", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    sha256: Mapped[str] = mapped_column(DIGEST, sa.ForeignKey("artefacts.sha256"), index=True)
