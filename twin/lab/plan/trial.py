"""A plan's simulation: a deployment at a load, stored figures, the same run under another SLO."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.engine.simulate import Run
from twin.lab.explain.capacity import OTHERS, stays_steady
from twin.lab.explain.view import Summary, given_up_share, has_one_slo, load_of, share_met, slo_met
from twin.lab.plan.candidates import Space
from twin.lab.plan.question import Plan
from twin.lab.plan.space import BATCH, CONTROLLER, MODE, Settings, pool_size, roles_of
from twin.metrics.latency import met_slo, per_second, quotient, tpot_s
from twin.scenario import Scenario, scenario_digest, with_overrides
from twin.scenario.clients import Admission, Clients
from twin.scenario.policies import Slo

Trial = dict[str, Any]  # figures of `STORED`, SI, and what `trial_of` adds
STORED = (
    "slo_attainment", "tokens_per_s_per_npu", "throughput_req_per_s", "goodput_req_per_s",
    "ttft_s_mean", "ttft_s_p99", "tpot_s_mean", "tpot_s_p99", "power_kw",
    "cost_per_million_tokens", "steady_state", "lost",
    "rejected", "requests", "requests_steady",
)  # fmt: skip
LIVES = 0.5  # of a request's life: length of a warm-up, and least length of what counts
REQUESTS = 800.0  # that count, at least
WARM_S, COUNTED_S = (5.0, 60.0), (10.0, 120.0)
FIGURES = 4  # of a rate
SEEDS = tuple(OTHERS + k for k in range(1, 5))  # beyond the scenario's own, of a proof
NEARLY = 3.0  # standard errors of a share of requests that chance hardly exceeds
BLOCKS = 20  # batches of requests whose means give the standard error of a share


def load_settings(space: Space, settings: Settings, rate: float) -> Settings:
    """Settings by path that give a deployment its load: a rate (requests/s), a trace's speed, or
    for a closed loop the number of clients (the plan's, or one for each slot)."""
    load_path, base_load = load_of(space.base)
    if load_path == "workload.concurrency":
        if space.plan.is_load_fixed:
            return {load_path: max(1, round(base_load * (1.0 + space.plan.more)))}
        deployment = space.base.deployment
        role = roles_of(settings.get(MODE, deployment.mode))[-1]
        pool_npus = math.prod(pool_size(space.base, settings, role))
        return {load_path: int(pool_npus * settings.get(BATCH, deployment.decode.batch_per_npu))}
    if load_path == "workload.rate_req_per_s":
        return {load_path: float(f"{rate:.{FIGURES}g}")}
    offered_rate = space.prices.offered or 1.0
    return {load_path: float(f"{base_load * rate / offered_rate:.{FIGURES}g}")}


def scenario_at(space: Space, settings: Settings, rate: float) -> Scenario:
    """Scenario of a deployment at a load (requests/s); the run is short if runs of the base
    scenario begin in the steady state. Raises SpecError."""
    overrides = settings | load_settings(space, settings, rate)
    if settings.get(CONTROLLER, "fixed") == "fixed" and stays_steady(space.base):
        least_span_s = LIVES * space.life_s
        warmup_s = math.ceil(np.clip(least_span_s, *WARM_S))
        counted_s = math.ceil(np.clip(max(least_span_s, REQUESTS / rate), *COUNTED_S))
        overrides |= {"warmup_s": warmup_s, "horizon_s": warmup_s + counted_s}
    return with_overrides(space.base, overrides)


class Latencies(NamedTuple):
    """What an SLO judges: of requests that began in a run and finished after its warm-up."""

    ttft_s: NDArray[np.float64]  # [requests]
    tpot_s: NDArray[np.float64]  # [requests]; 0 for an answer of one token
    finished: int  # in the steady state, with those in progress at time zero
    valid: bool  # whether the laws held


def trial_of(run: Run) -> Trial:
    """A run's stored figures; with latencies if these are enough to judge another SLO exactly."""
    scenario, latencies = run.scenario, _latencies(run)
    stored_figures = {figure: run.summary.get(figure) for figure in STORED}
    slo_figures = _slo_figures(run.summary, latencies, run.valid, scenario)
    trial = stored_figures | slo_figures | {"digest": run.digest, "seed": scenario.seed}
    if latencies is None or not latencies.ttft_s.size or not slo_only_judges(scenario):
        return trial
    return (
        trial if rejudge(trial, latencies, scenario) != trial else trial | {"latencies": latencies}
    )


def _slo_figures(summary: Summary, latencies: Latencies | None, valid: bool, s: Scenario) -> Trial:
    """Figures of a run that depend on its SLO: share of requests within it, whether the run meets
    it, limits that the run would meet. valid: whether the run's laws hold."""
    slo_figures = {"share": share_met(summary), "holds": bool(slo_met(summary, s)) and valid}
    return slo_figures | _needed_limits(latencies, summary, s) | {"scenario": scenario_digest(s)}


def slo_only_judges(s: Scenario) -> bool:
    """Whether the SLO decides only which requests meet it, not what happens in a run."""
    is_fixed = s.elastic.controller == "fixed" and s.admission == Admission()
    return is_fixed and s.clients == Clients() and has_one_slo(s) and not s.tenants


def digest_without_slo(s: Scenario) -> str:
    """SHA-256 (hex) of a scenario without its SLO."""
    return scenario_digest(s.model_copy(update={"slo": Slo()}))


def rejudge(trial: Trial, latencies: Latencies, s: Scenario) -> Trial:
    """Figures of the same run under the SLO of `s`, a scenario that differs in nothing else."""
    meets_slo = met_slo(latencies.ttft_s, latencies.tpot_s, s.slo.ttft_s, 1e-3 * s.slo.tpot_ms)
    met_count = float(meets_slo.sum()) * latencies.finished / max(meets_slo.size, 1)
    new_summary = {
        **{figure: trial[figure] for figure in STORED},
        "slo_attainment": quotient(met_count, float(latencies.finished)),
        "goodput_req_per_s": per_second(met_count, s.horizon_s - s.warmup_s),
    }
    return trial | new_summary | _slo_figures(new_summary, latencies, latencies.valid, s)


def judge(trial: Trial, plan: Plan, s: Scenario) -> Trial:
    """Figures as the plan judges them: if means have to meet the SLO, `share` is 1 or 0."""
    if plan.by == "share":
        return trial
    ttft_mean_s, tpot_mean_s = trial["ttft_s_mean"], trial["tpot_s_mean"] or 0.0
    ttft_met = ttft_mean_s is not None and ttft_mean_s <= s.slo.ttft_s
    tpot_met = tpot_mean_s <= 1e-3 * s.slo.tpot_ms
    is_steady = trial["steady_state"] != "overloaded" and trial["slo_attainment"] is not None
    met_share = float(is_steady and ttft_met and tpot_met)
    return trial | {
        "share": met_share, "slo_attainment": met_share, "holds": met_share > 0.0,
        "needs_ttft_s": ttft_mean_s if is_steady and tpot_met else None,
        "needs_tpot_s": tpot_mean_s if is_steady and ttft_met else None,
    }  # fmt: skip


def _latencies(run: Run) -> Latencies | None:
    """Latencies of a run's requests; None without a table of requests."""
    if (requests := run.tables.get("requests")) is None:
        return None
    finish_s, first_token_s = requests["finish_s"].to_numpy(), requests["first_token_s"].to_numpy()
    is_steady = finish_s >= run.scenario.warmup_s
    is_counted = is_steady & (first_token_s > 0.0)  # others had their first token before time zero
    ttft_s = (first_token_s - requests["arrival_s"].to_numpy())[is_counted]
    tpots_s = np.nan_to_num(tpot_s(requests)[is_counted], nan=0.0)
    return Latencies(ttft_s, tpots_s, int(is_steady.sum()), run.valid)


def _needed_limits(latencies: Latencies | None, summary: Summary, s: Scenario) -> Trial:
    """Shortest limits (s) of TTFT and TPOT with which the run meets the SLO, each with the other
    unchanged (None: no limit is enough), and the standard error of the share within the SLO."""
    limit_figures: Trial = {"needs_ttft_s": None, "needs_tpot_s": None, "share_error": 0.0}
    if latencies is None or not latencies.ttft_s.size:
        return limit_figures
    ttft_s, per_token_s = latencies.ttft_s, latencies.tpot_s
    meets_slo = (ttft_s <= s.slo.ttft_s) & (per_token_s <= 1e-3 * s.slo.tpot_ms)
    limit_figures["share_error"] = error_of_share(meets_slo)
    if summary.get("steady_state") == "overloaded":
        return limit_figures
    served_share = 1.0 - given_up_share(summary)
    needed_count = ttft_s.size + 1
    if served_share > 0:
        needed_count = math.ceil(s.slo.share / served_share * ttft_s.size - 1e-9)

    def least_limit(time_s: np.ndarray, other_s: np.ndarray, limit_s: float) -> float | None:
        """Least limit (s) on `time_s` that enough of the requests with `other_s` <= `limit_s` meet;
        None if there are too few of them."""
        sorted_times_s = np.sort(time_s[other_s <= limit_s])
        return (
            float(sorted_times_s[needed_count - 1]) if needed_count <= sorted_times_s.size else None
        )

    return limit_figures | {
        "needs_ttft_s": least_limit(ttft_s, per_token_s, 1e-3 * s.slo.tpot_ms),
        "needs_tpot_s": least_limit(per_token_s, ttft_s, s.slo.ttft_s),
    }


def error_of_share(meets_slo: NDArray[np.bool_]) -> float:
    """Standard error of the share of requests that meet an SLO (bool[requests]), from the shares
    of BLOCKS equal blocks of consecutive requests; 0 with fewer than BLOCKS requests."""
    block_size = meets_slo.size // BLOCKS
    if not block_size:
        return 0.0
    block_shares = meets_slo[: block_size * BLOCKS].reshape(BLOCKS, block_size).mean(axis=1)
    return float(block_shares.std(ddof=1)) / math.sqrt(BLOCKS)


def chance_error(trial: Trial) -> float:
    """Deviation of a run's share within the SLO that chance hardly exceeds: 3 standard errors."""
    return NEARLY * float(trial.get("share_error", 0.0))
