"""What flows get of the links that they share, found anew only where something began or ended.

What begins or ends is noted with the links that it touches. When links are shared, what was noted
joins or leaves the lists of flows that every link has, only touched links are summed anew, and only
the flows that meet what has changed, directly or through others, on overloaded links get new
levels: the rest of the machine costs nothing. Sums are over all flows of a link in order, so that
no rounding adds up and no answer depends on what happened elsewhere."""

import numpy as np

from twin.engine.contention.shared_links import Traffic
from twin.engine.lists import index_of, insert_sorted
from twin.hardware.sharing import NO_CRUMB, max_min_levels
from twin.kernels.compiled import kernel

NOTED, TOUCHED, MOVERS, FULL, GROUP_LINKS, GROUP_FLOWS = range(6)  # places in `counts`
ALL, NONE_OF_THEM = range(2)  # which exchanges there are


@kernel
def note_demand(flows: Traffic, f: int, demand: float) -> float:
    """Note the changed demand of flow f (share of its full rate) on its links; returns the highest
    load of these links, relative to capacity."""
    links, link_parts, link_loads, list_sizes = flows.links, flows.parts, flows.load, flows.counts
    old_demand = flows.most[f]
    demand_change = demand - old_demand
    highest_load = 0.0
    for crossing in range(flows.start[f], flows.end[f]):
        link = links[crossing]
        link_loads[link] += link_parts[crossing] * demand_change
        highest_load = max(highest_load, link_loads[link])
        if not flows.is_touched[link]:
            flows.is_touched[link] = 1
            flows.touched[list_sizes[TOUCHED]] = link
            list_sizes[TOUCHED] += 1
    if f >= flows.duty.size and (demand > 0.0) != (old_demand > 0.0):
        update_movers(flows, f, demand > 0.0)
    if not flows.is_noted[f]:
        flows.is_noted[f] = 1
        flows.noted[list_sizes[NOTED]] = f
        list_sizes[NOTED] += 1
    flows.most[f] = flows.level[f] = demand
    for view_index in range(flows.levels.shape[0]):
        flows.levels[view_index, f] = demand
    return highest_load


@kernel
def update_movers(flows: Traffic, f: int, begins: bool) -> None:
    """If flow f (no expert exchange) begins, add it to `movers`, the active flows; else remove
    it."""
    mover_count = flows.counts[MOVERS]
    if begins:
        insert_sorted(flows.movers, 0, mover_count, f)
        flows.counts[MOVERS] = mover_count + 1
        return
    for index in range(index_of(flows.movers, 0, f), mover_count - 1):
        flows.movers[index] = flows.movers[index + 1]
    flows.counts[MOVERS] = mover_count - 1


@kernel
def join_lists(flows: Traffic, f: int) -> None:
    """Add flow f to the list of active flows of each of its links."""
    listed_flows, listed_parts, link_end = flows.owners, flows.owner_parts, flows.link_end
    flows.is_listed[f] = 1
    for crossing in range(flows.start[f], flows.end[f]):
        link = flows.links[crossing]
        list_end = link_end[link]
        insert_position = insert_sorted(listed_flows, flows.link_start[link], list_end, f)
        for position in range(list_end, insert_position, -1):
            listed_parts[position] = listed_parts[position - 1]
        listed_parts[insert_position] = flows.parts[crossing]
        link_end[link] = list_end + 1


@kernel
def leave_lists(flows: Traffic, f: int) -> None:
    """Remove flow f from the lists of active flows of its links, if it is in them."""
    listed_flows, listed_parts, link_end = flows.owners, flows.owner_parts, flows.link_end
    if not flows.is_listed[f]:
        return
    flows.is_listed[f] = 0
    for crossing in range(flows.start[f], flows.end[f]):
        link = flows.links[crossing]
        last_position = link_end[link] - 1
        for i in range(index_of(listed_flows, flows.link_start[link], f), last_position):
            listed_flows[i], listed_parts[i] = listed_flows[i + 1], listed_parts[i + 1]
        link_end[link] = last_position


@kernel
def load_without_flows(flows: Traffic, link: int, first: int, end: int) -> float:
    """Load of a link relative to capacity, at full demand of all flows except first..end - 1."""
    link_load, listed_flows, listed_parts = 0.0, flows.owners, flows.owner_parts
    demands = flows.most
    for crossing in range(flows.link_start[link], flows.link_end[link]):
        flow = listed_flows[crossing]
        if not first <= flow < end:
            link_load += listed_parts[crossing] * demands[flow]
    return link_load


