"""Deployments of a plan: which there are, what they cost, and why some cannot be."""

from dataclasses import replace

import pytest

from tests.lab.plan.small import VARY, facts, plan, small
from twin.lab.plan.answer import brief_text, next_step_text
from twin.lab.plan.candidates import chip_shortage, merit, npus_taken, space_of
from twin.lab.plan.question import PlanError, plan_digest, plan_from, plan_from_text, question_text
from twin.lab.plan.search import Search
from twin.lab.plan.space import (
    CHOICES,
    CONTROLLER,
    COUNTED,
    LENT,
    OFFLOAD,
    OFFLOADED,
    SIZED,
    Machine,
    varied_values,
)
from twin.scenario import field_info, fields, npus_used, unmet_condition, value_of, with_overrides


def test_every_field_of_every_choice_exists_and_takes_its_values():
    base = small()
    for choice in CHOICES.values():
        for path in choice.values:
            assert field_info(path) is not None, path
    space = space_of(plan(base, vary=tuple(CHOICES)), facts())
    space.add_neighbours(space.open_candidates[0])
    changed = {path for c in space.candidates for path in c.changes}
    assert {"router.policy", "deployment.precision.kv", "experts.redundant"} <= changed
    for candidate in space.open_candidates[::100]:
        made = with_overrides(space.base, candidate.changes)
        assert npus_used(made) == candidate.npus == npus_taken(space.base, candidate.changes)


@pytest.mark.parametrize(("path", "value", "text"), [
    ("deployment.precision.kv", "int8", "INT8"), ("deployment.prefill.instances", 3, "3"),
    ("memory_pool.enabled", False, "off"),
])  # fmt: skip
def test_a_next_step_is_named_whatever_kind_of_value_it_sets(path, value, text):
    search = Search(space_of(plan(), facts()), facts())
    own = search.space.open_candidates[0]
    double = replace(own.price, expected=2.0 * own.price.expected)
    more = tuple(sorted((own.changes | {path: value}).items()))
    search.space.candidates = [own, replace(own, settings=more, price=double)]
    sentence = next_step_text(search, own)
    assert f" {text}: 100 % more load by formula, no more NPUs." in sentence


def test_experts_apart_bring_their_domains_as_one_choice():
    space = space_of(plan(vary=(*VARY, "afd")), facts())
    best = max(space.open_candidates, key=lambda c: c.npus)
    space.add_neighbours(best)
    apart = [c for c in space.candidates if c.changes.get("deployment.decode.expert_npus")]
    counts = {c.changes["deployment.decode.domains"] for c in apart}
    known = fields()["deployment.decode.domains"]
    assert {known.low, known.high} <= counts and len(counts) > 2
    assert {tuple(space.differing_settings(c, best)) for c in apart} == {
        ("deployment.decode.expert_npus",)
    }


def test_around_experts_apart_are_the_next_numbers_of_domains():
    space = space_of(plan(vary=(*VARY, "afd")), facts())
    space.add_neighbours(max(space.open_candidates, key=lambda c: c.npus))
    two = {"deployment.decode.expert_npus": 8, "deployment.decode.domains": 2}
    one = next(c for c in space.candidates if two.items() <= c.changes.items())
    before = {c.settings for c in space.candidates}
    space.add_neighbours(one)
    new = [c.changes for c in space.candidates if c.settings not in before]
    assert 3 in {g["deployment.decode.domains"] for g in new if two.keys() <= g.keys()}


