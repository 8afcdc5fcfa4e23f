"""The hit ratio before a run, and where reading cached KV breaks even with computing it."""

import json

import pytest

from tests.engine.small import run, small
from tests.engine.test_pool import BLOCK, Lru, conversations, question
from twin.extras.cached_kv.hit_curve import hit_curve, read_costs
from twin.lab.library import load_facts
from twin.policies.batching import fetch_pays
from twin.scenario import with_overrides

SHORT = ["--set", "horizon_s=20", "--set", "warmup_s=5"]
REUSE = {"workload.prefix": "shared", "workload.rate_req_per_s": 80.0, "warmup_s": 0.0}
TINY = REUSE | {"memory_pool.gb_per_node": 0.01, "memory_pool.ssd_gb_per_node": 0.0}
READ = {
    "workload.prefix": "shared",
    "workload.shared_fraction": 0.9,
    "memory_pool.plane": "vpc",
    "warmup_s": 0.0,
}


def test_the_curve_hits_what_an_lru_does_that_stores_each_prompt_as_it_arrives():
    chains, lru, hit_tokens = conversations(), Lru(), 0
    for chain in chains:
        hit_tokens += BLOCK * lru.hit_blocks(chain)
        lru.keep(chain)
    scenario, trace = question(chains)
    curve = hit_curve(scenario, load_facts(), trace)
    tokens = sum(BLOCK * len(chain) + 1 for chain in chains)
    assert curve.hit_ratio(curve.dram_bytes) == pytest.approx(hit_tokens / tokens, rel=1e-12)


@pytest.mark.parametrize("settings", [REUSE, TINY])
def test_a_run_hits_no_more_than_the_curve_says(settings):
    scenario = small(settings)
    curve = hit_curve(scenario, load_facts())
    most = curve.hit_ratio(curve.pool_bytes)
    hits = run(settings).summary["hit_token_ratio"]
    assert 0.0 < hits <= most <= curve.curve.ideal_hit_ratio
    ratios = [ratio for _, ratio in curve.points()]
    assert ratios == sorted(ratios) and ratios[-1] == curve.curve.ideal_hit_ratio


def test_the_command_says_the_curve_as_one_object(twin):
    done = twin("hit-curve", "quickstart", *SHORT, "--json")
    said = json.loads(done.stdout)
    assert said["requests"] > 100 and len(said["curve"]) == len(hit_points())
    assert said["pool"][0]["hit_token_ratio"] <= said["ideal_hit_token_ratio"]
    assert [read["place"] for read in said["reads"]] == [
        "DRAM over UB", "SSD over VPC", "DRAM over VPC"]  # fmt: skip
    assert twin("hit-curve", "quickstart", *SHORT).returncode == 0


def hit_points():
    return hit_curve(small(REUSE), load_facts()).points()


def test_inclusive_tiers_hold_as_much_as_the_larger():
    curve = hit_curve(small(REUSE), load_facts())
    assert curve.pool_bytes == max(curve.dram_bytes, curve.ssd_bytes)


def test_a_node_taken_out_lends_nothing_to_the_pool():
    taken_out = REUSE | {"supernode.edits": [{"element": "node 3", "capacity_factor": 0.0}]}
    whole, left = (hit_curve(small(settings), load_facts()) for settings in (REUSE, taken_out))
    assert left.dram_bytes == pytest.approx(0.75 * whole.dram_bytes)


def first(settings):
    return read_costs(small(READ | settings), load_facts())[0]


def pays(read, tokens):
    """Whether so many cached tokens are read, and not computed again."""
    read_s = read.latency_s + tokens * read.s_per_token
    return bool(fetch_pays(read_s, tokens * read.computed_s_per_token))


def test_a_run_reads_above_the_break_even_and_computes_below_it():
    as_built = first({})
    share = as_built.pays_above_bytes_per_s / as_built.bytes_per_s
    assert share < 1.0 and pays(as_built, 1024) and as_built.break_even_tokens == 128
    rate = small(READ).supernode.vpc_gb_per_s_per_node
    hits = {}
    for factor in (1.2, 0.8):
        slow = {"supernode.vpc_gb_per_s_per_node": factor * share * rate,
                "memory_pool.ssd_gb_per_node": 0.0}  # fmt: skip
        read = first(slow)
        assert pays(read, 100_000) == (factor > 1.0) == (read.break_even_tokens is not None)
        hits[factor] = run(READ | slow).summary["hit_token_ratio"]
    assert hits[1.2] > 0.3 and hits[0.8] == 0.0


def test_small_blocks_of_many_pieces_never_pay_where_copies_take_longer():
    tiny = first({"memory_pool.block_tokens": 16, "memory_pool.plane": "ub"})
    whole = first({"memory_pool.layout": "block", "memory_pool.plane": "ub"})
    assert whole.s_per_token < tiny.s_per_token
    assert whole.pays_above_bytes_per_s < (tiny.pays_above_bytes_per_s or float("inf"))


@pytest.mark.parametrize("settings", [{"memory_pool.enabled": False},
                                      {"deployment.mode": "decode_only"}])  # fmt: skip
def test_nothing_is_read_where_nothing_is_kept(settings):
    assert read_costs(with_overrides(small(READ), settings), load_facts()) == []
