"""The hottest die of a finite batch: mean of the largest of independent counts with the mean and
variance of a token's picks. Written twice, equal to the last bit: `peak_of_*` for a formula that
waits for no compiler, `peaks` for curves; roots and powers are scalar calls, alike on any
processor."""

import math
from itertools import repeat

import numpy as np

from twin.experts.popularity import Floats
from twin.kernels.compiled import kernel, late
from twin.kernels.rng import each

SMALL_MEAN = 24.0  # tokens per die up to which token counts are treated as the integers they are
STEPS = 16  # quadrature points over the distribution of the hottest die: 400 change 6e-5
MOST_COUNTS = 100_000
ROOT_HALF = math.sqrt(0.5)
SURE = 8.6  # deviations of a normal number beyond which P(below) is 1 to the last bit
HOT_DIES = 24  # looked at first: far below their means the others decide nothing


def peak_of_counts(mean: Floats, spread: Floats) -> Floats:
    """E[max] of independent integer counts of each row, f8[layers]. mean f8[layers, dies] >= 0,
    falling; spread = variance / mean. Binomial (spread < 1), Poisson (1) or negative binomial (>
    1), all by p(k) = p(k-1) (a + b/k) (Panjer 1981); E[max] = sum over k of 1 - P(all <= k)."""
    excess = np.where(mean > 0.0, spread - 1.0, 0.0)
    binomial = excess < -1e-9  # counts whole trials, or its chances do not sum to 1
    rounded_trials = np.floor(0.5 - mean / np.where(binomial, excess, -1.0))
    trials = np.where(binomial, np.maximum(np.ceil(mean) + 1.0, rounded_trials), 1.0)
    excess = np.where(binomial, -mean / trials, excess)
    poisson = np.abs(excess) <= 1e-9
    excess = np.where(poisson, 0.0, excess)
    a = excess / (1.0 + excess)
    b = np.where(poisson, mean, (mean - excess) / (1.0 + excess))
    chance = each(math.exp, -mean * each(math.log, 1.0 + excess) / np.where(poisson, 1.0, excess))
    chance = np.where(poisson, each(math.exp, -mean), chance)
    below = chance.copy()
    expected_max = np.zeros(mean.shape[0])
    open_rows = np.arange(mean.shape[0])
    for k in range(1, MOST_COUNTS):
        chance_above = 1.0 - _all(below, 1e-10)
        expected_max[open_rows] += chance_above
        is_open = chance_above >= 1e-7
        if not is_open.all():
            if not is_open.any():
                break
            open_rows = open_rows[is_open]
            a, b, chance, below = a[is_open], b[is_open], chance[is_open], below[is_open]
        chance = chance * np.maximum(0.0, a + b / k)
        below = np.minimum(1.0, below + chance)
    return expected_max


def peak_of_amounts(mean: Floats, spread: Floats) -> Floats:
    """E[max] of independent large counts of each row, f8[layers], arguments as above: shifted
    gammas by the cube-root transform (Wilson and Hilferty 1931), midpoint rule over E[max]."""
    has_load = mean > 0.0
    sd = np.sqrt(mean * spread)
    skew = np.maximum(1e-6, (2.0 * spread - 1.0) / np.maximum(sd, 1e-12))
    low = np.maximum(0.0, np.where(has_load, mean - 3.5 * sd, 0.0).max(axis=1))
    high = np.where(has_load, mean + (5.5 + 5.0 * skew) * sd, 0.0).max(axis=1)
    width = (high - low) / STEPS
    # So many deviations from the mean on a count is surely below: `_likely` would say 1.
    certain_above = 2.0 * ((1.0 + skew * (SURE - skew / 6.0) / 6.0) ** 3 - 1.0) / skew
    certain_above = np.where(has_load, np.minimum(12.0, np.maximum(certain_above, 0.0)), -np.inf)
    moments = np.where(has_load, np.maximum(sd, 1e-300), np.inf), skew, certain_above, mean
    expected_max = low.copy()
    for i in range(STEPS):
        count = low + (i + 0.5) * width
        all_below = np.ones(count.size)
        rows = np.arange(count.size)
        for block in (slice(HOT_DIES), slice(HOT_DIES, None)):
            chance = _likely(count[rows, None], *(values[rows, block] for values in moments))
            all_below[rows] = _all(np.column_stack([all_below[rows], chance]), 1e-9)
            rows = rows[all_below[rows] >= 1e-9]
        expected_max += (1.0 - all_below) * width
    return expected_max


