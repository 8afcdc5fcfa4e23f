"""The library page: find, open, copy, compare, delete; what must stay says so."""

import pytest
from playwright.sync_api import expect

from tests.browsing import rest
from tests.draws import some
from tests.ui.stored_runs import done, queued, scenario
from twin.lab.library import presets, scenario_to_toml
from twin.ui.pages import PAGES
from twin.ui.pages.library import stored


@pytest.fixture
def library(app):
    return app.switch_page(PAGES["library"].script)


def run(library):
    library.run()
    assert not library.exception
    return library


def pick(library, *rows, acts=0):
    """Mark rows of the first page of all runs."""
    chosen = {"selection": {"rows": list(rows), "columns": [], "cells": []}}
    library.session_state[f"table:Runs:All::1:{acts}"] = chosen
    return run(library)


def names(library):
    return library.dataframe[0].value.iloc[:, 0].tolist()


def test_an_empty_library_names_the_one_next_step(library):
    run(library)
    assert [link.label for link in library.page_link] == ["Run a preset"]


def test_search_and_state_narrow_the_runs(library, store):
    done(store, scenario("Apples"))
    queued(store, scenario("Pears", seed=4))
    assert set(names(run(library))) == {"Apples", "Pears"}
    library.text_input(key="q").set_value("pea").run()
    assert names(library) == ["Pears"]
    library.get_by_key("state").set_value("Done")
    run(library)
    assert "fits" in library.markdown[-1].value
    next(b for b in library.button if b.label == "Clear the search").click().run()
    assert set(names(library)) == {"Apples", "Pears"}


def test_a_run_whose_figures_rotted_is_named_and_the_others_are_listed(library, store):
    good, bad = done(store, scenario("Good")), done(store, scenario("Bad", seed=2))
    with store.database.write() as session:
        connection = session.connection()
        connection.exec_driver_sql("DROP TRIGGER ended_run_is_a_value")
        connection.exec_driver_sql(f"UPDATE runs SET summary = '[7' WHERE id = '{bad}'")
    rows = run(library).dataframe[0].value
    assert dict(zip(rows["Run"], rows["State"], strict=True)) == {"Good": "done", "Bad": "damaged"}
    library.switch_page(PAGES["start"].script).run()
    assert not library.exception
    assert any("damaged: restore a backup" in caption.value for caption in library.caption)
    library.switch_page(PAGES["compare"].script)
    library.query_params["runs"] = f"{good},{bad}"
    assert f"run {bad} is damaged" in run(library).error[0].value.replace("\\", "")


FORGED = {
    "figures that are tables": {"summary": '{"ttft_s_p50": {"a": 1}, "requests": []}'},
    "a figure that is text": {"summary": '{"ttft_s_p50": "fast"}'},
    "checks of nothing": {"checks": '[7, {"id": []}]', "notes": "[{}]"},
    "times of the year 3170843": {"queued_s": 1e14, "finished_s": 1e14, "wall_s": -1e300},
    "times that are words": {"queued_s": "soon", "finished_s": "later", "wall_s": "long"},
}


@pytest.mark.parametrize("case", some([*FORGED][::4], *[*FORGED][1:4]))
def test_a_forged_row_takes_no_page_down_and_can_be_deleted(library, store, case):
    good, bad = done(store, scenario("Good")), done(store, scenario("Bad", seed=2))
    with store.database.write() as session:
        connection = session.connection()
        for guard in ("ended_run_is_a_value", "question_of_a_run_is_fixed"):
            connection.exec_driver_sql(f"DROP TRIGGER {guard}")
        for column, value in FORGED[case].items():
            connection.exec_driver_sql(f"UPDATE runs SET {column} = ? WHERE id = ?", (value, bad))
    assert set(names(run(library))) == {"Good", "Bad"}
    for page, query in (
        ("start", {}), ("compare", {}), ("compare", {"runs": f"{good},{bad}"}),
        ("run", {"run": bad}), ("playback", {"run": bad}), ("run", {"run": good}),
    ):  # fmt: skip
        library.switch_page(PAGES[page].script)
        library.query_params.clear()
        for name, value in query.items():
            library.query_params[name] = value
        run(library)
    library.query_params.clear()
    run(library.switch_page(PAGES["library"].script))
    pick(library, names(library).index("Bad"))
    library.button(key="delete-picked").click()
    assert names(run(library)) == ["Good"]


def test_a_long_list_is_shown_page_by_page(library, store):
    for seed in range(stored.ROWS + 3):
        queued(store, scenario("Many", seed=seed))
    assert len(names(run(library))) == stored.ROWS
    assert any("1 to 20 of 23 runs" in c.value for c in library.caption)
    library.session_state["page:Runs:All::2"] = 2
    assert len(names(run(library))) == 3


def test_nothing_can_be_done_before_a_row_is_picked(library, store):
    queued(store, scenario())
    run(library)
    assert all(library.button(key=key).disabled for key in ("open", "compare-picked", "fork"))


def test_what_is_picked_can_be_compared_or_edited(library, store):
    done(store, scenario("One"))
    done(store, scenario("Two", workload__rate_req_per_s=33.0))
    run(library)
    assert library.button(key="compare-picked").disabled
    pick(library, 0, 1)
    assert library.button(key="fork").disabled
    assert not library.button(key="compare-picked").disabled
    pick(library, 0).button(key="fork").click().run()
    assert library.title[0].value == "Workload"
    assert library.session_state["history"][-1].workload.rate_req_per_s == 33.0


