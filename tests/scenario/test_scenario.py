"""The scenario's declaration: refusals are one sentence, digests follow the content."""

import pytest

from twin.scenario import Scenario, SpecError, parse_scenario, scenario_digest, with_overrides


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
    ],
)
def test_a_refusal_names_the_field_and_what_would_be_right(path, value, sentence):
    with pytest.raises(SpecError) as refusal:
        with_overrides(Scenario(), {path: value})
    said = str(refusal.value)
    assert path in said and sentence in said
    assert len(said) < 240 and "\n" not in said


def test_the_id_follows_the_content_and_not_the_order_of_keys():
    a = parse_scenario({"seed": 3, "horizon_s": 60.0})
    b = parse_scenario({"horizon_s": 60.0, "seed": 3})
    assert scenario_digest(a) == scenario_digest(b) != scenario_digest(Scenario())


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
