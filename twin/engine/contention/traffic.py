"""What each flow gets of the links that it shares, and how much longer exchanges take for it.

A flow (flows.py) is a class of an instance's traffic. Alone it would move at `alone` bytes/s, and
it wishes for a share of that. Its level is the share that it gets: max-min fair over all links that
flows meet on (hardware/sharing.py). An exchange whose level is 1/2 takes twice as long on the wire
while the others send; the prices of its instance rise by the mean of that factor (`crowding`). A
stream (streams.py) moves at level times `alone`. Levels are found anew at a step's border, and only
when a flow began or ended on an overloaded link. Single KV transfers share ports in kv_transfer.py;
here they get what is left.

An exchange is on the wire for a part of an iteration only (`duty`). Others meet it for that share
of the time: a stream's level is the mean, weighted by duty, of its levels with and without it; the
time of another exchange is the mean of its times, each of the others weighted by its load.

Several models on one machine (lifecycle/together.py) have one table of flows, shared at once: each
world marks its own, those from `first` to `last` of a class, and takes up their levels."""

import numpy as np

from twin.engine import codes as w
from twin.engine.books import record_traffic
from twin.engine.columns import Transfers, World
from twin.engine.contention import levels
from twin.engine.contention.kv_transfer import IN, OUT
from twin.engine.contention.shared_links import Traffic
from twin.engine.contention.streams import free_rate_share, has_bytes, stream_end_s, update_rates
from twin.engine.lists import total
from twin.kernels.compiled import kernel

SLACK = 0.01  # overload of a link that is let pass: less than what its capacity is known to


@kernel
def update_traffic(world: World, t1: float) -> None:
    """Compute each flow's share of its full rate again if the active flows changed by t1 (s)."""
    mark_active(world, t1)
    apply_changed_flows(world)
    if has_other_models(world):
        read_shared_levels(world)
    update_rates(world, t1)
    if world.settings.kv_among_experts:
        set_transfer_capacity(world)
        add_port_times(world)


@kernel
def mark_active(world: World, now_s: float) -> None:
    """Mark the flows that are active at now_s, in the column `active` of the table of flows."""
    flows, prefills, prompt_row = world.traffic, world.settings.prefills, world.settings.prompt_row
    # Into locals: each access through a reference costs.
    is_active, pace_bytes_per_s = flows.active, flows.pace
    is_running, is_up, sending = world.instance.running, world.instance.up, world.prefill.sending
    first_exchange = flows.first[w.EXPERTS]
    for column in range(is_running.size):
        is_active[first_exchange + column] = is_running[column] and is_up[column]
    for prefill_instance in range(prefills):
        is_active[flows.first[w.KV_HAND_OFF] + prefill_instance] = sending[prefill_instance] > 0
    first_swap = flows.first[w.SWAP] + prefills
    for decode_instance in range(flows.last[w.SWAP] - first_swap):
        is_copying = world.decode.copies_end_s[decode_instance] > now_s
        is_active[first_swap + decode_instance] = is_copying and is_up[prefills + decode_instance]
    for flow in range(flows.first[w.WEIGHTS], flows.last[w.WEIGHTS]):
        is_active[flow] = pace_bytes_per_s[flow] > 0.0
    streams, busy_stream_count = world.streams, 0
    for index in range(streams.count[0]):
        stream = streams.busy[index]
        is_unfinished = streams.left_bytes[stream] > 0.0 and has_bytes(world, stream, now_s)
        may_move = stream >= prefills or is_up[prompt_row + stream]
        is_active[streams.flow[stream]] = is_unfinished and may_move
        streams.is_busy[stream] = streams.left_bytes[stream] > 0.0
        streams.busy[busy_stream_count] = stream
        busy_stream_count += streams.is_busy[stream]
    streams.count[0] = busy_stream_count


@kernel
def has_other_models(world: World) -> bool:
    """Whether the table of flows also has flows of other models."""
    return bool(world.traffic.duty.size > world.instance.running.size)


@kernel
def apply_changed_flows(world: World) -> None:
    """Note the changed demands of flows that ended, then of flows that began; compute the levels of
    flows again if a link is overloaded."""
    flows = world.traffic
    is_active, old_demands, wanted_levels = flows.active, flows.most, flows.wish
    must_recompute = flows.held[0] == 1
    has_changed = False
    for flow in range(is_active.size):  # on vectors: mostly all are as they were
        has_changed |= (wanted_levels[flow] if is_active[flow] else 0.0) != old_demands[flow]
    if has_changed:
        changed_flows, changed_count = flows.group_flows, 0
        for flow in range(is_active.size):
            changed_flows[changed_count] = flow
            changed_count += (wanted_levels[flow] if is_active[flow] else 0.0) != old_demands[flow]
        for is_begin in (False, True):
            for index in range(changed_count):
                flow = changed_flows[index]
                wanted_level = wanted_levels[flow] if is_active[flow] else 0.0
                if (wanted_level > old_demands[flow]) == is_begin:
                    highest_load = levels.note_demand(flows, flow, wanted_level)
                    must_recompute = (is_begin and highest_load > 1.0 + SLACK) or must_recompute
    if must_recompute:
        compute_levels(world)


