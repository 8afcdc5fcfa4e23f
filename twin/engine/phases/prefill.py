"""Phase: prefill instances look up the memory pool, form batches, compute, and store new blocks."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from twin.engine.clock import add_at, spread
from twin.engine.lists import append, heap_push, pop, remove_after
from twin.engine.world import (
    FINISHED,
    FINISHED_PREFILL,
    FIRST_OPERATOR,
    FLOPS,
    HBM_BYTES,
    HIT_TOKENS,
    NONE,
    PREFILL_BATCHES,
    PREFILL_BEGUN,
    PREFILL_BUSY_S,
    PREFILL_TOKENS,
    PREFILLED,
    PREFILLING,
    PROMPT_TOKENS,
    RDMA_BYTES,
    TRANSFERRING,
    UB_BYTES,
    World,
)
from twin.model.prefill import prefill_batch_s, prefill_flops, prefill_hbm_bytes, prefill_hits_s
from twin.serving.batching import tokens_to_take
from twin.serving.memory_pool import keep_chain, matched_blocks
from twin.serving.rng import uniform


@njit(cache=True)
def prefill(world: World, t1: float) -> None:
    """Advance every prefill instance to t1: batches end and begin at their exact times."""
    state = world.prefill
    for p in range(state.queue_head.size):
        while True:
            if state.running[p]:
                if state.ends_s[p] > t1:
                    break
                finish_batch(world, p)
            head = state.queue_head[p]
            if head == NONE:
                break
            start_s = max(state.free_s[p], world.request.ready_s[head])
            if start_s > t1:
                break
            start_batch(world, p, start_s)


@njit(cache=True)
def cached_tokens(world: World, p: int, i: int) -> int:
    """Tokens of a request that the memory pool holds now."""
    settings = world.settings
    request = world.request
    if not settings.pool_enabled:
        return 0
    blocks = matched_blocks(
        world.pool,
        p if settings.pool_local else 0,
        request.segment_first,
        request.segment_blocks,
        request.segment_offset[i],
        request.segment_offset[i + 1],
    )
    # The last token is always computed: its logits give the first answer token.
    length = request.input_tokens[i] + request.emitted[i]
    return int(min(blocks * settings.block_tokens, request.input_tokens[i], length - 1))


@njit(cache=True)
def begin_pass(world: World, i: int, hit: int, now_s: float) -> None:
    """A request's prefill begins, with `hit` cached tokens."""
    settings = world.settings
    request = world.request
    length = request.input_tokens[i] + request.emitted[i]
    request.progress[i] = hit
    if request.emitted[i] == 0:
        request.hit_tokens[i] = hit
        request.prefill_start_s[i] = now_s
        book = world.record.windows
        horizon_s, warmup_s = settings.horizon_s, settings.warmup_s
        add_at(book, now_s, PROMPT_TOKENS, float(length), horizon_s, warmup_s)
        add_at(book, now_s, HIT_TOKENS, float(hit), horizon_s, warmup_s)
    request.status[i] = PREFILLING
    world.record.counters[PREFILL_BEGUN] += 1


@njit(cache=True)
def start_batch(world: World, p: int, now_s: float) -> None:
    """Form a batch from what has been routed by now_s and set when it ends."""
    taken, hits, pairs = form_batch(world, p, now_s)
    run_batch(world, p, now_s, taken, hits, pairs)


