"""Every field of a scenario changes a result, or is refused with a sentence.

Each field has a context in which it applies and values to try there; a field that is not in the
table fails the first test. Every choice of a list must differ from every other. Where a field's
declared condition does not hold, it must change nothing.
"""

from ast import literal_eval
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.draws import some
from tests.engine.small import BASE, recorded, small
from twin.engine import balancing
from twin.engine.simulate import result_digest, simulate
from twin.facts import Facts
from twin.lab.library import load_facts
from twin.policies.controllers import set_controller_loader
from twin.scenario import Scenario, fields, json_text, with_overrides

DESCRIPTIVE = {
    "name",
    "slo.share",  # how a run is judged, no figure of it: tests/lab/test_capacity.py
    "question",
    "source",
    "workload.trace.name",
    "experts.counts.name",
    "elastic.own.name",
}
DIGEST = "0" * 64
JUDGED = (
    "slo_attainment",
    "ttft_s_mean",
    "tpot_s_mean",
    "e2e_s_mean",
    "joules_per_token",
    "cost_per_million_tokens",
)  # of the steady state

# What a field needs around it to matter.
PLAIN: dict[str, Any] = {"horizon_s": 2.0, "warmup_s": 0.5}
PREFILL = PLAIN | {"deployment.mode": "prefill_only"}
DECODE = PLAIN | {"deployment.mode": "decode_only"}
COLOCATED = PLAIN | {"deployment.mode": "colocated", "workload.rate_req_per_s": 150.0}
STEPPED = PLAIN | {"workload.profile.shape": "step", "workload.profile.at_s": 1.0}
REPLAY = PLAIN | {
    "workload.arrivals": "trace",
    "workload.trace.digest": DIGEST,
    "workload.rate_req_per_s": 30.0,
}
LOOP = PLAIN | {"workload.arrivals": "closed_loop", "workload.concurrency": 20}
REUSE = PLAIN | {"workload.prefix": "shared", "workload.rate_req_per_s": 80.0}
WEIGHED = REUSE | {
    "memory_pool.scope": "local",
    "router.policy": "weighted",
    "workload.rate_req_per_s": 300.0,
}
APART = PLAIN | {
    "supernode.supernodes": 2,
    "supernode.nodes": 2,
    "workload.lengths": "sharegpt",
    "workload.rate_req_per_s": 200.0,
}
SESSIONS = PLAIN | {
    "workload.prefix": "sessions",
    "workload.turn_gap_s": 0.3,
    "workload.rate_req_per_s": 80.0,
}
WAITING = SESSIONS | {
    "workload.turns": "wait",
    "workload.follow_up_probability": 0.8,
    "horizon_s": 4.0,
}
# More than the machine serves, of clients that give up after tenths of a second.
HASTY = PLAIN | {
    "workload.rate_req_per_s": 600.0,
    "workload.lengths": "azure-2023-conv",
    "deployment.prefill.tokens_per_npu": 512,
    "clients.timeout_s": 0.2,
    "clients.retries": 2,
    "clients.backoff_s": 0.1,
}
FLOODED = HASTY | {"clients.timeout_s": 0.0, "clients.retries": 0}
PAIR = [
    {"name": "a", "share": 10.0, "weight": 2.0, "pool_share": 0.5},
    {"name": "b", "priority": 1},
]
TENANTS = FLOODED | {"tenants": PAIR}
BUSY = PREFILL | {"workload.rate_req_per_s": 400.0, "deployment.prefill.tokens_per_npu": 1024}
# A model whose time is in its operators, not in their launches.
R1 = PLAIN | {
    "deployment.model": "deepseek-r1",
    "supernode.nodes": 8,
    "deployment.prefill.npus_per_instance": 16,
    "deployment.decode.npus_per_instance": 16,
    "deployment.mode": "decode_only",
    "workload.output_tokens": 30,
}
HOT = R1 | {
    "deployment.decode.batch_per_npu": 64,
    "workload.rate_req_per_s": 300.0,
    "workload.output_tokens": 15,
}
R1_PREFILL = R1 | {"deployment.mode": "prefill_only"}
ALONE = HOT | {"deployment.decode.microbatch": "off"}
# So many dies that the shared expert has some of its own.
WIDE = PLAIN | {
    "deployment.model": "deepseek-r1",
    "deployment.mode": "decode_only",
    "supernode.nodes": 20,
    "deployment.decode.instances": 1,
    "deployment.decode.npus_per_instance": 160,
    "workload.output_tokens": 20,
}

