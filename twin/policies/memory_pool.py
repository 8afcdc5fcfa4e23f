"""Context caching: which KV blocks of prompts stay, and which go when room is needed. A prompt is a
chain of blocks (`Chains`) that hits as far as it is resident without a gap, and is touched from its
end to its start, so that no block is evicted before those that build on it.

LRU is one list. LFU has one for each number of uses up to 16 and takes the least recently used of
the lowest. S3-FIFO (SOSP 2023) lets new blocks pass a small queue; what was used there, or has left
it lately, stays in a main one. A time to live drops what was not touched for so long.

All arrays have one row per pool. DRAM and SSD are a `BlockPool` each (arXiv 2506.12708v2 4.4.1):
every block is written to both, and one that DRAM has evicted, or lost with a server (by a hash of
its id), is cold: read from the SSD tier at its next use, and in DRAM again after.

Above them is the prefix cache: blocks in HBM, those of running requests and those of finished ones
for which there is room (vLLM's automatic prefix caching, SGLang's RadixAttention). A row is one
cell: what stores the KV of a prompt whole. A block that requests use is pinned and in no list;
requests with the same prefix share it. One that no request uses is idle and stays until its room is
needed; the least recently released goes first, of one request the end of its chain before the start
(vLLM: block_pool.py, free_block_queue)."""

from typing import Any, Protocol

import numpy as np

from twin.kernels import borrowed  # noqa: F401 - tells numba what columns are
from twin.kernels.buffers import Columns, f8, i1, i2, i4, i8, number
from twin.kernels.compiled import entry, kernel
from twin.kernels.rng import bits

LRU, LFU, S3_FIFO, TTL = range(4)
POLICIES = {"lru": LRU, "lfu": LFU, "s3_fifo": S3_FIFO, "ttl": TTL, "infinite": LRU}
LEVELS = {LRU: 1, LFU: 16, S3_FIFO: 2, TTL: 1}  # lists of a policy, by its code
SMALL, MAIN = 0, 1  # queues of S3-FIFO
SMALL_SHARE = 10  # the small queue has one block in so many
ABSENT = -2  # in `newer`: the block is not resident
PINNED = -3  # in `newer`: requests use the block, in HBM
NONE = -1  # end of the list


class BlockPool(Columns):
    """Resident blocks as a doubly linked list from most to least recently used."""

    newer = i4("pools, blocks", "More recent, NONE or ABSENT.", fill=ABSENT, by="memory_pool")
    older = i4("pools, blocks", "Next less recent resident block.", by="memory_pool")
    newest = i4("pools, levels", "Most recent block.", fill=NONE, by="memory_pool")
    oldest = i4("pools, levels", "Least recent block.", fill=NONE, by="memory_pool")
    held = i8("pools, levels", "Blocks in a list.", by="memory_pool")
    level = i1("pools, ranked", "List of a block.", by="memory_pool")
    uses = i1("pools, ranked", "Uses of a block, 3 at most.", by="memory_pool")
    ghost = i8("pools, ranked", "When it left the small queue, 0: not.", by="memory_pool")
    gone = i8("pools", "Blocks that left the small queue.", by="memory_pool")
    touched_s = f8("pools, timed", "Last touch.", "s", by="memory_pool")
    now_s = f8("pools", "Time of the last look.", "s", by="memory_pool")
    policy = number(int, "Code of the policy.")
    ttl_s = number(float, "Time to live, of the policy that has one.", unit="s")
    used = i8("pools", "Resident blocks.", by="memory_pool")
    capacity = i8("pools", "Blocks that fit.", fill=None, by="memory_pool")
    evicted = i8("pools", "Blocks evicted so far.", by="memory_pool")


class PrefixCache(Columns):
    """Who uses the blocks in HBM; a row per cell, and one per request."""

    users = i2("kv_cells, cached", "Requests that use a block.", by="memory_pool")
    idle = i8("kv_cells", "Blocks that no request uses.", by="memory_pool")
    pins = i8("kv_cells", "Blocks used, once for each user.", by="memory_pool")
    begun_tokens = f8("kv_cells", "Of prompts whose pass has begun.", "tokens", by="in_hbm")
    cell = i4("pinning", "Where a prompt's KV is.", fill=NONE, by="in_hbm")
    pinned = i4("pinning", "Blocks of its chain that it uses.", by="in_hbm")
    own_tokens = i4("pinning", "Its part of `begun_tokens`.", "tokens", by="in_hbm")


