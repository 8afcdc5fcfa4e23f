"""Goodput: which requests met the SLO."""

from __future__ import annotations

import numpy as np


def met_slo(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    ttft_limit_s: float | np.ndarray,
    tpot_limit_s: float | np.ndarray,
) -> np.ndarray:
    """Whether each finished request kept both limits; an answer of one token has no TPOT to miss.

    >>> met_slo(np.array([0.5, 2.0]), np.array([0.04, 0.04]), 1.0, 0.05).tolist()
    [True, False]
    """
    in_time = ttft_s <= ttft_limit_s
    fluent = np.isnan(tpot_s) | (tpot_s <= tpot_limit_s)
    result: np.ndarray = in_time & fluent
    return result
