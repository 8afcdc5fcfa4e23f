"""Context caching: which KV blocks of prompts are kept, and which go when room is needed.

A pool holds blocks by content id. A prompt is a chain of blocks, given as runs of consecutive ids
(`segment_first`, `segment_blocks`); it hits as far as its chain is resident without a gap.
Replacement is LRU. A chain is always touched from its end to its start, so that a block is never
evicted before the blocks that build on it. What a hit saves or costs is not known here.

All arrays have one row per pool: one row when the pool is shared by all instances, one row per
prefill instance when each keeps its own.

There are two tiers, DRAM and SSD, each a `BlockPool` with an LRU of its own (arXiv 2506.12708v2
section 4.4.1): every block is written to both, and one that DRAM has evicted, or lost with a server
(by a hash of its id), is cold: read from the SSD tier at its next use, and in DRAM again after.
"""

from __future__ import annotations

import numpy as np

from twin.buffers import Columns, column
from twin.compiled import entry, kernel
from twin.rng import scattered

ABSENT = -2  # in `newer`: the block is not resident
NONE = -1  # end of the list


class BlockPool(Columns):
    """Resident blocks as a doubly linked list from most to least recently used."""

    newer = column(
        "i4",
        "pools, blocks",
        "Next more recent block, NONE or ABSENT.",
        fill=ABSENT,
        by="memory_pool",
    )
    older = column("i4", "pools, blocks", "Next less recent resident block.", by="memory_pool")
    newest = column("i4", "pools", "Most recent block.", fill=NONE, by="memory_pool")
    oldest = column("i4", "pools", "Least recent block.", fill=NONE, by="memory_pool")
    used = column("i8", "pools", "Resident blocks.", by="memory_pool")
    capacity = column("i8", "pools", "Blocks that fit.", fill=None, by="memory_pool")
    evicted = column("i8", "pools", "Blocks evicted so far.", by="memory_pool")


def empty_pool(pools: int, blocks: int, capacity_blocks: int) -> BlockPool:
    """A pool with nothing in it: `pools` rows over `blocks` distinct block ids."""
    capacity = np.full(pools, capacity_blocks, np.int64)
    return BlockPool({"pools": pools, "blocks": blocks}, capacity=capacity)


@kernel
def matched_blocks(
    pool: BlockPool,
    ssd: BlockPool,
    ssd_open: bool,
    row: int,
    segment_first: np.ndarray,
    segment_blocks: np.ndarray,
    begin: int,
    end: int,
) -> int:
    """Blocks of the chain segments[begin:end] that a tier holds before the first gap.

    The SSD tier counts where it can be reached (`ssd_open`).
    """
    matched = 0
    for s in range(begin, end):
        first = segment_first[s]
        for block in range(first, first + segment_blocks[s]):
            in_ssd = ssd_open and ssd.newer[row, block] != ABSENT
            if not in_ssd and pool.newer[row, block] == ABSENT:
                return matched
            matched += 1
    return matched


@kernel
def cold_blocks(
    pool: BlockPool,
    row: int,
    segment_first: np.ndarray,
    segment_blocks: np.ndarray,
    begin: int,
    end: int,
    blocks: int,
) -> int:
    """How many of the first `blocks` blocks of a chain are not in this tier."""
    cold = 0
    for s in range(begin, end):
        for block in range(segment_first[s], segment_first[s] + min(segment_blocks[s], blocks)):
            cold += pool.newer[row, block] == ABSENT
        blocks -= min(segment_blocks[s], blocks)
    return cold


@kernel
def unlink(pool: BlockPool, row: int, block: int) -> None:
    """Take a resident block out of the list; it stays counted in `used`."""
    newer = pool.newer[row, block]
    older = pool.older[row, block]
    if newer == NONE:
        pool.newest[row] = older
    else:
        pool.older[row, newer] = older
    if older == NONE:
        pool.oldest[row] = newer
    else:
        pool.newer[row, older] = newer


@kernel
def drop(pool: BlockPool, row: int, block: int) -> None:
    """Forget a resident block; it stays counted in `used`."""
    if pool.newest[row] != NONE:  # else a tier that keeps no order
        unlink(pool, row, block)
    pool.newer[row, block] = ABSENT


@kernel
def keep_run(pool: BlockPool, row: int, first: int, count: int) -> None:
    """Make each of some consecutive blocks the most recent one, the last of them first; a new one
    evicts the oldest where the pool is full."""
    newer, older = pool.newer[row], pool.older[row]
    head, used = pool.newest[row], pool.used[row]
    for k in range(count - 1, -1, -1):
        block = first + k
        if head == block:
            continue
        if newer[block] != ABSENT:
            unlink(pool, row, block)
        elif used < pool.capacity[row]:
            used += 1
        else:
            victim = pool.oldest[row]
            if victim == NONE:  # a pool without room keeps nothing
                continue
            unlink(pool, row, victim)
            newer[victim] = ABSENT
            pool.evicted[row] += 1
            head = NONE if victim == head else head
        newer[block] = NONE
        older[block] = head
        if head == NONE:
            pool.oldest[row] = block
        else:
            newer[head] = block
        head = block
    pool.newest[row] = head
    pool.used[row] = used


@kernel
def keep_chain(
    pool: BlockPool,
    row: int,
    segment_first: np.ndarray,
    segment_blocks: np.ndarray,
    begin: int,
    end: int,
    blocks: int,
) -> None:
    """Keep the first `blocks` blocks of the chain segments[begin:end], its end first."""
    past = 0
    for s in range(begin, end):
        past += segment_blocks[s]
    for s in range(end - 1, begin - 1, -1):
        past -= segment_blocks[s]
        keep_run(pool, row, segment_first[s], min(segment_blocks[s], blocks - past))


@kernel
def hold_chain(
    pool: BlockPool,
    row: int,
    segment_first: np.ndarray,
    segment_blocks: np.ndarray,
    begin: int,
    end: int,
) -> None:
    """Keep the chain segments[begin:end] in a tier with room for every block there is.

    Such a tier evicts nothing, so it keeps no order; for one that is never resized.
    """
    for s in range(begin, end):
        first = segment_first[s]
        for block in range(first, first + segment_blocks[s]):
            if pool.newer[row, block] == ABSENT:
                pool.newer[row, block] = NONE
                pool.used[row] += 1


@kernel
def server_of(block: int, servers: int) -> int:
    """The server that holds a block: a multiplicative hash of its id."""
    index: int = np.int64((scattered(block) >> np.uint64(33)) % np.uint64(servers))  # type: ignore[assignment]
    return index


@entry
def lose_server(
    pool: BlockPool, ssd: BlockPool, row: int, server: int, servers: int, keeps: int
) -> int:
    """A server fails: DRAM loses its blocks, and without `keeps` the SSD tier too; returns how
    many DRAM lost."""
    lost = 0
    for block in range(pool.newer.shape[1]):
        if pool.newer[row, block] == ABSENT or server_of(block, servers) != server:
            continue
        drop(pool, row, block)
        pool.used[row] -= 1
        lost += 1
        if not keeps and ssd.newer[row, block] != ABSENT:
            drop(ssd, row, block)
            ssd.used[row] -= 1
    return lost


@entry
def resize(pool: BlockPool, row: int, capacity_blocks: int) -> None:
    """Change how many blocks fit; the least recently used go when there are too many."""
    pool.capacity[row] = capacity_blocks
    while pool.used[row] > capacity_blocks:
        drop(pool, row, pool.oldest[row])
        pool.used[row] -= 1
        pool.evicted[row] += 1
