"""How far off an answer may be: bands made from the errors of published rows.

An error is ln(twin / published) as a speed, so that a time and a rate of one run agree: above zero
the twin is too fast. Rows are leaves of a tree (`LEVELS`). How errors differ between two leaves
depends on the levels that these share: the variogram of the tree (Matheron, Principles of
geostatistics, 1963), a mean of half squared differences for each number of shared levels, which
may not rise with it. Where the twin stands in a regime is then the best linear prediction from the
rows around it (ordinary kriging), so it is pooled: what a stack does not say comes from its
machine, then from all systems.

How far off a figure is that no one has seen is known from first errors alone: the variogram, the
spread of each quantity and that of each stack come from these, each spread taken together with
`PRIOR` rows of others (the scale of a normal distribution with its conjugate prior, so bands are
Student's). Where the twin stands today is known from today's errors, of rows in sight too.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.lab.evidence.judge import stored_errors
from twin.lab.evidence.rows import (
    SUPERNODE,
    UNJUDGED,
    First,
    Row,
    load_first_answers,
    load_published,
    scenario_of,
)
from twin.scenario import Scenario, chip_of

LEVELS = ("quantity", "machine", "stack and release", "serving mode", "batch range")
STACK = 3  # levels down to the stack
PRIOR = 8  # rows that what is known of others weighs in the spread of a quantity and of a stack
RANGE = 4  # a range of batches: from a power of four to the next
DIGITS = 0.005  # no published figure says more: half a unit of its second digit, of fifty at least
HALF, MOST = 0.5, 0.8  # shares of figures that a band is to hold

PLAIN = "plain"  # the stack that has no figures of its own
RATES = ("throughput", "requests", "slo")  # last parts of measures of which more is faster
DECODE, PREFILL, OPERATOR, RATIO = "decode", "prefill", "operator", "ratio"
OPERATORS = ("kernel", "collective", "exchange", "stream")

Vector = NDArray[np.float64]
Levels = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Error:
    """Errors of one row, as logarithms of speed; first is None for a row in sight."""

    row: str
    system: str
    source: str
    model: str
    levels: Levels
    batch: int  # of decode, requests per NPU
    first: float | None
    today: float

    @property
    def first_or_today(self) -> float:
        """First error of the row, or else today's: ln(speed of the twin / published speed)."""
        return self.today if self.first is None else self.first


def quantity_of(row: Row) -> str:
    """What a row measures: 'ratio', 'decode', 'prefill', 'ttft', 'operator' or 'memory'."""
    measure_parts = row.measure.split(".")
    if row.against is not None:
        return RATIO
    if row.family in OPERATORS or measure_parts[1:2] in (["layer"], ["profile"]):
        return OPERATOR
    if row.family in ("finite", "benchmark"):
        return "ttft" if measure_parts[-1] == "ttft" else DECODE
    return row.family


def tree_leaf(quantity: str, scenario: Scenario, stack: str) -> Levels:
    """Levels that group errors: (quantity, chip, stack, 'colocated' or 'apart', range of decode
    batches, 0 for other quantities)."""
    mode = "colocated" if scenario.deployment.mode == "colocated" else "apart"
    batch_code = batch_range(scenario.deployment.decode.batch_per_npu) if quantity == DECODE else 0
    chip = chip_of(scenario, "prefill" if quantity in ("prefill", "ttft") else "decode")
    return quantity, chip, stack, mode, batch_code


def batch_range(batch: float) -> int:
    """Range of a batch (requests per NPU): exponent of the largest power of four up to it.

    >>> [batch_range(batch) for batch in (1, 3, 4, 96, 256)]
    [0, 0, 1, 3, 4]
    """
    return max(0, int(math.log(max(batch, 1.0), RANGE) + 1e-9))


