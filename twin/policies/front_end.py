"""The front end: API servers that take requests first come, first served. Each takes the same time
for every request, so request k starts when it has arrived and request k - servers is done."""

from __future__ import annotations

from twin.kernels.compiled import kernel


@kernel
def front_end_done(arrival_s: float, server_free_s: float, service_s: float) -> float:
    """When a request that arrives at arrival_s leaves a server that is free at server_free_s."""
    return max(arrival_s, server_free_s) + service_s
