"""Several models on one machine: each has its own requests, instances and namespace; the clock, the
links and the memory pool's nodes are shared."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.engine.small import BASE, small
from tests.laws.lawful import lawful
from twin.engine import simulate as engine
from twin.engine.lifecycle import together
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import ScenarioError, set_up_models
from twin.engine.simulate import Run, simulate
from twin.engine.window import watch
from twin.lab.library import load_facts
from twin.lab.plan.question import PlanError, plan_from
from twin.lab.runs.predicted import predict_all
from twin.lab.sweep.sweep import parse_axis, points
from twin.scenario import (
    Scenario,
    SpecError,
    json_text,
    model_names,
    npus_used,
    scenario_from_canonical,
    split_models,
    value_of,
    with_overrides,
)
from twin.steady import predict_steady

FACTS = load_facts()
SECOND = {"name": "second", "deployment": BASE.deployment.model_dump(mode="json"),
          "workload": BASE.workload.model_dump(mode="json")}  # fmt: skip
# Prompts with much that the memory pool has, from nodes with few uplinks.
READS = {"workload.prefix": "shared", "workload.shared_fraction": 0.9, "workload.prefix_groups": 4,
         "workload.input_tokens": 6000, "workload.output_tokens": 5}  # fmt: skip


def pair(settings: dict[str, Any] | None = None, *, both: dict[str, Any] | None = None) -> Scenario:
    """Two models on a machine of 32 NPUs; both: settings of workload or deployment of each."""
    common = both or {}
    one = with_overrides(small(), {"models": [SECOND]} | common)
    return with_overrides(one, {f"models.0.{k}": v for k, v in common.items()} | (settings or {}))


def run_of(s: Scenario) -> Run:
    """A run of all models, every law checked."""
    made = simulate(s, FACTS)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    return made


def own_requests(made: Run, name: str) -> pl.DataFrame:
    """Requests of a model as its own run has them, without the numbers that are given anew."""
    numbers = ("request_id", "session", "prefill_instance", "decode_instance", "model")
    return made.tables["requests"].filter(pl.col("model") == name).drop(numbers)


def test_models_that_share_nothing_are_as_if_each_were_alone_to_the_byte() -> None:
    s = pair({"models.0.deployment.mode": "colocated", "models.0.workload.rate_req_per_s": 25.0})
    made = run_of(s)
    for name, one in zip(model_names(s), split_models(s), strict=True):
        alone = simulate(one, FACTS)
        numbers = ("request_id", "session", "prefill_instance", "decode_instance")
        assert_frame_equal(own_requests(made, name), alone.tables["requests"].drop(numbers))
        (figures,) = made.tables["models"].filter(pl.col("model") == name).to_dicts()
        assert {key: figures[key] for key in alone.summary} == alone.summary


def test_requests_are_conserved_by_model_and_add_up() -> None:
    made = run_of(pair({"models.0.workload.rate_req_per_s": 25.0}))
    models, requests = made.tables["models"], made.tables["requests"]
    for figures in models.iter_rows(named=True):
        own = requests.filter(pl.col("model") == figures["model"])
        assert own.height == figures["requests"] > 50
        assert (own["status"] == "finished").sum() == figures["finished"]
    for key in ("requests", "finished", "running", "npus", "output_tokens_per_s", "power_kw",
                "goodput_req_per_s", "throughput_req_per_s"):  # fmt: skip
        assert made.summary[key] == pytest.approx(models[key].sum())
    for key in ("ttft_s_mean", "tpot_s_mean", "tokens_per_s_per_npu", "slo_attainment"):
        assert models[key].min() <= made.summary[key] <= models[key].max()


def test_tables_of_the_whole_machine_are_sums_of_the_models() -> None:
    s = pair(both=READS)
    made, alone = run_of(s), [simulate(one, FACTS) for one in split_models(s)]
    moved = [run.tables["traffic"]["bytes"].sum() for run in (made, *alone)]
    assert moved[0] == pytest.approx(moved[1] + moved[2], rel=0.02)
    for name, key in (("windows", "arrived"), ("windows", "decode_running"), ("links", "bytes")):
        each = [run.tables[name][key].sum() for run in (made, *alone)]
        assert each[0] == pytest.approx(each[1] + each[2], rel=0.02)
    assert made.tables["windows"].columns == alone[0].tables["windows"].columns
    assert set(alone[0].tables) | {"models"} == set(made.tables)


def test_an_instance_serves_one_model_and_has_a_number_of_its_own() -> None:
    made = run_of(pair({"models.0.deployment.mode": "colocated"}))
    for name in ("instances", "ranks", "seats", "traffic", "shares"):
        owners = made.tables[name].group_by("role", "instance").agg(pl.col("model").n_unique())
        assert (owners["model"] == 1).all()
    seats = made.tables["seats"].sort("first_die")
    ends = (seats["first_die"] + seats["dies"]).to_list()
    assert all(
        end <= begin for end, begin in zip(ends, seats["first_die"].to_list()[1:], strict=False)
    )
    routed = made.tables["requests"].drop_nulls("decode_instance")
    pairs = routed.group_by("decode_instance").agg(pl.col("model").n_unique())
    assert pairs.height == 4 and (pairs["model"] == 1).all()


def test_a_die_that_fails_is_not_replaced_by_one_of_another_model() -> None:
    fault = {"faults": [{"at_s": 1.5, "element": "die 1.1.0"}],
             "recovery.detection_s": 0.1, "recovery.in_place_s": 0.3}  # fmt: skip
    s = pair(fault | {"supernode.nodes": 4, "models.0.deployment.colocated.instances": 2})
    assert npus_used(s) == s.supernode.npus  # no spare is left
    made = run_of(s)
    law = next(check for check in made.checks if check["id"] == "I12")
    assert law["ok"] and "one model" in law["statement"]
    lawful(made)
    alone = simulate(split_models(s)[1], FACTS)
    (second,) = made.tables["models"].filter(pl.col("model") == "second").to_dicts()
    assert second["ttft_s_p99"] == alone.summary["ttft_s_p99"]  # what fails is the other's


def test_events_name_instances_by_their_numbers_in_the_whole_run() -> None:
    fault = {"faults": [{"at_s": 1.5, "element": "node 2"}], "supernode.nodes": 6,
             "recovery.detection_s": 0.1, "recovery.in_place_s": 0.3}  # fmt: skip
    events = run_of(pair(fault)).tables["events"].drop_nulls("instance")
    assert set(events.select("role", "instance").rows()) == {("prefill", 2), ("prefill", 3)}
    for row in events.iter_rows(named=True):
        number = f"prefill {row['instance']}"
        assert row["element"] in (number, "node 4", "node 5")
        assert row["detail"] == "" or row["detail"].startswith(number)
    assert events["detail"].str.contains("recovers in place").sum() == 2


OVER_VPC = {"memory_pool.plane": "vpc", "horizon_s": 6.0, "models.0.workload.rate_req_per_s": 10.0}


def reading_next_to(rate: float, vpc: float) -> tuple[float, bool]:
    """Mean seconds of the second model's prefill, which reads over VPC, next to a first model with
    so many requests/s; whether the two share links."""
    met: list[bool] = []

    def noted(machines: Sequence[Machine]) -> bool:
        met.append(together.share_links(machines))
        return met[-1]

    settings = {"workload.rate_req_per_s": rate, "supernode.vpc_gb_per_s_per_node": vpc}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "share_links", noted)
        figures = run_of(pair(OVER_VPC | settings, both=READS)).tables["models"]
    assert figures["hit_token_ratio"].min() > 0.5
    return float(figures["ttft_prefill_s_mean"][1]), met[0]


def test_models_slow_each_other_down_on_links_that_both_fill() -> None:
    quiet, busy = (reading_next_to(rate, 10.0) for rate in (2.0, 80.0))
    assert quiet[1] and busy[1]
    assert busy[0] > 1.05 * quiet[0]
    quiet, busy = (reading_next_to(rate, 1000.0) for rate in (2.0, 80.0))
    assert busy[0] == pytest.approx(quiet[0], rel=0.01)


def test_no_prefix_of_one_model_hits_the_others_and_no_block_evicts_one_of_its() -> None:
    tiny = {"memory_pool.gb_per_node": 0.2, "memory_pool.ssd_gb_per_node": 0.0}
    hits = []
    for rate in (1.0, 60.0):
        s = pair(tiny | {"workload.rate_req_per_s": rate}, both=READS)
        hits.append(run_of(s).tables["models"]["hit_token_ratio"][1])
    alone = simulate(split_models(pair(tiny, both=READS))[1], FACTS).summary["hit_token_ratio"]
    assert hits == pytest.approx([alone, alone], rel=0.02)
    quota = with_overrides(pair(tiny, both=READS), {"models.0.pool_share": 0.95})
    assert run_of(quota).tables["models"]["hit_token_ratio"][1] > 1.1 * hits[0] > 0.0


def test_the_order_of_models_decides_seats_and_seeds_alone() -> None:
    s = pair()
    first, second = split_models(s)
    assert first.seed == s.seed != second.seed
    assert second.deployment.first_npu == first.deployment.first_npu + npus_used(first)
    made = run_of(s).tables["requests"]
    arrivals = [made.filter(pl.col("model") == name)["arrival_s"] for name in model_names(s)]
    assert not set(arrivals[0]) & set(arrivals[1])


QUICK = FACTS.replaced(
    {"startup.process": 0.6, "startup.compile": 0.8, "startup.regroup": 0.3, "startup.loader": 1e3}
)
COMES = {"supernode.nodes": 8, "horizon_s": 8.0, "models.0.elastic.controller": "schedule",
         "models.0.elastic.npus": 32, "models.0.elastic.interval_s": 1.0,
         "models.0.elastic.cool_down_s": 0.5, "models.0.elastic.shrink_after_s": 0.5,
         "models.0.elastic.schedule": [{"at_s": 0.5, "prefill": 2, "decode": 4}]}  # fmt: skip


def test_instances_of_one_model_come_on_npus_that_no_other_has() -> None:
    further = SECOND | {"name": "third"}
    s = pair()
    s = with_overrides(s, {"models": [SECOND, further], "supernode.nodes": 8})
    s = with_overrides(s, COMES)
    assert [one.deployment.first_npu for one in split_models(s)] == [0, 16, 48]
    made = simulate(s, QUICK)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    lives, seats = made.tables["lives"], made.tables["seats"]
    came = lives.filter((pl.col("state") == "serve") & (pl.col("t_s") > 0.0))
    assert came.height >= 1 and set(lives["model"]) == {"second"}
    assert (came["first_npu"] >= 32).all() and (came["first_npu"] < 48).all()
    owners = seats.group_by("role", "instance").agg(pl.col("model").n_unique())
    assert (owners["model"] == 1).all()
    windows, npus = made.tables["windows"], made.summary["npus"]
    assert windows["decode_npus"][0] == 24 and windows["decode_npus"][-1] > 24
    assert npus == pytest.approx(made.tables["models"]["npus"].sum())
    alone = simulate(split_models(s)[1], QUICK)
    (second,) = made.tables["models"].filter(pl.col("model") == "second").to_dicts()
    for key in ("requests", "npu_hours", "starts", "ttft_s_p99", "tpot_s_mean"):
        assert second[key] == pytest.approx(alone.summary[key], rel=0.01)


def test_a_power_cap_lowers_each_models_clock_as_it_does_alone() -> None:
    s = pair({"cost.cap_w": 400.0, "models.0.deployment.model": "qwen3-235b",
              "models.0.deployment.decode.npus_per_instance": 8, "supernode.nodes": 6})  # fmt: skip
    made, alone = run_of(s), [simulate(one, FACTS) for one in split_models(s)]
    clocks = made.tables["models"]["prefill_clock"].to_list()
    assert clocks == [run.summary["prefill_clock"] for run in alone]
    assert min(clocks) < 1.0 and made.summary["prefill_clock"] is None


def test_eight_models_fit_in_a_run() -> None:
    small_one = {"deployment.prefill.instances": 1, "deployment.decode.instances": 1,
                 "deployment.prefill.npus_per_instance": 2,
                 "deployment.decode.npus_per_instance": 2, "horizon_s": 2.0}  # fmt: skip
    one = small(small_one)
    row = {"deployment": one.deployment.model_dump(mode="json"),
           "workload": one.workload.model_dump(mode="json")}  # fmt: skip
    s = with_overrides(one, {"models": [row | {"name": f"model {k}"} for k in range(7)]})
    assert run_of(s).tables["models"].height == 8
    with pytest.raises(SpecError, match="models"):
        with_overrides(one, {"models": [row | {"name": f"model {k}"} for k in range(8)]})


def test_the_formula_answers_for_each_model_as_for_it_alone() -> None:
    s = pair({"models.0.deployment.mode": "decode_only"})
    each = predict_all(s)["models"]
    assert list(each) == model_names(s)
    for answer, one in zip(each.values(), split_models(s), strict=True):
        assert (
            answer["summary"]["throughput_req_per_s"] == predict_steady(one, FACTS).requests_per_s
        )


def test_a_run_that_is_watched_names_instances_as_its_tables_do() -> None:
    s = pair()
    seen = watch(s, FACTS, (1.0, 1.5), 1000).passes
    busy = run_of(s).tables["instances"].filter(pl.col("busy") > 0.0)
    assert set(seen) <= set(busy.select("role", "instance").unique().rows())
    assert {index for role, index in seen if role == "decode"} == {0, 1, 2, 3}


def test_a_field_of_a_further_model_is_read_and_set_by_the_number_of_its_row() -> None:
    path = "models.0.workload.rate_req_per_s"
    s = pair({path: 8.0})
    assert value_of(s, path) == 8.0 and s.workload.rate_req_per_s == BASE.workload.rate_req_per_s
    names = [
        point.scenario and point.scenario.name for point in points(s, [parse_axis(f"{path}=5,9")])
    ]
    assert len(set(names)) == 2


def test_a_text_of_one_model_is_what_it_was_and_one_of_several_reads_back() -> None:
    assert "models" not in json_text(small()) and "first_npu" not in json_text(small())
    s = pair()
    assert scenario_from_canonical(json_text(s)) == s


REFUSED = {
    "models may take up the NPUs up to 48 and the supernode has 32": {
        "models.0.elastic.controller": "queue",
        "models.0.elastic.npus": 32,
    },
    "two models have one name": {"models.0.name": "deepseek-v2-lite"},
    "begins at 8: let its deployment.first_npu be 16 or more": {"models.0.deployment.first_npu": 8},
    "tenants next to several models": {"tenants": [{"name": "a"}]},
    "decode_npus next to several models": {"models.0.deployment.prefill.on": "decode_npus"},
    "second cannot replay a trace": {"models.0.workload.arrivals": "trace"},
    "second cannot have imported expert counts": {"models.0.experts.popularity": "imported"},
    "needs 48 NPUs but supernode has 32": {"models.0.deployment.decode.npus_per_instance": 12},
    "perhaps workload.rate_req_per_s": {"models.3.workload.rate_req_per_s": 1.0},
    "-1 should be greater": {"models.0.workload.rate_req_per_s": -1.0},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(said: str) -> None:
    with pytest.raises(SpecError, match=said) as refusal:
        pair(REFUSED[said])
    assert "\n" not in str(refusal.value)


def test_models_that_placement_or_an_edit_puts_on_one_npu_are_refused() -> None:
    s = pair({"supernode.nodes": 5, "supernode.edits": [{"element": "NPU 0.1",
                                                         "capacity_factor": 0.0}]})  # fmt: skip
    with pytest.raises(ScenarioError, match=r"prefill 0 of .* and prefill 0 of second would sit"):
        set_up_models(s, FACTS, None)
    apart = with_overrides(s, {"models.0.deployment.first_npu": 24})
    begins = [one.deployment.first_npu for one in split_models(apart)]
    assert begins == [0, 24] and all(a < b for a, b in pairwise(begins))
    assert run_of(apart).valid


def test_what_a_model_cannot_be_set_up_with_is_said_with_its_name() -> None:
    s = pair({"models.0.workload.rate_req_per_s": 0.001})
    with pytest.raises(ScenarioError, match="^second: no request arrives"):
        set_up_models(s, FACTS, None)


def test_what_is_of_one_model_says_so() -> None:
    with pytest.raises(PlanError, match="a plan is of one model"):
        plan_from(pair(), {"goal": "npus"})
