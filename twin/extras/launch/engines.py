"""What engines need to know of a deployment, the start check, and their commands. Sources of these:
vLLM-Ascend, pd_disaggregation_mooncake_multi_node.md; vLLM's data-parallel deployment; SGLang,
server_args.py and its Ascend tests; Dynamo, recipes/deepseek-r1/sglang/disagg-16gpu/deploy.yaml."""

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, ScenarioName, Settings, end_with_json, out
from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.lab.ask import scenario_and_trace
from twin.lab.files import write_text
from twin.lab.library import load_facts
from twin.model.roofline import family_of
from twin.model.shape import load_shape
from twin.scenario import Scenario, offloaded_share, pools_by_role, sharing_pool
from twin.scenario.clients import Admission
from twin.scenario.groups import Pool
from twin.scenario.words import numbered
from twin.steady import assemble

FIRST_PORT, RPC_PORT, KV_PORT = 7100, 12321, 36000
# The largest batch that vLLM captures by itself; SGLang captures up to --cuda-graph-max-bs.
# [vLLM, compilation config: the smaller of 512 and twice --max-num-seqs]
CAPTURED = 512


@dataclass(frozen=True, slots=True)
class InstanceKind:
    """What engines need to know of a kind of instance, in ranks (dies)."""

    role: str
    instances: int
    ranks: int  # of an instance
    nodes: int  # of an instance
    tensor_parallel: int  # ranks that share one request's attention by heads
    sequences: int  # requests of a data-parallel rank, at most
    tokens: int  # of one pass of a data-parallel rank, at most
    drafts: int
    experts: bool  # the model has routed ones
    weights: str  # their number format
    experts_tp: int  # ranks that hold a part of each of their experts
    stages: int  # that have a part of the layers each
    prefill_cp: int  # parts of a prompt, each on ranks of its own
    decode_cp: int  # of `tensor_parallel`, ranks that share out a request's KV by tokens

    @property
    def data_parallel(self) -> int:
        """Number of data-parallel ranks of an instance: each serves requests of its own."""
        return self.ranks // (self.tensor_parallel * self.prefill_cp * self.stages)

    @property
    def pass_tokens(self) -> int:
        """Tokens of the largest decode-only pass of a data-parallel rank."""
        return self.batch * (1 + self.drafts)

    @property
    def batch(self) -> int:
        """Most requests of a data-parallel rank in a pass: each stage has a part of them."""
        return -(-self.sequences // self.stages)

    @property
    def graph_sizes(self) -> list[int]:
        """Token counts of passes whose graphs are captured: 16 sizes up to the largest batch."""
        request_tokens = 1 + self.drafts
        request_counts = (round(self.batch * sixteenths / 16) for sixteenths in range(1, 17))
        return sorted({request_tokens * max(1, requests) for requests in request_counts})


def instance_kinds(s: Scenario, facts: Facts) -> list[InstanceKind]:
    """One kind of instance for each pool. Raises LaunchError if its ranks do not fill nodes."""
    has_experts = "experts" in load_shape(facts, s.deployment.model).stages
    return [
        _instance_kind(s, pool, load_chip(facts, pool.chip).dies_per_npu, has_experts)
        for pool in pools_by_role(s).values()
    ]


def _instance_kind(s: Scenario, pool: Pool, dies: int, has_experts: bool) -> InstanceKind:
    """What engines need to know of a pool's instances: ranks, nodes, degrees of parallelism; dies:
    of an NPU; has_experts: whether the model has routed experts. Raises LaunchError."""
    deployment, ranks, node_ranks = s.deployment, pool.npus * dies, s.supernode.npus_per_node * dies
    if ranks > node_ranks and ranks % node_ranks:
        raise LaunchError(
            f"a {pool.role} instance of {numbered(pool.npus, 'NPU')} does not fill nodes of "
            f"{s.supernode.npus_per_node}: engines start the same number of ranks on every node, "
            f"take a multiple of {numbered(s.supernode.npus_per_node, 'NPU')}"
        )
    tp_dies, draft_tokens = pool.own.tp_dies * pool.prompt_ranks, deployment.decode.mtp_draft_tokens
    context_dies = pool.own.cp_dies
    prefill_cp, decode_cp = (context_dies, 1) if pool.role == "prefill" else (1, context_dies)
    sequences = max(1, round(deployment.decode.batch_per_npu / dies * tp_dies))
    pass_tokens = sequences * (1 + draft_tokens)
    if pool.role == "prefill":
        pass_tokens = deployment.prefill.chunk_tokens or round(
            deployment.prefill.tokens_per_npu / dies * tp_dies * prefill_cp * pool.own.pp_stages
        )
        sequences = max(1, round(pass_tokens / max(s.workload.input_tokens, 1)))
    elif pool.role == "colocated":
        pass_tokens += round(deployment.colocated.chunk_tokens_per_npu / dies * tp_dies)
    if pool.role != "prefill":
        sequences *= pool.own.pp_stages  # of which a pass has a part
    if ranks // pool.own.pp_stages % (tp_dies * prefill_cp):
        raise LaunchError(
            f"{numbered(tp_dies * prefill_cp, 'die')} that share a prompt do not divide the "
            f"{ranks} of a {pool.role} instance: take {math.gcd(tp_dies * prefill_cp, ranks)}"
        )
    return InstanceKind(pool.role, pool.instances, ranks, -(-ranks // node_ranks), tp_dies,
                        sequences, pass_tokens, draft_tokens, has_experts, pool.precision.weights,
                        pool.own.experts_tp, pool.own.pp_stages, prefill_cp, decode_cp)  # fmt: skip


def rebalances_experts(s: Scenario) -> bool:
    """Whether an engine's own balancer places experts anew while it serves."""
    return s.experts.balancing.policy not in ("none", "oracle")


def settings_left_out(s: Scenario, has_experts: bool) -> list[str]:
    """Sentences on settings that launch files cannot express, each with what happens instead."""
    deployment, pool_by_role = s.deployment, pools_by_role(s)
    colocated = deployment.colocated if "colocated" in pool_by_role else None
    prefill = pool_by_role.get("prefill")
    applies_by_sentence = {
        "Further models: these files start the first; each other one is a scenario of its own.":
            s.models,
        "Staged prefill (SP-TP-SP): engines start data-parallel attention instead.":
            prefill and prefill.own.attention == "sp_tp_sp",
        "Attention/FFN disaggregation: experts stay with attention.":
            any(pool.experts for pool in pool_by_role.values()),
        "Prefill on decode's NPUs: each pool is started on NPUs of its own.": sharing_pool(s),
        "Over how many dies experts are split: vLLM splits them over all of an instance.":
            any(pool.own.experts_tp > 1 for pool in pool_by_role.values()),
        "Attention offload: all attention stays on decode's own dies.": offloaded_share(s),
        "Swap of preempted requests: vLLM-Ascend and SGLang compute them again.":
            pool_by_role.keys() != {"prefill"} and deployment.decode.swap_gb_per_die,
        "KV in host memory: for models with an indexer SGLang's --enable-hisparse; dies hold all "
        "KV here.": any(pool.own.in_host.share for pool in pool_by_role.values()),
        "The memory pool over nodes: each instance has its own prefix cache; a shared store "
        "(Mooncake, HiCache) has a configuration of its own.":
            s.memory_pool.enabled and s.memory_pool.scope != "local",
        "Prompts that wait for other ranks: vLLM-Ascend begins each at once.":
            colocated and colocated.prompt_delay,
        "Prompts that are received once in several iterations: vLLM looks for them before each.":
            colocated and colocated.receive_every > 1,
        "How far later pieces of a prompt are shorter: SGLang reads it from "
        "SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR.": prefill and deployment.prefill.chunk_evening,
        "8-bit KV: checkpoints with KV scales are needed, the cache is BF16 here.":
            deployment.precision.kv == "int8",
        "KV of prefill in another format: engines hand over the format of both.":
            deployment.precision.prefill_kv not in ("as_decode", deployment.precision.kv),
        f"Placement {deployment.placement}: which nodes an instance gets is the scheduler's.":
            deployment.placement != "packed",
        f"Router {s.router.policy}: proxies have policies of their own.": True,
        f"{numbered(s.experts.redundant, 'redundant expert')}: a placement that stays is a file of "
        "its own (SGLang's --init-expert-location); each expert has one copy here.":
            has_experts and s.experts.redundant and not rebalances_experts(s),
        "The interval of rebalancing: engines count iterations, not seconds.":
            rebalances_experts(s),
        "The controller of instances: counts are those at the start.":
            s.elastic.controller != "fixed",
        "Admission and tenants: a gateway in front has to do this.":
            s.admission != Admission() or s.tenants,
    }  # fmt: skip
    return [sentence for sentence, applies in applies_by_sentence.items() if applies]


def start_check(s: Scenario, facts: Facts, kinds: list[InstanceKind], engine: str) -> list[str]:
    """Sentences to check before a start: memory of a die, graphs, ports. Raises ValueError."""
    costs, sentences = assemble(s, facts).costs, []
    for worker in kinds:
        memory = getattr(costs, f"{worker.role}_role").memory
        sentences.append(
            f"{worker.role}: weights {memory.weights / 1e9:.1f} GB, exchange buffers "
            f"{memory.buffers / 1e9:.1f} GB, reserved for graphs and the runtime "
            f"{memory.reserve / 1e9:.1f} GB, left for KV {memory.kv / 1e9:.1f} GB of "
            f"{memory.hbm / 1e9:.0f} GB."
        )
        all_experts = load_shape(facts, s.deployment.model).routed_experts
        all_experts += s.experts.redundant if rebalances_experts(s) else 0
        expert_ranks = worker.ranks // worker.stages // worker.experts_tp
        if engine != "vllm-ascend" and worker.experts and all_experts % expert_ranks:
            sentences.append(
                f"{worker.role}: {all_experts} experts are not the same number on each of "
                f"{numbered(expert_ranks, 'rank')}, which SGLang refuses: take a number of ranks "
                f"that divides {all_experts}."
            )
        if worker.role != "prefill":
            exceeds_captured = worker.pass_tokens > CAPTURED
            sentences.append(
                f"{worker.role}: graphs are captured up to {worker.graph_sizes[-1]} tokens, the "
                f"whole batch of a rank; " + (
                    f"an engine left alone captures {CAPTURED} and runs larger batches eagerly."
                    if exceeds_captured else "one request more falls back to eager launches."
                )
            )  # fmt: skip
    node_ports = max(-(-worker.data_parallel // worker.nodes) for worker in kinds)
    sentences.append(
        f"Ports of a node: {FIRST_PORT} to {FIRST_PORT + node_ports - 1}, {RPC_PORT}, and from "
        f"{KV_PORT} on one a rank for KV."
    )
    return sentences


Value = str | int | float | bool | dict[str, Any] | list[Any]
MODEL, SERVED = "$MODEL", "served"
METHODS = {"mtp": "deepseek_mtp", "eagle3": "eagle3", "ngram": "ngram"}  # vLLM, by drafter
ALGORITHMS = {"mtp": "EAGLE", "eagle3": "EAGLE3", "ngram": "NGRAM"}  # SGLang
MEMORY = 0.9  # of the HBM that an engine may take
HEAD = """\
#!/usr/bin/env bash
# One node of a {role} instance. Set before: MODEL (path of the checkpoint), HEAD_IP (first node of
# the instance), NODE (0 .. {last}), INSTANCE (0 .. {instances}).
set -euo pipefail
: "${{MODEL:?}}" "${{HEAD_IP:?}}" "${{NODE:=0}}" "${{INSTANCE:=0}}"
"""


def command_words(options: Mapping[str, Value]) -> list[str]:
    """Words of a command line: False leaves an option out, True gives it no value, else one."""
    words: list[str] = []
    for flag, value in options.items():
        if value is False:
            continue
        words.append(flag)
        if value is not True:
            words.append(json.dumps(value) if isinstance(value, dict | list) else str(value))
    return words


def _launch_script(worker: InstanceKind, command: str, options: Mapping[str, Value]) -> str:
    """Text of a shell script: the command, an option per line; words with $ are expanded."""

    def quoted(word: str) -> str:
        """A word quoted for the shell; @INSTANCE@ in JSON becomes the instance's number."""
        if word.startswith("$( "):  # a command that may print another option
            return word
        if "$" in word and "{" not in word:
            return f'"{word}"'
        return shlex.quote(word).replace("@INSTANCE@", "'\"$INSTANCE\"'")

    head = HEAD.format(role=worker.role, last=worker.nodes - 1, instances=worker.instances - 1)
    lines = (" ".join(map(quoted, command_words({flag: value}))) for flag, value in options.items())
    return head + " \\\n  ".join([command, *filter(None, lines)]) + "\n"


def vllm_scripts(s: Scenario, kinds: list[InstanceKind], _family: str) -> dict[str, str]:
    """Scripts by file name, one for each kind of instance: `vllm serve` for each of its nodes."""
    script_of, is_balancing = {}, rebalances_experts(s)
    has_cache = s.memory_pool.enabled or s.memory_pool.in_hbm
    degrees = {
        worker.role: {"dp_size": worker.data_parallel, "tp_size": worker.tensor_parallel}
        for worker in kinds
    }
    for worker in kinds:
        if worker.data_parallel % worker.nodes:
            rank_dies = numbered(worker.ranks // worker.data_parallel, "die")
            raise LaunchError(
                f"{worker.role}: {numbered(worker.data_parallel, 'data-parallel rank')} of "
                f"{rank_dies} do not lie evenly on {numbered(worker.nodes, 'node')}, as these "
                "scripts start them: take sglang"
            )
        local_dp = worker.data_parallel // worker.nodes
        options: dict[str, Value] = {
            "--host": "0.0.0.0",  # noqa: S104 - the proxy and other nodes have to reach it
            "--port": FIRST_PORT, "--served-model-name": SERVED, "--trust-remote-code": True,
            "--data-parallel-size": worker.data_parallel, "--data-parallel-size-local": local_dp,
            '$( [ "$NODE" -gt 0 ] && echo --headless )': True,
            "--data-parallel-start-rank": f"$((NODE * {local_dp}))",
            "--data-parallel-address": "$HEAD_IP", "--data-parallel-rpc-port": RPC_PORT,
            "--tensor-parallel-size": worker.tensor_parallel,
            "--enable-expert-parallel": worker.experts and worker.experts_tp == 1,
            "--max-num-seqs": worker.sequences, "--max-num-batched-tokens": worker.tokens,
            "--gpu-memory-utilization": MEMORY,
            "--pipeline-parallel-size": worker.stages > 1 and worker.stages,
            "--prefill-context-parallel-size": worker.prefill_cp > 1 and worker.prefill_cp,
            "--decode-context-parallel-size": worker.decode_cp > 1 and worker.decode_cp,
            "--quantization": worker.weights in ("int8", "w4a8") and "ascend",
            f"--{'' if has_cache else 'no-'}enable-prefix-caching": True,
            "--speculative-config": worker.drafts > 0 and {
                "method": METHODS[s.deployment.decode.drafter],
                "num_speculative_tokens": worker.drafts,
            },
            "--enforce-eager": worker.role == "prefill",
            "--compilation-config": worker.role != "prefill" and {
                "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": worker.graph_sizes,
            },
            "--additional-config": worker.experts and is_balancing and {"eplb_config": {
                "dynamic_eplb": True, "num_redundant_experts": s.experts.redundant,
            }},
            "--kv-transfer-config": len(kinds) > 1 and {  # KV goes from one pool to the other
                "kv_connector": "MooncakeConnectorV1", "kv_port": str(KV_PORT),
                "kv_role": "kv_producer" if worker.role == "prefill" else "kv_consumer",
                "engine_id": "@INSTANCE@", "kv_connector_extra_config": degrees,
            },
        }  # fmt: skip
        has_flash_comm = worker.role == "colocated" and s.deployment.optimisations.flash_comm
        command = f'vllm serve "{MODEL}"'
        if has_flash_comm and worker.tensor_parallel > 1:
            command = f"export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{command}"
        script_of[f"{worker.role}.sh"] = _launch_script(worker, command, options)
    return script_of


def sglang_options(
    s: Scenario, w: InstanceKind, family: str, disaggregated: bool
) -> dict[str, Value]:
    """Options of `sglang.launch_server`, with False for those left out, on a node of instances
    `w`; family: of chips, "ascend" or "nvidia"; disaggregated: prefill and decode are apart."""
    is_ascend, is_prefill, deployment = family == "ascend", w.role == "prefill", s.deployment
    stage_ranks, is_colocated = w.ranks // w.stages, w.role == "colocated"
    colocated = deployment.colocated
    gathers_tokens = w.experts_tp > 1 or not (is_ascend or deployment.communication.fused)
    is_balancing = w.experts and rebalances_experts(s)
    return {
        "--model-path": MODEL, "--served-model-name": SERVED, "--trust-remote-code": True,
        "--host": "0.0.0.0",  # noqa: S104 - the router has to reach it
        "--port": FIRST_PORT, "--dp-size": w.data_parallel,
        "--dist-init-addr": f"$HEAD_IP:{RPC_PORT}", "--nnodes": w.nodes, "--node-rank": "$NODE",
        "--mem-fraction-static": MEMORY,
        # Of all ranks together, as these two options count.
        "--max-running-requests": w.sequences * w.data_parallel,
        "--chunked-prefill-size": w.role != "decode" and w.tokens * w.data_parallel,
        "--disable-radix-cache": not (s.memory_pool.enabled or s.memory_pool.in_hbm),
        "--enable-two-batch-overlap": w.experts and deployment.prefill.microbatch and is_prefill,
        # Without experts: whole copies of the model, each over so many dies.
        "--tp-size": stage_ranks if w.experts else w.tensor_parallel * w.prefill_cp,
        "--ep-size": w.experts and stage_ranks // w.experts_tp,
        "--enable-dp-attention": w.experts and w.data_parallel > 1,
        "--moe-a2a-backend": w.experts and not gathers_tokens and "deepep",
        "--deepep-mode":
            w.experts and not gathers_tokens and ("normal" if is_prefill else "low_latency"),
        "--pp-size": w.stages > 1 and w.stages,
        "--enable-dynamic-chunking": is_prefill and deployment.prefill.chunk_evening > 0.0,
        "--dcp-size": w.decode_cp > 1 and w.decode_cp,
        "--enable-prefill-cp": w.prefill_cp > 1,
        "--attn-cp-size": w.prefill_cp > 1 and w.prefill_cp,
        "--attention-backend": is_ascend and "ascend",
        "--quantization": is_ascend and w.weights in ("int8", "w4a8") and "modelslim",
        "--disable-cuda-graph": is_prefill, "--cuda-graph-max-bs": not is_prefill and w.batch,
        "--speculative-algorithm": w.drafts > 0 and ALGORITHMS[deployment.decode.drafter],
        "--speculative-num-steps": w.drafts > 0 and w.drafts,
        "--speculative-eagle-topk": w.drafts > 0 and 1,
        "--speculative-num-draft-tokens": w.drafts > 0 and 1 + w.drafts,
        "--enable-eplb": is_balancing,
        "--ep-num-redundant-experts": is_balancing and s.experts.redundant,
        "--enable-prefill-delayer": is_colocated and colocated.prompt_delay > 0,
        "--prefill-delayer-max-delay-passes":
            is_colocated and colocated.prompt_delay > 0 and colocated.prompt_delay,
        "--scheduler-recv-interval":
            is_colocated and colocated.receive_every > 1 and colocated.receive_every,
        "--disaggregation-mode": disaggregated and w.role,
        "--disaggregation-bootstrap-port": disaggregated and 30001,
        "--disaggregation-transfer-backend":
            disaggregated and ("ascend" if is_ascend else "mooncake"),
    }  # fmt: skip


def sglang_scripts(s: Scenario, kinds: list[InstanceKind], family: str) -> dict[str, str]:
    """Scripts by file name, one for each kind: `sglang.launch_server` for each node of one."""
    command = "python3 -m sglang.launch_server"
    all_options = {worker: sglang_options(s, worker, family, len(kinds) > 1) for worker in kinds}
    return {
        f"{worker.role}.sh": _launch_script(worker, command, all_options[worker])
        for worker in kinds
    }


def dynamo_manifest(s: Scenario, kinds: list[InstanceKind], family: str) -> dict[str, str]:
    """A manifest for `kubectl apply -f` by file name; Dynamo adds ranks and addresses to it."""
    dynamo_flags = ("--dist-init-addr", "--nnodes", "--node-rank")
    services: dict[str, Any] = {"Frontend": {"componentType": "frontend", "replicas": 1}}
    for worker in kinds:
        options = sglang_options(s, worker, family, len(kinds) > 1)
        arguments = command_words(
            {flag: options[flag] for flag in options if flag not in dynamo_flags}
        )
        services[worker.role] = {
            "componentType": "worker", "replicas": worker.instances,
            "multinode": {"nodeCount": worker.nodes},
            "resources": {"limits": {"gpu": str(worker.ranks // worker.nodes)}},
            "extraPodSpec": {"mainContainer": {
                "image": "your-registry/sglang-runtime:your-tag",
                "command": ["python3", "-m", "dynamo.sglang"],
                "args": ["/model" if word == MODEL else word for word in arguments],
            }},
        }  # fmt: skip
    manifest = {
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "metadata": {"name": "supernode"}, "spec": {"services": services},
    }  # fmt: skip
    return {"deploy.json": json.dumps(manifest, indent=2) + "\n"}


Write = Callable[[Scenario, list[InstanceKind], str], dict[str, str]]
# Chip families of each engine, and the function that writes its files.
ENGINES: dict[str, tuple[tuple[str, ...], Write]] = {
    "vllm-ascend": (("ascend",), vllm_scripts), "sglang": (("ascend", "nvidia"), sglang_scripts),
    "dynamo": (("nvidia",), dynamo_manifest),
}  # fmt: skip


class LaunchError(ValueError):
    """A deployment that an engine cannot start, in one sentence."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch files of a deployment."""

    files: dict[str, str]  # text by name
    left_out: list[str]
    checks: list[str]


def launch_files(s: Scenario, facts: Facts, engine: str) -> Launch:
    """Launch files of a deployment for one of ENGINES. Raises LaunchError."""
    if engine not in ENGINES:
        raise LaunchError(f"{engine} is no engine here: take one of {', '.join(ENGINES)}")
    engine_families, write_files = ENGINES[engine]
    chip_of = {family_of(facts, pool.chip): pool.chip for pool in pools_by_role(s).values()}
    for family, chip in chip_of.items():
        if family not in engine_families:
            engines = [name for name, (runs_on, _) in ENGINES.items() if family in runs_on]
            raise LaunchError(f"{engine} does not run on {chip}: take {' or '.join(engines)}")
    if len(chip_of) > 1:
        raise LaunchError(
            f"launch files are for chips of one family, not for {' and '.join(chip_of.values())}: "
            "write those of each pool alone, first with deployment.mode = prefill_only, then with "
            "deployment.mode = decode_only"
        )
    kinds = instance_kinds(s, facts)
    left_out = settings_left_out(s, any(worker.experts for worker in kinds))
    checks = start_check(s, facts, kinds, engine)
    return Launch(write_files(s, kinds, family), left_out, checks)


def launch(
    scenario: ScenarioName,
    engine: Annotated[str, typer.Option(help="vllm-ascend, sglang or dynamo.")] = "vllm-ascend",
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option(
        help="Write the files to this folder; else they are printed.")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Launch files of a deployment for an engine, what they leave out, and a start check."""
    full_scenario, _ = scenario_and_trace(scenario, settings or [])
    output = launch_files(full_scenario, load_facts(), engine)
    if folder is not None:
        if not folder.is_dir():
            raise typer.BadParameter(f"{folder} is no folder to write to")
        for name, file_text in output.files.items():
            write_text(folder / name, file_text)
    end_with_json(asdict(output), as_json)
    for name, file_text in output.files.items():
        out.print(escape(f"wrote {folder / name}" if folder else f"# {name}\n{file_text}"),
                  soft_wrap=True, highlight=False)  # fmt: skip
    for title, sentences in (("Not expressed", output.left_out), ("Start check", output.checks)):
        out.print(title, style="bold")
        for sentence in sentences:
            out.print(escape(f"- {sentence}"), soft_wrap=True, highlight=False)
