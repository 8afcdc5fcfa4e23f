"""Arrays of the steady state for formulas, made when first read: TTFT of requests with a first
token after the warm-up, TPOT and E2E of those that finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from twin.metrics import latency
from twin.scenario import Scenario, pools_by_role

if TYPE_CHECKING:
    import polars as pl

    from twin.metrics.resilience import Incidents

PLANES = ("ub", "rdma", "vpc")  # of the whole machine: the same for each model
NO_GAPS = (np.array([0.0, 1.0]), np.zeros(1))


@dataclass(frozen=True)
class Observed:
    """A run for metrics. totals: steady amounts and counts of the run; npus: by role; gaps:
    histogram of iterations, edges (s) and request-iterations; stamps: arrays, NaN: missing."""

    scenario: Scenario
    requests: pl.DataFrame
    totals: Mapping[str, float]
    npus: Mapping[str, float] = field(default_factory=dict)
    events: pl.DataFrame | None = None
    gaps: tuple[np.ndarray, np.ndarray] = NO_GAPS
    stamps: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def by_requests(cls, scenario: Scenario, requests: pl.DataFrame) -> Observed:
        """A run of which only the table of requests is known. Requests whose arrival and prefill
        end are 0 were in progress at its start."""
        arrival_and_prefill_end = requests["arrival_s"], requests["prefill_end_s"]
        is_in_progress = (arrival_and_prefill_end[0] == 0.0) & (arrival_and_prefill_end[1] == 0.0)
        return cls(scenario, requests, {"at_start": float(is_in_progress.sum() or 0)})

    @property
    def steady_s(self) -> float:
        """Length of the steady state (s)."""
        return self.scenario.horizon_s - self.scenario.warmup_s

    @cached_property
    def incidents(self) -> Incidents:
        """Requests lost and retried, rebalances, bytes moved, seconds out of service of the run."""
        from twin.metrics.resilience import incidents  # reads tables: a list of metrics need not

        return incidents(self.requests, self.events, self.scenario.horizon_s)

    @property
    def ended_count(self) -> int:
        """Number of requests that left the machine, served or not."""
        ended_in_service = int(self.totals["finished"]) + int(self.totals["rejected"])
        return ended_in_service + self.incidents.lost + int(self.totals.get("cancelled", 0.0))

    # Masks instead of filtered frames: a frame of millions of requests is not copied.

    @cached_property
    def _stamps(self) -> dict[str, np.ndarray]:
        """Stamps (s) of all requests, f8[requests] by name, as far as they have been read."""
        return dict(self.stamps)

    def _stamp(self, name: str) -> np.ndarray:
        """Stamp `name` of every request, f8[requests] seconds; NaN where it is missing."""
        if name not in self._stamps:
            # A null becomes a NaN in polars: to_numpy would do so one by one.
            self._stamps[name] = self.requests[name].cast(float).fill_null(np.nan).to_numpy()
        return self._stamps[name]

    def _span(self, begin: str, end: str) -> np.ndarray:
        """Seconds between two stamps of every request, f8[n]; NaN where either is missing."""
        return self._stamp(end) - self._stamp(begin)

    @cached_property
    def has_first_token(self) -> np.ndarray:
        """Mask bool[requests]: the first token fell in the steady state."""
        is_started: np.ndarray = self._stamp("first_token_s") >= self.scenario.warmup_s
        is_started[: self.at_start] = False  # they had theirs before the run
        return is_started

    @property
    def at_start(self) -> int:
        """Number of requests in progress at time zero, the first rows; only TPOT counts them."""
        return int(self.totals.get("at_start", 0.0))

    @cached_property
    def is_finished(self) -> np.ndarray:
        """Mask bool[requests]: finished in the steady state."""
        return np.asarray(self._stamp("finish_s") >= self.scenario.warmup_s)

    @cached_property
    def arrived_in_run(self) -> np.ndarray:
        """Mask bool[finished]: the finished request arrived in the run, not before its start."""
        return np.asarray(np.flatnonzero(self.is_finished) >= self.at_start)

    @cached_property
    def finished_steady(self) -> int:
        """Number of requests that finished in the steady state."""
        return int(self.is_finished.sum())

    @cached_property
    def ttft(self) -> np.ndarray:
        """Seconds from arrival to first token of each request, f8[n]; NaN without a first token."""
        return self._span("arrival_s", "first_token_s")

    @cached_property
    def tpot(self) -> np.ndarray:
        """TPOT of finished requests, f8[finished] seconds; NaN for answers of one token."""
        if self.scenario.deployment.mode == "prefill_only":
            return np.full(self.finished_steady, np.nan)
        output_tokens = self.requests["output_tokens"].to_numpy()
        emitting_s = self._span("first_token_s", "finish_s")
        return latency.per_token_s(emitting_s[self.is_finished], output_tokens[self.is_finished])

    @cached_property
    def slo_masks(self) -> tuple[np.ndarray, np.ndarray]:
        """(mask bool[requests]: TTFT, counted from the first attempt, within its SLO; mask
        bool[finished]: TPOT within its SLO, or no TPOT)."""
        ttft_s = self.ttft
        ttft_limit_s, tpot_limit_s = latency.slo_limits_s(self.scenario, self.requests)
        if self.scenario.tenants:
            tpot_limit_s = tpot_limit_s[self.is_finished]
        if "asked_s" in self.requests.columns:  # of a turn's first attempt
            ttft_s = ttft_s + (self.requests["arrival_s"] - self.requests["asked_s"]).to_numpy()
        return ttft_s <= ttft_limit_s, np.isnan(self.tpot) | (self.tpot <= tpot_limit_s)

    @cached_property
    def within_slo(self) -> np.ndarray:
        """Mask bool[finished]: the finished request met both its TTFT and its TPOT SLO."""
        ttft_met, tpot_met = self.slo_masks
        return np.asarray(ttft_met[self.is_finished] & tpot_met)

    def count_met(self, in_mask: np.ndarray) -> float:
        """Number of finished requests in mask bool[requests] that met the TTFT and the TPOT SLO.
        Requests in progress at the start have no TTFT: they count with the share of the other
        finished ones or, if there are none, with the share of first tokens within the TTFT SLO
        times the share of finished requests within the TPOT SLO."""
        is_counted = in_mask[self.is_finished]
        is_judged, finished_count = is_counted & self.arrived_in_run, int(is_counted.sum())
        if judged_count := int(is_judged.sum()):
            return float(self.within_slo[is_judged].sum()) * finished_count / judged_count
        ttft_met, tpot_met = self.slo_masks
        is_first_counted = in_mask & self.has_first_token
        if not finished_count or not is_first_counted.any():
            return 0.0
        return float(ttft_met[is_first_counted].mean()) * float(tpot_met[is_counted].sum())

    def attainment_of(self, in_mask: np.ndarray) -> float | None:
        """Share of the finished requests in mask bool[requests] that met the SLO. None if none
        finished, or if no TTFT is known because none that arrived in the run has a first token."""
        is_counted = in_mask[self.is_finished]
        is_judged = (is_counted & self.arrived_in_run).any() or in_mask[self.has_first_token].any()
        if not is_counted.any() or not is_judged:
            return None
        return self.count_met(in_mask) / float(is_counted.sum())

    @property
    def met_count(self) -> float:
        """Number of finished requests that met the whole SLO, by the rule of `count_met`."""
        return self.count_met(np.ones(self.is_finished.size, bool))

    @cached_property
    def spreads(self) -> Mapping[str, float | None]:
        """Mean and percentiles (s) of every latency, by the key of the metric."""
        stayed_s = self._span("arrival_s", "finish_s")[self.is_finished]
        return {
            **latency.mean_and_percentiles(self.ttft[self.has_first_token], "ttft_s"),
            **latency.mean_and_percentiles(self.tpot[~np.isnan(self.tpot)], "tpot_s"),
            **latency.itl_spread(*self.gaps, self.totals.get("decode_tokens", 0.0)),
            **latency.mean_and_percentiles(stayed_s[self.arrived_in_run], "e2e_s"),
            **latency.mean_and_percentiles(self.session_times, "session_s"),
        }

    @cached_property
    def session_times(self) -> np.ndarray:
        """Seconds from first question to last answer of sessions that ended in the steady state;
        empty if no turn waits for answers."""
        requests = self.requests
        if "turns_left" not in requests.columns or not turns_wait(self.scenario):
            return np.zeros(0)
        session_ids = requests["session"].to_numpy()
        begin_s = np.full(session_ids.max(initial=0) + 1, np.inf)
        np.minimum.at(begin_s, session_ids, requests["asked_s"].to_numpy())
        is_last = self.is_finished & (requests["turns_left"].to_numpy() == 0)
        return np.asarray(requests["finish_s"].to_numpy()[is_last] - begin_s[session_ids[is_last]])

    def part_mean(self, name: str) -> float | None:
        """Mean seconds of the part `name` of the TTFT; None when no request went through it."""
        _, *stamps = next(entry for entry in latency.TTFT_PARTS if entry[0] == name)
        part_s = self._span(*stamps)[self.has_first_token]
        is_missing = np.isnan(part_s)
        measured_s = part_s[~is_missing] if is_missing.any() else part_s
        return float(measured_s.mean()) if measured_s.size else None

    @property
    def output_tokens(self) -> float:
        """Output tokens of the steady state; without first tokens if only decode is deployed."""
        decode_only = self.scenario.deployment.mode == "decode_only"
        return self.totals["decode_tokens"] + (0.0 if decode_only else self.totals["first_tokens"])

    def pool_npus(self, role: str) -> float:
        """NPUs of the pool of a role; colocated NPUs count for both roles."""
        return self.npus.get(role, 0) + self.npus.get("colocated", 0)

    @property
    def npus_held(self) -> float:
        """NPUs that belong to an instance, each counted once."""
        pools = pools_by_role(self.scenario)
        return sum(npus for role, npus in self.npus.items() if not pools[role].lender)

    @property
    def npu_s_held(self) -> float:
        """NPU-seconds of the whole run in which NPUs belong to an instance."""
        return self.totals.get("npu_s_held", self.npus_held * self.scenario.horizon_s)

    @property
    def idle_npu_s(self) -> float:
        """NPU-seconds of the steady state in which nothing is computed."""
        idle_npu_s = self.npus_held * self.steady_s
        for pool in pools_by_role(self.scenario).values():
            if self.totals[f"{pool.phase}_instances"] > 0:
                idle_npu_s -= self.totals[f"{pool.phase}_busy_s"] * (pool.cores * pool.npus)
        return max(0.0, idle_npu_s)

    @property
    def ssd_tokens(self) -> float:
        """Tokens of the blocks that were read from the SSD tier; a block counts as full."""
        moved_bytes, block_bytes, block_tokens = (
            self.totals.get(name, 0.0) for name in ("ssd_read_moved", "block_bytes", "block_tokens")
        )
        return (latency.quotient(moved_bytes, block_bytes) or 0.0) * block_tokens

    def per_second(self, amount: float, npus: float = 1) -> float | None:
        """An amount per second of the steady state and NPU; None without NPUs."""
        return latency.per_second(amount, self.steady_s, npus)

    @cached_property
    def power_w(self) -> float | None:
        """Mean watts of all serving NPUs, with host and network; None without a stated power."""
        totals, npus = self.totals, self.npus_held
        if "prefill.idle_w" in totals:
            return self._drawn_w("prefill") + self._drawn_w("decode")
        if "idle_w" not in totals:
            return None
        busy_share = self.mean_per_instance("prefill_busy_s", "prefill") or 0.0
        if "colocated" in self.npus:  # the share of iterations that compute prompts too
            busy_share = self.mean_per_instance("decode_busy_s", "decode") or 0.0
            busy_share *= min(1.0, totals["prefill_batches"] / max(totals["iterations"], 1.0))
        elif "prefill" in self.npus:
            busy_share *= pools_by_role(self.scenario)["prefill"].cores
        load_w = totals["prefill_w"] * busy_share * self.pool_npus("prefill")
        for component in ("cube", "hbm"):
            used_amount = totals[f"{component}_amount"]
            if component == "cube":
                used_amount += totals["prefill_cube"] * totals["prefill_cube_amount"]
            used_share = used_amount / (totals[f"{component}_capacity"] * self.steady_s)
            load_w += totals[f"{component}_w"] * used_share * npus
        constant_w_per_npu = (
            totals["idle_w"] + totals["host_w"] + totals["switches_w"] + totals["optics_w"]
        )
        return load_w + npus * constant_w_per_npu

    def _drawn_w(self, role: str) -> float:
        """Mean watts of one pool's NPUs, host and network, where pools have different NPUs."""
        role_totals = {name.partition(".")[2]: value for name, value in self.totals.items()
             if name.startswith(f"{role}.")}  # fmt: skip
        cube_share = role_totals["cube_amount"] / (role_totals["cube_capacity"] * self.steady_s)
        hbm_share = role_totals["hbm_amount"] / (role_totals["hbm_capacity"] * self.steady_s)
        load_w = role_totals["cube_w"] * cube_share + role_totals["hbm_w"] * hbm_share
        if role == "prefill":
            prefill_busy_share = self.mean_per_instance("prefill_busy_s", "prefill") or 0.0
            prefill_busy_share *= pools_by_role(self.scenario)["prefill"].cores
            load_w += (
                role_totals["prefill_w"] * prefill_busy_share
                + role_totals["cube_w"] * role_totals["prefill_cube"] * cube_share
            )
        surroundings_w = role_totals["host_w"] + role_totals["switches_w"] + role_totals["optics_w"]
        return self.npus.get(role, 0) * (role_totals["idle_w"] + load_w + surroundings_w)

    @property
    def price_per_npu_hour(self) -> float:
        """Mean price of an NPU-hour over all instances, with their part of CPU-only nodes."""
        pools, cost = pools_by_role(self.scenario), self.scenario.cost
        supernode, npus_by_price = self.scenario.supernode, dict[float, float]()
        for role, npu_count in self.npus.items():
            if not pools[role].lender:
                kind = supernode.kind_with(pools[role].chip)
                npu_price = (kind.price_per_npu_hour if kind else 0.0) or cost.price_per_npu_hour
                npus_by_price[npu_price] = npus_by_price.get(npu_price, 0.0) + npu_count
        # Every NPU has an equal part of nodes of CPUs alone.
        cpu_price = sum(
            nodes * kind.price_per_npu_hour for kind, nodes in supernode.cpu_nodes_per_npu
        )
        if len(npus_by_price) < 2 or not any(npus_by_price.values()):
            return next(iter(npus_by_price), cost.price_per_npu_hour) + cpu_price
        hourly_price = sum(npu_price * npu_count for npu_price, npu_count in npus_by_price.items())
        return hourly_price / sum(npus_by_price.values()) + cpu_price

    def clock(self, role: str) -> float | None:
        """Clock of a pool's NPUs as a share of the rated one; None without a cap on power."""
        return self.totals.get(f"{role}_clock", self.totals.get("colocated_clock"))

    @property
    def tokens_served(self) -> float:
        """Output tokens of the steady state; if only prefill is deployed, tokens of prompts."""
        if self.scenario.deployment.mode == "prefill_only":
            return self.totals["prefill_tokens"] + self.totals["hit_tokens"]
        return self.output_tokens

    def mean_per_instance(self, total: str, role: str) -> float | None:
        """Mean of a quantity over the instances of a role and the steady state. total: name in
        `totals` of its integral over time, summed over instances."""
        return self.per_second(self.totals[total], self.totals[f"{role}_instances"])


