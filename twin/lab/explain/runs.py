"""The re-runs of an explanation: short, each once, and what a change brings on several seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from twin.engine.simulate import Run, simulate
from twin.facts import Facts
from twin.lab.explain.view import (
    SERVED,
    Settings,
    Summary,
    attained_share,
    catches_up,
    finished_share,
    share_met,
    tpot_ratio,
    ttft_ratio,
)
from twin.metrics.registry import METRICS
from twin.scenario import Scenario, SpecError, with_overrides
from twin.workload.requests import TraceTable

# Of an explanation, beyond the scenario's own: what is judged elsewhere takes other ones.
MORE_SEEDS = (60_013, 60_017)
RARE_SEEDS = (60_029, 60_037, 60_041, 60_077, 60_083)  # and these, where requests are few
# In all runs of a change: 5 % more of them within the SLO, where a tenth misses it, are more than
# two standard errors of the difference of two independent shares.
FEW = 300.0
REQUESTS_MAX = 24_000.0  # of one re-run: longer questions are answered over a shorter time
STAYS = 3.0  # of the slowest 1 % that the steady state is to hold

Note = Callable[[int], None]


class ExplainError(ValueError):
    """A run that cannot be explained: one sentence that says why."""


@dataclass
class Runs:
    """Results by scenario; equal scenarios are simulated once."""

    facts: Facts
    trace: TraceTable | None = None
    counts: np.ndarray | None = None
    note: Note = lambda _: None  # gets how many runs there were; may raise to stop
    summaries: dict[Scenario, Summary | None] = field(default_factory=dict)
    tables: dict[Scenario, Mapping[str, pl.DataFrame]] = field(default_factory=dict)

    def run_with_tables(self, scenario: Scenario) -> Summary:
        """Summary of a scenario's run, whose tables stay in `tables`. Raises what the engine
        raises, and ExplainError for a broken law."""
        if scenario not in self.tables:
            run = self._run(scenario)
            if not run.valid:
                law_ids = "; ".join(check["id"] for check in run.checks if not check["ok"])
                raise ExplainError(f"{scenario.name}: the run broke a law of its own ({law_ids})")
            self.summaries[scenario], self.tables[scenario] = run.summary, run.tables
        return self.summaries[scenario] or {}

    def summary_of(self, scenario: Scenario) -> Summary | None:
        """Summary of a scenario's run; None if it cannot run or breaks a law."""
        if scenario not in self.summaries:
            try:
                run = self._run(scenario)
            except ValueError as error:
                if not type(error).__module__.startswith("twin."):
                    raise
                self.summaries[scenario] = None
            else:
                self.summaries[scenario] = run.summary if run.valid else None
        return self.summaries[scenario]

    def _run(self, scenario: Scenario) -> Run:
        """The run of a scenario with the trace and expert counts of the explanation."""
        count_args = {} if self.counts is None else {"counts": self.counts}

        def note_run(_share: float, _live: Mapping[str, float]) -> bool:
            """Report the number of runs; the run always goes on."""
            self.note(len(self.summaries))
            return True

        return simulate(scenario, self.facts, self.trace, note_run, **count_args)

    def summary_with(self, scenario: Scenario, settings: Settings) -> Summary | None:
        """Summary of the run with some fields replaced; None if it is invalid or cannot run."""
        try:
            return self.summary_of(with_overrides(scenario, settings))
        except SpecError:
            return None


def with_shorter_horizon(s: Scenario, summary: Summary) -> Scenario:
    """The scenario with a shorter horizon if it has many requests, no fault and no trace."""
    requests = float(summary.get("requests") or 0)
    if s.faults or requests <= REQUESTS_MAX or s.workload.arrivals == "trace":
        return s
    e2e_s = float(summary.get("e2e_s_p99") or s.horizon_s)
    time_share = min(1.0, max(REQUESTS_MAX / requests, (s.warmup_s + STAYS * e2e_s) / s.horizon_s))
    times_s = {"horizon_s": time_share * s.horizon_s, "warmup_s": time_share * s.warmup_s}
    return with_overrides(s, {path: float(f"{time_s:.3g}") for path, time_s in times_s.items()})


