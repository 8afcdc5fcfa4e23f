"""The hottest die of a finite batch: mean of the largest of independent counts with the mean and
variance of a token's picks. Written twice, equal to the last bit: `peak_of_*` for a formula that
waits for no compiler, `peaks` for curves; roots and powers are scalar calls."""

import math
from itertools import repeat

import numpy as np

from twin.experts.popularity import Floats
from twin.kernels.compiled import kernel, lazy_entry
from twin.kernels.rng import apply

SMALL_MEAN = 24.0  # tokens per die up to which token counts are treated as the integers they are
STEPS = 16  # quadrature points over the distribution of the hottest die: 400 change 6e-5
MOST_COUNTS = 100_000
ROOT_HALF = math.sqrt(0.5)
SURE = 8.6  # deviations of a normal number beyond which P(below) is 1 to the last bit
HOT_DIES = 24  # looked at first: far below their means the others decide nothing


def peak_of_counts(mean: Floats, spread: Floats) -> Floats:
    """E[max] of independent integer counts of a layer's dies, f8[layers]. mean f8[layers, dies] >=
    0, falling; spread = variance / mean. Binomial (spread < 1), Poisson (1) or negative binomial (>
    1), all by p(k) = p(k-1) (a + b/k) (Panjer 1981); E[max] = sum over k of 1 - P(all <= k)."""
    excess = np.where(mean > 0.0, spread - 1.0, 0.0)
    is_binomial = excess < -1e-9  # counts whole trials, or its chances do not sum to 1
    rounded_trials = np.floor(0.5 - mean / np.where(is_binomial, excess, -1.0))
    trials = np.where(is_binomial, np.maximum(np.ceil(mean) + 1.0, rounded_trials), 1.0)
    excess = np.where(is_binomial, -mean / trials, excess)
    is_poisson = np.abs(excess) <= 1e-9
    excess = np.where(is_poisson, 0.0, excess)
    panjer_a = excess / (1.0 + excess)
    panjer_b = np.where(is_poisson, mean, (mean - excess) / (1.0 + excess))
    count_chance = apply(
        math.exp, -mean * apply(math.log, 1.0 + excess) / np.where(is_poisson, 1.0, excess)
    )
    count_chance = np.where(is_poisson, apply(math.exp, -mean), count_chance)
    cdf = count_chance.copy()
    expected_max = np.zeros(mean.shape[0])
    unfinished_layers = np.arange(mean.shape[0])
    for count in range(1, MOST_COUNTS):
        chance_above = 1.0 - _row_product(cdf, 1e-10)
        expected_max[unfinished_layers] += chance_above
        is_unfinished = chance_above >= 1e-7
        if not is_unfinished.all():
            if not is_unfinished.any():
                break
            unfinished_layers = unfinished_layers[is_unfinished]
            panjer_a, panjer_b = panjer_a[is_unfinished], panjer_b[is_unfinished]
            count_chance, cdf = count_chance[is_unfinished], cdf[is_unfinished]
        count_chance = count_chance * np.maximum(0.0, panjer_a + panjer_b / count)
        cdf = np.minimum(1.0, cdf + count_chance)
    return expected_max


def peak_of_amounts(mean: Floats, spread: Floats) -> Floats:
    """E[max] of independent large counts of a layer's dies, f8[layers]. mean f8[layers, dies] >= 0,
    falling; spread = variance / mean. Counts are shifted gammas, by the cube-root transform (Wilson
    and Hilferty 1931); E[max] is integrated by the midpoint rule."""
    has_load = mean > 0.0
    sd = np.sqrt(mean * spread)
    skew = np.maximum(1e-6, (2.0 * spread - 1.0) / np.maximum(sd, 1e-12))
    lowest_count = np.maximum(0.0, np.where(has_load, mean - 3.5 * sd, 0.0).max(axis=1))
    highest_count = np.where(has_load, mean + (5.5 + 5.0 * skew) * sd, 0.0).max(axis=1)
    step_width = (highest_count - lowest_count) / STEPS
    # So many deviations from the mean on a count is surely below: `_chance_below` would say 1.
    certain_sds = 2.0 * ((1.0 + skew * (SURE - skew / 6.0) / 6.0) ** 3 - 1.0) / skew
    certain_sds = np.where(has_load, np.minimum(12.0, np.maximum(certain_sds, 0.0)), -np.inf)
    die_moments = np.where(has_load, np.maximum(sd, 1e-300), np.inf), skew, certain_sds, mean
    expected_max = lowest_count.copy()
    for step in range(STEPS):
        count = lowest_count + (step + 0.5) * step_width
        p_all_below = np.ones(count.size)
        layers = np.arange(count.size)
        for die_block in (slice(HOT_DIES), slice(HOT_DIES, None)):
            moments = (moment[layers, die_block] for moment in die_moments)
            chance = _chance_below(count[layers, None], *moments)
            p_all_below[layers] = _row_product(np.column_stack([p_all_below[layers], chance]), 1e-9)
            layers = layers[p_all_below[layers] >= 1e-9]
        expected_max += (1.0 - p_all_below) * step_width
    return expected_max


