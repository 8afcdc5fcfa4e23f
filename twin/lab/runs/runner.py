"""Asking for runs: what a question needs is stored, then the run is queued or carried out here.
Whether runs of an archive are reproduced: each is computed again in a temporary store."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from twin.lab import ask
from twin.lab.library import load_facts
from twin.lab.machines import save_linked_machine
from twin.lab.runs.budget import Budget, budget_of, require_fits
from twin.lab.runs.job import ENGINE, Watch, compute_run, execute_run, load_engine
from twin.lab.store import Owner, RunRow, Store, StoreError, open_store
from twin.lab.store.archive import read_archive_file
from twin.lab.store.models import DONE
from twin.lab.store.statements import require
from twin.metrics.measures import numbered
from twin.scenario import Scenario, SpecError, scenario_digest

if TYPE_CHECKING:
    from twin.engine.simulate import Run


def add_run(
    store: Store, scenario: Scenario, *, owner: Owner | None = None, again: bool = True,
    engine: str = ENGINE, waiting: Iterable[Budget] = (),
) -> str:  # fmt: skip
    """Store a scenario and a run of it; returns the run's id. again: whether to add a run even if
    an equal one exists; else the equal one's id is returned. owner: process that carries it out
    (None: it is queued); waiting: budgets of queued runs. Raises StoreError, TooLarge."""
    store.artefacts.require_space()
    save_linked_machine(store, scenario)
    if missing_text := store.missing_text(scenario):
        raise StoreError(missing_text)
    facts = load_facts()
    require_fits(budget_of(store, scenario, facts), waiting)
    digest = store.scenarios.save(scenario)
    version = load_engine(engine).ENGINE_VERSION
    return store.runs.add(digest, facts, version, scenario.seed, owner=owner, again=again)


def run_now(
    store: Store, scenario: Scenario, *, watch: Watch | None = None, engine: str = ENGINE
) -> "tuple[str, Run]":
    """Carry out a run in this process and store it, even a failed one; returns its id and result.
    Raises what the engine raises."""
    owner = Owner.current()
    run_id = add_run(store, scenario, owner=owner, engine=engine)
    run_row = require(store.runs.get(run_id), "run", run_id)
    return run_id, execute_run(store, run_row, owner, load_engine(engine), watch)


def find_run(store: Store, scenario: Scenario, *, engine: str = ENGINE) -> RunRow | None:
    """Newest finished run of exactly this scenario; None without one."""
    version = load_engine(engine).ENGINE_VERSION
    run_id = store.runs.find(scenario_digest(scenario), load_facts().digest, version)
    return store.runs.get(run_id) if run_id else None


def find_or_run(store: Store, scenario: Scenario, watch: Watch, engine: str = ENGINE) -> RunRow:
    """Newest finished run of exactly this scenario; if there is none, one is carried out here."""
    if (run_row := find_run(store, scenario, engine=engine)) is not None:
        return run_row
    run_id, _ = run_now(store, scenario, watch=watch, engine=engine)
    return require(store.runs.get(run_id), "run", run_id)


def run_or_scenario(
    store: Store, name: str, settings: Sequence[str] = (), trace: Path | None = None
) -> tuple[RunRow | None, Scenario]:
    """(run, scenario) if `name` is the id of a stored run; else (None, scenario) of a preset or
    file with these settings and trace. Raises SpecError."""
    run_row = store.runs.get(name)
    if run_row is not None:
        if settings or trace:
            raise SpecError(f"{name} is a run that was made: settings change a scenario")
        return run_row, store.scenarios.load(run_row.scenario)
    try:
        scenario, trace_table = ask.scenario_and_trace(name, settings, trace)
    except ask.UnknownScenario as error:
        raise SpecError(f"{error}; nor is it a run stored here") from None
    if trace_table is not None:
        store.traces.save(trace_table)
    return None, scenario


State = Literal["same bytes", "differs", "not compared"]


@dataclass(frozen=True, slots=True)
class Verified:
    """One run of an archive; `why` says what differs, or why it was not compared."""

    run: str
    name: str
    state: State
    why: str = ""


def verify_runs(file: Path, watch: Watch = lambda _share, _live: True) -> Iterator[Verified]:
    """Compute every run of an archive again; yields a verdict on each. Raises StoreError."""
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/bundle.db", Path(folder) / "artifacts")
        try:
            for damage in read_archive_file(store, file).left_out:
                yield Verified("", "", "not compared", damage)
            row_offset = 0
            while run_rows := store.runs.search(offset=row_offset).rows:
                yield from (_verify_run(store, run_row, watch) for run_row in run_rows)
                row_offset += len(run_rows)
        finally:
            store.close()


def _verify_run(store: Store, row: RunRow, watch: Watch) -> Verified:
    """Compute a run again and compare the bytes of its result; returns the verdict."""
    if row.state != DONE or row.damaged:
        return Verified(row.id, row.name, "not compared", row.message or f"it is {row.state}")
    engine = load_engine()
    version = engine.ENGINE_VERSION
    is_other_engine = row.engine_version != version
    engine_note = f"by engine {row.engine_version} then, {version} now" if is_other_engine else ""
    try:
        run = compute_run(store, row, engine, watch)
    except (StoreError, ValueError) as refusal:
        return Verified(row.id, row.name, "not compared", str(refusal))
    if run.digest == row.result_digest:
        return Verified(row.id, row.name, "same bytes", engine_note)
    figures = [figure for figure, value in run.summary.items() if row.summary.get(figure) != value]
    figure_text = f"other values of {numbered(len(figures), 'figure')}: {', '.join(figures[:5])}"
    why = figure_text if figures else "tables differ"
    return Verified(row.id, row.name, "differs", f"{why}; {engine_note}" if engine_note else why)
