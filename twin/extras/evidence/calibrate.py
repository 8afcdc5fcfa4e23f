"""Least squares fit of the constants of data/calibration.toml to signed relative errors of rows,
left out in turn by row, source and system; or to a user's points, for `TWIN_CALIBRATION`."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from scipy.optimize import least_squares, lsq_linear

from twin.facts import Fact, FactError, Facts
from twin.hardware.chip import load_chip
from twin.lab.ask import scenario_named, settings_from
from twin.lab.evidence.judge import answer_row
from twin.lab.evidence.rows import Row, load_published
from twin.lab.files import read_text, write_text
from twin.lab.library import CALIBRATION, published_table
from twin.scenario import Scenario, SpecError, field_info, pools, values_by_path, with_overrides

Vector = NDArray[np.float64]
DOUBT = {"a": 1.0, "d": 1.0, "b": 0.25}  # weight by mark: a figure read off a chart counts less


@dataclass(frozen=True)
class Constant:
    """A fitted constant, as data/calibration.toml declares it."""

    name: str
    unit: str
    start: float  # of a fit
    low: float
    high: float
    note: str  # its meaning
    informed_by: str  # beginnings of the ids of the rows that inform it most

    def informing_rows(self, rows: Iterable[str]) -> list[str]:
        """Those of the ids of rows that inform the constant most."""
        prefixes = tuple(prefix.strip() for prefix in self.informed_by.split(","))
        return [row_id for row_id in rows if row_id.startswith(prefixes)]


DECLARED = ("unit", "start", "low", "high", "note", "informed_by")
CONSTANTS = tuple(
    Constant(name, **{key: table[key] for key in DECLARED})
    for name, table in published_table(CALIBRATION).items()
)


@dataclass(frozen=True)
class Fit:
    """Fitted values in the constants' units, the rows used, and their errors."""

    values: Mapping[str, float]
    errors: Mapping[str, float]  # row id -> signed fraction
    untouched: tuple[str, ...] = ()  # constants that a user's own points do not inform
    points: str = ""  # name of the file of these points

    @property
    def error_mean(self) -> float:
        """Mean absolute relative error of the fitted rows."""
        return float(np.abs([*self.errors.values()]).mean())


class Space:
    """Constants scaled to 0..1 between their bounds, and the rows' errors at a point."""

    def __init__(
        self, facts: Facts, rows: Sequence[Row], constants: Sequence[Constant],
        answer: Callable[[Row, Facts], float] = answer_row,
    ) -> None:  # fmt: skip
        """Scale constants to 0..1 between their bounds; answer: of the twin to a row with facts."""
        self.facts, self.rows, self.constants, self.answer = facts, rows, constants, answer
        self.low = np.array([constant.low for constant in constants])
        self.span = np.array([constant.high for constant in constants]) - self.low
        self.start = (np.array([constant.start for constant in constants]) - self.low) / self.span
        present_values = [facts[f"calibration.{constant.name}"].value for constant in constants]
        self.present = (np.array(present_values, np.float64) - self.low) / self.span

    def values(self, x: Vector) -> dict[str, float]:
        """The constants by name, in their units, at the point x f8[constants] of scaled ones."""
        in_units = (self.low + x * self.span).tolist()
        return dict(zip([constant.name for constant in self.constants], in_units, strict=True))

    def errors(self, x: Vector, numbers: Iterable[int] | None = None) -> Vector:
        """Signed relative errors f8[rows] at the point x f8[constants] of scaled ones; numbers:
        indices of the rows, by default all."""
        fitted_facts = with_constants(self.facts, self.values(x))
        rows = self.rows if numbers is None else [self.rows[number] for number in numbers]
        return np.array([self.answer(row, fitted_facts) / row.value - 1.0 for row in rows])

    def fit(self, residuals: Callable[[Vector], Vector], begin: Vector) -> dict[str, float]:
        """Constants by name, to four figures, with the least sum of squares of `residuals`, which
        gives them at a point x f8[constants] of scaled ones; begin: the first x."""
        solution = least_squares(residuals, begin, bounds=(0.0, 1.0), diff_step=1e-4, x_scale=0.1)
        return {name: float(f"{value:.4g}") for name, value in self.values(solution.x).items()}

    def with_errors(self, values: Mapping[str, float]) -> Fit:
        """Fit of these constants, by name in their units, with relative errors of all rows."""
        fitted_facts = with_constants(self.facts, values)
        return Fit(values, {r.id: self.answer(r, fitted_facts) / r.value - 1.0 for r in self.rows})


