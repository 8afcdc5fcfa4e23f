"""Who gets how much of a shared link: max-min fairness by progressive filling.

All flows grow together until a link is full; what a flow's weight and bound are is the caller's
business. Rates have the unit of the capacities: this module knows no dies, planes or seconds."""

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
    start: INTS, end: INTS, links: INDICES, parts: FLOATS, link_start: INTS, link_end: INTS,
    owners: INDICES, owner_parts: FLOATS, most: FLOATS, full: INDICES, count: int, load: FLOATS,
    full_at: FLOATS, outdated: FLAGS, stopped: FLAGS, level: FLOATS,
) -> None:  # fmt: skip
    """Bring `level` f8[flows] down to the max-min fair levels of flows that share links.

    When called, `level` holds `most`, the bound of each flow. A flow at level x takes x times its
    part of each of its links; a link's capacity is 1. If a flow's parts are what it takes at the
    rate that it has without other flows, its level is the share of that rate that it gets.

    Flow f crosses links[start[f]:end[f]], at least those in `full`. Link l is crossed by
    owners[link_start[l]:link_end[l]], with the parts `owner_parts`. full[:count]: links that may be
    overloaded, in any order (scratch). load f8[links]: for these the sum of parts times most,
    brought down to what is carried. Scratch: full_at, outdated (at first 1), stopped (0)."""
    while True:
        lowest_level, lowest_link, open_count = np.inf, -1, 0
        for position in range(count):
            link = full[position]
            if load[link] <= NO_CRUMB:
                continue
            full[open_count] = link
            open_count += 1
            # What stops can only raise the level at which a link is full.
            if outdated[link] and full_at[link] * WELL_BELOW <= lowest_level:
                full_at[link] = _level_when_full(
                    link_start[link], link_end[link], owners, owner_parts, most, level, stopped
                )
                outdated[link] = 0
            link_level = full_at[link]
            if link_level < lowest_level or (link_level == lowest_level and link < lowest_link):
                lowest_level, lowest_link = link_level, link
        if lowest_link < 0:
            return
        count = open_count
        for position in range(link_start[lowest_link], link_end[lowest_link]):
            flow = owners[position]
            if stopped[flow]:
                continue
            stopped[flow] = 1
            for crossing in range(start[flow], end[flow]):
                outdated[links[crossing]] = 1
                if level[flow] > lowest_level:
                    load[links[crossing]] -= parts[crossing] * (level[flow] - lowest_level)
            level[flow] = min(level[flow], lowest_level)
        load[lowest_link] = 1.0  # no crumb of rounding keeps it overloaded


@kernel
def _level_when_full(
    first: int, end: int, owners: INDICES, owner_parts: FLOATS, most: FLOATS, level: FLOATS,
    stopped: FLAGS,
) -> float:  # fmt: skip
    """Level at which a link of capacity 1 is full. It is crossed by the flows owners[first:end],
    each of which takes its `owner_parts` times its level. A flow's level is at most its bound
    `most`; stopped flows stay at their `level`."""
    level_now = 0.0
    while True:
        capacity_left, rising_parts, next_bound = 1.0, 0.0, np.inf
        for position in range(first, end):
            flow, flow_part = owners[position], owner_parts[position]
            if stopped[flow]:
                capacity_left -= flow_part * level[flow]
            elif most[flow] <= level_now:
                capacity_left -= flow_part * most[flow]
            else:
                rising_parts += flow_part
                next_bound = min(next_bound, most[flow])
        if rising_parts <= 0.0:
            return level_now
        new_level = max(0.0, capacity_left) / rising_parts
        if new_level <= level_now * NO_CRUMB or next_bound >= new_level:
            return new_level
        level_now = new_level
