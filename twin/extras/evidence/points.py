"""Measured points of a CSV file in; fitted constants out, for `TWIN_CALIBRATION`."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twin.extras.evidence.calibrate import CONSTANTS, Constant, Fit, Space, calibration_text
from twin.facts import FactError, Facts
from twin.hardware.chip import load_chip
from twin.lab.ask import scenario_named, settings_from
from twin.lab.evidence.judge import answer_row
from twin.lab.evidence.rows import Row
from twin.lab.files import read_text, write_text
from twin.lab.library import CALIBRATION
from twin.scenario import Scenario, SpecError, field_info, leaves, pools, with_overrides

POINTS_MAX = 128
FILE_BYTES_MAX = 1024 * 1024
INFORMS = 1e-4  # change of an answer, relative, when a constant moves by 1 % of its range
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


@dataclass(frozen=True)
class PrivateFit:
    """A fit to a user's own points, and constants that the points do not inform."""

    fit: Fit
    untouched: tuple[str, ...]
    points: str  # name of the file


def check_options(points: Path | None, private: Path | None, write: bool) -> None:
    """Raise PointsError for options that would mix a private fit with published rows."""
    if points and write:
        raise PointsError("--write is for published rows: keep a fit to --points with --out FILE")
    if private and not points:
        raise PointsError("--out keeps a private fit: name what you measured with --points FILE")
    if private:
        _refuse_published(private)


def read_points(path: Path, facts: Facts) -> list[Row]:
    """The points of a CSV file as calibrating rows, called `line N: quantity`: COLUMNS, and fields
    of a scenario by dotted name; an empty cell changes nothing. Raises PointsError."""
    text = read_text(path, FILE_BYTES_MAX, PointsError, "CSV file of points")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        heads = [head.strip() for head in reader.fieldnames or []]
        reader.fieldnames = heads
        _check_heads(heads, path.name)
        for cells in reader:
            place = f"{path.name}, line {reader.line_num}"
            if len(rows) == POINTS_MAX:
                raise PointsError(f"{place}: more than {POINTS_MAX} points: keep as many")
            rows.append(_row(cells, place, reader.line_num, facts))
    except csv.Error as error:
        sentence = f"line {reader.line_num + 1}: {error}"
        raise PointsError(f"{path.name}, {sentence}: it must be comma-separated") from None
    if not rows:
        raise PointsError(f"{path.name} holds no point: write one below its line of column names")
    return rows


def fit_points(path: Path, facts: Facts, constants: Sequence[Constant] = CONSTANTS) -> PrivateFit:
    """Constants that fit measured points best, from present values on. Raises PointsError."""
    rows = read_points(path, facts)
    weights = np.array([float(row.args.get("weight", 1.0)) for row in rows])

    def answer(row: Row, known: Facts) -> float:
        return _answer(row, known, path.name)

    parameter_space = Space(facts, rows, constants, answer)
    start = np.clip(parameter_space.present, 1e-6, 1.0 - 1e-6)
    base = parameter_space.errors(start)
    informed = []
    for i, constant in enumerate(constants):
        start_values = start.copy()
        start_values[i] += 0.01 if start[i] < 0.5 else -0.01
        if np.abs(parameter_space.errors(start_values) - base).max() > INFORMS:
            informed.append(constant)
    if not informed:
        raise PointsError(f"{path.name}: no constant moves any of these figures: add other points")
    space = Space(facts, rows, informed, answer)
    begin = np.clip(space.present, 1e-6, 1.0 - 1e-6)
    values = {c.name: float(facts[f"calibration.{c.name}"].value) for c in constants}
    values |= space.fitted(
        lambda x: np.append(weights * space.errors(x), HOLD * (x - begin)), begin
    )
    untouched = tuple(c.name for c in constants if c not in informed)
    return PrivateFit(parameter_space.fit(values), untouched, path.name)


def write_private(own: PrivateFit, path: Path) -> None:
    """Write the private copy; raises NotWritten."""
    _refuse_published(path)
    head = (
        "A private copy of the fitted constants, made by `python -m twin calibrate --points`.",
        "To use it, name this file in TWIN_CALIBRATION.",
        f"Mean absolute error of its points: {own.fit.error_mean:.1%}.",
    )
    fitted = f"least squares over {len(own.fit.errors)} points of {own.points}"
    sources = dict.fromkeys(own.untouched, "no point informs it: as before")
    text = calibration_text(own.fit, head, lambda c: {"source": sources.get(c.name, fitted)})
    write_text(path, text)


