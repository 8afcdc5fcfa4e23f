"""Goodput and rates: which requests met the SLO, and amounts over the steady state."""

from __future__ import annotations

import numpy as np


def met_slo(
    ttft_s: np.ndarray, tpot_s: np.ndarray, ttft_limit_s: float | np.ndarray,
    tpot_limit_s: float | np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Whether each finished request met both limits; an answer of one token has no TPOT to miss.

    >>> met_slo(np.array([0.5, 2.0]), np.array([0.04, 0.04]), 1.0, 0.05).tolist()
    [True, False]
    """
    in_time = ttft_s <= ttft_limit_s
    tpot_met = np.isnan(tpot_s) | (tpot_s <= tpot_limit_s)
    result: np.ndarray = in_time & tpot_met
    return result


def per_second(amount: float, seconds: float, npus: float = 1) -> float | None:
    """Amount per second and NPU; None without NPUs or time."""
    return amount / seconds / npus if seconds > 0 and npus > 0 else None


def quotient(above: float, below: float) -> float | None:
    """above / below; None if the denominator is 0."""
    return above / below if below > 0 else None
