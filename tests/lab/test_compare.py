"""Comparisons: inputs first, then figures with unit, direction and verdict."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.lab.library import presets
from twin.lab.sweep.compare import (
    changed_fields,
    compare,
    input_rows,
    metric_row,
)
from twin.metrics.registry import verdict
from twin.scenario import Scenario, SpecError, values_by_path, with_overrides


def run(name="a", **summary):
    return SimpleNamespace(
        id=name, name=name, summary=summary, facts_digest="f", engine_version="1", state="done",
        notes=[],
    )  # fmt: skip


def test_inputs_differ_by_dotted_path_with_unit():
    other = with_overrides(
        Scenario(), {"workload.rate_req_per_s": 90.0, "router.policy": "power_of_two"}
    )
    found = input_rows(Scenario(), other)
    assert [(row.path, *row.values, row.unit) for row in found] == [
        ("workload.rate_req_per_s", 60.0, 90.0, "req/s"),
        ("router.policy", "least_loaded", "power_of_two", ""),
    ]


@pytest.mark.parametrize("preset", presets(), ids=lambda p: p.key)
def test_a_difference_applied_gives_the_other_scenario(preset):
    assert (
        with_overrides(Scenario(), changed_fields(Scenario(), preset.scenario)) == preset.scenario
    )
    assert changed_fields(preset.scenario, preset.scenario) == {}


def test_flat_values_name_every_field_once():
    flat = values_by_path(Scenario())
    assert flat["deployment.prefill.instances"] == 6
    assert not any(isinstance(value, dict) for value in flat.values())


@pytest.mark.parametrize(
    ("name", "unit", "better"),
    [
        ("ttft_s_p99", "s", "lower"),
        ("ttft_prefill_queue_s_mean", "s", "lower"),
        ("decode_tokens_per_s_per_npu", "tokens/s per NPU", "higher"),
        ("tokens_per_s_per_npu", "tokens/s per NPU", "higher"),
        ("output_tokens_per_s", "tokens/s", "higher"),
        ("goodput_req_per_s", "req/s", "higher"),
        ("slo_attainment", "", "higher"),
        ("hit_token_ratio", "", "higher"),
        ("ub_utilisation", "", ""),
        ("npus_decode", "NPUs", ""),
        ("npus", "NPUs", ""),
        ("requests", "requests", ""),
        ("concurrency_mean", "requests", ""),
        ("rejected", "requests", "lower"),
        ("horizon_s", "s", ""),
        ("decode_iteration_s_mean", "s", "lower"),
    ],
)
def test_a_name_says_its_unit_and_direction(name, unit, better):
    row = metric_row(name, [1.0, 2.0], baseline=0)
    assert (row.unit, row.better) == (unit, better)


def test_figures_are_told_against_the_baseline():
    row = metric_row("ttft_s_p50", [2.0, 1.0, 3.0, 2.0, None], baseline=0)
    assert row.deltas == (0.0, -1.0, 1.0, 0.0, None)
    assert row.ratios == (1.0, 0.5, 1.5, 1.0, None)
    assert row.verdicts == ("same", "better", "worse", "same", "unknown")
    assert metric_row("goodput_req_per_s", [2.0, 1.0], 1).verdicts == ("better", "same")
    assert metric_row("ub_utilisation", [0.0, 1.0], 0).ratios == (None, None)


def test_a_figure_stands_as_the_pages_say():
    for name, values in (("tpot_s_mean", [1.0, 1.0004]), ("goodput_req_per_s", [1e3, 999.9])):
        assert metric_row(name, values, 0).verdicts == ("same", verdict(name, *values[::-1]))
        assert verdict(name, *values) == "same"


@draws(30)
@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=6), st.data())
def test_swapping_the_baseline_swaps_the_verdict(values, data):
    i = data.draw(st.integers(0, len(values) - 1))
    here = metric_row("tpot_s_mean", values, 0).verdicts[i]
    there = metric_row("tpot_s_mean", values, i).verdicts[0]
    assert {here, there} in ({"better", "worse"}, {"same"})


def test_runs_side_by_side_with_what_a_reader_must_know():
    scenarios = [Scenario(name="a"), Scenario(name="b", seed=2)]
    other = run("b", ttft_s_p50=1.0, note="text", decode_iteration_s_mean=None)
    other.facts_digest, other.state = "g", "failed"
    found = compare([run("a", ttft_s_p50=2.0), other], scenarios, baseline=1)
    assert [row.path for row in found.inputs] == ["name", "seed"]
    assert [row.name for row in found.metrics] == ["ttft_s_p50"]
    assert found.metrics[0].verdicts == ("worse", "same")
    assert len(found.notes) == 3
    full = "Overloaded: queues grow to the end, so latencies depend on the horizon."
    other.notes = ["Steady-state figures leave out the first 30 s of 120 s.", full]
    assert compare([run("a"), other], scenarios, baseline=1).notes[-2] == f"b: {full}"


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_runs_are_compared(count):
    with pytest.raises(SpecError, match=f"takes 2 to 6 runs, not {count}"):
        compare([run()] * count, [Scenario()] * count)
