"""The evidence page: every published row with its error, what misses its bar marked as such."""

import asyncio
import csv
import io
import json
import os
import re
import sys
import threading

import pytest

from tests.conftest import PATIENCE_S
from twin.extras.evidence.choices import one_skew
from twin.extras.evidence.made import load_made
from twin.extras.evidence.page import charts as parity
from twin.extras.evidence.page import judged, proof
from twin.extras.evidence.reproduce import Part
from twin.lab.evidence.judge import HONEST, evidence, headlines
from twin.lab.evidence.rows import load_beyond, load_published
from twin.lab.library import load_facts
from twin.ui import charts, session
from twin.ui.pages import PAGES
from twin.ui.pages.start import answer


@pytest.fixture(scope="module")
def facts():
    return load_facts()


@pytest.fixture(scope="module")
def rows():
    return load_published()


@pytest.fixture(scope="module")
def found(facts):
    return proof.by_regime(evidence(facts))


@pytest.fixture
def page(app):
    return app.switch_page(PAGES["evidence"].script).run()


def row(**changes):
    given = {
        "id": "x", "system": "CloudMatrix384", "group": "CloudMatrix384", "regime": "decode",
        "quantity": "TPOT", "unit": "ms", "basis": "NPU", "published": 50.0, "twin": 55.0,
        "error": 0.1, "kind": "seen", "because": "", "judged_error": 0.1, "first_error": None,
        "first_commit": "", "bar": 0.12, "outside": False, "others": [], "source": "a paper",
        "mark": "a", "note": "",
    }  # fmt: skip
    return {**given, **changes}


def test_a_row_outside_its_bar_is_marked_and_its_reason_told():
    outside = row(error=-0.3, note="another kernel", outside=True)
    assert proof.why(row()) == ""
    assert proof.why(outside) == "Outside its bar of 12 %: another kernel"
    assert "not known" in proof.why({**outside, "note": ""})


def test_a_row_says_what_it_can_say_and_what_others_answered():
    half = row(kind="derived", because="half of a sum")
    assert proof.standing(half) == "derived: half of a sum"
    begun = row(kind="unseen", first_error=0.2, first_commit="0123456789")
    assert proof.standing(begun).endswith("first error +20.0 % at 0123456")
    assert proof.others(row(others=[["another", -0.05]])) == "another -5 %"


def test_every_row_that_is_judged_has_its_band_and_says_whether_it_held(found):
    bands = {line["Band, %"] for line in proof.table(found, {})}
    assert any(band.startswith("\u26a0") for band in bands)
    assert proof.band(row()) == proof.band_in_words(row()) == ""
    held = {r["id"]: proof.band_in_words(r) for r in found if r["first_error"] is not None}
    assert "its first error lies within" in held["cm384-decode-112-2k-tpot"]
    assert "its first error lies outside" in held["vllm-a2-qwen3-mixed"]


def test_every_row_is_kept_in_both_files(found):
    assert [r["id"] for r in csv.DictReader(io.StringIO(proof.as_csv(found)))] == [
        r["id"] for r in found
    ]
    kept = json.loads(proof.as_json(found))
    assert [r["error"] for r in kept] == [r["error"] for r in found]


def test_every_constant_has_its_value_its_bounds_and_where_it_goes_without_a_row(facts):
    found = proof.constants(facts, load_made().cross)
    names = {c["Constant"].split("**")[1].lower().replace(" ", "_") for c in found}
    assert names == set(facts.names("calibration"))
    assert all(" to " in c["Value and bounds"] and c["Fitted chiefly to"] for c in found)
    assert all(" to " in c["Without any one row"] for c in found)


def test_what_the_default_skew_makes_of_the_headline_is_computed_and_said(page, facts):
    told = one_skew(facts)
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
        axis = parity.errors(rows).figure.layout.yaxis
        assert list(axis.tickvals) == sorted(axis.tickvals) and "0 %" in axis.ticktext
        near = parity._place(0.2) - parity._place(-0.2)
        return near / (axis.range[1] - axis.range[0])

    assert drawn(5.66) > 0.4 * drawn(0.25)


def test_the_parity_plot_has_every_row_helped_ones_hollow(found):
    for draw in (parity.parity, parity.errors):
        chart = draw(found)
        drawn = [t for t in chart.figure.data if t.mode == "markers"]
        assert sum(len(t.x) for t in drawn) == len(found)
        for trace in drawn:
            assert (trace.marker.symbol == "circle-open") == trace.name.endswith("helped")
        assert chart.alt
    assert parity.parity([]).alt == charts.empty("No published row to show").alt


def test_the_page_shows_every_row_the_headline_and_how_many_miss(page, found):
    assert not page.exception
    assert len(page.dataframe[0].value) == len(found)
    text = " ".join(m.value for m in (*page.markdown, *page.caption))
    assert all(sentence in text for sentence in headlines(found))
    missed = sum(r["outside"] for r in found)
    assert f"{missed} of {len(found)} rows are outside their bar" in text


