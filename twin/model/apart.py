"""Decode with attention and experts on dies of their own: what a layer takes.

Hidden states travel from the attention dies to the expert dies and back in every layer. Two
microbatches play ping-pong between the two sides (MegaScale-Infer, arXiv 2504.02263): while one
is in attention the other is with the experts, and each way of the wire carries one of them. So
four resources (attention, way there, experts, way back) are passed in a ring. This module does
not know how many dies each side has: that is in the coefficients.
"""

from __future__ import annotations

import numpy as np

from twin.compiled import kernel
from twin.model import params as q
from twin.model.layer import attention_s, moe_parts


@kernel
def ring_s(attention: float, there: float, experts: float, back: float) -> float:
    """Seconds of a layer for two microbatches in turn: the longest of the four for both, or the
    way around for one, whichever is longer."""
    longest = max(attention, there, experts, back)
    return max(2.0 * longest, attention + there + experts + back)


@kernel
def apart_stages(
    p: np.ndarray, m: int, requests: float, context: float, busiest: float, total: float,
    dies: float, hot: float,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Seconds of (attention and gate, dispatch, experts, combine) of one of two microbatches."""
    half = 0.5 * p[q.QUERY_TOKENS]
    attention = attention_s(p, m, half * requests, 0.5 * p[m + q.CORE_CONTEXT] * context)
    gate, there, experts, back = moe_parts(p, m, half * busiest, half * total, dies, hot)
    return attention + gate, there, experts, back
