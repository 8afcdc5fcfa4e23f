"""Phase: API servers tokenise and check, first come, first served. Each takes the same time for
every request, so request k starts when it has arrived and request k - servers is done."""

from __future__ import annotations

from twin.engine import codes as w
from twin.engine.columns import World
from twin.kernels.compiled import kernel


@kernel
def front_end_done(arrival_s: float, server_free_s: float, service_s: float) -> float:
    """When a request that arrives at arrival_s leaves a server that is free at server_free_s."""
    return max(arrival_s, server_free_s) + service_s


@kernel
def front_end(world: World, t1: float) -> None:
    """Stamp when each arrived request leaves its API server; count those that left by t1."""
    settings, request, counters = world.settings, world.request, world.record.counters
    servers = settings.api_servers
    for i in range(counters[w.FRONTED], counters[w.ARRIVED]):
        free_s = request.front_end_s[i - servers] if i >= servers else 0.0
        done_s = front_end_done(request.arrival_s[i], free_s, settings.service_s)
        request.front_end_s[i] = done_s
        cancelled = request.status[i] == w.CANCELLED  # it takes its time here all the same
        if not cancelled:
            request.ready_s[i] = done_s
        if done_s > t1:  # those behind it leave no earlier
            break
        counters[w.FRONTED] = i + 1
        counters[w.LEFT_EARLY] -= cancelled
