"""What a form says of each field: its group, its words, its bounds, and when it is idle.

Unit, bounds, choices, help and source come from `twin.scenario`; this file adds only what a screen
needs - which fields stand together, what a person calls them, and when a field does not apply.
Every leaf of a scenario is in exactly one group here or in `ELSEWHERE` (a test walks them all).
It draws nothing (that is `forms`) and knows nothing about what a value does to a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from twin.facts import Facts
from twin.scenario import Optimisations, Scenario, field_info, field_unit
from twin.ui import choices, experts_fields, faults_words, listed

WORKLOAD = {
    "Traffic": (
        "workload.arrivals",
        "workload.rate_req_per_s",
        "workload.cv",
        "workload.concurrency",
        "workload.think_s",
        "workload.lengths",
        "workload.input_tokens",
        "workload.output_tokens",
        "workload.trace.rate_multiplier",
        "workload.trace.tree_copies",
        "workload.trace.max_requests",
        "workload.trace.dequantise",
    ),
    "Shared prefixes": (
        "workload.prefix",
        "workload.shared_fraction",
        "workload.prefix_groups",
        "workload.follow_up_probability",
        "workload.turn_gap_s",
    ),
    "Promise": ("slo.ttft_s", "slo.tpot_ms"),
    "Time and chance": ("horizon_s", "warmup_s", "step_s", "seed"),
}
DEPLOYMENT = {
    "Pools": (
        "deployment.mode",
        "deployment.model",
        "deployment.stack",
        "deployment.prefill.instances",
        "deployment.prefill.npus_per_instance",
        "deployment.decode.instances",
        "deployment.decode.npus_per_instance",
        "deployment.decode.expert_npus",
        "deployment.colocated.instances",
        "deployment.colocated.npus_per_instance",
        "deployment.kv_transfer_plane",
    ),
    "Batching": (
        "deployment.prefill.tokens_per_npu",
        "deployment.prefill.chunk_tokens",
        "deployment.prefill.attention",
        "deployment.prefill.tp_dies",
        "deployment.prefill.microbatch",
        "deployment.colocated.chunk_tokens_per_npu",
        "deployment.decode.batch_per_npu",
        "deployment.decode.rank_choice",
        "deployment.decode.microbatch",
        "deployment.decode.mtp_draft_tokens",
        "deployment.decode.mtp_dataset",
        "deployment.decode.mtp_acceptance",
    ),
    "Routing": ("router.policy", "front_end.api_servers", "front_end.service_ms"),
    "Memory pool": (
        "memory_pool.enabled",
        "memory_pool.scope",
        "memory_pool.gb_per_node",
        "memory_pool.block_tokens",
        "memory_pool.plane",
    ),
    "Experts": experts_fields.EXPERTS,
    "Balancing": experts_fields.BALANCING,
    "Precision": (
        "deployment.precision.weights",
        "deployment.precision.attention",
        "deployment.precision.kv",
        "deployment.communication.fused",
        "deployment.communication.early_quantisation",
        "deployment.communication.buffer_tokens_per_die",
    ),
    "Optimisations": tuple(f"deployment.optimisations.{n}" for n in Optimisations.model_fields),
    "What breaks": faults_words.RECOVERY,
}
SUPERNODE = {
    "Machine": (
        "supernode.chip",
        "supernode.supernodes",
        "supernode.nodes",
        "supernode.npus_per_node",
        "supernode.cpus_per_node",
    ),
    "Planes": (
        "supernode.scale_up",
        "supernode.sub_planes",
        "supernode.ub_link_gb_per_s",
        "supernode.l1_uplinks",
        "supernode.l2_ports_per_chip",
        "supernode.rdma_gb_per_s_per_npu",
        "supernode.vpc_gb_per_s_per_node",
    ),
}
# Words about the scenario, and what an upload fills in: shown, but not as a form's field.
ELSEWHERE = (
    "name", "question", "source", "workload.trace.name", "workload.trace.digest", "supernode.edits",
    "faults", *experts_fields.ELSEWHERE,
)  # fmt: skip

LABELS = {
    "front_end.api_servers": "API servers",
    "deployment.stack": "Serving stack",
    "workload.rate_req_per_s": "Request rate",
    "workload.cv": "Burstiness (coefficient of variation)",
    "workload.concurrency": "Requests in flight",
    "workload.think_s": "Think time",
    "workload.lengths": "Prompt and answer lengths",
    "workload.input_tokens": "Prompt length",
    "workload.output_tokens": "Answer length",
    "workload.prefix": "What prompts share",
    "workload.shared_fraction": "Shared part of a prompt",
    "workload.prefix_groups": "Popular prefixes",
    "workload.turn_gap_s": "Gap between turns",
    "workload.trace.rate_multiplier": "Rate multiplier",
    "workload.trace.max_requests": "Keep at most",
    "workload.trace.dequantise": "Spread coarse timestamps",
    "slo.ttft_s": "Time to first token, at most",
    "slo.tpot_ms": "Time per output token, at most",
    "horizon_s": "Simulated time",
    "warmup_s": "Warm-up left out",
    "step_s": "Clock step",
    "deployment.mode": "How instances serve",
    "deployment.prefill.instances": "Prefill instances",
    "deployment.prefill.npus_per_instance": "Each prefill instance",
    "deployment.decode.instances": "Decode instances",
    "deployment.decode.npus_per_instance": "Each decode instance",
    "deployment.decode.expert_npus": "Of it, experts alone",
    "deployment.colocated.instances": "Colocated instances",
    "deployment.colocated.npus_per_instance": "Each colocated instance",
    "deployment.kv_transfer_plane": "Plane for KV transfer",
    "deployment.prefill.tokens_per_npu": "Prefill batch",
    "deployment.prefill.chunk_tokens": "Prefill chunk",
    "deployment.prefill.attention": "Prefill attention",
    "deployment.prefill.tp_dies": "Tensor-parallel group",
    "deployment.prefill.microbatch": "Prefill microbatches",
    "deployment.colocated.chunk_tokens_per_npu": "Prefill chunk beside decode",
    "deployment.decode.batch_per_npu": "Decode batch",
    "deployment.decode.microbatch": "Decode microbatches",
    "deployment.decode.mtp_draft_tokens": "MTP draft tokens",
    "deployment.decode.mtp_dataset": "MTP dataset",
    "deployment.decode.rank_choice": "Decode die",
    "deployment.decode.mtp_acceptance": "MTP acceptance (chance)",
    "deployment.optimisations.fused_deep_mla": "FusedDeepMLA",
    "deployment.optimisations.fused_deep_moe": "FusedDeepMoE",
    "deployment.optimisations.flash_comm": "FlashComm",
    "router.policy": "Router",
    "front_end.service_ms": "Time per request",
    "memory_pool.enabled": "Keep KV blocks for reuse",
    "memory_pool.gb_per_node": "DRAM lent by a node",
    "memory_pool.block_tokens": "KV block",
    "memory_pool.plane": "Plane it is read over",
    "deployment.precision.weights": "Weights",
    "deployment.precision.kv": "KV cache format",
    "deployment.communication.fused": "Fused dispatch and combine",
    "deployment.communication.early_quantisation": "Quantise before dispatch",
    "deployment.communication.buffer_tokens_per_die": "Exchange buffers",
    "supernode.scale_up": "UB reaches",
    "supernode.sub_planes": "UB sub-planes",
    "supernode.ub_link_gb_per_s": "UB link",
    "supernode.l1_uplinks": "Uplinks of an L1 chip",
    "supernode.l2_ports_per_chip": "Ports of an L2 chip",
    "supernode.rdma_gb_per_s_per_npu": "RDMA of an NPU",
    "supernode.vpc_gb_per_s_per_node": "VPC of a node",
    "supernode.npus_per_node": "NPUs in a node",
    "supernode.cpus_per_node": "CPUs in a node",
    "supernode.edits": "Edits of the fabric",
} | experts_fields.LABELS
LABELS |= faults_words.RECOVERY_LABELS
CHOICES_OF = choices.CHOICES_OF | experts_fields.CHOICES_OF | faults_words.RECOVERY_CHOICES
STEPS = {
    "deployment.prefill.chunk_tokens": 512,
    "workload.trace.max_requests": 1000,
    "deployment.decode.instances": 1,
    "deployment.decode.npus_per_instance": 16,
    "deployment.prefill.npus_per_instance": 8,
    "deployment.colocated.npus_per_instance": 16,
    "memory_pool.block_tokens": 16,
    "workload.think_s": 1.0,
} | experts_fields.STEPS


def _generated(s: Scenario) -> bool:
    return s.workload.arrivals != "trace"


def _prefills(s: Scenario) -> bool:
    return s.deployment.mode in ("disaggregated", "prefill_only")


def _decodes(s: Scenario) -> bool:
    return s.deployment.mode != "prefill_only"


def _has_prompts(s: Scenario) -> bool:
    return s.deployment.mode != "decode_only"


# path or section -> (when it applies, why not otherwise); the first that fails is the reason.
APPLIES: dict[str, tuple[Callable[[Scenario], bool], str]] = {
    "workload.rate_req_per_s": (
        lambda s: s.workload.arrivals in ("poisson", "gamma", "uniform"),
        "arrivals set their own rate",
    ),
    "workload.cv": (lambda s: s.workload.arrivals == "gamma", "Gamma arrivals only"),
    "workload.concurrency": (lambda s: s.workload.arrivals == "closed_loop", "closed loop only"),
    "workload.think_s": (lambda s: s.workload.arrivals == "closed_loop", "closed loop only"),
    "workload.lengths": (_generated, "the trace brings its lengths"),
    "workload.input_tokens": (
        lambda s: _generated(s) and s.workload.lengths == "fixed",
        "fixed lengths only",
    ),
    "workload.output_tokens": (
        lambda s: _generated(s) and s.workload.lengths == "fixed",
        "fixed lengths only",
    ),
    "workload.prefix": (_generated, "the trace brings its prefixes"),
    "workload.shared_fraction": (
        lambda s: _generated(s) and s.workload.prefix == "shared",
        "popular prefixes only",
    ),
    "workload.prefix_groups": (
        lambda s: _generated(s) and s.workload.prefix == "shared",
        "popular prefixes only",
    ),
    "workload.follow_up_probability": (
        lambda s: _generated(s) and s.workload.prefix == "sessions",
        "sessions only",
    ),
    "workload.turn_gap_s": (
        lambda s: _generated(s) and s.workload.prefix == "sessions",
        "sessions only",
    ),
    "workload.trace": (lambda s: not _generated(s), "a recorded trace only"),
    "deployment.prefill": (_prefills, "no prefill pool in this mode"),
    "deployment.prefill.tp_dies": (
        lambda s: _prefills(s) and s.deployment.prefill.attention == "tp",
        "tensor-parallel attention only",
    ),
    "deployment.decode.instances": (
        lambda s: s.deployment.mode in ("disaggregated", "decode_only"),
        "no decode pool in this mode",
    ),
    "deployment.decode.npus_per_instance": (
        lambda s: s.deployment.mode in ("disaggregated", "decode_only"),
        "no decode pool in this mode",
    ),
    "deployment.decode.expert_npus": (
        lambda s: s.deployment.mode in ("disaggregated", "decode_only"),
        "no decode pool in this mode",
    ),
    "deployment.decode.microbatch": (
        lambda s: s.deployment.mode in ("disaggregated", "decode_only"),
        "no decode pool in this mode",
    ),
    "deployment.decode": (_decodes, "nothing is decoded in this mode"),
    "deployment.decode.mtp_dataset": (
        lambda s: _decodes(s) and s.deployment.decode.mtp_draft_tokens > 0,
        "MTP is off",
    ),
    "deployment.decode.mtp_acceptance": (
        lambda s: (
            _decodes(s)
            and s.deployment.decode.mtp_draft_tokens > 0
            and s.deployment.decode.mtp_dataset == "as_stated"
        ),
        "MTP is off, or a dataset says it",
    ),
    "deployment.communication.buffer_tokens_per_die": (_decodes, "nothing is decoded here"),
    "deployment.colocated": (
        lambda s: s.deployment.mode == "colocated",
        "colocated instances only",
    ),
    "deployment.kv_transfer_plane": (
        lambda s: s.deployment.mode == "disaggregated",
        "separate pools only",
    ),
    "slo.tpot_ms": (_decodes, "nothing is decoded in this mode"),
    "memory_pool": (_has_prompts, "no prompts are computed in this mode"),
    "memory_pool.scope": (lambda s: s.memory_pool.enabled, "no blocks are kept"),
    "memory_pool.gb_per_node": (lambda s: s.memory_pool.enabled, "no blocks are kept"),
    "memory_pool.plane": (lambda s: s.memory_pool.enabled, "no blocks are kept"),
    "supernode.l1_uplinks": (
        lambda s: s.supernode.scale_up == "supernode",
        "UB ends at the node",
    ),
    "supernode.l2_ports_per_chip": (
        lambda s: s.supernode.scale_up == "supernode",
        "UB ends at the node",
    ),
} | experts_fields.APPLIES


def label(path: str) -> str:
    """A field's name for people, with its unit: 'Request rate (req/s)'."""
    name = LABELS.get(path) or path.rsplit(".", 1)[-1].replace("_", " ").capitalize()
    unit = field_unit(path)
    # Said once: "Prefill instances" needs no "(instances)".
    said = re.search(rf"\b{re.escape(unit)}\b", name, re.IGNORECASE)
    return name if not unit or said else f"{name} ({unit})"


