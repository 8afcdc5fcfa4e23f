"""From a trace to the length tables of data/workloads: quantiles, and log-normals where only a
few figures are published.

Tables hold figures, never rows of a trace. A fit is reproducible: tests fit again where the
traces are at hand and compare with what is committed.
"""

import math
from statistics import NormalDist

import numpy as np

LEVELS = (
    0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
    0.55, 0.6, 0.65, 0.7, 0.75, 0.775, 0.8, 0.825, 0.85, 0.875, 0.9, 0.9125, 0.925, 0.9375, 0.95,
    0.96, 0.97, 0.98, 0.985, 0.99, 0.9925, 0.995, 0.9975, 0.999, 0.9995, 1.0,
)  # fmt: skip


def quantile_table(tokens: np.ndarray) -> list[int]:
    """Token counts at LEVELS of a sample i8[n] (numpy's linear percentiles, rounded)."""
    return [max(1, round(float(q))) for q in np.percentile(tokens, [100 * p for p in LEVELS])]


def lognormal_table(median: float, sigma: float, low: int, high: int) -> list[int]:
    """Token counts at LEVELS of a log-normal, cut to [low, high].

    median in tokens; sigma of the logarithm. Its mean before the cut is median e^(sigma^2 / 2).
    """
    normal = NormalDist()
    table = [low]
    for p in LEVELS[1:-1]:
        table.append(round(min(max(median * math.exp(sigma * normal.inv_cdf(p)), low), high)))
    return [*table, high]
