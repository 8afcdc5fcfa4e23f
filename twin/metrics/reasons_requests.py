"""Reasons seen from the requests: who was late, turned away or left waiting, and where."""

from __future__ import annotations

from typing import Any

import polars as pl

from twin.metrics.finding import (
    Finding,
    Summary,
    Tables,
    Wish,
    first_open,
    front_end_busy,
    number,
    recent_rate,
    ttft_parts,
)
from twin.metrics.latency import span, tpot_s
from twin.metrics.measures import amount, seconds, three_figures
from twin.metrics.registry import metric_of
from twin.scenario import Scenario

QUEUES = {  # column of the windows table -> where that is, and the part of TTFT it makes long
    "front_end_queue": ("at the front end", "front_end"),
    "router_queue": ("for a place to decode", "router"),
    "prefill_queue": ("for prefill", "prefill_queue"),
}
MET = 0.99  # a promise kept this often needs no cure
LATE = 0.5  # of the TTFT limit: from here on the mean is worth a cure


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
    arrived = recent_rate(windows, "arrived")
    if end - middle < max(10.0, 0.5 * middle) or arrived <= 0:
        return []
    finished = recent_rate(windows, "finished")
    longest = max(queues, key=lambda c: _mean_around(windows[c].cast(pl.Float64), 1.0))
    where, part = QUEUES[longest]
    what = (
        f"Overload: {three_figures(arrived)} req/s arrive and {three_figures(finished)} req/s "
        f"finish. {end:,.0f} requests wait at the end, most of them {where}, against "
        f"{middle:,.0f} half-way, so every latency depends on how long the run is."
    )
    fix, settings = remedy(part, scenario)
    return [Finding("overload", 1.0, what, fix, settings)]


