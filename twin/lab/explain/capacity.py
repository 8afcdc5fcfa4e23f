"""Capacity: the largest load at which `slo.share` of the requests meet TTFT and TPOT. It is found
by bisection over steady simulations, beginning at the formula's answer (`outlook`). Longer runs
judge both ends, because near the capacity a queue takes many lives of a request to grow."""

import math
import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from twin.engine.start import begins_steady
from twin.facts import Facts
from twin.lab.explain.view import Summary, load_of, share_met
from twin.outlook import outlook, run_and_warmup_s
from twin.scenario import Scenario, SpecError, require_one_model, with_overrides
from twin.steady import Priced

SEEDS = 8  # at most for one load: the scenario's own, and such that nothing else is judged by
OTHERS = 60_027  # the first of these
FIRST = 5  # at the first load: how far seeds differ is not known before
CLOSE = 1.015  # between a load that keeps the SLO and one that does not
STEP = 1.06  # off the formula's answer
LEAST, MOST = 1 / 64, 32.0  # of the load where the search begins: no load beyond is tried
LONGER = 16  # as many lives of a request as in the other runs
MOST_REQUESTS = 400_000.0  # of a longer run: more take minutes, and chance is small
FEWER = 4  # seeds where longer runs decide
MANY = 16  # at most, of a thorough search: doubled where fewer leave the load open
SETTLED = 0.003  # of a load: its standard error that needs no more seeds
FALLS = (10.0, 1000.0)  # odds of a miss grow by e in a tenth to a thousandth of a load
FINE, BEYOND = 0.0005, 0.03  # of a load: steps of a range, and how far from what was run
RANGE = (0.025, 0.975)  # of its probability
TRIED = 60  # loads at most
SURE = 2.0  # standard errors
CLUSTERED = 4.0  # standard errors that a share of requests has at least: they share iterations
FIGURES = 4  # of a load
TINY = 1e-9
RUNS = 24  # of a search, about: for a bar of progress
UNITS = {"workload.rate_req_per_s": "req/s", "workload.concurrency": "clients"}

