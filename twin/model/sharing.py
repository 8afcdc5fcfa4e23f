"""What a prefill and a decode instance on the same dies leave each other of the HBM.

Their cores are split (roofline.py); bytes and bandwidth of the HBM are one. This module does not
know who sits where, nor prices an operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from twin.model.coefficients import PREFILL_OPERATORS, Prefill
from twin.model.memory import Budget, ExpertLayout, expert_bytes, expert_layout
from twin.model.prefill import prefill_batch_s, prefill_hbm_bytes
from twin.model.roofline import Machine
from twin.model.setting import Setting
from twin.model.shape import ModelError
from twin.scenario import Scenario

FEWEST_TOKENS = 64  # of an NPU's batch of prompts


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


def beside_the_other(
    own: Budget, x: Setting, s: Scenario, kv_bytes: float, buffers_of: Callable[[Setting], float]
) -> Budget:
    """A role's budget on a die that both share; kv_bytes: of a token; buffers_of a setting.

    What both hold alike is there once (semi-PD's unified storage, arXiv 2504.19867): all but the
    experts, and these too where an instance of each has the same dies. Prefill has room for the KV
    of one batch, decode has the rest. Raises ModelError when that holds no request.
    """
    p, d = s.deployment.prefill, s.deployment.decode
    passes = x.shape.moe_layers + (d.mtp_draft_tokens > 0)

    def experts(npus: int) -> tuple[ExpertLayout, float]:
        dies = npus * x.machine.chip.dies_per_npu
        held = expert_layout(x.shape, s.experts.redundant, dies)
        apart = npus != d.npus_per_instance
        return held, apart * expert_bytes(x.shape, x.formats, held) * passes

    layout, weights = experts(p.npus_per_instance)
    buffers = buffers_of(replace(x, role="prefill", layout=layout))
    kept_by = layout.dies if p.attention == "dp" else 1  # else every die holds KV of all prompts
    kv = p.tokens_per_npu * p.npus_per_instance / kept_by * kv_bytes
    if x.role == "prefill":
        return replace(own, others=own.kv - kv)
    request = (s.workload.input_tokens + s.workload.output_tokens) * kv_bytes
    room = own.kv - weights - request  # decode holds one request at least
    if room > buffers + kv:
        return replace(own, others=weights + buffers + kv)
    most = math.ceil(p.tokens_per_npu * room / (buffers + kv)) - 1
    sizes = range(p.npus_per_instance, d.npus_per_instance + 1)
    if most >= FEWEST_TOKENS:
        remedy = f"take deployment.prefill.tokens_per_npu = {most} or less"
    elif enough := next((n for n in sizes if own.kv > experts(n)[1]), 0):
        remedy = f"take {enough} NPUs per prefill instance or more"
    else:
        remedy = "take more NPUs per decode instance or a smaller number format"
    raise ModelError(
        f"deployment.prefill.on = decode_npus does not fit: beside decode a die has "
        f"{own.kv / 1e9:.1f} GB, prefill's experts take {weights / 1e9:.1f} GB, its exchange "
        f"buffers {buffers / 1e9:.1f} GB and the KV of a batch {kv / 1e9:.1f} GB: {remedy}"
    )
