"""What a batch reads from the memory pool and what it leaves there.

Lookups happen when a prompt joins a batch and stores when the batch ends: the phases of
prefill and of colocated instances call these functions, which have no clock of their own."""

from twin.engine import codes as w
from twin.engine.books import add_at, record_busy, record_traffic
from twin.engine.clients.returns import tenant_of, turn_of
from twin.engine.columns import World
from twin.engine.contention.streams import (
    add_to_stream,
    batch_read_end_s,
    drop_stream,
    list_stream,
    stream_end_s,
)
from twin.engine.contention.traffic import hot_server, new_read_rate, set_server_loads
from twin.engine.lists import fill
from twin.kernels.compiled import kernel
from twin.policies.batching import fetch_pays
from twin.policies.memory_pool import (
    add_requested_blocks,
    count_absent,
    matched_blocks,
    set_clock,
    use_chain,
)


@kernel
def pool_row(world: World, p: int, i: int) -> int:
    """Row, in the tables of memory pools, of request i's blocks for prefill instance p."""
    table_row = int(world.prefill.pool[p])
    if world.settings.namespaces > 1:
        return table_row * world.settings.namespaces + tenant_of(world, i)
    return table_row


@kernel
def set_pool_clock(world: World, p: int, now_s: float) -> None:
    """Set the clock of both tiers of instance p's memory pool, before a lookup or a store."""
    if world.settings.pool_enabled:
        namespaces = world.settings.namespaces
        first_row = world.prefill.pool[p] * namespaces
        for table_row in range(first_row, first_row + namespaces):
            set_clock(world.pool, table_row, now_s)
            set_clock(world.ssd, table_row, now_s)


@kernel
def cached_tokens(world: World, p: int, i: int, hbm_blocks: int) -> int:
    """Tokens of request i that instance p would not compute now: those of the first `hbm_blocks`
    blocks, which its HBM has, and those that it would read from the memory table_row."""
    settings, request, hits = world.settings, world.request, hbm_blocks
    if settings.pool_enabled and world.prefill.pool_open[p]:
        table_row, turn_row = pool_row(world, p, i), turn_of(world, i)
        ssd_open = world.prefill.ssd_bytes_per_s[p] > 0.0
        hits = matched_blocks(
            world.pool, world.ssd, ssd_open, table_row, request, turn_row, hbm_blocks
        )
        if ssd_open and hits > hbm_blocks and not is_worth_reading(world, p, i, hits, hbm_blocks):
            hits = matched_blocks(
                world.pool, world.ssd, False, table_row, request, turn_row, hbm_blocks
            )
        if hits > hbm_blocks and not is_worth_reading(world, p, i, hits, hbm_blocks):
            hits = hbm_blocks
    # The last token is always computed: its logits give the first answer token.
    prompt_tokens = request.input_tokens[i] + request.emitted[i]
    return int(min(hits * settings.block_tokens, request.input_tokens[i], prompt_tokens - 1))


@kernel
def is_worth_reading(world: World, p: int, i: int, blocks: int, hbm_blocks: int) -> bool:
    """Whether instance p reads request i's blocks hbm_blocks..blocks - 1 at least as fast as it
    would compute them."""
    settings, prefill = world.settings, world.prefill
    read_tokens = float((blocks - hbm_blocks) * settings.block_tokens)
    read_s = settings.fetch_latency_s + read_tokens * prefill.ahead_s_per_token[p]
    read_s += read_tokens * prefill.read_bytes_per_token[p] / prefill.read_bytes_per_s[p]
    ssd_blocks = count_ssd_blocks(world, p, i, blocks, hbm_blocks)
    if ssd_blocks > 0:  # comes in while the batch before computes
        read_s = max(read_s, ssd_blocks * settings.block_bytes / prefill.ssd_bytes_per_s[p])
    return fetch_pays(read_s, read_tokens * prefill.recompute_s_per_token[p])


@kernel
def count_ssd_blocks(world: World, p: int, i: int, blocks: int, hbm_blocks: int) -> int:
    """Number of request i's blocks hbm_blocks..blocks - 1 that only the SSD tier of instance p's
    memory pool holds."""
    table_row = pool_row(world, p, i)
    return count_absent(world.pool, table_row, world.request, turn_of(world, i), blocks, hbm_blocks)


