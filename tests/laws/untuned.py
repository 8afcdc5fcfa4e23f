"""Causes planted to look at, not to tune on: `python -m tests.laws.untuned` says which are named.

Reported apart from tests/laws/test_advice.py. `UNTUNED` were chosen before any of them was run;
who changes an explanation because of one of them moves it to `LOOKED_AT` and draws another.
"""

import sys

from tests.laws.advice import LITE, R1, Planted, planted
from twin.lab.explain.explain import explain
from twin.lab.library import load_facts

UNTUNED: dict[str, Planted] = {
    "weights in BF16": Planted(LITE, 0.6, {"deployment.precision.weights": "bf16"}, ("weights",)),
    "a restart that takes a minute": Planted(
        LITE, 0.5, {"faults": [{"at_s": 10.0, "element": "die 1.0.0", "kind": "fail"}],
                    "recovery.policy": "restart", "recovery.restart_s": 60.0,
                    "horizon_s": 40.0, "warmup_s": 6.0}, ("fault", "recovery")),
    "attention kernel of long contexts": Planted(
        {**R1, "workload": {"input_tokens": 16_384, "output_tokens": 512}}, 0.6,
        {"deployment.optimisations.attention_kernel": "flash_attention"}, ("switches",)),
    "too many NPUs for experts alone": Planted(
        R1, 0.5, {"deployment.decode.expert_npus": 24}, ("afd",)),
    "UB that ends at the node": Planted(R1, 0.4, {"supernode.scale_up": "node"}, ("links",)),
    "a memory pool of half a gigabyte": Planted(
        LITE, 0.9, {"memory_pool.gb_per_node": 0.5, "memory_pool.ssd_gb_per_node": 0.0,
                    "workload.prefix": "sessions"}, ("memory_pool",)),
}  # fmt: skip
LOOKED_AT: dict[str, Planted] = {
    "few prompt tokens beside decode": Planted(
        LITE, 0.5, {"deployment.mode": "colocated", "deployment.colocated.instances": 3,
                    "deployment.colocated.npus_per_instance": 8,
                    "deployment.colocated.chunk_tokens_per_npu": 8}, ("chunk",)),
    "KV of long conversations over the slow plane": Planted(
        LITE, 0.8, {"memory_pool.plane": "vpc", "supernode.vpc_gb_per_s_per_node": 1.0,
                    "workload.prefix": "shared", "workload.shared_fraction": 0.9},
        ("memory_pool", "links")),
    "a failure that is found late": Planted(
        LITE, 0.5, {"faults": [{"at_s": 10.0, "element": "die 1.0.0", "kind": "fail"}],
                    "recovery.detection_s": 15.0, "horizon_s": 40.0, "warmup_s": 6.0},
        ("fault", "recovery")),
    "tiny prefill batches": Planted(
        LITE, 0.7, {"deployment.prefill.tokens_per_npu": 256}, ("prefill_batch",)),
    "decode in pieces": Planted(
        LITE, 0.6, {"deployment.decode.instances": 8, "deployment.decode.npus_per_instance": 1},
        ("ep", "decode", "kv_space")),
    "BF16 KV of long contexts": Planted(
        {**R1, "workload": {"input_tokens": 16_384, "output_tokens": 2048}}, 0.8,
        {"deployment.precision.kv": "bf16"}, ("kv_space", "batch")),
    "prompts taken in turns": Planted(
        {**LITE, "deployment": {**LITE["deployment"],
                                "prefill": {"instances": 8, "npus_per_instance": 1}}},
        0.7, {"router.policy": "round_robin", "workload.lengths": "sharegpt",
              "deployment.prefill.attention": "dp"}, ("router", "prefill_batch")),
    "experts that are balanced once a minute": Planted(
        R1, 0.6, {"experts.skew": 1.6, "experts.drift_s": 10.0,
                  "experts.balancing.policy": "periodic", "experts.balancing.interval_s": 60.0},
        ("imbalance",)),
    "one large decode pool behind UB at a quarter": Planted(
        R1, 0.5, {"supernode.ub_link_gb_per_s": 1.0, "deployment.decode.batch_per_npu": 16},
        ("links",)),
}  # fmt: skip


def main(names: list[str]) -> None:
    """Explain each of them, or those named; the two sets apart."""
    facts = load_facts()
    for title, rows in (("untuned", UNTUNED), ("looked at", LOOKED_AT)):
        asked, named = [name for name in rows if name in names or not names], 0
        for name in asked:
            case, known = planted(name, rows[name], facts)
            told = explain(case.scenario, known, case.trace)
            first = told.causes[0].cause.key if told.causes else "nothing"
            named += first in rows[name].named
            wanted = " or ".join(rows[name].named)
            sys.stdout.write(f"{name}: {first} (planted: {wanted}), {told.runs} runs\n")
            sys.stdout.flush()
        if asked:
            sys.stdout.write(f"{named} of {len(asked)} {title} are named first\n")


if __name__ == "__main__":
    main(sys.argv[1:])