def calibrate(facts: Facts) -> Fit:
    """Fit of the constants of data/calibration.toml to published rows of the kind 'calibrating'."""
    rows = [row for row in load_published() if row.kind == "calibrating"]
    space, weights = Space(facts, rows, CONSTANTS), np.array([row_weight(row) for row in rows])
    return space.with_errors(space.fit(lambda x: weights * space.errors(x), space.start))


def row_weight(row: Row) -> float:
    """Weight of a row in a fit: below 1 if it was read off a chart or printed as "about"."""
    return DOUBT.get(row.mark, 1.0) * float(row.args.get("weight", 1.0))


def with_constants(facts: Facts, values: Mapping[str, float]) -> Facts:
    """Facts with calibration constants set to values by name, in the units of CONSTANTS."""
    units = {constant.name: constant.unit for constant in CONSTANTS}
    fitted_facts = {f"calibration.{n}": Fact(v, units[n], "fit", "f") for n, v in values.items()}
    return facts.replaced(fitted_facts)


def calibration_text(
    fit: Fit, head: Sequence[str], further_fields: Callable[[Constant], dict[str, Any]]
) -> str:
    """The text of a calibration file with the constants of a fit. head: lines of its comment;
    further_fields: gives more fields of a constant by name."""
    constant_tables = {
        c.name: {"value": fit.values[c.name], "unit": c.unit, "mark": "f", "note": c.note}
        | further_fields(c)
        for c in CONSTANTS if c.name in fit.values
    }  # fmt: skip
    return "".join(f"# {line}\n" for line in head) + "\n" + tomli_w.dumps(constant_tables)


def write_calibration(fit: Fit, path: Path = CALIBRATION) -> None:
    """Write the constants of a fit to the calibration file, replacing it; raises NotWritten."""
    comment = (
        "The fitted constants of the model, made by `python -m twin calibrate` from the rows of",
        "data/published.toml that calibrate; note, low, high, start and informed_by declare each.",
        f"Mean absolute error of these rows: {fit.error_mean:.1%}.",
    )
    file_text = calibration_text(fit, comment, lambda c: {
        "source": f"least squares over the calibrating rows; chiefly {c.informed_by}",
        "saw": c.informing_rows(fit.errors), "low": c.low, "high": c.high, "start": c.start,
        "informed_by": c.informed_by,
    })  # fmt: skip
    write_text(path, file_text)


