"""The hit ratio before a run: at most, and close where the pool holds everything."""

import json

import pytest

from tests.engine.small import run, small
from twin.extras.cached_kv.hit_curve import hit_curve
from twin.lab.library import load_facts

SHORT = ["--set", "horizon_s=20", "--set", "warmup_s=5"]
REUSE = {"workload.prefix": "shared", "workload.rate_req_per_s": 80.0, "warmup_s": 0.0}
TINY = REUSE | {"memory_pool.gb_per_node": 0.01, "memory_pool.ssd_gb_per_node": 0.0}


@pytest.mark.parametrize("settings", [REUSE, TINY])
def test_a_run_hits_no_more_than_the_curve_says(settings):
    scenario = small(settings)
    curve = hit_curve(scenario, load_facts())
    most = curve.hit_ratio(curve.pool_bytes)
    hits = run(settings).summary["hit_token_ratio"]
    assert 0.0 < hits <= most <= curve.curve.ideal
    ratios = [ratio for _, ratio in curve.points()]
    assert ratios == sorted(ratios) and ratios[-1] == curve.curve.ideal


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