# Things that break in the middle of a short run.
HIT = PLAIN | {
    "faults": [{"at_s": 0.6, "element": "die 1.1.0"}],
    "recovery.detection_s": 0.1,
    "recovery.in_place_s": 0.3,
    "recovery.restart_s": 0.6,
    "workload.rate_req_per_s": 200.0,
}
SERVER_LOST = REUSE | HIT | {"faults": [{"at_s": 0.6, "element": "node 3"}]}
# Expert popularity that moves, and a balancer that follows it: of 26 layers, where R1 has 58.
MOVING = HOT | {
    "deployment.model": "deepseek-v2-lite",
    "experts.drift_s": 0.5,
    "experts.redundant": 16,
}
BALANCED = MOVING | {
    "experts.balancing.policy": "periodic",
    "experts.balancing.interval_s": 0.4,
    "experts.balancing.window_s": 0.3,
    "experts.balancing.threshold": 1.1,
}

# A node without an NPU, one of slow links, and uplinks that cannot carry what leaves a node: so it
# tells where an instance sits.
SEATED = HOT | {
    "supernode.l1_uplinks": 2,
    "supernode.edits": [
        {"element": "NPU 0.1", "capacity_factor": 0.0},
        {"element": "node 4", "latency_factor": 5.0},
    ],
    "deployment.seats": [{"role": "decode", "index": 0, "element": "NPU 1.3"}],
}

# Nodes of a second kind, for half of the deployment.
KIND = {"chip": "ascend-950dt", "nodes": 2}
KINDS = PLAIN | {"supernode.kinds": [KIND]}
CPUS = {"chip": "none", "nodes": 1}
# NICs on rails of leaves and spines, with one slow spine: adaptive routing keeps clear of it.
RAILS = PLAIN | {
    "deployment.model": "deepseek-r1",
    "deployment.prefill.npus_per_instance": 16,
    "deployment.decode.npus_per_instance": 16,
    "supernode.machine": "hgx-h800",
    "supernode.chip": "h800",
    "supernode.nodes": 8,
    "supernode.scale_up": "node",
    "supernode.sub_planes": 4,
    "supernode.ub_link_gb_per_s": 50.0,
    "supernode.edits": [
        {"element": f"leaf 0.{rail}", "to": "spine 0.0", "capacity_factor": 0.02}
        for rail in range(8)
    ],
}

SMALL_POOL = REUSE | {"memory_pool.gb_per_node": 0.01, "memory_pool.ssd_gb_per_node": 0.0}
# Room for popular prefixes, but not for them and what every prompt has of its own.
CROWDED_POOL = SMALL_POOL | {
    "memory_pool.gb_per_node": 0.1,
    "memory_pool.ttl_s": 0.2,
    "workload.prefix_groups": 32,
}
# Load that comes and goes, and NPUs for it.
MOVES = PLAIN | {
    "horizon_s": 24.0,
    "workload.rate_req_per_s": 60.0,
    "workload.output_tokens": 300,
    "workload.profile.shape": "spike",
    "workload.profile.low": 0.2,
    "workload.profile.high": 8.0,
    "workload.profile.at_s": 3.0,
    "workload.profile.lasts_s": 4.0,
    "elastic.controller": "queue",
    "elastic.npus": 32,
    "elastic.high": 0.2,
    "elastic.low": 0.1,
    "elastic.interval_s": 1.0,
    "elastic.metrics_age_s": 0.2,
    "elastic.cool_down_s": 1.0,
    "elastic.shrink_after_s": 1.0,
    "elastic.schedule": [
        {"at_s": 4.0, "prefill": 3, "decode": 1},
        {"at_s": 12.0, "prefill": 1, "decode": 2},
    ],
}
# One stops and comes back, and one comes to nodes that have never held the model.
COMES = MOVES | {
    "elastic.controller": "schedule",
    "elastic.schedule": [{"at_s": 1.0, "prefill": 2, "decode": 1},
                         {"at_s": 5.0, "prefill": 2, "decode": 3}],
}  # fmt: skip
# No request for seconds in its middle.
GONE = MOVES | {
    "elastic.least_instances": 0,
    "workload.profile.low": 0.0001,
    "workload.profile.high": 1.0,
    "workload.profile.at_s": 8.0,
}
# A further model on the NPUs that the first one leaves.
FURTHER = {"name": "b", "deployment": BASE.deployment.model_dump(mode="json"),
           "workload": small(CROWDED_POOL).workload.model_dump(mode="json")}  # fmt: skip