STEPS = 3  # of a refit beyond the first
SHARES = (1.0, 0.5, 0.25)  # of a step, until it makes the fit better
DIFFERENCE = 1e-3  # of a constant's range, for the Jacobian
# What a constant's whole range costs as a relative error: so small that a row measured to a
# percent outweighs it, so large that what no row informs goes back to its start.
PULL = 1e-3
IDENTIFIED = 0.1  # of its range: how far a constant may move when any one row is left out


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors of the rows left out of a fit: mean absolute errors as fractions."""

    by: str  # row, source or system
    name: str
    rows: int
    fitted: float  # with them in the fit
    predicted: float  # without


@dataclass(frozen=True, slots=True)
class Span:
    """A constant, and its range when any one row is left out."""

    name: str
    value: float
    low: float
    high: float
    row: str  # without which it moves most
    identified: bool


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """All refits: constants and left-out rows."""

    constants: list[Span]
    left_out: list[LeftOut]


def cross_validate(
    facts: Facts, rows: Sequence[Row] | None = None, constants: Sequence[Constant] = CONSTANTS
) -> CrossValidation:
    """Errors of rows and ranges of constants by fits that leave out each calibrating row, source
    and system in turn; takes about a minute. rows: by default all published ones."""
    all_rows = load_published() if rows is None else rows
    fitted_rows = [row for row in all_rows if row.kind == "calibrating"]
    space = Space(facts, fitted_rows, constants)
    weights = np.array([row_weight(row) for row in fitted_rows])
    present_errors = space.errors(space.present)
    start_jacobian = _jacobian(space, space.start, space.errors(space.start))
    jacobians = [start_jacobian, *[_jacobian(space, space.present, present_errors)] * STEPS]
    left_out_errors, refits = [], []
    left_out = [("row", row.id, [i]) for i, row in enumerate(fitted_rows)]
    for column in ("source", "system"):  # with more than one row
        for name in dict.fromkeys(getattr(row, column) for row in fitted_rows):
            indices = [i for i, row in enumerate(fitted_rows) if getattr(row, column) == name]
            if 1 < len(indices) < len(fitted_rows):
                left_out.append((column, str(name), indices))
    for column, name, left_out_indices in left_out:
        fitted_indices = [i for i in range(len(fitted_rows)) if i not in left_out_indices]
        refit_point = _refit(space, jacobians, weights, fitted_indices)
        error_pair = present_errors[left_out_indices], space.errors(refit_point, left_out_indices)
        mean_errors = (float(np.abs(errors_of_fit).mean()) for errors_of_fit in error_pair)
        left_out_errors.append(LeftOut(column, name, len(left_out_indices), *mean_errors))
        if column == "row":
            refits.append((name, space.low + refit_point * space.span))
    constant_ranges = [
        _refit_range(
            constant, facts[f"calibration.{constant.name}"].value,
            [(row_id, refit_values[i]) for row_id, refit_values in refits],
        )
        for i, constant in enumerate(constants)
    ]  # fmt: skip
    return CrossValidation(constant_ranges, left_out_errors)


def _jacobian(space: Space, x: Vector, errors: Vector, difference: float = DIFFERENCE) -> Vector:
    """Derivatives f8[rows, constants] of the rows' errors by scaled constants at the point x;
    errors: f8[rows] at x; difference: of a constant, for the quotient."""
    steps = np.diag(np.where(x < 0.5, difference, -difference))
    return np.array([(space.errors(x + step) - errors) / step.sum() for step in steps]).T


def _refit(space: Space, jacobians: Sequence[Vector], weights: Vector, rows: list[int]) -> Vector:
    """Scaled constants f8[constants] fitted to the rows with the indices `rows` by steps from the
    start of a fit; jacobians: one for each step; weights: f8[all rows]."""
    start = space.start

    def residuals(x: Vector) -> Vector:
        """Weighted errors of the remaining rows, and the pull back to the start."""
        return np.append(weights[rows] * space.errors(x, rows), PULL * (x - start))

    best_x, best_residual = start, residuals(start)
    for jacobian in jacobians:
        damped = np.vstack([weights[rows, None] * jacobian[rows], PULL * np.eye(len(start))])
        step = lsq_linear(damped, -best_residual, bounds=(-best_x - 1e-12, 1.0 - best_x + 1e-12)).x
        for step_share in SHARES:
            trial_point = np.clip(best_x + step_share * step, 0.0, 1.0)
            trial_residual = residuals(trial_point)
            if trial_residual @ trial_residual < best_residual @ best_residual:
                best_x, best_residual = trial_point, trial_residual
                break
    return best_x


def _refit_range(constant: Constant, value: float, refits: Sequence[tuple[str, float]]) -> Span:
    """Range of a constant over refits (left-out row, value), and the row that moves it most."""
    row_id, farthest_value = max(refits, key=lambda refit: abs(refit[1] - value))
    lowest, highest = (float(bound(value for _, value in refits)) for bound in (min, max))
    moved_share = abs(farthest_value - value) / (constant.high - constant.low)
    return Span(constant.name, value, lowest, highest, row_id, bool(moved_share <= IDENTIFIED))


POINTS_MAX = 128
FILE_BYTES_MAX = 1024 * 1024
INFORMS, MOVED = 1e-4, 0.01  # change of an answer, relative, when a constant moves so far
# What a constant's whole range costs as a relative error: it stays near its present value unless
# figures measured to about 1 % speak against that, so a few points do not drive it to a bound.
HOLD = 0.01
COLUMNS = ("quantity", "value", "preset", "weight", "ep", "tokens", "note")
# quantity: (measure of lab.evidence, unit, role that must be deployed; "": a collective alone)
QUANTITIES = {
    "decode_tpot_ms": ("decode.tpot", "ms", "decode"),
    "decode_iteration_ms": ("decode.iteration", "ms", "decode"),
    "decode_layer_us": ("decode.layer", "us", "decode"),
    "decode_tokens_per_s_per_npu": ("decode.throughput", "tokens/s", "decode"),
    "prefill_batch_ms": ("prefill.batch", "ms", "prefill"),
    "prefill_layer_us": ("prefill.layer", "us", "prefill"),
    "prefill_tokens_per_s_per_npu": ("prefill.throughput", "tokens/s", "prefill"),
    "dispatch_us": ("exchange.dispatch", "us", ""),
    "combine_us": ("exchange.combine", "us", ""),
}


class PointsError(ValueError):
    """Invalid measured points: one sentence naming the file, the line and what is right."""


def check_options(points: Path | None, private: Path | None, write: bool) -> None:
    """Raise PointsError for options that would mix a private fit with published rows."""
    if points and write:
        raise PointsError("--write is for published rows: keep a fit to --points with --out FILE")
    if private and not points:
        raise PointsError("--out keeps a private fit: name what you measured with --points FILE")
    if private:
        _refuse_published(private)


def read_points(path: Path, facts: Facts) -> list[Row]:
    """The points of a CSV file as calibrating rows with ids `line N: quantity`. Columns: COLUMNS,
    and fields of a scenario by dotted name; an empty cell changes nothing. Raises PointsError."""
    csv_text = read_text(path, FILE_BYTES_MAX, PointsError, "CSV file of points")
    reader = csv.DictReader(io.StringIO(csv_text, newline=""), strict=True)
    points: list[Row] = []
    try:
        reader.fieldnames = headers = [header.strip() for header in reader.fieldnames or []]
        first_line = f"{path.name}, line 1"
        for column in COLUMNS[:2]:
            if column not in headers:
                raise PointsError(f"{first_line}: no column is called {column}: name the columns")
        for header in headers:
            if header not in COLUMNS and field_info(header) is None:
                raise PointsError(
                    f"{first_line}: column {header[:40]!r} must be one of {', '.join(COLUMNS)}, or "
                    "a field of a scenario like deployment.decode.batch_per_npu"
                )
            if headers.count(header) > 1:
                raise PointsError(f"{first_line}: two columns are called {header!r}: keep one")
        for cells in reader:
            line_place = f"{path.name}, line {reader.line_num}"
            if len(points) == POINTS_MAX:
                raise PointsError(f"{line_place}: more than {POINTS_MAX} points: keep as many")
            points.append(_row_of_line(cells, line_place, reader.line_num, facts))
    except csv.Error as error:
        sentence = f"line {reader.line_num + 1}: {error}"
        raise PointsError(f"{path.name}, {sentence}: it must be comma-separated") from None
    if not points:
        raise PointsError(f"{path.name} holds no point: write one below its line of column names")
    return points


def fit_points(path: Path, facts: Facts, constants: Sequence[Constant] = CONSTANTS) -> Fit:
    """Fit of the constants to points of a CSV file, from present values. Raises PointsError."""
    points, answer_or_refuse = read_points(path, facts), partial(_answer_or_refuse, path.name)
    weights = np.array([float(row.args.get("weight", 1.0)) for row in points])
    full_space = Space(facts, points, constants, answer_or_refuse)
    start_point = np.clip(full_space.present, 1e-6, 1.0 - 1e-6)
    jacobian = _jacobian(full_space, start_point, full_space.errors(start_point), MOVED)
    answer_changes = MOVED * np.abs(jacobian).max(axis=0)
    constants_and_changes = zip(constants, answer_changes, strict=True)
    free_constants = [constant for constant, change in constants_and_changes if change > INFORMS]
    if not free_constants:
        raise PointsError(f"{path.name}: no constant moves any of these figures: add other points")
    space = Space(facts, points, free_constants, answer_or_refuse)
    begin_point = np.clip(space.present, 1e-6, 1.0 - 1e-6)
    values = {c.name: float(facts[f"calibration.{c.name}"].value) for c in constants}

    def residuals(x: Vector) -> Vector:
        """Weighted errors of the points, and the cost of the constants' distance from start."""
        return np.append(weights * space.errors(x), HOLD * (x - begin_point))

    values |= space.fit(residuals, begin_point)
    fixed_names = tuple(c.name for c in constants if c not in free_constants)
    return replace(full_space.with_errors(values), untouched=fixed_names, points=path.name)