def _mean_around(series: pl.Series, place: float) -> float:
    """Mean of a tenth of the series ending at `place` (0..1) of its length."""
    end = max(1, round(place * series.len()))
    start = max(0, end - max(1, series.len() // 10))
    value = series.slice(start, end - start).mean()
    return float(value) if isinstance(value, int | float) else 0.0


def slo_missed(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """How many got what was promised; of the others, which half of it they missed."""
    met = number(s, "slo_attainment")
    if met is None:
        return []
    promise = f"TTFT ≤ {seconds(scenario.slo.ttft_s)}, TPOT ≤ {scenario.slo.tpot_ms:g} ms"
    share = amount(met, "share")
    if met >= MET:
        return [Finding("slo", 0.05, f"{share} of requests met the SLO ({promise}).")]
    start, flow = _missed(scenario, s, tables)
    late = [f"{amount(start, 'share')} waited too long for the first token"] if start else []
    late += [f"{amount(flow, 'share')} got their tokens too slowly"] if flow else []
    what = f"Only {share} of requests met the SLO ({promise})"
    what += f": {' and '.join(late)}." if late else "."
    fix, settings = "", dict[str, Any]()
    if flow > start and scenario.deployment.mode in ("disaggregated", "decode_only"):
        fewer = max(1, round(0.875 * scenario.deployment.decode.batch_per_npu))
        sentence = "Fewer requests per NPU make iterations shorter, and NPUs less productive."
        path = "deployment.decode.batch_per_npu"
        fix, settings = first_open(scenario, [(sentence, path, fewer)])
    return [Finding("slo", 1.0 - 0.2 * met, what, fix, settings)]


def _missed(scenario: Scenario, s: Summary, tables: Tables) -> tuple[float, float]:
    """Shares of the finished that were late to start, and slow to flow, after the warm-up."""
    requests = tables.get("requests")
    if requests is None:
        return 0.0, 0.0
    after = pl.col("finish_s") >= (number(s, "warmup_s") or 0.0)
    done = requests.filter(after & pl.col("first_token_s").is_not_null())
    if not done.height:
        return 0.0, 0.0
    start = span(done, "arrival_s", "first_token_s") > scenario.slo.ttft_s
    flow = tpot_s(done) > 1e-3 * scenario.slo.tpot_ms
    return float(start.mean()), float(flow.mean())


def ttft_largest(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """The two largest parts of the mean TTFT, and what would shorten the first."""
    if scenario.deployment.mode == "decode_only":
        return []  # the prompt's KV is in place: there is no way to the first token
    parts = ttft_parts(s)
    total = number(s, "ttft_s_mean") or sum(value for _, value in parts)
    if not parts or total <= 0:
        return []
    (name, value), *others = sorted(parts, key=lambda part: -part[1])
    share = min(value / total, 1.0)
    what = (
        f"A first token takes {seconds(total)} on average: {amount(share, 'share')} of it "
        f"({seconds(value)}) is {_part(name)}"
    )
    if others and others[0][1] > 0.15 * total:
        what += f", {amount(others[0][1] / total, 'share')} {_part(others[0][0])}"
    late = total > LATE * scenario.slo.ttft_s
    fix, settings = remedy(name, scenario)
    return [Finding("ttft", (0.75 if late else 0.3) * share, what + ".", fix, settings)]


def front_end_waits(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """API servers so busy that requests wait for them longer than they are served."""
    spent, windows = number(s, "ttft_front_end_s_mean"), tables.get("windows")
    front, service_s = scenario.front_end, 1e-3 * scenario.front_end.service_ms
    total = number(s, "ttft_s_mean") or 0.0
    if not spent or windows is None or not windows.height or spent < 2 * service_s:
        return []
    if spent < 0.05 * total or scenario.deployment.mode == "decode_only":
        return []
    busy = front_end_busy(scenario, tables)
    servers = "the one API server is" if front.api_servers == 1 else "the API servers are"
    what = (
        f"A request spends {seconds(spent)} at the front end, of which {seconds(service_s)} is "
        f"service: {servers} {amount(busy, 'share')} busy."
    )
    fix, settings = remedy("front_end", scenario)
    return [Finding("front end", 0.3 + 0.4 * spent / total, what, fix, settings)]


def _part(name: str) -> str:
    label = metric_of(f"ttft_{name}_s_mean").label
    return label if label.startswith("KV") else label[0].lower() + label[1:]


def remedy(part: str, scenario: Scenario) -> tuple[str, dict[str, Any]]:
    """What shortens a part of the TTFT: one sentence, and the settings that would try it."""
    d = scenario.deployment
    shared = scenario.workload.prefix != "none" or scenario.workload.arrivals == "trace"
    wishes: dict[str, list[Wish]] = {
        "front_end": [
            ("More API servers would cut this wait.", "front_end.api_servers",
             2 * scenario.front_end.api_servers),
        ],
        "router": [
            ("Decode room is reserved before prefill starts, and it is taken: more decode "
             "instances would open the door.", "deployment.decode.instances",
             d.decode.instances + 1),
            ("Decode room is reserved before prefill starts, and it is taken: more requests per "
             "NPU would open the door, for a longer TPOT.", "deployment.decode.batch_per_npu",
             2 * d.decode.batch_per_npu),
        ],
        "kv_transfer": [
            ("Another plane has more room for KV on its way to decode.",
             "deployment.kv_transfer_plane", "ub"),
        ],
        "prefill_queue": [
            ("Another prefill instance would shorten the queue.",
             "deployment.prefill.instances", d.prefill.instances + 1),
            ("The machine is full: more nodes would make room for another prefill instance.",
             "supernode.nodes", scenario.supernode.nodes + 4),
        ],
        "prefill": [
            ("Prompts that share a beginning would not be computed twice with a memory pool.",
             "memory_pool.enabled", True),
        ] if shared else [],
    }  # fmt: skip
    unused = {
        "colocated": ("router", "kv_transfer", "prefill_queue"),
        "prefill_only": ("router", "kv_transfer"),
        "decode_only": ("prefill", "prefill_queue", "kv_transfer"),
    }
    if part in unused.get(d.mode, ()):
        return "", {}
    return first_open(scenario, wishes.get(part, []))


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
        reasons = "; ".join(f"{row['reason']} ({row['len']:,})" for row in rows[:3])
    what = f"{count:,.0f} requests ({amount(count / total, 'share')}) were rejected"
    what += f": {reasons}." if reasons else "."
    return [Finding("rejected", min(1.0, 0.4 + count / total), what)]