def test_offloaded_attention_is_priced_with_the_instances_that_lend_and_ask():
    space = space_of(plan(vary=(*VARY, "offload"), goal="efficiency"), facts())
    two = {COUNTED["prefill"]: 2, COUNTED["decode"]: 2}
    best = next(
        c for c in space.open_candidates if two.items() <= c.changes.items() and c.npus <= 24
    )
    space.add_neighbours(best)
    away = [c for c in space.open_candidates if c.changes.get(OFFLOAD)]
    assert {c.changes[OFFLOAD] for c in away} == set(OFFLOADED)
    assert len({c.changes[LENT] for c in away}) == 3
    assert {tuple(space.differing_settings(c, best)) for c in away} == {(OFFLOAD,)}
    counts = {tuple(c.changes[path] for path in two) for c in away}
    assert counts == {(2, 2), (2, 1), (3, 2), (3, 1)}
    one = away[-1].changes | {OFFLOAD: 0.4, COUNTED["prefill"]: 1, COUNTED["decode"]: 2}
    few, many = (
        space.prices.pools(one | {COUNTED["prefill"]: count})["decode"][0] for count in (1, 3)
    )
    assert many.tpots_s[-1] < few.tpots_s[-1]  # more dies attend to the same share
    for c in away[:3]:
        made = with_overrides(space.base, c.changes)
        assert c.npus == npus_used(made) and "Cores lent to decode" in brief_text(c.changes)


@pytest.mark.parametrize(
    ("key", "changed"),
    [("offload", {"deployment.decode.attention_offload": 0.25}),
     ("controller", {"elastic.controller": "rebalance", "elastic.npus": 24})],
)  # fmt: skip
def test_what_a_scenario_has_of_a_choice_is_its_own_deployment_where_that_varies(key, changed):
    s = with_overrides(small(), changed)
    fixed, varying = (space_of(plan(s, vary=v), facts()) for v in (VARY, (*VARY, key)))
    (path, value), *_ = changed.items()
    assert any(key in note for note in fixed.notes)
    assert not any(key in note for note in varying.notes)
    (own,) = [c for c in varying.candidates if varying.is_own(c)]
    assert own.changes[path] == value and value_of(varying.base, path) != value
    assert any(fixed.is_own(c) for c in fixed.candidates)


def test_a_controller_has_the_bound_of_npus_that_change_pools_at_no_cost():
    prices = space_of(plan(vary=(*VARY, "controller")), facts()).prices
    size = {SIZED["prefill"]: 8, SIZED["decode"]: 8}
    moving, fixed = (
        [
            prices.price(size | {COUNTED["prefill"]: p, COUNTED["decode"]: 6 - p} | more)
            for p in range(1, 6)
        ]
        for more in ({CONTROLLER: "rebalance"}, {})
    )
    assert len({round(p.bound, 9) for p in moving}) == 1
    assert moving[0].bound >= max(p.bound for p in fixed)
    assert [p.expected for p in moving] == [p.expected for p in fixed]


def test_controllers_that_need_rows_or_a_file_vary_where_the_scenario_has_them():
    rows = {"elastic.controller": "schedule", "elastic.schedule": [{"at_s": 5.0}]}
    for s, has in ((small(), False), (with_overrides(small(), rows), True)):
        values = varied_values(s, ("controller",), Machine.of(s, facts()))[CONTROLLER]
        assert ("schedule" in values) == has and "own" not in values and "rebalance" in values


@pytest.mark.parametrize("section", ["router", "memory_pool"])
def test_every_policy_that_a_section_declares_varies(section):
    s = with_overrides(small(), {"workload.prefix": "shared"})
    values = varied_values(s, (section,), Machine.of(s, facts()))
    for path, known in fields().items():
        if path.startswith(f"{section}.") and known.options and not unmet_condition(path, s):
            assert set(values[path]) == set(known.options), path
    assert len(values[f"{section}.policy"]) > 2


def test_more_drafts_than_are_crossed_are_tried_up_to_what_the_field_declares():
    path = "deployment.decode.mtp_draft_tokens"
    changed = {"deployment.model": "deepseek-r1", "supernode.nodes": 12, path: 1,
               "deployment.prefill.npus_per_instance": 16, "deployment.decode.instances": 1,
               "deployment.decode.npus_per_instance": 32}  # fmt: skip
    s = with_overrides(small(), changed)
    space = space_of(plan(s, vary=("mtp",), goal="efficiency"), facts())
    most = max(c.changes[path] for c in space.candidates)
    for _ in range(int(fields()[path].high)):
        space.add_neighbours(max(space.candidates, key=lambda c: c.changes[path]))
    assert most < max(c.changes[path] for c in space.candidates) == fields()[path].high


