"""The evidence page: every published row with its error, what misses its bar marked as such."""

import re

import numpy as np
import pytest

from twin.extras.evidence.made import load_made, skew_sentence
from twin.extras.evidence.page import charts as drawings
from twin.extras.evidence.page import proof
from twin.lab.evidence.judge import HONEST, headlines, now_text
from twin.lab.evidence.rows import UNSEEN, load_missing, load_published
from twin.lab.library import load_facts
from twin.lab.share import links, shipped
from twin.ui import charts
from twin.ui.pages import PAGES


@pytest.fixture(scope="module")
def facts():
    return load_facts()


@pytest.fixture(scope="module")
def rows():
    return load_published()


@pytest.fixture(scope="module")
def found(facts):
    return proof.sorted_by_regime(shipped.current_evidence(facts)["rows"])


@pytest.fixture
def page(app):
    return app.switch_page(PAGES["evidence"].script).run()


def row(**changes):
    given = {
        "id": "x", "system": "CloudMatrix384", "group": "CloudMatrix384", "regime": "decode",
        "quantity": "TPOT", "unit": "ms", "basis": "NPU", "published": 50.0, "twin": 55.0,
        "error": 0.1, "kind": "seen", "because": "", "judged_error": 0.1, "first_error": None,
        "first_commit": "", "bar": 0.12, "outside": False, "others": [], "source": "a paper",
        "mark": "a", "note": "", "band": None,
    }  # fmt: skip
    return {**given, **changes}


def test_a_row_outside_its_bar_is_marked_and_its_reason_told():
    outside = row(error=-0.3, note="another kernel", outside=True)
    assert proof.reason_text(row()) == ""
    assert proof.reason_text(outside) == "Outside its bar of 12 %: another kernel"
    assert "not known" in proof.reason_text({**outside, "note": ""})


def test_a_row_says_what_it_can_say_and_what_others_answered():
    half = row(kind="derived", because="half of a sum")
    assert proof.kind_in_words(half) == "derived: half of a sum"
    begun = row(kind="unseen", first_error=0.2, first_commit="0123456789")
    assert proof.kind_in_words(begun).endswith("first error +20.0 % at 0123456")
    assert proof.other_answers_text(row(others=[["another", -0.05]])) == "another -5 %"


def test_every_row_that_is_judged_has_its_band_and_says_whether_it_held(found):
    bands = {line["Band, %"] for line in proof.row_table(found, {})}
    assert any(band.startswith("\u26a0") for band in bands)
    assert proof.band_text(row()) == proof.band_in_words(row()) == ""
    held = {r["id"]: proof.band_in_words(r) for r in found if r["first_error"] is not None}
    assert "its first error lies within" in held["cm384-decode-112-2k-tpot"]
    assert "its first error lies outside" in held["vllm-a2-qwen3-mixed"]


def test_what_the_default_skew_makes_of_the_headline_is_computed_and_said(page, facts):
    told = skew_sentence(facts)
    chosen, default = (float(x.replace(",", "")) for x in re.findall(r"[\d,]+\d", told)[-2:])
    assert default != chosen
    assert any(told in c.value for c in page.caption)


def test_facts_are_found_by_words_and_marks(facts):
    assert len(proof.fact_table(facts)) == len(facts)
    found = proof.fact_table(facts, "910C HBM", ["a"])
    assert found
    assert all(f["Mark"] == "a" and "910c" in f["Fact"] for f in found)
    assert proof.fact_table(facts, "no such thing at all") == []


def test_one_row_far_off_leaves_the_others_their_room_on_the_axis():
    def drawn(worst):
        rows = [{"published": 1.0 + k, "error": error, "twin": 1.0, "group": "g", "kind": "seen",
                 "quantity": "q", "system": "s", "unit": "ms"}
                for k, error in enumerate((-0.2, 0.0, 0.2, worst))]  # fmt: skip
        axis = drawings.error_chart(rows).figure.layout.yaxis
        assert list(axis.tickvals) == sorted(axis.tickvals) and "0 %" in axis.ticktext
        near = drawings._axis_place(0.2) - drawings._axis_place(-0.2)
        return near / (axis.range[1] - axis.range[0])

    assert drawn(5.66) > 0.4 * drawn(0.25)


