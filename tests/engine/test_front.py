"""The front router of several supernodes: what it knows, where requests go, no KV that crosses."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import MODES, facts_with, run, small
from tests.laws.lawful import lawful
from tests.laws.test_models import SECOND
from twin.engine.setup import ScenarioError, set_up, set_up_models
from twin.engine.simulate import simulate
from twin.lab.library import load_facts
from twin.scenario import SpecError, split_models, with_overrides

STEP_S = 0.005
APART = {
    "supernode.supernodes": 2, "supernode.nodes": 2, "router.front": "least_loaded",
    "workload.rate_req_per_s": 60.0, "workload.lengths": "sharegpt", "memory_pool.enabled": False,
}  # fmt: skip
FOUR = APART | {
    "supernode.supernodes": 4, "deployment.prefill.instances": 4,
    "deployment.decode.instances": 8, "workload.rate_req_per_s": 200.0,
}  # fmt: skip


def homes(requests, supernodes, instances, column="decode_instance"):
    """Supernode of each routed request."""
    return requests[column].to_numpy() * supernodes // instances


def under_way(requests, home, t, supernodes):
    """Requests routed and not finished at times f8[n], i8[supernodes, n]."""
    begin_s, end_s = requests["routed_s"].to_numpy(), requests["finish_s"].fill_null(1e9).to_numpy()
    return np.array([
        [((home == g) & (begin_s <= now) & (end_s > now)).sum() for now in t]
        for g in range(supernodes)
    ])  # fmt: skip


@pytest.mark.parametrize("front_report_s", [0.0, 0.05, 0.5])
def test_it_chooses_the_fewest_under_way_as_last_reported(front_report_s):
    """Counted anew from the stamps; with a report at every step it is join the shortest queue."""
    result = run(FOUR | {"router.front_report_s": front_report_s})
    requests = result.tables["requests"].drop_nulls("routed_s").sort("routed_s")
    home = homes(requests, 4, 8)
    end_s, sent = requests["finish_s"].fill_null(1e9).to_numpy(), np.arange(home.size)
    routed_s = requests["routed_s"].to_numpy()
    border_s = (np.ceil(routed_s / STEP_S - 1e-9) - 1.0) * STEP_S
    for i in range(home.size):
        seen_s, known = border_s[i], sent < i
        if front_report_s:
            seen_s = np.floor(border_s[i] / front_report_s + 1e-9) * front_report_s
            known = routed_s <= seen_s
        open_then = known & (end_s > seen_s + 1e-9)
        counts = np.bincount(home[open_then], minlength=4)
        in_turn = np.roll(np.arange(4), -(i % 4))
        assert home[i] == in_turn[np.argmin(counts[in_turn])], i


def test_the_older_its_metrics_the_more_requests_herd():
    t, spread = np.arange(1.0, 4.0, 0.02), []
    for front_report_s in (0.0, 0.25, 1.0):
        requests = run(FOUR | {"router.front_report_s": front_report_s}).tables["requests"]
        requests = requests.drop_nulls("routed_s")
        counts = under_way(requests, homes(requests, 4, 8), t, 4)
        spread.append(float((counts.max(axis=0) - counts.min(axis=0)).mean()))
    assert spread[0] < 3.0 and spread[0] < 0.5 * spread[1] < 0.5 * spread[2]


@pytest.mark.parametrize("front", ["round_robin", "least_loaded"])
@pytest.mark.parametrize("mode", [m for m in MODES if m != "prefill_only"])
def test_every_request_stays_in_one_supernode_and_none_is_lost(mode, front):
    more = {"deployment.mode": mode, "router.front": front, "memory_pool.enabled": True}
    result = run(APART | more | {"workload.prefix": "sessions", "workload.turn_gap_s": 0.3})
    assert result.valid, [check for check in result.checks if not check["ok"]]
    requests = result.tables["requests"].drop_nulls("routed_s")
    column = "prefill_instance" if mode == "colocated" else "decode_instance"
    home = homes(requests, 2, 2, column)
    assert sorted(set(home.tolist())) == [0, 1]
    if mode == "disaggregated":
        assert (homes(requests, 2, 2, "prefill_instance") == home).all()
    if front == "round_robin":
        assert abs(int((home == 0).sum()) - int((home == 1).sum())) <= 1
    if mode != "decode_only":  # a supernode finds no prefix that only the other one has
        session, hits = requests["session"].to_numpy(), requests["hit_tokens"].to_numpy()
        pairs = list(zip(session.tolist(), home.tolist(), strict=True))
        assert not any(hits[i] for i in range(home.size) if pairs[i] not in pairs[:i])
        assert hits.any()


def test_no_kv_crosses_from_one_supernode_to_another():
    setup = set_up(small(APART | {"memory_pool.enabled": True}), load_facts(), None)
    assert [setup.supernode_of(i) for i in setup.instances] == [0, 1, 0, 1]
    assert setup.memory_pools == 2 and setup.pool_of == [0, 1]
    assert [setup.pool_nodes(row) for row in (0, 1)] == [(0, 1), (2, 3)]


def test_a_supernode_that_fails_gets_no_more_and_its_requests_go_to_the_others():
    faults = [{"at_s": 1.5, "element": f"node {n}", "kind": "fail"} for n in (2, 3)]
    result = run(APART | {"faults": faults, "router.front_report_s": 3.0, "recovery.spares": False})
    assert result.valid, [check for check in result.checks if not check["ok"]]
    requests = result.tables["requests"].drop_nulls("decode_instance")
    late = requests["routed_s"].to_numpy() > 3.0
    assert late.any() and not requests["decode_instance"].to_numpy()[late].any()


def test_a_request_that_finds_no_room_holds_none_of_another_supernode():
    """Far more than both serve, of clients that give up while they wait."""
    full = {"deployment.decode.batch_per_npu": 2, "router.front": "round_robin",
            "workload.rate_req_per_s": 200.0, "clients.timeout_s": 1.0}  # fmt: skip
    result = run(APART | full)
    assert result.valid, [check for check in result.checks if not check["ok"]]
    left = result.tables["requests"]["status"].cast(str).is_in(["cancelled"]).sum()
    assert left > 0


SCALED = APART | {
    "elastic.controller": "schedule", "elastic.npus": 32, "elastic.least_instances": 0,
    "horizon_s": 8.0,
    "elastic.interval_s": 1.0, "memory_pool.enabled": True, "workload.prefix": "sessions",
    "workload.turn_gap_s": 0.3,
}  # fmt: skip
QUICK = facts_with({"startup.process": 0.2, "startup.regroup": 0.1, "startup.bucket": 1e12})


@pytest.mark.parametrize("weights", ["pool", "object_storage"])
def test_instances_come_and_go_in_each_supernode_alike(weights):
    """Two of 16 NPUs each: an instance more of decode in each, later one less and no prefill."""
    steps = [{"at_s": 1.0, "prefill": 2, "decode": 4}, {"at_s": 5.0, "prefill": 1, "decode": 3}]
    s = small(SCALED | {"elastic.schedule": steps, "elastic.weights": weights})
    setup = set_up(s, QUICK, None)
    at = {(i.role, i.index): setup.supernode_of(i) for i in setup.instances}
    for i in setup.instances:
        assert {setup.supernode_at(die) for die in i.die_of_rank} == {at[i.role, i.index]}
    made = simulate(s, QUICK)
    lawful(made)
    lives = made.tables["lives"].filter(pl.col("state") == "serve")

    def serving(role, t_s):
        there = lives.filter((pl.col("t_s") <= t_s) & (pl.col("end_s") > t_s), role=role)
        return sorted(at[role, index] for index in there["instance"])

    assert serving("decode", 0.5) == [0, 1] and serving("decode", 4.5) == [0, 0, 1, 1]
    assert serving("decode", 7.5) == [0, 0, 1] and serving("prefill", 7.5) == [0]
    requests = made.tables["requests"].drop_nulls("decode_instance")
    for one in requests.drop_nulls("prefill_instance").iter_rows(named=True):
        assert at["prefill", one["prefill_instance"]] == at["decode", one["decode_instance"]]
    late = requests.filter(pl.col("routed_s") > 6.0)  # a supernode without prefill serves nothing
    assert late.height and {at["decode", d] for d in late["decode_instance"]} == {0}
    # Weights come from nodes of their own supernode alone.
    shares = made.tables["shares"].filter(traffic="weights", direction="out", plane="ub")
    for role, index, node in shares.select("role", "instance", "node").rows():
        assert node // 2 == at[role, index]


def test_none_serves_until_a_request_comes_and_then_every_supernode_does():
    zero = {"elastic.controller": "queue", "elastic.least_instances": 0, "elastic.idle_s": 1.0,
            "workload.rate_req_per_s": 1.0, "horizon_s": 12.0, "elastic.npus": 0}  # fmt: skip
    made = simulate(small(SCALED | zero), QUICK)
    lawful(made)
    lives = made.tables["lives"].filter(state="serve")
    assert lives.height > 4 and set(lives["instance"]) == {0, 1}
    assert made.summary["finished"] > 3


def models_apart(settings):
    s = with_overrides(small(APART | {"models": [SECOND]}), settings)
    setups = set_up_models(s, load_facts(), None)
    for setup in setups:
        assert [setup.supernode_of(i) for i in setup.instances] == [0, 1] * len(setup.roles)
    return s, simulate(s, load_facts())


def test_every_model_has_a_part_of_each_supernode():
    """NPUs 0 to 7 of each are the first model's, those behind the second's; alone it has them too,
    and the same figures where the models share no link."""
    s, made = models_apart({})
    lawful(made)
    alone = simulate(split_models(s)[1], load_facts())
    (second,) = made.tables["models"].filter(model="second").to_dicts()
    assert {key: second[key] for key in alone.summary} == alone.summary


REFUSED = {
    "which has 3 instances: take a multiple of 2": {"deployment.decode.instances": 3},
    "or more in each supernode": {"elastic.controller": "queue", "elastic.least_instances": 2},
    "needs models that all decode": {
        "models": [SECOND | {"deployment": SECOND["deployment"] | {"mode": "prefill_only"}}]
    },
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_one_sentence(said):
    with pytest.raises(SpecError, match=said):
        small(APART | REFUSED[said])


def test_an_instance_across_supernodes_is_refused():
    wide = {"deployment.placement": "spread"}
    with pytest.raises(ScenarioError, match=r"router\.front = least_loaded needs"):
        set_up(small(APART | wide), load_facts(), None)
