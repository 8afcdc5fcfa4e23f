"""The summary: one flat dictionary of a run's figures, units last in every name.

Figures are of the steady state, from the end of the warm-up to the horizon: TTFT of requests whose
first token fell in it, TPOT and E2E of those that finished in it. Counts are of the whole run.
"""

from __future__ import annotations

from twin.metrics.observed import Observed
from twin.metrics.registry import METRICS

Summary = dict[str, float | int | str | None]

# A note of a run whose latencies say how long it was: what stands beside it must say so too.
OVERLOADED = (
    "Queues grow to the end: the machine is overloaded and latencies depend on the horizon."
)


def summarise(run: Observed) -> Summary:
    """Every metric that has a formula, in the order of declaration."""
    return {key: metric.of(run) for key, metric in METRICS.items() if metric.of is not None}