def test_every_preset_is_a_scenario_here(library):
    library.session_state["show"] = "Scenarios"
    library.session_state["kind"] = "Presets"
    run(library)
    assert any(f"of {len(presets())} scenarios" in c.value for c in library.caption)
    assert set(library.dataframe[0].value["Stays"]) == {"preset"}


def test_deleting_spares_what_was_shared_and_says_so(store, monkeypatch):
    said = []
    monkeypatch.setattr(stored.st, "toast", lambda text, **_: said.append(text))
    shared, own = done(store, scenario()), done(store, scenario("Own", seed=8))
    store.runs.publish(shared)
    stored.delete_all([shared, own], store.runs.delete, "run")
    assert store.runs.get(own) is None
    assert store.runs.get(shared) is not None
    assert said == ["This run was shared: its link must keep working, or be revoked first."]


def test_a_deletion_picks_nothing_closes_its_popover_and_is_undone(library, store):
    ids = [done(store, scenario("One")), done(store, scenario("Two", seed=2))]
    run(library)
    before = {run: (store.runs.get(run), store.runs.tables(run)) for run in ids}
    popover = next(p for p in library.get("popover") if "Delete" in str(p.proto))
    pick(library, 0).button(key="delete-picked").click().run()
    assert names(library) == ["One"]
    assert all(library.button(key=key).disabled for key in ("open", "compare-picked", "fork"))
    assert library.button(key="delete-picked").label == "Delete 0 runs"
    later = next(p for p in library.get("popover") if "Delete" in str(p.proto))
    assert later.proto.id != popover.proto.id
    library.button(key="undo-delete").click().run()
    assert set(names(library)) == {"One", "Two"}
    assert not any(b.key == "undo-delete" for b in library.button)
    after = {run: (store.runs.get(run), store.runs.tables(run)) for run in ids}
    assert after.keys() == before.keys()
    for run_id, (row, tables) in after.items():
        assert tables == before[run_id][1]
        assert row.seal == before[run_id][0].seal


def test_a_run_is_named_tagged_and_found_by_both(library, store):
    run_id, other = done(store, scenario("Two", seed=2)), done(store, scenario("One"))
    run(library)
    pick(library, 1)
    form = f"note:{run_id}:0"
    library.text_input(key=f"{form}:title").set_value("Before the upgrade")
    library.multiselect(key=f"{form}:tags").set_value(["baseline"])
    library.text_area(key=f"{form}:text").set_value("50 % *off*")
    library.button(key="save-note").click().run()
    assert names(library) == ["One", "Before the upgrade"]
    assert library.button(key="open").disabled  # nothing stays picked
    assert [list(cell) for cell in library.dataframe[0].value["Tags"]] == [[], ["baseline"]]
    pick(library, 1, acts=1)
    assert "50 % \\*off\\*" in [m.value for m in library.markdown]
    pick(library, 0, 1, acts=1)
    assert not library.text_input(key="q").value
    library.multiselect(key=f"note:{other},{run_id}:1:tags").set_value(["both"])
    library.button(key="save-note").click().run()
    assert store.notes.notes_on([run_id])[run_id].title == "Before the upgrade"
    assert store.notes.notes_on([other])[other].tags == "\nboth\n"
    library.session_state["tags"] = ["baseline"]
    assert names(run(library)) == ["Before the upgrade"]
    library.session_state["tags"] = []
    library.text_input(key="q").set_value("upgrade").run()
    assert names(library) == ["Before the upgrade"]


def test_a_deleted_scenario_comes_back_as_it_was(library, store):
    digest = store.scenarios.save(scenario("Mine", seed=9))
    undo = store.scenarios.delete(digest)
    assert store.scenarios.get(digest) is None
    undo()
    assert store.scenarios.load(digest) == scenario("Mine", seed=9)


def test_a_preset_stays(store, monkeypatch):
    said = []
    monkeypatch.setattr(stored.st, "toast", lambda text, **_: said.append(text))
    row = store.scenarios.search(kind="presets").rows[0]
    stored.delete_all([row.digest], store.scenarios.delete, "scenario")
    assert said == [f"{row.name} is a preset: it stays."]


def test_a_scenario_file_comes_in_and_a_broken_one_is_one_sentence(library, store):
    run(library).file_uploader[0].upload(
        "mine.toml", scenario_to_toml(scenario("Mine")).encode(), "application/toml"
    )
    run(library).button(key="keep-file").click().run()
    assert [row.name for row in store.scenarios.search("Mine").rows] == ["Mine"]
    library.file_uploader[0].upload("bad.toml", b"nodes = [", "application/toml")
    assert run(library).error[0].value.startswith("bad.toml is not valid TOML")


@pytest.mark.browser
def test_typing_narrows_the_list_and_the_page_fits_a_phone(app_url, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/library?show=Scenarios&kind=Presets")
    page.get_by_text(f"of {len(presets())} scenarios").first.wait_for()
    page.get_by_placeholder("Name, note, tag, question or id").press_sequentially("colocated")
    page.get_by_text("1 to 1 of 1 scenarios").first.wait_for()
    page.wait_for_url("**/library?*q=colocated*")
    rest(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.browser
def test_a_link_to_unknown_runs_is_said_on_a_phone(app_url, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/compare?runs={'a' * 24},{'b' * 24}")
    expect(page.get_by_text("No run here has the id")).to_have_count(2)
    rest(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
