"""The question: a Scenario and its sections, inert and frozen.

Every field carries its unit, its bounds, one sentence of help and, where the default is a figure
from the world, its source. Validation messages, forms, the documentation table and the canonical
digest are all made from this one declaration. This module knows nothing about how an answer is
found, and nothing about files.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

SCHEMA_VERSION = 1

PAPER = "arXiv 2506.12708v2"


DIGEST = r"^([0-9a-f]{64})?$"
PRINTABLE = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"  # tabs and line ends are welcome

# What would be right, in a person's words: by pattern, and by pydantic's type of error.
PATTERNS = {
    DIGEST: "should be a SHA-256, 64 hexadecimal digits",
    PRINTABLE: "should hold no control characters",
}
WRONG_KINDS = {
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_parsing_size": "should be a whole number of fewer digits",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a finite number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be text",
    "model_type": "should be a table of fields",
    "model_attributes_type": "should be a table of fields",
    "dict_type": "should be a table of fields",
}
LONGEST_ECHO = 60  # characters of a wrong value that are said back


class SpecError(ValueError):
    """A scenario that cannot be: one sentence naming what, where and what would be right."""


def quantity(
    default: float,
    unit: str,
    help: str,  # noqa: A002 - the word a form uses for it
    *,
    low: float,
    high: float,
    source: str = "",
) -> Any:
    """A number with a unit, inclusive bounds, a sentence of help and the source of its default."""
    return Field(
        default,
        ge=low,
        le=high,
        description=help,
        json_schema_extra={"unit": unit, "source": source},
    )


def choice(default: Any, help: str, *, source: str = "") -> Any:  # noqa: A002
    """A switch or a name: no unit, one sentence of help and the source of its default."""
    return Field(default, description=help, json_schema_extra={"unit": "", "source": source})


class Section(BaseModel):
    """Base of every section: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Supernode(Section):
    """The machine: nodes, chips and the three network planes."""

    chip: str = choice(
        "ascend-910c", "Accelerator package, a file in data/chips.", source=f"{PAPER} 3.3.1"
    )
    nodes: int = quantity(
        48, "nodes", "Compute nodes in the supernode.", low=1, high=384, source=f"{PAPER} 3.3.3"
    )
    npus_per_node: int = quantity(
        8, "NPUs", "NPU packages in a node.", low=1, high=72, source=f"{PAPER} 3.3.2"
    )
    cpus_per_node: int = quantity(
        4, "CPUs", "CPU sockets in a node.", low=1, high=8, source=f"{PAPER} 3.3.2"
    )
    scale_up: Literal["supernode", "node"] = choice(
        "supernode",
        "How far the scale-up (UB) plane reaches: the whole supernode through L2 switch chips, "
        "or only the node, so that traffic between nodes takes the RDMA plane.",
        source=f"{PAPER} 3.2",
    )
    sub_planes: int = quantity(
        7,
        "sub-planes",
        "UB sub-planes: one L1 switch chip a node and one link a die each.",
        low=1,
        high=32,
        source=f"{PAPER} 3.3.3",
    )
    ub_link_gb_per_s: float = quantity(
        28.0,
        "GB/s",
        "Capacity of one UB link, one direction (224 Gbps).",
        low=0.1,
        high=1000,
        source=f"{PAPER} 3.3.1",
    )
    l1_uplinks: int = quantity(
        16,
        "links",
        "Links from an L1 switch chip up to the L2 chips of its sub-plane; "
        "16 match the 16 dies of a node, fewer oversubscribe.",
        low=1,
        high=144,
        source=f"{PAPER} 3.3.3",
    )
    l2_ports_per_chip: int = quantity(
        48, "ports", "Ports of an L2 switch chip.", low=2, high=512, source=f"{PAPER} 3.3.3"
    )
    rdma_gb_per_s_per_npu: float = quantity(
        50.0,
        "GB/s",
        "RDMA plane, one NPU, one direction (400 Gbps).",
        low=0.1,
        high=1000,
        source=f"{PAPER} 3.3.2",
    )
    vpc_gb_per_s_per_node: float = quantity(
        50.0,
        "GB/s",
        "VPC plane, one node's Qingtian card, one direction (400 Gbps).",
        low=0.1,
        high=1000,
        source=f"{PAPER} 3.3.2",
    )

    @property
    def npus(self) -> int:
        """NPU packages in the supernode."""
        return self.nodes * self.npus_per_node


