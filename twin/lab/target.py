"""The largest batch that keeps a time per output token, or why none does.

The steady state by formula, asked for one batch after another. Where even the smallest batch is
too slow, that is said with the best time there is and what it is made of: each cause is taken out
of the coefficients in turn, and the one that saves most binds. It knows no queue and no run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.engine.setup import imbalances
from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.model import params as q
from twin.model.costs import build_costs
from twin.model.decode import decode_iteration_s
from twin.model.params import DECODE_OPERATORS, operator_sink
from twin.model.predict import Hot, Prediction, predict, rank_load
from twin.model.shape import ModelError
from twin.scenario import Scenario, with_overrides
from twin.workload.generate import mean_lengths
from twin.workload.requests import TraceTable

_OF_A_BLOCK = {  # what an iteration is made of, as places in a block of coefficients
    "reading weights": (q.PROLOG_WEIGHT, q.OUTPUT_WEIGHT, q.EXPERT_WEIGHT),
    "the exchange with experts": (
        q.DISPATCH_FIXED, q.DISPATCH_MESSAGE, q.DISPATCH_SEND, q.DISPATCH_RECEIVE,
        q.COMBINE_FIXED, q.COMBINE_SEND, q.COMBINE_RECEIVE,
    ),
    "the attention core": (q.CORE_CONTEXT, q.CORE_CONTEXT_ONE),
    "launches and the host": (q.PROLOG_FIXED, q.CORE_FIXED, q.OUTPUT_FIXED, q.GATE_FIXED,
                              q.EXPERT_FIXED),
    "matrix products": (q.PROLOG_FLOP, q.OUTPUT_FLOP, q.EXPERT_FLOP),
}  # fmt: skip
_OUTSIDE = {
    "reading weights": (q.DENSE_WEIGHT, q.MTP_WEIGHT, q.HEAD_WEIGHT),
    "launches and the host": (q.DENSE_FIXED, q.MTP_FIXED, q.HEAD_FIXED, q.SAMPLE_FIXED,
                              q.GRAPH_LAUNCH, q.HOST_GAP, q.HOST_ANSWER),
    "matrix products": (q.DENSE_FLOP, q.MTP_FLOP, q.HEAD_FLOP),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What a bound on the time per output token allows."""

    tpot_s: float  # the bound
    batch_per_npu: int  # the largest batch that keeps it; 0: none does
    batch_tpot_s: float  # its TPOT; of an infeasible bound that of the smallest batch
    best_batch_per_npu: int  # the smallest batch, one request a die
    best_tpot_s: float
    causes: dict[str, float]  # share of the best iteration that each cause takes, longest first

    @property
    def feasible(self) -> bool:
        """Whether any batch keeps the bound."""
        return self.batch_per_npu > 0

    @property
    def binds(self) -> str:
        """The cause that the best TPOT is chiefly made of."""
        return next(iter(self.causes))

    @property
    def sentence(self) -> str:
        """The answer for people."""
        asked = f"TPOT of {self.tpot_s * 1e3:,.4g} ms"
        if self.feasible:
            return (
                f"{self.batch_per_npu:,} requests per NPU is the largest batch that keeps a "
                f"{asked}: {self.batch_tpot_s * 1e3:,.4g} ms."
            )
        first, *more = self.causes
        return (
            f"No batch keeps a {asked} in this deployment: the best is "
            f"{self.best_tpot_s * 1e3:,.4g} ms with {self.best_batch_per_npu} per NPU, "
            f"{self.causes[first]:.0%} of it {first}"
            + (f" and {self.causes[more[0]]:.0%} {more[0]}." if more else ".")
        )


def largest_batch(
    scenario: Scenario,
    facts: Facts,
    tpot_s: float,
    trace: TraceTable | None = None,
    counts: NDArray[np.float64] | None = None,
) -> Target:
    """The largest batch per NPU whose steady state keeps `tpot_s`, for mean lengths.

    Batches are whole requests a die, up to what KV space holds. Raises ModelError when nothing
    decodes in this deployment or the model does not fit.
    """
    if scenario.deployment.mode == "prefill_only":
        raise ModelError("deployment.mode = 'prefill_only' decodes nothing: it has no TPOT")
    fabric = build_fabric(scenario.supernode, facts)
    costs = build_costs(scenario, facts, fabric)
    hot = imbalances(scenario, facts, costs, trace, counts)[1]
    given, answer = mean_lengths(scenario.workload, facts, trace)
    each = costs.chip.dies_per_npu

    def of(a_die: int) -> Prediction:
        asked = with_overrides(scenario, {"deployment.decode.batch_per_npu": a_die * each})
        return predict(
            asked, facts, fabric, input_tokens=given, output_tokens=answer,
            decode_hot=(hot.tokens, hot.factor),
        )  # fmt: skip

    best = of(1)
    assert best.decode is not None
    causes = _causes(scenario, best, given, answer, (hot.tokens, hot.factor))
    low, found = 0, best
    if best.decode.tpot_s <= tpot_s:
        low, high = 1, max(2, 4096 // each + 1)
        while high - low > 1:
            middle = (low + high) // 2
            now = _or_none(of, middle)
            if (
                now is not None
                and now.decode is not None
                and now.decode.tpot_s <= tpot_s
                and (now.decode.batch_per_npu >= middle * each)
            ):
                low, found = middle, now
            else:
                high = middle
    assert found.decode is not None
    return Target(tpot_s, low * each, found.decode.tpot_s, each, best.decode.tpot_s, causes)


def _or_none(of: Callable[[int], Prediction], a_die: int) -> Prediction | None:
    """A batch whose buffers do not fit is no batch."""
    try:
        return of(a_die)
    except ModelError:
        return None


def _causes(
    s: Scenario, best: Prediction, given: float, answer: float, hot: Hot
) -> dict[str, float]:
    """Share of the iteration that goes when a cause's coefficients are taken out."""
    role = best.costs.decode_role or best.costs.colocated_role
    assert role is not None
    requests, context = rank_load(1.0, role.dies, given, answer)
    whole = _iteration_s(role.vector, requests, context, role.dies, hot)
    saved = {}
    for cause, block in _OF_A_BLOCK.items():
        vector = role.vector.copy()
        for m in range(1 + q.SPLITS):
            vector[[m * q.MODE + k for k in block]] = 0.0
        vector[list(_OUTSIDE.get(cause, ()))] = 0.0
        saved[cause] = 1.0 - _iteration_s(vector, requests, context, role.dies, hot) / whole
    return dict(sorted(saved.items(), key=lambda item: -item[1]))


def _iteration_s(
    vector: NDArray[np.float64], requests: NDArray[np.int64], context: NDArray[np.float64],
    dies: int, hot: Hot,
) -> float:  # fmt: skip
    ops = operator_sink(DECODE_OPERATORS)
    return float(decode_iteration_s(vector, requests, context, 0, dies, *hot, ops))
