"""Steadiness by regression on time; errors of slopes allow for correlated windows (first-order
autoregression; Wilks, Statistical Methods in the Atmospheric Sciences, 2011, 5.2.4). A certain and
large slope is an overload if queues grow by a share of arrivals, else filling or emptying."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import polars as pl

from twin.scenario import Scenario, is_elastic

Steadiness = Literal["steady", "filling", "overloaded"]

# Notes of runs whose figures are no steady state's.
UNSTEADY = {
    "overloaded": "Overloaded: queues grow to the end, so latencies depend on the horizon.",
    "filling": "Still filling: requests inside drift to the end, so figures depend on the horizon.",
}
CERTAIN = 3.0  # standard errors of a slope: a steady run exceeds it once in some hundred
EXCESS = 0.01  # of the arrivals, that queues keep: below it a queue that fluctuates looks like it
MOVED = 0.03  # of the population, over what is counted
FEWEST = 8  # windows: fewer say nothing
QUEUES = ("front_end_queue", "router_queue", "prefill_queue")
RUNNING = ("prefill_running", "transfer_running", "decode_running")


def stationary(s: Scenario) -> bool:
    """Whether load and machine are constant, so that a steady state exists."""
    flat = s.workload.profile.flat and s.workload.arrivals != "trace"
    return flat and not s.workload.prompts and not s.faults and not is_elastic(s)


def steadiness(s: Scenario, windows: pl.DataFrame) -> Steadiness | None:
    """Steadiness of the windows after the warm-up; None: none is expected, or too few windows."""
    counted_windows = windows[int((windows["t_s"].to_numpy() < s.warmup_s).sum()) :]
    if not stationary(s) or counted_windows.height < FEWEST:
        return None
    closed = (
        s.workload.arrivals == "closed_loop"
    )  # its clients wait, so that no queue outgrows them
    t_s = counted_windows["t_s"].to_numpy()
    lasts_s = float(t_s[-1] - t_s[0])
    queued, running = (
        np.sum([counted_windows[name].to_numpy() for name in names], axis=0)
        for names in (QUEUES, RUNNING)
    )
    arrived = float(counted_windows["arrived"].sum())
    came_per_s = arrived / (lasts_s + float(counted_windows["window_s"][0]))
    growth, error = slope(t_s, queued)
    chance = math.sqrt(2.0 * arrived) / lasts_s  # of arrivals and of answers, both as of Poisson
    if growth > max(EXCESS * came_per_s, CERTAIN * min(error, chance)) and not closed:
        return "overloaded"
    drift, error = slope(t_s, running)
    mean = float(np.cumsum(running)[-1]) / running.size
    if abs(drift) > CERTAIN * error and abs(drift) * lasts_s > MOVED * max(mean, 1.0):
        return "filling"
    return "steady"


def slope(t: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """(slope of a straight line through values f8[n] at even times t, its standard error)."""
    n = t.size
    x = t - float(np.cumsum(t)[-1]) / n
    y = values - float(np.cumsum(values)[-1]) / n
    spread = float(np.cumsum(x * x)[-1])
    fitted = float(np.cumsum(x * y)[-1]) / spread
    residuals = y - fitted * x
    power = float(np.cumsum(residuals * residuals)[-1])
    if power <= 0.0:
        return fitted, 0.0
    correlation = float(np.cumsum(residuals[1:] * residuals[:-1])[-1]) / power
    correlation = min(max(correlation, 0.0), 1.0 - 2.0 / n)
    independent = n * (1.0 - correlation) / (1.0 + correlation)
    return fitted, math.sqrt(power / max(independent - 2.0, 1.0) / spread)
