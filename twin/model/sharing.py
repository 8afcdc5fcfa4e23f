"""HBM bandwidth that a prefill and a decode instance on the same dies leave each other.

Their cores are split (roofline.py), and the bytes of the HBM (space.py). This module does not know
who sits where, nor prices an operator.
"""

from __future__ import annotations

import numpy as np

from twin.model.coefficients import PREFILL_OPERATORS, Prefill
from twin.model.prefill import prefill_batch_s, prefill_hbm_bytes
from twin.model.roofline import Machine


def bandwidth_for_prefill(prefill: Machine, decode: Machine) -> float:
    """Share of the sustained bandwidth that prefill has while decode draws all that it can: what
    its cores draw, in proportion where both ask for more than there is."""
    return prefill.pull(1.0) / max(1.0, prefill.pull(1.0) + decode.pull(1.0))


def bandwidth_for_decode(p: Prefill, tokens: float, machine: Machine) -> float:
    """What prefill leaves of it: a batch of `tokens` moves its bytes over its time.

    Without query-key pairs, which take time and move next to nothing, so it leaves no less.
    """
    even, dies = np.ones(1), p.layout.dies
    took_s = prefill_batch_s(
        p, tokens, tokens / dies, 0.0, even, even, np.zeros(len(PREFILL_OPERATORS))
    )
    sustained = machine.chip.hbm_bytes_per_s * machine.gemm_bandwidth_utilisation * dies
    return 1.0 - prefill_hbm_bytes(p, tokens) / (took_s * sustained)
