"""Findings seen from the requests: who was late, turned away or left waiting, and where."""

from __future__ import annotations

import polars as pl

from twin.metrics.finding import Finding, Remedy, Seen, finding, ttft_parts
from twin.metrics.latency import span, tpot_s
from twin.metrics.measures import amount, seconds, three_figures
from twin.metrics.registry import metric_of
from twin.scenario import Scenario

QUEUES = {  # column of the windows table -> where that is, and the part of TTFT it makes long
    "front_end_queue": ("at the front end", "front_end"),
    "router_queue": ("for admission to decode", "router"),
    "prefill_queue": ("for prefill", "prefill_queue"),
}
MET = 0.99  # an SLO that so many requests met needs no remedy
LATE = 0.5  # of the TTFT limit: from here on the mean is worth a remedy
# Parts of the TTFT that a mode has not.
ABSENT = {
    "colocated": ("router", "kv_transfer", "prefill_queue"),
    "prefill_only": ("router", "kv_transfer"),
    "decode_only": ("prefill", "prefill_queue", "kv_transfer"),
}


def remedies(part: str, scenario: Scenario) -> list[Remedy]:
    """What shortens a part of the TTFT, the cheapest first."""
    d = scenario.deployment
    shared = scenario.workload.prefix != "none" or scenario.workload.arrivals == "trace"
    known = {
        "front_end": [
            Remedy("More API servers would cut this wait.", "front_end.api_servers",
                   2 * scenario.front_end.api_servers),
        ],
        "router": [
            Remedy("Decode room is reserved before prefill starts, and it is taken: more decode "
                   "instances would admit more requests.", "deployment.decode.instances",
                   d.decode.instances + 1),
            Remedy("Decode room is reserved before prefill starts, and it is taken: more requests "
                   "per NPU would be admitted, for a longer TPOT.",
                   "deployment.decode.batch_per_npu", 2 * d.decode.batch_per_npu),
        ],
        "kv_transfer": [
            Remedy("Another plane has more room for KV on its way to decode.",
                   "deployment.kv_transfer_plane", "ub"),
        ],
        "prefill_queue": [
            Remedy("Another prefill instance would shorten the queue.",
                   "deployment.prefill.instances", d.prefill.instances + 1),
            Remedy("The machine is full: more nodes would make room for another prefill instance.",
                   "supernode.nodes", scenario.supernode.nodes + 4),
        ],
        "prefill": [
            Remedy("Prompts that share a beginning would not be computed twice with a memory pool.",
                   "memory_pool.enabled", True),
        ] if shared else [],
    }  # fmt: skip
    return [] if part in ABSENT.get(d.mode, ()) else known.get(part, [])


@finding("overload")
def overloaded(seen: Seen) -> Finding | None:
    """Queues that grow through the second half of the run: more arrives than is finished.

    A closed loop offers no more than is finished, so it cannot be overloaded.
    """
    windows, workload = seen.tables.get("windows"), seen.scenario.workload
    if windows is None or windows.height < 8 or workload.arrivals == "closed_loop":
        return None
    queues = [c for c in QUEUES if c in windows.columns]
    waiting = pl.zeros(windows.height, eager=True)
    for column in queues:
        waiting = waiting + windows[column].cast(pl.Float64)
    middle, end = _mean_around(waiting, 0.5), _mean_around(waiting, 1.0)
    arrived = seen.recent_rate("arrived")
    if end - middle < max(10.0, 0.5 * middle) or arrived <= 0:
        return None
    longest = max(queues, key=lambda c: _mean_around(windows[c].cast(pl.Float64), 1.0))
    where, part = QUEUES[longest]
    what = (
        f"Overload: {three_figures(arrived)} req/s arrive and "
        f"{three_figures(seen.recent_rate('finished'))} req/s finish. {end:,.0f} requests wait at "
        f"the end, most of them {where}, against {middle:,.0f} half-way, so every latency depends "
        "on how long the run is."
    )
    return seen.remedied(1.0, what, remedies(part, seen.scenario))


