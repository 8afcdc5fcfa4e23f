"""Context caching: which KV blocks of prompts are kept, and which go when room is needed.

A pool holds blocks by content id. A prompt is a chain of blocks, given as runs of consecutive ids
(`segment_first`, `segment_blocks`); it hits as far as its chain is resident without a gap.
Replacement is LRU. A chain is always touched from its end to its start, so that a block is never
evicted before the blocks that build on it. What a hit saves or costs is not known here.

All arrays have one row per pool: one row when the pool is shared by all instances, one row per
prefill instance when each keeps its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

ABSENT = -2  # in `newer`: the block is not resident
NONE = -1  # end of the list


class BlockPool(NamedTuple):
    """Resident blocks as a doubly linked list from most to least recently used."""

    newer: np.ndarray  # i4[pools, blocks]: next more recent block, NONE or ABSENT
    older: np.ndarray  # i4[pools, blocks]: next less recent block or NONE
    newest: np.ndarray  # i4[pools]
    oldest: np.ndarray  # i4[pools]
    used: np.ndarray  # i8[pools] resident blocks
    capacity: np.ndarray  # i8[pools] blocks that fit
    evicted: np.ndarray  # i8[pools] blocks evicted so far


def empty_pool(pools: int, blocks: int, capacity_blocks: int) -> BlockPool:
    """A pool with nothing in it: `pools` rows over `blocks` distinct block ids."""
    return BlockPool(
        newer=np.full((pools, blocks), ABSENT, np.int32),
        older=np.full((pools, blocks), NONE, np.int32),
        newest=np.full(pools, NONE, np.int32),
        oldest=np.full(pools, NONE, np.int32),
        used=np.zeros(pools, np.int64),
        capacity=np.full(pools, capacity_blocks, np.int64),
        evicted=np.zeros(pools, np.int64),
    )


@njit(cache=True)
def matched_blocks(
    pool: BlockPool,
    row: int,
    segment_first: np.ndarray,
    segment_blocks: np.ndarray,
    begin: int,
    end: int,
) -> int:
    """Blocks of the chain segments[begin:end] that are resident before the first gap."""
    matched = 0
    for s in range(begin, end):
        first = segment_first[s]
        for block in range(first, first + segment_blocks[s]):
            if pool.newer[row, block] == ABSENT:
                return matched
            matched += 1
    return matched


@njit(cache=True)
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


@njit(cache=True)
def link_newest(pool: BlockPool, row: int, block: int) -> None:
    """Put a block at the recent end of the list."""
    head = pool.newest[row]
    pool.newer[row, block] = NONE
    pool.older[row, block] = head
    if head == NONE:
        pool.oldest[row] = block
    else:
        pool.newer[row, head] = block
    pool.newest[row] = block


@njit(cache=True)
def keep_block(pool: BlockPool, row: int, block: int) -> None:
    """Make a block the most recent one, evicting the oldest if it is new and the pool is full."""
    if pool.newest[row] == block:
        return
    if pool.newer[row, block] != ABSENT:
        unlink(pool, row, block)
    elif pool.used[row] < pool.capacity[row]:
        pool.used[row] += 1
    else:
        victim = pool.oldest[row]
        if victim == NONE:  # a pool without room keeps nothing
            return
        unlink(pool, row, victim)
        pool.newer[row, victim] = ABSENT
        pool.evicted[row] += 1
    link_newest(pool, row, block)


@njit(cache=True)
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
        first = segment_first[s]
        last = min(segment_blocks[s], blocks - past)
        for k in range(last - 1, -1, -1):
            keep_block(pool, row, first + k)
