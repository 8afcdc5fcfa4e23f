"""An explanation as an engine (`lab/runs/job.py`), stored and found again as any run is."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from twin.engine.simulate import ENGINE_VERSION as ENGINE
from twin.engine.simulate import Cancelled, Progress, Run, result_digest
from twin.facts import Facts
from twin.kernels.compiled import source_digest
from twin.lab.explain.explain import EXPECTED_RUNS, Explanation, Measured, explain
from twin.lab.explain.view import load_of
from twin.lab.store.models import EXPLAINED
from twin.metrics.registry import Summary
from twin.scenario import Scenario
from twin.workload.requests import TraceTable

__all__ = ["ENGINE_VERSION", "Cancelled", "as_json", "simulate"]

_SOURCES = hashlib.sha256((ENGINE + source_digest(("lab/explain",))).encode()).hexdigest()
ENGINE_VERSION = f"{EXPLAINED}{_SOURCES[:12]}"


def simulate(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None,
    progress: Progress | None = None, counts: np.ndarray | None = None,
) -> Run:  # fmt: skip
    """Explain a scenario; `progress` is called with the number of runs made and can stop it."""

    def note(runs: int) -> None:
        """Report the number of runs. Raises Cancelled if the caller stops the explanation."""
        if progress is not None and not progress(min(0.99, runs / EXPECTED_RUNS), {"runs": runs}):
            raise Cancelled

    answer = explain(scenario, facts, trace, counts, note)
    tables = {"causes": causes_table(answer.causes), "waterfall": waterfall_table(answer.waterfall)}
    return Run(
        scenario, facts.digest, ENGINE_VERSION, result_digest(tables), _summary(answer), tables,
        [], [], True,
    )  # fmt: skip


def waterfall_table(pieces: Mapping[str, float]) -> pl.DataFrame:
    """One row per part of a mean request's time."""
    columns = {"piece": list(pieces), "seconds": list(pieces.values())}
    return pl.DataFrame(columns, schema={"piece": pl.String, "seconds": pl.Float64})


def causes_table(causes: Sequence[Measured]) -> pl.DataFrame:
    """One row per cause, the largest first, each a JSON object."""
    rows = []
    for measured in causes:
        gains = {"removal": measured.removal, "suggestion": measured.suggestion}
        row = {name: getattr(measured.cause, name) for name in ("key", "label", "advice")}
        row |= {"named": measured.named, "score": measured.score}
        row |= {name: asdict(gain) for name, gain in gains.items() if gain is not None}
        rows.append(json.dumps(row, sort_keys=True))
    return pl.DataFrame({"cause": rows}, schema={"cause": pl.String})


def _summary(known: Explanation) -> Summary:
    """Figures and verdict of an explanation, as the summary of a run."""
    shown_keys = ("ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu", "slo_attainment")
    figures: Summary = {key: known.summary.get(key) for key in shown_keys}
    return figures | {
        "verdict": known.verdict,
        "holds": int(known.holds),
        "headroom_factor": known.capacity.load / load_of(known.scenario)[1],
        "headroom_bounded": int(math.isfinite(known.capacity.high)),
        "capacity": known.capacity.load,
        "capacity_unit": known.capacity.unit,
        "capacity_low": known.capacity.low,
        "capacity_high": known.capacity.high if math.isfinite(known.capacity.high) else None,
        "runs": known.runs,
    }


def as_json(
    summary: Mapping[str, Any], causes: pl.DataFrame, waterfall: pl.DataFrame
) -> dict[str, Any]:
    """A stored explanation as one object, for the command line and for pages."""
    pieces = dict(zip(waterfall["piece"], waterfall["seconds"], strict=True))
    rows = [json.loads(text) for text in causes["cause"]]
    return {**summary, "waterfall_s": pieces, "causes": rows}
