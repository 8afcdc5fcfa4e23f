"""What an engine needs to know of a deployment, the same for every engine; and the start check."""

import math
from dataclasses import dataclass, replace

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.model.shape import load_shape
from twin.scenario import Scenario, offloaded_share, serving, sharing
from twin.scenario.groups import Pool
from twin.steady import assemble

FIRST_PORT, RPC_PORT, KV_PORT = 7100, 12321, 36000
# The largest batch that vLLM captures by itself; SGLang captures up to --cuda-graph-max-bs.
# [vLLM, compilation config: the smaller of 512 and twice --max-num-seqs]
CAPTURED = 512


@dataclass(frozen=True, slots=True)
class Worker:
    """One kind of instance, in ranks (dies or GPUs)."""

    role: str
    instances: int
    ranks: int  # of an instance
    nodes: int  # of an instance
    tensor_parallel: int  # ranks that share one request's attention by heads
    sequences: int  # requests of a data-parallel rank, at most
    tokens: int  # of one pass of a data-parallel rank, at most
    drafts: int
    experts: bool = True  # the model has routed ones
    weights: str = ""  # their number format
    experts_tp: int = 1  # ranks that hold a part of each of their experts
    stages: int = 1  # that have a part of the layers each
    prefill_cp: int = 1  # parts of a prompt, each on ranks of its own
    decode_cp: int = 1  # of `tensor_parallel`, ranks that share out a request's KV by tokens

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks of an instance."""
        return self.ranks // (self.tensor_parallel * self.prefill_cp * self.stages)

    @property
    def rows(self) -> int:
        """Tokens of the largest decode-only pass of a data-parallel rank."""
        return self.sequences * (1 + self.drafts)

    @property
    def graphs(self) -> list[int]:
        """Token counts of passes with captured graphs: up to the largest batch, 16 sizes."""
        step = 1 + self.drafts
        most = self.sequences
        sizes = {step * max(1, round(most * k / 16)) for k in range(1, 17)}
        return sorted(sizes)


def workers(s: Scenario, facts: Facts) -> list[Worker]:
    """Kinds of instances of a deployment. Raises ValueError if ranks do not fill nodes."""
    experts, found = "experts" in load_shape(facts, s.deployment.model).stages, []
    for pool in serving(s).values():
        own = _worker(s, pool, load_chip(facts, pool.chip).dies_per_npu)
        found.append(replace(own, experts=experts, weights=pool.precision.weights))
    return found


def _worker(s: Scenario, pool: Pool, dies: int) -> Worker:
    """Launch sizes of one pool's engine: processes, ranks and degrees of parallelism."""
    d, ranks, per_node = s.deployment, pool.npus * dies, s.supernode.npus_per_node * dies
    if ranks > per_node and ranks % per_node:
        raise ValueError(
            f"a {pool.role} instance of {pool.npus} NPUs does not fill nodes of "
            f"{s.supernode.npus_per_node}: engines start the same number of ranks on every node, "
            f"take a multiple of {s.supernode.npus_per_node} NPUs"
        )
    tp, drafts = pool.own.tp_dies * pool.prompt_ranks, d.decode.mtp_draft_tokens
    context = pool.own.cp_dies
    prefill_cp, decode_cp = (context, 1) if pool.role == "prefill" else (1, context)
    sequences = max(1, round(d.decode.batch_per_npu / dies * tp))
    tokens = sequences * (1 + drafts)
    if pool.role == "prefill":
        tokens = d.prefill.chunk_tokens or round(
            d.prefill.tokens_per_npu / dies * tp * prefill_cp * pool.own.pp_stages
        )
        sequences = max(1, round(tokens / max(s.workload.input_tokens, 1)))
    elif pool.role == "colocated":
        tokens += round(d.colocated.chunk_tokens_per_npu / dies * tp)
    if ranks // pool.own.pp_stages % (tp * prefill_cp):
        raise ValueError(
            f"{tp * prefill_cp} dies that share a prompt do not divide the {ranks} of a "
            f"{pool.role} instance: take {math.gcd(tp * prefill_cp, ranks)}"
        )
    return Worker(pool.role, pool.instances, ranks, -(-ranks // per_node), tp, sequences, tokens,
                  drafts, experts_tp=pool.own.experts_tp, stages=pool.own.pp_stages,
                  prefill_cp=prefill_cp, decode_cp=decode_cp)  # fmt: skip


def left_out(s: Scenario) -> list[str]:
    """Settings of a scenario that no engine supports here, each with its replacement."""
    d, notes = s.deployment, []
    if s.models:
        notes.append("Further models: these files start the first; each other one is a scenario of "
                    "its own.")  # fmt: skip
    roles = serving(s)
    if "prefill" in roles and roles["prefill"].own.attention == "sp_tp_sp":
        notes.append("Staged prefill (SP-TP-SP): engines start data-parallel attention instead.")
    if any(pool.experts for pool in roles.values()):
        notes.append("Attention/FFN disaggregation: experts stay with attention.")
    if sharing(s):
        notes.append("Prefill on decode's NPUs: each pool is started on NPUs of its own.")
    if any(pool.own.experts_tp > 1 for pool in roles.values()):
        notes.append("Over how many dies experts are split: vLLM splits them over all of an "
                    "instance.")  # fmt: skip
    if offloaded_share(s):
        notes.append("Attention offload: all attention stays on decode's own dies.")
    if roles.keys() != {"prefill"} and d.decode.swap_gb_per_die:
        notes.append("Swap of preempted requests: vLLM-Ascend and SGLang compute them again.")
    if s.memory_pool.enabled and s.memory_pool.scope != "local":
        notes.append("The memory pool over nodes: each instance has its own prefix cache; a shared "
                    "store (Mooncake, HiCache) has a configuration of its own.")  # fmt: skip
    if "colocated" in roles and d.colocated.prompt_delay:
        notes.append("Prompts that wait for other ranks: vLLM-Ascend begins each at once.")
    if "colocated" in roles and d.colocated.receive_every > 1:
        notes.append("Prompts that are received once in several iterations: vLLM looks for them "
                    "before each.")  # fmt: skip
    if "prefill" in roles and d.prefill.chunk_evening:
        notes.append("How far later pieces of a prompt are shorter: SGLang reads it from "
                     "SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR.")  # fmt: skip
    if d.precision.kv == "int8":
        notes.append("8-bit KV: checkpoints with KV scales are needed, the cache is BF16 here.")
    if d.placement != "packed":
        notes.append(f"Placement {d.placement}: which nodes an instance gets is the scheduler's.")
    notes.append(f"Router {s.router.policy}: proxies have policies of their own.")
    if s.experts.balancing.policy not in ("none", "oracle"):
        notes.append("The interval of rebalancing: engines count iterations, not seconds.")
    if s.elastic.controller != "fixed":
        notes.append("The controller of instances: counts are those at the start.")
    if s.admission.order != "fifo" or s.admission.shed_at or s.tenants:
        notes.append("Admission and tenants: a gateway in front has to do this.")
    return notes


def start_check(s: Scenario, facts: Facts, found: list[Worker]) -> list[str]:
    """Memory of a die by pool, captured graphs, ports. Raises ValueErrors of the pricing."""
    costs, notes = assemble(s, facts).costs, []
    for worker in found:
        role = getattr(costs, f"{worker.role}_role")
        budget = role.memory
        notes.append(
            f"{worker.role}: weights {budget.weights / 1e9:.1f} GB, exchange buffers "
            f"{budget.buffers / 1e9:.1f} GB, reserved for graphs and the runtime "
            f"{budget.reserve / 1e9:.1f} GB, left for KV {budget.kv / 1e9:.1f} GB of "
            f"{budget.hbm / 1e9:.0f} GB."
        )
        if worker.role != "prefill":
            too_many_rows = worker.rows > CAPTURED
            notes.append(
                f"{worker.role}: graphs are captured up to {worker.graphs[-1]} tokens, the whole "
                f"batch of a rank; " + (
                    f"an engine left alone captures {CAPTURED} and runs larger batches eagerly."
                    if too_many_rows else "one request more falls back to eager launches."
                )
            )  # fmt: skip
    most = max(worker.data_parallel // worker.nodes for worker in found)
    notes.append(f"Ports of a node: {FIRST_PORT} to {FIRST_PORT + most - 1}, {RPC_PORT}, and from "
                f"{KV_PORT} on one a rank for KV.")  # fmt: skip
    return notes