def write_private_fit(fit: Fit, path: Path) -> None:
    """Write a fit to measured points to a private file; raises NotWritten, PointsError."""
    _refuse_published(path)
    comment = (
        "A private copy of the fitted constants, made by `python -m twin calibrate --points`.",
        "To use it, name this file in TWIN_CALIBRATION.",
        f"Mean absolute error of its points: {fit.error_mean:.1%}.",
    )
    source_text = f"least squares over {len(fit.errors)} points of {fit.points}"
    source_of = dict.fromkeys(fit.untouched, "no point informs it: as before")
    file_text = calibration_text(
        fit, comment, lambda c: {"source": source_of.get(c.name, source_text)}
    )
    write_text(path, file_text)


def _refuse_published(path: Path) -> None:
    """Raise PointsError if the path is data/calibration.toml, the fit to published rows."""
    if path.resolve() == CALIBRATION.resolve():
        raise PointsError("--out may not be data/calibration.toml: that is of published rows")


def _row_of_line(cells: Mapping[str | None, Any], here: str, line: int, facts: Facts) -> Row:
    """The row of a line of a CSV file of points; cells: by column; here: its place in the file, for
    messages; line: its number. Raises PointsError."""
    if None in cells or None in cells.values():
        raise PointsError(f"{here}: it must have a cell, if an empty one, for each column")
    text_of = {str(column): text.strip() for column, text in cells.items() if text.strip()}
    quantity = text_of.get("quantity", "")
    if quantity not in QUANTITIES:
        quantity_names = ", ".join(QUANTITIES)
        raise PointsError(f"{here}: quantity {quantity[:40]!r} must be one of {quantity_names}")
    measure, unit, role = QUANTITIES[quantity]
    args: dict[str, float] = {"weight": _positive_number(text_of, "weight", here, "1")}
    try:
        preset = scenario_named(text_of["preset"]) if "preset" in text_of else Scenario()
        settings = settings_from([f"{k}={text}" for k, text in text_of.items() if k not in COLUMNS])
        scenario = with_overrides(preset, settings)
    except SpecError as error:
        raise PointsError(f"{here}: {error}") from None
    if not role:
        args |= {column: _positive_number(text_of, column, here) for column in ("ep", "tokens")}
        npus = scenario.supernode.nodes * scenario.supernode.npus_per_node
        dies = npus * load_chip(facts, scenario.supernode.chip).dies_per_npu
        if args["ep"] != int(args["ep"]) or not 2 <= args["ep"] <= dies:
            raise PointsError(f"{here}: ep must be a whole number from 2 to the {dies} dies")
    elif role not in {role_name for role_name, *_ in pools(scenario)}:
        mode = scenario.deployment.mode
        raise PointsError(f"{here}: deployment.mode = {mode!r} has no {role} pool to measure")
    # A point is a steady state of fixed lengths without reuse: nothing else has a formula.
    workload = scenario.workload
    if role and (workload.lengths != "fixed" or workload.arrivals == "trace"):
        raise PointsError(f"{here}: workload.lengths must be fixed, and no trace: give the lengths")
    if role == "prefill" and workload.prefix != "none" and scenario.memory_pool.enabled:
        raise PointsError(f"{here}: workload.prefix must be none: prefill is measured unshared")
    return Row(
        id=f"line {line}: {quantity}", system="", regime="", quantity=quantity, unit=unit,
        value=_positive_number(text_of, "value", here), basis="", measure=measure,
        kind="calibrating", source=here, mark="m", scenario=values_by_path(scenario), args=args,
    )  # fmt: skip


def _positive_number(texts: Mapping[str, str], name: str, where: str, default: str = "") -> float:
    """Number above 0 in the cell `name`, else of `default`; raises PointsError (at `where`)."""
    cell = texts.get(name, default)
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not 0.0 < number < 1e15:
        raise PointsError(f"{where}: {name} {cell[:40]!r} must be a number above 0")
    return number


def _answer_or_refuse(file: str, row: Row, facts: Facts) -> float:
    """The twin's answer to a row, in the row's unit; raises PointsError for the twin's errors."""
    try:
        return answer_row(row, facts)
    except (ValueError, FactError) as error:
        # Only the rooms' own errors are sentences; anything else is a fault of the twin.
        if not type(error).__module__.startswith("twin."):
            raise
        raise PointsError(f"{file}, {row.id}: {error}") from None
