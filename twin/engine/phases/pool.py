"""What a batch reads from the memory pool and what it leaves there.

Lookups happen when a prompt joins a batch and stores when the batch ends, so this is asked by the
phases of prefill and of colocated instances; it has no clock of its own.
"""

from __future__ import annotations

from twin.compiled import kernel
from twin.engine.clock import spread
from twin.engine.codes import (
    AT_BUSY_S,
    AT_FIELDS,
    DECODE_BUSY_S,
    PREFILL_BUSY_S,
    SSD_READ,
    VPC,
)
from twin.engine.columns import World
from twin.engine.phases.books import book_one, book_traffic
from twin.engine.phases.streams import ARCHIVES, READS, WRITES, add_to_stream, drop_stream, end_of
from twin.engine.phases.traffic import first_rate
from twin.policies.memory_pool import keep_chain, matched_blocks, warm_chain


@kernel
def cached_tokens(world: World, p: int, i: int) -> int:
    """Tokens of a request that the memory pool holds now."""
    settings = world.settings
    request = world.request
    if not settings.pool_enabled or not world.prefill.pool_open[p]:
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


@kernel
def warm(world: World, p: int, i: int, held: int) -> int:
    """Cached tokens of a request that come from the SSD tier; they are in DRAM again after."""
    request = world.request
    settings = world.settings
    blocks = warm_chain(
        world.pool,
        p if settings.pool_local else 0,
        request.segment_first,
        request.segment_blocks,
        request.segment_offset[i],
        request.segment_offset[i + 1],
        -(-held // settings.block_tokens),
    )
    return int(min(held, blocks * settings.block_tokens))


@kernel
def begin_reading(world: World, p: int, column: int, now_s: float) -> None:
    """Read a batch's cached KV: what the pool's DRAM lost from the SSD tier, the rest after it."""
    settings = world.settings
    state = world.prefill
    streams = world.streams
    cold = state.cold_tokens[0] * settings.kv_bytes_per_token
    left = state.batch_hits[p] * settings.kv_bytes_per_token - cold
    begin_s = now_s
    if cold > 0.0:
        begin_s += cold / state.ssd_bytes_per_s[p]
        book_traffic(world, SSD_READ, VPC, column, now_s, begin_s, cold)
    v = READS * state.running.size + p
    state.reading[p] = 1
    drop_stream(world, v, now_s)  # the last batch's read is through, and perhaps not booked yet
    streams.since_s[v] = begin_s
    if left > 0.0:
        streams.since_s[v] += settings.fetch_latency_s
        streams.rate[v] = first_rate(world, p, column, streams.since_s[v], left)
        streams.left_bytes[v] = left
        state.fetched_bytes[p] += left
    state.read_end_s[p] = end_of(world, v)


@kernel
def stop_reading(world: World, p: int, now_s: float) -> None:
    """The batch that reads is given up."""
    if world.prefill.reading[p]:
        drop_stream(world, READS * world.prefill.running.size + p, now_s)
        book_reading(world, p, now_s)
        world.prefill.reading[p] = 0


@kernel
def book_reading(world: World, p: int, now_s: float) -> None:
    """A batch that reads and never comes to compute has kept its instance busy until now."""
    settings, state, record = world.settings, world.prefill, world.record
    spent_s = max(0.0, now_s - state.begin_s[p])
    column, busy = p, PREFILL_BUSY_S
    if settings.colocated:
        column, busy = state.running.size + p, DECODE_BUSY_S
        world.decode.busy_s[p] += spent_s
    else:
        state.busy_s[p] += spent_s
    book_one(world, state.begin_s[p], now_s, busy, spent_s)
    record.fields[0], record.amounts[0] = column * AT_FIELDS + AT_BUSY_S, spent_s
    spread(
        record.instances, state.begin_s[p], now_s, record.fields, record.amounts, 1,
        settings.horizon_s, settings.warmup_s,
    )  # fmt: skip


@kernel
def write_blocks(world: World, p: int, now_s: float, blocks: int) -> None:
    """New blocks go to the pool's DRAM beside the next batch, and on to the SSD tier."""
    instances = world.prefill.running.size
    size = blocks * world.settings.block_bytes
    add_to_stream(world, WRITES * instances + p, now_s, size)
    add_to_stream(world, ARCHIVES * instances + p, now_s, size)


@kernel
def store_blocks(world: World, p: int, i: int) -> int:
    """Keep the prompt's blocks in the memory pool, most useful last; returns how many are new."""
    request = world.request
    row = p if world.settings.pool_local else 0
    before = world.pool.used[row] + world.pool.evicted[row]
    begin, end = request.segment_offset[i], request.segment_offset[i + 1]
    blocks = 0
    for s in range(begin, end):
        blocks += request.segment_blocks[s]
    keep_chain(world.pool, row, request.segment_first, request.segment_blocks, begin, end, blocks)
    return int(world.pool.used[row] + world.pool.evicted[row] - before)
