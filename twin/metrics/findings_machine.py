"""Findings seen from the machine: what iterations are made of, what is full, what has headroom."""

from __future__ import annotations

import polars as pl

from twin.metrics.finding import Finding, Remedy, Seen, finding, ttft_parts
from twin.metrics.measures import amount, seconds
from twin.metrics.operators import family
from twin.metrics.registry import shown
from twin.scenario import Scenario, pools

FULL = 0.95  # of the slots or the KV space: the next request waits
ROOM = 0.7  # of the slots: below this the load, not the machine, sets the throughput
TIGHT = 0.8  # of the TPOT limit: from here on iterations are worth a remedy
IDLE = 0.5  # of a link or a pool: below this it is no bottleneck
LISTED = 3  # families of operators that a sentence names


def families(seen: Seen, phase: str) -> list[tuple[str, float]]:
    """Families of operators with their shares of a phase, the largest first."""
    shares: dict[str, float] = {}
    for name, share in seen.operator_shares(phase).items():
        words = family(name)
        shares[words] = shares.get(words, 0.0) + share
    return sorted(
        ((words, share) for words, share in shares.items() if share > 0),
        key=lambda item: (-item[1], item[0]),
    )


def _made_of(parts: list[tuple[str, float]]) -> str:
    return ", ".join(f"{amount(share, 'share')} {words}" for words, share in parts[:LISTED])


