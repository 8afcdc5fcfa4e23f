"""Phase: flows that meet on a link share it; what an instance's exchange gets sets its pace.

Flows are whole classes of an instance's traffic, numbered over the columns (instances, prefill
first, then decode): the exchange of each column; memory pool reads, writes and KV hand-off of each
prefill instance; expert weights moving into each column; what each prefill instance has written to
the SSD tier. What each gets is max-min fair (hardware/sharing.py), in shares of what it
would get alone. It is found anew at a step's border when something began or ended on links that are
overloaded; single KV transfers share their ports in their own phase.
"""

from __future__ import annotations

from numba import njit

from twin.engine.clock import spread
from twin.engine.world import World
from twin.hardware.sharing import max_min_levels

SLACK = 0.01  # overload of a link that is let pass: less than what its capacity is known to


@njit(cache=True)
def traffic(world: World, t1: float) -> None:
    """Find anew what flows get when what is under way at t1 is not what it was."""
    mark(world, t1)
    settle_links(world)
    if world.settings.kv_among_experts:
        leave_to_hand_off(world)


@njit(cache=True)
def mark(world: World, now_s: float) -> None:
    """Which flows are under way."""
    prefill, decode = world.prefill, world.decode
    active = world.traffic.active
    moves = world.traffic.moves
    instances = prefill.running.size
    columns = instances + decode.running.size
    for p in range(instances):
        computing = prefill.running[p] and prefill.up[p] and now_s < prefill.ends_s[p]
        active[p] = computing and now_s >= prefill.fetch_end_s[p]
        active[columns + p] = computing and now_s < prefill.fetch_end_s[p]
        active[columns + instances + p] = now_s < prefill.store_end_s[p]
        active[columns + 2 * instances + p] = prefill.sending[p] > 0
        active[2 * columns + 3 * instances + p] = now_s < prefill.ssd_end_s[p]
    for d in range(decode.running.size):
        active[instances + d] = decode.running[d] and decode.up[d]
    for c in range(columns):
        active[columns + 3 * instances + c] = moves[c] > 0.0


@njit(cache=True)
def settle_links(world: World) -> None:
    """Take note of what ended, then of what began; where a link is overloaded, share anew."""
    flows = world.traffic
    active, most = flows.active, flows.most
    crowded = flows.held[0] == 1
    for f in range(active.size):
        if most[f] > 0.0:
            wants = wanted(world, f)
            if wants < most[f]:
                take_note(world, f, wants)
    for f in range(active.size):
        if active[f]:
            wants = wanted(world, f)
            if wants > most[f]:
                crowded = take_note(world, f, wants) or crowded
    if crowded:
        share(world)


@njit(cache=True)
def wanted(world: World, f: int) -> float:
    """Share of what it would get alone that a flow would take; 0 when it is not there."""
    flows = world.traffic
    if not flows.active[f]:
        return 0.0
    instances = world.prefill.running.size
    first_move = flows.duty.size + 3 * instances
    if f < first_move:
        stored = f - flows.duty.size - instances
        return float(world.prefill.store_part[stored]) if 0 <= stored < instances else 1.0
    pace = world.settings.ssd_write_bytes_per_s
    if f < first_move + flows.duty.size:
        pace = flows.moves[f - first_move]
    return float(min(1.0, pace / flows.alone[f]))


@njit(cache=True)
def take_note(world: World, f: int, wants: float) -> bool:
    """A flow wants more or less than before; whether it meets an overloaded link."""
    flows = world.traffic
    links, parts, load = flows.links, flows.parts, flows.load
    more = wants - flows.most[f]
    crowded = False
    for k in range(flows.start[f], flows.start[f + 1]):
        load[links[k]] += parts[k] * more
        crowded = crowded or load[links[k]] > 1.0 + SLACK
    flows.most[f] = wants
    flows.level[f] = wants
    return crowded


@njit(cache=True)
def share(world: World) -> None:
    """Max-min levels of the flows under way, and how crowded each column's exchange is."""
    flows = world.traffic
    columns = flows.duty.size
    held = levels(world)
    flows.held[0] = held
    for c in range(columns):
        crowding = 1.0
        if flows.most[c] > 0.0 and flows.level[c] > 0.0:
            crowding = max(1.0, flows.most[c] / flows.level[c])
        if crowding != flows.crowding[c]:
            flows.crowding[c] = crowding
            crowd(world, c, 1.0)
    if held:
        see_exchanges_for_their_time(world)
    hold_hand_off(world)


@njit(cache=True)
def levels(world: World) -> bool:
    """Fill the levels; returns whether a flow is held."""
    flows = world.traffic
    sum_loads(world)
    flows.scratch[:] = flows.load
    return max_min_levels(
        flows.start, flows.links, flows.parts, flows.link_start, flows.entries, flows.owners,
        flows.most, flows.scratch, flows.level,
    )  # fmt: skip


@njit(cache=True)
def see_exchanges_for_their_time(world: World) -> None:
    """Exchanges are on the wire for a part of the time only: so long the other flows meet them."""
    flows = world.traffic
    columns = flows.duty.size
    busy, weight = 0, 0.0
    for c in range(columns):
        if flows.most[c] > 0.0:
            busy += 1
            weight += flows.duty[c]
    if busy == 0:
        return
    weight /= busy
    beside = flows.level.copy()
    wanted = flows.most[:columns].copy()
    flows.most[:columns] = 0.0
    levels(world)
    flows.most[:columns] = wanted
    for f in range(columns, beside.size):
        flows.level[f] = weight * beside[f] + (1.0 - weight) * flows.level[f]
    flows.level[:columns] = beside[:columns]
    sum_loads(world)


