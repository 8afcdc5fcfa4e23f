"""The re-runs of an explanation: short, on fixed seeds, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from twin.engine.simulate import Run, simulate
from twin.facts import Facts
from twin.lab.explain.view import Settings, Summary
from twin.scenario import Scenario, SpecError, with_overrides

if TYPE_CHECKING:
    from twin.workload.generate import TraceTable

# Of an explanation, beyond the scenario's own: what is judged elsewhere takes other ones.
MORE_SEEDS = (60_013, 60_017)
REQUESTS_MAX = 24_000.0  # of one re-run: longer questions are asked of a shorter time
STAYS = 3.0  # of the slowest 1 % that the steady state is to hold

Note = Callable[[int], None]


class ExplainError(ValueError):
    """A run that cannot be explained: one sentence that says why."""


@dataclass
class Runs:
    """Answers by scenario; the same question is asked once."""

    facts: Facts
    trace: TraceTable | None = None
    counts: np.ndarray | None = None
    note: Note = lambda _: None  # told how many runs there were; may raise to stop
    summaries: dict[Scenario, Summary | None] = field(default_factory=dict)
    tables: dict[Scenario, Mapping[str, pl.DataFrame]] = field(default_factory=dict)

    def needed(self, scenario: Scenario) -> Summary:
        """The summary of a run whose tables are kept. Raises what the engine raises."""
        if scenario not in self.tables:
            run = self._run(scenario)
            if not run.valid:
                broken = "; ".join(check["id"] for check in run.checks if not check["ok"])
                raise ExplainError(f"{scenario.name}: the run broke a law of its own ({broken})")
            self.summaries[scenario], self.tables[scenario] = run.summary, run.tables
        return self.summaries[scenario] or {}

    def of(self, scenario: Scenario) -> Summary | None:
        """The summary of a run; None where the scenario cannot run."""
        if scenario not in self.summaries:
            try:
                run = self._run(scenario)
            except ValueError as error:
                if not type(error).__module__.startswith("twin."):
                    raise
                self.summaries[scenario] = None
            else:
                self.summaries[scenario] = run.summary if run.valid else None
        return self.summaries[scenario]

    def _run(self, scenario: Scenario) -> Run:
        imported = {} if self.counts is None else {"counts": self.counts}

        def note(_share: float, _live: Mapping[str, float]) -> bool:
            self.note(len(self.summaries))
            return True

        return simulate(scenario, self.facts, self.trace, note, **imported)

    def changed(self, scenario: Scenario, settings: Settings) -> Summary | None:
        """The summary with some fields replaced; None where that cannot be or cannot run."""
        try:
            return self.of(with_overrides(scenario, settings))
        except SpecError:
            return None


def shortened(s: Scenario, summary: Summary) -> Scenario:
    """The scenario over a shorter time where it would take too many requests; never where
    something breaks, because a fault has its hour, and long enough for answers to end."""
    requests = float(summary.get("requests") or 0)
    if s.faults or requests <= REQUESTS_MAX or s.workload.arrivals == "trace":
        return s
    stay_s = float(summary.get("e2e_s_p99") or s.horizon_s)
    share = min(1.0, max(REQUESTS_MAX / requests, (s.warmup_s + STAYS * stay_s) / s.horizon_s))
    return with_overrides(
        s, {"horizon_s": float(f"{share * s.horizon_s:.3g}"),
            "warmup_s": float(f"{share * s.warmup_s:.3g}")}
    )  # fmt: skip


def seeded(s: Scenario, seeds: Sequence[int]) -> list[Scenario]:
    """The scenario with its own seed and with others."""
    own = [s.seed, *(seed for seed in seeds if seed != s.seed)]
    return [with_overrides(s, {"seed": seed}) for seed in own]
