"""Who gets how much of a shared link: max-min fairness by progressive filling.

All flows grow together until a link is full; what a flow's weight and bound are is the caller's
business. This module knows nothing of dies, planes or seconds: rates have the unit of the
capacities.
"""

from __future__ import annotations

import numpy as np

from twin.compiled import kernel

INTS = np.ndarray[tuple[int], np.dtype[np.int64]]
FLOATS = np.ndarray[tuple[int], np.dtype[np.float64]]


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
    flow is held below its bound. Only overloaded links cost.
    """
    for f in range(most.size):  # numba's `level[:] = most` takes seconds to compile
        level[f] = most[f]
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