class Chains(Protocol):
    """Prompts as chains of blocks: runs of consecutive ids, chain k from segment_offset[k] on."""

    segment_offset: np.ndarray
    segment_first: np.ndarray
    segment_blocks: np.ndarray


def empty_pool(
    pools: int, blocks: int, capacity_blocks: int | np.ndarray, policy: str = "lru",
    ttl_s: float = 0.0,
) -> BlockPool:  # fmt: skip
    """Empty pool of `pools` rows for block ids below `blocks`. capacity_blocks: blocks that fit in
    every row, or i8[pools]; policy: a key of `POLICIES`."""
    policy_code = POLICIES[policy]
    column_sizes = {
        "pools": pools, "blocks": blocks, "levels": LEVELS[policy_code],
        "ranked": blocks if LEVELS[policy_code] > 1 else 1,
        "timed": blocks if policy == "ttl" else 1,
    }  # fmt: skip
    capacity = np.full(pools, capacity_blocks, np.int64)
    return BlockPool(column_sizes, capacity=capacity, policy=policy_code, ttl_s=ttl_s)


@kernel
def matched_blocks(
    pool: BlockPool, ssd: BlockPool, ssd_open: bool, row: int, chains: Chains, k: int, skip: int
) -> int:
    """Number of chain k's blocks before the first that is in neither tier (`pool`, or `ssd` if
    `ssd_open`) of pool `row`; the first `skip` blocks are not looked up."""
    matched_count = 0
    for segment in range(chains.segment_offset[k], chains.segment_offset[k + 1]):
        first_block = chains.segment_first[segment]
        for block in range(first_block, first_block + chains.segment_blocks[segment]):
            in_ssd = ssd_open and ssd.newer[row, block] != ABSENT
            if not in_ssd and pool.newer[row, block] == ABSENT and matched_count >= skip:
                return matched_count
            matched_count += 1
    return matched_count


@kernel
def count_absent(pool: BlockPool, row: int, chains: Chains, k: int, blocks: int, skip: int) -> int:
    """Number of the blocks skip..blocks - 1 of chain k that are not resident in pool `row`."""
    absent_count = 0
    for segment in range(chains.segment_offset[k], chains.segment_offset[k + 1]):
        first_block = chains.segment_first[segment]
        block_count = min(chains.segment_blocks[segment], blocks)
        for block in range(first_block + min(skip, block_count), first_block + block_count):
            absent_count += pool.newer[row, block] == ABSENT
        blocks -= block_count
        skip -= min(skip, block_count)
    return absent_count


@kernel
def unlink_run(pool: BlockPool, row: int, first: int, last: int) -> None:
    """Remove the blocks first..last, which are linked in this order, from their list in pool `row`;
    they stay counted in `used`. Policies of several lists give one block (first = last)."""
    newer_block = pool.newer[row, first]
    older_block = pool.older[row, last]
    level = 0
    if pool.newest.shape[1] > 1:
        level = pool.level[row, first]
        pool.held[row, level] -= 1
    if newer_block == NONE:
        pool.newest[row, level] = older_block
    else:
        pool.older[row, newer_block] = older_block
    if older_block == NONE:
        pool.oldest[row, level] = newer_block
    else:
        pool.newer[row, older_block] = newer_block


@kernel
def link_newest(pool: BlockPool, row: int, first: int, last: int) -> None:
    """Put the blocks first..last, which are linked in this order, at the most recent end of their
    list in pool `row`. Policies of several lists give one block (first = last)."""
    level = 0
    if pool.newest.shape[1] > 1:
        level = pool.level[row, first]
        pool.held[row, level] += 1
    newest_block = pool.newest[row, level]
    pool.newer[row, first] = NONE
    pool.older[row, last] = newest_block
    if newest_block == NONE:
        pool.oldest[row, level] = last
    else:
        pool.newer[row, newest_block] = last
    pool.newest[row, level] = first


