"""Whether the runs of an archive are reproduced: each is computed again in a temporary store."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from twin.lab.runs.job import answered, load_engine
from twin.lab.store import RunRow, Store, StoreError, open_store
from twin.lab.store.models import DONE
from twin.lab.store.restore import read_archive_file

State = Literal["same bytes", "differs", "not compared"]
Watch = Callable[[float, Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Verified:
    """One run of an archive; `why` says what differs, or why it was not compared."""

    run: str
    name: str
    state: State
    why: str = ""


def verified(file: Path, watch: Watch = lambda _share, _live: True) -> Iterator[Verified]:
    """Every run of an archive, computed again with its own facts; unreadable parts first. Raises
    StoreError if the file is no archive."""
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/bundle.db", Path(folder) / "artifacts")
        try:
            for damaged in read_archive_file(store, file).left_out:
                yield Verified("", "", "not compared", damaged)
            for row in _rows(store):
                yield _compared(store, row, watch)
        finally:
            store.close()


def _rows(store: Store) -> Iterator[RunRow]:
    """The runs of a store, newest first."""
    offset = 0
    while rows := store.runs.search(offset=offset).rows:
        yield from rows
        offset += len(rows)


def _compared(store: Store, row: RunRow, watch: Watch) -> Verified:
    """Simulate a run again and compare digests and figures."""
    if row.state != DONE or row.damaged:
        return Verified(row.id, row.name, "not compared", row.message or f"it is {row.state}")
    engine = load_engine()
    older = row.engine_version != engine.version
    engine_note = f"by engine {row.engine_version} then, {engine.version} now" if older else ""
    try:
        run = answered(store, row, replace(engine, version=row.engine_version), watch)
    except (StoreError, ValueError) as refusal:
        return Verified(row.id, row.name, "not compared", str(refusal))
    if run.digest == row.result_digest:
        return Verified(row.id, row.name, "same bytes", engine_note)
    changed = [key for key, value in run.summary.items() if row.summary.get(key) != value]
    text = (
        f"{len(changed)} figures differ: {', '.join(changed[:5])}" if changed else "tables differ"
    )
    return Verified(row.id, row.name, "differs", f"{text}; {engine_note}" if engine_note else text)
