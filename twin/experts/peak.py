"""The hottest die of a finite batch: mean and quantiles of the largest of many die loads.

A batch is a finite draw, so dies differ by chance on top of what popularity does. Dies are taken
as independent counts of the mean and variance that a token's picks have; what the fixed total of
a batch takes off their variance is in `spread`. Knows counts, nothing about experts.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALL_MEAN = 24.0  # tokens per die up to which token counts are treated as the integers they are
STEPS = 16  # quadrature points over the distribution of the hottest die: 400 change 6e-5
HALVINGS = 20  # of the interval that a quantile is searched in
MEAN = -1.0  # asked for instead of a quantile
ROOT_HALF = math.sqrt(0.5)


@njit(cache=True)
def peak_of_counts(mean: Floats, spread: Floats, quantile: float = MEAN) -> float:
    """E[max] of independent integer counts: mean f8[dies] > 0, falling, spread = variance / mean.

    Each count is binomial (spread < 1), Poisson (1) or negative binomial (> 1), which share the
    recursion p(k) = p(k-1) (a + b/k) (Panjer 1981); E[max] = sum over k of 1 - P(all <= k).
    A quantile instead is where P(all <= k), joined by straight lines between counts, passes it,
    for counts of a fixed total.
    """
    dies = mean.size
    a = np.empty(dies)
    b = np.empty(dies)
    chance = np.empty(dies)
    below = np.empty(dies)
    for d in range(dies):
        over = spread[d] - 1.0
        if over < -1e-9:  # a binomial counts whole trials, or its chances do not sum to 1
            trials = max(math.ceil(mean[d]) + 1.0, math.floor(0.5 - mean[d] / over))
            over = -mean[d] / trials
        if abs(over) <= 1e-9:
            a[d] = 0.0
            b[d] = mean[d]
            chance[d] = math.exp(-mean[d])
        else:
            a[d] = over / (1.0 + over)
            b[d] = (mean[d] - over) / (1.0 + over)
            chance[d] = math.exp(-mean[d] * math.log(1.0 + over) / over)
        below[d] = chance[d]
    total = 0.0
    square = 0.0
    before = 0.0
    passed = -1.0
    k = 0
    while True:
        all_below = 1.0
        for d in range(dies):
            all_below *= below[d]
            if all_below < 1e-10:
                break
        if passed < 0.0 and all_below >= quantile >= 0.0:
            passed = k - (all_below - quantile) / (all_below - before)
        before = all_below
        total += 1.0 - all_below
        square += (2.0 * k + 1.0) * (1.0 - all_below)
        if 1.0 - all_below < 1e-7 or k > 100_000:
            if quantile >= 0.0:
                return _of_fixed_total(passed, total, square - total * total, mean, spread)
            return total
        k += 1
        for d in range(dies):
            chance[d] *= max(0.0, a[d] + b[d] / k)
            below[d] = min(1.0, below[d] + chance[d])


@njit(cache=True)
def peak_of_amounts(mean: Floats, spread: Floats, quantile: float = MEAN) -> float:
    """E[max] of independent large counts: mean f8[dies] > 0, falling, spread = variance / mean.

    Each is taken as a shifted gamma of the same mean, variance and skewness as the counts of
    `peak_of_counts`, by the cube-root transform (Wilson and Hilferty 1931); then the midpoint
    rule over E[max] = low + integral of 1 - P(all <= x). A quantile is that of counts, joined by
    straight lines as in `peak_of_counts`.
    """
    dies = mean.size
    sd = np.empty(dies)
    skew = np.empty(dies)
    low = 0.0
    high = 0.0
    for d in range(dies):
        sd[d] = math.sqrt(mean[d] * spread[d])
        skew[d] = max(1e-6, (2.0 * spread[d] - 1.0) / max(sd[d], 1e-12))
        low = max(low, mean[d] - 3.5 * sd[d])
        high = max(high, mean[d] + (5.5 + 5.0 * skew[d]) * sd[d])
    width = (high - low) / STEPS
    total = low
    square = 0.0
    last = dies
    for i in range(STEPS):
        all_below, last = _all_below(low + (i + 0.5) * width, mean[:last], sd, skew)
        above = (1.0 - all_below) * width
        total += above
        square += 2.0 * (i + 0.5) * width * above
    if quantile < 0.0:
        return total
    variance = square - (total - low) * (total - low)
    for _ in range(HALVINGS):
        x = 0.5 * (low + high)
        if _all_below(x, mean, sd, skew)[0] < quantile:
            low = x
        else:
            high = x
    between = 0.5 * (low + high) - 0.5  # all up to count k: all amounts up to k + 1/2
    return _of_fixed_total(between, total, variance, mean, spread)


@njit(cache=True)
def _of_fixed_total(
    quantile: float, peak: float, variance: float, mean: Floats, spread: Floats
) -> float:
    """A quantile of the largest count, given one of independent counts with this mean, variance.

    A batch makes a fixed number of picks. Holding the total fixed takes from every count its part
    of the total's chance (for normal counts, v / V of it): no change to the expected largest, but
    v**2 / V off its variance, v the hottest die's and V the total's. Counts up to a quantile k are
    amounts up to k + 1/2, and it is the amounts that draw together.
    """
    total = 0.0
    for d in range(mean.size):
        total += mean[d] * spread[d]
    hottest = mean[0] * spread[0]
    kept = 1.0 - hottest * hottest / total / max(variance, 1e-300)
    return peak + (quantile + 0.5 - peak) * math.sqrt(max(0.0, kept)) - 0.5


@njit(cache=True)
def _all_below(x: float, mean: Floats, sd: Floats, skew: Floats) -> tuple[float, int]:
    """P(no die is above x) of `peak_of_amounts`, and how many dies may be above any larger x."""
    all_below = 1.0
    below = 1.0
    last = 0
    for d in range(mean.size):
        if d == 0 or mean[d] != mean[d - 1] or sd[d] != sd[d - 1]:
            far = (x - mean[d]) / sd[d]
            y = 1.0 + 0.5 * skew[d] * far
            below = 0.0
            if far > 12.0:
                below = 1.0
            elif y > 0.0:
                z = 6.0 / skew[d] * (math.pow(y, 1.0 / 3.0) - 1.0) + skew[d] / 6.0
                below = 0.5 * math.erfc(-z * ROOT_HALF)
        all_below *= below  # copies of one expert alone on their dies are alike
        if below < 1.0:
            last = d + 1
        if all_below < 1e-9:
            return all_below, mean.size
    return all_below, last
