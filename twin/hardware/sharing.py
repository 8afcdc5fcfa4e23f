"""Who gets how much of a shared link: max-min fairness by progressive filling.

All flows grow together until a link is full; what a flow's weight and bound are is the caller's
business. This module knows nothing of dies, planes or seconds: rates have the unit of the
capacities."""

import numpy as np

from twin.kernels.compiled import kernel

NO_CRUMB = 1.0 + 1e-12  # of its capacity: a link with more on it is overloaded
WELL_BELOW = 1.0 - 1e-9  # of a level: further than rounding takes it

INTS = np.ndarray[tuple[int], np.dtype[np.int64]]
INDICES = np.ndarray[tuple[int], np.dtype[np.int32]]
FLOATS = np.ndarray[tuple[int], np.dtype[np.float64]]
FLAGS = np.ndarray[tuple[int], np.dtype[np.int8]]


@kernel
def max_min_levels(
    start: INTS,
    end: INTS,
    links: INDICES,
    parts: FLOATS,
    link_start: INTS,
    link_end: INTS,
    owners: INDICES,
    owner_parts: FLOATS,
    most: FLOATS,
    full: INDICES,
    count: int,
    load: FLOATS,
    full_at: FLOATS,
    outdated: FLAGS,
    stopped: FLAGS,
    level: FLOATS,
) -> None:
    """Bring `level` f8[flows] down to the max-min fair levels of flows that share links.

    When called, `level` holds `most`, the bound of each flow. A flow at level x takes x times its
    part of each of its links; a link's capacity is 1. If parts are those of the rate that a flow
    has alone, a level is the share of that rate that is left.

    Flow f crosses links[start[f]:end[f]], at least those in `full`. Link l is crossed by
    owners[link_start[l]:link_end[l]], with the parts `owner_parts`. full[:count]: links that may be
    overloaded, in any order (scratch). load f8[links]: for these the sum of parts times most,
    brought down to what is carried. Scratch: full_at, outdated (1 when called), stopped (0 when
    called)."""
    while True:
        lowest, lowest_link, unsettled = np.inf, -1, 0
        for j in range(count):
            i = full[j]
            if load[i] <= NO_CRUMB:
                continue
            full[unsettled] = i
            unsettled += 1
            # What stops can only raise the level at which a link is full.
            if outdated[i] and full_at[i] * WELL_BELOW <= lowest:
                full_at[i] = _full_at(
                    link_start[i], link_end[i], owners, owner_parts, most, level, stopped
                )
                outdated[i] = 0
            if full_at[i] < lowest or (full_at[i] == lowest and i < lowest_link):
                lowest, lowest_link = full_at[i], i
        if lowest_link < 0:
            return
        count = unsettled
        for j in range(link_start[lowest_link], link_end[lowest_link]):
            f = owners[j]
            if stopped[f]:
                continue
            stopped[f] = 1
            for k in range(start[f], end[f]):
                outdated[links[k]] = 1
                if level[f] > lowest:
                    load[links[k]] -= parts[k] * (level[f] - lowest)
            level[f] = min(level[f], lowest)
        load[lowest_link] = 1.0  # no crumb of rounding keeps it overloaded


@kernel
def _full_at(
    first: int,
    end: int,
    owners: INDICES,
    owner_parts: FLOATS,
    most: FLOATS,
    level: FLOATS,
    stopped: FLAGS,
) -> float:
    """Level at which a link with these owners is full; flows with lower bounds stay at these."""
    x = 0.0
    while True:
        free, growing, next_bound = 1.0, 0.0, np.inf
        for j in range(first, end):
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
