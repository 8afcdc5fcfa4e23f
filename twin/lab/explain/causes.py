"""Causes that are not of size: what breaks, how work is spread, wires, software, and demand. An
entry is a function of a `View` under `@cause` that yields changes. What a change promises by closed
forms only decides what is run first."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from twin.engine import codes
from twin.hardware.recipes import as_sold
from twin.lab.explain.view import BEHIND, SERVED, Settings, View, finished_share, share_met
from twin.outlook import latencies_and_slo_share
from twin.scenario import KINDS, Fault, Scenario, SpecError, value_of, with_overrides
from twin.scenario.words import first_few
from twin.steady import Priced

FAULT, CAUSE, DEMAND = 0, 1, 2  # what breaks; what limits; demand
WAITS = 0.2  # of the mean TTFT: from here on a queue is looked into


@dataclass(frozen=True)
class Change:
    """Changed fields of a scenario that would remove a cause."""

    settings: Settings
    doable: bool = True
    named: str = ""  # what is removed, where the cause is of several things
    promise: float = 0.0  # score that the run's record leaves to gain, where no formula says it


Changes = Iterator[Change]


@dataclass(frozen=True)
class Cause:
    """A cause of time: its name, advice, and the changes to try."""

    key: str
    label: str
    advice: str  # imperative, for the one who operates the machine
    changes: Callable[[View], Changes]
    kind: int = CAUSE


CAUSES: dict[str, Cause] = {}


def cause(
    key: str, label: str, advice: str, kind: int = CAUSE
) -> Callable[[Callable[[View], Changes]], Callable[[View], Changes]]:
    """Decorator that registers the function that proposes changes against a cause, as `Cause`."""

    def register(propose: Callable[[View], Changes]) -> Callable[[View], Changes]:
        """Register a function that proposes changes under the cause's key; returns it unchanged."""
        CAUSES[key] = Cause(key, label, advice, propose, kind)
        return propose

    return register


def is_possible(s: Scenario, settings: Settings) -> bool:
    """Whether the scenario can have these settings and does not have them already."""
    try:
        return with_overrides(s, settings) != s
    except SpecError:
        return False


STEEP = 0.95  # utilisation from which on a queue grows with the time rather than with the load


@dataclass(frozen=True)
class Expected:
    """Closed-form figures of a scenario at the load of the run."""

    tpot_s: float  # mean; 0: no decode
    attained: float  # share of the requests that meet the SLO
    requests_per_s: float
    waits_s: dict[str, float]  # by part of the TTFT; only their ratios to another one's count


def score_of(view: View, change: Change, base: Expected | None) -> float:
    """Expected score of a change (above 0: better): the formula's gain over the figures `base`, but
    at least the change's promise; with `base` None the promise."""
    if base is None:
        return change.promise
    figures = expected_figures(view, with_overrides(view.scenario, change.settings))
    return change.promise if figures is None else max(change.promise, _gain(view, base, figures))


def expected_figures(view: View, s: Scenario) -> Expected | None:
    """Closed-form figures of a scenario under the view's load; None if formulas have no answer."""
    try:
        priced = Priced(s, view.facts, view.trace, view.counts)
        prediction = priced.prediction
        load_per_s = view.arrived_per_s or prediction.requests_per_s
        tpot_s, prefill_s, met_share = latencies_and_slo_share(priced, load_per_s)
    except ValueError as error:
        if not type(error).__module__.startswith("twin."):
            raise
        return None
    rates_and_services = {
        "front_end": (prediction.front_end_requests_per_s, 1e-3 * s.front_end.service_ms)
    }
    if prediction.prefill is not None:
        rates_and_services["prefill_queue"] = (prediction.prefill.requests_per_s, prefill_s)
    if prediction.decode is not None:
        rates_and_services["router"] = (prediction.decode.requests_per_s, tpot_s)
    admitted_share = priced.room.admitted_share  # the rates are of what is not refused
    waits_s = {
        stage: _wait_s(view, rate_per_s / admitted_share, service_s)
        for stage, (rate_per_s, service_s) in rates_and_services.items()
    }
    if prefill_s:
        waits_s |= {"prefill_queue": prefill_s, "prefill": prefill_s}
    return Expected(tpot_s, met_share, prediction.requests_per_s, waits_s)


def _wait_s(view: View, rate: float, service_s: float) -> float:
    """Seconds in the queue of a server with a rate (requests/s) and a service time; under overload
    the mean backlog of the run is added. In a closed loop it is 1 / rate."""
    if view.scenario.workload.arrivals == "closed_loop":
        return 1.0 / rate
    load = view.arrived_per_s / rate
    utilisation, backlog_s = min(load, STEEP), 0.5 * view.scenario.horizon_s * (1.0 - 1.0 / load)
    return utilisation * service_s + utilisation / (1.0 - utilisation) / rate + max(0.0, backlog_s)