EVERY: list[Any] = []  # every choice that is declared
FIELDS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "seed": (PLAIN, [1, 2]),
    "horizon_s": (PLAIN, [2.0, 3.0]),
    "warmup_s": (PLAIN, [0.5, 1.0]),
    "start": (PLAIN, ["steady", "empty"]),
    "step_s": (LOOP, [0.005, 0.05]),
    "supernode.chip": (PLAIN, ["ascend-910c", "h800"]),
    "supernode.machine": (
        HOT | {"supernode.nodes": 48},
        ["cloudmatrix384", "dragonfly", "full-mesh", "atlas-900-a3", "torus-3d"],
    ),
    "supernode.l2_levels": (
        HOT | {"supernode.nodes": 12, "supernode.l2_ports_per_chip": 8},
        [2, 1],
    ),
    "supernode.dimensions": (
        HOT | {"supernode.nodes": 8, "supernode.machine": "full-mesh",
               "supernode.dimensions": "8x1", "supernode.ub_link_gb_per_s": 4.0},
        ["8x1", "2x4"],
    ),
    "supernode.supernodes": (SMALL_POOL, [1, 2]),
    "supernode.edits": (R1, [[], [{"element": "sub-plane 3", "capacity_factor": 0.1}],
                             [{"element": "node 0", "latency_factor": 5.0}],
                             [{"element": "nobody"}]]),
    "supernode.kinds": (
        REUSE | {"deployment.decode.chip": "ascend-950dt", "cost.price_per_npu_hour": 1.0},
        [[KIND], [], [KIND, CPUS], [KIND, CPUS | {"cpus_per_node": 1}],
         [KIND, CPUS | {"npu_w": 900.0}], [KIND, CPUS | {"price_per_npu_hour": 2.0}],
         [KIND | {"rdma_gb_per_s_per_npu": 5.0}], [KIND | {"npu_w": 900.0}],
         [KIND | {"price_per_npu_hour": 2.0}], [KIND | {"ub_link_gb_per_s": 2.0}]],
    ),
    "supernode.nodes": (REUSE | {"memory_pool.layout": "block"}, [4, 5]),
    "supernode.npus_per_node": (R1 | {"supernode.scale_up": "node"}, [8, 16]),
    "supernode.cpus_per_node": (REUSE | {"memory_pool.layout": "block"}, [4, 1]),
    "supernode.scale_up": (R1, EVERY),
    "supernode.sub_planes": (HOT, [7, 3]),
    "supernode.ub_link_gb_per_s": (HOT, [28.0, 5.0]),
    "supernode.l1_uplinks": (HOT, [16, 2]),
    "supernode.l2_ports_per_chip": (HOT, [48, 4]),
    "supernode.rdma_gb_per_s_per_npu": (PLAIN, [50.0, 5.0]),
    "supernode.vpc_gb_per_s_per_node": (PLAIN | {"deployment.kv_transfer_plane": "vpc"},
                                        [50.0, 5.0]),
    # With a slow link, what keeps the fullest link low is no split by the capacity ahead.
    "supernode.ub_routing": (
        HOT | {"supernode.edits": [{"element": "L1 0.3", "to": "L2 3.0", "capacity_factor": 0.1}]},
        ["as_built", "ecmp", "hashed"],
    ),
    "supernode.rdma_routing": (RAILS, ["as_built", "ecmp", "hashed"]),
    "workload.arrivals": (PLAIN | {"workload.cv": 3.0, "workload.trace.digest": DIGEST}, EVERY),
    "workload.rate_req_per_s": (PLAIN, [40.0, 50.0]),
    "workload.cv": (PLAIN | {"workload.arrivals": "gamma"}, [1.0, 3.0]),
    "workload.concurrency": (LOOP, [20, 21]),
    "workload.think_s": (LOOP, [0.0, 0.2]),
    "workload.ramp_s": (LOOP, [0.0, 0.5]),
    "workload.lengths": (PLAIN, ["fixed", "range", "azure-2023-conv", "servegen-deepseek-r1"]),
    "workload.shortest": (PLAIN | {"workload.lengths": "range"}, [0.8, 0.0]),
    "workload.input_tokens": (PLAIN, [1000, 1001]),
    "workload.output_tokens": (PLAIN, [40, 41]),
    "workload.prefix": (SESSIONS, EVERY),
    "workload.shared_fraction": (REUSE, [0.5, 0.8]),
    "workload.prefix_groups": (REUSE, [64, 2]),
    "workload.follow_up_probability": (SESSIONS, [0.4, 0.8]),
    "workload.turn_gap_s": (SESSIONS, [0.3, 0.6]),
    "workload.turns": (WAITING, EVERY),
    "workload.tool_share": (WAITING, [0.0, 0.5]),
    "workload.tool_gap_s": (WAITING | {"workload.tool_share": 0.5}, [0.1, 0.2]),
    "clients.timeout_s": (HASTY, [0.2, 0.3]),
    "clients.answer_timeout_s": (HASTY, [0.0, 0.4]),
    "clients.retries": (HASTY, [2, 0]),
    "clients.backoff_s": (HASTY, [0.1, 0.2]),
    "clients.backoff_most_s": (HASTY, [8.0, 0.05]),
    "tenants": (FLOODED | {"admission.order": "fair"},
                [PAIR, [], [PAIR[0], PAIR[1] | {"rate_req_per_s": 20.0}],
                 [PAIR[0] | {"in_flight": 50}, PAIR[1]], [PAIR[0] | {"pool_share": 0.9}, PAIR[1],
                 {"name": "c", "pool_share": 0.2}]]),
    "models": (CROWDED_POOL, [
        [], [FURTHER], [FURTHER | {"pool_share": 0.9}],
        [FURTHER | {"workload": FURTHER["workload"] | {"rate_req_per_s": 20.0}}],
        [FURTHER, FURTHER],
    ]),
    "admission.order": (TENANTS, EVERY),
    "admission.shed_at": (FLOODED, [0.0, 0.02]),
    "admission.rate_req_per_s": (FLOODED, [0.0, 100.0]),
    "admission.in_flight": (FLOODED, [0, 100]),
    "workload.prompts": (PLAIN, [0, 30]),
    "workload.profile.shape": (STEPPED | {"workload.profile.lasts_s": 0.3}, EVERY),
    "workload.profile.low": (STEPPED, [0.5, 0.2]),
    "workload.profile.high": (STEPPED, [1.5, 2.0]),
    "workload.profile.at_s": (STEPPED, [1.0, 0.5]),
    "workload.profile.lasts_s": (STEPPED | {"workload.profile.shape": "spike"}, [0.3, 0.6]),
    "workload.profile.period_s": (PLAIN | {"workload.profile.shape": "day"}, [2.0, 1.0]),
    "workload.profile.begins_s": (
        PLAIN | {"workload.profile.shape": "day", "workload.profile.period_s": 2.0}, [0.0, 1.0]),
    "workload.profile.pieces": (
        PLAIN, [[], [{"at_s": 1.0, "rate": 0.5}], [{"at_s": 1.2, "rate": 0.5}],
                [{"at_s": 1.0, "input": 2.0}], [{"at_s": 1.0, "output": 2.0}]]),
    "workload.profile.lengths": (
        PLAIN | {"workload.profile.shape": "servegen_r1_day", "workload.profile.period_s": 2.0},
        EVERY),
    "workload.trace.digest": (REPLAY, [DIGEST, ""]),
    "workload.trace.rate_multiplier": (REPLAY, [1.0, 2.0]),
    "workload.trace.tree_copies": (REPLAY, [1, 2]),
    "workload.trace.dequantise": (REPLAY, EVERY),
    "workload.trace.max_requests": (REPLAY, [0, 5]),
    "deployment.mode": (REUSE, EVERY),
    "deployment.model": (PLAIN, ["deepseek-v2-lite", "qwen3-235b"]),
    "deployment.stack": (PLAIN, ["plain", "sglang-npu"]),
    "deployment.prefill.instances": (BUSY, [2, 3]),
    "deployment.prefill.npus_per_instance": (PREFILL, [4, 5]),
    "deployment.prefill.chip": (KINDS, ["as_machine", "ascend-950dt", "h20"]),
    "deployment.prefill.on": (PLAIN, EVERY),
    "deployment.prefill.core_share": (
        PLAIN | {"deployment.prefill.on": "decode_npus"}, [0.5, 0.3]),
    "deployment.prefill.tokens_per_npu": (BUSY, [1024, 512]),
    "deployment.prefill.chunk_tokens": (BUSY, [0, 300]),
    "deployment.prefill.chunk_evening": (
        BUSY | {"deployment.prefill.chunk_tokens": 300}, [0.0, 0.5, 1.0]),
    "deployment.prefill.attention": (PREFILL, EVERY),
    "deployment.prefill.tp_dies": (PREFILL | {"deployment.prefill.attention": "tp"}, [2, 4]),
    "deployment.prefill.cp_dies": (PREFILL | {"deployment.prefill.attention": "dp"}, [1, 2, 4]),
    "deployment.prefill.pp_stages": (PREFILL, [1, 2, 4]),
    "deployment.prefill.experts_tp": (PREFILL, [1, 4]),
    "deployment.prefill.dp_balance": (
        BUSY | {"deployment.prefill.attention": "dp", "workload.lengths": "sharegpt"}, EVERY),
    "deployment.prefill.microbatch": (PREFILL, EVERY),
    "deployment.decode.instances": (DECODE, [2, 3]),
    "deployment.decode.npus_per_instance": (DECODE, [4, 5]),
    "deployment.decode.chip": (KINDS, ["as_machine", "ascend-950dt"]),
    "deployment.decode.batch_per_npu": (DECODE | {"workload.rate_req_per_s": 400.0}, [16, 2]),
    "deployment.decode.tp_dies": (DECODE, [1, 2]),
    "deployment.decode.cp_dies": (DECODE | {"deployment.decode.tp_dies": 4}, [1, 2, 4]),
    "deployment.decode.pp_stages": (DECODE | {"deployment.decode.mtp_draft_tokens": 0}, [1, 2, 4]),
    "deployment.decode.experts_tp": (DECODE, [1, 4]),
    "deployment.decode.microbatch": (HOT, ["on", "off"]),
    "deployment.decode.mtp_draft_tokens": (R1, [0, 1, 2]),
    "deployment.decode.mtp_acceptance": (R1 | {"deployment.decode.mtp_draft_tokens": 1},
                                         [0.7, 0.9]),
    "deployment.decode.drafter": (R1 | {"deployment.decode.mtp_draft_tokens": 2}, EVERY),
    "deployment.decode.mtp_dataset": (R1 | {"deployment.decode.mtp_draft_tokens": 1}, EVERY),
    "deployment.decode.rank_choice": (
        PLAIN | {"workload.lengths": "servegen-deepseek-r1", "workload.rate_req_per_s": 400.0},
        EVERY),
    # Ranks of two dies with room for nine requests and 65 tokens of each answer.
    "deployment.decode.swap_gb_per_die": (
        R1 | {"deployment.decode.instances": 1, "deployment.decode.npus_per_instance": 8,
              "deployment.decode.tp_dies": 2, "workload.input_tokens": 4000,
              "workload.output_tokens": 150, "workload.rate_req_per_s": 100.0, "horizon_s": 6.0},
        [0.0, 5.0]),
    "deployment.decode.kv_offload": (R1 | {"workload.input_tokens": 16_000}, [0.0, 0.5, 0.9]),
    "deployment.decode.kv_offload_gb_per_die": (
        DECODE | {"deployment.decode.kv_offload": 0.9, "workload.rate_req_per_s": 400.0},
        [32.0, 0.1]),
    "deployment.decode.kv_offload_hits": (
        R1 | {"deployment.decode.kv_offload": 0.8, "deployment.model": "deepseek-v3-2"},
        [0.6, 0.9]),
    "deployment.decode.expert_npus": (R1, [0, 8]),
    "deployment.decode.attention_offload": (PLAIN, [0.0, 0.3]),
    "deployment.prefill.lent_cores": (
        PLAIN | {"deployment.decode.attention_offload": 0.3}, [0.25, 0.5]),
    "deployment.decode.domains": (R1 | {"deployment.decode.expert_npus": 8}, [1, 3]),
    "deployment.colocated.instances": (COLOCATED, [2, 1]),
    "deployment.colocated.npus_per_instance": (COLOCATED, [4, 5]),
    "deployment.colocated.chip": (
        COLOCATED | {"supernode.kinds": [KIND]}, ["as_machine", "ascend-950dt"]),
    "deployment.colocated.chunk_tokens_per_npu": (COLOCATED, [1024, 100]),
    "deployment.colocated.prompt_dies": (COLOCATED, [1, 4]),
    "deployment.colocated.prompt_delay": (COLOCATED, [0, 30]),
    "deployment.colocated.receive_every": (COLOCATED | {"workload.rate_req_per_s": 10.0}, [1, 30]),
    "deployment.precision.weights": (HOT | {"supernode.chip": "b200"},
                                     ["fp8", "bf16", "int8", "fp4", "mxfp4", "mxfp4_fp8", "w4a8",
                                      "w4a16"]),
    "deployment.precision.prefill_weights": (
        PLAIN | {"workload.rate_req_per_s": 200.0},
        ["as_decode", "bf16", "w4a8", "w4a16", "fp8", "fp4", "mxfp4", "mxfp4_fp8"]),
    "deployment.precision.kv": (PLAIN, EVERY),
    "deployment.precision.prefill_kv": (PLAIN, ["as_decode", "int8"]),
    "deployment.precision.attention": (R1, EVERY),
    "deployment.communication.fused": (R1, EVERY),
    "deployment.communication.early_quantisation": (R1, EVERY),
    "deployment.communication.buffer_tokens_per_die": (HOT, [0, 1]),
    "deployment.optimisations.attention_kernel": (ALONE, EVERY),
    "deployment.optimisations.fused_deep_mla": (ALONE, EVERY),
    "deployment.optimisations.fused_deep_moe": (ALONE, EVERY),
    "deployment.optimisations.shared_expert_scheduling": (WIDE, EVERY),
    "deployment.optimisations.weight_prefetch": (ALONE, EVERY),
    "deployment.optimisations.multi_stream": (ALONE, EVERY),
    "deployment.optimisations.flash_comm": (R1_PREFILL, EVERY),
    "deployment.optimisations.layer_in_parallel": (R1_PREFILL, EVERY),
    "deployment.optimisations.speculation": (R1 | {"deployment.decode.mtp_draft_tokens": 1}, EVERY),
    "deployment.optimisations.host_gap_ms": (R1, [0.0, 0.5]),
    "deployment.kv_transfer_plane": (PLAIN, EVERY),
    "deployment.placement": (SEATED, EVERY),
    "deployment.when_off": (SEATED, EVERY),
    "deployment.first_npu": (SEATED, [0, 17, 1000]),
    "deployment.seats": (
        SEATED | {"deployment.placement": "by_hand"},
        [[], SEATED["deployment.seats"],
         [{"role": "decode", "index": 9, "element": "node 1"}]]),
    "front_end.api_servers": (PLAIN | {"front_end.service_ms": 30.0}, [4, 2]),
    "front_end.service_ms": (PLAIN, [4.0, 5.0]),
    "router.front": (APART, EVERY),
    "router.front_report_s": (APART | {"router.front": "least_loaded"}, [0.0, 0.5]),
    "router.policy": (WEIGHED | {"router.prefix_weight": 3.0},
                      EVERY),
    "router.queue_weight": (WEIGHED, [1.0, 0.0]),
    "router.prefix_weight": (WEIGHED, [1.0, 30.0]),
    "router.kv_weight": (
        WEIGHED | {"router.queue_weight": 0.0, "router.prefix_weight": 0.0}, [1.0, 0.0]),
    "memory_pool.enabled": (REUSE, EVERY),
    "memory_pool.in_hbm": (REUSE, EVERY),
    "memory_pool.scope": (REUSE, EVERY),
    # Of 9 GB a node, sixteen dies lend no whole GiB each.
    "memory_pool.store": (
        CROWDED_POOL | {"memory_pool.gb_per_node": 9.0, "workload.prefix_groups": 4000},
        ["ems", "mooncake", "yuanrong"],
    ),
    "memory_pool.policy": (CROWDED_POOL, EVERY),
    "memory_pool.ttl_s": (CROWDED_POOL | {"memory_pool.policy": "ttl"}, [0.2, 60.0]),
    "memory_pool.gb_per_node": (REUSE, [512.0, 0.01]),
    "memory_pool.block_tokens": (REUSE, [128, 64]),
    "memory_pool.layout": (REUSE, EVERY),
    "memory_pool.layerwise": (REUSE, EVERY),
    "memory_pool.weights_share": (SMALL_POOL | {"memory_pool.gb_per_node": 0.1}, [0.0, 0.95]),
    "memory_pool.ssd_gb_per_node": (REUSE | {"memory_pool.gb_per_node": 0.01}, [4096.0, 0.0]),
    "memory_pool.answers": (WAITING, EVERY),
    "memory_pool.namespaces": (REUSE | {"tenants": PAIR, "workload.prefix_groups": 2}, EVERY),
    "memory_pool.plane": (REUSE, EVERY),
    "experts.popularity": (PLAIN | {"experts.counts.digest": DIGEST}, EVERY),
    "experts.power_law_alpha": (PLAIN | {"experts.popularity": "power_law"}, [1.01, 0.5]),
    "experts.counts.digest": (PLAIN | {"experts.popularity": "imported"}, [DIGEST, ""]),
    "experts.topics": (MOVING, [1, 4]),
    "experts.mix_period_s": (MOVING | {"experts.topics": 4}, [3600.0, 1.0]),
    "experts.drift_s": (MOVING, [0.5, 0.0]),
    "experts.shift_every_s": (MOVING, [0.0, 0.7]),
    "experts.group_limited": (HOT, EVERY),
    "experts.balancing.policy": (BALANCED, EVERY),
    "experts.balancing.interval_s": (BALANCED, [0.4, 0.9]),
    "experts.balancing.window_s": (BALANCED, [0.3, 1.0]),
    "experts.balancing.threshold": (BALANCED | {"experts.balancing.policy": "threshold"},
                                    [1.1, 3.0]),
    "experts.balancing.layers": (BALANCED | {"experts.balancing.policy": "layer_budget"}, [8, 2]),
    "experts.balancing.swap": (BALANCED, EVERY),
    "experts.balancing.move_gb_per_s": (BALANCED, [10.0, 100.0]),
    "experts.skew": (PLAIN, [1.0, 2.0]),
    "experts.redundant": (PLAIN, [32, 8]),
    "experts.placement": (HOT, EVERY),
    "elastic.controller": (MOVES | {"elastic.own.digest": DIGEST}, EVERY),
    "elastic.npus": (MOVES, [32, 16]),
    "elastic.least_instances": (MOVES, [1, 2]),
    "elastic.idle_s": (GONE, [0.5, 100.0]),
    "elastic.idle": (MOVES | {"elastic.controller": "rebalance"}, EVERY),
    "elastic.high": (MOVES, [0.2, 0.4]),
    "elastic.low": (MOVES | {"elastic.controller": "kv"}, [0.15, 0.01]),
    "elastic.interval_s": (MOVES, [1.0, 1.5]),
    "elastic.metrics_age_s": (MOVES, [0.2, 0.9]),
    "elastic.cool_down_s": (MOVES, [1.0, 5.0]),
    "elastic.shrink_after_s": (MOVES, [1.0, 8.0]),
    "elastic.changes_per_hour": (MOVES, [30, 1]),
    "elastic.drain": (COMES | {"workload.profile.shape": "constant"}, EVERY),
    "elastic.weights": (COMES, EVERY),
    "elastic.graphs": (COMES, EVERY),
    "elastic.schedule": (MOVES | {"elastic.controller": "schedule"},
                         [MOVES["elastic.schedule"], COMES["elastic.schedule"], []]),
    "elastic.own.digest": (MOVES | {"elastic.controller": "own"}, [DIGEST, ""]),
    "slo.ttft_s": (PLAIN, [5.0, 0.01]),
    "slo.tpot_ms": (PLAIN, [50.0, 0.2]),
    "cost.price_per_npu_hour": (PLAIN, [1.0, 2.0]),
    "cost.npu_w": (PLAIN, [0.0, 1000.0]),
    "cost.cap_w": (PLAIN, [0.0, 250.0]),
    "faults": (PLAIN, [[], HIT["faults"], [{"at_s": 0.6, "element": "nobody"}]]),
    "recovery.detection_s": (HIT, [0.1, 0.4]),
    "recovery.policy": (HIT, EVERY),
    "recovery.restart_s": (HIT | {"recovery.policy": "restart"}, [0.6, 0.2]),
    "recovery.in_place_s": (HIT, [0.3, 0.6]),
    "recovery.spares": (HIT | {"workload.rate_req_per_s": 400.0}, EVERY),
    "recovery.retries": (HIT, [3, 0]),
    "recovery.lost_blocks": (SERVER_LOST, EVERY),
}  # fmt: skip


