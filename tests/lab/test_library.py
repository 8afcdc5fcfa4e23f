"""Presets and scenario files: read, refused with a sentence, written and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.lab.library import (
    ROOT,
    SCENARIO_BYTES_MAX,
    load_scenario_file,
    presets,
    scenario_from_toml,
    scenario_to_toml,
)
from twin.scenario import (
    Scenario,
    SpecError,
    field_unit,
    json_text,
    scenario_from_canonical,
)

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40)


def test_every_preset_is_a_scenario_with_a_name_of_its_own():
    names = [preset.scenario.name for preset in presets()]
    assert presets()[0].key == "quickstart"
    assert len(set(names)) == len(names)


def test_every_preset_says_what_it_asks_and_where_its_figures_come_from():
    assert [p.key for p in presets() if not (p.scenario.question and p.scenario.source)] == []


@pytest.mark.parametrize("preset", presets(), ids=lambda p: p.key)
def test_a_preset_survives_toml_and_json(preset):
    scenario = preset.scenario
    assert scenario_from_toml(scenario_to_toml(scenario).encode()) == scenario
    assert scenario_from_canonical(json_text(scenario)) == scenario


@draws(50)
@given(name=TEXT, question=TEXT, horizon_s=st.floats(31, 604_800), seed=st.integers(0, 2**31 - 1))
def test_any_text_and_number_survives_toml(name, question, horizon_s, seed):
    scenario = Scenario(name=name, question=question, horizon_s=horizon_s, seed=seed)
    assert scenario_from_toml(scenario_to_toml(scenario).encode()) == scenario


def test_toml_shows_units_beside_the_numbers():
    lines = scenario_to_toml(Scenario()).splitlines()
    assert f"rate_req_per_s = 60.0  # {field_unit('workload.rate_req_per_s')}" in lines


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"seed = ", "not valid TOML"),
        (b"seed = 1\nseed = 2", "not valid TOML"),
        (b"\xff\xfe", "UTF-8"),
        (b"colour = 1", "colour is not a field"),
        (b"horizon_s = inf", "horizon_s"),
        (b"a = " + b"[" * 100_000, "not valid TOML"),
        (b"#" * (SCENARIO_BYTES_MAX + 1), "larger than 256 KiB"),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(data, said):
    with pytest.raises(SpecError, match=said) as refusal:
        scenario_from_toml(data, "x.toml")
    assert "\n" not in str(refusal.value)
    assert "x.toml" in str(refusal.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match="gone.toml"):
        load_scenario_file(tmp_path / "gone.toml")


def test_a_number_of_too_many_digits_is_refused():
    digits = "9" * 5000
    with pytest.raises(SpecError, match="not valid TOML"):
        scenario_from_toml(f"seed = {digits}".encode())


def test_nobody_else_reads_toml():
    readers = {p.name for p in (ROOT / "twin").rglob("*.py") if "tomllib" in p.read_text("utf-8")}
    assert readers == {"files.py"}
