"""Decode with attention and experts on dies of their own: what a layer takes.

Hidden states travel from the attention dies to the expert dies and back in every layer. The
attention dies are divided in domains, each with two microbatches that play ping-pong with the
experts (MegaScale-Infer, arXiv 2504.02263; domains: xDeepServe, arXiv 2508.02520 section 5.2):
while one is in attention others are with the experts, and each way of the wire carries one. So
four resources (attention, dispatch, experts, combine) are passed in a ring, and domains take turns
at the expert dies. This module does not know how many dies each side has: that is in the
coefficients.
"""

from __future__ import annotations

from twin.compiled import kernel
from twin.model.coefficients import Decode, Mode
from twin.model.layer import Pass, attention_s, moe_parts, routed_per_die


@kernel
def ring_s(
    attention: float, dispatch: float, experts: float, combine: float, taken: float, parts: float
) -> float:
    """Seconds of a layer for `parts` microbatches in turn: the longest of the stages for all, or
    the way around for one, whichever is longer.

    taken: what an expert die is busy with, for one microbatch of every domain.
    """
    longest = max(attention, dispatch, experts, combine, taken)
    return max(parts * longest, attention + dispatch + experts + combine)


@kernel
def apart_stages(p: Decode, m: Mode, load: Pass) -> tuple[float, float, float, float, float]:
    """Seconds of (attention and gate, dispatch, experts, combine) of one microbatch, and of what
    an expert die is busy with for one of every domain; `load.total` of one domain."""
    attention = attention_s(m, load.tokens, m.core.context * load.context)
    gate, dispatch, experts, combine = moe_parts(p, m, load)
    rows = routed_per_die(p, load.total) * load.hot
    port = rows * max(m.dispatch.receive, m.combine.send)
    return attention + gate, dispatch, experts, combine, p.layout.domains * max(experts, port)
