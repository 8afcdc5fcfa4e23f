"""Reasons seen from the machine: what iterations are made of, what is full, what has room."""

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
    operator_shares,
    steady_mean,
    ttft_parts,
    weighted,
)
from twin.metrics.measures import amount, seconds
from twin.metrics.registry import shown
from twin.scenario import Scenario, pools

FULL = 0.95  # of the slots or the KV space: the next request waits
ROOM = 0.7  # of the slots: below this the load, not the machine, sets the throughput
TIGHT = 0.8  # of the TPOT limit: from here on iterations are worth a cure
IDLE = 0.5  # of a link or a pool: below this it does not bind
LISTED = 3  # families of operators that a sentence names

# Every operator belongs to one family; the family's words complete "... of it is".
FAMILIES: dict[str, tuple[str, ...]] = {
    "the attention core": ("attention_core",),
    "attention's projections": ("mla_prolog", "attention_input", "o_proj"),
    "choosing experts and sending tokens there and back": ("gate", "dispatch", "combine"),
    "the experts of the most loaded die": ("experts", "shared_expert"),
    "dense layers": ("dense_ffn",),
    "moving parts of prompts between dies": ("all_gather", "all_to_all"),
    "work outside the layers": ("mtp", "lm_head", "sampling", "launch_gaps"),
    "prefilling prompts in the same iterations": ("prefill_chunk",),
    "reading hits from the memory pool": ("kv_fetch",),
}


def families(tables: Tables, phase: str) -> list[tuple[str, float]]:
    """Families of operators with their shares of a phase, the largest first."""
    left = operator_shares(tables, phase)
    found = [(words, sum(left.pop(n, 0.0) for n in names)) for words, names in FAMILIES.items()]
    found += [(name.replace("_", " "), share) for name, share in left.items()]
    return sorted(((w, share) for w, share in found if share > 0), key=lambda f: (-f[1], f[0]))


def _made_of(parts: list[tuple[str, float]]) -> str:
    return ", ".join(f"{amount(share, 'share')} {words}" for words, share in parts[:LISTED])