class Trace(Section):
    """A recorded request stream, named by the digest of its content."""

    name: str = choice("", "File name the trace was read from, for people.")
    digest: str = Field(
        "",
        pattern=DIGEST,
        description="SHA-256 of the canonical request table; empty: no trace.",
        json_schema_extra={"unit": "", "source": ""},
    )
    rate_multiplier: float = quantity(
        1.0,
        "x",
        "Squeezes the trace's time: the same requests arrive this many times faster.",
        low=0.001,
        high=100_000,
    )
    tree_copies: int = quantity(
        1,
        "copies",
        "Copies of the whole request stream under new block ids, interleaved: scales load "
        "and working set together.",
        low=1,
        high=4096,
    )
    dequantise: bool = choice(
        True,
        "Spread requests that share one coarse timestamp evenly at random over that interval.",
        source="workloads.md: Mooncake timestamps are quantised to 3 s",
    )
    max_requests: int = quantity(
        0, "requests", "Keep only the first requests; 0 keeps all.", low=0, high=100_000_000
    )


class Workload(Section):
    """The traffic: when requests arrive, how long they are, what they share."""

    arrivals: Literal["poisson", "gamma", "uniform", "closed_loop", "trace"] = choice(
        "poisson",
        "Poisson, Gamma (bursty), evenly spaced, a closed loop of clients, or a recorded trace.",
    )
    rate_req_per_s: float = quantity(
        60.0, "req/s", "Mean arrival rate of requests.", low=0.001, high=200_000
    )
    cv: float = quantity(
        1.0,
        "",
        "Coefficient of variation of Gamma inter-arrival times; 1 is Poisson, above is bursty.",
        low=0.05,
        high=20,
    )
    concurrency: int = quantity(
        832, "requests", "Requests in flight in a closed loop.", low=1, high=2_000_000
    )
    think_s: float = quantity(
        0.0, "s", "Mean pause of a closed-loop client between answers.", low=0, high=3600
    )
    lengths: str = choice(
        "fixed",
        "'fixed' or a fitted length distribution of data/workloads (for example "
        "mooncake-conversation).",
    )
    input_tokens: int = quantity(
        4096, "tokens", "Prompt length when lengths are fixed.", low=1, high=1_000_000
    )
    output_tokens: int = quantity(
        256, "tokens", "Answer length when lengths are fixed.", low=1, high=200_000
    )
    prefix: Literal["none", "shared", "sessions"] = choice(
        "none",
        "What prompts share: nothing; a popular prefix; or sessions whose turns extend the last.",
    )
    shared_fraction: float = quantity(
        0.5,
        "of input",
        "Share of each prompt that is a popular prefix (prefix = shared).",
        low=0,
        high=0.99,
    )
    prefix_groups: int = quantity(
        64, "prefixes", "Distinct popular prefixes (prefix = shared).", low=1, high=1_000_000
    )
    follow_up_probability: float = quantity(
        0.4,
        "",
        "Chance that a request continues an earlier session (prefix = sessions).",
        low=0,
        high=0.99,
        source="workloads.md 2.1",
    )
    turn_gap_s: float = quantity(
        123.0,
        "s",
        "Median gap between the turns of a session (prefix = sessions).",
        low=0.1,
        high=86_400,
        source="workloads.md 2.1",
    )
    trace: Trace = Trace()


class Prefill(Section):
    """The prefill pool."""

    instances: int = quantity(
        6, "instances", "Prefill instances.", low=1, high=512, source=f"{PAPER} 5.1"
    )
    npus_per_instance: int = quantity(
        16, "NPUs", "NPUs of one prefill instance.", low=1, high=384, source=f"{PAPER} 4.1"
    )
    tokens_per_npu: int = quantity(
        16_384,
        "tokens/NPU",
        "Token budget of one prefill batch.",
        low=64,
        high=1_048_576,
        source=f"{PAPER} Table 3",
    )
    chunk_tokens: int = quantity(
        0,
        "tokens",
        "Longest piece of one prompt in one batch; 0 does not chunk.",
        low=0,
        high=1_048_576,
    )
    attention: Literal["sp_tp_sp", "dp"] = choice(
        "sp_tp_sp",
        "Staged sequence-tensor-sequence parallel attention, or plain data parallel (each prompt "
        "on one die, so lengths skew the load).",
        source=f"{PAPER} 4.3.1",
    )
    microbatch: bool = choice(
        True, "Two microbatches hide communication behind computing.", source=f"{PAPER} 4.3.2"
    )


