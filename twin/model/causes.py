"""What an iteration is made of: each cause taken out of the coefficients in turn.

Operators overlap and hide each other, so a cause is worth what the iteration is shorter without
it. It knows no bound and no batch but one request a die.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twin.model import params as q
from twin.model.costs import Costs
from twin.model.decode import decode_iteration_s
from twin.model.params import DECODE_OPERATORS, operator_sink
from twin.model.predict import Hot, Traffic, rank_load

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


def shares_by_cause(costs: Costs, traffic: Traffic, hot: Hot) -> dict[str, float]:
    """Share of an iteration with one request a die that goes with each cause, largest first."""
    role = costs.decode_role or costs.colocated_role
    assert role is not None
    requests, context = rank_load(1.0, role.dies, traffic)

    def iteration_s(vector: NDArray[np.float64]) -> float:
        ops = operator_sink(DECODE_OPERATORS)
        return float(decode_iteration_s(vector, requests, context, 0, role.dies, *hot, ops))

    whole = iteration_s(role.vector)
    saved = {}
    for cause, block in _OF_A_BLOCK.items():
        vector = role.vector.copy()
        for m in range(1 + q.SPLITS):
            vector[[m * q.MODE + k for k in block]] = 0.0
        vector[list(_OUTSIDE.get(cause, ()))] = 0.0
        saved[cause] = 1.0 - iteration_s(vector) / whole
    return dict(sorted(saved.items(), key=lambda item: -item[1]))
