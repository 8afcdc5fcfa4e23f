"""What conditions of the moment do to an instance's coefficients: slow dies, crowded links.

A vector (params.py) is priced for dies at full speed with nobody else on the wire. Both changes
scale coefficients; no formula changes.
"""

from __future__ import annotations

import numpy as np

from twin.model import params as q

# Of a decode block: what a die computes itself, and what the wire decides.
COMPUTED = (
    *range(q.PROLOG_FIXED, q.GATE_TOKEN + 1),
    q.DISPATCH_MESSAGE,  # vector cores quantise
    *range(q.EXPERT_FIXED, q.EXPERT_VECTOR + 1),
)
CARRIED = (q.DISPATCH_SEND, q.DISPATCH_RECEIVE, q.COMBINE_SEND, q.COMBINE_RECEIVE)
OUTSIDE = (*range(q.DENSE_FIXED, q.SAMPLE_TOKEN + 1), q.CHUNK_PAIR, q.CHUNK_HIT)

PREFILL_COMPUTED = (
    *(q.F_INPUT_FIXED, q.F_INPUT_WEIGHT, q.F_INPUT_TOKEN, q.F_HIT_TOKEN),
    *(q.F_CORE_FIXED, q.F_CORE_PAIR, q.F_OUTPUT_FIXED, q.F_OUTPUT_WEIGHT, q.F_OUTPUT_TOKEN),
    *(q.F_GATE_FIXED, q.F_GATE_TOKEN, q.F_DISPATCH_CORE, q.F_DISPATCH_ORDER),
    *range(q.F_EXPERT_FIXED, q.F_EXPERT_VECTOR + 1),
    *(q.F_COMBINE_CORE, *range(q.F_DENSE_FIXED, q.F_HEAD + 1)),
)
PREFILL_CARRIED = (
    *(q.F_GATHER_TOKEN, q.F_HIT_GATHER, q.F_EXCHANGE_TOKEN),
    *(q.F_DISPATCH_WIRE, q.F_DISPATCH_RECEIVE),
    *(q.F_COMBINE_WIRE, q.F_COMBINE_RECEIVE),
)


def places(role: str, computed: bool) -> np.ndarray:
    """Where a role's vector holds what is computed, or else what the wire decides, i8[n]."""
    if role == "prefill":
        return np.array(PREFILL_COMPUTED if computed else PREFILL_CARRIED, np.int64)
    block = COMPUTED if computed else CARRIED
    every = [m * q.MODE + k for m in range(1 + q.SPLITS) for k in block]
    if computed:
        every += OUTSIDE if role == "colocated" else OUTSIDE[:-2]
    return np.array(every, np.int64)


def slowed(vector: np.ndarray, role: str, speed: float) -> np.ndarray:
    """A vector whose instance waits for a die that computes at `speed` (1: as it should).

    Every exchange is a barrier, so one slow die sets the pace of all (a straggler).
    """
    found = vector.copy()
    found[places(role, computed=True)] /= speed
    return found
