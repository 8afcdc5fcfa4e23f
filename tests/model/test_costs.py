from dataclasses import FrozenInstanceError, replace

import pytest

from twin.hardware.fabric import build_fabric
from twin.model.costs import build_costs, role_costs
from twin.model.record import walk
from twin.model.shape import ModelError
from twin.scenario import Scenario, with_overrides


def test_a_role_that_is_not_deployed_is_refused(facts):
    s = with_overrides(Scenario(), {"deployment.mode": "decode_only"})
    costs = build_costs(s, facts, build_fabric(s.supernode, facts))
    assert costs.decode.moe_layers == 58
    with pytest.raises(ModelError, match="no prefill instances"):
        _ = costs.prefill


def test_coefficients_cannot_be_changed_and_sizes_say_what_travels(facts):
    s = Scenario()
    costs = build_costs(s, facts, build_fabric(s.supernode, facts))
    with pytest.raises(FrozenInstanceError):
        costs.decode.tiles = 4.0
    for role in costs.roles.values():  # a shared expert on dies of its own is a ninth message
        messages = 9 if role.layout.shared_dies else 8
        sent = (7_680 + 14_336) * messages * 58 * (role.dies - 1) / role.dies
        assert role.exchange_bytes_per_token == pytest.approx(sent)


def test_another_batch_has_other_buffers_and_the_very_same_coefficients(facts):
    costs = []
    for batch in (16, 96):
        s = with_overrides(Scenario(), {"deployment.decode.batch_per_npu": batch, "seed": batch})
        costs.append(build_costs(s, facts, build_fabric(s.supernode, facts)))
    few, many = costs
    assert few.decode is many.decode and few.prefill is many.prefill
    assert few.decode_role.memory.kv > many.decode_role.memory.kv


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_on_a_share_of_the_cores_what_computes_is_slower_and_what_travels_is_not(facts, role):
    s = Scenario()
    at = build_costs(s, facts, build_fabric(s.supernode, facts)).deployed
    first = next(i for i in at.instances if i.role == role)
    pool = at.pools[role]
    some = replace(pool, groups=(replace(pool.own, cores=0.7),), cores=0.7)
    whole, part = (
        role_costs(replace(at, pools={role: p}), role, first.die_of_rank, first.name)
        for p in (pool, some)
    )
    assert part.memory == whole.memory
    for (c, a), (_, b) in zip(walk(whole.coefficients), walk(part.coefficients), strict=True):
        if c.scale == "computed":
            assert a <= b <= a / 0.7 * (1 + 1e-9), c.name
        elif c.scale == "carried":
            assert a == b, c.name
    products = [r.prefill if role == "prefill" else r.decode.sequence for r in (whole, part)]
    assert products[1].experts.flop == pytest.approx(products[0].experts.flop / 0.7)


@pytest.mark.parametrize("model", ["deepseek-v2-lite", "qwen3-235b", "kimi-k2", "glm-5"])
def test_other_models_run(facts, model):
    s = with_overrides(
        Scenario(), {"deployment.model": model, "deployment.decode.mtp_draft_tokens": 0}
    )
    costs = build_costs(s, facts, build_fabric(s.supernode, facts))
    assert costs.decode_role.kv_tokens_per_rank > 100_000


@pytest.mark.parametrize(("drafts", "layers"), [(0, 61), (1, 62), (3, 62)])
def test_the_drafting_module_keeps_its_own_kv(facts, drafts, layers):
    s = with_overrides(Scenario(), {"deployment.decode.mtp_draft_tokens": drafts})
    costs = build_costs(s, facts, build_fabric(s.supernode, facts))
    assert costs.kv_bytes_per_token == 2 * (512 + 64) * layers
    for role in (costs.prefill_role, costs.decode_role):
        assert role.kv_tokens_per_rank == int(role.memory.kv / costs.kv_bytes_per_token)


def test_an_instance_across_supernodes_pays_what_the_graph_says(facts):
    """UB ends at the supernode: what goes on to the other one takes the NICs."""
    asked = {
        "deployment.mode": "decode_only",
        "supernode.supernodes": 2,
        "supernode.nodes": 8,
        "deployment.decode.npus_per_instance": 32,
    }
    seats = [{"role": "decode", "index": 0, "element": "node 0"}]
    seats += [{"role": "decode", "index": 0, "element": f"node {n}"} for n in (1, 8, 9)]
    by_hand = {"deployment.placement": "by_hand", "deployment.seats": seats}
    rates = []
    for more in ({}, by_hand):
        s = with_overrides(Scenario(), asked | more)
        role = build_costs(s, facts, build_fabric(s.supernode, facts)).decode_role
        assert role.dies_per_node == 16
        rates.append(role.exchange_bytes_per_s)
    assert rates[1] < 0.6 * rates[0]
