"""What an iteration is made of: each cause taken out of the coefficients in turn.

Operators hide each other, so a cause is worth what the iteration is shorter without it.
"""

from __future__ import annotations

from twin.model.batch import Hot
from twin.model.coefficients import CAUSES, Decode
from twin.model.costs import Costs
from twin.model.decode import decode_iteration_s
from twin.model.predict import Traffic, rank_load
from twin.model.record import without


def shares_by_cause(costs: Costs, traffic: Traffic, hot: Hot) -> dict[str, float]:
    """Share of an iteration, with one request per rank, due to each cause, largest first."""
    role = costs.decoding
    assert role is not None
    requests, context = rank_load(1.0, role.ranks, traffic)

    def iteration_s(costs: Decode) -> float:
        return float(
            decode_iteration_s(costs, requests, context, 0, role.ranks, *hot, role.operator_sink())
        )

    whole_s = iteration_s(role.decode)
    shares = {c: 1.0 - iteration_s(without(role.decode, c)) / whole_s for c in CAUSES}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
