"""Phase: colocated instances prefill and decode in the same iterations.

Each iteration takes a piece of the waiting prompts beside the whole decode batch, so a long
prompt delays everyone's next token: the contrast that shows what disaggregation buys.
"""

from __future__ import annotations

from numba import njit

from twin.engine.clock import spread
from twin.engine.lists import pop
from twin.engine.phases.decode import (
    begin_iteration,
    book_iteration,
    join,
    make_room,
    settle,
    sit_through,
)
from twin.engine.phases.prefill import book_one, form_batch, store_blocks
from twin.engine.world import (
    NONE,
    PREFILL_BATCHES,
    PREFILL_TOKENS,
    PREFILLED,
    RDMA_BYTES,
    TRANSFERRED,
    UB_BYTES,
    World,
)
from twin.model.decode import decode_hbm_bytes
from twin.model.mixed import mixed_flops, mixed_iteration_s


@njit(cache=True)
def colocated(world: World, t1: float) -> None:
    """Advance every colocated instance to t1."""
    state = world.decode
    queue = world.prefill
    for c in range(state.running.size):
        while True:
            if state.running[c]:
                if state.ends_s[c] > t1:
                    break
                now_s = state.ends_s[c]
                settle(world, c, now_s)
                finish_pieces(world, c, now_s)
                make_room(world, c, now_s)
            else:
                head = queue.queue_head[c]
                if head == NONE:
                    break
                now_s = max(state.ends_s[c], world.request.ready_s[head])
                if now_s > t1:
                    break
            taken, hits, pairs = form_batch(world, c, now_s)
            if state.in_batch[c] > 0 or taken > 0:
                launch_mixed(world, c, now_s, taken, hits, pairs)
            else:
                state.running[c] = 0
                state.ends_s[c] = now_s


@njit(cache=True)
def finish_pieces(world: World, c: int, now_s: float) -> None:
    """Prompts whose last piece was in the iteration: first token out, they join the batch."""
    request = world.request
    queue = world.prefill
    while True:
        i = pop(queue.batch_head, queue.batch_tail, c, request.following)
        if i == NONE:
            break
        queue.queued_tokens[c] -= request.input_tokens[i] + request.emitted[i]
        if world.settings.pool_enabled:
            store_blocks(world, c, i)
        if request.emitted[i] == 0:
            request.prefill_end_s[i] = now_s
            request.transfer_end_s[i] = now_s
        request.ready_s[i] = now_s
        world.record.counters[PREFILLED] += 1
        world.record.counters[TRANSFERRED] += 1
        join(world, c, i, now_s)


@njit(cache=True)
def book_pieces(world: World, c: int, begin_s: float, end_s: float, taken: float) -> None:
    """Book the prompt tokens of an iteration, and the bytes that their experts move."""
    settings = world.settings
    record = world.record
    on_ub = taken * settings.prefill_ub_bytes_per_token
    on_rdma = taken * settings.prefill_rdma_bytes_per_token
    book_one(world, begin_s, end_s, PREFILL_TOKENS, taken)
    book_one(world, begin_s, end_s, PREFILL_BATCHES, 1.0)
    book_one(world, begin_s, end_s, UB_BYTES, on_ub)
    book_one(world, begin_s, end_s, RDMA_BYTES, on_rdma)
    record.fields[0], record.amounts[0] = c, on_ub + on_rdma
    spread(
        record.prefill_bytes, begin_s, end_s, record.fields, record.amounts, 1,
        settings.horizon_s, settings.warmup_s,
    )  # fmt: skip


@njit(cache=True)
def launch_mixed(world: World, c: int, now_s: float, taken: int, hits: int, pairs: float) -> None:
    """Begin an iteration over the decode batch and `taken` prompt tokens."""
    settings = world.settings
    state = world.decode
    queue = world.prefill
    costs = world.costs
    operators = costs.decode_operators
    operators[:] = 0.0
    took_s = mixed_iteration_s(
        costs.mixed,
        state.requests,
        state.context,
        c * settings.decode_ranks,
        settings.decode_ranks,
        float(taken),
        pairs,
        costs.decode_hot_tokens,
        costs.decode_hot_factor,
        operators,
    )
    if hits > 0:
        fetched = hits * settings.kv_bytes_per_token
        fetch_s = settings.fetch_latency_s + fetched / queue.fetch_bytes_per_s[c]
        queue.fetched_bytes[c] += fetched
        book_one(world, now_s, now_s + fetch_s, settings.pool_plane, fetched)
        took_s += fetch_s
    if taken > 0:
        book_pieces(world, c, now_s, now_s + took_s, float(taken))
    tokens, context = sit_through(world, c, now_s, now_s + took_s)
    total, dies = float(state.in_batch[c]), float(settings.decode_ranks)
    flops = mixed_flops(costs.mixed, total, context, dies, float(taken), pairs)
    hbm_bytes = decode_hbm_bytes(costs.mixed, total, context, dies)
    begin_iteration(world, c, now_s, took_s)
    book_iteration(world, c, now_s, now_s + took_s, tokens, context, hbm_bytes, flops)