def with_seeds(s: Scenario, seeds: Sequence[int]) -> list[Scenario]:
    """The scenario with its own seed, and with each of the other seeds."""
    all_seeds = [s.seed, *(seed for seed in seeds if seed != s.seed)]
    return [with_overrides(s, {"seed": seed}) for seed in all_seeds]


AGREES = 0.7  # smaller over larger gain of two seeds from which on no third is run
MOST = 0.5  # of the requests within the SLO: with fewer a queue decides, and they hang together
EASY = 0.7  # of the SLO: a p99 below it breaks on no other seed
SAID = 0.05  # a metric that moves by less is not worth a sentence
NOTABLE = 0.05  # more requests within the SLO, or half of those that miss it: less is chance
CLEAR = 0.02  # more requests within the SLO: enough to let a p99 rise
NAMED = ("slo_attainment", "ttft_s_p99", "tpot_s_p99", "tpot_s_mean", "ttft_s_mean",
         "throughput_req_per_s")  # fmt: skip
LEAST_FINISHED = 0.01  # of what arrives


@dataclass(frozen=True)
class Gain:
    """Effect of a change on one metric, over the explanation's seeds."""

    settings: Settings
    metric: str
    before: float  # mean over the seeds
    after: float
    promise: float  # the least improvement of them, in the metric's unit; above 0
    attained_before: float  # SLO attainment, means
    attained_after: float


def run_score(before: Summary, after: Summary, s: Scenario) -> float:
    """Score of a change by its runs before and after (0: no gain): more requests within the SLO,
    latencies nearer to their limits, more requests finished."""
    # Without an upper end: far off, too, what comes nearer to the SLO is better.
    slo_ratios = [ttft_ratio(run, s) + tpot_ratio(run, s) + 1e-3 for run in (before, after)]
    score = SERVED * (share_met(after) - share_met(before)) + math.log(
        slo_ratios[0] / slo_ratios[1]
    )
    if catches_up(before, after, s):
        score += math.log(finished_share(after, s) / max(finished_share(before, s), LEAST_FINISHED))
    return score


def gain_on_seeds(runs: Runs, s: Scenario, settings: Settings) -> Gain | None:
    """Gain of a change over several seeds, more if requests are few; None if it is too small or
    does harm on a seed."""
    summary_pairs: list[tuple[Summary, Summary]] = []
    for seed_scenario in with_seeds(s, MORE_SEEDS + RARE_SEEDS):
        has_enough = (
            math.fsum(float(before.get("requests") or 0.0) for before, _ in summary_pairs) >= FEW
        )
        if has_enough and (
            len(summary_pairs) > len(MORE_SEEDS)
            or len(summary_pairs) == 2
            and _agree(summary_pairs, s)
        ):
            break
        before, after = runs.summary_of(seed_scenario), runs.summary_with(seed_scenario, settings)
        if before is None or after is None or is_harmful(before, after, seed_scenario):
            return None
        summary_pairs.append((before, after))
    return _gain(summary_pairs, s, settings)


def _agree(pairs: list[tuple[Summary, Summary]], s: Scenario) -> bool:
    """Whether the gains on two seeds are similar, and large or far within the SLO; pairs: (summary
    before, after) by seed."""
    is_clear_gain = all(
        (share_met(after) - share_met(before) >= 2 * CLEAR and attained_share(after) >= MOST)
        or max(ttft_ratio(after, s), tpot_ratio(after, s)) < EASY
        for before, after in pairs
    )
    gain, other_gain = (_gain([pair], s, {}) for pair in pairs)
    if not is_clear_gain or gain is None or other_gain is None or gain.metric != other_gain.metric:
        return False
    smaller_gain, larger_gain = sorted((gain.promise, other_gain.promise))
    return smaller_gain >= AGREES * larger_gain