@kernel
def compute_levels(world: World) -> None:
    """Compute the levels (shares of full rates) of active flows, and from them the slowdown of each
    exchange. Other flows see all-to-all traffic scaled by the share of time it is on the wire."""
    flows = world.traffic
    exchange_count, list_sizes = flows.duty.size, flows.counts
    was_overloaded = flows.held[0] == 1
    levels.list_groups(flows)
    levels.find_levels(flows, levels.ALL, 0, 0)
    levels.find_levels(flows, levels.NONE_OF_THEM, 0, exchange_count)
    has_full_links = list_sizes[levels.FULL] > 0
    flows.held[0] = has_full_links
    if has_other_models(world):
        read_shared_levels(world)
        levels.clear_notes(flows)
        return
    noted_count = list_sizes[levels.NOTED]
    for index in range(noted_count + list_sizes[levels.GROUP_FLOWS]):
        flow = flows.noted[index] if index < noted_count else flows.group_flows[index - noted_count]
        if flow < exchange_count:
            flows.level[flow] = flows.levels[levels.ALL, flow]
            set_slowdown(flows, flow)
    if has_full_links or was_overloaded:
        average_transfer_levels(world)
    limit_hand_off_ports(world, has_full_links or was_overloaded)
    levels.clear_notes(flows)


@kernel
def read_shared_levels(world: World) -> None:
    """Read this model's rate shares of flows, and slowdowns, from the table that models share."""
    flows = world.traffic
    for exchange in range(flows.first[w.EXPERTS], flows.last[w.EXPERTS]):
        flows.level[exchange] = flows.levels[levels.ALL, exchange]
        set_slowdown(flows, exchange)
    average_transfer_levels(world)
    for prefill_instance in range(world.settings.prefills):
        limit_ports(world, prefill_instance)


@kernel
def average_transfer_levels(world: World) -> None:
    """Set the level (share of full rate) of each active flow of this model except expert exchanges:
    the mean of its levels with and without exchanges, by the share of time that these send."""
    flows, list_sizes = world.traffic, world.traffic.counts
    first_exchange, end_exchange = flows.first[w.EXPERTS], flows.last[w.EXPERTS]
    first_stream, end_stream = flows.first[w.POOL_READ], flows.last[w.SSD_READ]
    duty = mean_duty(flows, first_exchange, end_exchange) if flows.held[0] == 1 else 1.0
    shared_levels, alone_levels = flows.levels[levels.ALL], flows.levels[levels.NONE_OF_THEM]
    for index in range(list_sizes[levels.MOVERS]):
        flow = flows.movers[index]
        if first_stream <= flow < end_stream:
            flows.level[flow] = duty * shared_levels[flow] + (1.0 - duty) * alone_levels[flow]


@kernel
def mean_duty(flows: Traffic, first: int, last: int) -> float:
    """Mean share of time on the wire of active exchanges first..last - 1; 1: none is active."""
    active_count, duty_sum = 0, 0.0
    for exchange in range(first, last):
        if flows.most[exchange] > 0.0:
            active_count += 1
            duty_sum += flows.duty[exchange]
    return duty_sum / active_count if active_count > 0 else 1.0


@kernel
def set_slowdown(flows: Traffic, exchange: int) -> None:
    """Set the mean factor by which shared links prolong an exchange: 1 + (needed / granted share of
    its full rate - 1) x the mean share of time that other flows send on its fullest link."""
    needed_share, granted_share = flows.most[exchange], flows.levels[levels.ALL, exchange]
    flows.crowding[exchange] = 1.0
    if 0.0 < granted_share < needed_share:
        relative_excess = needed_share / granted_share - 1.0
        flows.crowding[exchange] += relative_excess * mean_others_duty(flows, exchange)


