import polars as pl
import pytest

from tests.ui.fake_run import fake_summary, fake_tables
from twin.metrics.explain import explain, ttft_parts
from twin.metrics.finding import RULES, Remedy
from twin.metrics.measures import amount
from twin.metrics.operators import DECODE_OPERATORS, PREFILL_OPERATORS, family
from twin.scenario import Scenario, with_overrides


@pytest.fixture(scope="module")
def run():
    scenario = Scenario(warmup_s=10)
    tables = fake_tables(scenario)
    return scenario, fake_summary(scenario, tables), tables


def topics(scenario, summary, tables):
    return {f.topic: f for f in explain(scenario, summary, tables)}


def test_findings_are_sorted_and_each_has_a_number_with_a_unit(run):
    found = explain(*run)
    assert [f.weight for f in found] == sorted((f.weight for f in found), reverse=True)
    assert all(any(c.isdigit() for c in f.what) and f.what.endswith(".") for f in found)


def test_the_largest_part_of_ttft_is_named_with_its_share(run):
    finding = topics(*run)["ttft"]
    assert "prefill" in finding.what and "900 ms" in finding.what


def test_parts_keep_the_order_a_request_meets_them(run):
    names = [name for name, _ in ttft_parts(run[1])]
    assert names == ["front_end", "router", "prefill_queue", "prefill", "kv_transfer"]


def test_growing_queues_are_called_overload(run):
    scenario, summary, tables = run
    windows = tables["windows"]
    growing = pl.Series("prefill_queue", [10.0 * i for i in range(windows.height)])
    found = topics(scenario, summary, tables | {"windows": windows.with_columns(growing)})
    assert "overload" not in topics(*run)
    assert "most of them for prefill" in found["overload"].what
    assert found["overload"].settings == {"deployment.prefill.instances": 7}
    closed = with_overrides(scenario, {"workload.arrivals": "closed_loop"})
    assert "overload" not in topics(
        closed, summary, tables | {"windows": windows.with_columns(growing)}
    )


def test_a_fix_the_machine_has_no_room_for_is_not_offered(run):
    scenario, summary, tables = run
    queueing = summary | {"ttft_prefill_queue_s_mean": 9.0, "ttft_s_mean": 10.0}
    packed = with_overrides(scenario, {"deployment.prefill.instances": 14})
    assert topics(scenario, queueing, tables)["ttft"].settings == {
        "deployment.prefill.instances": 7
    }
    assert topics(packed, queueing, tables)["ttft"].settings == {"supernode.nodes": 52}


def test_every_offer_is_a_scenario_that_can_be_and_differs(run):
    scenario, summary, tables = run
    slow = summary | {"tpot_s_mean": 0.06, "preemptions": 3, "kv_used_fraction_mean": 0.99}
    offers = [f for f in explain(scenario, slow, tables) if f.settings]
    assert len(offers) >= 3
    for finding in offers:
        assert finding.fix
        assert with_overrides(scenario, dict(finding.settings)) != scenario


def test_part_full_slots_call_for_load_and_full_ones_do_not(run):
    scenario, summary, tables = run
    easy = topics(scenario, summary, tables)["slots"]
    assert "the load and not the machine" in easy.what
    assert easy.settings == {"workload.rate_req_per_s": 75.0}
    small = with_overrides(scenario, {"deployment.decode.batch_per_npu": 4})
    full = topics(small, summary, tables)["slots"]
    assert "the machine sets the throughput" in full.what and not full.settings
    busy = with_overrides(scenario, {"front_end.api_servers": 1, "front_end.service_ms": 15.0})
    assert not topics(busy, summary, tables)["slots"].settings


def test_every_operator_of_the_model_has_a_family():
    for name in (*DECODE_OPERATORS, *PREFILL_OPERATORS):
        assert family(name) != name.replace("_", " "), name


def test_an_even_load_saves_what_waits_for_the_hottest_die(run):
    scenario, summary, tables = run
    ranks = tables["ranks"].with_columns(
        expert_load=pl.when(pl.col("die") == 300).then(2.0).otherwise(1.0)
    )
    found = topics(scenario, summary, tables | {"ranks": ranks})["experts"]
    share = 5 / 31  # of a made-up decode iteration, in tests.ui.fake_run
    assert amount(share * (1 - 1 / 2.0), "share") in found.what
    assert found.settings == {"experts.placement": "perfect"}


def test_decode_alone_has_no_way_to_the_first_token(run):
    scenario, summary, tables = run
    alone = with_overrides(scenario, {"deployment.mode": "decode_only"})
    assert "ttft" in topics(*run) and "ttft" not in topics(alone, summary, tables)


def test_busy_api_servers_are_named(run):
    scenario, summary, tables = run
    few = with_overrides(scenario, {"front_end.api_servers": 1, "front_end.service_ms": 15.0})
    found = topics(few, summary | {"ttft_front_end_s_mean": 0.4}, tables)["front end"]
    assert "1 API servers" not in found.what
    assert found.settings == {"front_end.api_servers": 2}
    assert "front end" not in topics(*run)


def test_preemptions_point_at_the_kv_space(run):
    scenario, summary, tables = run
    found = topics(scenario, summary | {"preemptions": 12}, tables)
    assert found["memory"].settings == {"deployment.precision.kv": "int8"}
    assert "memory" not in topics(*run)


def test_rejections_are_counted_by_reason(run):
    assert "longer than the KV space" in topics(*run)["rejected"].what


def test_an_empty_run_is_explained_by_silence():
    assert explain(Scenario(), {}, {}) == []


def test_a_finding_is_one_entry(run, monkeypatch):
    def always(seen):
        remedy = Remedy("Half of it would do.", "deployment.prefill.instances", 3)
        return seen.remedied(0.99, f"{seen.known('requests'):,.0f} requests were seen.", [remedy])

    monkeypatch.setitem(RULES, "dummy", always)
    told = topics(*run)["dummy"]
    assert told.fix == "Half of it would do." and told.settings == {
        "deployment.prefill.instances": 3
    }
