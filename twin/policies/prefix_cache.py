"""Prefix cache: KV blocks in HBM, those of running requests and those of finished ones for which
there is room, as vLLM's automatic prefix caching and SGLang's RadixAttention have them.

A row of a `BlockPool` is one cell: what stores the KV of a prompt whole. A block that requests use
is pinned and in no list; requests with the same prefix share it. One that no request uses is idle
and stays until its room is needed; the least recently released goes first, of one request the end
of its chain before the start (vLLM: block_pool.py, free_block_queue)."""

from __future__ import annotations

from twin.kernels.buffers import Columns, f8, i2, i4, i8
from twin.kernels.compiled import kernel
from twin.policies.memory_pool import ABSENT, NONE, BlockPool, Chains, drop, link_newest, unlink

PINNED = -3  # in `newer`: requests use the block


class PrefixCache(Columns):
    """Who uses the blocks in HBM; a row per cell, and one per request."""

    users = i2("kv_cells, cached", "Requests that use a block.", by="prefix_cache")
    idle = i8("kv_cells", "Blocks that no request uses.", by="prefix_cache")
    pins = i8("kv_cells", "Blocks used, once for each user.", by="prefix_cache")
    begun_tokens = f8("kv_cells", "Of prompts whose pass has begun.", "tokens", by="in_hbm")
    cell = i4("pinning", "Where a prompt's KV is.", fill=NONE, by="in_hbm")
    pinned = i4("pinning", "Blocks of its chain that it uses.", by="in_hbm")
    own_tokens = i4("pinning", "Its part of `begun_tokens`.", "tokens", by="in_hbm")


@kernel
def pin(
    hbm: BlockPool, prefix: PrefixCache, cell: int, chains: Chains, k: int, first: int, end: int
) -> None:
    """Use blocks first..end - 1 of chain k; those that are not there are put there."""
    place = 0
    for s in range(chains.segment_offset[k], chains.segment_offset[k + 1]):
        begin, count = chains.segment_first[s], chains.segment_blocks[s]
        for block in range(begin + max(first - place, 0), begin + max(min(count, end - place), 0)):
            if prefix.users[cell, block] == 0:
                if hbm.newer[cell, block] == ABSENT:
                    hbm.used[cell] += 1
                else:
                    unlink(hbm, cell, block)
                    prefix.idle[cell] -= 1
                hbm.newer[cell, block] = PINNED
            prefix.users[cell, block] += 1
            prefix.pins[cell] += 1
        place += count


@kernel
def unpin(
    hbm: BlockPool, prefix: PrefixCache, cell: int, chains: Chains, k: int, blocks: int
) -> None:
    """End the use of the first blocks of chain k, the last one first."""
    begin, end, place = chains.segment_offset[k], chains.segment_offset[k + 1], 0
    for s in range(begin, end):
        place += chains.segment_blocks[s]
    for s in range(end - 1, begin - 1, -1):
        place -= chains.segment_blocks[s]
        first = chains.segment_first[s]
        count = max(min(int(chains.segment_blocks[s]), blocks - place), 0)
        for block in range(first + count - 1, first - 1, -1):
            prefix.users[cell, block] -= 1
            prefix.pins[cell] -= 1
            if prefix.users[cell, block] == 0:
                link_newest(hbm, cell, block)
                prefix.idle[cell] += 1


@kernel
def evict_idle(hbm: BlockPool, prefix: PrefixCache, cell: int, most: float) -> None:
    """Evict idle blocks until a cell has at most `most` blocks, or none is idle."""
    while hbm.used[cell] > most and hbm.oldest[cell, 0] != NONE:
        drop(hbm, cell, hbm.oldest[cell, 0])
        hbm.evicted[cell] += 1
        prefix.idle[cell] -= 1