@kernel
def count_reads(world: World, p: int, i: int, cached: int, hbm_blocks: int) -> int:
    """Count the blocks of request i's first `cached` tokens, except the first `hbm_blocks` blocks,
    as read by prefill instance p from their memory servers. Blocks that only the SSD tier has are
    put into DRAM; returns their number."""
    streams = world.streams
    end_block = -(-cached // world.settings.block_tokens)
    add_requested_blocks(
        world.request, turn_of(world, i), end_block, hbm_blocks, streams.answers[p],
        streams.parts[p], streams.home[p], streams.requested[p],
    )  # fmt: skip
    ssd_blocks = count_ssd_blocks(world, p, i, end_block, hbm_blocks)
    if ssd_blocks > 0:
        use_chain(world.pool, pool_row(world, p, i), world.request, turn_of(world, i), end_block)
    return ssd_blocks


@kernel
def begin_reading(world: World, p: int, now_s: float) -> None:
    """Begin to read the cached KV of instance p's batch, from SSD where DRAM does not have it."""
    settings, prefill, streams = world.settings, world.prefill, world.streams
    record, ssd_bytes = world.record, prefill.cold_blocks[0] * settings.block_bytes
    prefill.reading[p] = 1
    if ssd_bytes > 0.0:
        add_to_stream(world, w.RECALLS * settings.prefills + p, now_s, ssd_bytes)
    read_stream = w.READS * settings.prefills + p  # the stream of this read
    # The last batch's read is through, and perhaps not recorded yet.
    drop_stream(world, read_stream, now_s)
    begin_s = now_s + settings.fetch_latency_s
    begin_s += prefill.batch_reads[p] * prefill.ahead_s_per_token[p]
    read_bytes = prefill.batch_reads[p] * prefill.read_bytes_per_token[p]
    streams.since_s[read_stream] = begin_s
    set_server_loads(world, p)
    server_count = streams.requested.shape[1]
    for server in range(server_count):
        if streams.requested[p, server] > 0:
            server_row = prefill.pool[p] * server_count + server
            add_at(record.servers, now_s, server_row, float(streams.requested[p, server]), settings)
    streams.rate[read_stream] = new_read_rate(world, p, begin_s, read_bytes)
    streams.left_bytes[read_stream] = read_bytes
    list_stream(world, read_stream)
    prefill.fetched_bytes[p] += read_bytes
    prefill.read_end_s[p] = batch_read_end_s(world, p)
    streams.hot[p] = hot_server(world, p)
    streams.even_s[p] = begin_s + read_bytes / prefill.read_bytes_per_s[p]


@kernel
def clear_servers(world: World, p: int) -> None:
    """Clear the counts of blocks that instance p's last batch read from each memory server."""
    streams = world.streams
    fill(streams.requested[p], 0)
    streams.hot[p], streams.held_s[p] = w.NONE, 0.0


@kernel
def record_read_delay(world: World, p: int) -> None:
    """Record the seconds by which a hot memory server delayed the read of instance p's batch."""
    streams = world.streams
    server = streams.hot[p]
    if server == w.NONE:
        return
    end_s = stream_end_s(world, w.READS * streams.hot.size + p)
    streams.held_s[p] = max(0.0, end_s - streams.even_s[p])
    first_server_row = world.prefill.pool[p] * streams.requested.shape[1]
    begin_s = world.prefill.begin_s[p]
    add_at(world.record.held, begin_s, first_server_row + server, streams.held_s[p], world.settings)


def stop_reading(world: World, p: int, now_s: float) -> None:
    """Cancel the read of cached KV of instance p's batch, which is given up."""
    if world.prefill.reading[p]:
        drop_stream(world, w.READS * world.settings.prefills + p, now_s)
        drop_stream(world, w.RECALLS * world.settings.prefills + p, now_s)
        column = world.settings.prompt_row + p  # it was busy, and will not compute
        record_busy(world, column, world.prefill.begin_s[p], now_s, 1.0)
        world.prefill.reading[p] = 0


@kernel
def write_blocks(world: World, p: int, now_s: float, before: tuple[int, int]) -> None:
    """Write new blocks of instance p's memory pool to DRAM and to the SSD tier during the next
    batch. before: numbers of blocks that were ever stored in (DRAM, SSD) before the new ones."""
    settings = world.settings
    dram_blocks, ssd_blocks = blocks_stored(world, p)
    new_blocks = (w.WRITES, dram_blocks - before[0]), (w.ARCHIVES, ssd_blocks - before[1])
    for stream_kind, block_count in new_blocks:
        if block_count > 0:
            new_bytes = block_count * settings.block_bytes
            add_to_stream(world, stream_kind * settings.prefills + p, now_s, new_bytes)


@kernel
def store_blocks(world: World, p: int, i: int, tokens: int) -> None:
    """Store the blocks of request i's first `tokens` tokens in both tiers of instance p's pool."""
    request, blocks = world.request, tokens // world.settings.block_tokens
    table_row, turn_row = pool_row(world, p, i), turn_of(world, i)
    use_chain(world.pool, table_row, request, turn_row, blocks)
    if world.prefill.ssd_bytes_per_s[p] > 0.0:
        use_chain(world.ssd, table_row, request, turn_row, blocks)


@kernel
def store_answer(world: World, i: int, now_s: float) -> None:
    """Store the blocks of request i's finished answer behind those of its prompt. Their writes by
    decode dies are recorded but take no share of a link: tens of MB/s of a die."""
    settings, request = world.settings, world.request
    prefill_instance = request.prefill_instance[i]
    if prefill_instance == w.NONE or not world.prefill.pool_open[prefill_instance]:
        return
    set_pool_clock(world, prefill_instance, now_s)
    blocks_before = blocks_stored(world, prefill_instance)
    store_blocks(world, prefill_instance, i, request.input_tokens[i] + request.output_tokens[i])
    dram_blocks, _ = blocks_stored(world, prefill_instance)
    write_blocks(world, prefill_instance, now_s, (dram_blocks, blocks_before[1]))
    column = settings.prefills + request.rank[i] // settings.decode_ranks
    begin_s = request.transfer_end_s[i]
    stored_bytes = (dram_blocks - blocks_before[0]) * settings.block_bytes
    record_traffic(world, w.POOL_WRITE, settings.pool_plane, column, begin_s, now_s, stored_bytes)


@kernel
def blocks_stored(world: World, p: int) -> tuple[int, int]:
    """Number of blocks ever stored in DRAM, and in SSD, in the rows that instance p uses."""
    namespaces, dram_blocks, ssd_blocks = world.settings.namespaces, 0, 0
    first_row = world.prefill.pool[p] * namespaces
    for table_row in range(first_row, first_row + namespaces):
        dram_blocks += world.pool.used[table_row] + world.pool.evicted[table_row]
        ssd_blocks += world.ssd.used[table_row] + world.ssd.evicted[table_row]
    return dram_blocks, ssd_blocks
