"""Phase: faults throw requests out, and they go back to the router.

What a fault does is decided in lifecycle/incidents.py at a step's border; this file moves the
requests. A request that loses its KV or its unfinished prefill is tried again, and keeps its
emitted tokens; after `retries` times it is lost, with the reason."""

import numpy as np

from twin.engine import codes as w
from twin.engine.clients.returns import come_back
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import collect, take_back
from twin.engine.in_hbm import first_cell, forget
from twin.engine.lists import append, length, pop
from twin.engine.phases.decode import give_slot_back, pull
from twin.engine.phases.prefill import leave_queue, note_ending
from twin.engine.pool import stop_reading
from twin.engine.swap import forget_copy
from twin.kernels.compiled import kernel


@kernel
def send_back(world: World, i: int, now_s: float, came_from: int) -> None:
    """Return a request, already removed from its place, to the router, or give it up."""
    request, counters = world.request, world.record.counters
    counters[came_from] += 1
    request.ready_s[i] = now_s
    request.retries[i] += 1
    if request.retries[i] > world.settings.retries:
        request.status[i] = w.LOST
        request.reason[i] = w.OUT_OF_RETRIES
        counters[w.GIVEN_UP] += 1
        come_back(world, i, now_s)
        return
    request.status[i] = w.WAITING
    if request.emitted[i] == 0:  # its first token comes, or comes again, with the next prefill
        request.prefill_start_s[i] = np.nan
        request.prefill_end_s[i] = np.nan
        request.transfer_end_s[i] = np.nan
    append(world.decode.returned, 0, request.following, i)


@kernel
def empty_decode(world: World, d: int, rank: int, now_s: float) -> int:
    """Remove requests from a rank (NONE: all ranks) of a decode instance; returns their number."""
    state, width = world.decode, world.settings.decode_ranks
    count = 0
    every_rank = rank == w.NONE
    for r in range(d * width, (d + 1) * width):
        while (every_rank or r == rank) and state.requests[r] > 0:
            i = state.slot_table[r, state.requests[r] - 1]
            pull(world, d, i)
            send_back(world, i, now_s, w.BACK_FROM_DECODE)
            count += 1
        while (every_rank or r == rank) and state.swapped[r, w.HEAD] != w.NONE:
            i = pop(state.swapped, r, world.request.following)
            forget_copy(world, i)
            give_slot_back(world, i)
            send_back(world, i, now_s, w.BACK_FROM_DECODE)
            count += 1
        if world.settings.colocated and (every_rank or r == rank):
            forget(world, r, r + 1)
    for _ in range(length(state.wait, d, world.request.following)):
        i = pop(state.wait, d, world.request.following)
        if rank == w.NONE or world.request.rank[i] == rank:
            give_slot_back(world, i)
            send_back(world, i, now_s, w.BACK_FROM_DECODE)
            count += 1
        else:
            append(state.wait, d, world.request.following, i)
    return count


@kernel
def empty_transfers(world: World, p: int, d: int, rank: int, now_s: float) -> int:
    """End KV transfers from prefill p, to decode d or to one rank (NONE: any); returns how many."""
    state, request, width = world.transfer, world.request, world.settings.decode_ranks
    count = 0
    k = 0
    while k < state.active[0]:
        i = state.request[k]
        if not hit(request.prefill_instance[i], request.rank[i], width, p, d, rank):
            k += 1
            continue
        take_back(world, k)
        if request.parts[i] > 0:  # the others are further on in the list
            continue
        give_slot_back(world, i)
        send_back(world, i, now_s, w.BACK_FROM_TRANSFER)
        count += 1
    for k in range(collect(world)):
        i = state.fresh[k]
        if hit(request.prefill_instance[i], request.rank[i], width, p, d, rank):
            give_slot_back(world, i)
            send_back(world, i, now_s, w.BACK_FROM_TRANSFER)
            count += 1
        else:
            append(state.unsent, 0, request.following, i)
    return count


@kernel
def hit(at: int, its_rank: int, width: int, p: int, d: int, rank: int) -> bool:
    """Whether a transfer leaves p, or arrives at `rank` or at d."""
    if p != w.NONE:
        return at == p
    return its_rank == rank if rank != w.NONE else its_rank // width == d


@kernel
def empty_prefill(world: World, p: int, now_s: float) -> int:
    """Remove all requests and the batch of a prefill instance; returns their number."""
    state, request = world.prefill, world.request
    count = 0
    while True:
        i = pop(state.batch, p, request.following)
        if i == w.NONE:
            i = pop(state.queue, p, request.following)
        if i == w.NONE:
            break
        send_from_prefill(world, p, i, now_s)
        count += 1
    world.instance.running[world.settings.prompt_row + p] = 0
    stop_reading(world, p, now_s)
    if not world.settings.colocated:
        forget(world, first_cell(world, p), first_cell(world, p + 1))
    return count


@kernel
def send_from_prefill(world: World, p: int, i: int, now_s: float) -> None:
    """Return a request to the router after its removal from a list of prefill instance p."""
    computing = world.request.progress[i] != w.NONE
    leave_queue(world, p, i)
    world.request.progress[i] = w.NONE
    give_slot_back(world, i)
    send_back(world, i, now_s, w.BACK_FROM_PREFILL if computing else w.BACK_FROM_QUEUE)


@kernel
def free_rank(world: World, rank: int, now_s: float) -> int:
    """Remove every request from a lost decode rank and from transfers to it; returns how many."""
    d = rank // world.settings.decode_ranks
    count = empty_decode(world, d, rank, now_s)
    if world.settings.has_prefill and not world.settings.colocated:
        count += empty_transfers(world, w.NONE, d, rank, now_s)
        count += leave_prefill(world, rank, now_s)
    return count


@kernel
def leave_prefill(world: World, rank: int, now_s: float) -> int:
    """Return prefilling requests whose reserved decode slot is on a lost rank."""
    state, request = world.prefill, world.request
    count = 0
    for p in range(state.queue.shape[0]):
        for ends in (state.queue, state.batch):
            for _ in range(length(ends, p, request.following)):
                i = pop(ends, p, request.following)
                if request.rank[i] != rank:
                    append(ends, p, request.following, i)
                    continue
                send_from_prefill(world, p, i, now_s)
                count += 1
        note_ending(world, p)
    return count
