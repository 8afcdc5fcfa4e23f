"""Why a run is as fast as it is: what binds, where the time went, what would fix it.

Each rule looks at the summary and the tables of one run and may state a finding: one sentence of
what was seen, with numbers and units, one sentence of what would fix it, and the scenario fields
that would try the fix. This module runs nothing and promises nothing: a bound ("at most") is
arithmetic on the run at hand, never a forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from twin.metrics.measures import amount, measure, seconds
from twin.spec import Scenario, SpecError, with_overrides

Summary = Mapping[str, float | int | str | None]
Tables = Mapping[str, pl.DataFrame]

# TTFT parts in the order a request meets them: (summary key, short name).
TTFT_PARTS: tuple[tuple[str, str], ...] = (
    ("ttft_front_end_s_mean", "front_end"),
    ("ttft_router_s_mean", "router"),
    ("ttft_prefill_queue_s_mean", "prefill_queue"),
    ("ttft_prefill_s_mean", "prefill"),
    ("ttft_kv_transfer_s_mean", "kv_transfer"),
    ("ttft_first_decode_s_mean", "first_decode"),
)

QUEUES = ("front_end_queue", "router_queue", "prefill_queue")  # columns of the windows table

BUSY = 0.9  # a pool this busy queues: waiting grows like 1 / (1 - busy)
IDLE = 0.5  # below this a pool has NPUs to give
FULL = 0.95  # KV space this full leaves no room for the next request


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason, and what to do about it."""

    topic: str  # slo, overload, ttft, decode, balance, memory, experts, fabric, hits, rejected
    weight: float  # 0..1, how much of the answer it explains; findings are sorted by it
    what: str  # what was seen, with numbers and units
    fix: str = ""  # what would change it; '' when nothing needs to
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted scenario path -> value


def explain(scenario: Scenario, summary: Summary, tables: Tables) -> list[Finding]:
    """Findings of one run, the weightiest first; never empty for a run that served a request."""
    found = [finding for rule in RULES for finding in rule(scenario, summary, tables)]
    found = [replace(f, settings=_possible(scenario, f.settings)) for f in found]
    return sorted(found, key=lambda f: (-f.weight, f.topic, f.what))


