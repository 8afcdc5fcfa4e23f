"""Load over time by factors on an arrival rate: arrivals are mapped through the area under the
profile, so bursts and a trace's order stay. A factor holds for a cell of the grid. Arrivals: open
streams or a closed loop; a gap depends on the stream's key and the request's number only."""

import math

import numpy as np

from twin.facts import Facts
from twin.kernels.compiled import lazy_entry
from twin.kernels.rng import apply, exponential, gamma
from twin.scenario import Workload
from twin.workload.requests import WorkloadError

CELLS = 20_000  # of the grid over the horizon
NO_LOAD = "workload.profile leaves no load at all: raise its high factor or a piece's rate"


def rate_factors(
    workload: Workload, horizon_s: float, facts: Facts
) -> tuple[np.ndarray, np.ndarray]:
    """(edges of cells of time in seconds, f8[cells + 1]; factor on the rate in each, f8[cells])."""
    profile = workload.profile
    edges_s = np.linspace(0.0, horizon_s, CELLS + 1)
    changes_s = [change.at_s for change in profile.pieces]
    if profile.shape in ("step", "spike"):  # cells end where the factor changes
        changes_s += [profile.at_s, profile.at_s + profile.lasts_s]
    if inner_changes_s := [change_s for change_s in changes_s if change_s < horizon_s]:
        edges_s = np.union1d(edges_s, np.array(inner_changes_s))
    return edges_s, rate_factor_at(workload, 0.5 * (edges_s[1:] + edges_s[:-1]), horizon_s, facts)


def rate_factor_at(workload: Workload, t: np.ndarray, horizon_s: float, facts: Facts) -> np.ndarray:
    """Factor on the arrival rate at times `t` f8[n] of a run (s), f8[n]."""
    profile = workload.profile
    piece_factor = _piece_factors(workload, t, "rate")
    if profile.shape == "constant":
        return piece_factor
    if profile.shape == "ramp":
        rise_share = t / horizon_s
    elif profile.shape == "step":
        rise_share = (t >= profile.at_s).astype(np.float64)
    elif profile.shape == "spike":
        rise_share = ((t >= profile.at_s) & (t < profile.at_s + profile.lasts_s)).astype(np.float64)
    elif profile.shape == "day":  # quietest at its ends, busiest in its middle
        rise_share = 0.5 - 0.5 * apply(
            math.cos, 2.0 * np.pi * (t + profile.begins_s) / profile.period_s
        )
    else:
        day_name = profile.shape.removesuffix("_day")
        day_curve = np.array(facts[f"days.{day_name}"].value, dtype=np.float64)
        return _day_values(workload, t, day_curve) / day_curve.mean() * piece_factor
    return (profile.low + (profile.high - profile.low) * rise_share) * piece_factor


def length_factor_at(workload: Workload, t: np.ndarray, side: str, facts: Facts) -> np.ndarray:
    """The factor on lengths at times t f8[n] of a run (s), f8[n]; side: "input" or "output"."""
    profile = workload.profile
    piece_factor = _piece_factors(workload, t, side)
    if profile.lengths and profile.shape == "servegen_r1_day":
        day_curve = np.array(facts[f"days.servegen_r1_{side}"].value, dtype=np.float64)
        piece_factor = _day_values(workload, t, day_curve) * piece_factor
    return piece_factor