def _joined_arrays(name: str) -> Any:
    """Property of a run of several models: their arrays of this name, joined in order."""
    return cached_property(
        lambda run: np.concatenate([getattr(model, name) for model in run.parts])
    )


def _summed(name: str, number: type[float] = float) -> Any:
    """Property of a run of several models: the sum of their figures of this name, as a `number`."""
    return cached_property(lambda run: number(sum(getattr(model, name) for model in run.parts)))


@dataclass(frozen=True)
class Several(Observed):
    """All models of a run, each alone in `parts`, the order of masks and times; SLOs by model."""

    parts: tuple[Observed, ...] = ()

    at_start = _summed("at_start", int)
    has_first_token = _joined_arrays("has_first_token")
    is_finished = _joined_arrays("is_finished")
    arrived_in_run = _joined_arrays("arrived_in_run")
    ttft = _joined_arrays("ttft")
    tpot = _joined_arrays("tpot")
    within_slo = _joined_arrays("within_slo")
    session_times = _joined_arrays("session_times")
    met_count = _summed("met_count")
    output_tokens = _summed("output_tokens")
    tokens_served = _summed("tokens_served")
    ssd_tokens = _summed("ssd_tokens")
    npus_held = _summed("npus_held")
    npu_s_held = _summed("npu_s_held")
    idle_npu_s = _summed("idle_npu_s")

    def _span(self, begin: str, end: str) -> np.ndarray:
        """Seconds between two stamps of every request, model by model; NaN if one is missing."""
        return np.concatenate([model._span(begin, end) for model in self.parts])

    @cached_property
    def power_w(self) -> float | None:
        """Mean watts of all NPUs that serve; None where a chip states none."""
        model_watts = [model.power_w for model in self.parts]
        return None if None in model_watts else float(sum(model_watts))  # type: ignore[arg-type]

    @property
    def price_per_npu_hour(self) -> float:
        """Mean price of an NPU-hour over the NPUs of the instances of all models."""
        prices = {model.price_per_npu_hour for model in self.parts}
        if len(prices) == 1:
            return prices.pop()
        price_per_hour = sum(model.price_per_npu_hour * model.npus_held for model in self.parts)
        return price_per_hour / max(self.npus_held, 1.0)

    def clock(self, role: str) -> float | None:
        """None for every role: under a cap on power each model has a clock of its own."""
        return None