def stack_of(row: Row) -> str:
    """Name of a published row's serving stack: its scenario's; if that is 'plain', the supernode's
    for rows of the supernode, otherwise the row's system."""
    stack = scenario_of(row.scenario).deployment.stack
    if stack != PLAIN:
        return stack
    return SUPERNODE if row.group == SUPERNODE else row.system


def log_speed(row: Row, error: float) -> float:
    """ln(speed of the twin / published speed) from a row's error (twin / published - 1)."""
    return math.log1p(error) if row.measure.split(".")[-1] in RATES else -math.log1p(error)


def errors_of(
    rows: Sequence[Row], first_answers: Mapping[str, First], today: Mapping[str, float]
) -> list[Error]:
    """Errors of judged rows that have a first answer or the kind 'seen'. first_answers: by
    row id; today: today's errors by row id, as twin / published - 1 (missing: the first)."""
    errors = []
    for row in rows:
        first_answer = first_answers.get(row.id)
        if row.kind in UNJUDGED or row.at_most or (first_answer is None and row.kind != "seen"):
            continue
        first_error = None if first_answer is None else first_answer.error
        if (error_now := today.get(row.id, first_error)) is None:
            continue
        scenario = scenario_of(row.scenario)
        errors.append(
            Error(
                row.id, row.system, row.source, scenario.deployment.model,
                tree_leaf(quantity_of(row), scenario, stack_of(row)),
                scenario.deployment.decode.batch_per_npu,
                None if first_error is None else log_speed(row, first_error),
                log_speed(row, error_now),
            )
        )  # fmt: skip
    return errors


def student_t(share: float, freedom: int) -> float:
    """Student's t quantile of a probability (`share`) at degrees of freedom, within 0.001
    (Abramowitz and Stegun 26.7.5); scipy is slow to import."""
    z = NormalDist().inv_cdf(share)
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
             (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)  # fmt: skip
    return sum(term / freedom**power for power, term in enumerate(terms))


@dataclass(frozen=True, slots=True)
class Band:
    """Expected error of a figure: Student's t, as a logarithm of speed."""

    centre: float
    spread: float
    freedom: int
    own: int  # rows with a first error of the same quantity, machine and stack

    def half_width(self, share: float = MOST) -> float:
        """Half width of the band that contains a share of figures, as a logarithm of speed."""
        return self.spread * student_t(0.5 + 0.5 * share, self.freedom)

    def ends(self, share: float = MOST) -> tuple[float, float]:
        """Low and high end of the band that contains a share of figures, as logarithms of speed."""
        half_width = self.half_width(share)
        return self.centre - half_width, self.centre + half_width

    def holds(self, error: float, share: float = MOST) -> bool:
        """Whether the band that contains a share of figures contains an error (log of speed)."""
        return abs(error - self.centre) <= self.half_width(share)