@kernel
def mean_others_duty(flows: Traffic, exchange: int) -> float:
    """Mean share of time, weighted by load, that other flows send on an exchange's fullest link."""
    fullest_link = flows.links[flows.start[exchange]]
    for crossing in range(flows.start[exchange], flows.end[exchange]):
        link = flows.links[crossing]
        fullest_link = link if flows.load[link] > flows.load[fullest_link] else fullest_link
    demand_sum, sent_sum = 0.0, 0.0
    for crossing in range(flows.link_start[fullest_link], flows.link_end[fullest_link]):
        flow = flows.owners[crossing]
        if flow != exchange:
            demand = flows.owner_parts[crossing] * flows.most[flow]
            demand_sum += demand
            sent_sum += demand * (flows.duty[flow] if flow < flows.duty.size else 1.0)
    return sent_sum / demand_sum if demand_sum > 0.0 else 1.0


@kernel
def limit_hand_off_ports(world: World, overloaded: bool) -> None:
    """Limit the ports of prefill instances to the share of their rate that other traffic leaves to
    their hand-off (`limit_ports`): of instances whose hand-off began or ended and, if a link is or
    was overloaded, of all instances that hand over."""
    flows, prefills = world.traffic, world.settings.prefills
    first_hand_off, noted_count = flows.first[w.KV_HAND_OFF], flows.counts[levels.NOTED]
    if world.settings.kv_among_experts:  # ports change with each exchange
        for instance in range(prefills):
            limit_ports(world, instance)
        return
    for index in range(noted_count + (flows.counts[levels.MOVERS] if overloaded else 0)):
        flow = flows.noted[index] if index < noted_count else flows.movers[index - noted_count]
        instance = flow - first_hand_off
        if 0 <= instance < prefills:
            limit_ports(world, instance)


@kernel
def limit_ports(world: World, p: int) -> None:
    """Limit the ports of prefill instance p to the share of their rate that its hand-off gets."""
    transfer = world.transfer
    rate_share = hand_off_share(world, p)
    for die in range(transfer.port_of_prefill.shape[1]):
        port = transfer.port_of_prefill[p, die]
        transfer.capacity[port] = transfer.granted[port] * rate_share


@kernel
def hand_off_share(world: World, p: int) -> float:
    """Present rate of instance p's KV hand-off divided by its rate without other traffic."""
    flows = world.traffic
    flow = flows.first[w.KV_HAND_OFF] + p
    return float(flows.level[flow]) if flows.active[flow] else 1.0


@kernel
def exchange_slowdown(world: World, column: int) -> float:
    """Factor by which shared links prolong the exchange of instance `column`: now or, where KV
    transfers share its ports, in its present pass."""
    if world.settings.kv_among_experts:
        return float(world.costs.priced[column])
    return float(world.traffic.crowding[world.traffic.first[w.EXPERTS] + column])


@kernel
def price_exchange(world: World, column: int) -> None:
    """Set the prices of the exchange of instance `column` for its next pass: its time without other
    traffic times the present slowdown. They stay during the pass, while levels change."""
    costs = world.costs
    if world.settings.kv_among_experts:
        slowdown = mean_exchange_slowdown(world, column)
    else:
        slowdown = exchange_slowdown(world, column)
    if slowdown == costs.priced[column]:
        return
    costs.priced[column] = slowdown
    prefill_count = world.settings.prefills
    if column < prefill_count:
        if world.settings.has_prefill and not world.settings.colocated:
            for price in costs.prefill_carried:
                costs.prefill_now[column, price] = costs.prefill_alone[column, price] * slowdown
    elif world.settings.has_decode or world.settings.colocated:
        decode_instance = column - prefill_count
        for price in costs.decode_carried:
            costs.decode_now[decode_instance, price] = (
                costs.decode_alone[decode_instance, price] * slowdown
            )


@kernel
def set_transfer_capacity(world: World) -> None:
    """Set the capacity that KV transfers get of ports that also carry exchanges: n / (n + 1) of the
    rate for n transfers. Ports of prefill instances are also limited to their hand-off's share."""
    transfer, flows = world.transfer, world.traffic
    prefill_count, dies_per_instance = transfer.port_of_prefill.shape
    first_flow = flows.first[w.EXPERTS]
    for instance in range(prefill_count):
        duty = flows.duty[first_flow + instance] if flows.active[first_flow + instance] else 0.0
        for rank in range(dies_per_instance):
            port = transfer.port_of_prefill[instance, rank]
            share = min(transfer_share(transfer, OUT, port, duty), hand_off_share(world, instance))
            transfer.capacity[port] = transfer.granted[port] * share
    decode_ranks = world.settings.decode_ranks
    for decode_instance in range(world.decode.taken.size):
        exchange_flow = first_flow + prefill_count + decode_instance
        duty = flows.duty[exchange_flow] if flows.active[exchange_flow] else 0.0
        for rank in range(decode_instance * decode_ranks, (decode_instance + 1) * decode_ranks):
            for port in transfer.port_of_decode[rank]:
                share = transfer_share(transfer, IN, port, duty)
                transfer.capacity[port] = transfer.granted[port] * share