def _possible(scenario: Scenario, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings, or none when the scenario refuses them (a full machine takes no instance)."""
    try:
        with_overrides(scenario, dict(settings))
    except SpecError:
        return {}
    return settings


def ttft_parts(summary: Summary) -> list[tuple[str, float]]:
    """(part, mean seconds) in pipeline order, only the parts the summary holds."""
    parts = [(name, number(summary, key)) for key, name in TTFT_PARTS]
    return [(name, value) for name, value in parts if value is not None]


def number(summary: Summary, key: str) -> float | None:
    """A figure of the summary as a float; None when it is absent, empty or a word."""
    value = summary.get(key)
    if value is None or isinstance(value, str):
        return None
    return float(value)


def slo_missed(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """Who missed the SLO, and which half of it."""
    met = number(s, "slo_attainment")
    if met is None:
        return []
    promise = f"TTFT ≤ {seconds(scenario.slo.ttft_s)}, TPOT ≤ {scenario.slo.tpot_ms:g} ms"
    share = amount(met, "share")
    if met >= 0.99:
        return [Finding("slo", 0.05, f"{share} of requests met the SLO ({promise}).")]
    late = _missed(scenario, s, tables)
    which = f" {late}" if late else ""
    what = f"Only {share} of requests met the SLO ({promise}).{which}"
    return [Finding("slo", 1.0 - 0.2 * met, what)]


def _missed(scenario: Scenario, s: Summary, tables: Tables) -> str:
    requests = steady(s, tables)
    if requests is None:
        return ""
    done = requests.filter(pl.col("finish_s").is_not_null())
    if not done.height:
        return ""
    ttft, tpot = ttft_of(done), tpot_of(done)
    slow_start = int((ttft > scenario.slo.ttft_s).sum())
    slow_flow = int((tpot > scenario.slo.tpot_ms / 1e3).sum())
    return (
        f"{amount(slow_start / done.height, 'share')} waited too long for the first token, "
        f"{amount(slow_flow / done.height, 'share')} got their tokens too slowly."
    )


def steady(s: Summary, tables: Tables) -> pl.DataFrame | None:
    """Requests that arrived after the warm-up; None when the run has no such table."""
    requests = tables.get("requests")
    if requests is None or not requests.height:
        return None
    return requests.filter(pl.col("arrival_s") >= (number(s, "warmup_s") or 0.0))


def ttft_of(requests: pl.DataFrame) -> pl.Series:
    """Seconds to the first token, one per row; null where there was none."""
    return requests["first_token_s"] - requests["arrival_s"]


def tpot_of(requests: pl.DataFrame) -> pl.Series:
    """Seconds per output token after the first; null for one-token or unfinished answers."""
    gaps = requests["output_tokens"].cast(pl.Float64) - 1.0
    return requests.select(
        tpot=pl.when(gaps > 0).then((pl.col("finish_s") - pl.col("first_token_s")) / gaps)
    )["tpot"]


# What makes a part of TTFT long and what shortens it; the settings are worked out in `_remedy`.
_TTFT_FIX = {
    "front_end": "More API servers would cut this wait.",
    "router": "Decode room is reserved before prefill starts, and it is taken: "
    "more decode instances or more requests per NPU would free the door.",
    "prefill_queue": "Prefill cannot keep up: another prefill instance, or more hits in the "
    "memory pool, would shorten the queue.",
    "prefill": "Prefill itself is the work: more hits, shorter batches or less padding by "
    "chunking would shorten it.",
    "kv_transfer": "Moving KV blocks is slow: another plane has more room for it.",
    "first_decode": "The first token waits for a decode iteration: smaller decode batches make "
    "iterations shorter.",
}


def ttft_largest(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """The largest part of the mean TTFT, and what would shorten it."""
    parts = ttft_parts(s)
    total = number(s, "ttft_s_mean") or sum(value for _, value in parts)
    if not parts or total <= 0:
        return []
    name, value = max(parts, key=lambda part: part[1])
    share = min(value / total, 1.0)
    label = measure(f"ttft_{name}_s_mean").label.lower()
    what = (
        f"A first token takes {seconds(total)} on average; {amount(share, 'share')} of it "
        f"({seconds(value)}) is {label}."
    )
    late = total > 0.5 * scenario.slo.ttft_s
    weight = (0.75 if late else 0.3) * share
    return [Finding("ttft", weight, what, _TTFT_FIX[name], _remedy(name, scenario))]


def _remedy(part: str, scenario: Scenario) -> dict[str, Any]:
    d = scenario.deployment
    if part == "front_end":
        return {"front_end.api_servers": 2 * scenario.front_end.api_servers}
    if d.mode != "disaggregated":
        return {}
    if part == "router":
        return {"deployment.decode.batch_per_npu": 2 * d.decode.batch_per_npu}
    if part == "prefill_queue":
        return {"deployment.prefill.instances": d.prefill.instances + 1}
    if part == "prefill":
        return {"deployment.prefill.tokens_per_npu": max(64, d.prefill.tokens_per_npu // 2)}
    if part == "kv_transfer":
        other = "ub" if d.kv_transfer_plane != "ub" else "rdma"
        return {"deployment.kv_transfer_plane": other}
    return {"deployment.decode.batch_per_npu": max(1, d.decode.batch_per_npu // 2)}


# Families of operators: what binds them, and what would help.
_FAMILIES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("attention_core", "attention"),
        "reading and scoring the KV cache, which grows with requests and context",
        "Fewer requests per NPU, or an INT8 KV cache where HBM binds, would shorten it.",
    ),
    (
        ("dispatch", "combine"),
        "sending tokens to their experts and back",
        "Fused communication with early quantisation, or overlap by microbatches, hides it.",
    ),
    (
        ("experts", "moe", "shared_expert"),
        "the experts of the most loaded die",
        "A more even expert load (EPLB, more redundant experts) would shorten it.",
    ),
    (
        ("launch_gaps", "sampling", "lm_head", "mtp"),
        "work outside the layers that does not shrink with the batch",
        "Larger batches spread it over more tokens.",
    ),
)


def decode_largest(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """The operators that a decode iteration spends its time in, by family."""
    operators = tables.get("operators")
    iteration = number(s, "decode_iteration_s_mean")
    if operators is None or not iteration:
        return []
    decode = operators.filter(pl.col("phase") == "decode")
    if not decode.height:
        return []
    total = float(decode["total_s"].sum())
    shares = {row["operator"]: row["total_s"] / total for row in decode.to_dicts()} if total else {}
    best: tuple[float, str, str] | None = None
    for names, why, fix in _FAMILIES:
        share = sum(shares.get(name, 0.0) for name in names)
        if best is None or share > best[0]:
            best = (share, why, fix)
    if best is None or best[0] <= 0:
        return []
    share, why, fix = best
    slow = (number(s, "tpot_s_mean") or 0.0) > 0.8e-3 * scenario.slo.tpot_ms
    what = (
        f"A decode iteration takes {seconds(iteration)}; {amount(share, 'share')} of it "
        f"({seconds(share * iteration)}) is {why}."
    )
    return [Finding("decode", (0.7 if slow else 0.35) * share, what, fix)]


def pools_unbalanced(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """One pool starves while the other is full: NPUs are in the wrong pool."""
    prefill, decode = number(s, "prefill_utilisation"), number(s, "decode_utilisation")
    if scenario.deployment.mode != "disaggregated" or prefill is None or decode is None:
        return []
    d = scenario.deployment
    seen = f"Prefill is {amount(prefill, 'share')} busy, decode {amount(decode, 'share')}"
    if prefill >= BUSY and decode < IDLE:
        return [
            Finding("balance", 0.8, f"{seen}.", "Give prefill another instance.",
                    {"deployment.prefill.instances": d.prefill.instances + 1})
        ]  # fmt: skip
    if prefill < IDLE and decode >= BUSY and d.prefill.instances > 1:
        return [
            Finding("balance", 0.4, f"{seen}: prefill has NPUs to spare.",
                    "Fewer prefill instances would free NPUs for another decode instance.",
                    {"deployment.prefill.instances": d.prefill.instances - 1})
        ]  # fmt: skip
    return [Finding("balance", 0.1, f"{seen}.")]


def overloaded(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """Queues that grow through the second half of the run: more arrives than is finished.

    A closed loop offers no more than is finished, so it cannot be overloaded.
    """
    windows = tables.get("windows")
    if windows is None or windows.height < 8 or scenario.workload.arrivals == "closed_loop":
        return []
    queues = [c for c in QUEUES if c in windows.columns]
    waiting = pl.zeros(windows.height, eager=True)
    for column in queues:
        waiting = waiting + windows[column].cast(pl.Float64)
    middle, end = _mean_around(waiting, 0.5), _mean_around(waiting, 1.0)
    arrived = _rate(windows, "arrived")
    if end - middle < max(10.0, 0.5 * middle) or arrived <= 0:
        return []
    finished = _rate(windows, "finished")
    where = max(queues, key=lambda c: _mean_around(windows[c].cast(pl.Float64), 1.0))
    what = (
        f"Overload: {arrived:,.1f} req/s arrive and {finished:,.1f} req/s finish; "
        f"{end:,.0f} requests wait at the end, most of them in the {where.replace('_', ' ')}, "
        f"against {middle:,.0f} half-way. Latencies depend on how long the run is."
    )
    part = {"front_end_queue": "front_end", "router_queue": "router"}.get(where, "prefill_queue")
    return [Finding("overload", 1.0, what, _TTFT_FIX[part], _remedy(part, scenario))]


def _mean_around(series: pl.Series, place: float) -> float:
    """Mean of a tenth of the series ending at `place` (0..1) of its length."""
    end = max(1, round(place * series.len()))
    start = max(0, end - max(1, series.len() // 10))
    value = series.slice(start, end - start).mean()
    return float(value) if isinstance(value, int | float) else 0.0


def _rate(windows: pl.DataFrame, column: str) -> float:
    half = windows.slice(windows.height // 2)
    length = float(half["window_s"].sum()) if "window_s" in half.columns else 0.0
    return float(half[column].sum()) / length if length > 0 else 0.0


def kv_full(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """Decode HBM is full: requests wait for it or are thrown out and computed again."""
    used, thrown = number(s, "kv_used_fraction_mean"), number(s, "preemptions") or 0.0
    if used is None or (used < FULL and not thrown):
        return []
    what = f"The KV space of the decode dies is {amount(used, 'share')} full"
    what += f" and {thrown:,.0f} requests were preempted." if thrown else "."
    fix = "An INT8 KV cache halves what each request holds; so does serving fewer at once."
    wide = scenario.deployment.precision.kv == "bf16"
    settings = {"deployment.precision.kv": "int8"} if wide else {}
    return [Finding("memory", 0.85 if thrown else 0.6, what, fix, settings)]


def experts_uneven(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """The hottest die sets the pace of every MoE layer."""
    ranks = tables.get("ranks")
    if ranks is None or "expert_load" not in ranks.columns:
        return []
    decode = ranks.filter(pl.col("role") != "prefill")
    hottest = decode["expert_load"].max() if decode.height else None
    if not isinstance(hottest, float | int) or hottest < 1.15:
        return []
    what = (
        f"The most loaded die carries {hottest:.2f} times the mean expert load over the run, and "
        "every other die of its instance waits for it."
    )
    settings: dict[str, Any] = {"experts.redundant": 2 * max(16, scenario.experts.redundant)}
    if scenario.experts.placement == "round_robin":
        settings = {"experts.placement": "eplb"}
    fix = "Balancing experts (EPLB) or more redundant experts evens it out."
    return [Finding("experts", min(0.6, 0.5 * (hottest - 1.0)), what, fix, settings)]


def busiest_plane(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """The link that is closest to its capacity, and whether that matters."""
    links = tables.get("links")
    if links is None or not links.height:
        return []
    order = links.sort(["utilisation_mean", "plane", "node"], descending=[True, False, False])
    top = order.row(0, named=True)
    mean, peak = float(top["utilisation_mean"]), float(top["utilisation_peak"])
    sub = "" if top["sub_plane"] is None else f", sub-plane {top['sub_plane']}"
    name = f"{str(top['plane']).upper()} link of node {top['node']}{sub} ({top['direction']})"
    what = (
        f"Busiest link: {name}, {amount(mean, 'share')} used on average, "
        f"{amount(peak, 'share')} at its peak."
    )
    if mean < IDLE:
        return [Finding("fabric", 0.08, what + " The fabric does not bind.")]
    fix = "More link capacity on this plane, or moving a flow to another plane, would help."
    return [Finding("fabric", 0.7 * mean, what, fix)]


def pool_hits(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """What the memory pool saves, and whether it is too small."""
    ratio, used = number(s, "hit_token_ratio"), number(s, "pool_used_fraction")
    if ratio is None or not scenario.memory_pool.enabled or (not ratio and not used):
        return []
    what = (
        f"{amount(ratio, 'share')} of input tokens came from the memory pool and were not computed."
    )
    if used is None or used < FULL:
        return [Finding("hits", 0.1, what)]
    what += f" The pool is {amount(used, 'share')} full, so old blocks make way for new ones."
    more = min(16_384.0, 2 * scenario.memory_pool.gb_per_node)
    fix = "More DRAM per node keeps blocks longer."
    return [Finding("hits", 0.3, what, fix, {"memory_pool.gb_per_node": more})]


def rejections(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """Requests that were never served, by reason."""
    count = number(s, "rejected") or 0.0
    if not count:
        return []
    total = number(s, "requests") or count
    reasons = ""
    requests = tables.get("requests")
    if requests is not None:
        lost = requests.filter(pl.col("status") == "rejected").group_by("reason").len()
        rows = lost.sort(["len", "reason"], descending=[True, False]).to_dicts()
        reasons = (
            ": " + "; ".join(f"{r['reason']} ({r['len']:,})" for r in rows[:3]) if rows else ""
        )
    what = f"{count:,.0f} requests ({amount(count / total, 'share')}) were rejected{reasons}."
    return [Finding("rejected", min(1.0, 0.4 + count / total), what)]


Rule = Callable[[Scenario, Summary, Tables], list[Finding]]
RULES: tuple[Rule, ...] = (
    overloaded, slo_missed, ttft_largest, decode_largest, pools_unbalanced, kv_full,
    experts_uneven, busiest_plane, pool_hits, rejections,
)  # fmt: skip
