"""Phase: flows that meet on a link share it; what an instance's exchange gets sets its pace.

Flows are whole classes of an instance's traffic, numbered over the columns (instances, prefill
first, then decode): the exchange of each column; memory pool reads, writes and KV hand-off of each
prefill instance; expert weights moving into each column; what each prefill instance has written to
the SSD tier. Rates are max-min fair (progressive
filling, hardware/sharing.py), each flow's share measured against what it would get alone. They are
found anew at a step's border when something began or ended; single KV transfers share their ports
in their own phase.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from twin.engine.clock import spread
from twin.engine.world import World
from twin.hardware.sharing import max_min_rates


@njit(cache=True)
def traffic(world: World, t1: float) -> None:
    """Find rates anew when what is under way at t1 is not what it was."""
    flows = world.traffic
    mark(world, t1)
    changed = flows.stale[0] == 1
    active, seen, shares = flows.active, flows.seen, flows.shares
    for f in range(active.size):
        if active[f] != seen[f] and shares[f]:
            changed = True
    if changed:
        share(world)
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
def share(world: World) -> None:
    """Max-min rates of the flows under way, and how crowded each column's exchange is."""
    flows = world.traffic
    columns = flows.duty.size
    count = flows.active.size
    instances = world.prefill.running.size
    first_move = columns + 3 * instances
    first_write = first_move + columns
    penalty = np.empty(count)
    for f in range(count):
        flows.seen[f] = flows.active[f]
        penalty[f] = 1.0 / flows.alone[f]
        flows.bound[f] = flows.alone[f] if flows.active[f] else 0.0
        if f >= first_write and flows.active[f]:
            flows.bound[f] = min(flows.alone[f], world.settings.ssd_write_bytes_per_s)
        elif f >= first_move and flows.active[f]:
            flows.bound[f] = min(flows.alone[f], flows.moves[f - first_move])
    flows.stale[0] = 0
    rates = max_min_rates(
        flows.start, flows.links, flows.takes, penalty, flows.bound, flows.capacity
    )
    flows.rate[:] = rates
    # Exchanges are on the wire for a part of the time only: what else is there sees them so long.
    weight = 0.0
    busy = 0
    for c in range(columns):
        if flows.active[c]:
            busy += 1
            weight += flows.duty[c]
    if 0 < busy < count:
        weight /= busy
        for c in range(columns):
            flows.bound[c] = 0.0
        rates = max_min_rates(
            flows.start, flows.links, flows.takes, penalty, flows.bound, flows.capacity
        )
        for f in range(columns, count):
            flows.rate[f] = weight * flows.rate[f] + (1.0 - weight) * rates[f]
    hold_hand_off(world)
    for c in range(columns):
        crowding = 1.0
        if flows.active[c] and flows.rate[c] > 0.0:
            crowding = max(1.0, flows.alone[c] / flows.rate[c])
        if crowding != flows.crowding[c]:
            flows.crowding[c] = crowding
            crowd(world, c, 1.0)


@njit(cache=True)
def hold_hand_off(world: World) -> None:
    """Let the ports of a prefill instance send no faster than its hand-off as a whole may."""
    flows, transfer = world.traffic, world.transfer
    instances, ranks = transfer.port_of_prefill.shape
    for p in range(instances):
        f = flows.duty.size + 2 * instances + p
        part = flows.rate[f] / flows.alone[f] if flows.active[f] and flows.shares[f] else 1.0
        for r in range(ranks):
            port = transfer.port_of_prefill[p, r]
            transfer.capacity[port] = transfer.granted[port] * part


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
    """What ports that also carry experts' traffic leave to KV transfers: half of its time."""
    transfer, flows = world.transfer, world.traffic
    instances, ranks = transfer.port_of_prefill.shape
    for p in range(instances):
        part = 1.0 - 0.5 * flows.duty[p] if flows.active[p] else 1.0
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
def fetch_rate(world: World, p: int) -> float:
    """Bytes/s at which a prefill instance that begins now reads from the memory pool."""
    flows = world.traffic
    f = flows.duty.size + p
    if not flows.shares[f]:
        return flows.alone[f]
    flows.active[f] = 1
    share(world)
    return flows.rate[f]


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
