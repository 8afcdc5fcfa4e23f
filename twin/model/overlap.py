"""Two microbatches that share one resource to compute and one to communicate, in turn.

Prefill, where copy engines carry the exchange, goes by the pipeline; decode on machines whose cores
all compute while data is in flight by stages in a fixed order. It knows no operator, only seconds.
"""

from __future__ import annotations

from twin.compiled import kernel


@kernel
def pipeline_s(before: float, sent: float, experts: float, answered: float) -> float:
    """Seconds a layer takes when two microbatches share cores and wire in turn.

    Cores: attention and gate of one, of the other, experts of one, of the other. Wire: dispatch
    and combine, each after its microbatch computed and before it goes on. `before`: attention and
    gate of one microbatch. All dies wait for the hottest in every exchange, so its rows count in
    three of the four. The steady state is reached within a few layers.
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

    While one dispatches, the other is in the projections before its attention core and the shared
    expert is computed; while one combines, the other is in its core (two stages apart: SGLang
    python/sglang/srt/batch_overlap/operations_strategy.py, after DeepSeek's own). A stage that
    waits for the wire keeps the cores: what comes after it in the order does not overtake.
    """
    return 2.0 * (sends + max(sent, shared + prepare) + experts + max(answered, core))
