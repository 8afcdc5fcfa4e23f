"""Instances come, go and change role: nothing is lost, and an NPU belongs to one at a time."""

import json
from functools import cache

import numpy as np
import polars as pl
import pytest

from tests.engine.small import facts_with, small
from twin.engine.simulate import Run, simulate
from twin.policies.controllers import CONTROLLERS
from twin.scenario import SpecError

QUICK = facts_with(
    {"startup.process": 0.6, "startup.compile": 0.8, "startup.regroup": 0.3, "startup.loader": 1e3}
)
BUSY = {
    "horizon_s": 12.0,
    "warmup_s": 1.0,
    "workload.rate_req_per_s": 60.0,
    "workload.output_tokens": 200,
}
SWAP = BUSY | {
    "elastic.controller": "schedule",
    "elastic.schedule": [{"at_s": 2.0, "prefill": 1, "decode": 3},
                         {"at_s": 6.0, "prefill": 3, "decode": 1}],
}  # fmt: skip
RULED = BUSY | {
    "elastic.npus": 32,
    "elastic.interval_s": 1.0,
    "elastic.metrics_age_s": 0.2,
    "elastic.cool_down_s": 1.0,
    "elastic.shrink_after_s": 1.0,
    "workload.profile.shape": "step",
    "workload.profile.at_s": 4.0,
    "workload.profile.low": 0.2,
    "workload.profile.high": 12.0,
}


def run(settings) -> Run:
    """The run of a small scenario; the same question is answered from memory."""
    return _answer(json.dumps(settings, sort_keys=True))


@cache
def _answer(settings: str) -> Run:
    found = simulate(small(json.loads(settings)), QUICK)
    assert found.valid, [c for c in found.checks if not c["ok"]]
    return found


def states(found: Run, role: str, instance: int) -> list[str]:
    lives = found.tables["lives"].filter(pl.col("role") == role, pl.col("instance") == instance)
    return lives.sort("t_s")["state"].to_list()


def test_npus_of_prefill_decode_and_come_back():
    found = run(SWAP)
    assert states(found, "prefill", 0) == ["serve", "drain", "load", "graphs", "serve"]
    came = states(found, "decode", 2)
    assert came[:3] == ["load", "graphs", "serve"]
    assert found.summary["role_changes"] == 3
    table = found.tables["requests"]
    assert table["decode_instance"].drop_nulls().n_unique() == 3  # the one that came served too
    assert int(table["retries"].max()) == 0


@pytest.mark.parametrize("drain", ["finish", "hand_on"])
def test_who_drains_takes_nobody_and_nobody_is_lost(drain):
    found = run(SWAP | {"elastic.drain": drain, "workload.rate_req_per_s": 30.0})
    lives, requests = found.tables["lives"], found.tables["requests"]
    for life in lives.filter(pl.col("state") == "drain").iter_rows(named=True):
        inside = pl.col("routed_s").is_between(life["t_s"] + 0.006, life["end_s"])
        own = requests.filter(inside, pl.col(f"{life['role']}_instance") == life["instance"])
        assert own.height == 0
    ended = requests.filter(pl.col("finish_s").is_not_null())
    assert (ended["output_tokens"] == 200).all() and found.summary["rejected"] == 0


def test_handing_kv_on_drains_sooner_and_keeps_the_first_token():
    drained = {}
    for drain in ("finish", "hand_on"):
        slow = {"workload.output_tokens": 600, "workload.rate_req_per_s": 30.0}
        found = run(SWAP | {"elastic.drain": drain} | slow)
        lives = found.tables["lives"].filter(pl.col("state") == "drain", pl.col("role") == "decode")
        drained[drain] = float((lives["end_s"] - lives["t_s"]).sum())
        first, arrival = (found.tables["requests"][c] for c in ("first_token_s", "arrival_s"))
        assert float((first - arrival).max()) < 3.0  # a request that moved kept its stamp
    assert drained["hand_on"] < 0.8 * drained["finish"]


def test_requests_from_before_the_run_are_handed_on_and_no_prefill_instance_waits_for_them():
    """They name no prefill instance, so their transfers count for the first, and end there."""
    rows = [{"at_s": 0.2, "prefill": 2, "decode": 1}, {"at_s": 2.0, "prefill": 1, "decode": 1}]
    handed = {"elastic.drain": "hand_on", "start": "steady", "workload.output_tokens": 600}
    shrinks = {"elastic.controller": "schedule", "elastic.schedule": rows}
    found = run(BUSY | shrinks | handed | {"workload.rate_req_per_s": 30.0})
    drains = found.tables["lives"].filter(pl.col("state") == "drain").sort("t_s")
    assert drains["role"].to_list() == ["decode", "prefill"]
    assert (drains["end_s"] - drains["t_s"] < 3.0).all()
    moved = found.tables["traffic"].filter(pl.col("traffic") == "kv_hand_off")
    assert set(zip(moved["plane"], moved["role"], strict=True)) == {("rdma", "prefill")}
    by_first = moved.filter(moved["instance"] == 0, moved["t_s"] < 1.0)["bytes"].sum()
    assert by_first > 2.0 * moved.filter(moved["instance"] == 1, moved["t_s"] < 1.0)["bytes"].sum()