def test_a_regime_narrows_the_table_and_a_row_can_be_run(page, found, monkeypatch):
    page.get_by_key("regime").set_value("decode")
    page.run()
    assert len(page.dataframe[0].value) == sum(r["regime"] == "decode" for r in found)
    asked = []
    monkeypatch.setattr("twin.ui.session.run", lambda s: asked.append(s) or "an-id")
    page.get_by_key("row").set_value("cm384-decode-8-4k-tpot").run()
    page.button(key="run-row").click().run()
    assert [s.deployment.decode.batch_per_npu for s in asked] == [8]


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
    assert len(page.dataframe[1].value) == made.counted
    assert any(f"{made.counted} figures without a source" in m.value for m in page.markdown)
    assert len(page.dataframe[2].value) == len(load_beyond())


def test_a_search_narrows_the_facts(page):
    before = len(page.dataframe[3].value)
    page.text_input(key="facts-search").set_value("910c").run()
    assert 0 < len(page.dataframe[3].value) < before


def test_a_part_hidden_behind_the_other_microbatch_is_not_told_as_no_time():
    chart = parity.parts([Part(("experts",), None, 0.0), Part(("o_proj",), 2e-4, 3e-4)])
    assert "published above" in chart.reads
    alone = parity.parts([Part(("experts",), None, 1e-4)])
    assert "published above" not in alone.reads and alone.reads
    twin = next(t for t in chart.figure.data if t.name == "twin")
    assert list(twin.text) == ["hidden", "300 µs"]
    assert "Experts hidden" in chart.alt


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


def test_what_is_missing_is_told_without_names_of_fields():
    told = proof.missing_in_words(load_beyond())
    assert "deployment." not in told and "models." not in told
    assert told.count("published results") == proof.MISSING


def test_another_process_works_the_rows_out_or_the_page_does(monkeypatch, found, tmp_path):
    """What a thread of the server worked out, every page would wait for."""
    monkeypatch.setattr(judged, "shipped_evidence", lambda _facts: None)
    monkeypatch.setattr(judged, "evidence", lambda _facts: [row(id="by the page")])
    worked_out = tmp_path / "answers.json"
    worked_out.write_text(json.dumps(found))
    answered = {
        "elsewhere": f"print(open({str(worked_out)!r}).read())",
        "fails": "raise SystemExit(1)",
    }
    told = {}
    for name, program in answered.items():
        monkeypatch.setattr(judged, "_KNOWN", {})
        monkeypatch.setattr(judged, "COMMAND", (sys.executable, "-c", program))
        judged._elsewhere(threading.Event())
        told[name] = judged.answers()
    assert told["elsewhere"] == found
    assert [each["id"] for each in told["fails"]] == ["by the page"]


def test_a_server_that_stops_takes_the_process_of_the_rows_with_it(monkeypatch, tmp_path):
    import app as dashboard

    begun = tmp_path / "begun"
    os.mkfifo(begun)
    program = f"open({str(begun)!r}, 'w').close(); import signal; signal.pause()"
    monkeypatch.setattr(judged, "shipped_evidence", lambda _facts: None)
    monkeypatch.setattr(judged, "_KNOWN", {})
    monkeypatch.setattr(judged, "COMMAND", (sys.executable, "-c", program))
    for at, name in ((dashboard, "load_pages"), (session, "get_ready"), (answer, "get_ready"),
                     (dashboard.gc, "freeze")):  # fmt: skip
        monkeypatch.setattr(at, name, lambda: None)
    working = threading.Thread(target=judged._elsewhere, args=(threading.Event(),))
    working.start()
    begun.read_text()  # returns when the process runs

    async def served():
        async with dashboard.while_serving(None):
            assert working.is_alive()

    # The browser's tests of this process may have left a loop running in this thread.
    serving = threading.Thread(target=asyncio.run, args=(served(),))
    serving.start()
    serving.join(PATIENCE_S)
    working.join(PATIENCE_S)
    assert not working.is_alive()
    assert judged._KNOWN == {}


def test_a_process_of_the_rows_that_begins_while_the_server_stops_is_stopped_too(monkeypatch):
    begin, begun, stopped = judged.subprocess.Popen, [], threading.Event()

    def stopped_meanwhile(*args, **kwargs):
        begun.append(begin(*args, **kwargs))
        judged.stop()
        return begun[0]

    monkeypatch.setattr(judged, "shipped_evidence", lambda _facts: None)
    monkeypatch.setattr(judged, "_KNOWN", {})
    monkeypatch.setattr(judged, "_STOPS", [stopped.set])
    monkeypatch.setattr(judged, "COMMAND", (sys.executable, "-c", "import signal; signal.pause()"))
    monkeypatch.setattr(judged.subprocess, "Popen", stopped_meanwhile)
    working = threading.Thread(target=judged._elsewhere, args=(stopped,))
    working.start()
    working.join(PATIENCE_S)
    running = working.is_alive()
    begun[0].kill()
    assert not running
    assert judged._KNOWN == {}