@kernel
def list_groups(flows: Traffic) -> None:
    """Sum the loads of changed links again. From the overloaded ones among them list all overloaded
    links and flows that meet directly or through other flows."""
    list_sizes, is_full_link, group_links = flows.counts, flows.full, flows.group_links
    for index in range(list_sizes[NOTED]):  # only now: most flows begin and end between sharings
        flow = flows.noted[index]
        if flows.most[flow] <= 0.0:
            leave_lists(flows, flow)
        elif not flows.is_listed[flow]:
            join_lists(flows, flow)
    group_link_count = 0
    for index in range(list_sizes[TOUCHED]):
        link = flows.touched[index]
        flows.is_touched[link] = 0
        flows.load[link] = load_without_flows(flows, link, 0, 0)
        was_full, is_full = is_full_link[link], np.int8(flows.load[link] > NO_CRUMB)
        list_sizes[FULL] += is_full - was_full
        is_full_link[link] = is_full
        if was_full or is_full:
            flows.in_group_links[link] = 1
            group_links[group_link_count] = link
            group_link_count += 1
    list_sizes[TOUCHED] = 0
    next_link_index = 0
    list_sizes[GROUP_FLOWS] = 0
    while next_link_index < group_link_count:
        link = group_links[next_link_index]
        next_link_index += 1
        for crossing in range(flows.link_start[link], flows.link_end[link]):
            if not flows.in_group_flows[flows.owners[crossing]]:
                group_link_count = join_group(flows, flows.owners[crossing], group_link_count)
    list_sizes[GROUP_LINKS] = group_link_count
    for index in range(group_link_count):
        flows.in_group_links[group_links[index]] = 0
    for index in range(list_sizes[GROUP_FLOWS]):
        flows.in_group_flows[flows.group_flows[index]] = 0


@kernel
def join_group(flows: Traffic, f: int, count: int) -> int:
    """Add flow f and its overloaded links to a group of `count` links; returns their new number."""
    flows.in_group_flows[f] = 1
    flows.group_flows[flows.counts[GROUP_FLOWS]] = f
    flows.counts[GROUP_FLOWS] += 1
    full_link_row = flows.start[f]
    for crossing in range(flows.start[f], flows.end[f]):
        link = flows.links[crossing]
        if flows.full[link]:
            flows.near[full_link_row], flows.near_parts[full_link_row] = link, flows.parts[crossing]
            full_link_row += 1
            if not flows.in_group_links[link]:
                flows.in_group_links[link] = 1
                flows.group_links[count] = link
                count += 1
    flows.near_end[f] = full_link_row
    return count


@kernel
def find_levels(flows: Traffic, view: int, first: int, end: int) -> None:
    """Set row `view` of `levels` for the flows of `list_groups`: the share of its full rate that
    each gets, max-min fair, if exchanges first..end - 1 do not send."""
    level_bounds, demands, view_levels = flows.bound, flows.most, flows.levels[view]
    for index in range(flows.counts[GROUP_FLOWS]):
        flow = flows.group_flows[index]
        level_bounds[flow] = 0.0 if first <= flow < end else demands[flow]
        view_levels[flow] = level_bounds[flow]
        flows.stopped[flow] = 0
    full_link_count = 0
    for index in range(flows.counts[GROUP_LINKS]):
        link = flows.group_links[index]
        if flows.full[link]:
            flows.scratch[link] = flows.load[link]
            if first < end:
                flows.scratch[link] = load_without_flows(flows, link, first, end)
            flows.full_at[link], flows.outdated[link] = 0.0, 1
            flows.rest[full_link_count] = link
            full_link_count += 1
    if full_link_count > 0:
        max_min_levels(
            flows.start, flows.near_end, flows.near, flows.near_parts, flows.link_start,
            flows.link_end, flows.owners, flows.owner_parts, level_bounds, flows.rest,
            full_link_count, flows.scratch, flows.full_at, flows.outdated, flows.stopped,
            view_levels,
        )  # fmt: skip


@kernel
def clear_notes(flows: Traffic) -> None:
    """Clear the list `noted` of flows that began or ended."""
    for index in range(flows.counts[NOTED]):
        flows.is_noted[flows.noted[index]] = 0
    flows.counts[NOTED] = 0
