"""Phase: the router reserves decode room first, then chooses a prefill instance (section 4.3.3).

Requests leave in order; the first that finds no decode room holds those behind it until a later
step's border shows room. Requests that decode preempted go first.
"""

from __future__ import annotations

from twin.compiled import kernel
from twin.engine.codes import (
    FRONTED,
    NONE,
    OUTGREW_DECODE,
    REJECTED,
    REJECTED_ROUTER,
    ROUTED,
    ROUTER_SEEN,
    TOO_LONG_FOR_DECODE,
    TOO_LONG_FOR_PREFILL,
    TRANSFERRED,
)
from twin.engine.columns import World
from twin.engine.lists import any_of, append, pop, total
from twin.engine.phases.prefill import come_back
from twin.policies.memory_pool import matched_blocks
from twin.policies.router import choose_instance, choose_rank
from twin.rng import uniform

ROUNDING = 1.0 - 1e-9  # more than sums of loads can be off


@kernel
def router(world: World, t0: float, t1: float) -> None:
    """Route what left the front end by t1."""
    request = world.request
    decode = world.decode
    counters = world.record.counters
    if decode.returned_head[0] == NONE and counters[ROUTER_SEEN] == counters[FRONTED]:
        return
    refresh_view(world)
    now_s = t0
    while True:
        returned = decode.returned_head[0]
        if returned != NONE:
            i = returned
        elif counters[ROUTER_SEEN] < counters[FRONTED]:
            i = counters[ROUTER_SEEN]
        else:
            break
        if request.ready_s[i] > t1:
            break
        now_s = max(now_s, request.ready_s[i])
        reason = unservable(world, i)
        if reason == 0 and not place(world, i, now_s):
            break
        if returned != NONE:
            pop(decode.returned_head, decode.returned_tail, 0, request.following)
        else:
            counters[ROUTER_SEEN] += 1
        if reason != 0:
            request.status[i] = REJECTED
            request.reason[i] = reason
            request.ready_s[i] = now_s
            counters[REJECTED_ROUTER] += 1
            come_back(world, i, now_s)
        else:
            hand_on(world, i, now_s)


@kernel
def refresh_view(world: World) -> None:
    """What the router sees of the decode ranks: loads as of this border."""
    decode = world.decode
    view, context = decode.taken_tokens, decode.context
    reserved, taken = decode.reserved_tokens, decode.taken_slots
    floor = decode.floor
    page = 0.5 * world.settings.page_tokens
    for r in range(context.size):
        view[r] = context[r] + reserved[r] + taken[r] * page
    ranks = world.settings.decode_ranks
    for d in range(decode.taken.size):
        decode.all_tokens[d] = total(view[d * ranks : (d + 1) * ranks])
        for b in range(floor.shape[1]):  # what was summed anew may have been rounded down
            floor[d, b] *= ROUNDING


@kernel
def unservable(world: World, i: int) -> int:
    """Reason code of a request that can never be served, 0 for the others."""
    settings = world.settings
    length = world.request.input_tokens[i] + world.request.emitted[i]
    if settings.has_decode and not any_of(world.decode.kv_tokens, length + settings.page_tokens):
        return OUTGREW_DECODE if world.request.emitted[i] > 0 else TOO_LONG_FOR_DECODE
    if settings.has_prefill and length > settings.prompt_kv_tokens:
        return TOO_LONG_FOR_PREFILL
    return 0


@kernel
def place(world: World, i: int, now_s: float) -> bool:
    """Reserve decode room and choose a prefill instance; False when there is no room."""
    settings = world.settings
    request = world.request
    instance = NONE
    if settings.has_prefill and (settings.colocated or not settings.has_decode):
        instance = choose_prefill(world, i, now_s)
        if instance == NONE:
            return False
    if settings.has_decode:
        if instance == NONE and settings.has_prefill and not any_of(world.prefill.open, 1):
            return False
        need = float(request.input_tokens[i] + request.emitted[i]) + 0.5 * settings.page_tokens
        rank = reserve(world, instance, need)
        if rank == NONE:
            return False
        request.rank[i] = rank
        world.decode.reserved_tokens[rank] += need - 0.5 * settings.page_tokens
        if instance == NONE and settings.has_prefill:
            instance = choose_prefill(world, i, now_s)
    request.prefill_instance[i] = instance
    return True