def _gain(view: View, base: Expected, after: Expected) -> float:
    """Expected score of a change: latencies and served share of the run, scaled by the formula's
    figures `after` it divided by those before it (`base`)."""
    waits_before_s, waits_after_s = base.waits_s, after.waits_s
    ttft_after = ttft_ratio = view.ttft_ratio  # as multiples of the SLO, as is `tpot_after`
    for stage, stage_share in view.ttft_shares.items():
        if waits_before_s.get(stage):
            wait_ratio = waits_after_s.get(stage, 0.0) / waits_before_s[stage]
            ttft_after += ttft_ratio * stage_share * (wait_ratio - 1.0)
    tpot_after = view.tpot_ratio * (after.tpot_s / base.tpot_s if base.tpot_s else 1.0)
    ratio_sum_before, ratio_sum_after = (
        ttft_ratio + view.tpot_ratio,
        max(ttft_after, 0.0) + tpot_after,
    )
    score_gain = math.log((ratio_sum_before + 1e-3) / (ratio_sum_after + 1e-3))
    if not view.meets_slo:
        missing_share = 1.0 - share_met(view.summary)
        gained_share = min(max(after.attained - base.attained, 0.0), missing_share)
        meets_both = ttft_after <= 1.0 and tpot_after <= 1.0
        score_gain += SERVED * (missing_share if meets_both else gained_share)
    if finished_share(view.summary, view.scenario) < BEHIND and view.arrived_per_s:
        done_per_s = [min(view.arrived_per_s, figures.requests_per_s) for figures in (base, after)]
        score_gain += math.log(max(done_per_s[1], 1e-9) / max(done_per_s[0], 1e-9))
    return score_gain


REFERENCE_ACCEPTANCE = 0.7  # of a draft token: what the paper assumes
AFTER_A_FAILURE = 0.5  # score of a failure that lasts no time
BALANCED = 0.7  # of what even experts bring: what a better balancing of moving ones may


@cause("fault", "Fault", "Repair it, or replace the element by a spare.", FAULT)
def propose_repairs(v: View) -> Changes:
    """Propose to remove each of the first three faults, and all faults."""
    scenario = v.scenario
    faults = [fault for fault in scenario.faults if fault.at_s < scenario.horizon_s]
    if not faults:
        return
    for removed_fault in faults[:3] if len(faults) > 1 else []:
        other_faults = [fault for fault in scenario.faults if fault is not removed_fault]
        yield Change({"faults": _json_rows(other_faults)}, named=_fault_text(removed_fault))
    fault_text = _fault_text(faults[0]) if len(faults) == 1 else f"{len(faults)} faults"
    yield Change({"faults": []}, named=fault_text)


@cause("recovery", "Recovery after a fault", "Change how the stack recovers.")
def propose_recovery_policies(v: View) -> Changes:
    """Propose other recovery policies; each promises the share of the outage that it saves."""
    if not any(
        fault.kind == "fail" and fault.at_s < v.scenario.horizon_s for fault in v.scenario.faults
    ):
        return
    recovery = v.scenario.recovery
    recovery_s = {"restart": recovery.restart_s, "in_place": recovery.in_place_s, "shrink": 0.0}
    outage_s = recovery.detection_s + recovery_s[recovery.policy] + 1e-3
    for policy in ("in_place", "shrink"):
        saved_s = max(0.0, recovery_s[recovery.policy] - recovery_s[policy])
        yield Change({"recovery.policy": policy}, promise=AFTER_A_FAILURE * saved_s / outage_s)
    yield Change({"recovery.spares": True}, promise=0.5 * AFTER_A_FAILURE)
    saved_s = 0.75 * recovery.detection_s
    yield Change({"recovery.detection_s": recovery.detection_s - saved_s},
                 promise=AFTER_A_FAILURE * saved_s / outage_s)  # fmt: skip


@cause("edits", "Links out of order", "Bring the links back to what was built.", FAULT)
def propose_intact_links(v: View) -> Changes:
    """Propose the fabric without the edits that lower rates, raise latencies or remove links."""
    edits = v.scenario.supernode.edits
    harmless = [
        edit
        for edit in edits
        if edit.capacity_factor >= 1 >= edit.latency_factor and not edit.links_out
    ]
    if len(harmless) < len(edits):
        yield Change({"supernode.edits": _json_rows(harmless)})


