"""HBM bandwidth that a prefill and a decode instance on the same dies leave each other.

Their cores are split (roofline.py), and the bytes of the HBM (space.py). This module does not know
who sits where, nor prices an operator.
"""

from __future__ import annotations

import numpy as np

from twin.metrics.operators import PREFILL_OPERATORS
from twin.model.coefficients import Prefill
from twin.model.prefill import prefill_batch_s, prefill_hbm_bytes
from twin.model.roofline import Machine


def bandwidth_for_prefill(prefill: Machine, decode: Machine) -> float:
    """Share of the sustained bandwidth for prefill while decode draws its maximum: the draw of its
    cores, in proportion where both together exceed the bandwidth."""
    return prefill.pull(1.0) / max(1.0, prefill.pull(1.0) + decode.pull(1.0))


def bandwidth_for_decode(p: Prefill, tokens: float, machine: Machine) -> float:
    """Share of the sustained bandwidth that prefill leaves: a batch of `tokens` moves its bytes
    over its time. Pairs, which take time and move few bytes, are left out: decode has at least
    this."""
    even, dies = np.ones(1), p.layout.dies
    took_s = prefill_batch_s(
        p, tokens, tokens / dies, 0.0, even, even, np.zeros(len(PREFILL_OPERATORS))
    )
    sustained = machine.chip.hbm_bytes_per_s * machine.gemm_bandwidth_utilisation * dies
    return 1.0 - prefill_hbm_bytes(p, tokens) / (took_s * sustained)
