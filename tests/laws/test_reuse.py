"""Laws of cached KV in the steady state, over deployments drawn at random."""

import random
from itertools import pairwise

import polars as pl
import pytest

from tests.draws import seeds, some
from twin.engine.simulate import simulate
from twin.lab.library import load_facts
from twin.model.fetch import fullest_server_share
from twin.scenario import Scenario, with_overrides
from twin.steady import Priced, predict_steady

CHOICES = {
    "deployment.mode": ["prefill_only", "colocated", "disaggregated"],
    "deployment.prefill.attention": ["sp_tp_sp", "tp", "dp"],
    "deployment.prefill.tokens_per_npu": [2048, 16384],
    "workload.input_tokens": [512, 2048, 4096, 16384],
    "memory_pool.plane": ["ub", "vpc"],
    "memory_pool.scope": ["shared", "local"],
    "memory_pool.layout": ["layer", "block"],
    "supernode.vpc_gb_per_s_per_node": [1.0, 10.0, 50.0],
}


def rate(fields):
    return predict_steady(with_overrides(Scenario(), fields), load_facts()).prefill.requests_per_s


@pytest.mark.parametrize("seed", seeds(2))
def test_reuse_never_slows_and_larger_blocks_never_slow_a_read(seed):
    draw = random.Random(seed)
    asked = {path: draw.choice(values) for path, values in CHOICES.items()}
    asked |= {"workload.prefix": "shared", "workload.shared_fraction": draw.choice([0.5, 0.95])}
    never = rate(asked | {"memory_pool.enabled": False})
    # Every size divides what is shared, so that all hit alike.
    shared = {"workload.input_tokens": 8192, "workload.shared_fraction": 0.75}
    sizes = (16, 128, 512)
    by_block = [rate(asked | shared | {"memory_pool.block_tokens": n}) for n in sizes]
    in_hbm = rate(asked | {"memory_pool.enabled": False, "memory_pool.in_hbm": True})
    assert in_hbm >= never * (1 - 1e-9)
    whole, layerwise = (rate(asked | {"memory_pool.layerwise": on}) for on in (False, True))
    assert layerwise >= whole >= never * (1 - 1e-9)
    if asked["memory_pool.scope"] == "shared":
        assert by_block == sorted(by_block)
    # The two servers of an instance can hold it: of fewer blocks one has more than its half.
    fullest = [fullest_server_share(0.75 * 8192 / n, 2) for n in sizes]
    for (few, many), (hot, even) in zip(pairwise(by_block), pairwise(fullest), strict=True):
        assert many >= few * hot / even


SHARED = {"workload.prefix": "shared", "workload.shared_fraction": 0.7}
SESSIONS = {"workload.prefix": "sessions", "workload.follow_up_probability": 0.7}
SMALL = {"memory_pool.gb_per_node": 2.0}
FRONT = {"supernode.supernodes": 2, "router.front": "round_robin", "deployment.decode.instances": 2}
TTL = {"memory_pool.policy": "ttl", "memory_pool.ttl_s": 60.0}
POOLS = {
    "prefixes that fill it": SHARED | SMALL,
    "sessions that fill it": SESSIONS | SMALL,
    "blocks that nobody touches go": SESSIONS | TTL,
    "each instance has its own": SESSIONS | {"memory_pool.scope": "local"},
    "each supernode has its own": SESSIONS | FRONT,
    "answers stay": SESSIONS | {"memory_pool.answers": True},
}  # fmt: skip


@pytest.mark.parametrize("name", some(list(POOLS)))
def test_the_formula_expects_the_hits_of_the_memory_pool_that_there_is(name):
    """The sample of the formula is the begin of the run, so that sessions are as young in both."""
    s = with_overrides(Scenario(), POOLS[name] | {
        "workload.lengths": "deepseek-service", "workload.rate_req_per_s": 3.0,
        "memory_pool.ssd_gb_per_node": 0.0, "horizon_s": 4000.0 / 3.0, "warmup_s": 0.0,
    })  # fmt: skip
    traffic = Priced(s, load_facts()).traffic
    rows = simulate(s, load_facts()).tables["requests"].filter(pl.col("hit_tokens") >= 0)
    hit = rows["hit_tokens"].sum() / rows["input_tokens"].sum()
    assert traffic.hit_tokens / traffic.input_tokens == pytest.approx(hit, abs=0.04)


# Share of the prompt tokens that the runs hit, by workload: as many prefixes as requests in twelve
# seconds; sessions with pauses of a minute; those of agents, whose answers stay.
FILLING = {
    "documents": SHARED | {"workload.prefix_groups": 500},
    "sessions": SESSIONS | {"workload.turn_gap_s": 60.0},
    "sessions in a small pool": SESSIONS | {"workload.turn_gap_s": 60.0} | SMALL,
    "agents": SESSIONS | {
        "workload.turn_gap_s": 60.0, "workload.tool_share": 0.7, "workload.tool_gap_s": 20.0,
        "memory_pool.answers": True, "deployment.mode": "disaggregated",
        "workload.lengths": "azure-2023-conv",  # of short answers: the next turn finds them
    },
}  # fmt: skip


@pytest.mark.parametrize("until_s", [100.0, 600.0])
@pytest.mark.parametrize("name", some(list(FILLING)))
def test_the_formula_expects_the_hits_of_a_run_of_any_length_after_its_warm_up(name, until_s):
    s = with_overrides(Scenario(), {
        "deployment.mode": "prefill_only", "workload.lengths": "deepseek-service",
        "workload.rate_req_per_s": 40.0, "memory_pool.ssd_gb_per_node": 0.0,
        "horizon_s": until_s, "warmup_s": 0.5 * until_s,
    } | FILLING[name])  # fmt: skip
    traffic = Priced(s, load_facts()).traffic
    hit = simulate(s, load_facts()).summary["hit_token_ratio"]
    assert traffic.hit_tokens / traffic.input_tokens == pytest.approx(hit, abs=0.03)
