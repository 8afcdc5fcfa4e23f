"""Max-min fairness by plain progressive filling: the oracle of twin/hardware/sharing.py."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twin.hardware.sharing import FLOATS, INTS


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
            raise ValueError(f"flow {f} crosses no link and has no bound: its rate is unlimited")
        for link, weight in flow.links.items():
            if link not in index:
                raise ValueError(f"flow {f} crosses {link!r}, which has no capacity given")
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