@njit(cache=True)
def sum_loads(world: World) -> None:
    """What every link would carry if all flows had what they want; no rounding adds up."""
    flows = world.traffic
    flows.load[:] = 0.0
    for f in range(flows.most.size):
        for k in range(flows.start[f], flows.start[f + 1]):
            flows.load[flows.links[k]] += flows.parts[k] * flows.most[f]


@njit(cache=True)
def hold_hand_off(world: World) -> None:
    """Let the ports of a prefill instance send no faster than its hand-off as a whole may."""
    transfer = world.transfer
    instances, ranks = transfer.port_of_prefill.shape
    for p in range(instances):
        part = hand_off_level(world, p)
        for r in range(ranks):
            port = transfer.port_of_prefill[p, r]
            transfer.capacity[port] = transfer.granted[port] * part


@njit(cache=True)
def hand_off_level(world: World, p: int) -> float:
    """What an instance's hand-off as a whole gets of what it would get alone."""
    flows = world.traffic
    f = flows.duty.size + 2 * world.prefill.running.size + p
    return float(flows.level[f]) if flows.active[f] else 1.0


@njit(cache=True)
def crowd(world: World, column: int, more: float) -> None:
    """Let a column's exchange take its crowding times `more` as long on the wire."""
    costs = world.costs
    factor = world.traffic.crowding[column] * more
    instances = world.prefill.running.size
    if world.settings.colocated:
        if column >= instances:
            at = column - instances
            for k in costs.decode_carried:
                costs.mixed[at, k] = costs.mixed_alone[at, k] * factor
    elif column < instances:
        if world.settings.has_prefill:
            for k in costs.prefill_carried:
                costs.prefill[column, k] = costs.prefill_alone[column, k] * factor
    elif world.settings.has_decode:
        at = column - instances
        for k in costs.decode_carried:
            costs.decode[at, k] = costs.decode_alone[at, k] * factor


@njit(cache=True)
def leave_to_hand_off(world: World) -> None:
    """What ports that also carry experts' traffic leave to KV transfers: half of its time.

    Those of a prefill instance send no faster than its hand-off as a whole may, either.
    """
    transfer, flows = world.transfer, world.traffic
    instances, ranks = transfer.port_of_prefill.shape
    for p in range(instances):
        part = 1.0 - 0.5 * flows.duty[p] if flows.active[p] else 1.0
        part = min(part, hand_off_level(world, p))
        for r in range(ranks):
            port = transfer.port_of_prefill[p, r]
            transfer.capacity[port] = transfer.granted[port] * part
    width = world.settings.decode_ranks
    for d in range(world.decode.running.size):
        c = instances + d
        part = 1.0 - 0.5 * flows.duty[c] if flows.active[c] else 1.0
        for r in range(d * width, (d + 1) * width):
            port = transfer.port_of_decode[r]
            transfer.capacity[port] = transfer.granted[port] * part


@njit(cache=True)
def give_ports_back(world: World, p: int) -> None:
    """A batch has ended: its hand-off has the ports to itself until the next border tells more."""
    if world.settings.kv_among_experts:
        transfer = world.transfer
        for port in transfer.port_of_prefill[p]:
            transfer.capacity[port] = transfer.granted[port]


@njit(cache=True)
def beside_hand_off(world: World, d: int) -> float:
    """How much longer an instance's exchange takes beside the KV that its dies now receive.

    The slowest die sets the pace: at a port with n transfers the exchange gets its fair share, or
    what they leave of it.
    """
    transfer = world.transfer
    width = world.settings.decode_ranks
    worst = 1.0
    for k in range(transfer.active[0]):
        if world.request.rank[transfer.request[k]] // width == d:
            port = transfer.port_in[k]
            n = transfer.flows_in[port]
            whole = transfer.granted[port]
            left = max(whole / (n + 1.0), whole - n * transfer.rate[k])
            if left > 0.0:
                worst = max(worst, whole / left)
    return worst


@njit(cache=True)
def fetch_rate(world: World, p: int, column: int, now_s: float) -> float:
    """Bytes/s at which an instance that begins a batch now reads from the memory pool."""
    flows = world.traffic
    first = flows.duty.size
    most, begins_s, ends_s = flows.most, world.prefill.fetch_begin_s, world.prefill.fetch_end_s
    crowded = flows.held[0] == 1
    for other in range(ends_s.size):
        # Within a step instances move one after the other: what others read may be over or later.
        if most[first + other] > 0.0 and not begins_s[other] <= now_s < ends_s[other]:
            take_note(world, first + other, 0.0)
    if most[column] > 0.0:  # its exchange comes after
        take_note(world, column, 0.0)
    if take_note(world, first + p, 1.0) or crowded:
        share(world)
    return flows.alone[first + p] * min(flows.level[first + p], world.prefill.fetch_part[p])


@njit(cache=True)
def book_traffic(
    world: World, kind: int, plane: int, column: int, begin_s: float, end_s: float, amount: float
) -> None:
    """Book bytes of a class of traffic over a span."""
    if amount <= 0.0:
        return
    record = world.record
    record.fields[0] = (kind * 3 + plane) * world.traffic.duty.size + column
    record.amounts[0] = amount
    spread(
        record.traffic, begin_s, max(end_s, begin_s + 1e-12), record.fields, record.amounts, 1,
        world.settings.horizon_s, world.settings.warmup_s,
    )  # fmt: skip


@njit(cache=True)
def note_duty(world: World, column: int, bytes_per_die: float, took_s: float) -> None:
    """Remember which share of the time an exchange is on the wire."""
    flows = world.traffic
    if took_s > 0.0 and flows.alone[column] > 0.0:
        flows.duty[column] = min(1.0, bytes_per_die / flows.alone[column] / took_s)