class Decode(Section):
    """The decode pool."""

    instances: int = quantity(
        1, "instances", "Decode instances.", low=1, high=128, source=f"{PAPER} 5.1"
    )
    npus_per_instance: int = quantity(
        160, "NPUs", "NPUs of one decode instance.", low=1, high=384, source=f"{PAPER} 4.1"
    )
    batch_per_npu: int = quantity(
        96,
        "requests/NPU",
        "Most requests one NPU decodes at once; a die holds its share.",
        low=1,
        high=4096,
        source=f"{PAPER} Table 4",
    )
    microbatch: Literal["auto", "on", "off"] = choice(
        "auto",
        "Two microbatches alternate between an attention and an MoE stream; auto does what "
        "is faster for the batch at hand.",
        source=f"{PAPER} 4.2.3",
    )
    mtp_draft_tokens: int = quantity(
        1,
        "tokens",
        "Draft tokens a multi-token-prediction pass proposes; 0 switches MTP off.",
        low=0,
        high=4,
        source=f"{PAPER} 4.2.4",
    )
    mtp_acceptance: float = quantity(
        0.7,
        "",
        "Chance that a draft token is accepted, given that those before it were.",
        low=0,
        high=1,
        source=f"{PAPER} 5.2 (assumed there)",
    )


class Colocated(Section):
    """Instances that prefill and decode in the same iterations: the contrast to disaggregation."""

    instances: int = quantity(1, "instances", "Colocated instances.", low=1, high=128)
    npus_per_instance: int = quantity(
        160, "NPUs", "NPUs of one colocated instance.", low=1, high=384
    )
    chunk_tokens_per_npu: int = quantity(
        1024,
        "tokens/NPU",
        "Prompt tokens an iteration may prefill beside the decode batch.",
        low=2,
        high=65_536,
    )


class Precision(Section):
    """Number formats."""

    weights: Literal["int8", "bf16", "fp8", "fp4"] = choice(
        "int8", "Weights and matrix products.", source=f"{PAPER} 4.5"
    )
    attention: Literal["as_weights", "bf16"] = choice(
        "as_weights",
        "Attention projections and dense FFN: in the format of the weights, or BF16 beside "
        "quantised experts.",
        source=f"{PAPER} 4.5",
    )
    kv: Literal["bf16", "int8"] = choice("bf16", "KV cache.", source=f"{PAPER} 4.2.2")


class Communication(Section):
    """How tokens travel to experts and back."""

    fused: bool = choice(
        True,
        "Fused dispatch and combine (direct remote writes); off: gate, all-to-all-v, expert, "
        "all-to-all.",
        source=f"{PAPER} 4.2.1",
    )
    early_quantisation: bool = choice(
        True, "Dispatch sends INT8 tokens with a scale instead of BF16.", source=f"{PAPER} 4.2.1"
    )


class Optimisations(Section):
    """What engines and operator libraries do to save time, each with its mechanism."""

    attention_kernel: Literal["flash_attention", "fused_mla", "amla"] = choice(
        "fused_mla",
        "Decode attention core: built on an existing FlashAttention, the fused MLA operator, or "
        "AMLA, which rescales by adding integers; they reach different shares of the peak.",
        source=f"{PAPER} 4.2.2",
    )
    fused_deep_mla: bool = choice(
        False,
        "One operator for MLA prolog, attention core and gating: fewer launches, and queries do "
        "not go through HBM between them.",
    )
    fused_deep_moe: bool = choice(
        False,
        "One operator for dispatch, experts and combine: rows are computed and sent back tile by "
        "tile while others still arrive.",
    )
    shared_expert_scheduling: bool = choice(
        True,
        "Transmissions to the dies of the shared expert are scheduled among the others; off: all "
        "dies send to them at once (in-cast), and routed tokens wait behind.",
    )
    weight_prefetch: bool = choice(
        False,
        "Weights of the next operator are read into the on-chip cache while dispatch and combine "
        "start and wait, when nothing else reads (decode without microbatches).",
    )
    multi_stream: bool = choice(
        False,
        "Decode without microbatches: the KV branch runs beside the query branch, and a shared "
        "expert on the same die beside dispatch.",
    )
    flash_comm: bool = choice(
        True,
        "FlashComm: prefill's all-gather and all-to-all carry quantised activations; off: BF16.",
    )
    layer_in_parallel: bool = choice(
        True,
        "Layer-in parallel conversion: prefill's attention goes from tensor to sequence parallel "
        "by an all-to-all before the output projection; off: partial sums of all tokens are "
        "reduced after it.",
        source=f"{PAPER} 4.3.1",
    )
    speculation: Literal["pipelined", "fusion_spec", "unfused"] = choice(
        "pipelined",
        "What speculation costs beside its passes: nothing when graphs are launched ahead and "
        "sampling stays on the NPU; about 1 ms with FusionSpec; or a launch after each graph.",
        source=f"{PAPER} 4.2.4",
    )
    host_gap_ms: float = quantity(
        0.0,
        "ms",
        "Pause of the host between iterations, beyond what the machine's own figures say.",
        low=0,
        high=100,
    )


