"""The bound of a price: no steady simulation keeps its SLO at it."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.lab.plan.small import facts, small
from twin.engine.simulate import simulate
from twin.lab.explain.capacity import with_load, with_span
from twin.lab.explain.view import slo_met
from twin.lab.plan import price
from twin.lab.plan.candidates import space_of
from twin.lab.plan.price import Prices
from twin.lab.plan.question import Plan
from twin.lab.plan.space import CONTROLLER, OFFLOAD
from twin.model.shape import ModelError
from twin.scenario import Scenario, parse_scenario, with_overrides
from twin.steady import predict_steady, traffic_of

LENGTHS = ("fixed", "sharegpt", "mooncake-conversation", "azure-2023-conv")


def drawn(r: random.Random) -> Scenario:
    """A scenario of a small machine with any traffic."""
    model = r.choice(["deepseek-v2-lite", "deepseek-v2-lite", "qwen3-235b"])
    big = model != "deepseek-v2-lite"

    def size() -> dict[str, int]:
        npus = r.choice((16, 32) if big else (2, 4, 8))
        return {"instances": 1, "npus_per_instance": npus}

    return parse_scenario({
        "name": "drawn", "seed": r.randrange(1, 9999),
        "supernode": {"nodes": 16 if big else r.choice([2, 4, 6])},
        "workload": {
            "arrivals": r.choice(["poisson", "poisson", "uniform"]),
            "lengths": r.choice(LENGTHS), "prefix": r.choice(["none", "none", "shared"]),
            "input_tokens": r.choice([128, 512, 2048, 6000]),
            "output_tokens": r.choice([32, 64, 200, 600]),
        },
        "deployment": {
            "mode": r.choice(["disaggregated", "disaggregated", "colocated"]), "model": model,
            "prefill": size(), "colocated": size(),
            "decode": size() | {"mtp_draft_tokens": 0, "batch_per_npu": r.choice([8, 32, 96, 192])},
        },
        "experts": {"redundant": r.choice([0, 16])},
        "slo": {
            "ttft_s": r.choice([0.2, 1.0, 3.0]), "share": r.choice([0.5, 0.9, 0.99]),
            "tpot_ms": r.choice([8.0, 20.0, 40.0]) * (2 if big else 1),
        },
    })  # fmt: skip


@draws(2)
@given(st.integers(0, 10**6), st.sampled_from([1, 2]))
def test_no_steady_simulation_keeps_its_slo_at_the_bound(seed, rank_dies):
    r = random.Random(seed)
    vary = ("instances", "sizes", "decode_batch")
    s = with_overrides(drawn(r), {"deployment.decode.tp_dies": rank_dies})
    space = space_of(Plan(scenario=s, goal="efficiency", vary=vary), facts())
    if not space.open_candidates:
        return
    deployed = r.choice(space.open_candidates)
    bound = deployed.price.bound
    wanted = with_overrides(space.base, deployed.changes)
    run = simulate(with_load(with_span(wanted, facts(), bound), bound), facts())
    assert not slo_met(run.summary, run.scenario), (seed, bound, deployed.changes)


ELASTIC = {"horizon_s": 900.0, "warmup_s": 500.0, "elastic.interval_s": 10.0,
           "elastic.cool_down_s": 0.0}  # fmt: skip


@draws(1)
@given(st.integers(0, 10**6), st.sampled_from(["offload", "controller"]))
def test_none_does_that_offloads_attention_or_has_a_controller(seed, key):
    r = random.Random(seed)
    s = with_overrides(drawn(r), {"deployment.mode": "disaggregated"})
    wanted = Plan(scenario=s, goal="efficiency", vary=("instances", "sizes", "decode_batch", key))
    space = space_of(wanted, facts())
    if space.open_candidates:
        space.add_neighbours(r.choice(space.open_candidates))
    path = {"offload": OFFLOAD, "controller": CONTROLLER}[key]
    if not (able := [c for c in space.open_candidates if c.changes.get(path)]):
        return
    deployed = r.choice(able)
    bound = deployed.price.bound
    at = with_span(with_overrides(space.base, deployed.changes), facts(), bound)
    at = with_overrides(at, ELASTIC) if key == "controller" else at
    run = simulate(with_load(at, bound), facts())
    assert not slo_met(run.summary, run.scenario), (seed, bound, deployed.changes)


def test_a_deployment_that_does_not_fit_into_memory_leaves_the_traffic_known():
    model = {"supernode__nodes": 4, "deployment__model": "deepseek-r1"}
    shared = model | {"workload__prefix": "shared"}
    pools = {f"deployment__{role}__npus_per_instance": 4 for role in ("prefill", "decode")}
    reused = small(**shared, **pools)
    with pytest.raises(ModelError, match="does not fit"):
        traffic_of(reused, facts())
    fitting = traffic_of(small(**shared, **dict.fromkeys(pools, 16)), facts())
    assert Prices(reused, facts(), None).traffic.hit_tokens == fitting.hit_tokens > 0.0
    with pytest.raises(ModelError, match="8 NPUs. of colocated 0 does not fit"):
        Prices(with_overrides(reused, {"supernode.nodes": 1}), facts(), None)


@pytest.mark.parametrize("more", [{}, {CONTROLLER: "rebalance"}])
def test_a_front_end_has_the_luck_of_a_run_too(more):
    s = small(front_end__service_ms=100.0)
    prices = Prices(s, facts(), None)
    found = prices.price(more)
    assert found.limit == "front end"
    assert found.bound == pytest.approx(price.LUCK * found.expected)


@pytest.mark.parametrize("tpot_ms", [4.0, 8.0, 16.0])
def test_larger_batches_than_the_slo_allows_change_no_price(monkeypatch, tpot_ms):
    s = small(slo__tpot_ms=tpot_ms)
    some = Prices(s, facts(), 100.0)
    found = some.price({})
    monkeypatch.setattr(price, "BEYOND", math.inf)
    whole = Prices(s, facts(), 100.0)
    assert (found.bound, found.expected, found.limit) == (
        pytest.approx(whole.price({}).bound), pytest.approx(whole.price({}).expected),
        whole.price({}).limit,
    )  # fmt: skip
    few, all_of = some.pools({})["decode"][0], whole.pools({})["decode"][0]
    assert few.batches == all_of.batches[: len(few.batches)]
    assert few.tpots_s[-1] > some.tpot_s or few == all_of


def test_a_curve_goes_on_where_a_longer_tpot_is_allowed():
    tight = Prices(small(slo__tpot_ms=3.0), facts(), None)
    few = tight.pools({})["decode"][0]
    loose = Prices(small(slo__tpot_ms=300.0), facts(), None, tight.pool_by_key)
    assert len(loose.pools({})["decode"][0].batches) > len(few.batches)


def test_the_bound_knows_that_a_layer_is_read_while_those_before_compute():
    many = {"workload__prefix": "shared", "workload__shared_fraction": 0.8,
            "memory_pool__plane": "vpc"}  # fmt: skip
    rates = {}
    for layerwise in (False, True):
        s = small(**many, memory_pool__layerwise=layerwise, deployment__mode="prefill_only")
        bound = Prices(s, facts(), None).price({}).bound
        rates[layerwise] = predict_steady(s, facts()).requests_per_s
        assert bound >= rates[layerwise]
    assert rates[True] > price.LUCK * rates[False]  # else the bound would be above it anyway


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "prefill_only"])
def test_the_tokenisers_of_instances_limit_a_plan_as_they_limit_the_formula(mode):
    slow = facts().replaced({"operators.ascend.tokenise": 100.0})
    size = {"deployment__colocated__npus_per_instance": 4, "deployment__colocated__instances": 2}
    s = small(deployment__mode=mode, workload__input_tokens=1000, **size)
    at, sustained = Prices(s, slow, None).price({}), predict_steady(s, slow).requests_per_s
    assert at.limit == "front end" and at.expected == pytest.approx(sustained)
    assert sustained <= at.bound == pytest.approx(price.LUCK * sustained)
    assert Prices(s, facts(), None).price({}).expected > 1.1 * sustained