def choice_label(path: str, option: str, facts: Facts | None = None) -> str:
    """One option of a field for people: 'sp_tp_sp' -> 'SP-TP-SP'; a file by its own title."""
    title = f"{choices.FILES.get(path)}.{option}.title"
    if facts is not None and title in facts:
        return str(facts[title].value)
    named = CHOICES_OF.get(path, {}).get(option) or choices.CHOICES.get(option)
    return named or option.replace("_", " ").replace("-", " ").capitalize()


def tooltip(path: str) -> str:
    """What the field means, its bounds, its default and where that comes from."""
    info = field_info(path)
    low, high = bounds(path)
    parts = [experts_fields.HELP.get(path, info.description)]
    shown = show(info.default, path)
    source = (info.json_schema_extra or {}).get("source", "")
    span = f"{low:,g} to {high:,g}. " if low is not None else ""
    parts.append(f"{span}Default {shown}" + (f" ({source})." if source else "."))
    return "\n\n".join(parts)


def show(value: Any, path: str = "") -> str:
    """A field's value for people, without its unit.

    >>> show(16384), show(0.05), show(True)
    ('16,384', '0.05', 'on')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    if path in listed.LISTS:
        return listed.told(path, value)
    return choice_label(path, value) if value else "none"


def sentence(refusal: str) -> str:
    """A refusal for people: fields by the name their form gives them, one full sentence.

    >>> sentence("warmup_s = 30 s must end before horizon_s = 20 s")
    'Warm-up left out = 30 s must end before Simulated time = 20 s.'
    """
    named = LABELS | {"workload.arrivals": "Arrivals", "workload.trace": "a trace"}
    for path in sorted(named, key=len, reverse=True):
        refusal = re.sub(rf"\b{re.escape(path)}\b(?!\.\w)", named[path], refusal)
    return refusal[:1].upper() + refusal[1:].rstrip(".") + "."


def bounds(path: str) -> tuple[Any, Any]:
    """Lowest and highest value of a number, (None, None) for anything else."""
    found = {type(m).__name__: m for m in field_info(path).metadata}
    if "Ge" not in found:
        return None, None
    return found["Ge"].ge, found["Le"].le


def options(path: str, facts: Facts) -> list[str] | None:
    """What a choice may be: from its type, or from the facts it names; None for numbers."""
    annotation = field_info(path).annotation
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if path not in choices.FILES:
        return None
    return choices.NO_FILE.get(path, []) + facts.names(choices.FILES[path])


def why_idle(path: str, scenario: Scenario) -> str:
    """Why a field does nothing under the scenario's other choices; '' when it applies."""
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        applies, reason = APPLIES.get(".".join(parts[:end]), (None, ""))
        if applies is not None and not applies(scenario):
            return reason
    return ""


def longest(path: str) -> int | None:
    """Most letters of a text field, None when there is no limit."""
    found = {type(m).__name__: m for m in field_info(path).metadata}
    return found["MaxLen"].max_length if "MaxLen" in found else None