class Deployment(Section):
    """Which instances serve, and how they compute."""

    mode: Literal["disaggregated", "colocated", "prefill_only", "decode_only"] = choice(
        "disaggregated",
        "Separate prefill and decode pools; colocated instances; or one pool alone, as benchmarks "
        "measure it (prefill_only ends at the first token, decode_only starts with KV in place).",
        source=f"{PAPER} 4.1, 5.1",
    )
    model: str = choice("deepseek-r1", "Model served, a file in data/models.")
    prefill: Prefill = Prefill()
    decode: Decode = Decode()
    colocated: Colocated = Colocated()
    precision: Precision = Precision()
    communication: Communication = Communication()
    optimisations: Optimisations = Optimisations()
    kv_transfer_plane: Literal["rdma", "ub", "vpc"] = choice(
        "rdma", "Plane that carries KV from prefill to decode.", source=f"{PAPER} 4.3.3"
    )


class FrontEnd(Section):
    """API servers: tokenise, check, hand on."""

    api_servers: int = quantity(16, "servers", "API servers.", low=1, high=4096)
    service_ms: float = quantity(
        4.0, "ms", "Time an API server needs for one request.", low=0, high=10_000
    )


class Router(Section):
    """Which prefill instance takes the next request."""

    policy: Literal[
        "round_robin", "least_loaded", "power_of_two", "prefix_affinity", "session_sticky"
    ] = choice(
        "least_loaded",
        "Stateless peer-to-peer choice, or one that follows the KV cache.",
        source=f"{PAPER} 4.1",
    )


class MemoryPool(Section):
    """Context caching: KV blocks kept in the nodes' DRAM."""

    enabled: bool = choice(True, "Keep KV blocks of prompts for reuse.", source=f"{PAPER} 4.4")
    scope: Literal["shared", "local"] = choice(
        "shared",
        "One pool for all, or one cache for each prefill instance in its own nodes' DRAM.",
        source=f"{PAPER} 4.4.1",
    )
    gb_per_node: float = quantity(
        512.0,
        "GB",
        "DRAM a node lends to the pool (the paper does not state a size).",
        low=0.001,
        high=16_384,
        source="assumption",
    )
    block_tokens: int = quantity(
        128, "tokens", "Tokens of one KV block.", low=16, high=1024, source=f"{PAPER} 4.4.2"
    )
    plane: Literal["ub", "vpc"] = choice(
        "ub", "Plane the pool is read over.", source=f"{PAPER} 5.4.3"
    )


class Experts(Section):
    """Who gets the tokens, and where experts sit."""

    popularity: Literal["uniform", "skewed"] = choice(
        "skewed", "Expert popularity: all alike, or a few hot ones in each layer."
    )
    skew: float = quantity(
        1.0,
        "",
        "Strength of the skew: scales the log of each expert's popularity; 1 is the fitted "
        "DeepSeek-V3 shape, 0 is uniform.",
        low=0,
        high=3,
        source="workloads.md 3",
    )
    redundant: int = quantity(
        32,
        "experts",
        "Redundant routed experts of an instance.",
        low=0,
        high=1024,
        source=f"{PAPER} 4.1",
    )
    placement: Literal["round_robin", "eplb", "perfect"] = choice(
        "eplb",
        "Logical experts to dies: in order, load balanced (EPLB), or the ideal even load.",
        source=f"{PAPER} 4.1",
    )


class Slo(Section):
    """What a user was promised; goodput counts requests that got it."""

    ttft_s: float = quantity(5.0, "s", "Longest time to first token.", low=0.001, high=3600)
    tpot_ms: float = quantity(
        50.0,
        "ms",
        "Longest mean time per output token.",
        low=0.1,
        high=10_000,
        source=f"{PAPER} Table 5",
    )


class Scenario(Section):
    """One question to the twin."""

    name: str = Field("untitled", max_length=120, pattern=PRINTABLE, description="Short name.")
    question: str = Field(
        "", max_length=600, pattern=PRINTABLE, description="What this scenario asks."
    )
    source: str = Field(
        "", max_length=600, pattern=PRINTABLE, description="Where its figures come from."
    )
    seed: int = quantity(1, "", "Seed of all random streams.", low=0, high=2**31 - 1)
    horizon_s: float = quantity(120.0, "s", "Simulated time.", low=0.1, high=604_800)
    warmup_s: float = quantity(
        30.0,
        "s",
        "Start of the steady-state window; earlier requests are left out of it.",
        low=0,
        high=604_800,
    )
    step_s: float = quantity(
        0.005, "s", "Step of the clock: how stale what flows backwards may be.", low=0.001, high=1.0
    )
    supernode: Supernode = Supernode()
    workload: Workload = Workload()
    deployment: Deployment = Deployment()
    front_end: FrontEnd = FrontEnd()
    router: Router = Router()
    memory_pool: MemoryPool = MemoryPool()
    experts: Experts = Experts()
    slo: Slo = Slo()

    @model_validator(mode="after")
    def _sections_agree(self) -> Scenario:
        for problem in disagreements(self):
            raise ValueError(problem)
        return self


