"""Little's law, two ways: requests inside sampled over time, and the sum of their stays.

The two must agree on every run. The samples come from the engine's event counters, the stays from
the stamps of the requests, so a request that is counted in and never stamped out shows up here.
Counted in samples the law is exact; in seconds it is as fine as the sampling.
"""

from __future__ import annotations

import numpy as np


def stays_s(arrival_s: np.ndarray, end_s: np.ndarray, horizon_s: float) -> float:
    """Sum over requests of the time inside, up to the horizon; NaN end: still inside."""
    end = np.where(np.isnan(end_s), horizon_s, np.minimum(end_s, horizon_s))
    return float((end - arrival_s).sum())


def gap(sampled_s: float, stayed_s: float) -> float:
    """Signed relative difference of the two, 0 when nobody came."""
    return (sampled_s - stayed_s) / stayed_s if stayed_s > 0 else 0.0


def samples_of_stays(
    begin_s: np.ndarray, end_s: np.ndarray, sampled_at_s: np.ndarray
) -> tuple[int, int]:
    """Fewest and most samples that stays [begin, end) account for; sampled_at_s rises.

    They differ by the stays that end exactly when a sample is taken, which may count or not. A
    NaN end is beyond every sample.

    >>> samples_of_stays(np.array([0.5, 1.0]), np.array([2.0, np.nan]), np.array([1.0, 2.0, 3.0]))
    (4, 5)
    """
    before = int(np.searchsorted(sampled_at_s, begin_s, "left").sum())
    end = np.where(np.isnan(end_s), np.inf, end_s)
    fewest = int(np.searchsorted(sampled_at_s, end, "left").sum())
    most = int(np.searchsorted(sampled_at_s, end, "right").sum())
    return fewest - before, most - before