class Bands:
    """The tree of errors; `band` gives the band of any leaf, with or without rows."""

    def __init__(self, errors: Sequence[Error]) -> None:
        """Fit the bands to errors of rows. Raises ValueError if none has a first error."""
        self.errors = sorted(errors, key=lambda entry: entry.first is None)
        unseen = [error for error in self.errors if error.first is not None]
        if not unseen:
            raise ValueError("bands need at least one row with a first error")
        self._scales = _error_scales(unseen)
        row_scales = np.array([self._error_scale(error.levels[0]) for error in self.errors])
        todays = np.array([error.today for error in self.errors]) / row_scales
        firsts = np.array([error.first for error in unseen], float) / row_scales[: len(unseen)]
        self._numbers: list[dict[Levels, int]] = [{} for _ in LEVELS]
        self._codes = _branch_numbers([error.levels for error in self.errors], self._numbers)
        shared_levels = sum((codes[:, None] == codes).astype(int) for codes in self._codes.T)
        self._variogram = _variogram(self._codes[: len(unseen)], firsts, shared_levels)
        covariance = self._variogram[0] - self._variogram[shared_levels]
        np.fill_diagonal(covariance, self._variogram[0])
        inverse_covariance = np.linalg.inv(covariance + 1e-9 * np.eye(len(todays)))
        self._weight = inverse_covariance.sum(axis=1)
        self._weight_sum = float(self._weight.sum())
        self._mean = float(self._weight @ todays) / self._weight_sum
        self._pull = inverse_covariance @ (todays - self._mean)
        self._inverse = inverse_covariance
        # Each row as the others predict it (Dubrule, Mathematical geology 15, 1983).
        projection = inverse_covariance - np.outer(self._weight, self._weight) / self._weight_sum
        precision = np.maximum(np.diag(projection)[: len(unseen)], 1e-12)
        predicted = todays[: len(unseen)] - (projection @ todays)[: len(unseen)] / precision
        self._apart = (firsts - predicted) * np.sqrt(precision)
        self._priors = _variance_factors(projection, todays, firsts, self.errors)

    def band(self, levels: Levels) -> Band:
        """Band in which a figure's error is expected; levels: of the figure, as `tree_leaf` returns
        them. A stack without rows gets the band of all other systems."""
        leaf_codes = [
            branch_ids.get(levels[: depth + 1], -1)
            for depth, branch_ids in enumerate(self._numbers)
        ]
        shared_levels = (self._codes == leaf_codes).sum(axis=1)
        covariance = self._variogram[0] - self._variogram[shared_levels]
        centre = self._mean + float(covariance @ self._pull)
        weight_gap = 1.0 - float(covariance @ self._weight)
        explained_variance = covariance @ self._inverse @ covariance
        variance = float(self._variogram[0] - explained_variance + weight_gap**2 / self._weight_sum)
        residuals = self._apart[self._codes[: len(self._apart), STACK - 1] == leaf_codes[STACK - 1]]
        prior_factor = self._priors.get(levels[0], max(self._priors.values()))
        degrees_of_freedom = PRIOR + len(residuals)
        variance_factor = (PRIOR * prior_factor + float(residuals @ residuals)) / degrees_of_freedom
        error_scale = self._error_scale(levels[0])
        spread = error_scale * math.sqrt(max(variance, 0.0) * variance_factor)
        if 0 < len(residuals) < PRIOR:  # of so few rows none makes a stack less known than none
            spread = min(spread, self.band((levels[0], *[None] * (len(LEVELS) - 1))).spread)
        return Band(error_scale * centre, max(spread, DIGITS), degrees_of_freedom, len(residuals))

    def _error_scale(self, quantity: Hashable) -> float:
        """Root mean square error of a quantity; the worst quantity's, if it has no first errors."""
        return self._scales.get(quantity, max(self._scales.values()))


def _variance_factors(
    projection: Vector, todays: Vector, firsts: Vector, errors: Sequence[Error]
) -> dict[Hashable, float]:
    """Factor on a band's variance, by quantity (key None: all), with which a share MOST of first
    errors lies in bands made without the row's system or source. Quantities of fewer than PRIOR
    rows are left out; {None: 1} with one system and source. projection: f8[rows, rows]; todays,
    firsts: scaled errors. (Dubrule; by groups: Barber et al., Annals of statistics 49, 2021)"""
    residuals = projection @ todays
    deviations_by_quantity: dict[Hashable, list[float]] = {}
    for group_of in (by_system, by_source):
        rows_by_group: dict[str, list[int]] = {}
        for row, error in enumerate(errors):
            rows_by_group.setdefault(group_of(error), []).append(row)
        # No other is there to predict it. (The projection is singular for all rows alone.)
        if len(rows_by_group) == 1:
            continue
        for group_rows in map(np.array, rows_by_group.values()):
            block_inverse = np.linalg.inv(projection[np.ix_(group_rows, group_rows)])
            predicted_errors = todays[group_rows] - block_inverse @ residuals[group_rows]
            spreads = np.sqrt(np.maximum(np.diag(block_inverse), 1e-12))
            # Rows with a first error come first in a group.
            for position, row in enumerate(group_rows[group_rows < len(firsts)]):
                deviation = abs(firsts[row] - predicted_errors[position]) / spreads[position]
                for quantity in (None, errors[row].levels[0]):
                    deviations_by_quantity.setdefault(quantity, []).append(deviation)
    t_quantile = student_t(0.5 + 0.5 * MOST, PRIOR)
    return {
        quantity: max(
            (float(np.quantile(deviations, MOST, method="higher")) / t_quantile) ** 2, DIGITS
        )
        for quantity, deviations in deviations_by_quantity.items()
        # Each row is there once without its system, and once without its source.
        if quantity is None or len(deviations) >= 2 * PRIOR
    } or {None: 1.0}


