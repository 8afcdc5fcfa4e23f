"""What each figure of a summary is called, its unit, its basis and which way is better.

One table serves the tiles, the comparison, the sentences and the command line, so a figure has
the same words everywhere. This module knows nothing about how a figure was found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["time", "share", "count", "rate", "bytes", "ratio"]
Better = Literal["lower", "higher", ""]
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a summary."""

    key: str
    label: str  # sentence case, no unit in it
    kind: Kind
    unit: str  # SI unit for times and bytes (scaled when shown); as shown for all else
    better: Better
    help: str  # what it counts, and its basis: die, NPU, instance, whole machine


def _latency(prefix: str, name: str, what: str) -> list[Measure]:
    mean = Measure(f"{prefix}_mean", f"{name} mean", "time", "s", "lower", what)
    rest = [
        Measure(f"{prefix}_p{p}", f"{name} p{p}", "time", "s", "lower", what)
        for p in (50, 90, 95, 99)
    ]
    return [mean, *rest]


def _part(key: str, label: str, what: str) -> Measure:
    return Measure(f"ttft_{key}_s_mean", label, "time", "s", "lower", what)


def _busy(key: str, label: str, what: str) -> Measure:
    return Measure(key, label, "share", "%", "", what)


_TABLE: list[Measure] = [
    *_latency("ttft_s", "TTFT", "Time to first token: first token minus arrival, per request."),
    *_latency(
        "tpot_s",
        "TPOT",
        "Time per output token: (finish minus first token) / (output tokens minus 1), per request.",
    ),
    *_latency("itl_s", "ITL", "Inter-token latency: each gap between two tokens of one request."),
    *_latency("e2e_s", "E2E", "End to end: finish minus arrival, per request."),
    _part("front_end", "Front end", "Waiting for and being served by an API server."),
    _part("router", "Waiting for a place", "Until decode room is reserved and prefill chosen."),
    _part("prefill_queue", "Waiting for prefill", "In the queue of the chosen prefill instance."),
    _part("prefill", "Prefill", "From the start of the first prefill batch to the last one's end."),
    _part("kv_transfer", "KV transfer", "Moving KV blocks from prefill to decode dies."),
    Measure(
        "goodput_req_per_s", "Goodput", "rate", "req/s", "higher",
        "Requests per second that met the whole SLO; the whole machine.",
    ),
    Measure(
        "slo_attainment", "SLO attainment", "share", "%", "higher",
        "Share of finished requests that met both the TTFT and the TPOT target.",
    ),
    Measure(
        "throughput_req_per_s", "Finished requests", "rate", "req/s", "higher",
        "Requests finished per second; the whole machine.",
    ),
    Measure(
        "decode_tokens_per_s_per_npu", "Decode throughput", "rate", "tokens/s per NPU", "higher",
        "Output tokens per second over the NPUs of the decode pool (an NPU is two dies).",
    ),
    Measure(
        "prefill_tokens_per_s_per_npu", "Prefill throughput", "rate", "tokens/s per NPU", "higher",
        "Input tokens per second over the NPUs of the prefill pool (an NPU is two dies).",
    ),
    Measure(
        "tokens_per_s_per_npu", "Machine throughput", "rate", "tokens/s per NPU", "higher",
        "Output tokens per second over every NPU that serves, prefill and decode together.",
    ),
    Measure(
        "output_tokens_per_s", "Output tokens", "rate", "tokens/s", "higher",
        "Output tokens per second; the whole machine.",
    ),
    Measure(
        "hit_token_ratio", "Hit ratio", "share", "%", "higher",
        "Share of input tokens read from the memory pool instead of computed.",
    ),
    Measure(
        "decode_iteration_s_mean", "Decode iteration", "time", "s", "lower",
        "One forward pass of a decode instance over all its requests.",
    ),
    Measure(
        "preemptions", "Preemptions", "count", "preemptions", "lower",
        "Times a request lost its KV blocks on a full die and was computed again.",
    ),
    _busy("prefill_utilisation", "Prefill busy", "Share of time a prefill instance computes."),
    _busy("decode_utilisation", "Decode busy", "Share of time a decode instance computes."),
    _busy("hbm_utilisation", "HBM bandwidth used", "Bytes read over what the dies could read."),
    _busy("cube_utilisation", "Cube cores used", "FLOPs done over what the dies could do."),
    _busy("ub_utilisation", "UB plane used", "Bytes over capacity, mean of all links."),
    _busy("rdma_utilisation", "RDMA plane used", "Bytes over capacity, mean of all links."),
    _busy("vpc_utilisation", "VPC plane used", "Bytes over capacity, mean of all links."),
    _busy("kv_used_fraction_mean", "Decode KV space used", "KV tokens held over what fits in HBM."),
    _busy("pool_used_fraction", "Memory pool used", "KV blocks held over what the DRAM holds."),
    Measure("requests", "Requests", "count", "requests", "", "Requests that arrived."),
    Measure("finished", "Finished", "count", "requests", "", "Requests answered to the end."),
    Measure(
        "requests_steady", "Finished after warm-up", "count", "requests", "",
        "Requests that finished in the steady state: what latency figures rest on.",
    ),
    Measure("rejected", "Rejected", "count", "requests", "lower", "Requests never served."),
    Measure("running", "Unfinished", "count", "requests", "", "Still in the machine at the end."),
    Measure(
        "lost", "Lost", "count", "requests", "lower",
        "Requests given up after faults: their last retry failed, or nobody was left to serve.",
    ),
    Measure(
        "retried", "Retried", "count", "requests", "lower",
        "Requests that a fault threw out at least once and that were tried again.",
    ),
    Measure(
        "rebalances", "Rebalances", "count", "rebalances", "",
        "Times experts were moved to even out the load of dies.",
    ),
    Measure(
        "moved_bytes", "Experts moved", "bytes", "B", "",
        "Bytes of expert weights that all rebalances moved.",
    ),
    Measure(
        "down_s", "Out of service", "time", "s", "lower",
        "Seconds that instances were out of service, summed over instances.",
    ),
    Measure(
        "recovery_s", "Time to recover", "time", "s", "lower",
        "From a fault until output is back within 5 % of what it was, and stays there.",
    ),
    Measure(
        "before_tokens_per_s", "Before the fault", "rate", "tokens/s", "higher",
        "Tokens per second in the minute, or the 20 windows, before a fault; the whole machine.",
    ),
    Measure(
        "lowest_tokens_per_s", "At its lowest", "rate", "tokens/s", "higher",
        "Tokens per second in the slowest window after a fault; the whole machine.",
    ),
    Measure(
        "goodput_before_req_per_s", "Goodput before the fault", "rate", "req/s", "higher",
        "Requests per second that met the whole SLO, in the minute or 20 windows before a fault.",
    ),
    Measure(
        "goodput_during_req_per_s", "Goodput during the fault", "rate", "req/s", "higher",
        "Requests per second that met the whole SLO, from a fault until recovery.",
    ),
    Measure(
        "concurrency_mean", "Requests in the machine", "count", "requests", "",
        "Mean number of requests inside, from arrival to finish.",
    ),
    Measure(
        "little_error", "Little's law gap", "share", "%", "lower",
        "Requests inside, counted two ways: sampled over time, and rate times time inside.",
    ),
    Measure("warmup_s", "Warm-up left out", "time", "s", "", "Start that no figure counts."),
    Measure("horizon_s", "Simulated time", "time", "s", "", "From the first second to the last."),
    Measure("npus", "NPUs that serve", "count", "NPUs", "", "NPU packages; one is two dies."),
    Measure("npus_prefill", "Prefill NPUs", "count", "NPUs", "", "NPUs of the prefill pool."),
    Measure("npus_decode", "Decode NPUs", "count", "NPUs", "", "NPUs of the decode pool."),
    Measure("npus_colocated", "Colocated NPUs", "count", "NPUs", "", "NPUs that do both."),
]  # fmt: skip

