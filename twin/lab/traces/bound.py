"""What a cache could save at best: a trace in file order through one LRU of KV blocks.

An upper bound for every replay of the trace with the same capacity, found apart from the memory
pool's own kernels so that one can check the other.
"""

from __future__ import annotations

from twin.workload.requests import TraceTable
from twin.workload.reuse_curve import reuse_curve

EVERY = 2**62  # touches: no sample


def lru_bound(table: TraceTable, capacity_blocks: int | None = None) -> float:
    """Share of input tokens that an LRU of `capacity_blocks` of the trace's blocks would hit.

    None: no limit, the ideal. A partial last block counts with the tokens it has.
    """
    curve = reuse_curve(table, EVERY)
    return curve.ideal if capacity_blocks is None else curve.hit_ratio(capacity_blocks)
