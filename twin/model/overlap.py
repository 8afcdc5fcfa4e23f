"""Microbatches that share resources in turn: a pipeline, stages in a fixed order, or a ring.

Prefill, where copy engines carry the exchange, goes by the pipeline; decode whose cores all compute
while data is in flight by stages; decode with experts on dies of their own by the ring.
"""

from __future__ import annotations

from twin.kernels.compiled import kernel
from twin.model.coefficients import Decode, Mode
from twin.model.layer import Pass, attention_s, core_s, moe_parts, routed_per_die


@kernel
def pipeline_s(before: float, sent: float, experts: float, answered: float) -> float:
    """Seconds a layer takes when two microbatches share cores and wire in turn.

    Cores: attention and gate of one, of the other, experts of one, of the other. Wire: dispatch and
    combine of each in between. All dies wait for the hottest in every exchange, so its rows count
    in three of the four. Steady within a few layers.
    """
    first = second = core = wire = 0.0  # when microbatches may begin a layer, resources are free
    begun = period = 0.0
    for _ in range(6):
        start = max(core, first)
        period = start - begun
        begun = start
        core = start + before
        wire = max(core, wire) + sent
        first_sent = wire
        core = max(core, second) + before
        wire = max(core, wire) + sent
        second_sent = wire
        core = max(core, first_sent) + experts
        ready = core
        core = max(core, second_sent) + experts
        wire = max(ready, wire) + answered
        first = wire
        wire = max(core, wire) + answered
        second = wire
    return period


@kernel
def staged_s(
    prepare: float, core: float, sends: float, sent: float, shared: float, experts: float,
    answered: float,
) -> float:  # fmt: skip
    """Seconds a layer takes when a graph launches the stages of two microbatches in turn.

    While one dispatches, the other is in its projections and the shared expert is computed; while
    one combines, the other is in its core (SGLang
    python/sglang/srt/batch_overlap/operations_strategy.py). A stage that waits for the wire keeps
    the cores.
    """
    return 2.0 * (sends + max(sent, shared + prepare) + experts + max(answered, core))


@kernel
def ring_s(
    attention: float, dispatch: float, experts: float, combine: float, taken: float, parts: float
) -> float:
    """Seconds of a layer for `parts` microbatches between attention and expert dies (AFD).

    The longest of the stages for all, or the way around for one, whichever is longer (ping-pong:
    MegaScale-Infer, arXiv 2504.02263; domains that take turns: xDeepServe, arXiv 2508.02520
    section 5.2). taken: what an expert die is busy with, for one microbatch of every domain.
    """
    longest = max(attention, dispatch, experts, combine, taken)
    return max(parts * longest, attention + dispatch + experts + combine)


@kernel
def apart_stages(p: Decode, m: Mode, load: Pass) -> tuple[float, float, float, float, float]:
    """Seconds of (attention and gate, dispatch, experts, combine) of one microbatch, and of what
    an expert die is busy with for one of every domain; `load.total` of one domain."""
    attention = attention_s(m, load.tokens, core_s(m.core, load.tokens, load.context))
    gate, dispatch, experts, combine = moe_parts(p, m, load)
    rows = routed_per_die(p, load.total) * load.hot
    port = rows * max(m.dispatch.receive, m.combine.send)
    return attention + gate, dispatch, experts, combine, p.layout.domains * max(experts, port)
