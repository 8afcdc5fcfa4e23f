"""I1-I14 of the reliability notes hold on every run; the presets are asked in tests/golden."""

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.draws import draws
from tests.engine.small import facts_with_kv_space, recorded, small
from tests.laws.lawful import lawful
from twin.engine.setup import ScenarioError
from twin.engine.simulate import simulate
from twin.lab.library import load_facts
from twin.model.costs import ModelError
from twin.policies.router import ROUTERS
from twin.scenario import SpecError

ARRIVALS = ("poisson", "gamma", "uniform", "closed_loop", "trace")


def one(*values):
    return st.sampled_from(values)


FIELDS = {
    "seed": st.integers(0, 1000),
    "horizon_s": one(2.0, 3.0, 5.03),
    "warmup_s": one(0.0, 0.5),
    "step_s": one(0.01, 0.05, 0.37),
    "supernode.chip": one("ascend-910c", "ascend-910b", "h800"),
    "supernode.scale_up": one("supernode", "node"),
    "workload.arrivals": one(*ARRIVALS),
    "workload.rate_req_per_s": one(3.0, 40.0, 150.0),
    "workload.cv": one(0.5, 3.0),
    "workload.concurrency": one(1, 30, 300),
    "workload.think_s": one(0.0, 0.3),
    "workload.input_tokens": one(700, 1, 127, 5000),
    "workload.output_tokens": one(1, 2, 60, 700),
    "workload.lengths": one("fixed", "fixed", "azure-2023-conv"),
    "workload.prefix": one("shared", "sessions", "none"),
    "deployment.mode": one("disaggregated", "colocated", "prefill_only", "decode_only"),
    "deployment.prefill.tokens_per_npu": one(256, 4096),
    "deployment.prefill.chunk_tokens": one(0, 300),
    "deployment.prefill.attention": one("sp_tp_sp", "dp"),
    "deployment.prefill.dp_balance": one("tokens", "attention"),
    "memory_pool.layerwise": st.booleans(),
    "deployment.decode.batch_per_npu": one(1, 7, 64),
    "deployment.colocated.chunk_tokens_per_npu": one(16, 1024),
    "deployment.prefill.microbatch": st.booleans(),
    "deployment.decode.microbatch": one("auto", "on", "off"),
    "deployment.precision.kv": one("bf16", "int8"),
    "deployment.communication.fused": st.booleans(),
    "deployment.optimisations.fused_deep_moe": st.booleans(),
    "deployment.optimisations.multi_stream": st.booleans(),
    "deployment.kv_transfer_plane": one("rdma", "ub", "vpc"),
    "front_end.api_servers": one(1, 16),
    "front_end.service_ms": one(0.0, 4.0),
    "router.policy": one(*ROUTERS),
    "memory_pool.enabled": one(True, True, False),
    "memory_pool.scope": one("shared", "local"),
    "memory_pool.gb_per_node": one(0.001, 0.05, 64.0),
    "memory_pool.plane": one("ub", "vpc"),
    "experts.placement": one("round_robin", "eplb", "perfect"),
}


@st.composite
def recorded_streams(draw):
    n = draw(st.integers(1, 60))
    gaps = draw(st.lists(st.floats(0, 0.1), min_size=n, max_size=n))
    inputs = draw(st.lists(st.integers(1, 3000), min_size=n, max_size=n))
    outputs = draw(st.lists(st.integers(1, 200), min_size=n, max_size=n))
    if draw(st.booleans()):
        return recorded(list(np.cumsum(gaps)), inputs, outputs)
    chains, blocks = [], 0
    for tokens in inputs:  # every prompt goes on from the beginning of an earlier one
        known = chains[draw(st.integers(0, len(chains) - 1))] if chains else []
        kept = known[: draw(st.integers(0, len(known)))][: tokens // 128]
        fresh = tokens // 128 - len(kept)
        chains.append([*kept, *range(blocks, blocks + fresh)])
        blocks += fresh
    return recorded(list(np.cumsum(gaps)), inputs, outputs, chains)


@pytest.mark.parametrize("arrivals", ARRIVALS)
@draws(24)
@given(
    st.fixed_dictionaries(FIELDS),
    recorded_streams(),
    st.none() | st.integers(1500, 9000),
)
def test_every_law_holds_on_any_small_scenario(arrivals, fields, trace, kv_tokens):
    fields |= {"workload.arrivals": arrivals}
    if arrivals == "trace":
        fields |= {"workload.trace.digest": trace.digest}
    scenario = small(fields)
    facts = load_facts()
    if kv_tokens is not None and scenario.deployment.mode != "prefill_only":
        facts = facts_with_kv_space(scenario, kv_tokens)
    try:
        run = simulate(scenario, facts, trace)
    except (ModelError, ScenarioError) as error:
        assert re.search("does not fit|no request arrives", str(error))
        assume(False)
    lawful(run)


FULL = {
    "workload.input_tokens": 300,
    "workload.output_tokens": 600,
    "workload.rate_req_per_s": 300.0,
    "deployment.decode.batch_per_npu": 64,
    "deployment.prefill.tokens_per_npu": 1024,
}
# Settings, KV tokens of a decode die, and what must happen at least so often.
CORNERS = {
    "preempted": (FULL, 6000, "preemptions", 50),
    "preempted, one die's worth": (FULL, 1200, "preemptions", 50),
    "preempted, chunks beside decode": (
        FULL | {"deployment.mode": "colocated"}, 6000, "preemptions", 50,
    ),
    "preempted, KV in place": (
        FULL | {"deployment.mode": "decode_only"}, 6000, "preemptions", 50,
    ),
    "preempted, closed loop, slow hand-off": (
        FULL | {"workload.arrivals": "closed_loop", "workload.concurrency": 300,
                "deployment.kv_transfer_plane": "vpc"}, 6000, "preemptions", 50,
    ),
    "preempted, drafts accepted by chance": (
        FULL | {"deployment.model": "deepseek-r1", "supernode.nodes": 12,
                "deployment.prefill.npus_per_instance": 16,
                "deployment.decode.npus_per_instance": 16, "workload.rate_req_per_s": 60.0,
                "deployment.decode.mtp_draft_tokens": 2, "horizon_s": 20.0}, 1500,
        "preemptions", 50,
    ),
    "turned away": (FULL | {"workload.lengths": "azure-2023-conv"}, 1500, "rejected", 20),
    "outgrown": (FULL | {"workload.rate_req_per_s": 20.0}, 800, "rejected", 5),
    "overloaded": (FULL, None, "running", 500),
    "overloaded front end": (FULL | {"front_end.api_servers": 1}, None, "running", 100),
}  # fmt: skip


@pytest.mark.parametrize("corner", CORNERS)
def test_every_law_holds_in_the_corners(corner):
    fields, kv_tokens, figure, least = CORNERS[corner]
    scenario = small(fields)
    facts = facts_with_kv_space(scenario, kv_tokens) if kv_tokens else load_facts()
    run = simulate(scenario, facts)
    lawful(run)
    assert run.summary[figure] >= least


def test_an_impossible_field_is_refused_in_one_sentence():
    with pytest.raises(SpecError, match="needs 48 NPUs but supernode has 32"):
        small({"deployment.decode.npus_per_instance": 20})