def _refuse_published(path: Path) -> None:
    if path.resolve() == CALIBRATION.resolve():
        raise PointsError("--out may not be data/calibration.toml: that is of published rows")


def _check_heads(heads: Sequence[str], file: str) -> None:
    for needed in COLUMNS[:2]:
        if needed not in heads:
            raise PointsError(f"{file}, line 1: no column is called {needed}: name the columns")
    for head in heads:
        if head not in COLUMNS and field_info(head) is None:
            raise PointsError(
                f"{file}, line 1: column {head[:40]!r} must be one of {', '.join(COLUMNS)}, or a "
                "field of a scenario like deployment.decode.batch_per_npu"
            )
        if heads.count(head) > 1:
            raise PointsError(f"{file}, line 1: two columns are called {head!r}: keep one")


def _row(cells: Mapping[str | None, Any], here: str, line: int, facts: Facts) -> Row:
    """One row of a file of points. Raises PointsError."""
    if None in cells or None in cells.values():
        raise PointsError(f"{here}: it must have a cell, if an empty one, for each column")
    filled_cells = {str(k): v.strip() for k, v in cells.items() if v.strip()}
    quantity = filled_cells.get("quantity", "")
    if quantity not in QUANTITIES:
        quantity_names = ", ".join(QUANTITIES)
        raise PointsError(f"{here}: quantity {quantity[:40]!r} must be one of {quantity_names}")
    measure, unit, role = QUANTITIES[quantity]
    args: dict[str, float] = {"weight": _number(filled_cells, "weight", here, "1")}
    try:
        scenario = (
            scenario_named(filled_cells["preset"]) if "preset" in filled_cells else Scenario()
        )
        settings = settings_from([f"{k}={v}" for k, v in filled_cells.items() if k not in COLUMNS])
        row_scenario = with_overrides(scenario, settings)
    except SpecError as error:
        raise PointsError(f"{here}: {error}") from None
    if not role:
        args |= {k: _number(filled_cells, k, here) for k in ("ep", "tokens")}
        s = row_scenario.supernode
        dies = s.nodes * s.npus_per_node * load_chip(facts, s.chip).dies_per_npu
        if args["ep"] != int(args["ep"]) or not 2 <= args["ep"] <= dies:
            raise PointsError(f"{here}: ep must be a whole number from 2 to the {dies} dies")
    elif role not in {name for name, *_ in pools(row_scenario)}:
        mode = row_scenario.deployment.mode
        raise PointsError(f"{here}: deployment.mode = {mode!r} has no {role} pool to measure")
    # A point is a steady state of fixed lengths without reuse: nothing else has a formula.
    w = row_scenario.workload
    if role and (w.lengths != "fixed" or w.arrivals == "trace"):
        raise PointsError(f"{here}: workload.lengths must be fixed, and no trace: give the lengths")
    if role == "prefill" and w.prefix != "none" and row_scenario.memory_pool.enabled:
        raise PointsError(f"{here}: workload.prefix must be none: prefill is measured unshared")
    return Row(
        id=f"line {line}: {quantity}", system="", regime="", quantity=quantity, unit=unit,
        value=_number(filled_cells, "value", here), basis="", measure=measure, kind="calibrating",
        source=here, mark="m", scenario=leaves(row_scenario), args=args,
    )  # fmt: skip


def _number(filled: Mapping[str, str], name: str, here: str, absent: str = "") -> float:
    text = filled.get(name, absent)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value < 1e15:
        raise PointsError(f"{here}: {name} {text[:40]!r} must be a number above 0")
    return value


def _answer(row: Row, facts: Facts, file: str) -> float:
    """The twin's answer to a row. Raises PointsError."""
    try:
        return answer_row(row, facts)
    except (ValueError, FactError) as error:
        # Only the rooms' own errors are sentences; anything else is a fault of the twin.
        if not type(error).__module__.startswith("twin."):
            raise
        raise PointsError(f"{file}, {row.id}: {error}") from None