Simulated = Callable[[Scenario], Summary | None]  # None where it cannot run
Search = Generator[Scenario, Summary | None, "Capacity"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Largest load that meets the SLO, in the unit of its field (`load_of`)."""

    path: str  # the field
    load: float  # 0: no load keeps it
    low: float  # the largest load that keeps it beyond chance; where seeds differ, of a range
    high: float  # the least that misses it beyond chance; infinite: all that were tried keep it
    runs: int
    held: float = 0.0  # the largest load tried that keeps the SLO

    @property
    def unit(self) -> str:
        """Unit of the load: 'req/s', 'clients' or "times the trace's speed"."""
        return UNITS.get(self.path, "times the trace's speed")


def capacity(
    s: Scenario, facts: Facts, summary_of: Simulated, *, thorough: bool = False
) -> Capacity:
    """Largest load at which a scenario meets its SLO. summary_of: returns the summary of a
    scenario's run, None if it cannot run; its errors are raised. thorough: more seeds."""
    search = search_steps(s, facts, thorough=thorough)
    scenario = next(search)
    while True:
        try:
            scenario = search.send(summary_of(scenario))
        except StopIteration as ended:
            return ended.value


def search_steps(
    s: Scenario, facts: Facts, begin: float | None = None, *, thorough: bool = False
) -> Search:
    """Generator of the search: yields scenarios, receives their summaries, returns the capacity.
    begin: first load (None: by formula). Steps grow until the SLO changes between met and missed,
    then halve; the last interval is interpolated by share. thorough: adds seeds if few leave the
    load open, in up to three times as long."""
    require_one_model(s, "a capacity")
    path, load_now = load_of(s)
    begin_load = load = begin or load_by_formula(s, facts) or load_now
    short_run, step_factor, run_count = with_span(s, facts, begin_load), STEP, 0
    long_run, is_at_ends = with_longer_times(short_run, begin_load), False
    met_loads: list[_Load] = []  # loads that meet the SLO, growing
    lowest_missed = _Load(math.inf, s.slo.share)  # the least that does not
    trials: list[_Load] = []
    share_variances: list[float] = []
    concurrency_step = 1.0 if path == "workload.concurrency" else 0.0
    while begin_load * LEAST <= load <= begin_load * MOST:
        trial_load = _Load(load, s.slo.share)
        trials.append(trial_load)
        if is_at_ends:
            run_count += yield from _run_load(long_run, trial_load, [], seeds=_seed_count(long_run))
        else:
            run_count += yield from _run_load(short_run, trial_load, share_variances)
        if trial_load.meets:
            met_loads.append(trial_load)
        else:
            lowest_missed = trial_load
        is_settled = False
        # Two loads are near enough to be the ends within a ratio, or as neighbouring counts.
        while met_loads and lowest_missed.load <= max(
            CLOSE * met_loads[-1].load, met_loads[-1].load + concurrency_step
        ):
            low_end, is_at_ends, step_factor = met_loads[-1], True, CLOSE
            run_count += yield from _run_both_ends(long_run, low_end, lowest_missed, thorough)
            is_settled = low_end.meets and not lowest_missed.meets
            if is_settled:
                break
            if low_end.meets:
                met_loads.append(lowest_missed)
                lowest_missed = _Load(math.inf, s.slo.share)
            else:
                lowest_missed = met_loads.pop()
        if is_settled or len(trials) == TRIED:
            break
        if met_loads and not math.isinf(lowest_missed.load):
            load = math.sqrt(met_loads[-1].load * lowest_missed.load)
        else:
            load = (
                met_loads[-1].load * step_factor if met_loads else lowest_missed.load / step_factor
            )
            step_factor *= step_factor
    low_load, high_load = met_loads[-1].load if met_loads else 0.0, lowest_missed.load
    if not low_load or math.isinf(high_load):
        return Capacity(path, low_load, low_load, high_load, run_count, low_load)
    excess, shortfall = met_loads[-1].excess, max(-lowest_missed.excess, 0.0)
    gap_share = 0.0 if concurrency_step else excess / max(excess + (shortfall or excess), TINY)
    settled = [trial for trial in trials if trial.sure and trial.meets == (trial.load <= low_load)]
    range_low = max((trial.load for trial in settled if trial.meets), default=low_load)
    range_high = min((trial.load for trial in settled if not trial.meets), default=high_load)
    best_load = low_load + (high_load - low_load) * gap_share
    range_low, range_high = range_low / CLOSE, range_high * CLOSE
    has_more_seeds = len(met_loads[-1].shares) > _seed_count(long_run)  # seeds differ
    seeds_differ = met_loads[-1].runs_of is long_run and has_more_seeds
    if thorough and seeds_differ and s.slo.share < 1.0:
        long_loads = [trial for trial in trials if trial.runs_of is long_run and trial.shares]
        likely_low, likely_high = _probable_range(long_loads, s.slo.share)
        range_low, range_high = min(likely_low, best_load), max(likely_high, best_load)
    return Capacity(path, best_load, range_low, range_high, run_count, low_load)


@dataclass
class _Load:
    """A load with the results of its runs."""

    load: float
    share: float  # of requests that have to meet the SLO
    runs_of: Scenario | None = None  # at this load, by seed:
    shares: list[float] = field(default_factory=list)  # that do
    overloaded: int = 0  # runs
    refused: bool = False  # whether it cannot be run
    sure: bool = False  # whether it meets or misses the SLO beyond chance

    @property
    def excess(self) -> float:
        """Mean share of requests that meet the SLO minus the required one; -1 if it cannot run."""
        return -1.0 if self.refused else sum(self.shares) / len(self.shares) - self.share

    @property
    def meets(self) -> bool:
        """Whether enough requests meet the SLO, and at most half of the runs are overloaded."""
        return self.excess >= 0.0 and 2 * self.overloaded <= len(self.shares)


def load_by_formula(s: Scenario, facts: Facts) -> float | None:
    """Capacity by formula in requests/s; None for a load in another unit, or without an answer."""
    if load_of(s)[0] != "workload.rate_req_per_s":
        return None
    try:
        return outlook(Priced(s, facts)).slo_req_per_s or None
    except ValueError:
        return None


def with_span(s: Scenario, facts: Facts, load: float) -> Scenario:
    """The scenario with warm-up and horizon (s) to suit a load; unchanged if not steady."""
    if not stays_steady(s):
        return s
    try:
        horizon_s, warmup_s = run_and_warmup_s(Priced(with_load(s, load), facts))
    except ValueError:
        return s
    return with_overrides(s, {"horizon_s": horizon_s, "warmup_s": warmup_s})


def with_longer_times(s: Scenario, load: float | None = None) -> Scenario:
    """The scenario with twice its warm-up and LONGER times its counted time, but with at most about
    MOST_REQUESTS at a load (None: its own); unchanged if its run is not steady."""
    if not stays_steady(s):
        return s
    counted_now_s, (path, load_now) = s.horizon_s - s.warmup_s, load_of(s)
    limit_s = MOST_REQUESTS / (load or load_now) if path == "workload.rate_req_per_s" else math.inf
    counted_s = min(LONGER * counted_now_s, max(counted_now_s, limit_s))
    warmup_s = 2.0 * s.warmup_s
    return with_overrides(s, {"horizon_s": warmup_s + counted_s, "warmup_s": warmup_s})


def stays_steady(s: Scenario) -> bool:
    """Whether a run begins in the steady state and no fault, controller or model changes it."""
    return begins_steady(s) and not s.models and not s.faults and s.elastic.controller == "fixed"


def with_load(s: Scenario, load: float) -> Scenario:
    """The scenario at a load (unit of `load_of`), rounded to four figures. Raises SpecError."""
    path, _ = load_of(s)
    rounded_load = float(f"{load:.{FIGURES}g}")
    is_count = path == "workload.concurrency"
    return with_overrides(s, {path: max(1, round(rounded_load)) if is_count else rounded_load})


def _seed_count(s: Scenario) -> int:
    """Number of seeds with which a load is run: fewer if the scenario's runs begin steady."""
    return FEWER if stays_steady(s) else SEEDS


def _run_both_ends(
    s: Scenario, met: _Load, miss: _Load, thorough: bool
) -> Generator[Scenario, Summary | None, int]:
    """Generator: runs the largest load that meets the SLO and the least that misses it with several
    seeds; returns the number of runs. thorough: more seeds while chance may explain the gap."""
    run_count = 0
    for end_load in (met, miss):
        run_count += yield from _run_load(s, end_load, [], seeds=_seed_count(s))
    thorough = thorough and stays_steady(s)
    while thorough and met.meets and not miss.meets and _needs_more_seeds(met, miss):
        open_ends = [end_load for end_load in (met, miss) if len(end_load.shares) < MANY]
        if not open_ends:
            break
        for end_load in open_ends:
            run_count += yield from _run_load(s, end_load, [], seeds=2 * len(end_load.shares))
    return run_count


def _needs_more_seeds(low: _Load, missed: _Load) -> bool:
    """Whether the standard error over seeds of the capacity between two loads is above 0.3 % of it.
    low: a load that meets the SLO; missed: one that misses it, or cannot run (then False)."""
    if missed.refused:
        return False
    mean_variance = (statistics.variance(low.shares) + statistics.variance(missed.shares)) / 2.0
    mean_error = math.sqrt(mean_variance / min(len(low.shares), len(missed.shares)))
    return mean_error * math.log(missed.load / low.load) > SETTLED * (low.excess - missed.excess)


def _probable_range(loads: Sequence[_Load], share: float) -> tuple[float, float]:
    """Low and high load between which the mean share within the SLO falls to `share` with 95 %
    probability, from all longer runs. The odds of a miss are logistic in the log of the load."""
    log_loads = np.log([trial.load for trial in loads])
    n_runs = np.array([len(trial.shares) for trial in loads])
    met_sums = np.array([sum(trial.shares) for trial in loads])
    miss_shares = 1.0 - np.concatenate([trial.shares for trial in loads])
    dispersion = float(miss_shares @ miss_shares / miss_shares.sum())  # variance over mean
    log_grid = np.arange(log_loads.min() - BEYOND, log_loads.max() + BEYOND, FINE)
    steepnesses = np.geomspace(*FALLS, 25)[:, None, None]
    logits = math.log(share / (1.0 - share)) - steepnesses * (log_loads - log_grid[:, None])
    misfit = met_sums * np.logaddexp(0.0, -logits) + (n_runs - met_sums) * np.logaddexp(0.0, logits)
    log_likelihood = -misfit.sum(axis=-1) / dispersion
    probability = np.exp(log_likelihood - log_likelihood.max()).sum(axis=0)
    low_load, high_load = np.exp(
        log_grid[np.searchsorted(np.cumsum(probability) / probability.sum(), RANGE)]
    )
    return float(low_load), float(high_load)


def _run_load(
    s: Scenario, trial: _Load, variances: list[float], *, seeds: int = 0
) -> Generator[Scenario, Summary | None, int]:
    """Generator: runs a load until it is sure whether the SLO is met; returns the number of runs.
    seeds: exact number of seeds, 0 for as many as needed. variances: variance over seeds of the
    share within the SLO at each earlier load. Without an exact number this load's variance is
    averaged with them, because two seeds may agree by chance, and from three runs on is added."""
    if trial.runs_of is not s:
        trial.runs_of, trial.shares, trial.overloaded, trial.sure = s, [], 0, False
    seeds_before, load_variance = len(trial.shares), 0.0
    seed_limit, has_exact_count = seeds or _seed_count(s), seeds > 0
    try:
        scenario = with_load(s, trial.load)
    except SpecError:
        trial.refused = trial.sure = True
        return 0
    while len(trial.shares) < seed_limit and (has_exact_count or not trial.sure):
        seed = OTHERS + len(trial.shares) if trial.shares else s.seed
        summary = yield with_overrides(scenario, {"seed": seed})
        if summary is None:
            trial.refused = trial.sure = True
            return len(trial.shares) + 1 - seeds_before
        trial.shares.append(share_met(summary))
        trial.overloaded += summary.get("steady_state") == "overloaded"
        seed_count = len(trial.shares)
        if seed_count < (2 if variances else min(FIRST, seed_limit)):
            continue
        mean_share = sum(trial.shares) / seed_count
        load_variance = sum((run_share - mean_share) ** 2 for run_share in trial.shares) / (
            seed_count - 1
        )
        pooled_variance = (sum(variances) + load_variance) / (len(variances) + 1)
        share_variance = load_variance if has_exact_count else pooled_variance
        judged_requests = max(float(summary.get("requests_steady") or 0), 1.0)
        least_variance = CLUSTERED**2 * s.slo.share * (1.0 - s.slo.share) / judged_requests
        share_margin = SURE * math.sqrt(max(share_variance, least_variance) / seed_count)
        is_clear = not trial.overloaded and abs(trial.excess) > share_margin
        trial.sure = trial.overloaded == seed_count or is_clear
    if not has_exact_count and not trial.overloaded and seeds_before < 3 <= len(trial.shares):
        variances.append(load_variance)
    return len(trial.shares) - seeds_before