@kernel
def drop_block(pool: BlockPool, row: int, block: int) -> None:
    """Remove a resident block from pool `row`."""
    unlink_run(pool, row, block, block)
    pool.newer[row, block] = ABSENT
    pool.used[row] -= 1


@kernel
def use_block(pool: BlockPool, row: int, block: int) -> None:
    """Count a use of a block in pool `row` under any policy. An absent block is stored, and evicts
    another one if the pool is full."""
    if pool.policy == TTL:
        pool.touched_s[row, block] = pool.now_s[row]
    if pool.newest.shape[1] == 1 and pool.newest[row, 0] == block:
        return
    if pool.newer[row, block] != ABSENT:
        if pool.policy == S3_FIFO:  # where it stands says when it came, not when it was used
            pool.uses[row, block] = min(pool.uses[row, block] + 1, 3)
            return
        unlink_run(pool, row, block, block)
        if pool.policy == LFU:
            pool.level[row, block] = min(pool.level[row, block] + 1, pool.newest.shape[1] - 1)
    elif pool.capacity[row] <= 0:  # a pool without room keeps nothing
        return
    else:
        if pool.used[row] >= pool.capacity[row]:
            evict_next(pool, row)
        pool.used[row] += 1
        if pool.policy == LFU:
            pool.level[row, block] = 0
        elif pool.policy == S3_FIFO:
            pool.uses[row, block] = 0
            pool.level[row, block] = MAIN if in_ghost_queue(pool, row, block) else SMALL
    link_newest(pool, row, block, block)


@kernel
def in_ghost_queue(pool: BlockPool, row: int, block: int) -> bool:
    """Whether S3-FIFO's ghost queue of pool `row` has the block: it is among the last that were
    evicted from the small queue, as many as the main queue has room for."""
    eviction_number = pool.ghost[row, block]
    main_blocks = pool.capacity[row] - pool.capacity[row] // SMALL_SHARE
    return bool(eviction_number > 0 and pool.gone[row] - eviction_number < main_blocks)


@kernel
def evict_next(pool: BlockPool, row: int) -> None:
    """Evict the block of pool `row` that its policy selects."""
    victim_block = NONE
    if pool.policy == S3_FIFO:
        victim_block = find_s3_fifo_victim(pool, row)
    else:
        for level in range(pool.newest.shape[1]):
            if victim_block == NONE:
                victim_block = pool.oldest[row, level]
    drop_block(pool, row, victim_block)
    pool.evicted[row] += 1


@kernel
def evict_oldest(pool: BlockPool, row: int, count: int) -> None:
    """Evict the `count` (none, if negative) least recent blocks of pool `row`, which has one list
    and at least so many blocks in it."""
    if count <= 0:
        return
    oldest_block = pool.oldest[row, 0]
    for _ in range(count):
        next_block = pool.newer[row, oldest_block]
        pool.newer[row, oldest_block] = ABSENT
        oldest_block = next_block
    pool.oldest[row, 0] = oldest_block
    if oldest_block == NONE:
        pool.newest[row, 0] = NONE
    else:
        pool.older[row, oldest_block] = NONE
    pool.used[row] -= count
    pool.evicted[row] += count


@kernel
def find_s3_fifo_victim(pool: BlockPool, row: int) -> int:
    """The block that S3-FIFO evicts next in pool `row`; used blocks move on in their queues."""
    while True:
        small_blocks = pool.held[row, SMALL]
        is_over_share = small_blocks * SMALL_SHARE >= pool.capacity[row]
        if small_blocks > 0 and (is_over_share or pool.held[row, MAIN] == 0):
            victim_block = pool.oldest[row, SMALL]
            if pool.uses[row, victim_block] <= 1:
                pool.gone[row] += 1
                pool.ghost[row, victim_block] = pool.gone[row]
                return victim_block
            unlink_run(pool, row, victim_block, victim_block)
            pool.uses[row, victim_block] = 0
            pool.level[row, victim_block] = MAIN
        else:
            victim_block = pool.oldest[row, MAIN]
            if pool.uses[row, victim_block] == 0:
                return victim_block
            unlink_run(pool, row, victim_block, victim_block)
            pool.uses[row, victim_block] -= 1
        link_newest(pool, row, victim_block, victim_block)