def _json_rows(rows: list[Any]) -> list[dict[str, Any]]:
    """Faults, edits of links or tenants (pydantic models) as JSON objects."""
    return [row.model_dump(mode="json") for row in rows]


def _fault_text(fault: Fault) -> str:
    """A fault in words: element, what happens, and when (s)."""
    return f"{fault.where} {KINDS[fault.kind].says(fault)} at {fault.at_s:g} s"


@cause("imbalance", "Expert imbalance", "Balance the experts.")
def propose_even_experts(v: View) -> Changes:
    """Propose perfectly even experts, and placements and rebalancing that approach them."""
    experts, path = v.scenario.experts, "experts"
    is_even = experts.popularity == "uniform" or experts.placement == "perfect"
    if is_even or experts.balancing.policy == "oracle" or not v.has_experts:
        return
    no_balancing = {f"{path}.balancing.policy": "none"}
    yield Change({f"{path}.placement": "perfect"} | no_balancing, False, promise=v.uneven)
    if experts.placement != "eplb":
        yield Change({f"{path}.placement": "eplb"})
        yield Change({f"{path}.placement": "eplb", f"{path}.redundant": max(32, experts.redundant)})
    else:
        yield Change({f"{path}.redundant": max(32, 2 * experts.redundant)})
    popularity_moves = experts.drift_s > 0 or experts.shift_every_s > 0 or experts.topics > 1
    if popularity_moves:
        interval_s = round(min(60.0, v.scenario.horizon_s / 10), 1)
        yield Change({f"{path}.placement": "eplb", f"{path}.redundant": max(32, experts.redundant),
                      f"{path}.balancing.policy": "periodic",
                      f"{path}.balancing.interval_s": interval_s,
                      f"{path}.balancing.window_s": interval_s},
                     promise=BALANCED * v.uneven)  # fmt: skip
    if experts.balancing.policy != "none":
        half_interval_s = 0.5 * experts.balancing.interval_s
        for field, setting in (("swap", "background"), ("interval_s", half_interval_s)):
            yield Change({f"{path}.balancing.{field}": setting}, promise=0.5 * BALANCED * v.uneven)


@cause("router", "Choice of the prefill instance", "Let another router choose the instance.")
def propose_router_policies(v: View) -> Changes:
    """Propose other router policies, if there is a choice of instances."""
    role = "prefill" if "prefill" in v.role_npus else "colocated"
    is_waiting = v.ttft_shares["prefill_queue"] > WAITS or v.ttft_ratio > 0.5
    if v.role_npus.get(role, (1, 0))[0] > 1 and is_waiting:
        for policy in ("least_loaded", "prefix_affinity", "power_of_two"):
            yield Change({"router.policy": policy}, promise=v.gain_of(0.5, "prefill_queue"))


# By reason: field of `admission`, its value without a limit, and the limit in words.
LIMITS: dict[int, tuple[str, float, str]] = {
    codes.ABOVE_RATE: ("rate_req_per_s", 0.0, "{:g} requests/s"),
    codes.ABOVE_CONCURRENCY: ("in_flight", 0, "{:,} requests at a time"),
    codes.TOO_LATE: ("shed_at", 0.0, "a predicted TTFT of {:g} times its SLO"),
}


@cause("admission", "Admission limits", "Raise or remove the limit that refuses requests.")
def propose_no_limits(v: View) -> Changes:
    """Propose to remove each limit that refused requests, the scenario's own and tenants'."""
    scenario = v.scenario
    for reason_code, (field, unlimited, limit_text) in LIMITS.items():
        if not (refused_share := v.refused.get(codes.REASONS[reason_code], 0.0)):
            continue
        own_limit, has_tenant_limits = value_of(scenario, f"admission.{field}"), field != "shed_at"
        limited_tenants = [
            tenant for tenant in scenario.tenants if has_tenant_limits and getattr(tenant, field)
        ]
        settings: Settings = {f"admission.{field}": unlimited} if own_limit else {}
        if limited_tenants:
            freed_by_tenant = {
                tenant: tenant.model_copy(update={field: unlimited}) for tenant in limited_tenants
            }
            settings["tenants"] = _json_rows(
                [freed_by_tenant.get(tenant, tenant) for tenant in scenario.tenants]
            )
        removed_limits = [limit_text.format(own_limit)] if own_limit else []
        removed_limits += [
            f"{limit_text.format(getattr(tenant, field))} of {tenant.name}"
            for tenant in limited_tenants
        ]
        yield Change(settings, named=first_few(removed_limits), promise=SERVED * refused_share)