def _chance_below(count: Floats, sd: Floats, skew: Floats, sure: Floats, mean: Floats) -> Floats:
    """P(a die's count is at most `count`), f8[rows, dies], by the count's mean, standard deviation
    `sd` and skew; 1 from `sure` standard deviations above the mean on."""
    sds_above = (count - mean) / sd
    gamma_ratio = 1.0 + 0.5 * skew * sds_above
    chance = np.where(sds_above > sure, 1.0, 0.0)
    is_between = (sds_above <= sure) & (gamma_ratio > 0.0)
    skew_between = skew[is_between]
    cube_roots = map(math.pow, gamma_ratio[is_between].tolist(), repeat(1.0 / 3.0))
    cube_root = np.fromiter(cube_roots, np.float64, skew_between.size)
    normal_z = 6.0 / skew_between * (cube_root - 1.0) + skew_between / 6.0
    chance[is_between] = 0.5 * apply(math.erfc, -normal_z * ROOT_HALF)
    return chance


def _row_product(chance: Floats, least: float) -> Floats:
    """Product f8[layers] of each row of chance f8[layers, n], die by die until below `least`."""
    running_product = np.multiply.accumulate(chance, axis=1)
    is_below_least = running_product < least
    last_die = np.where(is_below_least.any(axis=1), is_below_least.argmax(axis=1), -1)
    return np.asarray(running_product[np.arange(running_product.shape[0]), last_die])


@lazy_entry
def peaks(mean: Floats, spread: Floats) -> Floats:
    """E[max] over a layer's dies, f8[layers], of independent counts with this mean and spread
    (variance / mean), f8[layers, dies]: integers, or large counts where means exceed SMALL_MEAN."""
    peak_tokens = np.empty(mean.shape[0])
    for layer in range(mean.shape[0]):
        dies = 0  # with load: they come first
        while dies < mean.shape[1] and mean[layer, dies] > 0.0:
            dies += 1
        if mean[layer, 0] <= SMALL_MEAN:
            peak_tokens[layer] = _peak_of_counts(mean[layer, :dies], spread[layer, :dies])
        else:
            peak_tokens[layer] = _peak_of_amounts(mean[layer, :dies], spread[layer, :dies])
    return peak_tokens


@kernel(allocates=True)
def _peak_of_counts(mean: Floats, spread: Floats) -> float:
    """E[max] of independent integer counts of one layer's dies, in scalars for compiled code; mean,
    spread (variance / mean): f8[dies]."""
    dies = mean.size
    panjer_a, panjer_b = np.empty(dies), np.empty(dies)
    count_chance, chance_below = np.empty(dies), np.empty(dies)
    for die in range(dies):
        excess = spread[die] - 1.0
        if excess < -1e-9:
            trials = max(math.ceil(mean[die]) + 1.0, math.floor(0.5 - mean[die] / excess))
            excess = -mean[die] / trials
        if abs(excess) <= 1e-9:
            panjer_a[die], panjer_b[die] = 0.0, mean[die]
            count_chance[die] = math.exp(-mean[die])
        else:
            panjer_a[die] = excess / (1.0 + excess)
            panjer_b[die] = (mean[die] - excess) / (1.0 + excess)
            count_chance[die] = math.exp(-mean[die] * math.log(1.0 + excess) / excess)
        chance_below[die] = count_chance[die]
    expected_max = 0.0
    for count in range(1, MOST_COUNTS):
        chance_all_below = 1.0
        for die in range(dies):
            chance_all_below *= chance_below[die]
            if chance_all_below < 1e-10:
                break
        expected_max += 1.0 - chance_all_below
        if 1.0 - chance_all_below < 1e-7:
            break
        for die in range(dies):
            count_chance[die] *= max(0.0, panjer_a[die] + panjer_b[die] / count)
            chance_below[die] = min(1.0, chance_below[die] + count_chance[die])
    return expected_max


@kernel(allocates=True)
def _peak_of_amounts(mean: Floats, spread: Floats) -> float:
    """E[max] of independent large counts of one layer's dies, in scalars for compiled code; mean,
    spread (variance / mean): f8[dies]."""
    dies = mean.size
    sd, skew = np.empty(dies), np.empty(dies)
    lowest_count = highest_count = 0.0
    for die in range(dies):
        sd[die] = math.sqrt(mean[die] * spread[die])
        skew[die] = max(1e-6, (2.0 * spread[die] - 1.0) / max(sd[die], 1e-12))
        lowest_count = max(lowest_count, mean[die] - 3.5 * sd[die])
        highest_count = max(highest_count, mean[die] + (5.5 + 5.0 * skew[die]) * sd[die])
    step_width = (highest_count - lowest_count) / STEPS
    expected_max = lowest_count
    for step in range(STEPS):
        expected_max += (
            1.0 - _chance_all_below(lowest_count + (step + 0.5) * step_width, mean, sd, skew)
        ) * step_width
    return expected_max


@kernel
def _chance_all_below(count: float, mean: Floats, sd: Floats, skew: Floats) -> float:
    """P(no die's count is above `count`), by the counts' means, standard deviations `sd` and skews,
    f8[dies]; neighbouring dies with equal moments are computed once."""
    chance_all_below = chance_below = 1.0
    for die in range(sd.size):
        if die == 0 or mean[die] != mean[die - 1] or sd[die] != sd[die - 1]:
            sds_above = (count - mean[die]) / max(sd[die], 1e-300)
            gamma_ratio = 1.0 + 0.5 * skew[die] * sds_above
            chance_below = 0.0
            if sds_above > 12.0:
                chance_below = 1.0
            elif gamma_ratio > 0.0:
                normal_z = (
                    6.0 / skew[die] * (math.pow(gamma_ratio, 1.0 / 3.0) - 1.0) + skew[die] / 6.0
                )
                chance_below = 0.5 * math.erfc(-normal_z * ROOT_HALF)
        chance_all_below *= chance_below
        if chance_all_below < 1e-9:
            break
    return chance_all_below
