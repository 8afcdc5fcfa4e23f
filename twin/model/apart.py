"""Decode with attention and experts on dies of their own: what a layer takes.

Hidden states travel from the attention dies to the expert dies and back in every layer. Two
microbatches play ping-pong between the two sides (MegaScale-Infer, arXiv 2504.02263): while one
is in attention the other is with the experts, and each way of the wire carries one of them. So
four resources (attention, dispatch, experts, combine) are passed in a ring. This module does
not know how many dies each side has: that is in the coefficients.
"""

from __future__ import annotations

from twin.compiled import kernel
from twin.model.coefficients import Decode, Mode
from twin.model.layer import Pass, attention_s, moe_parts


@kernel
def ring_s(attention: float, dispatch: float, experts: float, combine: float) -> float:
    """Seconds of a layer for two microbatches in turn: the longest of the four for both, or the
    way around for one, whichever is longer."""
    longest = max(attention, dispatch, experts, combine)
    return max(2.0 * longest, attention + dispatch + experts + combine)


@kernel
def apart_stages(p: Decode, m: Mode, load: Pass) -> tuple[float, float, float, float]:
    """Seconds of (attention and gate, dispatch, experts, combine) of one of two microbatches."""
    attention = attention_s(m, load.tokens, m.core.context * load.context)
    gate, dispatch, experts, combine = moe_parts(p, m, load)
    return attention + gate, dispatch, experts, combine