@cause("front_end", "Front end", "Start more API servers.")
def propose_api_servers(v: View) -> Changes:
    """Propose more API servers, at least as many as keep up, and a shorter service time."""
    front = v.scenario.front_end
    if v.ttft_shares["front_end"] < WAITS and v.figure("ttft_front_end_s_mean") < 0.1:
        return
    needed_servers = math.ceil(1.5e-3 * v.arrived_per_s * front.service_ms)
    for servers in sorted(
        {max(2 * front.api_servers, needed_servers), 4 * max(front.api_servers, needed_servers)}
    ):
        yield Change({"front_end.api_servers": servers}, promise=v.gain_of(0.5, "front_end"))
    if front.service_ms > 4.0:  # what a request takes there, however many servers there are
        saved_share = 1.0 - 4.0 / front.service_ms
        yield Change(
            {"front_end.service_ms": 4.0}, False, promise=v.gain_of(saved_share, "front_end")
        )


@cause("links", "Bandwidth of the planes", "Build the planes as the machine is sold, or faster.")
def propose_plane_rates(v: View) -> Changes:
    """Yield a UB plane over the whole supernode, if it ends at the node, and rates of planes as the
    machine is sold; if none is lower, a faster UB plane where exchanges take much of a layer."""
    supernode = v.scenario.supernode
    if supernode.imported:
        return
    if supernode.scale_up == "node":
        yield Change({"supernode.scale_up": "supernode"})
    rate_names = ("ub_link_gb_per_s", "sub_planes", "l1_uplinks", "rdma_gb_per_s_per_npu",
             "vpc_gb_per_s_per_node")  # fmt: skip
    sold_values = as_sold(supernode.machine, v.facts)
    paths = [f"supernode.{name}" for name in rate_names]
    lower_paths = [path for path in paths if value_of(v.scenario, path) < sold_values[path]]
    if lower_paths:
        settings = {path: sold_values[path] for path in lower_paths}
        yield Change(settings, promise=v.gain_of(0.8, "kv_transfer"))
    elif v.operators.get("dispatch", 0.0) + v.operators.get("combine", 0.0) > 0.25:
        yield Change({"supernode.ub_link_gb_per_s": 2 * supernode.ub_link_gb_per_s}, doable=False)


@cause("kv_transfer", "KV transfer", "Move KV over another plane.")
def propose_kv_planes(v: View) -> Changes:
    """Propose other planes for the KV transfer."""
    if v.scenario.deployment.mode == "disaggregated" and v.ttft_shares["kv_transfer"] > 0.1:
        for plane in ("ub", "rdma"):
            promise = v.gain_of(0.5, "kv_transfer")
            yield Change({"deployment.kv_transfer_plane": plane}, promise=promise)


@cause("memory_pool", "Memory pool", "Give the memory pool what it lacks.")
def propose_memory_pools(v: View) -> Changes:
    """Propose a memory pool if there is none, else a larger or shared one, or another layout."""
    scenario, section = v.scenario, "memory_pool"
    has_reuse = scenario.workload.prefix != "none" or scenario.workload.arrivals == "trace"
    if not has_reuse or v.scenario.deployment.mode == "decode_only":
        return
    promise = v.gain_of(0.3, "prefill_queue", "prefill")
    if not scenario.memory_pool.enabled:
        yield Change({f"{section}.enabled": True}, promise=promise)
        return
    if v.figure("pool_used_fraction") > 0.9:
        larger_gb = min(16_384.0, max(512.0, 4 * scenario.memory_pool.gb_per_node))
        yield Change({f"{section}.gb_per_node": larger_gb}, promise=promise)
    yield Change({f"{section}.scope": "shared"}, promise=promise)
    yield Change({f"{section}.plane": "ub"}, promise=promise)
    if v.ttft_ratio > 0.5:
        yield Change({f"{section}.layout": "block"}, promise=0.5 * promise)


@cause("acceptance", "MTP acceptance", "Draft otherwise: fewer tokens, or with a better module.")
def propose_drafts(v: View) -> Changes:
    """Propose the acceptance that the paper assumes, and other numbers of draft tokens."""
    decode = v.scenario.deployment.decode
    if not decode.mtp_draft_tokens or v.scenario.deployment.mode == "prefill_only":
        return
    if decode.mtp_dataset == "as_stated" and decode.mtp_acceptance < REFERENCE_ACCEPTANCE:
        yield Change({"deployment.decode.mtp_acceptance": REFERENCE_ACCEPTANCE}, doable=False)
    yield Change({"deployment.decode.mtp_draft_tokens": 0})
    yield Change({"deployment.decode.mtp_draft_tokens": decode.mtp_draft_tokens + 1})


