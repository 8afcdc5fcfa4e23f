import polars as pl
import pytest

from tests.ui.fake_run import fake_summary, fake_tables
from twin.metrics.explain import explain, ttft_parts
from twin.spec import Scenario, with_overrides


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
    assert "prefill queue" in found["overload"].what
    assert found["overload"].settings == {"deployment.prefill.instances": 7}
    closed = with_overrides(scenario, {"workload.arrivals": "closed_loop"})
    assert "overload" not in topics(
        closed, summary, tables | {"windows": windows.with_columns(growing)}
    )


def test_a_fix_the_machine_has_no_room_for_is_not_offered(run):
    scenario, summary, tables = run
    packed = with_overrides(scenario, {"deployment.prefill.instances": 14})
    starving = summary | {"prefill_utilisation": 0.99, "decode_utilisation": 0.2}
    assert topics(scenario, starving, tables)["balance"].settings
    assert not topics(packed, starving, tables)["balance"].settings


def test_preemptions_point_at_the_kv_space(run):
    scenario, summary, tables = run
    found = topics(scenario, summary | {"preemptions": 12}, tables)
    assert found["memory"].settings == {"deployment.precision.kv": "int8"}
    assert "memory" not in topics(*run)


def test_rejections_are_counted_by_reason(run):
    assert "longer than the KV space" in topics(*run)["rejected"].what


def test_an_empty_run_is_explained_by_silence():
    assert explain(Scenario(), {}, {}) == []