def _error_scales(first_errors: Sequence[Error]) -> dict[Hashable, float]:
    """Root mean square first error by quantity, as a mean over systems and pooled with PRIOR rows
    of the worst quantity."""
    error_squares: dict[Hashable, dict[str, list[float]]] = {}
    for error in first_errors:
        squares_by_system = error_squares.setdefault(error.levels[0], {})
        squares_by_system.setdefault(error.system, []).append(error.first_or_today**2)
    mean_squares = {
        quantity: float(np.mean([np.mean(squares) for squares in by_system.values()]))
        for quantity, by_system in error_squares.items()
    }
    row_counts = [sum(map(len, by_system.values())) for by_system in error_squares.values()]
    square_counts = list(zip(mean_squares.values(), row_counts, strict=True))
    worst_square = max(
        [square for square, rows in square_counts if rows >= PRIOR] or mean_squares.values()
    )
    scales = (
        math.sqrt((rows * square + PRIOR * worst_square) / (rows + PRIOR))
        for square, rows in square_counts
    )
    return dict(
        zip(mean_squares, (max(error_scale, DIGITS) for error_scale in scales), strict=True)
    )


def _branch_numbers(leaves: Sequence[Levels], numbers: list[dict[Levels, int]]) -> NDArray[np.intp]:
    """Number of the branch on which each leaf (an error's levels) lies at each level, i[leaves,
    levels]. numbers: of the branches known so far, by level; new branches are added."""
    return np.array([
        [ids.setdefault(leaf[: depth + 1], len(ids)) for depth, ids in enumerate(numbers)]
        for leaf in leaves
    ])  # fmt: skip


def _variogram(codes: NDArray[np.intp], errors: Vector, shared_levels: NDArray[np.intp]) -> Vector:
    """Half the mean squared difference of two rows' errors, by number of levels that the rows
    share: f8[levels + 1]. It never rises with that number, and is 1 without a pair. It is a mean
    over pairs of branches, so that many rows of one stack count once. codes: branch numbers;
    shared_levels: number of shared levels, i[rows, rows]."""
    rows, other_rows = np.triu_indices(len(errors), 1)
    pair_depths = shared_levels[rows, other_rows]
    roots_of_gaps = np.sqrt(np.abs(errors[rows] - errors[other_rows]))
    half_variances = np.full(len(LEVELS) + 1, np.nan)
    for depth in range(len(LEVELS) + 1):
        at_depth = pair_depths == depth
        if at_depth.any():
            level = min(len(LEVELS), max(depth + 1, STACK)) - 1
            branch, other_branch = codes[rows[at_depth], level], codes[other_rows[at_depth], level]
            pair = np.minimum(branch, other_branch) * len(errors) + np.maximum(branch, other_branch)
            counts = np.bincount(pair)
            roots = np.bincount(pair, roots_of_gaps[at_depth])[counts > 0] / counts[counts > 0]
            # One far-off system decides less (Cressie & Hawkins, Math. Geology 12, 1980).
            half_variances[depth] = float(0.5 * np.mean(roots) ** 4 / (0.457 + 0.494 / len(roots)))
    if np.isnan(half_variances).all():
        return np.ones(len(LEVELS) + 1)
    half_variances = np.fmax.accumulate(half_variances[::-1])[::-1]  # nan: nothing deeper is known
    deepest_known = half_variances[~np.isnan(half_variances)][-1]
    return np.maximum(np.nan_to_num(half_variances, nan=deepest_known), DIGITS**2)


