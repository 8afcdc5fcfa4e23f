"""Steadiness by regression on time; errors of slopes allow for correlated windows (first-order
autoregression; Wilks, Statistical Methods in the Atmospheric Sciences, 2011, 5.2.4). A certain and
large slope is an overload if queues grow by a share of arrivals, else filling or emptying. Little's
law: requests inside, by the engine's counters and by the sum of stays, must agree: exactly in
samples, in seconds as well as the samples allow."""

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


def is_stationary(s: Scenario) -> bool:
    """Whether load and machine are constant, so that a steady state exists."""
    is_flat = s.workload.profile.flat and s.workload.arrivals != "trace"
    return is_flat and not s.workload.prompts and not s.faults and not is_elastic(s)


def steadiness(s: Scenario, windows: pl.DataFrame) -> Steadiness | None:
    """Steadiness of the windows after the warm-up; None: none is expected, or too few windows."""
    counted_windows = windows[int((windows["t_s"].to_numpy() < s.warmup_s).sum()) :]
    if not is_stationary(s) or counted_windows.height < FEWEST:
        return None
    is_closed = s.workload.arrivals == "closed_loop"  # clients wait, so that no queue outgrows them
    begin_s = counted_windows["t_s"].to_numpy()
    span_s = float(begin_s[-1] - begin_s[0])
    queued_requests, running_requests = (
        np.sum([counted_windows[name].to_numpy() for name in names], axis=0)
        for names in (QUEUES, RUNNING)
    )
    arrived_requests = float(counted_windows["arrived"].sum())
    arrivals_per_s = arrived_requests / (span_s + float(counted_windows["window_s"][0]))
    growth_per_s, error_per_s = slope_and_error(begin_s, queued_requests)
    # At most that of growth by chance, where arrivals and answers are both Poisson.
    error_per_s = min(error_per_s, math.sqrt(2.0 * arrived_requests) / span_s)
    if growth_per_s > max(EXCESS * arrivals_per_s, CERTAIN * error_per_s) and not is_closed:
        return "overloaded"
    drift_per_s, error_per_s = slope_and_error(begin_s, running_requests)
    mean_running = float(np.cumsum(running_requests)[-1]) / running_requests.size
    if not is_closed:
        # By chance alone: the autocovariance of the count in an M/D/inf queue falls linearly over
        # one stay (Takacs, Introduction to the Theory of Queues, 1962), and a run has few stays.
        chance_drift = mean_running * math.sqrt(12.0 / max(arrived_requests, 1.0))
        error_per_s = max(error_per_s, chance_drift / span_s)
    is_large_drift = abs(drift_per_s) * span_s > MOVED * max(mean_running, 1.0)
    return "filling" if is_large_drift and abs(drift_per_s) > CERTAIN * error_per_s else "steady"


def slope_and_error(times: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """(slope of a line through values f8[n] at evenly spaced times f8[n], its standard error)."""
    point_count = times.size
    centred_times = times - float(np.cumsum(times)[-1]) / point_count
    centred_values = values - float(np.cumsum(values)[-1]) / point_count
    time_square_sum = float(np.cumsum(centred_times * centred_times)[-1])
    slope_per_s = float(np.cumsum(centred_times * centred_values)[-1]) / time_square_sum
    residuals = centred_values - slope_per_s * centred_times
    error_square_sum = float(np.cumsum(residuals * residuals)[-1])
    if error_square_sum <= 0.0:
        return slope_per_s, 0.0
    autocorrelation = float(np.cumsum(residuals[1:] * residuals[:-1])[-1]) / error_square_sum
    autocorrelation = min(max(autocorrelation, 0.0), 1.0 - 2.0 / point_count)
    independent_points = point_count * (1.0 - autocorrelation) / (1.0 + autocorrelation)
    residual_variance = error_square_sum / max(independent_points - 2.0, 1.0)
    return slope_per_s, math.sqrt(residual_variance / time_square_sum)


def stays_s(arrival_s: np.ndarray, end_s: np.ndarray, horizon_s: float) -> float:
    """Sum of the seconds that requests spend inside up to the horizon. A NaN in end_s f8[n] means
    that the request is still inside."""
    clipped_end_s = np.where(np.isnan(end_s), horizon_s, np.minimum(end_s, horizon_s))
    return float((clipped_end_s - arrival_s).sum())


def relative_gap(sampled_s: float, stayed_s: float) -> float:
    """(Request-seconds found by samples - by stays) / those by stays; 0 without requests."""
    return (sampled_s - stayed_s) / stayed_s if stayed_s > 0 else 0.0


def samples_of_stays(
    begin_s: np.ndarray, end_s: np.ndarray, sampled_at_s: np.ndarray
) -> tuple[int, int]:
    """(fewest, most) counts of requests that samples can find in total if requests stay inside
    during [begin, end). The two numbers differ by the stays that end exactly at a sample.

    sampled_at_s rises evenly; only the last sample may come early. A NaN end is after every sample.

    >>> samples_of_stays(np.array([0.5, 1.0]), np.array([2.0, np.nan]), np.array([1.0, 2.0, 3.0]))
    (4, 5)"""
    stay_end_s = np.where(np.isnan(end_s), np.inf, end_s)
    samples_before, samples_until = (
        np.searchsorted(sampled_at_s, time_s) for time_s in (begin_s, stay_end_s)
    )
    ends_early = samples_until < sampled_at_s.size  # not after every sample
    first_sample_after_s = sampled_at_s[samples_until[ends_early]]
    ends_at_sample = int((first_sample_after_s == stay_end_s[ends_early]).sum())
    fewest_found = int(samples_until.sum()) - int(samples_before.sum())
    return fewest_found, fewest_found + ends_at_sample
