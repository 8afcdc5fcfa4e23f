"""Live runs: a draft simulated while it is edited, beside the library and never in it.

They have a store of their own in a folder that goes with the process, and one warm process of
their own, so that an edit waits for nobody's run. A question is cut to a horizon that takes about
`SECONDS`; one that needs a file of the library (a trace, counts, an imported machine) is not asked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from twin.facts import Facts
from twin.hardware.imported import look_in
from twin.lab import warm
from twin.lab.budget import estimate
from twin.lab.executor import Runner
from twin.lab.kinds import COUNTS, TRACE
from twin.lab.store import Store, UnknownId, open_store
from twin.lab.store.models import ENDED_STATES
from twin.scenario import Scenario, SpecError, with_overrides

SECONDS = 0.6  # that a live run may be estimated to take
SHORTEST_S = 20.0  # of simulated time: below, next to nothing would finish
KEPT = 100  # runs whose visitors may still be looking


@dataclass(frozen=True, slots=True)
class Look:
    """How a live run stands: how far it is, what it has counted, and its answer once it ended."""

    progress: float
    live: Mapping[str, Any]
    summary: Mapping[str, Any]
    ended: bool


class Live:
    """The live runs of one server."""

    def __init__(self, library: Store) -> None:
        """Start the process; files are still looked for in the library."""
        self._folder = tempfile.TemporaryDirectory(prefix="twin-live-")
        home = Path(self._folder.name)
        self._store = open_store(f"sqlite:///{home / 'live.db'}", home / "live.artifacts")
        look_in(library.machines.load)
        self._runner = Runner(self._store, processes=1).start()
        self._asked = 0

    def ask(self, question: Scenario, superseded: str = "") -> str:
        """Begin a run, stop and forget the one that it takes the place of; returns its id."""
        self.drop(superseded)
        self._asked += 1
        if self._asked % KEPT == 0:
            self.tidy()
        return self._runner.submit(question)

    def tidy(self, younger_s: float = 60.0) -> None:
        """Forget all but the newest runs, with the files of all that are not that young."""
        while gone := self._store.runs.search(states=ENDED_STATES, offset=KEPT).rows:
            for row in gone:
                self._store.runs.delete(row.id)
        self._store.sweep(younger_s)

    def drop(self, run: str) -> None:
        """Stop a run that nobody waits for any more, and forget it."""
        row = self._store.runs.get(run) if run else None
        if row is None:
            return
        if row.ended:
            self._store.runs.delete(run)
        else:
            self._runner.cancel(run)

    def look(self, run: str) -> Look | None:
        """How a run stands; None where it was stopped, failed or dropped by somebody else."""
        try:
            row = self._runner.progress(run)
        except UnknownId:
            return None
        if row.ended and not row.summary:
            return None
        return Look(row.progress, row.live, row.summary, row.ended)

    def tables(self, run: str, names: tuple[str, ...]) -> dict[str, pl.DataFrame]:
        """Tables of a run that ended; raises StoreError."""
        held = self._store.runs.tables(run)
        return {name: self._store.runs.table(run, name) for name in names if name in held}

    def close(self) -> None:
        """End the process, and all that it kept."""
        self._runner.close(kill=True)
        self._store.close()
        self._folder.cleanup()


def ready() -> bool:
    """Whether kernels are compiled: before, a live run would only be in the way of the first."""
    return warm.is_ready()


def question_of(draft: Scenario, facts: Facts) -> Scenario | None:
    """The draft over a horizon that is simulated at once; None where it cannot be live."""
    if TRACE.named(draft) or COUNTS.named(draft) or draft.supernode.imported:
        return None
    takes_s = estimate(draft, facts).seconds
    if takes_s <= SECONDS:
        return draft
    share = SECONDS / takes_s
    if draft.horizon_s * share < SHORTEST_S:
        return None
    cut = {"horizon_s": round(draft.horizon_s * share, 1), "warmup_s": draft.warmup_s * share}
    try:
        return with_overrides(draft, cut)
    except SpecError:
        return None
