"""Causes of size: pools, batches and instances too small or too large for what they do."""

import math
from collections.abc import Iterable

from twin.lab.explain.causes import WAITS, Change, Changes, cause
from twin.lab.explain.view import Settings, View
from twin.model.stages import idle_dies
from twin.scenario import Scenario, pools_by_role, sharing_pool
from twin.steady import Priced, largest_batch

BUSY = 0.95  # of the time: a pool that computes as much is at its cap
CLOSE = 0.8  # of the SLO: from here on more room is looked for
SPARE = 1.15  # of what arrives: a pool that computes just as much has queues without end


@cause("prefill", "Prefill capacity", "Give prefill more instances or cores.")
def propose_prefill_instances(v: View) -> Changes:
    """Propose more prefill instances, on idle NPUs or on some of decode's."""
    deployment = v.scenario.deployment
    is_busy = v.ttft_ratio > 0.5 or not v.meets_slo or v.figure("prefill_utilisation") > BUSY
    if "prefill" not in v.role_npus or v.ttft_shares["prefill_queue"] < WAITS or not is_busy:
        return
    if sharing_pool(v.scenario):
        yield from _propose_cores(v, 1.25, 1.5)
        return
    prefills, npus_each = v.role_npus["prefill"]
    needed_count = prefills + 1
    if rate_per_s := v.sustained_per_s.get("prefill"):
        needed_count = max(
            needed_count, math.ceil(SPARE * v.arrived_per_s / (rate_per_s / prefills))
        )
    most_instances = prefills + v.free_npus // npus_each
    target_count = min(needed_count, most_instances)
    for instances in sorted(
        {min(prefills + 1, target_count), target_count, most_instances} - {prefills}
    ):
        yield Change({"deployment.prefill.instances": instances})
    if v.scenario.deployment.mode == "disaggregated":  # what prefill hands on is to be decoded
        yield from _propose_split(v, range(target_count, min(needed_count + 1, most_instances) + 1))
    if v.scenario.deployment.mode != "disaggregated" or needed_count <= most_instances:
        return
    for added_instances in sorted({most_instances - prefills + 1, needed_count - prefills}):
        decode_settings = _shrunken_decode(v, added_instances * npus_each - v.free_npus)
        yield Change({"deployment.prefill.instances": prefills + added_instances} | decode_settings)
    if deployment.prefill.npus_per_instance > 1:
        yield Change({"deployment.prefill.instances": 2 * prefills,
                      "deployment.prefill.npus_per_instance": npus_each // 2})  # fmt: skip


@cause("decode", "Decode capacity", "Give decode more NPUs.")
def propose_decode_capacity(v: View) -> Changes:
    """Propose more NPUs for decode, idle ones or some of prefill's, unless KV space is short."""
    is_short = v.ttft_shares["router"] >= WAITS or v.tpot_ratio > CLOSE
    if "decode" in v.role_npus and is_short and not _lacks_kv_space(v):
        yield from _propose_cores(v, 0.8, 0.6) if sharing_pool(v.scenario) else _propose_decode(v)


def _propose_cores(v: View, *factors: float) -> Changes:
    """Propose prefill's share of a die's cores times each of these factors."""
    core_share = v.scenario.deployment.prefill.core_share
    for factor in factors:
        yield Change({"deployment.prefill.core_share": min(0.95, round(factor * core_share, 2))})


def _propose_decode(v: View) -> Changes:
    """Propose more or larger decode instances, on idle NPUs or instead of prefill instances."""
    instances_now, npus_each = v.role_npus["decode"]
    for added_count in _doubling_counts(v.free_npus // npus_each):
        yield Change({"deployment.decode.instances": instances_now + added_count})
    node_npus = v.scenario.supernode.npus_per_node
    for added_nodes in _doubling_counts(v.free_npus // instances_now // node_npus):
        yield Change({"deployment.decode.npus_per_instance": npus_each + added_nodes * node_npus})
    if v.scenario.deployment.mode == "disaggregated":
        prefill_count, _ = v.role_npus["prefill"]
        rate_per_s = v.sustained_per_s.get("prefill", 0.0) / prefill_count
        needed = math.ceil(SPARE * v.arrived_per_s / rate_per_s) if rate_per_s else prefill_count
        yield from _propose_split(v, {max(1, prefill_count - 2), max(1, prefill_count - 1), needed})


def _doubling_counts(limit: int) -> list[int]:
    """Counts 1, 2, 4, ... up to `limit`, and `limit` itself."""
    return sorted({*(1 << exponent for exponent in range(limit.bit_length())), limit} - {0})


def _propose_split(v: View, prefills: Iterable[int]) -> Changes:
    """Propose each number of prefill instances in `prefills`. All other NPUs go to the decode
    instances, whose number stays; a proposal that would not change their size is left out."""
    prefill_count, prefill_npus = v.role_npus["prefill"]
    decode_count, npus_each = v.role_npus["decode"]
    for instances in prefills:
        decode_npus = (
            npus_each + (v.free_npus - (instances - prefill_count) * prefill_npus) // decode_count
        )
        if decode_npus != npus_each:
            yield Change({"deployment.prefill.instances": instances,
                          "deployment.decode.npus_per_instance": decode_npus})  # fmt: skip


def _shrunken_decode(v: View, npus: int) -> Settings:
    """Settings of a decode pool that gives up this many NPUs: fewer instances, or smaller ones."""
    instances_now, instance_npus = v.role_npus["decode"]
    if npus <= 0:
        return {}
    fewer_instances = math.ceil(npus / instance_npus)
    if instances_now > fewer_instances:
        return {"deployment.decode.instances": instances_now - fewer_instances}
    return {
        "deployment.decode.npus_per_instance": max(
            1, instance_npus - math.ceil(npus / instances_now)
        )
    }


@cause("colocated", "Capacity of colocated instances", "Add colocated instances.")
def propose_colocated_instances(v: View) -> Changes:
    """Propose more colocated instances on idle NPUs."""
    if "colocated" not in v.role_npus or (v.meets_slo and max(v.ttft_ratio, v.tpot_ratio) < CLOSE):
        return
    instances_now, npus_each = v.role_npus["colocated"]
    for added_count in _doubling_counts(v.free_npus // npus_each):
        yield Change({"deployment.colocated.instances": instances_now + added_count})


@cause("chunk", "Prefill next to decode", "Change how many prompt tokens an iteration may prefill.")
def propose_chunk_lengths(v: View) -> Changes:
    """Propose longer or shorter chunks of prompts in mixed iterations."""
    if "colocated" not in v.role_npus:
        return
    chunk = v.scenario.deployment.colocated.chunk_tokens_per_npu
    prompt_tokens = v.figure("prefill_tokens_per_s_per_npu") * v.figure("decode_iteration_s_mean")
    # A limit far above what comes with an iteration binds at no factor of itself.
    binding_chunks = (
        [2.0 * prompt_tokens, 1.25 * prompt_tokens]
        if 0 < 2.0 * prompt_tokens < 0.25 * chunk
        else []
    )
    default_tokens = Scenario().deployment.colocated.chunk_tokens_per_npu
    for chunk_tokens in (
        max(2 * chunk, default_tokens),
        0.5 * chunk,
        0.25 * chunk,
        *binding_chunks,
    ):
        yield Change({"deployment.colocated.chunk_tokens_per_npu": max(2, round(chunk_tokens))})


@cause("ranks", "Prompts on single ranks", "Change how long prompts wait for other ranks.")
def propose_prompt_delays(v: View) -> Changes:
    """Propose longer delays of prompts if TPOT is farther off its limit than TTFT, else shorter."""
    if "colocated" not in v.role_npus:
        return
    delay_now = v.scenario.deployment.colocated.prompt_delay
    longer_delays = [delay for delay in (3, 10, 30) if delay > delay_now]
    for delay in longer_delays if v.tpot_ratio > v.ttft_ratio else [delay_now // 3, 0]:
        yield Change({"deployment.colocated.prompt_delay": delay})


@cause("prefill_batch", "Prefill batches", "Change how prompts are put into prefill batches.")
def propose_prefill_batches(v: View) -> Changes:
    """Propose larger or smaller batches, prompts in chunks or whole, other attention."""
    if "prefill" not in v.role_npus or v.ttft_ratio < 0.25:
        return
    prefill, section = v.scenario.deployment.prefill, "deployment.prefill"
    default_tokens = Scenario().deployment.prefill.tokens_per_npu
    for tokens_per_npu in (
        max(2 * prefill.tokens_per_npu, default_tokens),
        prefill.tokens_per_npu // 2,
    ):
        yield Change({f"{section}.tokens_per_npu": tokens_per_npu})
    yield Change({f"{section}.attention": "sp_tp_sp"})
    yield Change({f"{section}.microbatch": True})
    yield Change({f"{section}.chunk_tokens": 0 if prefill.chunk_tokens else 8192})


@cause("batch", "Decode batch", "Change the largest decode batch.")
def propose_decode_batches(v: View) -> Changes:
    """Propose smaller decode batches if TPOT is near its limit, larger if requests wait."""
    if "decode" not in v.role_npus and "colocated" not in v.role_npus:
        return
    path, batch_now = "deployment.decode.batch_per_npu", v.scenario.deployment.decode.batch_per_npu
    if v.tpot_ratio > CLOSE and v.full is not None:
        tpot_bound_s = 0.9e-3 * v.scenario.slo.tpot_ms
        slo_batch = largest_batch(Priced(v.scenario, v.facts, v.trace, v.counts), tpot_bound_s)
        for batch_size in sorted(
            {slo_batch.batch_per_npu, round(0.75 * batch_now), batch_now // 2}
        ):
            if 0 < batch_size < batch_now:
                yield Change({path: batch_size})
    elif v.ttft_shares["router"] >= WAITS:
        yield Change({path: 2 * batch_now})
        yield Change({path: 4 * batch_now})


@cause("ep", "Expert-parallel degree", "Serve with instances of another size.")
def propose_instance_sizes(v: View) -> Changes:
    """Propose instances of twice or half the size, and an expert for each die that has none."""
    if not v.has_experts:
        return
    for role in ("decode", "prefill", "colocated"):
        if role not in v.role_npus or (role == "prefill" and v.ttft_ratio < 0.25):
            continue
        instances, npus_each = v.role_npus[role]
        path = f"deployment.{role}"
        if npus_each % 2 == 0:
            yield Change(
                {f"{path}.instances": 2 * instances, f"{path}.npus_per_instance": npus_each // 2}
            )
        if instances % 2 == 0:
            yield Change(
                {f"{path}.instances": instances // 2, f"{path}.npus_per_instance": 2 * npus_each}
            )
    if v.full is not None and v.full.costs.decode_role is not None:
        redundant_experts = v.scenario.experts.redundant
        layout = v.full.costs.decode_role.layout
        if idle_count := idle_dies(v.full.costs.shape, layout, redundant_experts):
            yield Change({"experts.redundant": redundant_experts + idle_count})


@cause("kv_space", "KV space of the decode dies", "Make room for more KV on the decode dies.")
def propose_kv_space(v: View) -> Changes:
    """Propose smaller KV or weights, no redundant experts, or more dies."""
    lacks_kv_space, decode = _lacks_kv_space(v), v.full.decode if v.full is not None else None
    is_kv_limited = decode is not None and decode.limited_by == "KV space"  # by formula
    if not (lacks_kv_space or is_kv_limited or v.ttft_shares["prefill_queue"] >= WAITS):
        return
    yield Change({"deployment.precision.kv": "int8"})
    yield Change({"deployment.precision.weights": "int8"})
    yield Change({"deployment.precision.kv": "int8", "deployment.precision.weights": "int8"})
    if v.has_experts:
        yield Change({"experts.redundant": 0})
    if lacks_kv_space and "decode" in v.role_npus:
        yield from _propose_decode(v)


@cause("offload", "Attention offloaded to prefill NPUs", "Offload less, or to other cores.")
def propose_offload(v: View) -> Changes:
    """Propose less offload or more lent cores if decode waits for offloaded attention; fewer lent
    cores if prompts wait for prefill."""
    pool = pools_by_role(v.scenario).get("decode")
    if pool is None or pool.offload is None:
        return
    offload_share, lent_cores = pool.offload.requests, pool.offload.cores
    if v.operators.get("offloaded_core", 0.0) > 0.0:
        for smaller_share in (round(0.7 * offload_share, 2), round(0.4 * offload_share, 2), 0.0):
            yield Change({"deployment.decode.attention_offload": smaller_share})
        yield Change({"deployment.prefill.lent_cores": min(0.9, 2.0 * lent_cores)})
    if v.ttft_shares["prefill_queue"] >= WAITS:
        yield Change({"deployment.prefill.lent_cores": max(0.05, round(0.5 * lent_cores, 2))})


def _lacks_kv_space(v: View) -> bool:
    """Whether decode dies were nearly full of KV or preempted: the HBM of more dies helps."""
    return v.figure("kv_used_fraction_mean") > CLOSE or v.figure("preemptions") > 0
