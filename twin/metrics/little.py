"""Little's law: requests inside, by the engine's counters and by the sum of stays, must agree:
exactly in samples, in seconds as well as the samples allow."""

from __future__ import annotations

import numpy as np


def stays_s(arrival_s: np.ndarray, end_s: np.ndarray, horizon_s: float) -> float:
    """Sum over requests of the seconds inside, up to the horizon; NaN end: still inside."""
    end = np.where(np.isnan(end_s), horizon_s, np.minimum(end_s, horizon_s))
    return float((end - arrival_s).sum())


def gap(sampled_s: float, stayed_s: float) -> float:
    """Signed relative difference of the two, 0 when no request came."""
    return (sampled_s - stayed_s) / stayed_s if stayed_s > 0 else 0.0


def samples_of_stays(
    begin_s: np.ndarray, end_s: np.ndarray, sampled_at_s: np.ndarray
) -> tuple[int, int]:
    """Fewest and most samples that stays [begin, end) account for.

    sampled_at_s rises evenly, but for the last, which may come early. The two differ by the stays
    that end exactly when a sample is taken, which may count or not. A NaN end is beyond every
    sample.

    >>> samples_of_stays(np.array([0.5, 1.0]), np.array([2.0, np.nan]), np.array([1.0, 2.0, 3.0]))
    (4, 5)
    """
    end = np.where(np.isnan(end_s), np.inf, end_s)
    before, last_sample = _earlier(sampled_at_s, begin_s), _earlier(sampled_at_s, end)
    sampled = last_sample[last_sample < sampled_at_s.size]
    at_end = int((sampled_at_s[sampled] == end[last_sample < sampled_at_s.size]).sum())
    fewest = int(last_sample.sum()) - int(before.sum())
    return fewest, fewest + at_end


def _earlier(sampled_at_s: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """Number of samples before each time, from their distance (corrected by one), because a search
    would be slow."""
    count = sampled_at_s.size
    if count < 2:
        return np.searchsorted(sampled_at_s, times_s, "left")
    step_s = sampled_at_s[1] - sampled_at_s[0]
    index = np.clip((times_s - sampled_at_s[0]) / step_s + 1.0, 0, count).astype(np.int64)
    index -= (index > 0) & (sampled_at_s[np.maximum(index - 1, 0)] >= times_s)
    index += (index < count) & (sampled_at_s[np.minimum(index, count - 1)] < times_s)
    return index
