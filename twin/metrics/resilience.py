"""What a fault cost and how long, from `events`, `windows` and `requests`. Faults of one moment are
a dip, which ends with recovered output, the next fault, or the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from twin.metrics.events import Kind
from twin.metrics.latency import met_slo, span_s, tpot_s
from twin.metrics.measures import amount, seconds, three_figures
from twin.scenario.words import first_few

BEFORE_S = 60.0  # what was usual: the minute before a fault,
BEFORE_WINDOWS = 20  # or this many windows, whichever is shorter;
FEWEST_WINDOWS = 2  # of fewer nothing usual can be said
BACK = 0.95  # of the usual rate: from here on a run has recovered,
SUSTAINED = 5  # when it stays there so many windows in the mean
FEW = 3  # names in a sentence
NOISE = 3.0  # standard deviations under the usual: a window below is no chance

Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Dip:
    """Effect on the run of one fault, or of several at one moment."""

    at_s: float
    element: str  # what broke, as people name it
    detail: str  # how: the event's own words
    phase: str  # "output" or "input": whose tokens the rates count
    before_tokens_per_s: float | None  # usual rate; None: too little was seen before
    lowest_tokens_per_s: float | None  # slowest window until recovery
    end_tokens_per_s: float | None  # last windows of the span
    recovery_s: float | None  # from the fault; 0: no dip; None: not within the span
    cut_short: bool  # another fault came before output was back
    until_s: float  # end of what is counted here: recovery, else the next fault or end of run
    goodput_before_req_per_s: float | None
    goodput_during_req_per_s: float | None
    down: tuple[tuple[str, float], ...]  # instance, seconds out of service; longest first
    retried: int  # requests thrown out and tried again
    lost: int  # requests given up

    @property
    def sentences(self) -> str:
        """Sentences: the fault, how deep output fell, when it recovered, affected requests."""
        detail_names_all = all(
            name in self.detail for name in self.element.split(" and ")[0].split(", ")
        )
        fault_text = f"{self.element} ({self.detail})" if self.detail else self.element
        fault_text = self.detail if detail_names_all else fault_text
        sentences = [f"{fault_text} at {seconds(self.at_s)}: {self._output_text()}."]
        if self.down:
            outages = [f"{name} was down for {seconds(down_s)}" for name, down_s in self.down]
            outage_text = _join_names(outages)
            sentences.append(f"{outage_text[0].upper()}{outage_text[1:]}.")
        if self.retried or self.lost:
            lost_text = f"{self.lost:,}" if self.lost else "none"
            is_single = self.retried == 1
            retried_text = "1 request was" if is_single else f"{self.retried:,} requests were"
            sentences.append(f"{retried_text} tried again, {lost_text} given up.")
        usual_goodput, dip_goodput = self.goodput_before_req_per_s, self.goodput_during_req_per_s
        if self.recovery_s != 0.0 and usual_goodput is not None and dip_goodput is not None:
            sentences.append(
                f"Goodput until then was {three_figures(dip_goodput)} req/s, "
                f"against {three_figures(usual_goodput)} before."
            )
        return " ".join(sentences)

    def _output_text(self) -> str:
        """A clause on output: its usual and lowest rate, and whether it recovered."""
        usual_rate, low_rate = self.before_tokens_per_s, self.lowest_tokens_per_s
        if low_rate is None:
            return "the run ends too soon to say what it did"
        if usual_rate is None:
            low_text = _rate_text(low_rate)
            return f"too early in the run to say what was usual; {self.phase} fell to {low_text}"
        if self.recovery_s == 0.0:
            usual_text = _rate_text(usual_rate)
            return f"{self.phase} stayed at its {usual_text}, within 5 % or the usual noise"
        fall_text = f"{self.phase} fell from {_rate_text(usual_rate)} to {three_figures(low_rate)}"
        if usual_rate > 0:
            fall_text += f" ({amount(1 - low_rate / usual_rate, 'share')} less) at its lowest"
        if self.recovery_s is not None:
            return f"{fall_text} and was back within 5 % after {seconds(self.recovery_s)}"
        end_rate, span_text = self.end_tokens_per_s, seconds(self.until_s - self.at_s)
        end_rate_text = "" if end_rate is None else f", at {_rate_text(end_rate)}"
        end_text = "the next fault came" if self.cut_short else "the run ended"
        return f"{fall_text} and was not back{end_rate_text} when {end_text} {span_text} later"


def dips_of_faults(tables: Tables, ttft_limit_s: float, tpot_limit_s: float) -> list[Dip]:
    """Effects of faults on output, one for each moment of faults. A request that was retried or
    lost counts for the first fault that could affect it."""
    events, windows, requests = (tables.get(name) for name in ("events", "windows", "requests"))
    if events is None or windows is None or not windows.height:
        return []
    faults = events.filter(pl.col("kind") == Kind.FAULT).sort("t_s", maintain_order=True)
    outages = events.filter(pl.col("kind") == Kind.INSTANCE_DOWN).with_columns(
        pl.col("end_s").cast(pl.Float64).fill_null(float("inf"))
    )
    fault_times_s: list[float] = faults["t_s"].unique().sort().to_list()
    if not fault_times_s:
        return []
    begin_s, length_s = (windows[name].to_numpy().astype(float) for name in ("t_s", "window_s"))
    phase, tokens_per_s = _token_rates(windows)
    run_end_s = float(begin_s[-1] + length_s[-1])
    victim_counts = _retried_and_lost(requests, events, fault_times_s)
    met_finish_s = _met_finish_s(requests, ttft_limit_s, tpot_limit_s)
    dips: list[Dip] = []
    earlier_tokens_per_s: float | None = None  # usual rate from before an outage that still goes on
    for fault_index, (fault_s, next_fault_s) in enumerate(pairwise((*fault_times_s, run_end_s))):
        usual_windows = _usual_window_mask(
            begin_s, length_s, fault_s, fault_times_s[fault_index - 1] if fault_index else 0.0
        )
        usual_tokens_per_s, usual_sd = earlier_tokens_per_s, 0.0
        if earlier_tokens_per_s is None and usual_windows.sum() >= FEWEST_WINDOWS:
            usual_rates = tokens_per_s[usual_windows]
            usual_tokens_per_s, usual_sd = float(usual_rates.mean()), float(usual_rates.std())
        is_in_span = (begin_s >= fault_s - 1e-9) & (begin_s + length_s <= next_fault_s + 1e-9)
        recovery_s, lowest_tokens_per_s = _recovery_and_lowest(
            begin_s[is_in_span], tokens_per_s[is_in_span], usual_tokens_per_s, usual_sd, fault_s
        )
        dip_end_s = next_fault_s if recovery_s is None else min(next_fault_s, fault_s + recovery_s)
        last_tokens_per_s = tokens_per_s[is_in_span][-SUSTAINED:]
        usual_from_s = float(begin_s[usual_windows][0]) if usual_windows.any() else fault_s
        fault_rows = faults.filter(pl.col("t_s") == fault_s)
        dips.append(Dip(
            at_s=fault_s, phase=phase, element=_join_names(fault_rows["element"].to_list()),
            detail=_join_names(sorted({str(d) for d in fault_rows["detail"].to_list() if d})),
            before_tokens_per_s=usual_tokens_per_s, lowest_tokens_per_s=lowest_tokens_per_s,
            end_tokens_per_s=float(last_tokens_per_s.mean()) if last_tokens_per_s.size else None,
            recovery_s=recovery_s,
            cut_short=recovery_s is None and fault_index + 1 < len(fault_times_s),
            until_s=dip_end_s,
            goodput_before_req_per_s=_goodput(met_finish_s, usual_from_s, fault_s),
            goodput_during_req_per_s=_goodput(met_finish_s, fault_s, dip_end_s),
            down=_outages_in_span(outages, fault_s, next_fault_s, run_end_s),
            retried=victim_counts[fault_index][0], lost=victim_counts[fault_index][1],
        ))  # fmt: skip
        outage_goes_on = ((outages["t_s"] < next_fault_s) & (outages["end_s"] > next_fault_s)).any()
        earlier_tokens_per_s = usual_tokens_per_s if outage_goes_on else None
    return dips


def _token_rates(windows: pl.DataFrame) -> tuple[str, np.ndarray]:
    """(phase whose tokens count: "output", or "input" without decode; tokens/s f8[windows])."""
    for phase in ("output", "input"):
        rate_column = f"{phase}_tokens_per_s"
        if rate_column in windows.columns and (windows[rate_column].sum() or 0.0) > 0.0:
            return phase, windows[rate_column].fill_null(0.0).to_numpy()
    return "output", np.zeros(windows.height)


def _usual_window_mask(
    begin: np.ndarray, length: np.ndarray, at_s: float, since_s: float
) -> np.ndarray:
    """Mask bool[windows] of the windows that define the usual rate: those shortly before at_s that
    begin after since_s, the last earlier fault. begin, length f8[windows]: seconds."""
    window_s = float(length[0])
    span_s = max(min(BEFORE_S, BEFORE_WINDOWS * window_s), FEWEST_WINDOWS * window_s)
    usual_from_s = max(since_s, at_s - span_s)
    return np.asarray((begin >= usual_from_s - 1e-9) & (begin + length <= at_s + 1e-9))


def _recovery_and_lowest(
    begin: np.ndarray, rate: np.ndarray, usual_rate: float | None, usual_sd: float, at_s: float
) -> tuple[float | None, float | None]:
    """(seconds from the fault at at_s to lasting recovery, 0 without a dip, None if not recovered
    in these windows; lowest rate). begin, rate f8[windows]: seconds, tokens/s.
    A dip is 5 % and NOISE times usual_sd below usual_rate; it ends when the rate and the mean of
    SUSTAINED windows are back."""
    if rate.size == 0:
        return None, None
    if usual_rate is None:
        return None, float(rate.min())
    low_windows = np.flatnonzero(rate < min(BACK * usual_rate, usual_rate - NOISE * usual_sd))
    if not low_windows.size:
        return 0.0, float(rate.min())
    for window in range(int(low_windows[0]) + 1, rate.size - SUSTAINED + 1):
        if (
            rate[window] >= BACK * usual_rate
            and rate[window : window + SUSTAINED].mean() >= BACK * usual_rate
        ):
            return float(begin[window] - at_s), float(rate[:window].min())
    return None, float(rate.min())


def _outages_in_span(
    outages: pl.DataFrame, at_s: float, stop_s: float, end_s: float
) -> tuple[tuple[str, float], ...]:
    """(instance, seconds out of service) of outages that began between at_s and stop_s, the longest
    first. end_s: end of the run, at which an open outage ends."""
    down_s_of_instance: dict[str, float] = {}
    for outage in outages.iter_rows(named=True):
        if at_s <= outage["t_s"] and (outage["t_s"] < stop_s or stop_s >= end_s):
            instance = instance_name(outage["role"], outage["instance"])
            outage_s = max(0.0, min(outage["end_s"], end_s) - outage["t_s"])
            down_s_of_instance[instance] = down_s_of_instance.get(instance, 0.0) + outage_s
    return tuple(sorted(down_s_of_instance.items(), key=lambda item: (-item[1], item[0])))


def instance_name(role: str, instance: int | None) -> str:
    """Name of an instance for people: 'decode 0'."""
    return role if instance is None else f"{role} {instance}"


def _retried_and_lost(
    requests: pl.DataFrame | None, events: pl.DataFrame, fault_times_s: Sequence[float]
) -> list[tuple[int, int]]:
    """(retried, lost) requests by fault; a request counts for the first that could affect it."""
    if requests is None or "retries" not in requests.columns:
        return [(0, 0)] * len(fault_times_s)
    detection_s = _detection_times(events, fault_times_s)
    is_retried = requests["retries"].to_numpy() > 0
    is_given_up = is_lost(requests)
    # Who came after the last fault was noticed met its long shadow: no instance to go to.
    fault_count, arrival_s = len(fault_times_s), requests["arrival_s"].to_numpy()
    fault_index = np.minimum(np.searchsorted(detection_s, arrival_s, "left"), fault_count - 1)
    retried_of_fault = np.bincount(fault_index[is_retried], minlength=fault_count)
    lost_of_fault = np.bincount(fault_index[is_given_up], minlength=fault_count)
    return list(zip(retried_of_fault.tolist(), lost_of_fault.tolist(), strict=True))


def _detection_times(events: pl.DataFrame, fault_times_s: Sequence[float]) -> np.ndarray:
    """Detection time (s) of each fault: that of the last event "detected" before the next fault, or
    the time of the fault itself."""
    detected_s = events.filter(pl.col("kind") == Kind.DETECTED)["t_s"].to_list()
    return np.array([
        max([fault_s, *(t_s for t_s in detected_s if fault_s <= t_s < next_s)])
        for fault_s, next_s in pairwise((*fault_times_s, np.inf))
    ])  # fmt: skip


def is_lost(requests: pl.DataFrame) -> np.ndarray:
    """Mask bool[requests] of those given up after a fault; all False without such a status."""
    status = requests["status"]
    if isinstance(status.dtype, pl.Enum) and "lost" not in status.dtype.categories:
        return np.zeros(requests.height, bool)
    return (status == "lost").fill_null(False).to_numpy()


def _met_finish_s(
    requests: pl.DataFrame | None, ttft_limit_s: float, tpot_limit_s: float
) -> np.ndarray | None:
    """Finish times (s) of requests that met both limits, sorted; None without requests."""
    if requests is None:
        return None
    finished_requests = requests.filter(pl.col("finish_s").is_not_null())
    ttft_s = span_s(finished_requests, "arrival_s", "first_token_s")
    met_limits = met_slo(ttft_s, tpot_s(finished_requests), ttft_limit_s, tpot_limit_s)
    return np.sort(finished_requests["finish_s"].to_numpy()[met_limits])


def _goodput(finish_s: np.ndarray | None, begin_s: float, end_s: float) -> float | None:
    """Requests/s that met the SLO and finished from begin_s to end_s; None for an empty span or
    without requests. finish_s: sorted finish times of all requests that met it."""
    if finish_s is None or end_s <= begin_s:
        return None
    first_index, end_index = np.searchsorted(finish_s, (begin_s, end_s))
    return float(end_index - first_index) / (end_s - begin_s)


def _join_names(names: Sequence[str]) -> str:
    """Names joined as 'a, b and c', shortened to a few."""
    if len(names) > FEW:
        return first_few(names, FEW)
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _rate_text(value: float) -> str:
    """A rate in tokens/s as text."""
    return amount(value, "rate", "tokens/s")


@dataclass(frozen=True, slots=True)
class Incidents:
    """Figures of faults and balancing in a summary; zeros for a run without them."""

    lost: int = 0  # requests given up
    retried: int = 0  # requests thrown out and tried again
    rebalances: int = 0  # how often experts were moved
    moved_bytes: float = 0.0  # of expert weights
    down_s: float = 0.0  # instance-seconds out of service, an open end counting to the horizon


def incidents(
    requests: pl.DataFrame | None, events: pl.DataFrame | None, horizon_s: float
) -> Incidents:
    """Figures of faults and balancing of a run, from its requests and its events."""
    lost_count = retried_count = 0
    if requests is not None:
        lost_count = int(is_lost(requests).sum())
        if "retries" in requests.columns:
            retried_count = int((requests["retries"] > 0).sum())
    if events is None or not events.height:
        return Incidents(lost_count, retried_count)
    rebalance_events = events.filter(pl.col("kind") == Kind.REBALANCE)
    moved_bytes = float(rebalance_events["bytes"].fill_null(0.0).sum())
    outage_events = events.filter(pl.col("kind") == Kind.INSTANCE_DOWN)
    # Filled first: an open end of a column that is all null has no type of its own.
    outage_end_s = outage_events["end_s"].cast(pl.Float64).fill_null(horizon_s)
    outage_s = outage_end_s.clip(upper_bound=horizon_s) - outage_events["t_s"]
    down_s = float(outage_s.clip(lower_bound=0.0).sum())
    return Incidents(lost_count, retried_count, rebalance_events.height, moved_bytes, down_s)
