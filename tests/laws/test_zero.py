"""Models that go to zero and come back, take turns on NPUs, and share DRAM for their weights."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.engine.small import BASE, facts_with, small
from twin.engine.simulate import Run, simulate
from twin.facts import Facts
from twin.scenario import Scenario, SpecError, model_names, npus_used, split_models, with_overrides

QUICK = {
    "startup.process": 0.6,
    "startup.compile": 0.8,
    "startup.regroup": 0.3,
    "startup.loader": 1e3,
}
MODEL_BYTES = 15.7e9  # of the small model, in its weights' format
ZERO = {"elastic.controller": "queue", "elastic.least_instances": 0, "elastic.idle_s": 1.0}
# Requests for half a second, and again from second 6 on.
TWICE = {
    "horizon_s": 12.0, "warmup_s": 0.0, "deployment.mode": "colocated",
    "deployment.colocated.instances": 1, "workload.rate_req_per_s": 40.0,
    "workload.profile.pieces": [{"at_s": 0.5, "rate": 0.0}, {"at_s": 6.0, "rate": 1.0},
                                {"at_s": 6.5, "rate": 0.0}],
}  # fmt: skip


def run_of(s: Scenario, facts: Facts | None = None) -> Run:
    """A run with every law checked."""
    made = simulate(s, facts or facts_with(QUICK))
    assert made.valid, [check for check in made.checks if not check["ok"]]
    return made


def of(made: Run, *states: str) -> pl.DataFrame:
    """Lives of instances in some states, in order of time."""
    return made.tables["lives"].filter(pl.col("state").is_in(states)).sort("t_s")


@pytest.mark.parametrize("mode", ["colocated", "disaggregated", "prefill_only", "decode_only"])
def test_a_model_goes_to_zero_and_back_and_loses_no_request(mode: str) -> None:
    made = run_of(small(TWICE | ZERO | {"deployment.mode": mode}))
    requests, pools = made.tables["requests"], 2 if mode == "disaggregated" else 1
    assert requests.height > 20 and (requests["status"] == "finished").all()
    assert made.summary["starts"] == pools
    gone_s = of(made, "drain")["end_s"].min()
    last_s = requests.filter(pl.col("arrival_s") < 5.0)["finish_s"].max()
    assert 1.0 <= gone_s - last_s < 1.6  # idle for a second, and two looks
    again = requests.filter(pl.col("arrival_s") > 5.0).sort("arrival_s")
    waited_s = again["first_token_s"][0] - again["arrival_s"][0]
    assert 0.6 < waited_s < 1.3  # processes, weights, and a look
    lives = made.tables["lives"].with_columns(took_s=pl.col("end_s") - pl.col("t_s"))
    held = lives.select((pl.col("took_s") * pl.col("npus")).sum()).item() / 3600.0
    always = lives.filter(pl.col("t_s") == 0.0)["npus"].sum() * 12.0 / 3600.0
    assert made.summary["npu_hours"] == pytest.approx(held)
    assert held < 0.6 * always


def test_a_model_that_is_never_idle_for_long_enough_is_as_one_that_may_not_go() -> None:
    patient = {"elastic.idle_s": 100.0, "start": "empty"}
    kept, never = (
        run_of(small(TWICE | ZERO | patient | {"elastic.least_instances": least}))
        for least in (0, 1)
    )
    assert kept.digest == never.digest and kept.summary == never.summary


def test_a_request_that_comes_while_the_last_instance_drains_opens_it_again() -> None:
    busy = {"elastic.idle_s": 0.0, "workload.profile.pieces": [], "workload.rate_req_per_s": 4.0}
    made = run_of(small(TWICE | ZERO | busy))
    requests = made.tables["requests"].filter(pl.col("arrival_s") < 10.0)
    assert (requests["status"] == "finished").all()
    drains, stops = of(made, "drain").height, of(made, "process").height
    assert drains > stops + 3


def test_a_schedule_may_leave_a_pool_without_an_instance() -> None:
    rows = [{"at_s": 2.0, "prefill": 0, "decode": 0}, {"at_s": 5.0, "prefill": 1, "decode": 1}]
    ruled = {"elastic.controller": "schedule", "elastic.schedule": rows,
             "workload.profile.pieces": [], "horizon_s": 14.0}  # fmt: skip
    made = run_of(small(TWICE | ZERO | ruled))
    assert of(made, "drain").height == made.summary["starts"] == 1
    served = of(made, "serve")["t_s"].to_list()
    assert served == pytest.approx([0.0, 5.6], abs=0.1)
    waited = made.tables["requests"].filter(pl.col("arrival_s").is_between(3.0, 5.0))
    assert (waited["first_token_s"] > served[1]).all()
    kept = run_of(small(TWICE | ruled | {"elastic.least_instances": 1}))
    assert of(kept, "drain").height == 0


# Two models, of which each has requests for half a second in turns.
TURNS = {"name": "second", "npus_of": "deepseek-v2-lite",
         "deployment": BASE.deployment.model_dump(mode="json"),
         "workload": BASE.workload.model_dump(mode="json")}  # fmt: skip


def in_turns(settings: dict[str, Any] | None = None, at_s: float = 3.0) -> Scenario:
    """Two models on the NPUs of one instance; the second's requests come from `at_s` on."""
    pieces = [{"at_s": 0.001, "rate": 0.001}, {"at_s": at_s, "rate": 1.0},
              {"at_s": at_s + 0.5, "rate": 0.0}]  # fmt: skip
    own = TWICE | ZERO | {"workload.profile.pieces": pieces}
    second = {f"models.0.{path}": value for path, value in own.items() if "." in path}
    one = with_overrides(small(), {"models": [TURNS | {"npus_of": ""}]} | TWICE)
    second |= {"models.0.npus_of": "deepseek-v2-lite"}
    return with_overrides(one, ZERO | second | (settings or {}))


