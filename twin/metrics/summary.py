"""The summary: one flat dictionary of a run's figures, units last in every name.

Figures are of the steady state, from the end of the warm-up to the horizon: TTFT of requests whose
first token fell in it, TPOT and E2E of those that finished in it. Counts are of the whole run.
"""

from __future__ import annotations

from twin.metrics.observed import Observed
from twin.metrics.registry import METRICS

Summary = dict[str, float | int | str | None]

# Notes of runs whose figures are no steady state's, by what `steadiness` says of them.
UNSTEADY = {
    "overloaded": "Overloaded: queues grow to the end, so latencies depend on the horizon.",
    "filling": "Still filling: requests inside drift to the end, so figures depend on the horizon.",
}


def summarise(run: Observed) -> Summary:
    """Every metric that has a formula, in the order of declaration."""
    return {key: metric.of(run) for key, metric in METRICS.items() if metric.of is not None}