@njit(cache=True)
def form_batch(world: World, p: int, now_s: float) -> tuple[int, int, float]:
    """Move pieces of queued prompts into the batch, first come, first served.

    Returns the tokens to compute, the cached tokens to fetch, and the attention pairs.
    """
    settings = world.settings
    request = world.request
    state = world.prefill
    state.die_tokens[:] = 0.0
    state.die_pairs[:] = 0.0
    taken, held_by_batch, hits, pairs = 0, 0, 0, 0.0
    before = NONE
    i = state.queue_head[p]
    while i != NONE and request.ready_s[i] <= now_s and taken < settings.prefill_budget:
        begins = request.progress[i] == NONE
        held = cached_tokens(world, p, i) if begins else request.progress[i]
        remaining = request.input_tokens[i] + request.emitted[i] - held
        take = tokens_to_take(
            remaining, settings.prefill_budget - taken, settings.chunk_tokens, taken == 0
        )
        if taken > 0 and held_by_batch + held + take > settings.batch_kv_tokens:
            take = 0
        if take <= 0:
            break
        if begins:
            begin_pass(world, i, held, now_s)
            hits += held
        new_pairs = take * (held + 0.5 * (take + 1))
        if settings.data_parallel_attention:
            to_lightest_die(state.die_tokens, state.die_pairs, float(take), new_pairs)
        taken += take
        held_by_batch += held + take
        pairs += new_pairs
        request.progress[i] += take
        following = request.following[i]
        if take == remaining:
            remove_after(state.queue_head, state.queue_tail, p, request.following, before, i)
            append(state.batch_head, state.batch_tail, p, request.following, i)
        else:
            before = i
        i = following
    return taken, hits, pairs


@njit(cache=True)
def to_lightest_die(
    die_tokens: np.ndarray, die_pairs: np.ndarray, tokens: float, pairs: float
) -> None:
    """Data-parallel attention: the whole piece goes to the die with the fewest tokens so far."""
    best = 0
    for r in range(1, die_tokens.size):
        if die_tokens[r] < die_tokens[best]:
            best = r
    die_tokens[best] += tokens
    die_pairs[best] += pairs


@njit(cache=True)
def run_batch(world: World, p: int, now_s: float, taken: int, hits: int, pairs: float) -> None:
    """Set the end of a batch: fetch the hits, then compute; book what it uses."""
    settings = world.settings
    state = world.prefill
    costs = world.costs
    ranks = settings.prefill_ranks
    die_tokens, die_pairs = taken / ranks, pairs / ranks
    if settings.data_parallel_attention:
        die_tokens, die_pairs = 0.0, 0.0
        for r in range(ranks):
            die_tokens = max(die_tokens, state.die_tokens[r])
            die_pairs = max(die_pairs, state.die_pairs[r])
    operators = costs.prefill_operators
    operators[:] = 0.0
    compute_s = prefill_batch_s(
        costs.prefill,
        float(taken),
        pairs,
        die_tokens,
        die_pairs,
        costs.prefill_hot_tokens,
        costs.prefill_hot_factor,
        operators,
    )
    if hits > 0:
        compute_s += prefill_hits_s(costs.prefill, float(hits), operators)
    fetched = hits * settings.kv_bytes_per_token
    fetch_s = 0.0
    if hits > 0:
        fetch_s = settings.fetch_latency_s + fetched / state.fetch_bytes_per_s[p]
        state.fetched_bytes[p] += fetched
        book_one(world, now_s, now_s + fetch_s, settings.pool_plane, fetched)
    end_s = now_s + fetch_s + compute_s
    state.running[p] = 1
    state.ends_s[p] = end_s
    state.busy_s[p] += min(end_s, settings.horizon_s) - now_s
    book_batch(world, p, now_s, end_s, float(taken), pairs, fetch_s)


@njit(cache=True)
def book_one(world: World, begin_s: float, end_s: float, field: int, amount: float) -> None:
    """Book one amount over a span."""
    record = world.record
    record.fields[0] = field
    record.amounts[0] = amount
    spread(
        record.windows,
        begin_s,
        end_s,
        record.fields,
        record.amounts,
        1,
        world.settings.horizon_s,
        world.settings.warmup_s,
    )


