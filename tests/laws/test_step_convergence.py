"""A quarter of the step changes no headline figure by more than 1 %."""

import pytest

from tests.draws import some
from twin.engine.simulate import simulate
from twin.lab.library import load_facts, presets
from twin.scenario import with_overrides

HEADLINES = (
    "ttft_s_mean", "ttft_s_p50", "tpot_s_mean", "tpot_s_p50", "tpot_s_p99", "itl_s_mean",
    "e2e_s_mean", "e2e_s_p50", "goodput_req_per_s", "throughput_req_per_s",
    "prefill_tokens_per_s_per_npu", "decode_tokens_per_s_per_npu", "tokens_per_s_per_npu",
    "hit_token_ratio", "decode_iteration_s_mean", "concurrency_mean", "prefill_utilisation",
    "decode_utilisation", "kv_used_fraction_mean",
)  # fmt: skip
TAILS = ("ttft_s_p99", "e2e_s_p99")  # their sampling error alone is about 1 %

CASES = {
    # Its own SLO lies within the spread of its TPOT: one request in twelve keeps it, by chance.
    "closed loop, decode alone": ("paper-decode-15ms", {"slo.tpot_ms": 20.0}),
    # Equal prompts of clients that begin at once stay in step: TTFT then takes a few values, 1 %
    # apart, and its median is one of them or the next. Real clients begin one after the other.
    "closed loop, prefill alone": ("memory-pool-reuse", {"workload.ramp_s": 20.0}),
    "open loop, disaggregated": ("quickstart", {}),
    "open loop, colocated": ("colocated-contrast", {}),
    "open loop, dies shared": ("prefill-on-decode", {}),
    "overload": ("quickstart", {"workload.rate_req_per_s": 400.0}),
    "attention offloaded": (
        "quickstart",
        {"deployment.decode.attention_offload": 0.2, "deployment.prefill.tokens_per_npu": 4096},
    ),
    "slow hand-off": ("quickstart", {"deployment.kv_transfer_plane": "vpc"}),
}


# Prefill and decode apart, what shares dies, and what fills; `make long` takes all.
FEW = [
    "closed loop, decode alone",
    "open loop, disaggregated",
    "open loop, dies shared",
    "overload",
]


@pytest.mark.parametrize("case", some(FEW, *(case for case in CASES if case not in FEW)))
def test_headline_figures_do_not_depend_on_the_step(case):
    key, settings = CASES[case]
    scenario = next(p.scenario for p in presets() if p.key == key)
    scenario = with_overrides(scenario, settings)
    finer = with_overrides(scenario, {"step_s": scenario.step_s / 4})
    found, expected = (simulate(s, load_facts()).summary for s in (scenario, finer))
    for limit, names in ((0.01, HEADLINES), (0.03, TAILS)):
        wanted = {k: expected[k] for k in names if expected[k] is not None}
        # A wait that is a small part of a step is known no better than that.
        near = pytest.approx(wanted, rel=limit, abs=0.02 * scenario.step_s)
        assert {k: found[k] for k in wanted} == near, case
