"""A scenario's id: what differs from the defaults, and every older text still opens."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from twin.lab.library import presets
from twin.lab.share.links import PORTABLE, open_scenario
from twin.scenario import (
    SCHEMA_VERSION,
    Scenario,
    SpecError,
    fields,
    json_text,
    legacy_digests,
    parse_scenario,
    scenario_digest,
    scenario_from_canonical,
    with_overrides,
)
from twin.scenario.identity import BEFORE
from twin.scenario.words import no_field_sentence

FROZEN = Path(__file__).parents[1] / "frozen"
DEFAULTS = Path(__file__).parent / "defaults.json"


def frozen(name):
    """What commit e8ace38 answered; see tests/frozen/make.md."""
    return json.loads(gzip.decompress((FROZEN / f"{name}.json.gz").read_bytes()))


OLD = frozen("canonical")
OLD_SCENARIOS = [OLD["default"], *OLD["presets"].values()]
LINKS = [link for link in frozen("links")["links"] if "s" in link["query"]]


def test_the_id_follows_the_content_and_not_the_order_of_keys():
    a = parse_scenario({"seed": 3, "horizon_s": 60.0})
    b = parse_scenario({"horizon_s": 60.0, "seed": 3})
    assert scenario_digest(a) == scenario_digest(b) != scenario_digest(Scenario())


def test_the_canonical_form_holds_only_what_differs_from_the_defaults():
    asked = {"workload.rate_req_per_s": 61, "faults": [{"element": "node 1", "at_s": 0}]}
    said = json.loads(json_text(with_overrides(Scenario(), asked)))
    assert said == {
        "schema": SCHEMA_VERSION,
        "scenario": {
            "workload": {"rate_req_per_s": 61.0},
            "faults": [{"element": "node 1"}],
        },
    }


@pytest.mark.parametrize("old", OLD_SCENARIOS, ids=["default", *OLD["presets"]])
def test_a_text_of_schema_1_opens_and_its_id_is_an_alias(old):
    scenario = scenario_from_canonical(old["canonical"])
    assert old["digest"] in legacy_digests(scenario)
    assert scenario.start == "empty"  # as every run began then
    assert scenario_from_canonical(json_text(scenario)) == scenario


def test_the_presets_ask_what_they_asked():
    """But for where they begin, steady since schema 3, and when turns come, since schema 4."""
    then = {"start": "empty", "workload.turns": "timed"}
    as_before = {p.key: with_overrides(p.scenario, then) for p in presets()}
    now = {key: legacy_digests(scenario) for key, scenario in as_before.items()}
    # Blocks of the first lie in one piece since copies have a start, prompts of the second are
    # split, the next two name the release of kernels that they were published with, and of the
    # slides' clusters half of the dies decode, as their own list of deployments has it.
    changed = {"kv-over-ub-contrast", "colocated-contrast", "h100-sglang-decode",
               "h100-sglang-prefill", "slides-64-batch-1", "slides-128-batch-32"}  # fmt: skip
    for key, old in OLD["presets"].items():
        assert key in changed or old["digest"] in now[key], key


@pytest.mark.parametrize("link", LINKS, ids=[link["what"] for link in LINKS])
def test_a_link_of_schema_1_opens_the_same_scenario(link):
    assert link["digest"] in legacy_digests(open_scenario({PORTABLE: link["query"]["s"]}, None, id))


@pytest.mark.parametrize("turns", [{}, {"turns": "wait"}], ids=["unsaid", "said"])
@pytest.mark.parametrize("schema", [2, 3])
def test_a_text_of_before_a_default_changed_means_what_it_meant(schema, turns):
    fields = {"workload": {"prefix": "sessions"} | turns}
    text = json.dumps({"scenario": fields, "schema": schema}, sort_keys=True, separators=(",", ":"))
    scenario = scenario_from_canonical(text)
    assert scenario.workload.turns == turns.get("turns", "timed")
    assert hashlib.sha256(text.encode()).hexdigest() in legacy_digests(scenario)


def test_old_defaults_are_of_fields_and_of_schemas_that_changed_them():
    assert set(BEFORE) <= set(range(3, SCHEMA_VERSION + 1))
    assert {path for old in BEFORE.values() for path in old} <= fields().keys()


def test_a_changed_default_is_a_new_schema():
    """`defaults.json` holds the defaults of this schema; a new field adds a line and no schema."""
    written = json.loads(DEFAULTS.read_text("utf-8"))
    assert written["schema"] == SCHEMA_VERSION
    known = {path: field.default for path, field in fields().items() if field.kind is not tuple}
    changed = {path for path, value in written["defaults"].items() if known.get(path) != value}
    assert not changed, (
        "raise SCHEMA_VERSION, add the old ones to BEFORE, and write the defaults anew"
    )


def test_a_text_has_every_default_that_changed_after_its_schema(monkeypatch):
    """As if the default rate had been 55 up to this schema: the next one says so for old texts."""
    monkeypatch.setitem(BEFORE, SCHEMA_VERSION + 1, {"workload.rate_req_per_s": 55.0})
    monkeypatch.setattr("twin.scenario.identity.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    for schema in range(1, SCHEMA_VERSION + 1):
        text = f'{{"schema":{schema},"scenario":{{"workload":{{"cv":2.0}}}}}}'
        assert scenario_from_canonical(text).workload.rate_req_per_s == 55.0
    newest = f'{{"schema":{SCHEMA_VERSION + 1},"scenario":{{}}}}'
    assert scenario_from_canonical(newest) == Scenario()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "exactly"),
        ('{"schema":1,"schema":1,"scenario":{}}', "twice"),
        ('{"schema":1,"scenario":{"horizon_s":NaN}}', "finite"),
        ('{"schema":99,"scenario":{}}', "update the twin"),
        ('{"schema":0,"scenario":{}}', "update the twin"),
        ('{"schema":true,"scenario":{}}', "update the twin"),
        ('{"schema":4.0,"scenario":{}}', "whole number"),
        ('{"schema":2,"scenario":[]}', "must hold fields"),
        ("[" * 100_000, "not valid JSON"),
        (f'{{"schema": 1, "scenario": {{"seed": {"9" * 5000}}}}}', "not valid JSON"),
    ],
)
def test_a_broken_canonical_text_is_refused_in_one_sentence(text, said):
    with pytest.raises(SpecError, match=said):
        scenario_from_canonical(text)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("deployment.prefill.instances", "six", "should be a whole number"),
        ("deployment.prefill.instances", 1.5, "should be a whole number"),
        ("deployment.prefill.instances", True, "should be a number"),
        ("workload.rate_req_per_s", True, "= True should be a number"),
        ("deployment.prefill", 3, "should be a table of fields"),
        ("workload.rate_req_per_s", -1, "greater than or equal to 0.001 req/s"),
        ("workload.rate_req_per_s", float("nan"), "finite number"),
        (
            "workload.input_tokens",
            1e12,
            "= 1,000,000,000,000 should be less than or equal to 1,000,000 tokens",
        ),
        ("supernode.supernodes", 10**99, "= 1e+99 should be less than or equal to 32 supernodes"),
        ("supernode.supernodes", 0, "= 0 should be greater than or equal to 1 supernode"),
        ("workload.trace.tree_copies", 0, "= 0 should be greater than or equal to 1 copy"),
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
    ("path", "meant"),
    [
        ("deployment.decode.mode", "deployment.mode"),
        ("input_tokens", "workload.input_tokens"),
        ("faults.element", "faults[].element"),
        ("deployment.decode.foo", ""),
        ("deployment.router", ""),
        ("supernode.foo", ""),
        ("memory_pool.size_gb", ""),
        ("workload.qps", ""),
        ("deployment", ""),
        ("a", ""),
    ],
)
def test_only_a_field_whose_name_is_like_an_unknown_one_is_proposed(path, meant):
    assert no_field_sentence(path).partition(", perhaps ")[2] == meant


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