@kernel
def transfer_share(transfer: Transfers, way: int, port: int, duty: float) -> float:
    """Share of a port's rate for KV transfers in one direction (way: OUT or IN). An exchange, which
    uses the port for a share `duty` of the time, counts as one more transfer. Without transfers:
    the share that a first one would get."""
    return 1.0 - duty / (1.0 + max(transfer.crossing[way, port], 1))


@kernel
def restore_ports(world: World, p: int) -> None:
    """Give instance p's KV hand-off the full rate of its ports until the next border."""
    if world.settings.kv_among_experts:
        transfer = world.transfer
        for port in transfer.port_of_prefill[p]:
            transfer.capacity[port] = transfer.granted[port]


@kernel
def add_port_times(world: World) -> None:
    """Add the step's seconds to the port time of each instance, and to its lost time the part that
    KV transfers and other flows take from the exchange."""
    step_s, port_times_s = world.settings.step_s, world.instance.port_times_s
    for column in range(port_times_s.shape[0]):
        port_times_s[column, 0] += step_s
        port_times_s[column, 1] += step_s * (1.0 - exchange_share(world, column))


@kernel
def mean_exchange_slowdown(world: World, column: int) -> float:
    """Factor by which KV transfers and other flows prolong the exchange of instance `column`, from
    the mean share of its ports since its last pass began; resets that measurement. A transfer is
    shorter than a pass, so the share at one moment would not represent the pass."""
    passed_s, taken_s = world.instance.port_times_s[column]
    if passed_s == 0.0:  # no border since
        return 1.0 / exchange_share(world, column)
    world.instance.port_times_s[column, :] = 0.0
    return float(passed_s / (passed_s - taken_s))


@kernel
def exchange_share(world: World, column: int) -> float:
    """Present rate of the expert exchange of instance `column` divided by its rate without other
    traffic: 1 / crowding, or less where KV transfers arrive at a port. n of them leave 1 / (n + 1)
    of the port, or their unused share if that is more."""
    transfers, decode_ranks = world.transfer, world.settings.decode_ranks
    decode_instance = column - world.settings.prefills
    rate_share = 1.0 / world.traffic.crowding[world.traffic.first[w.EXPERTS] + column]
    for transfer_part in range(transfers.active[0]):
        if world.request.rank[transfers.request[transfer_part]] // decode_ranks == decode_instance:
            port = transfers.port_in[transfer_part]
            transfer_count, port_bytes_per_s = transfers.crossing[IN, port], transfers.granted[port]
            used_bytes_per_s = transfers.capacity[port] - transfers.rest[IN, port]
            bytes_per_s_left = max(
                port_bytes_per_s / (transfer_count + 1.0), port_bytes_per_s - used_bytes_per_s
            )
            if bytes_per_s_left > 0.0:
                rate_share = min(rate_share, bytes_per_s_left / port_bytes_per_s)
    return rate_share


@kernel
def set_server_loads(world: World, p: int) -> None:
    """Set the load of memory servers' ports by the blocks that instance p's batch reads."""
    set_parts(world.traffic, world.traffic.first[w.POOL_READ] + p, world.streams.requested[p], 1.0)


@kernel
def set_parts(flows: Traffic, f: int, amounts: np.ndarray, scale: float) -> None:
    """Set the part that flow f takes of each of its links, by its amounts f8[servers] from, or to,
    each memory server. scale: its full rate divided by the rate for which it was laid out."""
    if flows.most[f] > 0.0:  # what it carried before is through
        levels.note_demand(flows, f, 0.0)
    total_bytes = total(amounts)
    if total_bytes == 0:
        return
    levels.leave_lists(flows, f)
    crossing_row = flows.start[f]
    for crossing in range(flows.start[f], flows.start[f + 1]):
        server, link_part = flows.port[crossing], flows.whole[crossing]
        if server >= 0:
            if amounts[server] == 0:
                continue
            link_part = link_part * amounts[server] / total_bytes * scale
        flows.links[crossing_row], flows.parts[crossing_row] = flows.way[crossing], link_part
        flows.server[crossing_row] = server
        crossing_row += 1
    flows.end[f] = crossing_row


