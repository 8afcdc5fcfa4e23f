"""Files of the twin's own on the Supernode page: out, and in again as edits of the draft."""

import pytest
from playwright.sync_api import expect

from tests.browsing import rest
from tests.ui.conftest import patient
from tests.ui.test_machine_import_in_browser import open_files, take_from_elsewhere
from tests.ui.test_supernode_editor import PAGE, edit, edits, off
from twin.extras.fabric_files.exchange import write_fabric
from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.scenario import Supernode


@pytest.fixture
def drawn(app):
    return app.switch_page(PAGE).run()


def test_a_fabric_goes_out_and_comes_in_again(drawn):
    edit(drawn, *off(*(f"L2 3.{i}" for i in range(16))))
    graph = editor_fabric(drawn)
    for kind in ("json", "graphml"):
        fresh = patient(file_taken, args=(write_fabric(graph, kind), kind))
        fresh.run()
        assert not fresh.exception
        assert [m.value for m in fresh.markdown] == []
        assert edits(fresh) == edits(drawn)


def file_taken(text: str, kind: str) -> None:
    """The script under test: a file's text becomes the draft's machine."""
    import streamlit as st

    from twin.extras.fabric_files.section import take_text
    from twin.ui import session

    session.draft()
    for fault in take_text(text.encode(), f"mine.{kind}"):
        st.markdown(fault)


def editor_fabric(at):
    state = at.session_state
    return build_fabric(state["history"][state["position"]].supernode, load_facts())


@pytest.mark.parametrize(
    ("text", "why"), [("{", "not JSON"), ('{"graph": {}, "nodes": [], "edges": []}', "supernode")]
)
def test_a_file_that_is_no_fabric_is_refused_in_sentences(store, text, why):
    at = patient(file_taken, args=(text, "json")).run()
    assert why in at.markdown[0].value
    assert edits(at) == ()


@pytest.mark.browser
def test_one_box_takes_files_of_the_twin_and_of_others(app_url, page, tmp_path):
    open_files(page, app_url)
    box = page.locator("input[type=file]")
    expect(box).to_have_count(1)
    own = tmp_path / "own.json"
    own.write_text(write_fabric(build_fabric(Supernode(nodes=40), load_facts()), "json"))
    box.set_input_files(str(own))
    expect(page.get_by_text("40 nodes").first).to_be_visible()
    rest(page)
    take_from_elsewhere(page, tmp_path)