@njit(cache=True)
def book_batch(
    world: World, p: int, begin_s: float, end_s: float, taken: float, pairs: float, fetch_s: float
) -> None:
    """Book a batch: time, tokens, operators, and the bytes that its collectives move."""
    settings = world.settings
    record = world.record
    operators = world.costs.prefill_operators
    p_vector = world.costs.prefill
    ub_bytes = taken * settings.prefill_ub_bytes_per_token
    record.fields[0], record.amounts[0] = PREFILL_BATCHES, 1.0
    record.fields[1], record.amounts[1] = PREFILL_BUSY_S, end_s - begin_s
    record.fields[2], record.amounts[2] = PREFILL_TOKENS, taken
    record.fields[3], record.amounts[3] = UB_BYTES, ub_bytes
    record.fields[4], record.amounts[4] = RDMA_BYTES, taken * settings.prefill_rdma_bytes_per_token
    record.fields[5], record.amounts[5] = HBM_BYTES, prefill_hbm_bytes(p_vector, taken, pairs)
    record.fields[6], record.amounts[6] = FLOPS, prefill_flops(p_vector, taken, pairs)
    first = FIRST_OPERATOR + world.costs.decode_operators.size
    for k in range(operators.size):
        record.fields[7 + k] = first + k
        record.amounts[7 + k] = operators[k]
    record.fields[7 + operators.size] = first + operators.size
    record.amounts[7 + operators.size] = fetch_s
    horizon_s, warmup_s = settings.horizon_s, settings.warmup_s
    count = 8 + operators.size
    spread(
        record.windows, begin_s, end_s, record.fields, record.amounts, count, horizon_s, warmup_s
    )
    moved = ub_bytes + taken * settings.prefill_rdma_bytes_per_token
    record.fields[0], record.amounts[0] = p, moved
    spread(
        record.prefill_bytes, begin_s, end_s, record.fields, record.amounts, 1, horizon_s, warmup_s
    )


@njit(cache=True)
def finish_batch(world: World, p: int) -> None:
    """End the running batch: keep its blocks, hand its requests on."""
    settings = world.settings
    request = world.request
    state = world.prefill
    end_s = state.ends_s[p]
    state.running[p] = 0
    state.free_s[p] = end_s
    while True:
        i = pop(state.batch_head, state.batch_tail, p, request.following)
        if i == NONE:
            break
        state.queued_tokens[p] -= request.input_tokens[i] + request.emitted[i]
        if settings.pool_enabled:
            store_blocks(world, p, i)
        if request.emitted[i] == 0:
            request.prefill_end_s[i] = end_s
        request.ready_s[i] = end_s + settings.transfer_latency_s
        world.record.counters[PREFILLED] += 1
        if settings.has_decode:
            request.status[i] = TRANSFERRING
            transfer = world.transfer
            append(transfer.fresh_head, transfer.fresh_tail, 0, request.following, i)
        else:  # prefill_only: the first token is the end
            request.transfer_end_s[i] = end_s
            request.finish_s[i] = end_s
            request.status[i] = FINISHED
            world.record.counters[FINISHED_PREFILL] += 1
            come_back(world, i, end_s)


@njit(cache=True)
def store_blocks(world: World, p: int, i: int) -> None:
    """Keep the prompt's blocks in the memory pool, most useful last."""
    request = world.request
    begin, end = request.segment_offset[i], request.segment_offset[i + 1]
    blocks = 0
    for s in range(begin, end):
        blocks += request.segment_blocks[s]
    keep_chain(
        world.pool,
        p if world.settings.pool_local else 0,
        request.segment_first,
        request.segment_blocks,
        begin,
        end,
        blocks,
    )


@njit(cache=True)
def come_back(world: World, i: int, now_s: float) -> None:
    """In a closed loop, tell when the client of a request that ended asks again."""
    settings = world.settings
    if settings.closed_loop:
        pause_s = 0.0
        if settings.think_s > 0.0:
            pause_s = -settings.think_s * math.log(uniform(settings.key_think, i))
        heap_push(world.loop.due_s, world.loop.size, now_s + pause_s)