@kernel
def set_clock(pool: BlockPool, row: int, now_s: float) -> None:
    """Under the policy "ttl" set the clock of pool `row` and evict the blocks whose last use is
    longer ago than the time to live. Other policies ignore it."""
    if pool.policy != TTL:
        return
    pool.now_s[row] = now_s
    while pool.oldest[row, 0] != NONE:
        block = pool.oldest[row, 0]
        if pool.touched_s[row, block] >= now_s - pool.ttl_s:
            return
        evict_next(pool, row)


@kernel
def use_run(pool: BlockPool, row: int, first: int, end: int) -> None:
    """Count a use of the blocks end - 1 down to `first` in pool `row`, as `use_block` for each.
    With one list, blocks that are linked in order already, or all absent, move together."""
    newer, older = pool.newer[row], pool.older[row]
    while end > first:
        begin, absent_count = end - 1, 0
        if pool.newest.shape[1] > 1:
            pass
        elif newer[begin] == ABSENT:
            while begin > first and newer[begin - 1] == ABSENT:
                begin -= 1
            absent_count = end - begin
        else:
            while begin > first and newer[begin] == begin - 1:
                begin -= 1
        if pool.newest.shape[1] > 1 or absent_count > pool.capacity[row]:
            for block in range(end - 1, begin - 1, -1):
                use_block(pool, row, block)
        else:
            if absent_count == 0:
                unlink_run(pool, row, begin, end - 1)
            evict_oldest(pool, row, pool.used[row] + absent_count - pool.capacity[row])
            for block in range(begin + 1, begin + absent_count):
                newer[block] = block - 1
                older[block - 1] = block
            pool.used[row] += absent_count
            link_newest(pool, row, begin, end - 1)
            if pool.policy == TTL:
                pool.touched_s[row, begin:end] = pool.now_s[row]
        end = begin


@kernel
def use_chain(pool: BlockPool, row: int, chains: Chains, k: int, blocks: int) -> None:
    """Store chain k's first `blocks` blocks in pool `row` or count their use, last to first."""
    begin_segment, end_segment = chains.segment_offset[k], chains.segment_offset[k + 1]
    blocks_before = 0
    for segment in range(begin_segment, end_segment):
        blocks_before += chains.segment_blocks[segment]
    for segment in range(end_segment - 1, begin_segment - 1, -1):
        blocks_before -= chains.segment_blocks[segment]
        first_block = chains.segment_first[segment]
        stored_blocks = min(chains.segment_blocks[segment], blocks - blocks_before)
        use_run(pool, row, first_block, first_block + stored_blocks)


@kernel
def server_of(block: int, up: np.ndarray, servers: int) -> int:
    """Number of the server that holds a block: the first working one in an order that a hash of the
    block's id gives. up i1[servers]: 1 if a server works; servers: their number."""
    attempt = 0
    server: Any = NONE
    while server == NONE or not up[server]:
        # Mixed through and through: ids that follow each other must not share servers out evenly.
        server = np.int64(bits(np.uint64(attempt), block) >> np.uint64(33)) * servers >> 31
        attempt += 1
    return int(server)


@kernel
def add_requested_blocks(
    chains: Chains, k: int, blocks: int, skip: int, up: np.ndarray, parts: int, home: np.ndarray,
    requested: np.ndarray,
) -> None:  # fmt: skip
    """Count the blocks `skip` to `blocks` - 1 of chain k by the server that holds each, and add
    these counts to `requested` [servers].
    All DRAM is divided into `parts` equal parts. home [parts]: server of each part; up i1[parts]: 1
    if it is in use."""
    for segment in range(chains.segment_offset[k], chains.segment_offset[k + 1]):
        first_block = chains.segment_first[segment]
        block_count = min(chains.segment_blocks[segment], blocks)
        for block in range(first_block + min(skip, block_count), first_block + block_count):
            requested[home[server_of(block, up, parts)]] += 1
        blocks -= block_count
        skip -= min(skip, block_count)


