"""Fit the few constants of data/calibration.toml to the published rows that calibrate.

Rows of other machines that calibrate set their own figures in data/operators.toml; they stand in
the least squares without moving a constant.

Least squares over signed relative errors (scipy, trust region, bounded), from the same measures
the Evidence page shows, so the file can be made anew at any time. Each constant's meaning and
bounds stand here; the rest of data/ stays as it is. It never touches a row that does not
calibrate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from twin.facts import Fact, Facts
from twin.lab.evidence.measures import answer_row
from twin.lab.evidence.rows import EvidenceError, Row, load_published
from twin.lab.files import write_text
from twin.lab.library import CALIBRATION

DOUBT = {"a": 1.0, "d": 1.0, "b": 0.25}  # weight by mark: a figure read off a chart counts less


@dataclass(frozen=True)
class Constant:
    """A fitted constant: where it starts, where it must stay, what it is."""

    name: str
    unit: str
    start: float
    low: float
    high: float
    meaning: str
    prefix: str  # ids of the rows that inform it most, for the file

    def saw(self, rows: Iterable[str]) -> list[str]:
        """The rows among those fitted to that inform it most."""
        heads = tuple(head.strip() for head in self.prefix.split(","))
        return [row for row in rows if row.startswith(heads)]


CONSTANTS = (
    Constant("comm_fixed", "us", 15, 10, 60,
             "launch of one dispatch or combine", "cm384-dispatch, cm384-combine"),
    Constant("quantise", "us", 0.05, 0, 1,
             "vector-core time to quantise one message before it is sent, all cores together",
             "cm384-dispatch, cm384-combine"),
    Constant("barrier_round", "us", 4, 0, 20,
             "one of log2(peers) rounds of a collective's barrier",
             "cm384-dispatch, cm384-combine"),
    Constant("vector_utilisation", "", 0.25, 0.02, 1,
             "share of HBM bandwidth that element-wise kernels reach between matrix products",
             "cm384-prefill-stage, cm384-stream, cm384-layer-no-mtp"),
    Constant("kernel_gap", "us", 1, 0.5, 10,
             "launch and tail of one kernel in a captured graph", "cm384-decode-8-4k-tpot"),
    Constant("vector_contention", "", 1, 0, 1.5,
             "prefill: how much of the copy work on vector cores slows the other microbatch",
             "cm384-prefill-layer-on"),
    Constant("jitter", "", 0.03, 0, 0.2,
             "relative standard deviation of a die's time between two barriers",
             "cm384-microbatch-decode"),
    Constant("copy_engine", "", 0.7, 0.3, 1,
             "share of the vector cores' injection rate that copy engines reach in prefill",
             "cm384-prefill-stage-exchange"),
)  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """Fitted values in the constants' units, the rows used, and their errors."""

    values: Mapping[str, float]
    errors: Mapping[str, float]  # row id -> signed fraction

    @property
    def error_mean(self) -> float:
        """Mean absolute error of the calibration rows."""
        return float(np.mean([abs(e) for e in self.errors.values()]))


def calibrate(
    facts: Facts, rows: Sequence[Row] | None = None, constants: Sequence[Constant] = CONSTANTS
) -> Fit:
    """The constants that fit the calibrating rows best; raises EvidenceError without such rows."""
    used = [row for row in (load_published() if rows is None else rows) if row.calibrates]
    if not used:
        raise EvidenceError("no row calibrates: give at least one kind = 'calibrating'")
    scale = np.array([c.high - c.low for c in constants])
    low = np.array([c.low for c in constants])

    def residuals(x: np.ndarray) -> np.ndarray:
        known = with_constants(facts, dict(zip(names, low + x * scale, strict=True)))
        return np.array([weight(r) * (answer_row(r, known) / r.value - 1.0) for r in used])

    names = [c.name for c in constants]
    start = np.array([(c.start - c.low) / (c.high - c.low) for c in constants])
    found = least_squares(residuals, start, bounds=(0.0, 1.0), diff_step=1e-4, x_scale=0.1)
    values = dict(zip(names, (low + found.x * scale).tolist(), strict=True))
    rounded = {name: float(f"{value:.4g}") for name, value in values.items()}
    known = with_constants(facts, rounded)
    return Fit(rounded, {r.id: answer_row(r, known) / r.value - 1.0 for r in used})


def weight(row: Row) -> float:
    """How much a row counts: less when read off a chart, or printed as "about"."""
    return DOUBT.get(row.mark, 1.0) * float(row.args.get("weight", 1.0))


def with_constants(facts: Facts, values: Mapping[str, float]) -> Facts:
    """Facts with calibration constants set, in the units of CONSTANTS."""
    units = {c.name: c.unit for c in CONSTANTS}
    return facts.replaced(
        {f"calibration.{name}": Fact(v, units[name], "fit", "f") for name, v in values.items()}
    )


def calibration_text(fit: Fit, constants: Sequence[Constant] = CONSTANTS) -> str:
    """The fit as the text of data/calibration.toml."""
    lines = [
        "# The fitted constants of the model, made by `python -m twin calibrate` from the rows of",
        "# data/published.toml that calibrate. Meaning and bounds: twin/lab/evidence/calibrate.py.",
        f"# Mean absolute error of these rows: {fit.error_mean:.1%}.",
    ]
    for c in constants:
        lines += [
            "",
            f"[{c.name}]",
            f"value = {fit.values[c.name]:g}",
            f'unit = "{c.unit}"',
            f'source = "least squares over the calibrating rows; chiefly {c.prefix}"',
            'mark = "f"',
            f"saw = {json.dumps(c.saw(fit.errors))}",
            f'note = "{c.meaning}"',
            f"low = {c.low:g}",
            f"high = {c.high:g}",
        ]
    return "\n".join(lines) + "\n"


def write_calibration(fit: Fit, path: Path = CALIBRATION) -> None:
    """Replace the calibration file; raises NotWritten."""
    write_text(path, calibration_text(fit))