def _gain(pairs: list[tuple[Summary, Summary]], s: Scenario, settings: Settings) -> Gain | None:
    """Gain of a change by its clearest metric over (before, after) pairs; None: no metric moves."""
    all_catch_up = all(catches_up(before, after, s) for before, after in pairs)
    metrics = NAMED if all_catch_up else NAMED[:-1]  # else as many finish as arrive
    gains = [gain for metric in metrics if (gain := _metric_gain(metric, pairs, s)) is not None]
    met_shares = [float(np.mean([attained_share(pair[side]) for pair in pairs])) for side in (0, 1)]
    if CLEAR < met_shares[0] < s.slo.share:  # some keep the SLO and others do not: that counts
        gains = [gain for gain in gains if gain[1] == "slo_attainment"]
    if not gains:
        return None
    _, metric, before, after, promise = max(gains)
    return Gain(settings, metric, before, after, promise, met_shares[0], met_shares[1])


def is_harmful(before: Summary, after: Summary, s: Scenario) -> bool:
    """Whether a change lowers SLO attainment or, unless it clearly raises that, raises a p99 that
    is then near its SLO (of TPOT alone where it lets a run that fell behind catch up)."""
    share_rise = share_met(after) - share_met(before)
    if share_rise < 0 or attained_share(after) < attained_share(before):
        return True
    # Where a run falls behind, TTFT is that of the few served early: more of them may lengthen it.
    p99_ratios = (tpot_ratio,) if catches_up(before, after, s) else (ttft_ratio, tpot_ratio)
    p99_rises = (
        ratio_of(after, s) > max(ratio_of(before, s) * 1.02, 0.85) for ratio_of in p99_ratios
    )
    return share_rise < CLEAR and any(p99_rises)


def _metric_gain(
    metric: str, pairs: list[tuple[Summary, Summary]], s: Scenario
) -> tuple[float, str, float, float, float] | None:
    """(weight against other metrics, metric, mean before, mean after, least improvement), of a
    change over (before, after) pairs of runs; None unless the metric clearly improves."""
    pair_values = [[metric_value(metric, summary, s) for summary in pair] for pair in pairs]
    if any(figure is None for pair in pair_values for figure in pair):
        return None
    before, after = np.array(pair_values, float).T
    better_sign = 1.0 if METRICS[metric].better == "higher" else -1.0
    gains = better_sign * (after - before)
    mean_gain, least_gain = float(gains.mean()), float(gains.min())
    base_mean = max(abs(float(before.mean())), 1e-12)
    needed_gain = SAID * base_mean
    if metric == "slo_attainment":  # half of those that miss the SLO, however few they are
        needed_gain = min(NOTABLE, 0.5 * (1.0 - float(before.mean())))
    if least_gain <= 0 or least_gain < 0.5 * mean_gain or least_gain < needed_gain:
        return None
    if metric == "slo_attainment":
        metric_weight = SERVED * least_gain
    elif metric == "throughput_req_per_s":
        metric_weight = least_gain / base_mean
    else:
        slo_limit_s = s.slo.ttft_s if metric.startswith("ttft") else 1e-3 * s.slo.tpot_ms
        metric_weight = least_gain / slo_limit_s * (1.0 if metric.endswith("p99") else 0.5)
    return metric_weight, metric, float(before.mean()), float(after.mean()), least_gain


def metric_value(metric: str, summary: Summary, s: Scenario) -> float | None:
    """A metric of a run (SI); without served requests SLO attainment is 0, TTFT the horizon."""
    figure = summary.get(metric)
    if figure is not None:
        return float(figure)
    if metric == "slo_attainment":
        return 0.0
    return s.horizon_s if metric.startswith("ttft") else None