def _day_values(workload: Workload, t: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Values of `curve`, factors over one day, at times `t` f8[n] of the run (s), f8[n]."""
    profile = workload.profile
    share_of_day: np.ndarray = (t + profile.begins_s) / profile.period_s % 1.0
    return curve[(share_of_day * curve.size).astype(np.int64)]


def _piece_factors(workload: Workload, t: np.ndarray, name: str) -> np.ndarray:
    """Factor `name` ("rate", "input" or "output") of the profile's piece at times `t` f8[n] (s),
    f8[n]; 1 before the first piece."""
    begins_s = np.array([piece.at_s for piece in workload.profile.pieces])
    piece_factors = np.array([1.0, *(getattr(piece, name) for piece in workload.profile.pieces)])
    return piece_factors[np.searchsorted(begins_s, t, "right")]


def scaled_lengths(
    workload: Workload, arrival_s: np.ndarray, tokens: np.ndarray, side: str, facts: Facts
) -> np.ndarray:
    """Token counts i4[n] times the profile's factor at arrival_s f8[n]; side: "input", "output"."""
    length_factor = length_factor_at(workload, arrival_s, side, facts)
    return np.maximum(np.rint(tokens * length_factor), 1.0).astype(np.int32)


def mean_rate_factor(workload: Workload, horizon_s: float, facts: Facts) -> float:
    """Mean factor on the rate over the horizon: 1 for a constant rate."""
    if workload.profile.flat:
        return 1.0
    edges_s, rate_factor = rate_factors(workload, horizon_s, facts)
    return float((np.diff(edges_s) * rate_factor).sum() / horizon_s)


class Clock:
    """Maps arrival times of a stream with a constant rate (`own_s`) to times of the run (s), such
    that the rate follows the profile."""

    def __init__(self, workload: Workload, horizon_s: float, facts: Facts) -> None:
        """horizon_s: length of the run. Raises WorkloadError if the rate is always 0."""
        self.constant = workload.profile.flat
        self.own_horizon_s = horizon_s
        if self.constant:
            return
        self.edges_s, self.factor = rate_factors(workload, horizon_s, facts)
        self.own_s = np.concatenate(([0.0], np.cumsum(np.diff(self.edges_s) * self.factor)))
        self.own_horizon_s = float(self.own_s[-1])
        if self.own_horizon_s <= 0.0:
            raise WorkloadError(NO_LOAD)

    def seconds(self, own_s: np.ndarray) -> np.ndarray:
        """Times in the run (s), f8[n], of arrivals that a constant rate would put at the times
        `own_s` (s), f8[n] sorted; inf beyond the horizon."""
        if self.constant:
            return own_s
        is_inside = own_s < self.own_horizon_s
        # The last edge of its own time: a stretch without load has one own time only.
        cells = np.searchsorted(self.own_s, own_s[is_inside], "right") - 1
        run_s = np.full(own_s.size, np.inf)
        own_since_s = own_s[is_inside] - self.own_s[cells]
        run_s[is_inside] = self.edges_s[cells] + own_since_s / self.factor[cells]
        return run_s


POISSON, GAMMA = 0, 1


@lazy_entry
def _renewal_times(
    key: np.uint64, process: int, rate_per_s: float, shape: float, horizon_s: float,
    arrival_s: np.ndarray,
) -> int:  # fmt: skip
    """Fill `arrival_s` f8[room] (s) with arrivals before `horizon_s`; returns how many it holds.
    process: POISSON or GAMMA; shape: of the gamma distribution of gaps."""
    t_s = 0.0
    for arrival in range(arrival_s.size):
        if process == POISSON:
            t_s += exponential(key, arrival) / rate_per_s
        else:
            t_s += gamma(key, arrival, shape) / (shape * rate_per_s)
        if t_s >= horizon_s:
            return arrival
        arrival_s[arrival] = t_s
    return arrival_s.size


def renewal_arrivals(
    key: np.uint64, process: int, rate_per_s: float, cv: float, horizon_s: float, most_arrivals: int
) -> np.ndarray:
    """Arrival times f8[n] in [0, horizon_s), at most `most_arrivals`, of a renewal stream: POISSON
    or GAMMA (process), gaps of mean 1 / rate_per_s and coefficient of variation `cv`."""
    gamma_shape = 1.0 / (cv * cv)
    mean_count = rate_per_s * horizon_s
    array_size = mean_count + 6.0 * max(cv, 1.0) * math.sqrt(mean_count) + 16.0
    while True:
        arrival_s = np.empty(int(min(array_size, most_arrivals)))
        arrival_count = _renewal_times(key, process, rate_per_s, gamma_shape, horizon_s, arrival_s)
        if arrival_count < arrival_s.size or arrival_count == most_arrivals:
            return arrival_s[:arrival_count]
        array_size *= 2.0  # seldom: the same draws again, into more room


def uniform_arrivals(rate_per_s: float, horizon_s: float, most_arrivals: int) -> np.ndarray:
    """Arrival times f8[n] in [0, horizon_s), evenly spaced from 0 on, at most `most_arrivals`."""
    arrival_count = min(math.ceil(horizon_s * rate_per_s), most_arrivals)
    arrival_s: np.ndarray = np.arange(arrival_count) / rate_per_s
    return arrival_s[arrival_s < horizon_s]


def closed_loop_arrivals(concurrency: int, count: int, ramp_s: float = 0.0) -> np.ndarray:
    """Arrival times f8[count]: 0 for the first `concurrency` requests, +inf for the rest, and for
    all with a ramp. The engine replaces +inf when a client begins or its previous request ends."""
    arrival_s = np.full(count, math.inf)
    if ramp_s <= 0.0:
        arrival_s[:concurrency] = 0.0
    return arrival_s


def first_turn_times_s(concurrency: int, ramp_s: float) -> np.ndarray:
    """Times (s) of clients' first turns, f8[concurrency], evenly over a ramp; f8[0] without one."""
    ramped_clients = concurrency if ramp_s > 0.0 else 0
    return np.asarray(np.arange(ramped_clients) * (ramp_s / max(ramped_clients, 1)))
