"""Reports: one file that loads nothing, runs nothing and shows what was found, whatever it says."""

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import polars as pl
import pytest

from tests.lab.plan.small import facts, plan, small
from twin.engine.simulate import ENGINE_VERSION, simulate
from twin.extras.report.document import Series, plot, tag, ticks
from twin.extras.report.reports import TABLES, plan_report, run_report
from twin.extras.report.section import stored_report
from twin.lab.plan import drive
from twin.lab.plan.answer import brief_text
from twin.lab.store import Owner
from twin.metrics.registry import as_text, metrics_at
from twin.scenario import with_overrides
from twin.ui.show import file_name

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"
VOID = {"meta", "line", "circle", "polyline", "br"}


class Read(HTMLParser):
    """The elements of a file, whether each is closed, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        if name not in VOID:
            assert self.open.pop() == name

    def handle_data(self, data):
        self.text += data


def read(text):
    """A report, once it is known to load nothing and to be whole."""
    found = Read(text)
    assert not found.open
    for name, attributes in found.elements:
        assert name not in ("script", "link", "img", "iframe", "object", "form", "a", "base")
        assert not [a for a in attributes if a.startswith("on") or a in ("src", "href", "action")]
    (policy,) = [a["content"] for _, a in found.elements if "http-equiv" in a]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "prefers-color-scheme: dark" in style and "url(" not in style and "@import" not in style
    return found


@cache
def run():
    return simulate(small(name=HOSTILE, question=HOSTILE), facts())


@cache
def found():
    wanted = plan(small(name=HOSTILE, start="empty"), simulations=3, finalists=1)
    answer = drive.carry_out(wanted, facts(), helpers=0)
    # A loss as a plan that asks for it answers; simulating one takes as long as all the rest.
    answer["ranked"][0]["losses"] = {"die": {"status": "feasible", "element": HOSTILE}}
    return wanted.model_copy(update={"survives": ("die",)}), answer


def test_a_run_is_shown_with_its_figures_against_the_slo():
    text = run_report(run())
    page = read(text)
    for metric in metrics_at("tile"):
        if metric.shows("tile", run().summary.get(metric.key), run().scenario):
            assert as_text(metric.key, run().summary[metric.key]) in page.text
    assert page.text.count(HOSTILE) == 3  # title, heading, question
    assert "SLO 1.00 s" in page.text and run().digest[:16] in page.text
    assert sum(name == "svg" for name, _ in page.elements) == 4
    assert len(text) < 200_000 and run_report(run()) == text


def test_figures_are_held_against_no_slo_where_requests_have_several():
    own = with_overrides(run().scenario, {"tenants": [{"name": "a", "ttft_s": 0.5}]})
    one, several = (read(run_report(each)).text for each in (run(), replace(run(), scenario=own)))
    assert "SLO 1.00 s" in one and "SLO 1.00 s" not in several


def test_a_run_of_which_no_table_is_left_still_has_its_figures():
    bare = simulate(small(), facts())
    bare.tables.clear()
    assert as_text("tpot_s_mean", bare.summary["tpot_s_mean"]) in read(run_report(bare)).text


def test_a_stored_run_gives_the_same_report(store):
    scenario = small()
    made = simulate(scenario, facts())
    owner, saved = Owner.current(), store.scenarios.save(scenario)
    key = store.runs.add(saved, facts(), made.engine_version, 1, owner=owner)
    store.runs.finish(key, owner, made, 1.0)
    assert stored_report(store, store.runs.get(key), scenario).decode() == run_report(made)


def test_a_plan_is_shown_with_its_ranking_front_ledger_and_question():
    wanted, answer = found()
    text = plan_report(wanted, answer)
    page = read(text)
    first = answer["ranked"][0]
    assert page.text.count(brief_text(first["settings"])) >= 3
    for path, value in first["settings"].items():
        assert f"--set {path}={value}" in page.text
    assert "SLO holds" in page.text
    assert answer["gap_sentence"] in page.text and HOSTILE in page.text
    assert f"engine {answer['engine'][:16]}, facts {answer['facts'][:16]}" in page.text
    older = read(plan_report(wanted, {**answer, "engine": "1.0"})).text
    assert "engine 1.0" in older and ENGINE_VERSION[:16] not in older
    assert "/ M tokens" not in page.text
    dear = [{**r, "summary": {**r["summary"], "cost_per_million_tokens": 1.5}}
            for r in answer["ranked"]]  # fmt: skip
    assert "1.50 / M tokens" in read(plan_report(wanted, {**answer, "ranked": dear})).text
    assert any(name == "polyline" for name, _ in page.elements)
    assert len(text) < 1_000_000 and plan_report(wanted, json.loads(json.dumps(answer))) == text


def test_where_nothing_fits_the_report_says_what_would_have_to_give():
    wanted, answer = found()
    row = {"limit": "slo.tpot_ms", "from": 1.0, "to": 4.5, "npus": 14, "run_s": 35.0,
           "settings": answer["ranked"][0]["settings"]}  # fmt: skip
    none = {"ranked": [], "gap": None, "gap_sentence": "", "front": [], "tornado": [],
            "relaxations": [row]}  # fmt: skip
    page = read(plan_report(wanted, {**answer, **none}))
    assert "Nothing fits" in page.text and "4.5 in place of 1 " in page.text
    assert "nothing to draw" in page.text


def test_a_chart_stays_inside_its_frame():
    (figure,) = [plot("x", [Series("a", [(0.0, 1.0), (9.5, 930.0)])], "x", "y", limit=12.0)]
    (line,) = figure.iter("polyline")
    places = [tuple(map(float, p.split(","))) for p in line.get("points").split()]
    assert all(0 <= x <= 520 and 0 <= y <= 300 for x, y in places)
    for low, high in ((0.0, 0.0), (3.0, 3.0), (1e-6, 2e-6), (0.0, 1e12), (17.0, 18.9)):
        found = ticks(low, high)
        assert found[0] <= low and found[-1] >= high and 2 <= len(found) <= 8
    assert tag("p", "a", tag("b", "c"), "d").find("b").tail == "d"


def test_a_files_name_is_letters_digits_and_dashes():
    assert file_name("A/../b  c") == "a-b-c" and file_name("你", fallback="report") == "report"


@pytest.mark.parametrize("words", [["run", "quickstart"], ["plan", "quickstart"]])
def test_a_report_that_cannot_be_written_is_said_before_the_answer_is_computed(twin, words):
    done = twin(*words, "--html", "no/such/folder/x.html")
    assert done.returncode == 3 and b"no folder to write in" in done.stderr


def test_the_command_writes_the_report_of_its_run(twin, tmp_path):
    settings = ("horizon_s=20", "warmup_s=5", "workload.rate_req_per_s=20")
    file = tmp_path / "x.html"
    done = twin("run", "quickstart", "--no-store", "--html", str(file),
                *(word for one in settings for word in ("--set", one)))  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "Quick start" in read(file.read_text("utf-8")).text


def test_the_report_reads_tables_that_a_run_has():
    assert set(TABLES) <= run().tables.keys()
    assert isinstance(run().tables["windows"], pl.DataFrame)
