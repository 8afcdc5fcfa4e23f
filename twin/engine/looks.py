"""What a controller is shown of the pools: work in hand, use and latency since the look before.

Read between two steps from counters and columns that the phases keep anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from twin.engine import codes as w
from twin.engine.machine import Machine
from twin.policies.batching import tokens_per_iteration

# Requests waiting, work in hand, busy share, latency over its SLO: the end of a PoolSeen.
Measured = tuple[int, float, float, float]
BACK = (
    w.BACK_FROM_QUEUE, w.BACK_FROM_PREFILL, w.BACK_FROM_TRANSFER, w.BACK_FROM_DECODE, w.PREEMPTED,
)  # fmt: skip


class Look:
    """Measures the pools, each time since the time before."""

    def __init__(self, machine: Machine) -> None:
        self.world = machine.world
        s = machine.setup.scenario
        self._ttft_s, self._tpot_s = s.slo.ttft_s, 1e-3 * s.slo.tpot_ms
        self._per_iteration = tokens_per_iteration(
            s.deployment.decode.mtp_draft_tokens, machine.setup.costs.mtp_acceptance
        )
        tokens = self.world.request.input_tokens.astype(np.float64)
        self._pairs_per_token = 0.5 * float((tokens**2).sum() / tokens.sum())
        self._looked_s = 0.0
        self._arrived = 0
        self._oldest = 0  # request without a first token at the look before
        self._tokens, self._iterations, self._iteration_s = 0.0, 0, 0.0
        self.arrivals_per_s = 0.0

    def at(self, instances: Mapping[str, Sequence[int]], t_s: float) -> tuple[Measured, Measured]:
        """Prefill and decode, over their instances that serve, by their numbers."""
        span_s = max(t_s - self._looked_s, 1e-9)
        self._looked_s = t_s
        arrived = int(self.world.record.counters[w.ARRIVED])
        self.arrivals_per_s = (arrived - self._arrived) / span_s
        self._arrived = arrived
        prefill = self._prefill(np.array(instances["prefill"], np.int64), t_s, span_s)
        return prefill, self._decode(np.array(instances["decode"], np.int64))

    def _prefill(self, at: np.ndarray, t_s: float, span_s: float) -> Measured:
        """Busy: tokens computed over what full batches of such prompts would be."""
        p, count = self.world.prefill, self.world.record.counters
        budget = float(self.world.settings.prefill_budget)
        waiting = int(count[w.ROUTED] - count[w.PREFILL_BEGUN] - count[w.BACK_FROM_QUEUE])
        in_hand = float(p.queued_tokens[at].sum()) / (budget * max(at.size, 1))
        tokens = float(self.world.record.windows[:-1, w.PREFILL_TOKENS].sum())
        full_s = p.pass_s + budget * (p.s_per_token + self._pairs_per_token * p.s_per_pair)
        able = float((budget / full_s[at]).sum()) * span_s
        busy = (tokens - self._tokens) / max(able, 1e-9)
        self._tokens = tokens
        return waiting, in_hand, max(0.0, busy), self._mean_ttft_s(t_s, span_s) / self._ttft_s

    def _mean_ttft_s(self, t_s: float, span_s: float) -> float:
        """Of first tokens since the look before; 0 without one."""
        r = self.world.request
        rows = slice(self._oldest, self._arrived)
        first_s, arrival_s = r.transfer_end_s[rows], r.arrival_s[rows]
        known = first_s <= t_s
        new = known & (first_s > t_s - span_s)
        out = ~(known | (r.status[rows] >= w.REJECTED))
        self._oldest += int(out.argmax()) if out.any() else out.size
        return float((first_s[new] - arrival_s[new]).mean()) if new.any() else 0.0

    def _decode(self, at: np.ndarray) -> Measured:
        """Busy: slots or KV space of what decodes, whichever is fuller; waiting: for room."""
        d, count = self.world.decode, self.world.record.counters
        waiting = int(count[w.FRONTED]) + sum(int(count[k]) for k in BACK)
        waiting -= int(count[w.ROUTED] + count[w.REJECTED_ROUTER] + count[w.GIVEN_UP])
        waiting -= int(count[w.CANCELLED_BY_CLIENT] - count[w.LEFT_EARLY])
        room, taken = max(float(d.room[at].sum()), 1.0), float(d.taken[at].sum())
        ranks = self.world.settings.decode_ranks
        space = float(d.kv_tokens[at].sum()) * ranks
        held = float(d.context.reshape(-1, ranks)[at].sum())
        busy = max(float(d.in_batch[at].sum()) / room, held / max(space, 1.0))
        iterations, spent_s = int(d.iteration.sum()), float(d.busy_s.sum())
        begun = iterations - self._iterations
        tpot_s = (spent_s - self._iteration_s) / max(begun, 1) / self._per_iteration
        self._iterations, self._iteration_s = iterations, spent_s
        return waiting, (taken + waiting) / room, busy, max(0.0, tpot_s) / self._tpot_s
