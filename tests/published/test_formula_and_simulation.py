"""The closed steady state and the full simulation agree within 2 %: closed loop, fixed lengths.

arXiv 2506.12708v2 Tables 3 and 5, as the presets ask them, and twelve points that no preset asks,
of every pool that can limit: one of each in the suite, all in `make long`.
"""

import pytest

from tests.draws import some
from twin.engine.simulate import simulate
from twin.lab.library import load_facts, presets
from twin.scenario import Scenario, with_overrides
from twin.steady import full_traffic, predict_steady

FACTS = load_facts()


def both(key):
    s = next(p.scenario for p in presets() if p.key == key)
    formula = predict_steady(s, FACTS, traffic=full_traffic(s, FACTS))
    return formula, simulate(s, FACTS).summary


@pytest.mark.parametrize(
    "key", ["paper-decode-50ms-4k", "paper-decode-50ms-1k", "paper-decode-15ms"]
)
def test_decode_by_formula_is_decode_by_simulation(key):
    formula, run = both(key)
    assert run["tpot_s_mean"] == pytest.approx(formula.decode.tpot_s, rel=0.02)
    assert run["decode_iteration_s_mean"] == pytest.approx(formula.decode.iteration_s, rel=0.02)
    found = run["decode_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.decode.tokens_per_s_per_npu, rel=0.02)


@pytest.mark.parametrize("key", ["paper-prefill-default", "paper-prefill-perfect-balance"])
def test_prefill_by_formula_is_prefill_by_simulation(key):
    formula, run = both(key)
    found = run["prefill_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.prefill.tokens_per_s_per_npu, rel=0.02)


# A machine of 64 NPUs whose clients begin one after the other.
HERE = {
    "supernode.nodes": 8,
    "workload.arrivals": "closed_loop",
    "workload.ramp_s": 20.0,
    "workload.input_tokens": 2048,
    "workload.output_tokens": 400,
    "horizon_s": 200.0,
    "warmup_s": 100.0,
    "memory_pool.enabled": False,
    "experts.redundant": 0,
}
DECODE = {"deployment.mode": "decode_only", "deployment.decode.npus_per_instance": 32}
PREFILL = {"deployment.mode": "prefill_only", "deployment.prefill.instances": 1,
           "deployment.prefill.tokens_per_npu": 8192, "workload.output_tokens": 1}  # fmt: skip
BOTH = {"deployment.prefill.instances": 1, "deployment.decode.npus_per_instance": 32,
        "deployment.prefill.tokens_per_npu": 4096}  # fmt: skip
H800 = {"supernode.chip": "h800", "supernode.scale_up": "node", "supernode.sub_planes": 1,
        "supernode.ub_link_gb_per_s": 200.0, "supernode.rdma_gb_per_s_per_npu": 50.0,
        "deployment.precision.weights": "fp8"}  # fmt: skip
# What is asked, and how many clients.
DECODE_BOUND = {
    "a small batch": (DECODE | {"deployment.decode.batch_per_npu": 6}, 6 * 32),
    "no drafts, a large batch": (
        DECODE | {"deployment.decode.batch_per_npu": 80, "deployment.decode.mtp_draft_tokens": 0},
        80 * 32,
    ),
    "two drafts, short context": (
        DECODE | {"deployment.decode.batch_per_npu": 32, "deployment.decode.mtp_draft_tokens": 2,
                  "workload.input_tokens": 512}, 32 * 32,
    ),
    "experts apart": (
        DECODE | {"deployment.decode.batch_per_npu": 48, "deployment.decode.expert_npus": 12,
                  "deployment.decode.domains": 2}, 48 * 32,
    ),
    "attention offloaded": (
        BOTH | {"deployment.decode.batch_per_npu": 24, "deployment.decode.attention_offload": 0.2,
                "workload.output_tokens": 2000}, 24 * 32,
    ),
    "another chip": (DECODE | H800 | {"deployment.decode.batch_per_npu": 64}, 64 * 32),
    "four dies a rank": (
        DECODE | {"deployment.decode.batch_per_npu": 24, "deployment.decode.tp_dies": 4}, 24 * 32,
    ),
    "four dies a rank, experts apart": (
        DECODE | {"deployment.decode.batch_per_npu": 24, "deployment.decode.tp_dies": 4,
                  "deployment.decode.expert_npus": 12}, 24 * 32,
    ),
    "two dies a rank, attention offloaded": (
        BOTH | {"deployment.decode.batch_per_npu": 24, "deployment.decode.attention_offload": 0.2,
                "deployment.decode.tp_dies": 2, "workload.output_tokens": 2000}, 24 * 32,
    ),
}  # fmt: skip
SPLIT = {"deployment.decode.experts_tp": 8}
DECODE_BOUND["experts split inside"] = (
    DECODE | SPLIT | {"deployment.decode.batch_per_npu": 24},
    24 * 32,
)
DENSE = {"deployment.model": "qwen3-32b", "deployment.decode.mtp_draft_tokens": 0}
DECODE_BOUND["dense, eight dies a rank"] = (
    DECODE | DENSE | {"deployment.decode.npus_per_instance": 4, "deployment.decode.tp_dies": 8,
                      "deployment.decode.instances": 4, "deployment.decode.batch_per_npu": 12},
    12 * 16,
)  # fmt: skip
PREFILL_BOUND = {
    "prefill alone": (PREFILL, 3 * 64),
    "prefill, data parallel": (PREFILL | {"deployment.prefill.attention": "dp"}, 3 * 64),
    "prefill, long prompts": (PREFILL | {"workload.input_tokens": 16_384}, 3 * 8),
    "prefill of both": (BOTH, 450),
    "prefill of both, long answers": (BOTH | {"workload.output_tokens": 900}, 1290),
    "prefill of both, no drafts": (BOTH | {"deployment.decode.mtp_draft_tokens": 0}, 640),
    "prefill on the dies of decode": (
        BOTH | {"deployment.prefill.on": "decode_npus",
                "deployment.prefill.npus_per_instance": 32}, 900,
    ),
    "the front end of both": (
        BOTH | {"deployment.prefill.instances": 2, "front_end.api_servers": 1,
                "front_end.service_ms": 100.0, "workload.output_tokens": 900}, 240,
    ),
}  # fmt: skip
# Answers of unequal length: of equal ones, clients that began together would stay together.
MIXED_BOUND = {
    "prompts in the iterations of answers": (
        {"deployment.mode": "colocated", "deployment.colocated.instances": 1,
         "deployment.colocated.npus_per_instance": 16, "deployment.decode.batch_per_npu": 24,
         "workload.lengths": "sharegpt", "horizon_s": 800.0}, 24 * 16,
    ),
}  # fmt: skip
MIXED = MIXED_BOUND["prompts in the iterations of answers"][0]
MIXED_BOUND |= {
    "prompts split by four dies": (MIXED | {"deployment.colocated.prompt_dies": 4}, 24 * 16),
    "128 ranks": (
        MIXED | {"deployment.colocated.npus_per_instance": 64}, 24 * 64,
    ),
    "very long prompts in pieces": (
        MIXED | {"workload.lengths": "mooncake-conversation", "horizon_s": 12_000.0,
                 "warmup_s": 3_000.0, "deployment.decode.batch_per_npu": 12}, 12 * 16,
    ),
    "small pieces": (
        MIXED | {"deployment.colocated.chunk_tokens_per_npu": 128}, 24 * 16,
    ),
    "articles in pieces": (
        MIXED | {"workload.lengths": "arxiv-summarisation", "horizon_s": 600.0, "warmup_s": 300.0,
                 "deployment.colocated.chunk_tokens_per_npu": 512,
                 "deployment.decode.batch_per_npu": 16}, 16 * 16,
    ),
    "answers that reason": (
        MIXED | {"workload.lengths": "servegen-deepseek-r1", "horizon_s": 16_000.0,
                 "warmup_s": 1_000.0, "deployment.decode.batch_per_npu": 16}, 16 * 16,
    ),
    "prompts of a service": (
        MIXED | {"workload.lengths": "deepseek-service", "horizon_s": 80_000.0,
                 "warmup_s": 2_000.0, "deployment.decode.batch_per_npu": 16}, 16 * 16,
    ),
    "prompts wait three iterations": (
        MIXED | {"deployment.colocated.prompt_delay": 3}, 24 * 16,
    ),
    "prompts wait for other ranks": (MIXED | {"deployment.colocated.prompt_delay": 10}, 24 * 16),
    "prompts of four dies wait": (
        MIXED | {"deployment.colocated.prompt_delay": 30, "deployment.colocated.prompt_dies": 4},
        24 * 16,
    ),
    "eight dies a rank": (MIXED | {"deployment.decode.tp_dies": 8}, 24 * 16),
    "experts split inside": (MIXED | SPLIT | {"deployment.decode.tp_dies": 8}, 24 * 16),
    "a served engine": (MIXED | {"deployment.stack": "sglang-npu"}, 24 * 16),
    "dense, eight dies a rank": (
        MIXED | DENSE | {"deployment.colocated.npus_per_instance": 4,
                         "deployment.decode.batch_per_npu": 12, "deployment.decode.tp_dies": 8},
        12 * 4,
    ),
}  # fmt: skip
SUITE = ("prefill of both", "prefill on the dies of decode")


def at(point):
    fields, clients = point
    s = with_overrides(Scenario(), HERE | fields | {"workload.concurrency": clients})
    return predict_steady(s, FACTS, traffic=full_traffic(s, FACTS)), simulate(s, FACTS).summary


@pytest.mark.parametrize("name", some(["experts apart", "dense, eight dies a rank"], *DECODE_BOUND))
def test_decode_elsewhere_by_formula_is_decode_by_simulation(name):
    formula, run = at(DECODE_BOUND[name])
    assert formula.limit == "decode"
    assert run["tpot_s_mean"] == pytest.approx(formula.serving.tpot_s, rel=0.02)
    found = run["decode_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.serving.tokens_per_s_per_npu, rel=0.02)


@pytest.mark.parametrize(
    "name", some([*SUITE], *(name for name in PREFILL_BOUND if name not in SUITE))
)
def test_what_prefill_feeds_by_formula_is_what_a_simulation_serves(name):
    formula, run = at(PREFILL_BOUND[name])
    assert formula.limit in ("prefill", "front end")
    assert run["throughput_req_per_s"] == pytest.approx(formula.requests_per_s, rel=0.02)
    if formula.serving is None:
        return
    # Ranks are dealt places before prefill: the busiest of 64 decodes all of its 7 or 8 requests
    # where the mean one decodes 5.4.
    assert run["tpot_s_mean"] == pytest.approx(formula.serving.tpot_s, rel=0.02)
    found = run["decode_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.serving.tokens_per_s_per_npu, rel=0.02)


@pytest.mark.parametrize(
    "name",
    some(["128 ranks", "very long prompts in pieces", "dense, eight dies a rank"], *MIXED_BOUND),
)
def test_mixed_serving_by_formula_is_mixed_serving_by_simulation(name):
    formula, run = at(MIXED_BOUND[name])
    assert formula.limit == "colocated"
    found = run["decode_iteration_s_mean"]
    assert found == pytest.approx(formula.decode.iteration_s, rel=0.02)
    assert run["tpot_s_mean"] == pytest.approx(formula.decode.tpot_s, rel=0.02)
    found = run["decode_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.decode.tokens_per_s_per_npu, rel=0.02)