@kernel
def reserve(world: World, instance: int, need: float) -> int:
    """A decode rank with room for `need` tokens: in `instance` if colocated, else in the least
    taken instance that has room; NONE when there is none."""
    settings = world.settings
    decode = world.decode
    ranks = settings.decode_ranks
    best = instance
    if instance == NONE:
        best = 0
        for d in range(1, decode.taken.size):
            if decode.taken[d] < decode.taken[best]:
                best = d
    for k in range(decode.taken.size):
        d = (best + k) % decode.taken.size
        if k > 0 and settings.colocated:
            break
        if not decode.open[d] or decode.taken[d] >= decode.room[d]:
            continue
        first, end = d * ranks, (d + 1) * ranks
        place = choose_rank(
            settings.rank_choice,
            world.record.counters[ROUTED],
            decode.taken_slots[first:end],
            decode.taken_tokens[first:end],
            decode.taken[d],
            decode.all_tokens[d],
            decode.slots[first:end],
            decode.kv_tokens[d],
            need,
            decode.price[first:end],
            decode.floor[d],
        )
        if place != NONE:
            rank = first + place
            slots, tokens = max(decode.taken[d], 1), max(decode.all_tokens[d], 1.0)
            decode.taken[d] += 1
            decode.taken_slots[rank] += 1
            decode.taken_tokens[rank] += need
            decode.all_tokens[d] += need
            # A load counts both over their means: every load has grown by the lesser growth.
            grown = min(decode.taken[d] / slots, decode.all_tokens[d] / tokens)
            for b in range(decode.floor.shape[1]):
                decode.floor[d, b] *= max(grown * ROUNDING, 1.0)
            return rank
    return NONE


@kernel
def see_queues(world: World, now_s: float) -> None:
    """Put tokens waiting or in prefill at each instance as of now into `queue_view`.

    A batch that has ended within this step is gone from it: without that, how long a router keeps
    away from an instance that has just become free would hang on the step.
    """
    prefill = world.prefill
    running, ends_s = prefill.running, prefill.ends_s
    if world.settings.colocated:
        running, ends_s = world.decode.running, world.decode.ends_s
    for p in range(prefill.queue_view.size):
        gone = prefill.ending_tokens[p] if running[p] and ends_s[p] <= now_s else 0
        prefill.queue_view[p] = prefill.queued_tokens[p] - gone


@kernel
def choose_prefill(world: World, i: int, now_s: float) -> int:
    """The prefill (or colocated) instance that the policy picks."""
    settings = world.settings
    request = world.request
    see_queues(world, now_s)
    queued = world.prefill.queue_view
    # The pool's hits matter to one policy only; with a shared pool they are alike everywhere.
    hits = world.prefill.hit_view
    if settings.router_policy == 3 and settings.pool_enabled:
        for p in range(queued.size):
            row = p if settings.pool_local else 0
            if p > 0 and not settings.pool_local:
                hits[p] = hits[0]
                continue
            hits[p] = settings.block_tokens * matched_blocks(
                world.pool,
                world.ssd,
                world.prefill.ssd_bytes_per_s[p] > 0.0,
                row,
                request.segment_first,
                request.segment_blocks,
                request.segment_offset[i],
                request.segment_offset[i + 1],
            )
    draws = settings.router_policy == 2
    return choose_instance(
        settings.router_policy,
        world.record.counters[ROUTED],
        world.prefill.open,
        queued,
        hits,
        request.session[i],
        uniform(settings.key_route_a, i) if draws else 0.5,
        uniform(settings.key_route_b, i) if draws else 0.5,
    )


@kernel
def hand_on(world: World, i: int, now_s: float) -> None:
    """Stamp the request and give it to its prefill queue (or straight to decode)."""
    settings = world.settings
    request = world.request
    first_pass = request.emitted[i] == 0
    if first_pass:
        request.routed_s[i] = now_s
    request.ready_s[i] = now_s
    world.record.counters[ROUTED] += 1
    if settings.has_prefill:
        p = request.prefill_instance[i]
        prefill = world.prefill
        request.progress[i] = NONE
        prefill.queued_tokens[p] += request.input_tokens[i] + request.emitted[i]
        append(prefill.queue_head, prefill.queue_tail, p, request.following, i)
        return
    # decode_only: the KV is in place.
    if first_pass:
        request.prefill_start_s[i] = now_s
        request.prefill_end_s[i] = now_s
        request.transfer_end_s[i] = now_s
    world.record.counters[TRANSFERRED] += 1
    d = request.rank[i] // settings.decode_ranks
    append(world.decode.wait_head, world.decode.wait_tail, d, request.following, i)
