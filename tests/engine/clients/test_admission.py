"""Admission: order by tenant, limits and shedding."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import small
from tests.laws.lawful import lawful
from twin.engine.simulate import simulate
from twin.lab.library import load_facts, preset
from twin.scenario import with_overrides

CROWD = {
    "horizon_s": 8.0,
    "warmup_s": 2.0,
    "workload.rate_req_per_s": 900.0,
    "workload.lengths": "azure-2023-conv",
    "deployment.prefill.tokens_per_npu": 1024,
}
# One asks for ten times as much as the other, and each has half of the machine.
PAIR = [{"name": "many", "share": 10.0}, {"name": "few", "share": 1.0, "priority": 1}]


def answered(**asked):
    run = simulate(small(CROWD | asked), load_facts())
    lawful(run)
    return run


def ttft_s(run, tenant):
    own = run.tables["requests"].filter(
        (pl.col("tenant") == tenant) & (pl.col("first_token_s") >= run.scenario.warmup_s)
    )
    return float((own["first_token_s"] - own["arrival_s"]).mean())


@pytest.mark.parametrize("order", ["priority", "fair"])
def test_who_asks_for_little_does_not_wait_for_who_asks_for_much(order):
    rate = {"workload.rate_req_per_s": 400.0}  # "few" asks for less than half of what is served
    fifo, ordered = (
        answered(tenants=PAIR, **rate, **{"admission.order": name}) for name in ("fifo", order)
    )
    assert ttft_s(fifo, "few") == pytest.approx(ttft_s(fifo, "many"), rel=0.2)
    assert ttft_s(ordered, "few") < 0.3 * ttft_s(fifo, "few")
    assert ttft_s(ordered, "many") > 3 * ttft_s(ordered, "few")
    assert ordered.summary["fairness"] >= fifo.summary["fairness"]
    # The machine serves no less: order is not speed.
    key = "throughput_req_per_s"
    assert ordered.summary[key] == pytest.approx(fifo.summary[key], rel=0.1)


def test_who_asks_for_little_passes_the_prefill_queue_too():
    """Where decode has room and prompts wait at the instances, fair time is that of prefill."""
    asked = with_overrides(preset("two-tenants"), {"horizon_s": 40.0, "warmup_s": 10.0})
    fifo, fair = (
        simulate(
            with_overrides(asked, {"admission.order": order, "admission.shed_at": 0.0}),
            load_facts(),
        )
        for order in ("fifo", "fair")
    )
    assert ttft_s(fifo, "chat") > 1.5
    assert ttft_s(fair, "chat") < 0.8 * ttft_s(fifo, "chat")
    assert ttft_s(fair, "chat") < 0.8 * ttft_s(fair, "batch")


def test_of_two_who_ask_for_too_much_each_is_served_by_weight():
    pair = [{"name": "one", "weight": 3.0}, {"name": "other"}]
    run = answered(tenants=pair, **{"admission.order": "fair", "horizon_s": 12.0})
    done = run.tables["requests"].filter(pl.col("finish_s") >= 5.0)  # until then slots were free
    tokens = done.group_by("tenant").agg((pl.col("input_tokens") + pl.col("output_tokens")).sum())
    served = dict(tokens.iter_rows())
    assert served["one"] / served["other"] == pytest.approx(3.0, rel=0.1)
    assert run.summary["fairness"] > 0.98


def inside(requests):
    """Requests inside after each arrival and end, in order of time."""
    out = requests["finish_s"].fill_null(np.inf).to_numpy()
    come = requests["frontend_s"].drop_nulls().to_numpy()
    moments = np.concatenate((come, out[np.isfinite(out)]))
    change = np.concatenate((np.ones(come.size), -np.ones(np.isfinite(out).sum())))
    return np.cumsum(change[np.lexsort((change, moments))])


def test_limits_hold_at_every_moment():
    run = answered(**{"admission.in_flight": 30})
    let_in = run.tables["requests"].filter(pl.col("status") != "rejected")
    assert 25 <= inside(let_in).max() <= 30
    run = answered(**{"admission.rate_req_per_s": 100.0})
    let_in = (
        run.tables["requests"].filter(pl.col("status") != "rejected")["frontend_s"].drop_nulls()
    )
    times = let_in.sort().to_numpy()
    for width in (0.5, 1.0, 4.0):  # a bucket of one second
        most = max(np.searchsorted(times, times + width) - np.arange(times.size))
        assert most <= 100 * width + 100 + 1
    assert times.size == pytest.approx(100 * 8 + 100, rel=0.03)


def test_a_tenant_s_limit_is_its_own():
    limited = [PAIR[0] | {"rate_req_per_s": 50.0}, PAIR[1]]
    run = answered(tenants=limited)
    refused = run.tables["requests"].filter(pl.col("status") == "rejected")
    assert set(refused["tenant"].cast(str)) == {"many"} and refused.height > 1000
    assert set(refused["reason"].cast(str)) == {"refused: above the rate limit"}


def test_shedding_keeps_the_slo_of_those_let_in_and_raises_goodput_beyond_capacity():
    slo = {"slo.ttft_s": 0.3, "workload.prompts": 0}
    flooded, shed = answered(**slo), answered(**slo, **{"admission.shed_at": 1.0})
    assert shed.summary["rejected"] > 500
    assert shed.summary["goodput_req_per_s"] > 2 * flooded.summary["goodput_req_per_s"]
    assert shed.summary["ttft_s_p90"] < 1.2 * 0.3 < flooded.summary["ttft_s_p50"]


def test_no_namespace_reads_another_s_block():
    """One popular prefix for all: apart, the first prompt of each tenant finds nothing."""
    prefix = {
        "workload.rate_req_per_s": 20.0, "workload.prefix": "shared", "workload.prefix_groups": 1,
        "workload.lengths": "fixed", "tenants": PAIR, "horizon_s": 4.0, "warmup_s": 1.0,
    }  # fmt: skip
    for apart, first_hits in ((True, 2), (False, 1)):
        run = answered(**prefix, **{"memory_pool.namespaces": apart})
        own = run.tables["requests"].filter(pl.col("prefill_start_s").is_not_null())
        misses = own.filter(pl.col("hit_tokens") == 0)
        assert misses["tenant"].n_unique() == first_hits
        assert own.height - misses.height > 20


@pytest.mark.parametrize("rate", [180.0, 220.0, 300.0])
def test_a_prediction_counts_the_batch_that_a_request_joins(rate):
    """The quick start sustains some 150 requests/s, and a full batch takes half of the SLO."""
    asked = {"workload.rate_req_per_s": rate, "admission.shed_at": 1.0, "horizon_s": 100.0}
    run = simulate(with_overrides(preset("quickstart"), asked), load_facts())
    assert run.summary["rejected"] > 500
    assert run.summary["ttft_s_p99"] < 1.03 * run.scenario.slo.ttft_s
    assert run.summary["goodput_req_per_s"] > 0.9 * run.summary["throughput_req_per_s"]
