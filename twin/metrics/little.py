"""Little's law, two ways: requests inside sampled over time, and the sum of their stays.

The two must agree on every run. The samples come from the engine's event counters, the stays from
the stamps of the requests, so a request that is counted in and never stamped out shows up here.
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