MOST = 99  # values of a field: all of them


def values_of(path: str) -> list[Any]:
    """The values to try: those of the table, or every choice."""
    known = fields()[path]
    choices = list(known.options) if known.closed else [True, False]
    return FIELDS[path][1] or choices


def stream():
    chains = [[0, 1, 2], [0, 1, 3], [0, 1, 2], [4, 5, 6], [0, 1, 2], [4, 5, 7]] * 4
    times = [0.05 * (k // 2) for k in range(24)]
    return recorded(times, [500] * 24, [20] * 24, chains)


@cache
def quick_starts() -> Facts:
    """Facts with which instances start within a short run; one object, so that what is priced with
    them is priced once."""
    quick = {"startup.process": 0.6, "startup.compile": 0.8, "startup.regroup": 0.3}
    return load_facts().replaced(quick)


@cache
def answer(text: str) -> tuple[str, str]:
    """What a scenario comes to, or the sentence that refuses it.

    Only what happens to requests counts, and how it is judged: a table that repeats a field's
    value, or a utilisation that divides by it, does not show that the engine heard of it.
    """
    scenario = Scenario.model_validate_json(text)
    trace = stream() if scenario.workload.arrivals == "trace" else None
    counts = (
        1.0 + np.arange(26.0 * 64).reshape(26, 64) % 37 if scenario.experts.counts.digest else None
    )
    try:
        run = simulate(scenario, quick_starts(), trace, counts=counts)
    except ValueError as refusal:
        return "refused", str(refusal)
    assert run.valid, (text, [c for c in run.checks if not c["ok"]])
    requests = result_digest({"requests": run.tables["requests"]})
    return requests, repr([run.summary.get(key) for key in JUDGED])


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    """Popularity that moves is looked at a dozen times a run, a tenth as often as else."""
    monkeypatch.setattr(balancing, "REFRESHES", 12)


@pytest.fixture(autouse=True)
def own_controller():
    """The operator's own controller, which other tests may have taken from elsewhere."""
    set_controller_loader(lambda digest: lambda seen: {"prefill": 3, "decode": 2})


def asked(context: dict[str, Any], path: str, value: Any) -> tuple[str, str]:
    try:
        scenario = small(context | {path: value})
    except ValueError as refusal:
        return "refused", str(refusal)
    return answer(scenario.model_dump_json())


def test_the_table_names_every_field():
    assert {p for p in fields() if "[]" not in p} == set(FIELDS) | DESCRIPTIVE


def test_a_choice_that_is_tried_in_part_does_what_another_does():
    """`auto` does what is faster for the batch at hand, so it equals one of the others.

    Mooncake and MemCache lend segments of one size, and differ by what their own tests say. Every
    recipe is built adaptive. Decode's weights are INT8 here and its KV BF16: prefill's as decode's.
    """
    closed = {path: set(fields()[path].options) for path in FIELDS if fields()[path].closed}
    left = {path: names - set(values_of(path)) for path, names in closed.items()}
    assert {path: names for path, names in left.items() if names} == {
        "deployment.decode.microbatch": {"auto"},
        "deployment.precision.prefill_weights": {"int8"},
        "deployment.precision.prefill_kv": {"bf16"},
        "memory_pool.store": {"memcache"},
        "supernode.ub_routing": {"adaptive"},
        "supernode.rdma_routing": {"adaptive"},
    }


@pytest.mark.parametrize("many", some([2], MOST))
@pytest.mark.parametrize("path", FIELDS)
def test_a_field_changes_a_result_or_is_refused(path, many):
    context, values = FIELDS[path][0], values_of(path)[:many]
    answers = [asked(context, path, value) for value in values]
    assert answers[0][0] != "refused", answers[0]
    for (a, one), (b, other) in combinations(zip(values, answers, strict=True), 2):
        assert one != other, f"{path}: {a} and {b} give the same result"
    for kind, sentence in answers:
        if kind == "refused":
            assert len(sentence) > 20 and "\n" not in sentence


CONDITIONS = [(path, fields()[path].conditions[-1]) for path in FIELDS if fields()[path].conditions]


@pytest.mark.parametrize(
    "at",
    some(CONDITIONS[::6], *(at for at in CONDITIONS if at not in CONDITIONS[::6])),
    ids=lambda at: at[0],
)
def test_a_field_changes_nothing_where_its_condition_does_not_hold(at):
    path, condition = at
    on = fields()[condition.path]
    recipes = ["cloudmatrix384"] if on.files == "machines" else []
    others = recipes or list(on.options) or [True, False, "", "sharegpt"]
    unmet = next(v for v in others if v not in condition.values)
    context = FIELDS[path][0] | {
        "workload.trace.digest": DIGEST,
        condition.path: condition.values[0] if condition.negated else unmet,
    }
    one, other = (asked(context, path, value) for value in values_of(path)[:2])
    if one != other:  # by rounding alone
        assert "refused" not in (one[0], other[0])
        first, second = (literal_eval(answered[1]) for answered in (one, other))
        for a, b in zip(first, second, strict=True):
            assert a == b or a == pytest.approx(b, rel=1e-9, abs=0)


def test_descriptions_change_no_result():
    plain = small(PLAIN)
    told = with_overrides(plain, {"name": "x", "question": "y?", "source": "z"})
    assert json_text(plain) != json_text(told)
    assert answer(plain.model_dump_json()) == answer(told.model_dump_json())


def test_auto_microbatch_is_no_slower_than_either():
    path = "deployment.decode.microbatch"
    auto, on, off = (
        simulate(small(HOT | {path: value}), load_facts()).summary["tpot_s_mean"]
        for value in ("auto", "on", "off")
    )
    assert auto <= min(on, off) * 1.001 and on != off