MEASURES: dict[str, Measure] = {m.key: m for m in _TABLE}

# What the names' endings promise (DESIGN, Names), for figures the table does not list.
_ENDINGS: tuple[tuple[str, Kind, str], ...] = (
    ("_tokens_per_s_per_npu", "rate", "tokens/s per NPU"),
    ("_tokens_per_s", "rate", "tokens/s"),
    ("_req_per_s", "rate", "req/s"),
    ("_bytes_per_s", "bytes", "B/s"),
    ("_bytes", "bytes", "B"),
    ("_utilisation", "share", "%"),
    ("_fraction", "share", "%"),
    ("_ratio", "share", "%"),
    ("_s", "time", "s"),
)


def measure(key: str) -> Measure:
    """The figure's description; one that the table lacks is read from the end of its name."""
    if key in MEASURES:
        return MEASURES[key]
    stem = key
    for statistic in ("_mean", "_p50", "_p90", "_p95", "_p99", "_peak", "_max"):
        stem = stem.removesuffix(statistic)
    label = key.replace("_", " ").capitalize()
    for ending, kind, unit in _ENDINGS:
        if stem.endswith(ending):
            return Measure(key, label, kind, unit, "", "")
    return Measure(key, label, "count", "", "", "")


def shown(key: str, value: object) -> str:
    """A summary figure for people, with its unit: shown('ttft_s_p50', 0.8312) is '831 ms'."""
    described = measure(key)
    if value is None or isinstance(value, str):
        return value or NOTHING
    return amount(float(value), described.kind, described.unit)  # type: ignore[arg-type]


