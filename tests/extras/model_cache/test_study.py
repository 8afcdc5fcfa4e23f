"""Several models served, beside the paper's own table (v2 Table 2), which is a calculation."""

import json

import numpy as np
import pytest

from twin.extras.model_cache.fleet import Fleet, FleetRun, ServedModel
from twin.extras.model_cache.study import Question, model_stores, summed_up, table
from twin.lab.library import load_facts
from twin.model.shape import ModelError
from twin.scenario import Scenario

FACTS = load_facts()
SIZE, BUCKET_S = FACTS.si("startup.table.model"), FACTS.si("startup.table.cold")
# One NPU reads the whole model from DRAM: what the table's 5 s are.
ONE_NPU = FACTS.si("fabric.measured.npu_cpu.read.inter_node.bandwidth")
DAY_S = 86_400.0


def answer(**asked):
    return model_stores(Scenario(), FACTS, Question(**asked))


def of_the_paper(place, slots):
    """Eight models, asked for rarely and each as often; every request needs a load."""
    model = ServedModel("671B in INT8", SIZE, SIZE / ONE_NPU, 100.0, 0.0, 1.0)
    rooms = {"object storage": 0, "local DRAM": 1, "memory pool": 8}[place]
    fleet = Fleet((model,) * 8, slots, place, rooms * SIZE, SIZE / BUCKET_S, 0.0, 0.0, 0.0)
    named = np.random.default_rng(0).integers(0, 8, 4000)
    out = FleetRun(fleet).serve(named.tolist(), (1000.0 * np.arange(4000)).tolist())
    return summed_up(fleet, out, 1000.0 * named.size, 1.0, 16)


@pytest.mark.parametrize(
    ("place", "cold_s", "warm_s", "hit_ratio", "switch_s", "dram"),
    [
        ("object storage", 2560, None, 0.0, 320, 0),
        ("local DRAM", 2560, 5, 0.125, 281, 8),
        ("memory pool", 320, 5, 1.0, 5, 1),
    ],
)
def test_the_papers_table_follows_where_its_assumptions_hold(
    place, cold_s, warm_s, hit_ratio, switch_s, dram
):
    loads, switches = of_the_paper(place, 8), of_the_paper(place, 1)
    assert loads.cold_s == pytest.approx(cold_s, rel=0.1)
    assert loads.warm_s == (warm_s and pytest.approx(warm_s, rel=0.1))
    assert loads.dram_models == pytest.approx(dram)
    assert switches.hit_ratio == pytest.approx(hit_ratio, rel=0.1)
    assert switches.switch_s == pytest.approx(switch_s, rel=0.1)
    assert switches.wait_s_mean == pytest.approx(switches.switch_s)


def test_a_scenarios_own_rates_give_less_than_the_table():
    """2.5 GB/s, as stated beside the table, is 268 s; all dies of a deployment read at once."""
    found = answer(hours=1.0)
    assert found.model_bytes == pytest.approx(SIZE, rel=0.01)
    none, local, pool = found.stores
    assert none.cold_s == pytest.approx(8 * 268, rel=0.01)
    assert pool.cold_s == pytest.approx(268, rel=0.01)
    assert 0.0 < pool.warm_s < local.warm_s < SIZE / ONE_NPU


@pytest.mark.parametrize("models", [2, 5, 16])
def test_one_slot_hits_what_dram_has_room_for(models):
    """Models all alike, each load drawn anew: rooms over models, as the arithmetic has it."""
    asked = {"models": models, "instances": 1, "idle_s": 0.0, "rate_req_per_s": 0.002}
    _, local, pool = answer(**asked, local_models=1, pool_models=models, hours=1000.0).stores
    loads = local.starts + local.switches
    error = 3.0 * ((models - 1) / loads) ** 0.5 / models
    assert local.hit_ratio <= 1.0 / models + error  # two in a row are served by one load
    assert pool.hit_ratio == 1.0 and pool.dram_bytes == pytest.approx(models * SIZE, rel=0.01)


def test_popular_models_are_found_more_often_and_wait_less():
    asked = {"models": 8, "instances": 2, "pool_models": 4, "rate_req_per_s": 0.01, "hours": 100.0}
    alike, ranked = answer(**asked).stores[2], answer(**asked, skew=1.5).stores[2]
    given = answer(**asked, shares=tuple((k + 1) ** -1.5 for k in range(8))).stores[2]
    assert ranked == given
    assert ranked.hit_ratio > alike.hit_ratio
    assert ranked.wait_s_by_model[0] < ranked.wait_s_by_model[7]
    with pytest.raises(ModelError, match="2 shares for 8 models"):
        answer(shares=(1.0, 2.0))


def test_the_longer_a_model_stays_the_less_requests_wait_and_the_more_npus_are_idle():
    stores = [answer(idle_s=idle_s, hours=24.0).stores[2] for idle_s in (0.0, 60.0, 600.0, DAY_S)]
    waits, idle = [s.wait_s_mean for s in stores], [s.npu_hours_idle for s in stores]
    assert waits == sorted(waits, reverse=True) and idle == sorted(idle)
    assert stores[-1].starts == 0 and stores[-1].slo_share == 1.0
    assert idle[0] == pytest.approx(0.0, abs=1e-6)


def test_models_of_several_kinds_keep_their_own_sizes_and_rates():
    found = answer(models=3, names=("deepseek-r1", "qwen3-235b"), hours=2.0)
    assert [name[:2] for name in found.models] == ["1.", "2.", "3."]
    assert found.models[0][3:] == found.models[2][3:] != found.models[1][3:]
    smaller = answer(models=1, names=("qwen3-235b",), hours=2.0)
    assert smaller.stores[0].cold_s < 0.5 * found.stores[0].cold_s


def test_too_many_requests_are_refused():
    with pytest.raises(ModelError, match="200,000 requests"):
        answer(rate_req_per_s=1000.0)


def test_the_same_question_has_the_same_answer_and_a_seed_another():
    assert answer(hours=3.0) == answer(hours=3.0) != answer(hours=3.0, seed=1)
    rows = table(answer(hours=3.0).stores)
    assert len({row[0] for row in rows}) == len(rows) and all(len(row) == 4 for row in rows)


def test_the_command_says_a_column_for_each_place(twin):
    asked = ("model-cache", "quickstart", "--models", "4", "--hours", "2")
    told = json.loads(twin(*asked, "--json").stdout)
    assert [s["name"] for s in told["stores"]] == ["object storage", "local DRAM", "memory pool"]
    shown = twin(*asked)
    assert shown.returncode == 0 and b"2.1 GB/s" in shown.stdout and b"268 s" in shown.stdout
    assert b"2,048 NPUs, more than the 384" in shown.stdout


def test_without_requests_there_is_nothing_to_wait_for():
    for store in answer(rate_req_per_s=0.0).stores:
        assert (store.starts, store.hit_ratio, store.npu_hours) == (0, None, 0.0)
        assert store.cold_s > 0.0 and store.slo_share == 1.0