@kernel
def pin_blocks(
    hbm: BlockPool, prefix: PrefixCache, cell: int, chains: Chains, k: int, first: int, end: int
) -> None:
    """Add a user to the blocks `first` to `end` - 1 of chain k in `cell`, the prefix cache in HBM
    of one rank or die. Absent blocks are stored there."""
    blocks_before = 0
    for segment in range(chains.segment_offset[k], chains.segment_offset[k + 1]):
        first_block, block_count = chains.segment_first[segment], chains.segment_blocks[segment]
        for block in range(
            first_block + max(first - blocks_before, 0),
            first_block + max(min(block_count, end - blocks_before), 0),
        ):
            if prefix.users[cell, block] == 0:
                if hbm.newer[cell, block] == ABSENT:
                    hbm.used[cell] += 1
                else:
                    unlink_run(hbm, cell, block, block)
                    prefix.idle[cell] -= 1
                hbm.newer[cell, block] = PINNED
            prefix.users[cell, block] += 1
            prefix.pins[cell] += 1
        blocks_before += block_count


@kernel
def unpin_blocks(
    hbm: BlockPool, prefix: PrefixCache, cell: int, chains: Chains, k: int, blocks: int
) -> None:
    """Remove a user from the first `blocks` blocks of chain k in `cell`, the prefix cache of one
    rank or die, from the last block to the first. Blocks without a user become idle."""
    begin_segment, end_segment = chains.segment_offset[k], chains.segment_offset[k + 1]
    blocks_before = 0
    for segment in range(begin_segment, end_segment):
        blocks_before += chains.segment_blocks[segment]
    for segment in range(end_segment - 1, begin_segment - 1, -1):
        blocks_before -= chains.segment_blocks[segment]
        first_block = chains.segment_first[segment]
        unpinned_blocks = max(min(int(chains.segment_blocks[segment]), blocks - blocks_before), 0)
        for block in range(first_block + unpinned_blocks - 1, first_block - 1, -1):
            prefix.users[cell, block] -= 1
            prefix.pins[cell] -= 1
            if prefix.users[cell, block] == 0:
                link_newest(hbm, cell, block, block)
                prefix.idle[cell] += 1


@kernel
def evict_idle(hbm: BlockPool, prefix: PrefixCache, cell: int, most_blocks: float) -> None:
    """Evict idle blocks, the least recently released first, until the prefix cache `cell` (of one
    rank or die) has at most `most_blocks` blocks or no idle one; updates `prefix.idle`."""
    while hbm.used[cell] > most_blocks and hbm.oldest[cell, 0] != NONE:
        drop_block(hbm, cell, hbm.oldest[cell, 0])
        hbm.evicted[cell] += 1
        prefix.idle[cell] -= 1


@entry
def lose_server(
    pool: BlockPool, ssd: BlockPool, row: int, server: int, up: np.ndarray, keeps_ssd: int
) -> int:
    """Drop the blocks of a server that fails from DRAM of pool `row` and, unless `keeps_ssd`, from
    SSD; returns the number of DRAM blocks. up i1[servers]: servers in use, with the failing one."""
    lost_blocks = 0
    for block in range(pool.newer.shape[1]):
        if pool.newer[row, block] == ABSENT or server_of(block, up, up.size) != server:
            continue
        drop_block(pool, row, block)
        lost_blocks += 1
        if not keeps_ssd and ssd.newer[row, block] != ABSENT:
            drop_block(ssd, row, block)
    return lost_blocks


@entry
def resize_pool(pool: BlockPool, row: int, capacity_blocks: int) -> None:
    """Set the capacity of pool `row` in blocks; if it holds more, evict blocks by its policy."""
    pool.capacity[row] = capacity_blocks
    while pool.used[row] > max(capacity_blocks, 0):
        evict_next(pool, row)