def test_a_load_gets_the_fewest_instances_that_are_enough():
    single = small(deployment__prefill__npus_per_instance=1)
    one = space_of(plan(single, vary=("instances",)), facts()).prices
    rate = 8.5 * one.price({COUNTED["prefill"]: 1, COUNTED["decode"]: 1}).expected
    space = space_of(
        plan(small(deployment__prefill__npus_per_instance=1, workload__rate_req_per_s=rate),
             vary=("instances",)), facts(),
    )  # fmt: skip
    assert 9 in {
        c.changes[COUNTED["prefill"]] for c in space.open_candidates
    }  # not one of the round counts


def test_no_deployment_comes_twice_and_each_that_is_out_says_why():
    space = space_of(plan(), facts())
    assert len({c.settings for c in space.candidates}) == len(space.candidates)
    assert space.open_candidates and all(
        c.reason for c in space.candidates if c.status != "untested"
    )
    bounds = [merit("npus", c.price.bound, c.npus) for c in space.open_candidates]
    assert bounds == sorted(bounds, reverse=True)


def test_a_limit_of_npus_is_kept_and_the_own_deployment_is_among_them():
    space = space_of(plan(npus=16), facts())
    assert max(c.npus for c in space.open_candidates) <= 16
    own = {COUNTED["prefill"]: 1, COUNTED["decode"]: 1, "deployment.decode.batch_per_npu": 96}
    assert any(all(c.changes.get(p) == v for p, v in own.items()) for c in space.candidates)


def test_what_the_formula_cannot_carry_is_out_with_both_figures():
    space = space_of(plan(small(workload__rate_req_per_s=50_000.0)), facts())
    assert not space.open_candidates
    assert any("of 5e+04 requests/s" in c.reason for c in space.candidates)


def test_a_plan_is_read_back_from_its_text_and_equal_ones_have_one_digest():
    wanted = plan(goal="rate", survives=("node", "die"), npus=24)
    again = plan_from_text(question_text(wanted))
    assert again == wanted and plan_digest(again) == plan_digest(wanted)
    assert plan_digest(plan(goal="rate")) != plan_digest(wanted)


@pytest.mark.parametrize(
    "wrong", [{"goal": "fame"}, {"vary": ("colour",)}, {"survives": ("flood",)},
              {"cost_per_million_tokens": 3.0}, {"simulations": 0}],
)  # fmt: skip
def test_what_is_no_plan_is_one_sentence(wrong):
    with pytest.raises(PlanError) as refused:
        plan_from(small(), wrong)
    assert "\n" not in str(refused.value)


def test_faults_and_controllers_of_the_scenario_are_set_aside_and_named():
    fault = [{"element": "node 1", "at_s": 6.0}]
    space = space_of(plan(with_overrides(small(), {"faults": fault})), facts())
    assert not space.base.faults and len(space.notes) == 1


def test_a_score_is_higher_for_what_the_goal_wants():
    assert merit("npus", 5.0, 8) > merit("npus", 9.0, 16)
    assert merit("rate", 9.0, 16) > merit("rate", 5.0, 8)
    assert merit("efficiency", 9.0, 8) > merit("efficiency", 9.0, 16)


def test_a_deployment_has_no_more_npus_of_a_chip_than_the_machine():
    kinds = {"supernode.kinds": [{"chip": "ascend-950dt", "nodes": 1}],
             "deployment.decode.chip": "ascend-950dt"}  # fmt: skip
    base = with_overrides(small(), {"deployment.decode.npus_per_instance": 8,
                                    "deployment.decode.instances": 1, **kinds})  # fmt: skip
    assert chip_shortage(base, {}) == "" == chip_shortage(small(), {COUNTED["decode"]: 9})
    more = chip_shortage(base, {COUNTED["decode"]: 2})
    assert more == "needs 16 NPUs of ascend-950dt, and the machine has 8"
    space = space_of(plan(base), facts())
    assert space.open_candidates and all(
        chip_shortage(base, c.changes) == "" for c in space.open_candidates
    )