def test_models_take_turns_on_npus_of_which_none_serves_two_at_once() -> None:
    patient = {"elastic.idle_s": 60.0, "models.0.elastic.idle_s": 60.0}
    s = in_turns(patient)
    assert [one.deployment.first_npu for one in split_models(s)] == [0, 0] and npus_used(s) == 4
    made = run_of(s)
    lives = made.tables["lives"].sort("t_s")
    assert lives.filter(pl.col("state") == "serve")["model"].to_list() == [
        "deepseek-v2-lite", "second", "deepseek-v2-lite",
    ]  # fmt: skip
    # NPUs of an idle model keep their processes: groups and graphs are made anew.
    assert of(made, "process").height == 0 and of(made, "graphs").height == 2
    ends, begins = lives["end_s"].to_list(), lives["t_s"].to_list()
    assert all(end <= begin + 1e-9 for end, begin in zip(ends, begins[1:], strict=False))
    law = [check for check in made.checks if "one model" in check["statement"]]
    assert law and law[0]["ok"]
    assert (made.tables["requests"]["status"] == "finished").all()


def test_a_model_whose_requests_wait_takes_npus_that_another_one_uses() -> None:
    always = {"workload.profile.pieces": [], "workload.rate_req_per_s": 15.0, "horizon_s": 14.0}
    made = run_of(in_turns(always))
    requests = made.tables["requests"].filter(pl.col("arrival_s") < 8.0)
    assert (requests["status"] == "finished").all()
    assert requests["model"].n_unique() == 2
    served = of(made, "serve")["model"].to_list()
    assert served[:3] == ["deepseek-v2-lite", "second", "deepseek-v2-lite"]


def test_requests_are_conserved_by_model_while_models_take_turns() -> None:
    made = run_of(in_turns())
    for row in made.tables["models"].iter_rows(named=True):
        own = made.tables["requests"].filter(pl.col("model") == row["model"])
        assert own.height == row["requests"] == row["finished"] > 0
    held = made.tables["models"]["npu_hours"].sum()
    assert made.summary["npu_hours"] == pytest.approx(held)
    assert held <= 4 * 12.0 / 3600.0