def decode_time(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """What a decode iteration is made of, and what would shorten it when TPOT is close."""
    iteration, parts = number(s, "decode_iteration_s_mean"), families(tables, "decode")
    if not iteration or not parts:
        return []
    what = f"A decode iteration takes {seconds(iteration)}: {_made_of(parts)}."
    slow = (number(s, "tpot_s_mean") or 0.0) > TIGHT * 1e-3 * scenario.slo.tpot_ms
    if not slow:
        return [Finding("decode", 0.3, what)]
    fix, settings = "", dict[str, Any]()
    for words, _ in parts[:LISTED]:
        fix, settings = first_open(scenario, _shorter(words, scenario))
        if settings:
            break
    return [Finding("decode", 0.7, what, fix, settings)]


def _shorter(words: str, scenario: Scenario) -> list[Wish]:
    """What would shorten a family of operators, the cheapest first."""
    names = FAMILIES.get(words, ())
    chunk = max(2, scenario.deployment.colocated.chunk_tokens_per_npu // 2)
    optimisations = "deployment.optimisations"
    wishes: dict[str, list[Wish]] = {
        "attention_core": [
            ("The fused MLA operator reaches more of the peak.",
             f"{optimisations}.attention_kernel", "fused_mla"),
            ("An INT8 KV cache halves the bytes that are read.", "deployment.precision.kv", "int8"),
        ],
        "dispatch": [
            ("Fused dispatch and combine start faster.", "deployment.communication.fused", True),
            ("Early quantisation sends half the bytes.",
             "deployment.communication.early_quantisation", True),
            ("Two microbatches hide sending behind computing where that pays.",
             "deployment.decode.microbatch", "auto"),
            ("One operator for dispatch, experts and combine overlaps them.",
             f"{optimisations}.fused_deep_moe", True),
        ],
        "experts": [
            ("Balancing experts (EPLB) evens out the most loaded die.",
             "experts.placement", "eplb"),
        ],
        "prefill_chunk": [
            ("Smaller pieces of prompts leave iterations shorter, and first tokens later.",
             "deployment.colocated.chunk_tokens_per_npu", chunk),
        ],
    }  # fmt: skip
    return [wish for name in names for wish in wishes.get(name, [])]


def prefill_time(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """What a prefill batch is made of and how full it is, where TTFT is mostly prefill."""
    batch_s, parts = number(s, "prefill_batch_s_mean"), families(tables, "prefill")
    way, total = dict(ttft_parts(s)), number(s, "ttft_s_mean") or 0.0
    waited = way.get("prefill", 0.0) + way.get("prefill_queue", 0.0)
    if not batch_s or not parts or waited < IDLE * total:
        return []
    what = f"A prefill batch takes {seconds(batch_s)}: {_made_of(parts)}."
    tokens, most = _batch_tokens(s), scenario.deployment.prefill.tokens_per_npu
    if tokens:
        what += f" It holds {tokens:,.0f} tokens per NPU of the {most:,} it may hold."
        if tokens < 0.25 * most:
            what += " Much of its time does not shrink with fewer tokens."
    late = total > IDLE * scenario.slo.ttft_s
    return [Finding("prefill", 0.6 if late else 0.25, what)]


def _batch_tokens(s: Summary) -> float:
    """Tokens per NPU of a mean prefill batch; 0 when nothing was prefilled."""
    rate, batch_s = number(s, "prefill_tokens_per_s_per_npu"), number(s, "prefill_batch_s_mean")
    return (rate or 0.0) * (batch_s or 0.0) / (number(s, "prefill_utilisation") or 1.0)


def slots(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """How many of the decode slots are taken: whether load or machine sets the throughput."""
    npus = {role: count * each for role, count, each in pools(scenario)}.get("decode", 0)
    held, most = (
        steady_mean(s, tables, "decode_running"),
        npus * scenario.deployment.decode.batch_per_npu,
    )
    tpot, rate = number(s, "tpot_s_mean"), number(s, "decode_tokens_per_s_per_npu")
    if not held or not most or not tpot or not rate:
        return []
    share, limit_s = held / most, 1e-3 * scenario.slo.tpot_ms
    seen = f"Decode holds {held:,.0f} requests in {most:,} slots ({amount(share, 'share')})"
    speed = f"{shown('decode_tokens_per_s_per_npu', rate)} at a TPOT of {seconds(tpot)}"
    if share >= FULL:
        return [Finding("slots", 0.2, f"{seen}, so the machine sets the throughput: {speed}.")]
    if share > ROOM or tpot > limit_s or (number(s, "slo_attainment") or 0.0) < ROOM:
        return [Finding("slots", 0.1, f"{seen}: {speed}.")]
    what = f"{seen}, so the load and not the machine sets the throughput: {speed}."
    if not _stages_before_have_room(scenario, s, tables):
        return [Finding("slots", 0.25, what)]
    fix = (
        f"More load would fill the slots: more tokens per NPU for a longer TPOT, of which "
        f"{seconds(limit_s - tpot)} are left under the SLO."
    )
    _, settings = first_open(scenario, _more_load(fix, scenario))
    return [Finding("slots", 0.5, what, fix, settings)]


def _stages_before_have_room(scenario: Scenario, s: Summary, tables: Tables) -> bool:
    """Whether front end and prefill could hand on more than they do."""
    full = _batch_tokens(s) > IDLE * scenario.deployment.prefill.tokens_per_npu
    late = (number(s, "ttft_s_mean") or 0.0) > IDLE * scenario.slo.ttft_s
    return front_end_busy(scenario, tables) < ROOM and not full and not late


def _more_load(sentence: str, scenario: Scenario) -> list[Wish]:
    w = scenario.workload
    if w.arrivals == "closed_loop":
        return [(sentence, "workload.concurrency", round(1.25 * w.concurrency))]
    if w.arrivals == "trace":
        faster = float(f"{1.25 * w.trace.rate_multiplier:.4g}")
        return [(sentence, "workload.trace.rate_multiplier", faster)]
    return [(sentence, "workload.rate_req_per_s", float(f"{1.25 * w.rate_req_per_s:.4g}"))]


def experts_uneven(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """What the hottest die costs the instances that wait for it, pool by pool."""
    worst: tuple[float, float, float, str] | None = None  # saving, hottest, at worst, role
    for role in ("colocated", "decode", "prefill"):
        hottest, peak = _hottest(s, tables, role)
        share = operator_shares(tables, "prefill" if role == "prefill" else "decode")
        if hottest > 1:
            saving = share.get("experts", 0.0) * (1 - 1 / hottest)
            worst = max(worst or (0.0, 0.0, 0.0, ""), (saving, hottest, peak, role))
    if worst is None or worst[0] < 0.02:
        return []
    saving, hottest_load, peak, role = worst
    unit = "batch" if role == "prefill" else "iteration"
    at_worst = f" ({peak:.2f} in the worst window)" if peak > 1.05 * hottest_load else ""
    what = (
        f"The most loaded die of {role} carries {hottest_load:.2f} times the mean expert load"
        f"{at_worst}, and its instance waits for it: an even load would make a {role} {unit} "
        f"about {amount(saving, 'share')} shorter."
    )
    e = scenario.experts
    drifts = e.drift_s > 0 or e.shift_every_s > 0 or e.topics > 1
    follow: list[Wish] = [
        ("Popularity changes while the run goes on: moving experts after it keeps dies even.",
         "experts.balancing.policy", "periodic"),
    ] if drifts and e.balancing.policy == "none" else []  # fmt: skip
    wishes: list[Wish] = [
        *follow,
        ("Balancing experts (EPLB) evens it out.", "experts.placement", "eplb"),
        ("A perfectly even placement shows what is there to gain.", "experts.placement", "perfect"),
    ]
    fix, settings = first_open(scenario, wishes)
    return [Finding("experts", min(0.7, 0.1 + 1.2 * saving), what, fix, settings)]


def _hottest(s: Summary, tables: Tables, role: str) -> tuple[float, float]:
    """The hottest die's expert load over the mean, on average and at worst; 0 when unknown.

    What the iterations met where the run says so, else the typical moment before it began.
    """
    met = weighted(s, tables, role, "hot_factor")
    if met is not None:
        return met
    ranks = tables.get("ranks")
    if ranks is None or "expert_load" not in ranks.columns:
        return 0.0, 0.0
    hottest = ranks.filter(pl.col("role") == role)["expert_load"].max()
    known = float(hottest) if isinstance(hottest, int | float) else 0.0
    return known, known


def kv_full(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """Decode HBM is full: requests wait for it or are thrown out and computed again."""
    used, thrown = number(s, "kv_used_fraction_mean"), number(s, "preemptions") or 0.0
    if used is None or (used < FULL and not thrown):
        return []
    what = f"The KV space of the decode dies is {amount(used, 'share')} full on average"
    what += f", and requests were preempted {thrown:,.0f} times." if thrown else "."
    fewer = max(1, round(0.75 * scenario.deployment.decode.batch_per_npu))
    wishes: list[Wish] = [
        ("An INT8 KV cache halves what a request holds.", "deployment.precision.kv", "int8"),
        ("Fewer requests per NPU leave each more room.", "deployment.decode.batch_per_npu", fewer),
    ]
    fix, settings = first_open(scenario, wishes)
    return [Finding("memory", 0.85 if thrown else 0.6, what, fix, settings)]


def pools_balanced(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """How busy the two pools are, and which has NPUs to give."""
    prefill, decode = number(s, "prefill_utilisation"), number(s, "decode_utilisation")
    if scenario.deployment.mode != "disaggregated" or prefill is None or decode is None:
        return []
    seen = f"Prefill computes {amount(prefill, 'share')} of the time, decode "
    seen += f"{amount(decode, 'share')}"
    fewer = scenario.deployment.prefill.instances - 1
    if prefill >= IDLE or fewer < 1:
        return [Finding("balance", 0.04, f"{seen}, in batches that may be part full.")]
    fix, settings = first_open(
        scenario,
        [("Fewer prefill instances would do.", "deployment.prefill.instances", fewer)],
    )
    return [Finding("balance", 0.3, f"{seen}: prefill has NPUs to spare.", fix, settings)]


def busiest_link(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """The link that is closest to its capacity, and whether that matters."""
    links = tables.get("links")
    if links is None or not links.height:
        return []
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
        return [Finding("fabric", 0.07, f"{what}: their bandwidth does not bind.")]
    fix = "More capacity on this plane, or another plane for one of its flows, would help."
    return [Finding("fabric", 0.7 * max(mean, 0.5 * peak), what + ".", fix)]


def pool_hits(scenario: Scenario, s: Summary, tables: Tables) -> list[Finding]:
    """What the memory pool saves, and whether it is too small."""
    ratio, used = number(s, "hit_token_ratio"), number(s, "pool_used_fraction")
    if ratio is None or not scenario.memory_pool.enabled or (not ratio and not used):
        return []
    what = f"{amount(ratio, 'share')} of input tokens came from the memory pool, not from prefill"
    if used is None or used < FULL:
        return [Finding("hits", 0.06 + 0.3 * ratio, what + ".")]
    more = min(16_384.0, 2 * scenario.memory_pool.gb_per_node)
    what += f"; it is {amount(used, 'share')} full, so old blocks make way for new ones."
    fix, settings = first_open(
        scenario,
        [("More DRAM per node keeps blocks longer.", "memory_pool.gb_per_node", more)],
    )
    return [Finding("hits", 0.3, what, fix, settings)]