def test_the_chart_of_errors_has_every_row_helped_ones_hollow(found):
    chart = drawings.error_chart(found)
    drawn = [t for t in chart.figure.data if t.mode == "markers"]
    assert sum(len(t.x) for t in drawn) == len(found)
    for trace in drawn:
        assert (trace.marker.symbol == "circle-open") == trace.name.endswith("helped")
    assert chart.alt
    assert drawings.error_chart([]).alt == charts.empty_chart("No published row to show").alt


def test_the_page_shows_every_row_the_headline_and_how_many_miss(page, found):
    assert not page.exception
    assert len(page.dataframe[0].value) == len(found)
    text = " ".join(m.value for m in (*page.markdown, *page.caption))
    assert all(sentence in text for sentence in (*headlines(found), now_text(found)))
    unseen = np.abs([r["error"] for r in found if r["kind"] in UNSEEN])
    assert f"{100 * unseen.mean():.1f} % off on average" in now_text(found)
    assert f"{100 * np.median(unseen):.1f} % in the median" in now_text(found)
    missed = sum(r["outside"] for r in found)
    assert f"{missed} of {len(found)} rows are outside their bar" in text


def test_a_regime_narrows_the_table_and_a_row_has_its_scenario(page, found):
    page.get_by_key("regime").set_value("decode")
    page.run()
    assert len(page.dataframe[0].value) == sum(r["regime"] == "decode" for r in found)
    page.get_by_key("row").set_value("cm384-decode-8-4k-tpot").run()
    (link,) = page.get("link_button")
    query = {"s": link.proto.url.partition("?s=")[2]}
    linked = links.open_scenario(query, store=None, hold=lambda machine: None)
    assert linked.deployment.decode.batch_per_npu == 8


def test_only_what_misses_can_be_asked_for(page, found):
    page.get_by_key("missed").set_value(True)
    page.run()
    assert len(page.dataframe[0].value) == sum(r["outside"] for r in found)


def test_an_address_names_the_row_that_is_shown(app, found):
    app.run()
    app.query_params["row"] = "cm384-layer-mtp"
    page = app.switch_page(PAGES["evidence"].script).run()
    assert page.session_state["row"] == "cm384-layer-mtp"


def test_the_page_counts_what_was_chosen_and_says_what_is_beyond_the_twin(page):
    made = load_made()
    for shown, (title, rows) in zip(page.dataframe[1:4], made.tables().items(), strict=True):
        assert len(shown.value) == len(rows)
        assert any(title in m.value for m in page.markdown)
    assert len(page.dataframe[4].value) == len(load_missing())


def test_a_search_narrows_the_facts(page):
    before = len(page.dataframe[5].value)
    page.text_input(key="facts-search").set_value("910c").run()
    assert 0 < len(page.dataframe[5].value) < before


def test_the_first_screen_has_what_is_farthest_off_and_what_is_not_modelled(page, found):
    first = [b for b in page.button if b.key.startswith("worst:")]
    judged = [r for r in found if r["kind"] in HONEST]
    assert len(first) == proof.FARTHEST
    worst = max(judged, key=lambda r: abs(r["error"]))
    assert first[0].label.startswith(f"{100 * worst['error']:+.0f} %")
    assert any("published results)" in m.value for m in page.markdown)
    first[1].click().run()
    assert f"worst:{page.session_state['row']}" == first[1].key
    label = next(e.label for e in page.expander if e.label.startswith("One row"))
    assert next(r["quantity"] for r in found if r["id"] == page.session_state["row"]) in label


def test_rows_are_found_by_words(page, found):
    page.text_input(key="rows-search").set_value("ep256").run()
    assert 0 < len(page.dataframe[0].value) < len(found)
    assert any(button.key == "evidence-csv" for button in page.get("download_button"))


def test_what_is_missing_is_told_without_names_of_fields():
    told = proof.missing_in_words(load_missing())
    assert "deployment." not in told and "models." not in told
    assert told.count("published results") == proof.MISSING