def remedies(words: str, scenario: Scenario) -> list[Remedy]:
    """What would shorten a family of operators, the cheapest first."""
    chunk = max(2, scenario.deployment.colocated.chunk_tokens_per_npu // 2)
    optimisations = "deployment.optimisations"
    known = {
        "attention_core": [
            Remedy("The fused MLA operator reaches more of the peak.",
                   f"{optimisations}.attention_kernel", "fused_mla"),
            Remedy("An INT8 KV cache halves the bytes that are read.",
                   "deployment.precision.kv", "int8"),
        ],
        "dispatch": [
            Remedy("Fused dispatch and combine start faster.",
                   "deployment.communication.fused", True),
            Remedy("Early quantisation sends half the bytes.",
                   "deployment.communication.early_quantisation", True),
            Remedy("Two microbatches hide sending behind computing where that pays.",
                   "deployment.decode.microbatch", "auto"),
            Remedy("One operator for dispatch, experts and combine overlaps them.",
                   f"{optimisations}.fused_deep_moe", True),
        ],
        "experts": [
            Remedy("Balancing experts (EPLB) evens out the most loaded die.",
                   "experts.placement", "eplb"),
        ],
        "prefill_chunk": [
            Remedy("Smaller pieces of prompts leave iterations shorter, and first tokens later.",
                   "deployment.colocated.chunk_tokens_per_npu", chunk),
        ],
    }  # fmt: skip
    return [
        remedy for name, entries in known.items() if family(name) == words for remedy in entries
    ]


@finding("prefill")
def prefill_time(seen: Seen) -> Finding | None:
    """What a prefill batch is made of and how full it is, where TTFT is mostly prefill."""
    batch_s, parts = seen.number("prefill_batch_s_mean"), families(seen, "prefill")
    part_s, total = dict(ttft_parts(seen.summary)), seen.known("ttft_s_mean")
    waited = part_s.get("prefill", 0.0) + part_s.get("prefill_queue", 0.0)
    if not batch_s or not parts or waited < IDLE * total:
        return None
    what = f"A prefill batch takes {seconds(batch_s)}: {_made_of(parts)}."
    tokens, most = _batch_tokens(seen), seen.scenario.deployment.prefill.tokens_per_npu
    if tokens:
        what += f" It holds {tokens:,.0f} tokens per NPU of the {most:,} it may hold."
        if tokens < 0.25 * most:
            what += " Much of its time does not shrink with fewer tokens."
    return Finding(0.6 if total > IDLE * seen.scenario.slo.ttft_s else 0.25, what)


def _batch_tokens(seen: Seen) -> float:
    """Tokens per NPU of a mean prefill batch; 0 when nothing was prefilled."""
    rate, batch_s = seen.known("prefill_tokens_per_s_per_npu"), seen.known("prefill_batch_s_mean")
    return rate * batch_s / (seen.number("prefill_utilisation") or 1.0)


@finding("decode")
def decode_time(seen: Seen) -> Finding | None:
    """What a decode iteration is made of, and what would shorten it when TPOT is close."""
    iteration, parts = seen.number("decode_iteration_s_mean"), families(seen, "decode")
    if not iteration or not parts:
        return None
    what = f"A decode iteration takes {seconds(iteration)}: {_made_of(parts)}."
    if seen.known("tpot_s_mean") <= TIGHT * seen.slo_tpot_s:
        return Finding(0.3, what)
    helps = [remedy for words, _ in parts[:LISTED] for remedy in remedies(words, seen.scenario)]
    return seen.remedied(0.7, what, helps)


@finding("slots")
def slots(seen: Seen) -> Finding | None:
    """How many of the decode slots are taken: whether load or machine sets the throughput."""
    npus = {role: count * each for role, count, each in pools(seen.scenario)}.get("decode", 0)
    held = seen.steady_mean("decode_running")
    most = npus * seen.scenario.deployment.decode.batch_per_npu
    tpot, rate = seen.number("tpot_s_mean"), seen.number("decode_tokens_per_s_per_npu")
    if not held or not most or not tpot or not rate:
        return None
    share, limit_s = held / most, seen.slo_tpot_s
    holds = f"Decode holds {held:,.0f} requests in {most:,} slots ({amount(share, 'share')})"
    speed = f"{shown('decode_tokens_per_s_per_npu', rate)} at a TPOT of {seconds(tpot)}"
    if share >= FULL:
        return Finding(0.2, f"{holds}, so the machine sets the throughput: {speed}.")
    if share > ROOM or tpot > limit_s or seen.known("slo_attainment") < ROOM:
        return Finding(0.1, f"{holds}: {speed}.")
    what = f"{holds}, so the load and not the machine sets the throughput: {speed}."
    if not _stages_before_have_room(seen):
        return Finding(0.25, what)
    fix = (
        f"More load would fill the slots: more tokens per NPU for a longer TPOT, with "
        f"{seconds(limit_s - tpot)} of headroom under the SLO."
    )
    remedy = _more_load(fix, seen.scenario)
    return Finding(0.5, what, fix, seen.remedied(0.5, what, [remedy]).settings)


def _stages_before_have_room(seen: Seen) -> bool:
    """Whether front end and prefill could hand on more than they do."""
    full = _batch_tokens(seen) > IDLE * seen.scenario.deployment.prefill.tokens_per_npu
    late = seen.known("ttft_s_mean") > IDLE * seen.scenario.slo.ttft_s
    return seen.front_end_busy() < ROOM and not full and not late


def _more_load(sentence: str, scenario: Scenario) -> Remedy:
    w = scenario.workload
    if w.arrivals == "closed_loop":
        return Remedy(sentence, "workload.concurrency", round(1.25 * w.concurrency))
    if w.arrivals == "trace":
        faster = float(f"{1.25 * w.trace.rate_multiplier:.4g}")
        return Remedy(sentence, "workload.trace.rate_multiplier", faster)
    return Remedy(sentence, "workload.rate_req_per_s", float(f"{1.25 * w.rate_req_per_s:.4g}"))


@finding("experts")
def experts_uneven(seen: Seen) -> Finding | None:
    """What the hottest die costs the instances that wait for it, pool by pool."""
    worst = (0.0, 0.0, 0.0, "")  # saving, hottest over mean, the same at worst, role
    for role in ("colocated", "decode", "prefill"):
        hottest, peak = _hottest(seen, role)
        share = seen.operator_shares("prefill" if role == "prefill" else "decode")
        if hottest > 1:
            saving = share.get("experts", 0.0) * (1 - 1 / hottest)
            worst = max(worst, (saving, hottest, peak, role))
    saving, hottest, peak, role = worst
    if saving < 0.02:
        return None
    unit = "batch" if role == "prefill" else "iteration"
    at_worst = f" ({peak:.2f} in the worst window)" if peak > 1.05 * hottest else ""
    what = (
        f"The most loaded die of {role} carries {hottest:.2f} times the mean expert load"
        f"{at_worst}, and its instance waits for it: an even load would make a {role} {unit} "
        f"about {amount(saving, 'share')} shorter."
    )
    e = seen.scenario.experts
    drifts = e.drift_s > 0 or e.shift_every_s > 0 or e.topics > 1
    follow = Remedy(
        "Popularity changes while the run goes on: moving experts after it keeps dies even.",
        "experts.balancing.policy", "periodic",
    )  # fmt: skip
    return seen.remedied(
        min(0.7, 0.1 + 1.2 * saving),
        what,
        [
            *([follow] if drifts and e.balancing.policy == "none" else []),
            Remedy("Balancing experts (EPLB) evens it out.", "experts.placement", "eplb"),
            Remedy(
                "A perfectly even placement shows what is there to gain.",
                "experts.placement",
                "perfect",
            ),
        ],
    )


def _hottest(seen: Seen, role: str) -> tuple[float, float]:
    """The hottest die's expert load over the mean, on average and at worst; 0 when unknown.

    What the iterations met where the run says so, else the typical moment before it began.
    """
    met = seen.busy_mean(role, "hot_factor")
    if met is not None:
        return met
    ranks = seen.tables.get("ranks")
    if ranks is None or "expert_load" not in ranks.columns:
        return 0.0, 0.0
    hottest = ranks.filter(pl.col("role") == role)["expert_load"].max()
    known = float(hottest) if isinstance(hottest, int | float) else 0.0
    return known, known


@finding("memory")
def kv_full(seen: Seen) -> Finding | None:
    """Decode HBM is full: requests wait for it or are preempted and computed again."""
    used, preempted = seen.number("kv_used_fraction_mean"), seen.known("preemptions")
    if used is None or (used < FULL and not preempted):
        return None
    what = f"The KV space of the decode dies is {amount(used, 'share')} full on average"
    what += f", and requests were preempted {preempted:,.0f} times." if preempted else "."
    fewer = max(1, round(0.75 * seen.scenario.deployment.decode.batch_per_npu))
    int8 = Remedy("An INT8 KV cache halves what a request holds.",
                  "deployment.precision.kv", "int8")  # fmt: skip
    room = Remedy("Fewer requests per NPU leave each more room.",
                  "deployment.decode.batch_per_npu", fewer)  # fmt: skip
    return seen.remedied(0.85 if preempted else 0.6, what, [int8, room])


@finding("balance")
def pools_balanced(seen: Seen) -> Finding | None:
    """How busy the two pools are, and which has NPUs to give."""
    prefill, decode = seen.number("prefill_utilisation"), seen.number("decode_utilisation")
    if seen.scenario.deployment.mode != "disaggregated" or prefill is None or decode is None:
        return None
    what = f"Prefill computes {amount(prefill, 'share')} of the time, decode "
    what += f"{amount(decode, 'share')}"
    fewer = seen.scenario.deployment.prefill.instances - 1
    if prefill >= IDLE or fewer < 1:
        return Finding(0.04, f"{what}, in batches that may be part full.")
    remedy = Remedy("Fewer prefill instances would do.", "deployment.prefill.instances", fewer)
    return seen.remedied(0.3, f"{what}: prefill has NPUs to spare.", [remedy])


@finding("fabric")
def busiest_link(seen: Seen) -> Finding | None:
    """The link that is closest to its capacity, and whether that matters."""
    links = seen.tables.get("links")
    if links is None or not links.height:
        return None
    order = links.sort(["utilisation_mean", "plane", "node"], descending=[True, False, False])
    top = order.row(0, named=True)
    mean, peak = float(top["utilisation_mean"]), float(top["utilisation_peak"])
    sub = "" if top["sub_plane"] is None else f", sub-plane {top['sub_plane']}"
    name = f"{str(top['plane']).upper()} plane, node {top['node']}{sub}, {top['direction']}wards"
    what = (
        f"The busiest links of a node ({name}) are {amount(mean, 'share')} used on average, "
        f"{amount(peak, 'share')} in their busiest window"
    )
    if peak < IDLE:
        return Finding(0.07, f"{what}: their bandwidth is no bottleneck.")
    fix = "More capacity on this plane, or another plane for one of its flows, would help."
    return Finding(0.7 * max(mean, 0.5 * peak), what + ".", fix)


@finding("hits")
def pool_hits(seen: Seen) -> Finding | None:
    """What the memory pool saves, and whether it is too small."""
    ratio, used = seen.number("hit_token_ratio"), seen.number("pool_used_fraction")
    pool = seen.scenario.memory_pool
    if ratio is None or not pool.enabled or (not ratio and not used):
        return None
    what = f"{amount(ratio, 'share')} of input tokens came from the memory pool, not from prefill"
    if used is None or used < FULL:
        return Finding(0.06 + 0.3 * ratio, what + ".")
    what += f"; it is {amount(used, 'share')} full, so old blocks make way for new ones."
    more = min(16_384.0, 2 * pool.gb_per_node)
    remedy = Remedy("More DRAM per node keeps blocks longer.", "memory_pool.gb_per_node", more)
    return seen.remedied(0.3, what, [remedy])