def test_weights_that_no_dram_holds_come_from_object_storage() -> None:
    """The pool has room for one model: who comes back has been evicted by the other."""
    nodes, room = small().supernode.nodes, 1.5 * MODEL_BYTES
    lent = {"memory_pool.gb_per_node": 100.0, "horizon_s": 60.0,
            "workload.profile.pieces": [{"at_s": 0.5, "rate": 0.0}, {"at_s": 30.0, "rate": 1.0},
                                        {"at_s": 30.5, "rate": 0.0}]}  # fmt: skip
    fetched = {}
    for models in (0.0, 1.0, 2.0):
        share = models * room / (nodes * 100e9)
        made = run_of(in_turns(lent | {"memory_pool.weights_share": share}))
        fetched[models] = of(made, "fetch")
    assert [fetched[models].height for models in (0.0, 1.0, 2.0)] == [0, 2, 1]
    took = (fetched[1.0]["end_s"] - fetched[1.0]["t_s"]).to_list()
    assert took == pytest.approx([MODEL_BYTES / 2.5e9] * 2, rel=0.03)


def test_kv_blocks_have_the_dram_that_weights_leave() -> None:
    reads = {"workload.prefix": "shared", "workload.shared_fraction": 0.9,
             "workload.prefix_groups": 64, "workload.rate_req_per_s": 40.0,
             "memory_pool.ssd_gb_per_node": 0.0, "memory_pool.store": "ems"}  # fmt: skip
    whole = run_of(small(reads | {"memory_pool.gb_per_node": 0.1}))
    half = run_of(small(reads | {"memory_pool.gb_per_node": 0.2,
                                 "memory_pool.weights_share": 0.5}))  # fmt: skip
    assert half.tables["requests"].equals(whole.tables["requests"])


def test_instances_of_one_model_wait_for_one_fetch_and_without_a_pool_share_the_bucket() -> None:
    """Cold starts: so many times the bytes without the pool, and once with it. A node that fails
    takes a part of the pool's model along."""
    rows = [{"at_s": 0.0, "prefill": 0, "decode": 0}, {"at_s": 1.0, "prefill": 4, "decode": 4}]
    asked = TWICE | ZERO | {
        "elastic.controller": "schedule", "elastic.schedule": rows, "elastic.npus": 16,
        "horizon_s": 40.0, "memory_pool.gb_per_node": 20.0, "supernode.nodes": 5,
    }  # fmt: skip
    once_s, lost = MODEL_BYTES / 2.5e9, {"faults": [{"at_s": 0.5, "element": "node 4"}]}
    for source, times, further in (
        ("object_storage", 4, {}), ("local", 4, {}), ("pool", 0, {}), ("pool", 1, lost),
    ):  # fmt: skip
        share = {"elastic.weights": source, "memory_pool.weights_share": 0.5}
        fetch = of(run_of(small(asked | share | further)), "fetch")
        assert fetch.height == (4 if times else 0)
        took = (fetch["end_s"] - fetch["t_s"]).to_list()
        assert took == pytest.approx([times * once_s] * fetch.height, rel=0.03)


REFUSED = {
    "no model above it has that name: let its npus_of be one of": {"models.0.npus_of": "third"},
    "set one of them back": {"models.0.deployment.first_npu": 8},
    "deployment.mode be colocated": {"models.0.deployment.mode": "disaggregated"},
    "second shares NPUs in turns, and they have to come free": {
        "models.0.elastic.least_instances": 1
    },
    "deepseek-v2-lite shares NPUs in turns, and they have": {"elastic.controller": "fixed"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_turns_that_cannot_be_are_refused_in_one_sentence(said: str) -> None:
    with pytest.raises(SpecError, match=said) as refusal:
        in_turns(REFUSED[said])
    assert "\n" not in str(refusal.value)
    assert model_names(in_turns())[1] == "second"