@kernel
def new_read_rate(world: World, p: int, now_s: float, amount: float) -> float:
    """Bytes/s of a read of `amount` bytes from the memory pool that instance p begins now: its fair
    share, at most what other streams leave, because these adapt only at the step's border."""
    flows = world.traffic
    first_read = flows.first[w.POOL_READ]
    is_overloaded = flows.held[0] == 1
    streams = world.streams
    for index in range(streams.count[0]):
        other_reader = streams.busy[index]  # reads are the first of the streams
        if other_reader >= world.settings.prefills:
            break
        # Within a step instances move one after the other: what others read may be over or later.
        if flows.most[first_read + other_reader] > 0.0 and other_reader != p:
            is_reading = streams.since_s[other_reader] <= now_s < stream_end_s(world, other_reader)
            if not is_reading:
                levels.note_demand(flows, first_read + other_reader, 0.0)
    exchange = flows.first[w.EXPERTS] + world.settings.prompt_row + p
    if flows.most[exchange] > 0.0:  # it comes after
        levels.note_demand(flows, exchange, 0.0)
    highest_load = levels.note_demand(flows, first_read + p, flows.wish[first_read + p])
    if highest_load > 1.0 + SLACK or is_overloaded:
        compute_levels(world)
    rate_share = min(float(flows.level[first_read + p]), free_rate_share(world, p, now_s, amount))
    return float(flows.alone[first_read + p]) * rate_share


@kernel
def begin_kv_copies_s(world: World, d: int, copied: np.ndarray, alone_s: float) -> float:
    """Begin instance d's copies of KV to and from host memory as flows; returns their seconds.
    alone_s: seconds without other traffic. Other flows, and ranks of a node that copy together,
    prolong them. copied f8[2 * nodes]: bytes into dies of node n at 2 * n, out at 2 * n + 1."""
    flows, column = world.traffic, world.settings.prefills + d
    flow, exchange = flows.first[w.SWAP] + column, flows.first[w.EXPERTS] + column
    all_bytes_per_s, host_bytes_per_s = world.decode.host_bytes_per_s[d]
    flows.alone[flow] = 0.0  # of nodes and directions with copies: a flow of many weighs more
    for direction in range(copied.size):
        flows.alone[flow] += host_bytes_per_s if copied[direction] > 0.0 else 0.0
    set_parts(flows, flow, copied, flows.alone[flow] / all_bytes_per_s)
    bytes_per_s = total(copied) / alone_s
    flows.pace[flow], flows.wish[flow] = bytes_per_s, min(bytes_per_s / flows.alone[flow], 1.0)
    flows.active[flow] = 1
    if flows.most[exchange] > 0.0:  # it comes after
        levels.note_demand(flows, exchange, 0.0)
    if levels.note_demand(flows, flow, flows.wish[flow]) > 1.0 + SLACK or flows.held[0] == 1:
        compute_levels(world)
    return float(alone_s * max(1.0, bytes_per_s / (flows.alone[flow] * flows.level[flow])))


@kernel
def hot_server(world: World, p: int) -> int:
    """Memory server whose port limits the read of instance p; NONE if no port does."""
    flows = world.traffic
    flow = flows.first[w.POOL_READ] + p
    limiting_server, highest_load = w.NONE, 0.0
    if world.streams.rate[p] < (1.0 - SLACK) * flows.wish[flow] * flows.alone[flow]:
        for crossing in range(flows.start[flow], flows.end[flow]):
            link_load = flows.load[flows.links[crossing]]
            if link_load > highest_load:
                limiting_server, highest_load = flows.server[crossing], link_load
    return limiting_server


@kernel
def record_exchange(world: World, column: int, begin_s: float, end_s: float, tokens: float) -> None:
    """Record the bytes of the collectives of a pass over `tokens` tokens of instance `column`, and
    set the share of the pass that they take."""
    settings, flows, moved_bytes = world.settings, world.traffic, 0.0
    for sent_index, kind, plane in (
        (0, w.EXPERTS, w.UB), (1, w.EXPERTS, w.RDMA),
        (2, w.ATTENTION, w.UB), (3, w.ATTENTION, w.RDMA),
    ):  # fmt: skip
        sent_bytes = tokens * world.costs.sent[column, sent_index]
        record_traffic(world, kind, plane, column, begin_s, end_s, sent_bytes)
        moved_bytes += sent_bytes
    die_count = settings.prefill_ranks if column < settings.prefills else settings.decode_dies
    flow, span_s = flows.first[w.EXPERTS] + column, end_s - begin_s
    if span_s > 0.0 and flows.alone[flow] > 0.0:
        flows.duty[flow] = min(1.0, moved_bytes / die_count / flows.alone[flow] / span_s)
