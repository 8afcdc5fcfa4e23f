"""Who gets how much of a shared link: max-min fairness by progressive filling.

All flows grow together until a link is full; what a flow's weight and bound are is the caller's
business. This module knows nothing of dies, planes or seconds: rates have the unit of the
capacities.
"""

from __future__ import annotations

import numpy as np

from twin.kernels.compiled import kernel

NO_CRUMB = 1.0 + 1e-12  # of its capacity: a link with more on it is overloaded
WELL_BELOW = 1.0 - 1e-9  # of a level: further than rounding takes it

INTS = np.ndarray[tuple[int], np.dtype[np.int64]]
FLOATS = np.ndarray[tuple[int], np.dtype[np.float64]]


@kernel(allocates=True)
def max_min_levels(
    start: INTS,
    links: INTS,
    parts: FLOATS,
    link_start: INTS,
    owners: INTS,
    owner_parts: FLOATS,
    most: FLOATS,
    load: FLOATS,
    level: FLOATS,
) -> bool:
    """Max-min fair levels of flows that mostly do not meet: fills level f8[flows].

    A flow at level x takes `parts` times x of each of its links, whose capacity is 1: with parts
    for the rate a flow has alone, a level is the share of it that is left. Flow f crosses
    links[start[f]:start[f + 1]]; link l is crossed by owners[link_start[l]:link_start[l + 1]],
    whose parts are `owner_parts`. most f8[flows]: bounds, 0 for a flow that is not there;
    load f8[links]: sum of parts times most, brought down to what is carried. Returns whether any
    flow is held below its bound. Only overloaded links cost.
    """
    for f in range(most.size):  # numba's `level[:] = most` takes seconds to compile
        level[f] = most[f]
    overloaded = np.zeros(load.size, np.int64)
    count = 0
    for i in range(load.size):
        overloaded[count] = i
        count += load[i] > NO_CRUMB
    if count == 0:
        return False
    stopped = np.zeros(most.size, np.bool_)
    # The level at which each link is full, as last computed: what stops since can only raise it.
    full_at, outdated = np.zeros(load.size), np.ones(load.size, np.bool_)
    while True:
        lowest, at, still = np.inf, -1, 0
        for j in range(count):
            i = overloaded[j]
            if load[i] <= NO_CRUMB:
                continue
            overloaded[still] = i
            still += 1
            if outdated[i] and full_at[i] * WELL_BELOW <= lowest:
                full_at[i] = _full_at(i, link_start, owners, owner_parts, most, level, stopped)
                outdated[i] = False
            if full_at[i] < lowest:
                lowest, at = full_at[i], i
        if at < 0:
            return True
        count = still
        for j in range(link_start[at], link_start[at + 1]):
            f = owners[j]
            if stopped[f]:
                continue
            stopped[f] = True
            for k in range(start[f], start[f + 1]):
                outdated[links[k]] = True
                if level[f] > lowest:
                    load[links[k]] -= parts[k] * (level[f] - lowest)
            level[f] = min(level[f], lowest)
        load[at] = 1.0  # no crumb of rounding keeps it overloaded


@kernel
def _full_at(
    link: int,
    link_start: INTS,
    owners: INTS,
    owner_parts: FLOATS,
    most: FLOATS,
    level: FLOATS,
    stopped: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> float:
    """The level at which a link is just full: flows with lower bounds stay at these."""
    x = 0.0
    while True:
        free, growing, next_bound = 1.0, 0.0, np.inf
        for j in range(link_start[link], link_start[link + 1]):
            f, part = owners[j], owner_parts[j]
            if stopped[f]:
                free -= part * level[f]
            elif most[f] <= x:
                free -= part * most[f]
            else:
                growing += part
                next_bound = min(next_bound, most[f])
        if growing <= 0.0:
            return x
        higher = max(0.0, free) / growing
        if higher <= x * NO_CRUMB or next_bound >= higher:
            return higher
        x = higher
