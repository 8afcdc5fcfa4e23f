"""Pipeline stages of prefill: when each ends the batches that follow each other through them."""

from __future__ import annotations

from twin.engine.columns import World
from twin.kernels.compiled import kernel


@kernel
def go_through_stages(world: World, p: int, end_s: float, took_s: float) -> None:
    """Note when each pipeline stage ends the batch, which the first ends at `end_s`. Every stage
    takes as long; it begins when it is free and the batch has come from the one before."""
    ends_s, hop = world.prefill.stage_s, world.costs.prefill[p].hop
    hop_s = hop.fixed + hop.token * world.prefill.most_tokens[p]
    ends_s[p, 0] = end_s
    for k in range(1, world.settings.stages):
        ends_s[p, k] = max(ends_s[p, k], ends_s[p, k - 1] + hop_s) + took_s