def test_what_a_start_takes_is_what_its_steps_take():
    spare = BUSY | {
        "elastic.controller": "schedule",
        "elastic.npus": 32,
        "elastic.schedule": [{"at_s": 2.0, "prefill": 2, "decode": 4}],
    }
    for changes, expected_s in (
        ({}, 0.6),
        ({"elastic.graphs": "compiled"}, 1.4),
    ):
        lives = run(spare | changes).tables["lives"].filter(pl.col("state") == "process")
        assert (lives["end_s"] - lives["t_s"]).to_list() == pytest.approx([expected_s] * 2)
    # Both fetch the same model at once, and share the bucket: each waits for twice its bytes.
    cold = run(spare | {"elastic.weights": "object_storage", "horizon_s": 40.0})
    fetch = cold.tables["lives"].filter(pl.col("state") == "fetch")
    took = (fetch["end_s"] - fetch["t_s"]).to_list()
    assert took == pytest.approx([2 * 15.7e9 / 2.5e9] * 2, rel=0.03)
    # The nodes that start have never held it: their own DRAM is as cold; the pool is warm.
    local = run(spare | {"elastic.weights": "local", "horizon_s": 40.0})
    assert local.tables["lives"].filter(pl.col("state") == "fetch").height == 2
    assert "fetch" not in run(spare).tables["lives"]["state"].to_list()


def test_an_instance_that_starts_leaves_room_for_a_larger_one():
    apart = {
        "supernode.nodes": 5,
        "deployment.prefill.instances": 3,  # of 4 NPUs; 16 are free
        "deployment.decode.instances": 1,
        "deployment.decode.npus_per_instance": 12,
        "elastic.npus": 40,
        "elastic.schedule": [{"at_s": 2.0, "prefill": 4, "decode": 1},
                             {"at_s": 4.0, "prefill": 4, "decode": 2}],
    }  # fmt: skip
    lives = run(SWAP | apart).tables["lives"].filter(pl.col("state") == "serve")
    assert lives.group_by("role").len().sort("role")["len"].to_list() == [2, 4]


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_controller_answers_load_within_its_bounds(controller):
    found = run(RULED | {"elastic.controller": controller})
    decisions = found.tables["decisions"]
    assert (decisions["t_s"] - decisions["seen_s"]).to_list() == pytest.approx(
        [0.2] * decisions.height, abs=0.006
    )
    assert ("decode_needed" in decisions.columns) == (controller == "rebalance")
    assert found.summary["starts"] + found.summary["role_changes"] > 0
    few = run(RULED | {"elastic.controller": controller, "elastic.changes_per_hour": 1})
    begun = few.tables["decisions"].select("started", "stopped", "changed_role").sum().row(0)
    assert sum(begun) == 1


def test_nobody_moves_where_nothing_is_to_be_done():
    still = {"elastic.controller": "schedule", "elastic.schedule": [
        {"at_s": 0.0, "prefill": 2, "decode": 2}]}  # fmt: skip
    moved, fixed = run(BUSY | still), simulate(small(BUSY), QUICK)
    assert moved.tables["requests"].equals(fixed.tables["requests"])
    # Where instances may come and go, no steady state is expected.
    assert moved.summary == fixed.summary | {"steady_state": None}
    assert "lives" not in fixed.tables


def test_same_question_same_bytes_and_smaller_steps():
    asked = RULED | {"elastic.controller": "rebalance", "elastic.drain": "hand_on"}
    again = simulate(small(asked), QUICK)
    assert again.digest == run(asked).digest
    # One decision more or less of a controller at its threshold moves one run of 12 s by 4 %, and
    # by 13 % at a peak of 12 times the load; a bias of the step would move all of them.
    asked |= {"workload.profile.high": 8.0}
    loads = [asked | {"workload.profile.at_s": 3.5 + 0.25 * k} for k in range(6)]
    for key in ("npu_hours", "output_tokens_per_s", "ttft_s_mean"):
        coarse, fine = (
            np.array([run(load | {"step_s": step_s}).summary[key] for load in loads])
            for step_s in (0.005, 0.00125)
        )
        assert np.median(np.abs(fine / coarse - 1.0)) < 0.015
        assert fine.sum() == pytest.approx(coarse.sum(), rel=0.02)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"elastic.npus": 8}, "less than the 16 NPUs"),
        ({"elastic.npus": 64}, "more than the 32 NPUs"),
        ({"elastic.least_instances": 3}, "each pool must start"),
        ({"elastic.low": 0.9}, "must be below"),
        ({"memory_pool.scope": "local"}, "scope = local"),
        ({"elastic.controller": "schedule"}, "needs rows"),
        ({"elastic.controller": "own"}, "own needs"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises((SpecError, ValueError), match=sentence):
        small({"elastic.controller": "queue"} | settings)


def test_a_format_of_its_own_is_a_stored_model_of_its_own():
    """Prefill in BF16 next to decode in INT8: an instance that changes its role fetches the other
    one from object storage, unless DRAM has both; an equal format is found where it was."""
    begun = {}
    for name, own in (("equal", "int8"), ("two", "bf16")):
        found = run(SWAP | {"elastic.weights": "local", "horizon_s": 20.0,
                            "deployment.precision.prefill_weights": own})  # fmt: skip
        lives = found.tables["lives"].filter(pl.col("t_s") > 0.0)
        begun[name] = set(lives["state"])
    assert "fetch" not in begun["equal"] and "fetch" in begun["two"]