@cause("host", "Host", "Take the host out of the way of the iterations.")
def propose_host_options(v: View) -> Changes:
    """Propose no gap of the host between iterations, and graphs that are launched ahead."""
    section = "deployment.optimisations"
    if v.scenario.deployment.optimisations.host_gap_ms > 0:
        yield Change({f"{section}.host_gap_ms": 0.0})
    yield Change({f"{section}.speculation": "pipelined"})


@cause("switches", "Optimisations that are off", "Switch them on.")
def propose_optimisations(v: View) -> Changes:
    """Propose each usual optimisation that is off, and all of them together."""
    usual_values = {
        "deployment.optimisations.attention_kernel": "fused_mla",
        "deployment.optimisations.shared_expert_scheduling": True,
        "deployment.optimisations.flash_comm": True,
        "deployment.optimisations.layer_in_parallel": True,
        "deployment.communication.fused": True,
        "deployment.communication.early_quantisation": True,
        "deployment.communication.buffer_tokens_per_die": 0,
        "deployment.decode.microbatch": "auto",
        "deployment.prefill.microbatch": True,
        "deployment.decode.rank_choice": "kv_and_requests",
    }  # fmt: skip
    if not v.has_experts:  # nothing is exchanged, and no other microbatch hides anything
        endings = ("attention_kernel", "flash_comm", "rank_choice")
        usual_values = {path: usual_values[path] for path in usual_values if path.endswith(endings)}
    settings_off = {path: value for path, value in usual_values.items()  # "amla": a better kernel
                    if value_of(v.scenario, path) not in (value, "amla")}  # fmt: skip
    for path, value in settings_off.items():
        yield Change({path: value})
    if len(settings_off) > 1:
        yield Change(settings_off)


@cause("weights", "Number format of the weights", "Serve in INT8.")
def propose_int8_weights(v: View) -> Changes:
    """Propose INT8 weights if they are BF16."""
    if v.scenario.deployment.precision.weights == "bf16":
        yield Change({"deployment.precision.weights": "int8"})


@cause("seats", "Where instances sit", "Place each instance in one unbroken row of NPUs.")
def propose_packed_placement(v: View) -> Changes:
    """Propose, always, that each instance sits in one unbroken row of NPUs."""
    yield Change({"deployment.placement": "packed"})


@cause("supernodes", "An instance across supernodes", "Keep each instance within one supernode.")
def propose_fewer_supernodes(v: View) -> Changes:
    """Propose smaller instances in larger number, and one supernode with all nodes."""
    machine = v.scenario.supernode
    if machine.imported or machine.supernodes == 1:
        return
    for role, (instances, npus) in v.role_npus.items():
        for divisor in (2, 4):
            if role != "prefill" and npus % divisor == 0:
                yield Change({f"deployment.{role}.instances": instances * divisor,
                              f"deployment.{role}.npus_per_instance": npus // divisor})  # fmt: skip
    settings = {"supernode.supernodes": 1, "supernode.nodes": machine.nodes * machine.supernodes}
    yield Change(settings, doable=False, named=f"{machine.supernodes} supernodes")


@cause("afd", "NPUs that hold experts alone", "Change how many NPUs hold experts alone.")
def propose_expert_npus(v: View) -> Changes:
    """Propose zero, half and twice as many NPUs that hold experts only (AFD)."""
    npus_now = v.scenario.deployment.decode.expert_npus
    if npus_now:
        for expert_npus in (0, npus_now // 2, min(383, 2 * npus_now)):
            yield Change({"deployment.decode.expert_npus": expert_npus})


@cause(
    "prompts", "Long prompts", "Cap the length of prompts, or serve long ones elsewhere.", DEMAND
)
def propose_shorter_prompts(v: View) -> Changes:
    """Propose shorter prompts, if the prefill of one takes much of the TTFT limit."""
    scenario = v.scenario
    prefill_s = v.figure("ttft_prefill_s_mean")
    if scenario.workload.arrivals == "trace" or scenario.workload.lengths != "fixed":
        return
    if v.scenario.deployment.mode != "decode_only" and (
        v.ttft_ratio > 1 and prefill_s > 0.4 * scenario.slo.ttft_s
    ):
        for share in (0.5, 0.25, 0.125):
            tokens = max(1, round(share * scenario.workload.input_tokens))
            yield Change({"workload.input_tokens": tokens}, promise=v.gain_of(1 - share, "prefill"))
