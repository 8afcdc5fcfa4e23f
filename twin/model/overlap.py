"""Two microbatches that share one resource to compute and one to communicate, in turn.

The same pipeline serves prefill, where copy engines carry the exchange, and decode on machines
whose cores all compute while data is in flight. It knows no operator, only seconds.
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
