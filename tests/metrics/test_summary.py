"""The summary against figures made from the tables of a run by other means."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import MODES, run
from twin.metrics.latency import TTFT_PARTS, per_second, quotient
from twin.metrics.registry import metric_of

BUSY = {"workload.prefix": "shared", "workload.rate_req_per_s": 60.0}


@pytest.fixture(params=MODES)
def answer(request):
    return run(BUSY | {"deployment.mode": request.param})


def finished(answer):
    low = answer.scenario.warmup_s
    return answer.tables["requests"].filter(pl.col("finish_s") >= low)


def test_latencies_are_those_of_the_steady_state(answer):
    s, rows = answer.summary, answer.tables["requests"]
    started = rows.filter(pl.col("first_token_s") >= answer.scenario.warmup_s)
    ttft = (started["first_token_s"] - started["arrival_s"]).to_list()
    assert s["ttft_s_mean"] == pytest.approx(sum(ttft) / len(ttft))
    assert s["ttft_s_p99"] == pytest.approx(np.quantile(ttft, 0.99))
    e2e = finished(answer)["finish_s"] - finished(answer)["arrival_s"]
    assert s["e2e_s_p50"] == pytest.approx(e2e.median())


def test_parts_of_ttft_add_up(answer):
    parts = [answer.summary[f"ttft_{name}_s_mean"] for name, _, _ in TTFT_PARTS]
    assert sum(parts) == pytest.approx(answer.summary["ttft_s_mean"])


def test_goodput_is_throughput_times_attainment(answer):
    s = answer.summary
    steady_s = answer.scenario.horizon_s - answer.scenario.warmup_s
    assert s["throughput_req_per_s"] == pytest.approx(finished(answer).height / steady_s)
    product = s["slo_attainment"] * s["throughput_req_per_s"]
    assert s["goodput_req_per_s"] == pytest.approx(product)


def test_tokens_per_npu_times_npus_is_the_machine(answer):
    s = answer.summary
    pools = s["npus_prefill"] + s["npus_decode"] + s["npus_colocated"]
    assert s["npus"] == pools
    assert s["output_tokens_per_s"] == pytest.approx(s["tokens_per_s_per_npu"] * s["npus"])


def test_hit_ratio_is_that_of_the_requests_whose_prefill_began(answer):
    rows = answer.tables["requests"].filter(pl.col("prefill_start_s") >= answer.scenario.warmup_s)
    if answer.scenario.deployment.mode == "decode_only":
        assert answer.summary["hit_token_ratio"] is None
    else:
        expected = rows["hit_tokens"].sum() / rows["input_tokens"].sum()
        assert answer.summary["hit_token_ratio"] == pytest.approx(expected) and expected > 0.1


def test_windows_add_up_to_the_run(answer):
    windows, s = answer.tables["windows"], answer.summary
    for name in ("arrived", "finished", "rejected"):
        assert windows[name].sum() == s["requests" if name == "arrived" else name], name


def test_every_figure_is_described(answer):
    nameless = [k for k in answer.summary if not metric_of(k).unit]
    assert not nameless


def test_rates_without_a_pool_are_none_not_zero():
    assert per_second(5.0, 2.0, 0) is None and per_second(6.0, 2.0, 3) == 1.0
    assert quotient(1.0, 0.0) is None and quotient(1.0, 2.0) == 0.5
