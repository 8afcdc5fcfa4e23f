"""Refusals: one sentence that names what is wrong, where, and what would be right."""

import pytest

from twin.scenario import Scenario, SpecError, parse_scenario, with_overrides


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("deployment.prefill.instances", "six", "should be a whole number"),
        ("deployment.prefill.instances", 1.5, "should be a whole number"),
        ("deployment.prefill", 3, "should be a table of fields"),
        ("workload.rate_req_per_s", -1, "greater than or equal to 0.001 req/s"),
        ("workload.rate_req_per_s", float("nan"), "finite number"),
        ("memory_pool.enabled", "perhaps", "should be true or false"),
        ("workload.trace.digest", "abc", "64 hexadecimal digits"),
        ("name", "bell \x07", "no control characters"),
        ("name", "x" * 100_000, "at most 120 characters"),
        ("no.such.field", 1, "no.such.field is not a field of a scenario"),
        ("workload.rate", 1, "is not a field of a scenario, perhaps workload.rate_req_per_s"),
        ("deployment.decode.batch_npu", 1, "perhaps deployment.decode.batch_per_npu"),
    ],
)
def test_a_refusal_names_the_field_and_what_would_be_right(path, value, sentence):
    with pytest.raises(SpecError) as refusal:
        with_overrides(Scenario(), {path: value})
    said = str(refusal.value)
    assert path in said and sentence in said
    assert len(said) < 240 and "\n" not in said


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "a scenario should be a table of fields"),
        ({1: 2}, "1 is not a field of a scenario: names are text"),
        ({"faults": [{"element": ""}]}, "faults.0.element = '' should have at least 1 character"),
        ({"faults": [{"element": "node 0"}] * 501}, "should have at most 500 rows"),
        ({"supernode": {"edits": [{"element": "node 0", "to": "x" * 61}]}}, "at most 60 char"),
    ],
)
def test_what_is_no_scenario_at_all_is_refused_in_the_same_words(data, sentence):
    with pytest.raises(SpecError) as refusal:
        parse_scenario(data)
    assert sentence in str(refusal.value)
    assert "String" not in str(refusal.value) and "Tuple" not in str(refusal.value)