def disagreements(s: Scenario) -> list[str]:
    """Sentences about fields that are each in bounds but cannot hold together."""
    found = []
    if s.warmup_s >= s.horizon_s:
        found.append(f"warmup_s = {s.warmup_s:g} s must end before horizon_s = {s.horizon_s:g} s")
    if s.step_s > s.horizon_s:
        found.append(f"step_s = {s.step_s:g} s must not exceed horizon_s = {s.horizon_s:g} s")
    used = npus_used(s)
    if used > s.supernode.npus:
        found.append(
            f"deployment needs {used} NPUs but supernode has {s.supernode.npus} "
            f"({s.supernode.nodes} nodes x {s.supernode.npus_per_node}): "
            "add nodes or take fewer or smaller instances"
        )
    if s.workload.arrivals == "trace" and not s.workload.trace.digest:
        found.append("workload.arrivals = trace needs workload.trace: load a trace file first")
    return found


def npus_used(s: Scenario) -> int:
    """NPUs that the deployment's instances occupy."""
    return sum(count * npus for _, count, npus in pools(s))


def pools(s: Scenario) -> list[tuple[str, int, int]]:
    """The pools that the deployment's mode uses: (role, instances, NPUs of an instance)."""
    d = s.deployment
    if d.mode == "colocated":
        return [("colocated", d.colocated.instances, d.colocated.npus_per_instance)]
    prefill = ("prefill", d.prefill.instances, d.prefill.npus_per_instance)
    decode = ("decode", d.decode.instances, d.decode.npus_per_instance)
    return {"prefill_only": [prefill], "decode_only": [decode]}.get(d.mode, [prefill, decode])


def canonical(s: Scenario) -> str:
    """The scenario as JSON with sorted keys: equal scenarios give equal text."""
    body = {"schema": SCHEMA_VERSION, "scenario": s.model_dump(mode="json")}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def scenario_digest(s: Scenario) -> str:
    """SHA-256 (hex) of the canonical form: the scenario's id."""
    return hashlib.sha256(canonical(s).encode()).hexdigest()


def parse_scenario(data: dict[str, Any]) -> Scenario:
    """A scenario from nested plain values; raises SpecError with one sentence."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise SpecError(explain(error)) from None


def explain(error: ValidationError) -> str:
    """The first problem of a validation error as one sentence a person can act on."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{where} is not a field of a scenario"
    if not where:
        return message
    given = repr(first["input"])
    if len(given) > LONGEST_ECHO:
        given = given[:LONGEST_ECHO] + "..."
    if first["type"] == "string_pattern_mismatch":
        return f"{where} = {given} {PATTERNS[first['ctx']['pattern']]}"
    if first["type"] in WRONG_KINDS:
        return f"{where} = {given} {WRONG_KINDS[first['type']]}"
    unit = field_unit(where)
    bound = message.removeprefix("Input ")
    return f"{where} = {given} {bound}" + (f" {unit}" if unit else "")


def field_info(path: str) -> Any:
    """The declaration of a field by dotted path, or None when there is no such field."""
    model: Any = Scenario
    info = None
    for part in path.split("."):
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return None
        info = fields[part]
        model = info.annotation
    return info


def field_unit(path: str) -> str:
    """Unit of a field by dotted path, '' when it has none."""
    info = field_info(path)
    return str((info.json_schema_extra or {}).get("unit", "")) if info is not None else ""


def with_overrides(s: Scenario, settings: dict[str, Any]) -> Scenario:
    """A scenario with fields replaced by dotted path; raises SpecError on an unknown path."""
    data = s.model_dump(mode="json")
    for path, value in settings.items():
        *parents, leaf = path.split(".")
        here = data
        for part in parents:
            if not isinstance(here.get(part), dict):
                raise SpecError(f"{path} is not a field of a scenario")
            here = here[part]
        if leaf not in here:
            raise SpecError(f"{path} is not a field of a scenario")
        here[leaf] = value
    return parse_scenario(data)