# What bands hold of rows that they have not seen.


def bands_without(
    errors: Sequence[Error],
    group_of: Callable[[Error], Any],
    leaves: Mapping[str, tuple[Any, Levels]] | None = None,
) -> dict[str, Band]:
    """Band by row id, made without errors of the row's group. group_of: returns an error's
    group, such as its system; leaves: (group, levels) by row id (None: those of the errors)."""
    leaves = leaves or {error.row: (group_of(error), error.levels) for error in errors}
    bands: dict[str, Band] = {}
    for group in dict.fromkeys(group for group, _ in leaves.values()):
        other_errors = [error for error in errors if group_of(error) != group]
        if any(error.first is not None for error in other_errors):
            tree = Bands(other_errors)
            bands |= {
                row: tree.band(leaf)
                for row, (row_group, leaf) in leaves.items()
                if row_group == group
            }
    return bands


by_system = attrgetter("system")  # the group of a row that is left out when bands are judged


def by_source(error: Error) -> str:
    """Name of the publication of a row's error, without the page or table in it."""
    return error.source.split(":")[0].split(",")[0]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of some rows within bands made without them."""

    rows_of: str
    rows: int
    half: float  # of the bands that are to hold HALF
    most: float  # of those that are to hold MOST

    @property
    def text(self) -> str:
        """Both shares of rows within their bands, and the number of rows: '57 and 81 % of 54'."""
        return f"{100 * self.half:.0f} and {100 * self.most:.0f} % of {self.rows}"


def coverage(
    errors: Sequence[Error], bands: Mapping[str, Band], seen: bool = False
) -> list[Coverage]:
    """Shares of errors inside the bands (by row id): of all rows, then of each quantity. seen:
    today's errors of rows of kind 'seen'; else first errors."""
    judged_errors = [
        error for error in errors if error.row in bands and (error.first is None) == seen
    ]
    errors_by_quantity = {"all": judged_errors}
    for error in judged_errors:
        errors_by_quantity.setdefault(str(error.levels[0]), []).append(error)
    return [
        Coverage(quantity, len(quantity_errors), *(
            float(np.mean([bands[error.row].holds(error.first_or_today, share)
                           for error in quantity_errors]))
            for share in (HALF, MOST)))
        for quantity, quantity_errors in errors_by_quantity.items() if quantity_errors
    ]  # fmt: skip


@lru_cache(maxsize=1)
def error_record() -> tuple[tuple[Error, ...], Bands]:
    """(errors on record of published rows, bands made from them), computed once."""
    errors = errors_of(load_published(), load_first_answers(), stored_errors()["today"])
    return tuple(errors), Bands(errors)


@lru_cache(maxsize=1)
def _bands_without_system() -> dict[str, Band]:
    """Band of every judged row by its id, made without rows of its system."""
    errors, _ = error_record()
    quantities = {error.levels[0] for error in errors}
    system_and_levels = {
        row.id: (row.system, tree_leaf(quantity_of(row), scenario_of(row.scenario), stack_of(row)))
        for row in load_published()
        if row.kind not in UNJUDGED and quantity_of(row) in quantities
    }
    return bands_without(errors, by_system, system_and_levels)