def totals_of(parts: Sequence[Observed], pool_share: Sequence[float]) -> dict[str, float]:
    """Totals by name, summed over models; totals of the whole machine count once. pool_share: share
    of the memory pool that each model has."""
    all_totals = [model.totals for model in parts]
    total_names = dict.fromkeys(name for totals in all_totals for name in totals)
    total_of = {name: sum(totals.get(name, 0.0) for totals in all_totals) for name in total_names}
    for name in ("samples", *(f"{plane}_capacity" for plane in PLANES)):
        total_of[name] = all_totals[0][name]
    total_of["little_error"] = max(totals["little_error"] for totals in all_totals)
    used_shares = (totals["pool_used"] for totals in all_totals)
    total_of["pool_used"] = sum(
        used * share for used, share in zip(used_shares, pool_share, strict=True)
    )
    return total_of


def npus_of(parts: Sequence[Observed]) -> Mapping[str, float]:
    """NPUs by role, over all models."""
    roles = dict.fromkeys(role for model in parts for role in model.npus)
    return {role: sum(model.npus.get(role, 0) for model in parts) for role in roles}


def turns_wait(s: Scenario) -> bool:
    """Whether there are sessions whose next turn waits for the answer before it."""
    has_sessions = s.workload.prefix == "sessions" or s.workload.arrivals == "trace"
    return s.workload.turns == "wait" and has_sessions
