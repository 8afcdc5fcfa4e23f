"""Hit ratio of a scenario's prompts by the size of its memory pool: one LRU gets every prompt in
order of arrival and stores it at once. A run is an LRU too, but looks up when a prefill begins and
stores when it ends, so it mostly hits less. The curve is no upper bound: in Mooncake's
conversations with 3 GB a node a run hits 9.23 %, the curve 9.01 %."""

import math
from dataclasses import dataclass

import numpy as np

from twin.facts import Facts
from twin.model.fetch import node_dram_bytes
from twin.scenario import Scenario
from twin.steady import assemble
from twin.workload.generate import generate
from twin.workload.requests import TraceTable
from twin.workload.reuse_curve import ReuseCurve, reuse_curve

LOOKED_AT = 50_000  # requests of a run, at most
POINTS = 24  # of the curve


@dataclass(frozen=True, slots=True)
class HitCurve:
    """Hit curve of one scenario, and its memory pool's point on it."""

    curve: ReuseCurve
    requests: int  # that were looked at
    block_bytes: float
    dram_bytes: float  # of the pool; 0: there is none
    ssd_bytes: float

    def hit_ratio(self, size_bytes: float) -> float:
        """Share of input tokens that hit in an LRU of this size."""
        return self.curve.hit_ratio(math.floor(size_bytes / self.block_bytes))

    @property
    def pool_bytes(self) -> float:
        """Effective bytes of the pool: SSD has all that DRAM has, so the larger counts."""
        return max(self.dram_bytes, self.ssd_bytes)

    @property
    def knee_bytes(self) -> float:
        """Smallest size with 95 % of the hits of an unlimited pool."""
        return self.curve.knee_blocks() * self.block_bytes

    def points(self) -> list[tuple[float, float]]:
        """(bytes, hit ratio) at geometric steps, from 1/100 of the knee to the whole stream."""
        last = self.curve.blocks * self.block_bytes
        first = max(self.block_bytes, min(self.knee_bytes, last) / 100.0)
        sizes = np.geomspace(first, max(last, first), POINTS)
        return [(float(size), self.hit_ratio(size)) for size in sizes]


def hit_curve(s: Scenario, facts: Facts, trace: TraceTable | None = None) -> HitCurve:
    """Hit curve of a scenario's first requests, in one pass; raises as `generate`, `assemble`."""
    count = LOOKED_AT if trace is None else None
    stream = generate(
        s.workload, s.horizon_s, s.seed, s.memory_pool.block_tokens, facts, trace, count
    )
    parts = assemble(s, facts, trace)
    nodes = 0.0
    if s.memory_pool.enabled:
        nodes = float(np.unique(parts.net.node[parts.net.of_kind("cpu")]).size)
        if s.memory_pool.scope == "local":  # what one instance has
            role = parts.costs.prefill_role or parts.costs.colocated_role
            nodes = role.dies / parts.net.dies_per_node if role else 0.0
    dram_bytes = node_dram_bytes(s.memory_pool, facts, parts.net.dies_per_node) * nodes
    ssd_bytes = 1e9 * s.memory_pool.ssd_gb_per_node * nodes
    block_bytes = parts.costs.held_bytes(stream.block_tokens)
    return HitCurve(reuse_curve(stream), len(stream), block_bytes, dram_bytes, ssd_bytes)
