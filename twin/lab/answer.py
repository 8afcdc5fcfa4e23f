"""An answer to a question, here and now, as the command line gives it.

It knows nothing about words, tables or terminals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twin.lab.library import load_facts
from twin.spec import Scenario, scenario_digest

if TYPE_CHECKING:
    from twin.lab.store.runs import Result
    from twin.serving.workload import TraceTable

Watch = Callable[[float, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished run: its scenario, its id in the store (None: not kept), its wall time."""

    scenario: Scenario
    run_id: str | None
    result: Result
    wall_s: float

    @property
    def requests(self) -> int:
        """Requests that arrived."""
        return int(self.result.summary["requests"] or 0)

    def as_json(self) -> dict[str, Any]:
        """The answer as one object; `summary` is flat, its names carry their units."""
        return {
            "run": self.run_id,
            "scenario": scenario_digest(self.scenario),
            "digest": self.result.digest,
            "wall_s": round(self.wall_s, 3),
            "requests": self.requests,
            "name": self.scenario.name,
            "valid": self.result.valid,
            "broken_checks": [c for c in self.result.checks if not c["ok"]],
            "notes": list(self.result.notes),
            "summary": dict(self.result.summary),
        }


def answer(
    scenario: Scenario, trace: TraceTable | None, watch: Watch, *, keep: bool = True
) -> Answer:
    """Simulate a scenario in this process; with `keep` the run is in the store.

    Raises the rooms' own ValueErrors, each one sentence.
    """
    begun = time.perf_counter()
    if keep:
        from twin.lab.runner import run_now
        from twin.lab.store import open_store

        store = open_store()
        finished = run_now(store, scenario, trace=trace, watch=watch)
        store.close()
        return Answer(scenario, finished.id, finished.result, time.perf_counter() - begun)

    from twin.engine.simulate import simulate

    def progress(fraction: float, live: Mapping[str, Any]) -> bool:
        watch(fraction, live)
        return True

    result = simulate(scenario, load_facts(), trace, progress)
    return Answer(scenario, None, result, time.perf_counter() - begun)