def amount(value: float | None, kind: Kind, unit: str = "") -> str:
    """A number with its unit: three figures, thousands separators, a dash when there is none.

    >>> amount(0.0841, "time"), amount(1942.7, "rate", "tokens/s per NPU"), amount(0.5634, "share")
    ('84.1 ms', '1,943 tokens/s per NPU', '56.3 %')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if kind == "time":
        return seconds(value)
    if kind == "share":
        return f"{three_figures(100 * value)} %"
    if kind == "bytes":
        return _bytes(value, unit or "B")
    text = f"{value:,.0f}" if kind == "count" and value == round(value) else three_figures(value)
    return f"{text} {unit}".rstrip()


def seconds(value: float) -> str:
    """A duration in the unit that suits its size.

    >>> seconds(0), seconds(2.6e-5), seconds(0.0499), seconds(1.234), seconds(7200)
    ('0 s', '26.0 µs', '49.9 ms', '1.23 s', '7,200 s')
    """
    size = abs(value)
    if size == 0 or size >= 0.9995:  # what would round to 1,000 ms is 1.00 s
        return f"{three_figures(value)} s"
    if size >= 0.9995e-3:
        return f"{three_figures(value * 1e3)} ms"
    return f"{three_figures(value * 1e6)} µs"


def three_figures(value: float) -> str:
    """Three significant figures, no exponent, thousands separated; zero is '0'."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.01:
        return f"{value:.2f}"
    return f"{value:.2g}" if size >= 1e-4 else "≈ 0"


def _bytes(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{three_figures(value / factor)} {prefix}{unit}"
    return f"{three_figures(value)} {unit}"


def verdict(key: str, value: float, baseline: float) -> Literal["better", "worse", "same", ""]:
    """How a figure stands against its baseline; '' when neither way is better."""
    if abs(value - baseline) <= 5e-4 * max(abs(value), abs(baseline)):
        return "same"
    better = measure(key).better
    if not better:
        return ""
    return "better" if (value < baseline) == (better == "lower") else "worse"
