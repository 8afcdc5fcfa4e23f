"""Phase: an instance that is to stop runs empty, or hands its requests' KV on to others.

Between two steps (life.py). A request that moves keeps what it has emitted: its KV goes over
the ports of its old dies to those of its new ones, as hand-offs from prefill do, and is booked
with the prefill instance that computed its prompt."""

import numpy as np

from twin.engine import codes as w
from twin.engine.books import book_busy
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import begin_transfer
from twin.engine.phases.decode import pull, settle
from twin.engine.phases.router import refresh_view, reserve


def is_empty_prefill(world: World, p: int) -> bool:
    """Whether no prompt waits, computes or has KV left to transfer."""
    state, running = world.prefill, world.instance.running[world.settings.prompt_row + p]
    if state.queued_tokens[p] or running or state.reading[p] or state.sending[p]:
        return False
    i = world.transfer.unsent[0, w.HEAD]
    while i != w.NONE:
        if world.request.prefill_instance[i] == p:
            return False
        i = world.request.following[i]
    return True


def is_empty_decode(world: World, d: int) -> bool:
    """Whether no slot is taken or reserved, and no iteration runs."""
    running = world.instance.running[world.settings.prefills + d]
    return not (world.decode.taken[d] or running)


def empty_by_moving(world: World, d: int, now_s: float) -> int:
    """Transfer running requests of instance d to others with room; returns their number. The
    running iteration ends now. A request that has just joined is moved at a later check."""
    state, instance, first = world.decode, world.instance, world.settings.prefills
    open_instances = np.flatnonzero(instance.open[first:])
    room = int((state.room - state.taken)[open_instances].sum())
    if state.in_batch[d] == 0 or room <= 0:
        return 0
    if instance.running[first + d]:
        book_busy(world, first + d, now_s, instance.ends_s[first + d], -1.0)
        settle(world, d, now_s)
        instance.running[first + d] = 0
        instance.ends_s[first + d] = now_s
    refresh_view(world)
    count, ranks = 0, world.settings.decode_ranks
    for r in range(d * ranks, (d + 1) * ranks):
        for s in range(state.requests[r] - 1, -1, -1):
            moved_requests = hand_over(world, d, state.slot_table[r, s], now_s)
            if moved_requests == w.NONE:
                return count
            count += moved_requests
    return count


def hand_over(world: World, d: int, i: int, now_s: float) -> int:
    """Start the KV transfer of a running request; returns 1; 0: just joined, NONE: no room."""
    settings, request = world.settings, world.request
    counters = world.record.counters
    span = request.due[i] - request.joined[i]
    passes = world.decode.iteration[d] - request.joined[i]
    left = request.output_tokens[i] - request.emitted[i]
    # Its new rank begins with the last.
    computed = request.emitted[i] + int(left * passes / span) - 1
    if computed < 1:
        return 0
    need = request.input_tokens[i] + computed + 0.5 * settings.page_tokens
    rank = reserve(world, w.NONE, i, need)
    if rank == w.NONE:
        return w.NONE
    from_rank = request.rank[i]
    pull(world, d, i)
    request.emitted[i] = computed
    request.rank[i] = rank
    world.decode.reserved_tokens[rank] += request.input_tokens[i] + computed
    request.ready_s[i] = now_s
    request.status[i] = w.TRANSFERRING
    for event in (w.BACK_FROM_DECODE, w.ROUTED, w.PREFILL_BEGUN, w.PREFILLED):
        counters[event] += 1
    begin_transfer(world, i, from_rank)
    return 1
