import numpy as np
import pytest

from tests.made_trace import made_trace
from twin.lab.ask import fields_like, scenario_and_trace, scenario_named, settings_from, with_trace
from twin.lab.library import SCENARIOS, presets
from twin.scenario import SpecError
from twin.workload.generate import TraceTable

QUICK = scenario_named("quickstart")


def trace_of(arrival_s: list[float], has_time: bool = True) -> TraceTable:
    n = len(arrival_s)
    return made_trace(np.array(arrival_s), np.full(n, 100), np.full(n, 10), has_time=has_time)


@pytest.mark.parametrize("preset", presets(), ids=lambda p: p.key)
def test_every_preset_states_its_question_and_its_source(preset):
    assert preset.scenario.name != "untitled"
    assert preset.scenario.question.endswith("?") or "?" in preset.scenario.question
    assert len(preset.scenario.source) > 20


def test_a_preset_and_its_file_are_the_same_question():
    preset = presets()[0]
    assert scenario_named(preset.key) == scenario_named(str(SCENARIOS / f"{preset.key}.toml"))


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(SpecError, match="perhaps quickstart"):
        scenario_named("quickstar")


def test_settings_are_read_as_toml_else_as_text():
    words = ["seed=7", "memory_pool.enabled=false", "router.policy=round_robin", "name=a=b"]
    assert list(settings_from(words).values()) == [7, False, "round_robin", "a=b"]


def test_a_setting_without_a_value_is_refused():
    with pytest.raises(SpecError, match="field=value"):
        settings_from(["seed"])


def test_settings_come_last():
    asked, _ = scenario_and_trace("quickstart", ["horizon_s=40", "warmup_s=1"])
    assert (asked.horizon_s, asked.warmup_s) == (40, 1)


def test_a_trace_replaces_workload_and_horizon():
    table = trace_of([0.0, 10.5, 300.25])
    replay = with_trace(QUICK, table, rate_multiplier=2.0)
    assert replay.workload.arrivals == "trace"
    assert replay.workload.trace.digest == table.digest
    assert replay.warmup_s == 0
    assert replay.horizon_s == pytest.approx(300.25 / 2, abs=2 * QUICK.step_s)


def test_a_trace_without_times_keeps_the_horizon():
    assert with_trace(QUICK, trace_of([0.0, 0.0], has_time=False)).horizon_s == QUICK.horizon_s


@pytest.mark.parametrize("copies", [1, 3])
def test_every_request_of_a_replay_lies_inside_the_horizon(copies):
    from twin.lab.library import load_facts
    from twin.workload.generate import generate_requests

    table = trace_of([3.0 * (i // 5) for i in range(500)])  # five share each coarse timestamp
    s = with_trace(QUICK, table, rate_multiplier=1.5, tree_copies=copies)
    made = generate_requests(s.workload, s.horizon_s, s.seed, 128, load_facts(), table)
    assert len(made) == copies * len(table)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan"), float("inf")])
def test_a_multiplier_out_of_bounds_is_named(multiplier):
    with pytest.raises(SpecError, match="workload.trace.rate_multiplier"):
        with_trace(QUICK, trace_of([0.0, 1.0]), multiplier)


def test_a_trace_longer_than_any_run_is_named_and_faster_it_fits():
    month = trace_of([0.0, 30 * 86_400.0])
    with pytest.raises(SpecError, match=r"made.csv lasts 2.592e\+06 s"):
        with_trace(QUICK, month)
    assert with_trace(QUICK, month, 10.0).horizon_s > 259_200


def test_a_multiplier_without_a_trace_is_refused():
    with pytest.raises(SpecError, match="of a trace"):
        scenario_and_trace("quickstart", rate_multiplier=32.0)


def test_a_number_of_too_many_digits_is_refused_as_text():
    with pytest.raises(SpecError, match="seed"):
        scenario_and_trace("quickstart", ["seed=" + "9" * 5000])


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("EP degree", "deployment.decode.npus_per_instance"),
        ("autoscaling", "elastic.controller"),
        ("cost", "cost.price_per_npu_hour"),
        ("duration", "horizon_s"),
        ("diurnal", "workload.profile.shape"),
    ],
)
def test_a_field_is_found_by_the_word_that_others_use_for_it(word, path):
    assert path in [row["field"] for row in fields_like(word)]
