"""Phase: requests arrive, by their stamp or, in a closed loop, when a client comes back."""

from __future__ import annotations

from twin.engine import codes as w
from twin.engine.columns import World
from twin.engine.lists import heap_pop
from twin.kernels.compiled import kernel


@kernel
def arrivals(world: World, t0: float, t1: float) -> None:
    """Let every request with arrival_s <= t1 in; rows are in order of arrival."""
    request = world.request
    counters = world.record.counters
    cursor = counters[w.ARRIVED]
    total = request.arrival_s.size
    while cursor < total and request.arrival_s[cursor] <= t1:
        cursor += 1
    if world.settings.closed_loop:
        # A client that came back by this step's border is seen now, at its exact time.
        loop = world.loop
        while loop.size[0] > 0 and loop.due_s[0] <= t0:
            due_s = heap_pop(loop.due_s, loop.turn, loop.size)
            if cursor == total:
                counters[w.EXHAUSTED] += 1
                continue
            request.arrival_s[cursor] = due_s
            cursor += 1
    counters[w.ARRIVED] = cursor
