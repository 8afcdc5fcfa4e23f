"""Who gets how much of a shared link: max-min fairness by progressive filling.

All flows grow together until one is full; what a flow's weight and bound are is the caller's
business. This module knows nothing of dies, planes or seconds: rates have the unit of the
capacities.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from twin.compiled import kernel
from twin.hardware.chip import HardwareError

INTS = np.ndarray[tuple[int], np.dtype[np.int64]]
FLOATS = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Flow:
    """One flow: what a unit of its rate takes from each link, its penalty and its own bound.

    Two flows on one link get rates in inverse proportion to their penalties.
    """

    links: Mapping[Hashable, float]
    penalty: float = 1.0
    bound: float = math.inf


def max_min(flows: Sequence[Flow], capacities: Mapping[Hashable, float]) -> FLOATS:
    """Max-min fair rate of each flow, in the order given (f8[flows]).

    Raises HardwareError for a link without capacity figure and for a flow nothing limits.
    """
    index = {link: i for i, link in enumerate(capacities)}
    start = np.zeros(len(flows) + 1, np.int64)
    links: list[int] = []
    takes: list[float] = []
    for f, flow in enumerate(flows):
        if not flow.links and math.isinf(flow.bound):
            raise HardwareError(f"flow {f} crosses no link and has no bound: its rate is unlimited")
        for link, weight in flow.links.items():
            if link not in index:
                raise HardwareError(f"flow {f} crosses {link!r}, which has no capacity given")
            links.append(index[link])
            takes.append(weight)
        start[f + 1] = len(links)
    return max_min_rates(
        start,
        np.array(links, np.int64),
        np.array(takes, np.float64),
        np.array([f.penalty for f in flows], np.float64),
        np.array([f.bound for f in flows], np.float64),
        np.array(list(capacities.values()), np.float64),
    )


@njit(cache=True)
def max_min_rates(
    start: INTS, links: INTS, takes: FLOATS, penalty: FLOATS, bound: FLOATS, capacity: FLOATS
) -> FLOATS:
    """Progressive filling over flows in compressed rows; returns the rates, f8[flows].

    Flow f crosses links[start[f]:start[f + 1]] and takes `takes` of each per unit of its rate.
    Level l means rate = l / penalty for every flow still growing. Each round finds the lowest
    level at which a link is full or a flow at its bound, and stops the flows concerned.
    """
    flows = penalty.size
    rates = np.zeros(flows)
    growing = np.ones(flows, np.bool_)
    left = flows
    while left > 0:
        used = np.zeros(capacity.size)
        slope = np.zeros(capacity.size)
        lowest = np.inf
        for f in range(flows):
            for k in range(start[f], start[f + 1]):
                if growing[f]:
                    slope[links[k]] += takes[k] / penalty[f]
                else:
                    used[links[k]] += takes[k] * rates[f]
            if growing[f] and bound[f] * penalty[f] < lowest:
                lowest = bound[f] * penalty[f]
        for i in range(capacity.size):
            if slope[i] > 0.0:
                level = max(0.0, capacity[i] - used[i]) / slope[i]
                lowest = min(lowest, level)
        if lowest == np.inf:  # only weightless crossings are left: nothing limits these flows
            for f in range(flows):
                if growing[f]:
                    rates[f] = np.inf
            return rates
        reach = lowest * (1.0 + 1e-12)
        for f in range(flows):
            if not growing[f]:
                continue
            stop = bound[f] * penalty[f] <= reach
            for k in range(start[f], start[f + 1]):
                i = links[k]
                if takes[k] > 0.0 and max(0.0, capacity[i] - used[i]) <= reach * slope[i]:
                    stop = True
            if stop:
                rates[f] = min(lowest / penalty[f], bound[f])
                growing[f] = False
                left -= 1
    return rates


@kernel(allocates=True)
def max_min_levels(
    start: INTS,
    links: INTS,
    parts: FLOATS,
    link_start: INTS,
    entries: INTS,
    owners: INTS,
    most: FLOATS,
    load: FLOATS,
    level: FLOATS,
) -> bool:
    """Max-min fair levels of flows that mostly do not meet: fills level f8[flows].

    A flow at level x takes `parts` times x of each of its links, whose capacity is 1: with parts
    for the rate a flow has alone, a level is the share of it that is left. Flow f crosses
    links[start[f]:start[f + 1]]; link l is crossed by owners[link_start[l]:link_start[l + 1]],
    whose parts are parts[entries[...]]. most f8[flows]: bounds, 0 for a flow that is not there;
    load f8[links]: sum of parts times most, brought down to what is carried. Returns whether any
    flow is held below its bound. Same answer as `max_min_rates`, but only overloaded links cost.
    """
    level[:] = most
    stopped = np.zeros(most.size, np.bool_)
    held = False
    while True:
        lowest, at = np.inf, -1
        for i in range(load.size):
            if load[i] > 1.0 + 1e-12:
                x = _full_at(i, parts, link_start, entries, owners, most, level, stopped)
                if x < lowest:
                    lowest, at = x, i
        if at < 0:
            return held
        held = True
        for j in range(link_start[at], link_start[at + 1]):
            f = owners[j]
            if stopped[f]:
                continue
            stopped[f] = True
            if level[f] > lowest:
                for k in range(start[f], start[f + 1]):
                    load[links[k]] -= parts[k] * (level[f] - lowest)
                level[f] = lowest
        load[at] = 1.0  # no crumb of rounding keeps it overloaded


@kernel
def _full_at(
    link: int,
    parts: FLOATS,
    link_start: INTS,
    entries: INTS,
    owners: INTS,
    most: FLOATS,
    level: FLOATS,
    stopped: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> float:
    """The level at which a link is just full: flows with lower bounds stay at these."""
    x = 0.0
    while True:
        free, growing = 1.0, 0.0
        for j in range(link_start[link], link_start[link + 1]):
            f = owners[j]
            part = parts[entries[j]]
            if stopped[f]:
                free -= part * level[f]
            elif most[f] <= x:
                free -= part * most[f]
            else:
                growing += part
        if growing <= 0.0:
            return x
        higher = max(0.0, free) / growing
        if higher <= x * (1.0 + 1e-12):
            return higher
        lower_bound = False
        for j in range(link_start[link], link_start[link + 1]):
            f = owners[j]
            if not stopped[f] and x < most[f] < higher:
                lower_bound = True
        x = higher
        if not lower_bound:
            return x
