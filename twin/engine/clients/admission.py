"""Admission: who waits for the router in which order, and who is refused.

Prefill queues keep the same order. Fair queues are in order of arrival, and who is next is chosen
when there is room (engine/clients/fair.py)."""

from twin.engine import codes as w
from twin.engine.clients.fair import begin_waiting
from twin.engine.clients.returns import LET_IN, ask_again, tenant_of
from twin.engine.columns import World
from twin.engine.lists import append, insert
from twin.kernels.compiled import kernel

BURST_S = 1.0  # a token bucket holds what comes in so long
CLASS = 1e9  # places between two priorities: longer than any run, in seconds


@kernel
def take_in(world: World, t0: float, t1: float) -> None:
    """Queue requests that left the front end by t1, or refuse them."""
    request, counters, gate = world.request, world.record.counters, world.gate
    while counters[w.ROUTER_SEEN] < counters[w.FRONTED]:
        i = counters[w.ROUTER_SEEN]
        if request.status[i] != w.CANCELLED:
            now_s = max(t0, request.ready_s[i])
            if now_s > t1:
                return
            reason = beyond_limits(world, i, now_s)
            if reason:
                refuse(world, i, reason, now_s)
            else:
                hold(world, i)
                if world.settings.order == w.PRIORITY:
                    insert(gate.wait, 0, request.following, request.place, request.progress, i)
                else:
                    append(gate.wait, 0, request.following, i)
        counters[w.ROUTER_SEEN] += 1


@kernel
def beyond_limits(world: World, i: int, now_s: float) -> int:
    """Reason code for refusing a request that arrives now; 0: it is not refused."""
    gate, tenant = world.gate, tenant_of(world, i)
    everybody = gate.inside.size - 1
    for t in (tenant, everybody):
        if gate.most[t] > 0 and gate.inside[t] >= gate.most[t]:
            return w.ABOVE_CONCURRENCY
        if gate.rate[t] > 0.0:
            most = max(1.0, BURST_S * gate.rate[t])
            refilled = gate.tokens[t] + (now_s - gate.filled_s[t]) * gate.rate[t]
            gate.tokens[t], gate.filled_s[t] = min(refilled, most), now_s
            if gate.tokens[t] < 1.0:
                return w.ABOVE_RATE
    for t in (tenant, everybody):
        gate.tokens[t] -= gate.rate[t] > 0.0
    return 0


@kernel
def hold(world: World, i: int) -> None:
    """Admit a request and set its position in the queues."""
    settings, request, gate = world.settings, world.request, world.gate
    t = tenant_of(world, i)
    request.held[i] = LET_IN
    gate.inside[t] += 1
    gate.inside[gate.inside.size - 1] += 1
    if settings.order == w.PRIORITY:
        request.place[i] = request.arrival_s[i] - gate.priority[t] * CLASS
    elif settings.order == w.FAIR:
        begin_waiting(world, i)


@kernel
def refuse(world: World, i: int, reason: int, now_s: float) -> None:
    """Refuse a request; its client may retry."""
    request = world.request
    request.status[i] = w.REJECTED
    request.reason[i] = reason
    request.ready_s[i] = now_s
    world.record.counters[w.REJECTED_ROUTER] += 1
    ask_again(world, i, now_s, now_s)