def row_bands() -> Mapping[str, tuple[float, float, bool | None]]:
    """(low, high, inside) by row id: ends of the band of twin / published - 1, made without the
    row's system, and whether the first error lies within (None: there is no first error)."""
    bands, first_answers, ends_by_row = _bands_without_system(), load_first_answers(), {}
    for row in load_published():
        if row.id not in bands:
            continue
        low_end_log, high_end_log = bands[row.id].ends()
        if log_speed(row, 1.0) < 0.0:
            low_end_log, high_end_log = -high_end_log, -low_end_log
        answer = None if row.at_most else first_answers.get(row.id)
        is_inside = None if answer is None else bands[row.id].holds(log_speed(row, answer.error))
        ends_by_row[row.id] = (math.expm1(low_end_log), math.expm1(high_end_log), is_inside)
    return ends_by_row


@lru_cache(maxsize=1)
def coverages() -> dict[str, list[Coverage]]:
    """Shares of errors that lie within bands, of all rows and then by quantity; keys: of which
    errors, and what was left out when the bands were made."""
    errors, _ = error_record()
    bands = _bands_without_system()
    return {
        "first errors, their system left out": coverage(errors, bands),
        "first errors, their source left out": coverage(errors, bands_without(errors, by_source)),
        "rows in sight, which flatter, their system left out": coverage(errors, bands, True),
    }


def coverage_texts() -> list[str]:
    """Sentences: what share of errors lies within bands that were made without these rows."""
    sentences = []
    for subject, (overall, *quantity_coverages) in coverages().items():
        quantity_text = ", ".join(f"{item.rows_of} {item.text}" for item in quantity_coverages)
        shares_text = f"{100 * HALF:.0f} and {100 * MOST:.0f} %"
        sentences.append(f"Bands of {shares_text} hold {overall.text} {subject} ({quantity_text}).")
    return sentences


# Ratios of two figures, where most of the error cancels.


def ratio_error_and_pairs(errors: Sequence[Error], levels: Levels, model: str) -> tuple[float, int]:
    """(error, pairs): a share MOST of recorded ratios of two deployments of one stack is off by at
    most this error (a logarithm); number of pairs of rows of this machine, stack, mode and model;
    (inf, 0) without any pair. Each branch counts once, all other systems together as PRIOR rows."""
    unseen_errors = [error for error in errors if error.first is not None]
    errors_by_branch: dict[tuple[Hashable, ...], list[float]] = {}
    rows_by_branch: dict[tuple[Hashable, ...], int] = {}
    for position, error in enumerate(unseen_errors):
        branch = (*error.levels[1 : STACK + 1], error.model, error.system)
        if error.levels[0] == RATIO:
            errors_by_branch.setdefault(branch, []).append(abs(error.first_or_today))
        for earlier in unseen_errors[:position]:
            if error.levels[0] in (DECODE, PREFILL) and error.levels[: STACK + 1] == (
                earlier.levels[: STACK + 1]
            ) and (error.model, error.system) == (earlier.model, earlier.system):  # fmt: skip
                errors_by_branch.setdefault(branch, []).append(
                    abs(error.first_or_today - earlier.first_or_today)
                )
        rows_by_branch[branch] = rows_by_branch.get(branch, 0) + 1
    stack_and_model = (*levels[1 : STACK + 1], model)
    ratio_errors, error_weights, pair_count = [], [], 0
    for branch, branch_errors in errors_by_branch.items():
        is_same_stack = branch[: len(stack_and_model)] == stack_and_model
        pair_count += len(branch_errors) * is_same_stack
        branch_weight = (
            rows_by_branch[branch] if is_same_stack else PRIOR / max(1, len(errors_by_branch))
        )
        ratio_errors += branch_errors
        error_weights += [branch_weight / len(branch_errors)] * len(branch_errors)
    if not ratio_errors:
        return math.inf, 0
    ascending = np.argsort(ratio_errors)
    weight_sums = np.cumsum(np.array(error_weights)[ascending])
    quantile_index = int(np.searchsorted(weight_sums, MOST * weight_sums[-1]))
    return max(float(np.array(ratio_errors)[ascending][quantile_index]), DIGITS), pair_count
