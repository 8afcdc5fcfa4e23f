"""Results that come with the project: of today's presets, whole, and near what a run says today."""

import pytest

from tests.draws import some
from twin.engine.simulate import simulate
from twin.facts import facts_from_tables
from twin.lab.evidence.judge import answer_row
from twin.lab.evidence.rows import load_published
from twin.lab.library import load_facts, preset
from twin.lab.share import shipped
from twin.lab.share.shipped import PRESETS, TABLES

TOLERANCE = 0.05  # of the headline: an engine may have moved since, a preset may not have changed
HEADLINE = ("tpot_s_mean", "ttft_s_p50", "decode_tokens_per_s_per_npu", "goodput_req_per_s")


@pytest.mark.parametrize("key", PRESETS)
def test_each_leading_preset_has_its_result_for_today_s_question(key):
    came = shipped.find_shipped(preset(key))
    assert came is not None, "the preset has changed: make shipped"
    assert came.key == key
    assert set(came.tables) == set(TABLES)
    assert came.engine
    assert len(came.facts) == 64


def test_together_they_stay_small():
    assert sum(path.stat().st_size for path in shipped.FOLDER.iterdir()) < 600_000


def test_another_question_has_none():
    other = preset(PRESETS[0]).model_copy(update={"seed": 77})
    assert shipped.find_shipped(other) is None


def test_a_run_of_today_is_within_tolerance_and_is_written_the_same_twice(tmp_path):
    scenario = preset(PRESETS[0])
    run = simulate(scenario, load_facts())
    came = shipped.find_shipped(scenario)
    for key in HEADLINE:
        assert came.summary[key] == pytest.approx(run.summary[key], rel=TOLERANCE), key
    one = shipped.write_run("quickstart", scenario, run, "engine", tmp_path / "a")
    two = shipped.write_run("quickstart", scenario, run, "engine", tmp_path / "b")
    assert one.read_bytes() == two.read_bytes()
    assert shipped.find_shipped(scenario, tmp_path / "a").stale


@pytest.mark.parametrize("every", some([16], 1))
def test_the_judged_rows_that_come_along_are_those_of_today(every):
    """Computed anew, to the last bit: others each time sources or figures change, all in `make
    long`. Bars of rows and the documents are held to what came along."""
    facts = load_facts()
    found = shipped.shipped_evidence(facts)
    assert found is not None, "sources or published figures have changed: make shipped"
    rows = found["rows"]
    published = {row.id: row for row in load_published()}
    assert [row["id"] for row in rows] == list(published)
    for row in rows[int(found["of"], 16) % every :: every]:
        assert answer_row(published[row["id"]], facts) == row["twin"]


def test_judged_rows_of_other_figures_do_not_count(tmp_path):
    facts = load_facts()
    (tmp_path / shipped.EVIDENCE).write_bytes((shipped.FOLDER / shipped.EVIDENCE).read_bytes())
    other = facts_from_tables(
        {"other": {"one": {"value": 1.0, "unit": "", "source": "a", "mark": "e"}}}
    )
    assert shipped.shipped_evidence(other, tmp_path) is None
    (tmp_path / shipped.EVIDENCE).write_bytes(b"damaged")
    assert shipped.shipped_evidence(facts, tmp_path) is None
