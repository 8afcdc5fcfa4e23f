"""Outside the evidence: told from the published rows, aspect by aspect."""

import pytest

from twin.facts import FactError
from twin.lab.evidence.envelope import (
    ASPECTS,
    Configuration,
    aspect_ranges,
    configurations,
    outside_evidence,
)
from twin.lab.evidence.rows import Row, load_published, scenario_of
from twin.lab.library import load_facts, preset, presets
from twin.scenario import with_overrides


@pytest.fixture(scope="module")
def facts():
    return load_facts()


def row(**scenario):
    return Row(
        "one", "a system", "decode", "TPOT", "ms", 50.0, "NPU", "decode.tpot", "seen", "here", "a",
        scenario={"deployment.mode": "decode_only", **scenario},
    )  # fmt: skip


def closed(**changes):
    start = {"deployment.mode": "decode_only", "workload.arrivals": "closed_loop"}
    return scenario_of({**start, **changes})


def test_a_published_decode_point_lies_inside_and_twice_its_batch_outside(facts):
    known = list(configurations([row()]))
    assert outside_evidence(closed(), facts, known) == []
    said = outside_evidence(closed(**{"deployment.decode.batch_per_npu": 192}), facts, known)
    assert said == ["Decode batch: 192 requests/NPU; published rows have 96 requests/NPU only."]


def test_another_row_widens_the_reach(facts):
    wide = list(configurations([row(), row(**{"deployment.decode.batch_per_npu": 192})]))
    assert outside_evidence(closed(**{"deployment.decode.batch_per_npu": 144}), facts, wide) == []


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("supernode.chip", "ascend-910c-560t", "Chip"),
        ("deployment.precision.weights", "fp4", "eight precision"),
        ("workload.input_tokens", 600_000, "context"),
        ("deployment.decode.npus_per_instance", 2, "EP degree"),
        ("deployment.decode.mtp_draft_tokens", 5, "MTP draft"),
        ("deployment.decode.mtp_acceptance", 0.99, "MTP acceptance"),
        ("supernode.scale_up", "node", "Scale-up"),
        ("workload.arrivals", "poisson", "Load"),
    ],
)
def test_each_respect_is_told_by_name_against_the_real_rows(facts, path, value, word):
    said = outside_evidence(closed(**{"experts.skew": 0.3, path: value}), facts)
    assert any(word in sentence for sentence in said)
    assert all(s[0].isupper() and s.endswith(".") for s in said)


def test_the_paper_presets_are_inside(facts):
    paper = [p for p in presets() if p.key.startswith("paper-")]
    assert paper
    assert [outside_evidence(p.scenario, facts) for p in paper] == [[]] * len(paper)


def test_every_configuration_of_the_rows_is_within_their_own_reach(facts):
    known = list(configurations(load_published()))
    found = {r.aspect.name: r for r in aspect_ranges(facts, known)}
    assert len(found) == len(ASPECTS)
    for c in known:
        if c.pool == "decode":
            value = c.scenario.deployment.decode.batch_per_npu
            assert found["decode batch"].holds(float(value))


def test_a_colocated_instance_is_named_and_keeps_its_batch_in_view(facts):
    changes = {"deployment.mode": "colocated", "deployment.decode.batch_per_npu": 500}
    apart = [r for r in load_published() if r.scenario.get("deployment.mode") != "colocated"]
    known = list(configurations(apart))
    said = " ".join(outside_evidence(closed(**changes), facts, known))
    assert "colocated" in said
    assert "Decode batch: 500" in said


@pytest.mark.parametrize(
    ("key", "words"),
    [("prefill-on-decode", "the cores of a die"), ("attention-offload", "offloads attention"),
     ("mixed-chips", "on different chips"), ("quickstart", "")],
)  # fmt: skip
def test_what_one_pool_has_of_the_others_npus_is_in_no_row(facts, key, words):
    asked = preset(key)
    told = [
        s
        for s in outside_evidence(asked, facts)
        if "the cores of a die" in s or "offloads" in s or "different chips" in s
    ]
    assert [words in sentence for sentence in told] == [True] * bool(words)
    like_it = [Configuration("", "decode", asked, {})]
    assert not any(words and words in s for s in outside_evidence(asked, facts, like_it))


def test_each_pool_is_held_against_the_rows_of_its_own_chip(facts):
    mixed = preset("mixed-chips")
    one = {"supernode.kinds": [], "deployment.decode.chip": "as_machine"}
    chips = [
        with_overrides(mixed, one | {"supernode.chip": chip}) for chip in mixed.supernode.chips
    ]
    said, first, second = ({*outside_evidence(s, facts)} for s in (mixed, *chips))
    assert first != second
    assert said - (first | second) == {
        "No published row has prefill and decode on different chips."
    }
    assert said >= first | second


def test_a_chip_that_is_not_known_is_refused_by_name(facts):
    with pytest.raises(FactError, match="abacus"):
        outside_evidence(closed(**{"supernode.chip": "abacus"}), facts)


def test_options_of_published_rows_are_named_as_forms_name_them(facts):
    said = {each.aspect.name: each.text(facts) for each in aspect_ranges(facts)}
    assert "SP-TP-SP" in said["prefill attention"] and "DeepSeek-R1" in said["model"]
    assert "Ascend 910C" in said["chip"] and not any("_" in text for text in said.values())