def _likely(x: Floats, sd: Floats, skew: Floats, sure: Floats, mean: Floats) -> Floats:
    """P(count <= x) of each die of each row; 1 from `sure` deviations on."""
    deviations = (x - mean) / sd
    cube = 1.0 + 0.5 * skew * deviations
    chance = np.where(deviations > sure, 1.0, 0.0)
    is_inside = (deviations <= sure) & (cube > 0.0)
    inside_skew = skew[is_inside]
    roots = map(math.pow, cube[is_inside].tolist(), repeat(1.0 / 3.0))
    root = np.fromiter(roots, np.float64, inside_skew.size)
    z = 6.0 / inside_skew * (root - 1.0) + inside_skew / 6.0
    chance[is_inside] = 0.5 * each(math.erfc, -z * ROOT_HALF)
    return chance


def _all(chance: Floats, least: float) -> Floats:
    """Product of each row, f8[layers], die by die until it is below `least`."""
    product = np.multiply.accumulate(chance, axis=1)
    is_small = product < least
    end = np.where(is_small.any(axis=1), is_small.argmax(axis=1), -1)
    return np.asarray(product[np.arange(product.shape[0]), end])


@late
def peaks(mean: Floats, spread: Floats) -> Floats:
    """`peak_of_counts` or, beyond SMALL_MEAN, `peak_of_amounts` of each row, f8[layers]."""
    answer = np.empty(mean.shape[0])
    for layer in range(mean.shape[0]):
        dies = 0  # with load: they come first
        while dies < mean.shape[1] and mean[layer, dies] > 0.0:
            dies += 1
        if mean[layer, 0] <= SMALL_MEAN:
            answer[layer] = _peak_of_counts(mean[layer, :dies], spread[layer, :dies])
        else:
            answer[layer] = _peak_of_amounts(mean[layer, :dies], spread[layer, :dies])
    return answer


@kernel(allocates=True)
def _peak_of_counts(mean: Floats, spread: Floats) -> float:
    """`peak_of_counts` of one layer, in scalars for compiled code."""
    dies = mean.size
    a, b, chance, chance_below = np.empty(dies), np.empty(dies), np.empty(dies), np.empty(dies)
    for d in range(dies):
        excess = spread[d] - 1.0
        if excess < -1e-9:
            trials = max(math.ceil(mean[d]) + 1.0, math.floor(0.5 - mean[d] / excess))
            excess = -mean[d] / trials
        if abs(excess) <= 1e-9:
            a[d], b[d], chance[d] = 0.0, mean[d], math.exp(-mean[d])
        else:
            a[d], b[d] = excess / (1.0 + excess), (mean[d] - excess) / (1.0 + excess)
            chance[d] = math.exp(-mean[d] * math.log(1.0 + excess) / excess)
        chance_below[d] = chance[d]
    expected_max = 0.0
    for k in range(1, MOST_COUNTS):
        all_below = 1.0
        for d in range(dies):
            all_below *= chance_below[d]
            if all_below < 1e-10:
                break
        expected_max += 1.0 - all_below
        if 1.0 - all_below < 1e-7:
            break
        for d in range(dies):
            chance[d] *= max(0.0, a[d] + b[d] / k)
            chance_below[d] = min(1.0, chance_below[d] + chance[d])
    return expected_max


@kernel(allocates=True)
def _peak_of_amounts(mean: Floats, spread: Floats) -> float:
    """`peak_of_amounts` of one layer, in scalars for compiled code."""
    dies = mean.size
    sd, skew = np.empty(dies), np.empty(dies)
    low = high = 0.0
    for d in range(dies):
        sd[d] = math.sqrt(mean[d] * spread[d])
        skew[d] = max(1e-6, (2.0 * spread[d] - 1.0) / max(sd[d], 1e-12))
        low = max(low, mean[d] - 3.5 * sd[d])
        high = max(high, mean[d] + (5.5 + 5.0 * skew[d]) * sd[d])
    width = (high - low) / STEPS
    expected_max = low
    for i in range(STEPS):
        expected_max += (1.0 - _all_below(low + (i + 0.5) * width, mean, sd, skew)) * width
    return expected_max


@kernel
def _all_below(x: float, mean: Floats, sd: Floats, skew: Floats) -> float:
    """P(no die is above x); neighbouring dies with equal moments are computed once."""
    all_below = chance_below = 1.0
    for d in range(sd.size):
        if d == 0 or mean[d] != mean[d - 1] or sd[d] != sd[d - 1]:
            deviations = (x - mean[d]) / max(sd[d], 1e-300)
            cube = 1.0 + 0.5 * skew[d] * deviations
            chance_below = 0.0
            if deviations > 12.0:
                chance_below = 1.0
            elif cube > 0.0:
                z = 6.0 / skew[d] * (math.pow(cube, 1.0 / 3.0) - 1.0) + skew[d] / 6.0
                chance_below = 0.5 * math.erfc(-z * ROOT_HALF)
        all_below *= chance_below
        if all_below < 1e-9:
            break
    return all_below
