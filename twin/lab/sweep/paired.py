"""Whether runs differ by more than chance, by pairs of equal seeds, whose differences vary less."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from twin.lab.sweep.compare import Comparison, MetricRow, Paired, Verdict, is_number
from twin.metrics.registry import verdict
from twin.scenario import Scenario, with_overrides

SEEDS = 5  # of each scenario: the baseline's own, and those that follow
LEAST, SURE = 3, 0.95  # pairs of an interval, and how likely it holds the mean difference


def seeded(
    scenarios: Sequence[Scenario], baseline: int, count: int = SEEDS
) -> list[list[Scenario]]:
    """Each scenario with `count` seeds, the same for all."""
    first = scenarios[baseline].seed
    return [[with_overrides(s, {"seed": first + k}) for k in range(count)] for s in scenarios]


def with_pairs(
    compared: Comparison, summaries: Sequence[Sequence[Mapping[str, Any] | None]]
) -> Comparison:
    """The comparison with paired differences over seeds (at least LEAST); summaries: of
    `seeded`."""
    rows = [_row(row, summaries, compared.baseline) for row in compared.metrics]
    return replace(compared, metrics=rows)


def _row(
    row: MetricRow, summaries: Sequence[Sequence[Mapping[str, Any] | None]], baseline: int
) -> MetricRow:
    """A row with paired differences over equal seeds."""
    verdicts: list[Verdict] = list(row.verdicts)
    differences: list[Paired | None] = [None] * len(summaries)
    for i, seed_summaries in enumerate(summaries):
        value_pairs = [
            (float(a[row.name]), float(b[row.name]))
            for a, b in zip(seed_summaries, summaries[baseline], strict=True)
            if a and b and is_number(a.get(row.name)) and is_number(b.get(row.name))
        ]
        if i == baseline or len(value_pairs) < LEAST:
            continue
        differences[i] = pair = paired(value_pairs)
        if pair.mean == 0.0 and pair.half == 0.0:
            verdicts[i] = "same"
        elif abs(pair.mean) <= pair.half:
            verdicts[i] = "noise"
        elif row.verdicts[i] != "different":
            verdicts[i] = verdict(row.name, pair.base + pair.mean, pair.base) or "different"
    return replace(row, verdicts=tuple(verdicts), paired=tuple(differences))


def paired(both: Sequence[tuple[float, float]]) -> Paired:
    """The mean difference of pairs (value, baseline) with its interval, by Student's t."""
    from scipy.special import stdtrit  # a seventh of the imports of `twin run`, which has no pairs

    differences = [a - b for a, b in both]
    spread = statistics.stdev(differences) / math.sqrt(len(both))
    half = float(stdtrit(len(both) - 1, 0.5 + 0.5 * SURE)) * spread
    base = statistics.fmean(b for _, b in both)
    return Paired(len(both), base, statistics.fmean(differences), half)