def _mean_around(series: pl.Series, place: float) -> float:
    """Mean of a tenth of the series ending at `place` (0..1) of its length."""
    end = max(1, round(place * series.len()))
    start = max(0, end - max(1, series.len() // 10))
    value = series.slice(start, end - start).mean()
    return float(value) if isinstance(value, int | float) else 0.0


@finding("slo")
def slo_missed(seen: Seen) -> Finding | None:
    """How many met the SLO; of the others, which half of it they missed."""
    met, limits = seen.number("slo_attainment"), seen.scenario.slo
    if met is None:
        return None
    slo = f"TTFT ≤ {seconds(limits.ttft_s)}, TPOT ≤ {limits.tpot_ms:g} ms"
    share = amount(met, "share")
    if met >= MET:
        return Finding(0.05, f"{share} of requests met the SLO ({slo}).")
    late_start, slow_flow = _missed(seen)
    parts = [f"{amount(late_start, 'share')} waited too long for the first token"]
    parts = (parts if late_start else []) + (
        [f"{amount(slow_flow, 'share')} got their tokens too slowly"] if slow_flow else []
    )
    what = f"Only {share} of requests met the SLO ({slo})"
    what += f": {' and '.join(parts)}." if parts else "."
    helps = []
    if slow_flow > late_start and seen.scenario.deployment.mode in ("disaggregated", "decode_only"):
        fewer = max(1, round(0.875 * seen.scenario.deployment.decode.batch_per_npu))
        sentence = "Fewer requests per NPU make iterations shorter, and NPUs less productive."
        helps = [Remedy(sentence, "deployment.decode.batch_per_npu", fewer)]
    return seen.remedied(1.0 - 0.2 * met, what, helps)


def _missed(seen: Seen) -> tuple[float, float]:
    """Shares of the finished that were late to start, and slow to flow, after the warm-up."""
    requests = seen.tables.get("requests")
    if requests is None:
        return 0.0, 0.0
    after = pl.col("finish_s") >= seen.known("warmup_s")
    done = requests.filter(after & pl.col("first_token_s").is_not_null())
    if not done.height:
        return 0.0, 0.0
    start = span(done, "arrival_s", "first_token_s") > seen.scenario.slo.ttft_s
    return float(start.mean()), float((tpot_s(done) > seen.slo_tpot_s).mean())


@finding("rejected")
def rejections(seen: Seen) -> Finding | None:
    """Requests that were never served, by reason."""
    count = seen.known("rejected")
    if not count:
        return None
    total = seen.number("requests") or count
    reasons = ""
    requests = seen.tables.get("requests")
    if requests is not None:
        refused = requests.filter(pl.col("status") == "rejected").group_by("reason").len()
        rows = refused.sort(["len", "reason"], descending=[True, False]).to_dicts()
        reasons = "; ".join(f"{row['reason']} ({row['len']:,})" for row in rows[:3])
    what = f"{count:,.0f} requests ({amount(count / total, 'share')}) were rejected"
    what += f": {reasons}." if reasons else "."
    return Finding(min(1.0, 0.4 + count / total), what)


@finding("front end")
def front_end_waits(seen: Seen) -> Finding | None:
    """API servers so busy that requests wait for them longer than they are served."""
    spent, windows = seen.number("ttft_front_end_s_mean"), seen.tables.get("windows")
    front, total = seen.scenario.front_end, seen.known("ttft_s_mean")
    service_s = 1e-3 * front.service_ms
    if not spent or windows is None or not windows.height or spent < 2 * service_s:
        return None
    if spent < 0.05 * total or seen.scenario.deployment.mode == "decode_only":
        return None
    servers = "the one API server is" if front.api_servers == 1 else "the API servers are"
    what = (
        f"A request spends {seconds(spent)} at the front end, of which {seconds(service_s)} is "
        f"service: {servers} {amount(seen.front_end_busy(), 'share')} busy."
    )
    return seen.remedied(0.3 + 0.4 * spent / total, what, remedies("front_end", seen.scenario))


@finding("ttft")
def ttft_largest(seen: Seen) -> Finding | None:
    """The two largest parts of the mean TTFT, and what would shorten the first."""
    if seen.scenario.deployment.mode == "decode_only":
        return None  # the prompt's KV is in place: nothing comes before the first token
    parts = ttft_parts(seen.summary)
    total = seen.number("ttft_s_mean") or sum(value for _, value in parts)
    if not parts or total <= 0:
        return None
    (name, value), *others = sorted(parts, key=lambda part: -part[1])
    share = min(value / total, 1.0)
    what = (
        f"A first token takes {seconds(total)} on average: {amount(share, 'share')} of it "
        f"({seconds(value)}) is {_part(name)}"
    )
    if others and others[0][1] > 0.15 * total:
        what += f", {amount(others[0][1] / total, 'share')} {_part(others[0][0])}"
    late = total > LATE * seen.scenario.slo.ttft_s
    helps = remedies(name, seen.scenario)
    return seen.remedied((0.75 if late else 0.3) * share, what + ".", helps)


def _part(name: str) -> str:
    label = metric_of(f"ttft_{name}_s_mean").label
    return label if label.startswith("KV") else label[0].lower() + label[1:]
