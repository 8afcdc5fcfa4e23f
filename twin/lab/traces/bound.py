"""What a cache could save at best: a trace in file order through one LRU of KV blocks.

An upper bound for every replay of the trace with the same capacity, written apart from the
memory pool's own kernels so that one can check the other. Knows no time.
"""

from __future__ import annotations

import numpy as np

from twin.compiled import late
from twin.workload.requests import TraceTable

EMPTY = -1


def lru_bound(table: TraceTable, capacity_blocks: int | None = None) -> float:
    """Share of input tokens that an LRU of `capacity_blocks` of the trace's blocks would hit.

    None: no limit, the ideal. A partial last block counts with the tokens it has.
    """
    if not table.has_prefix:
        return 0.0
    capacity = table.blocks if capacity_blocks is None else capacity_blocks
    hits = lru_hit_blocks(
        table.segment_offset, table.segment_first, table.segment_blocks, table.blocks, capacity
    )
    hit_tokens = np.minimum(hits * table.block_tokens, table.input_tokens)
    return float(hit_tokens.sum() / table.input_tokens.sum(dtype=np.int64))


@late
def lru_hit_blocks(
    offset: np.ndarray, first: np.ndarray, blocks: np.ndarray, distinct: int, capacity: int
) -> np.ndarray:
    """Blocks i8[n] that each row hits when rows pass one after the other through an LRU.

    A row hits as far as its chain is resident without a gap, then all its blocks are touched
    from the last to the first, so that the end of a chain goes before its beginning.
    offset i8[n + 1], first i8[m], blocks i4[m]: the rows' runs of block ids below `distinct`.
    capacity: resident blocks at most.
    """
    newer = np.full(distinct + 1, EMPTY, np.int64)  # the last slot is the ring's head
    older = np.full(distinct + 1, EMPTY, np.int64)
    head = distinct
    newer[head] = head
    older[head] = head
    used = 0
    hits = np.zeros(offset.size - 1, np.int64)
    for i in range(offset.size - 1):
        unbroken = True
        for s in range(offset[i], offset[i + 1]):
            for b in range(first[s], first[s] + blocks[s]):
                unbroken = unbroken and newer[b] != EMPTY
                if unbroken:
                    hits[i] += 1
                else:
                    break
            if not unbroken:
                break
        for s in range(offset[i + 1] - 1, offset[i] - 1, -1):
            for b in range(first[s] + blocks[s] - 1, first[s] - 1, -1):
                if newer[b] != EMPTY:
                    newer[older[b]] = newer[b]
                    older[newer[b]] = older[b]
                elif used < capacity:
                    used += 1
                else:
                    victim = newer[head]
                    newer[head] = newer[victim]
                    older[newer[victim]] = head
                    newer[victim] = EMPTY
                newer[b] = head  # the most recent stands before the head
                older[b] = older[head]
                newer[older[head]] = b
                older[head] = b
    return hits
