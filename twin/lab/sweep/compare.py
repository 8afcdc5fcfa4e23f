"""Two to six runs against a baseline: how the questions differ first, then how the answers do."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

from twin.lab.store import RunRow
from twin.metrics.measures import amount
from twin.metrics.registry import Better, as_text, metric_of, verdict
from twin.metrics.steadiness import UNSTEADY
from twin.scenario import Scenario, SpecError, field_unit, values_by_path, with_overrides

RUNS_MIN, RUNS_MAX = 2, 6
LARGE = 10.0  # times the baseline: a larger difference is shown in its unit, not in per cent
SAME_LOAD = 0.01  # largest relative difference in finished requests of two runs with one load

Verdict = Literal["better", "worse", "same", "noise", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class InputRow:
    """A field in which some scenarios differ, with its value in each."""

    path: str
    unit: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Paired:
    """Difference over pairs of runs with equal seeds, in the figure's own unit."""

    pairs: int
    base: float  # mean of the baseline's runs
    mean: float  # difference
    half: float  # half of its 95 % interval

    def text(self, name: str) -> str:
        """Text of the difference of a figure (key `name`): '−8.2 ± 1.3 %', or 'equal within
        noise'."""
        metric = metric_of(name)
        unit_scale, unit = 1.0, metric.unit
        if metric.kind == "share":
            unit_scale, unit = 100.0, "points"
        elif abs(self.mean) < LARGE * abs(self.base):
            unit_scale, unit = 100.0 / abs(self.base), "%"
        margin = unit_scale * self.half
        digits = max(1, -math.floor(math.log10(margin))) if margin > 0.0 else 1
        text = f"{unit_scale * self.mean:+z.{digits}f} ± {margin:.{digits}f} {unit}".replace(
            "-", "−"
        )
        return text if abs(self.mean) > self.half else f"equal within noise ({text})"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A figure of every run, against the baseline's. None: missing, or no number."""

    name: str
    unit: str
    better: Better
    values: tuple[float | None, ...]
    deltas: tuple[float | None, ...]  # value - baseline, in the unit
    ratios: tuple[float | None, ...]  # value / baseline
    verdicts: tuple[Verdict, ...]
    paired: tuple[Paired | None, ...] = ()  # empty: one seed each

    def paired_text(self, run: int) -> str:
        """Mean difference of a run (its index) from the baseline over pairs of equal seeds, in
        words; '' without pairs, or if the verdict is "same"."""
        difference = self.paired[run] if self.paired else None
        return difference.text(self.name) if difference and self.verdicts[run] != "same" else ""

    def cell_texts(self) -> list[str]:
        """The figure of each run in words, with its change from the baseline."""
        ratios_and_verdicts = zip(self.ratios, self.verdicts, strict=True)
        changes = [
            "" if ratio is None or verdict == "same" else f"{100 * (ratio - 1):+.1f} %"
            for ratio, verdict in ratios_and_verdicts
        ]
        return [
            f"{as_text(self.name, figure)}  {self.paired_text(run_index) or change}".rstrip()
            for run_index, (figure, change) in enumerate(zip(self.values, changes, strict=True))
        ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side; everything is in the order of `runs`."""

    runs: tuple[str, ...]
    names: tuple[str, ...]
    baseline: int
    inputs: list[InputRow]
    metrics: list[MetricRow]
    notes: list[str]


def input_rows(*scenarios: Scenario) -> list[InputRow]:
    """Fields in which scenarios differ, by dotted path, in the order of the declaration."""
    base_values, *other_values = all_values = [values_by_path(scenario) for scenario in scenarios]
    return [
        InputRow(path, field_unit(path), tuple(values[path] for values in all_values))
        for path, value in base_values.items()
        if any(values[path] != value for values in other_values)
    ]


def changed_fields(before: Scenario, after: Scenario) -> dict[str, Any]:
    """Fields in which `after` differs from `before`, by dotted path, with the values of `after`."""
    return {input_row.path: input_row.values[1] for input_row in input_rows(before, after)}


def compare(
    runs: Sequence[RunRow], scenarios: Sequence[Scenario], baseline: int = 0,
    titles: Sequence[str] = (),
) -> Comparison:  # fmt: skip
    """Comparison of two to six runs with one of them (index `baseline`); titles: names to show, by
    default the runs' own. Raises SpecError."""
    check_run_count(len(runs))
    if not 0 <= baseline < len(runs) or len(scenarios) != len(runs):
        raise SpecError("the baseline must be one of the runs, and each needs its scenario")
    titles = tuple(titles) or tuple(run.name for run in runs)
    inputs = input_rows(*scenarios)
    metric_keys = list(dict.fromkeys(metric_key for run in runs for metric_key in run.summary))
    metric_rows = [
        metric_row(metric_key, [run.summary.get(metric_key) for run in runs], baseline)
        for metric_key in metric_keys
    ]
    metric_rows = [_excuse_more_npus(row, runs, baseline) for row in metric_rows]
    return Comparison(
        runs=tuple(run.id for run in runs), names=titles, baseline=baseline, inputs=inputs,
        metrics=[row for row in metric_rows if any(value is not None for value in row.values)],
        notes=_notes(runs, titles, inputs),
    )  # fmt: skip


def change_and_verdict(name: str, value: float, base: float) -> tuple[str, str]:
    """(change, verdict) in words of a figure `value` against `base`, another run's. The change is
    in points for shares, a factor from three times `base` on, in per cent for everything else."""
    verdict_word = verdict(name, value, base)
    if verdict_word == "same":
        return "same", verdict_word
    metric = metric_of(name)
    if metric.kind != "share" and base and value / base >= 3:
        return f"× {value / base:,.1f}", verdict_word
    if metric.kind == "share":
        size_text = f"{abs(100 * (value - base)):.1f} points"
    elif base:
        size_text = f"{abs(100 * (value / base - 1)):.1f} %"
    else:
        size_text = amount(abs(value), metric.kind, metric.unit)
    return ("+" if value > base else "−") + size_text, verdict_word


def check_run_count(run_count: int) -> None:
    """Raise SpecError for other than two to six runs."""
    if not RUNS_MIN <= run_count <= RUNS_MAX:
        raise SpecError(f"a comparison takes {RUNS_MIN} to {RUNS_MAX} runs, not {run_count}")


def metric_row(name: str, values: Sequence[Any], baseline: int) -> MetricRow:
    """Row of a figure (key `name`) of every run against the run with the index `baseline`."""
    figures = [float(figure) if is_number(figure) else None for figure in values]
    base_value = figures[baseline]
    metric = metric_of(name)
    return MetricRow(
        name, "" if metric.kind == "share" else metric.unit, metric.better, tuple(figures),
        tuple(None if base_value is None or figure is None else figure - base_value
              for figure in figures),
        tuple(None if not base_value or figure is None else figure / base_value
              for figure in figures),
        tuple(_verdict(name, figure, base_value) for figure in figures),
    )  # fmt: skip


def _excuse_more_npus(row: MetricRow, runs: Sequence[RunRow], baseline: int) -> MetricRow:
    """The row with 'different' in place of 'worse' for runs with more NPUs at the same load."""
    if not row.unit.endswith("per NPU"):
        return row
    base_summary = runs[baseline].summary

    def has_spare_npus(run: RunRow) -> bool:
        """Whether a run has more NPUs than the baseline and finishes at least as many requests."""
        has_more_npus = (run.summary.get("npus") or 0) > (base_summary.get("npus") or 0)
        req_per_s, base_req_per_s = (
            summary.get("throughput_req_per_s") or 0.0 for summary in (run.summary, base_summary)
        )
        return has_more_npus and req_per_s >= (1 - SAME_LOAD) * base_req_per_s

    verdicts: list[Verdict] = [
        "different" if verdict == "worse" and has_spare_npus(run) else verdict
        for run, verdict in zip(runs, row.verdicts, strict=True)
    ]
    return replace(row, verdicts=tuple(verdicts))


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of a field or a summary is a number, not a switch, text or None."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _verdict(name: str, value: float | None, base: float | None) -> Verdict:
    """Verdict of a figure against the baseline's: 'different' if no direction is better, 'unknown'
    if a figure is missing."""
    return "unknown" if value is None or base is None else verdict(name, value, base) or "different"


def _notes(runs: Sequence[RunRow], titles: Sequence[str], inputs: Sequence[InputRow]) -> list[str]:
    """Warnings, as sentences, that a reader must know before trusting a difference."""
    warnings = []
    if len({run.facts_digest for run in runs}) > 1:
        warnings.append("These runs were made with different facts: run them again to compare.")
    if len({run.engine_version for run in runs}) > 1:
        warnings.append("These runs were made by different versions of the engine.")
    for run, title in zip(runs, titles, strict=True):
        if run.state != "done":
            warnings.append(f"{title} is {run.state}: it has no result to rely on.")
        warnings += [f"{title}: {note}" for note in UNSTEADY.values() if note in (run.notes or ())]
    changed_paths = {input_row.path for input_row in inputs} - {"name", "question", "source"}
    if changed_paths == {"seed"}:
        warnings.append("Only the seed differs: the differences are chance.")
    if "seed" in changed_paths and len(changed_paths) > 1:
        warnings.append("The seeds differ too, so part of every difference is chance.")
    return warnings


SEEDS = 5  # of each scenario: the baseline's own, and those that follow
LEAST, SURE = 3, 0.95  # pairs of an interval, and how likely it holds the mean difference


def reseed(
    scenarios: Sequence[Scenario], baseline: int, count: int = SEEDS
) -> list[list[Scenario]]:
    """For each scenario `count` copies: with the seed of scenario `baseline` and the next ones."""
    first_seed = scenarios[baseline].seed
    return [
        [with_overrides(scenario, {"seed": first_seed + offset}) for offset in range(count)]
        for scenario in scenarios
    ]


def with_pairs(
    comparison: Comparison, summaries: Sequence[Sequence[Mapping[str, Any] | None]]
) -> Comparison:
    """Comparison with mean differences over pairs of equal seeds; summaries: by run, then seed."""
    metric_rows = []
    for row in comparison.metrics:
        verdicts: list[Verdict] = list(row.verdicts)
        differences: list[Paired | None] = [None] * len(summaries)
        for run_index, seed_summaries in enumerate(summaries):
            value_pairs = [
                (float(run_summary[row.name]), float(base_summary[row.name]))
                for run_summary, base_summary in zip(
                    seed_summaries, summaries[comparison.baseline], strict=True
                )
                if run_summary
                and base_summary
                and is_number(run_summary.get(row.name))
                and is_number(base_summary.get(row.name))
            ]
            if run_index == comparison.baseline or len(value_pairs) < LEAST:
                continue
            differences[run_index] = difference = mean_difference(value_pairs)
            if math.isclose(
                difference.base + abs(difference.mean) + difference.half, difference.base
            ):
                verdicts[run_index] = "same"
            elif abs(difference.mean) <= difference.half:
                verdicts[run_index] = "noise"
            elif row.verdicts[run_index] != "different":
                verdicts[run_index] = _verdict(
                    row.name, difference.base + difference.mean, difference.base
                )
        metric_rows.append(replace(row, verdicts=tuple(verdicts), paired=tuple(differences)))
    return replace(comparison, metrics=metric_rows)


def mean_difference(pairs: Sequence[tuple[float, float]]) -> Paired:
    """Mean difference of (value, baseline) pairs with its 95 % interval, by Student's t."""
    from scipy.special import stdtrit  # a seventh of the imports of `twin run`, which has no pairs

    differences = [value - base_value for value, base_value in pairs]
    error_of_mean = statistics.stdev(differences) / math.sqrt(len(pairs))
    half_width = float(stdtrit(len(pairs) - 1, 0.5 + 0.5 * SURE)) * error_of_mean
    base_mean = statistics.fmean(base_value for _, base_value in pairs)
    return Paired(len(pairs), base_mean, statistics.fmean(differences), half_width)
