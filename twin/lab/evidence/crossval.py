"""Cross-validation of the fitted constants: which rows carry them, and which would be predicted.

Every calibrating row, every source and every system of rows is left out in turn and the constants
are fitted to what remains, from the start of the fit on: what the remaining rows leave open stays
there, and does not keep the value that the row left out had set. A refit goes by two Jacobians, at
the start and at the fit (Gauss-Newton with bounds, each step judged by the rows themselves).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from twin.facts import Facts
from twin.lab.evidence.calibrate import CONSTANTS, Constant, weight, with_constants
from twin.lab.evidence.measures import answer_row
from twin.lab.evidence.rows import Row, load_published

STEPS = 3  # of a refit beyond the first
SHARES = (1.0, 0.5, 0.25)  # of a step, until it makes the fit better
DIFFERENCE = 1e-3  # of a constant's range, for the Jacobian
# What a constant's whole range costs as a relative error: so small that a row measured to a
# percent outweighs it, so large that what no row informs goes back to its start.
PULL = 1e-3
IDENTIFIED = 0.1  # of its range: how far a constant may move when any one row is left out

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a fit without some rows says of them: mean absolute errors as fractions."""

    by: str  # row, source or system
    name: str
    rows: int
    fitted: float  # with them in the fit
    predicted: float  # without


@dataclass(frozen=True, slots=True)
class Span:
    """A constant, and between which values it goes when any one row is left out."""

    name: str
    value: float
    low: float
    high: float
    row: str  # without which it moves most
    identified: bool


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Every refit: constants and the rows that were left out."""

    constants: list[Span]
    left_out: list[LeftOut]

    def mean(self, by: str) -> float:
        """Mean absolute error of rows predicted by a fit that had not seen them."""
        own = [each for each in self.left_out if each.by == by]
        return sum(e.predicted * e.rows for e in own) / sum(e.rows for e in own)


def cross_validate(
    facts: Facts, rows: Sequence[Row] | None = None, constants: Sequence[Constant] = CONSTANTS
) -> CrossValidation:
    """Leave out every calibrating row, source and system in turn; about a minute."""
    used = [row for row in (load_published() if rows is None else rows) if row.calibrates]
    scale = np.array([c.high - c.low for c in constants])
    low = np.array([c.low for c in constants])
    start = (np.array([c.start for c in constants]) - low) / scale
    present = np.array([facts[f"calibration.{c.name}"].value for c in constants], np.float64)
    present = (present - low) / scale
    weights = np.array([weight(row) for row in used])

    def errors(x: Vector, chosen: Iterable[int]) -> Vector:
        values = dict(zip([c.name for c in constants], (low + x * scale).tolist(), strict=True))
        known = with_constants(facts, values)
        return np.array([answer_row(used[i], known) / used[i].value - 1.0 for i in chosen])

    everyone = range(len(used))
    fitted = errors(present, everyone)
    at_start = _jacobian(errors, start, errors(start, everyone))
    at_fit = _jacobian(errors, present, fitted)
    slopes = [at_start, *[at_fit] * STEPS]
    left_out, refits = [], []
    for by, name, gone in _groups(used):
        kept = [i for i in everyone if i not in gone]
        moved = _refit(errors, slopes, start, weights, kept)
        own = sorted(gone)
        left_out.append(LeftOut(by, name, len(own), _mean(fitted[own]), _mean(errors(moved, own))))
        if by == "row":
            refits.append((name, low + moved * scale))
    spans = [
        _span(c, facts[f"calibration.{c.name}"].value, [(n, x[i]) for n, x in refits])
        for i, c in enumerate(constants)
    ]
    return CrossValidation(spans, left_out)


def _groups(rows: Sequence[Row]) -> list[tuple[str, str, set[int]]]:
    """What is left out in turn: rows, then sources and systems with more than one row."""
    groups = [("row", row.id, {i}) for i, row in enumerate(rows)]
    for by in ("source", "system"):
        names = dict.fromkeys(getattr(row, by) for row in rows)
        for name in names:
            own = {i for i, row in enumerate(rows) if getattr(row, by) == name}
            if len(own) > 1 and len(own) < len(rows):
                groups.append((by, str(name), own))
    return groups


def _jacobian(errors: Callable[[Vector, Iterable[int]], Vector], x: Vector, at_x: Vector) -> Vector:
    columns = []
    for i in range(len(x)):
        step = DIFFERENCE if x[i] < 0.5 else -DIFFERENCE
        near = x.copy()
        near[i] += step
        columns.append((errors(near, range(len(at_x))) - at_x) / step)
    return np.array(columns).T


def _refit(
    errors: Callable[[Vector, Iterable[int]], Vector], slopes: Sequence[Vector], start: Vector,
    weights: Vector, kept: Sequence[int],
) -> Vector:  # fmt: skip
    """Constants that fit the rows kept best, from the start of the fit on."""
    rows = list(kept)

    def residuals(at: Vector) -> Vector:
        return np.append(weights[rows] * errors(at, rows), PULL * (at - start))

    best, left = start, residuals(start)
    for slope in slopes:
        matrix = np.vstack([weights[rows, None] * slope[rows], PULL * np.eye(len(start))])
        step = lsq_linear(matrix, -left, bounds=(-best - 1e-12, 1.0 - best + 1e-12)).x
        for share in SHARES:
            tried = np.clip(best + share * step, 0.0, 1.0)
            after = residuals(tried)
            if after @ after < left @ left:
                best, left = tried, after
                break
    return best


def _span(constant: Constant, value: float, refits: Sequence[tuple[str, float]]) -> Span:
    row, far = max(refits, key=lambda refit: abs(refit[1] - value))
    values = [x for _, x in refits]
    reach = abs(far - value) / (constant.high - constant.low)
    return Span(
        constant.name, value, float(min(values)), float(max(values)), row,
        bool(reach <= IDENTIFIED),
    )  # fmt: skip


def _mean(errors: Vector) -> float:
    return float(np.abs(errors).mean())
