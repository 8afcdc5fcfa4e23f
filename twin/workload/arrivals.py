"""When requests arrive: open streams of a rate and burstiness, or clients in a closed loop. A gap
depends on the stream's key and the request's number only."""

from __future__ import annotations

import math

import numpy as np

from twin.kernels.compiled import late
from twin.kernels.rng import exponential, gamma

POISSON, GAMMA = 0, 1


@late
def _renewal_times(
    key: np.uint64, process: int, rate_per_s: float, shape: float, horizon_s: float,
    arrival_s: np.ndarray,
) -> int:  # fmt: skip
    """Fill `arrival_s` f8[room] (s) with arrivals before `horizon_s`; returns how many fit."""
    t = 0.0
    for i in range(arrival_s.size):
        if process == POISSON:
            t += exponential(key, i) / rate_per_s
        else:
            t += gamma(key, i, shape) / (shape * rate_per_s)
        if t >= horizon_s:
            return i
        arrival_s[i] = t
    return arrival_s.size


def renewal_arrivals(
    key: np.uint64, process: int, rate_per_s: float, cv: float, horizon_s: float, most: int
) -> np.ndarray:
    """Arrival times f8[n] in [0, horizon_s) of a Poisson or Gamma renewal stream, at most `most`,
    with gaps of mean 1/rate and coefficient of variation `cv` (1 for Poisson)."""
    shape = 1.0 / (cv * cv)
    mean = rate_per_s * horizon_s
    room = mean + 6.0 * max(cv, 1.0) * math.sqrt(mean) + 16.0
    while True:
        arrival_s = np.empty(int(min(room, most)))
        n = _renewal_times(key, process, rate_per_s, shape, horizon_s, arrival_s)
        if n < arrival_s.size or n == most:
            return arrival_s[:n]
        room *= 2.0  # seldom: the same draws again, into more room


def uniform_arrivals(rate_per_s: float, horizon_s: float, most: int) -> np.ndarray:
    """Arrival times f8[n] in [0, horizon_s), evenly spaced from 0 on, at most `most`."""
    n = min(math.ceil(horizon_s * rate_per_s), most)
    arrival_s: np.ndarray = np.arange(n) / rate_per_s
    return arrival_s[arrival_s < horizon_s]


def closed_loop_arrivals(concurrency: int, count: int, ramp_s: float = 0.0) -> np.ndarray:
    """Arrival times f8[count]: 0 for the first `concurrency` requests, +inf for the rest, and for
    all with a ramp; the engine replaces +inf when a client begins or its request ends."""
    arrival_s = np.full(count, math.inf)
    if ramp_s <= 0.0:
        arrival_s[:concurrency] = 0.0
    return arrival_s


def first_turns(concurrency: int, ramp_s: float) -> np.ndarray:
    """When clients begin, f8[concurrency], evenly over a ramp; f8[0] without one."""
    clients = concurrency if ramp_s > 0.0 else 0
    begins: np.ndarray = np.arange(clients) * (ramp_s / max(clients, 1))
    return begins
