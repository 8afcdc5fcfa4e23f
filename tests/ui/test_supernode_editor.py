"""The editor on the Supernode page: every change is a step of the draft, priced and undoable."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.ui.conftest import patient
from twin.hardware.exchange_format import write_fabric
from twin.hardware.fabric import build_fabric
from twin.lab import share
from twin.lab.library import load_facts
from twin.scenario import Edit, with_overrides
from twin.ui import session
from twin.ui.pages import PAGES
from twin.ui.pages.supernode import parts as tables

PAGE = PAGES["supernode"].script
HALF = Edit(element="sub-plane 3", capacity_factor=0.5)


@pytest.fixture
def page(app):
    return app.run().switch_page(PAGE).run()


def edits(at) -> tuple[Edit, ...]:
    state = at.session_state
    return state["history"][state["position"]].supernode.edits


def say(at, words):
    return at.text_input(key="fabric-words").set_value(words).run()


def price(at, name):
    found = [m for m in at.metric if m.label.startswith(name)]
    return found[0].value, found[0].delta


def open_tab(at, name):
    at.session_state["supernode-tab"] = name
    return at.run()


def test_a_change_in_words_is_priced_and_undone(page):
    assert price(page, "All-to-all") == ("133 GB/s", "as in the preset")
    say(page, "sub-plane 3 at half speed")
    assert edits(page) == (HALF,)
    assert price(page, "All-to-all") == ("123.5 GB/s", "-7.14 % of 133 GB/s")
    assert price(page, "Pool read") == ("4.867 TB/s", "-7.14 % of 5.241 TB/s")
    assert any("sub-plane 3: 50 % of capacity" in m.value for m in page.markdown)
    page.button(key="undo").click().run()
    assert edits(page) == ()
    assert price(page, "All-to-all")[1] == "as in the preset"
    page.button(key="redo").click().run()
    assert edits(page) == (HALF,)


def test_words_that_are_not_understood_change_nothing_and_stay(page):
    say(page, "gpu 3 off")
    assert edits(page) == ()
    assert page.text_input(key="fabric-words").value == "gpu 3 off"
    assert any("No element is named" in m.value for m in page.markdown)
    say(page, "L1 20.3 – L2 4.12 off")
    assert any("No link joins L1 20.3 and L2 4.12" in m.value for m in page.markdown)


def test_a_cut_off_pool_is_said_so(page):
    say(page, "node 5 off")
    assert price(page, "Pool read") == ("cut off", "was 5.241 TB/s")


def test_differences_are_listed_and_taken_back_one_by_one(page):
    say(page, "L2 3.* off")
    say(page, "node 7 latency x2")
    open_tab(page, "Changes")
    assert any("L2 3.0 to L2 3.15, 16 in all: **off**" in m.value for m in page.markdown)
    page.button(key="take-back-0").click().run()
    assert edits(page) == (Edit(element="node 7", latency_factor=2.0),)
    page.button(key="take-all-back").click().run()
    assert edits(page) == ()
    assert any("This is the preset's machine" in i.value for i in page.info)


def test_a_parameter_stands_among_the_differences(page):
    page.session_state["supernode-tab"] = "Changes"
    page.run()
    page.segmented_control[0].set_value("node").run()
    assert any("Scale-up (UB) domain" in m.value and "One node" in m.value for m in page.markdown)
    page.button(key="take-back-0").click().run()
    assert any("This is the preset's machine" in i.value for i in page.info)


def test_parts_of_an_element_are_listed_with_what_they_carry(page):
    open_tab(page, "Parts and links")
    assert any("Select something in the picture" in i.value for i in page.info)
    page.text_input(key="parts-of:").set_value("L2 3.12").run()
    assert not page.exception
    assert any("Each row is a link" in c.value for c in page.caption)
    page.text_input(key="parts-of:").set_value("gpu").run()
    assert any("No element is named" in m.value for m in page.markdown)


def test_the_picture_asks_once_for_each_thing(store):

    def script(wishes):
        from twin.ui import session
        from twin.ui.pages.supernode import editor as fabric_editor

        fabric_editor.on_act(wishes)
        session.draft()

    first = {"number": 1, "names": ["L1 0.0", "NIC 2.*"], "capacity": 0.5}
    at = patient(script, args=([first],)).run()
    assert len(edits(at)) == 17  # the NICs of a node are 16
    at.run()
    assert len(at.session_state["history"]) == 2
    link = {"number": 2, "names": ["L1 0.0", "L2 0.0"], "capacity": 0.25, "link": True}
    back = {"number": 3, "names": ["node 2", "L1 0.0"], "restore": True}
    at = patient(script, args=([first, link, back],)).run()
    assert edits(at) == ()
    undo = {"number": 4, "step": -1}
    at = patient(script, args=([first, link, back, undo],)).run()
    assert Edit(element="L1 0.0", to="L2 0.0", capacity_factor=0.25) in edits(at)


def test_a_cell_of_a_table_edits_its_row_only(store):

    def script():
        from twin.scenario import Edit, Supernode
        from twin.ui import session
        from twin.ui.pages.supernode import editor as fabric_editor
        from twin.ui.pages.supernode import parts as tables

        fabric_editor.take((Edit(element="sub-plane 3", capacity_factor=0.5),))
        built = fabric_editor.fabric_of(Supernode())

        def row(name, to=""):
            now = fabric_editor.fabric_of(session.draft().supernode)
            return next(p for p in tables.parts(now, built, [name]) if to in ("", p.to))

        drawn = row("L1 20.3", "L2 3.12")
        tables.take_cell(drawn, tables.NOW, 7.0)
        tables.take_cell(drawn, tables.NOW, 7.0)  # a browser may send a cell twice
        assert row("L1 20.3", "L2 3.12").now == 7e9
        tables.take_cell(row("L1 20.3", "L2 3.12"), tables.DELAY, 3.0)
        assert abs(row("L1 20.3", "L2 3.12").latency - 3.0) < 1e-6
        tables.take_cell(row("L1 20.3", "L2 3.12"), tables.NOW, 0.0)
        assert row("L1 20.3", "L2 3.12").now == 0.0

    at = patient(script).run()
    assert not at.exception
    assert edits(at) == (
        HALF,
        Edit(element="L1 20.3", to="L2 3.12", capacity_factor=0.0, latency_factor=3.0),
    )


def test_groups_list_their_chips():
    from twin.scenario import Supernode

    facts = load_facts()
    built = build_fabric(Supernode(), facts)
    slow = build_fabric(Supernode(edits=(HALF,)), facts)
    rows = {p.name: p for p in tables.parts(slow, built, ["node 20"])}
    assert len(rows) == 16 + 16 + 4 + 7 + 1
    assert (rows["L1 20.3"].built, rows["L1 20.3"].now) == (448e9, 224e9)
    assert len(tables.parts(slow, built, ["sub-plane 3"])) == 48 + 16
    assert {p.name for p in tables.parts(slow, built, ["NPU 20.1"])} == {"die 20.1.0", "die 20.1.1"}
    assert len(tables.parts(slow, built, ["L1 0.0", "node 0", "L1 1.0"])) == 44 + 1


def test_an_edit_travels_in_the_drafts_link(page):
    say(page, "sub-plane 3 at half speed")
    draft = page.session_state["history"][-1]
    query = dict(parse_qsl(urlsplit(share.scenario_link(draft, "supernode")).query))
    assert share.open_scenario(query, session.store()).supernode.edits == (HALF,)


def test_several_supernodes_can_be_edited(page):
    page.session_state["history"] = [
        s.model_copy(update={"supernode": s.supernode.model_copy(update={"supernodes": 4})})
        for s in page.session_state["history"]
    ]
    page.run()
    assert not page.exception
    say(page, "sub-plane 2:3 at half speed")
    assert not page.exception
    assert [e.element for e in edits(page)] == ["sub-plane 2:3"]


def test_a_fabric_goes_out_and_comes_in_again(page):
    say(page, "L2 3.* off")
    graph = editor_fabric(page)
    for kind in ("json", "graphml"):
        fresh = patient(file_taken, args=(write_fabric(graph, kind), kind))
        fresh.run()
        assert not fresh.exception
        assert [m.value for m in fresh.markdown] == []
        assert edits(fresh) == edits(page)


def file_taken(text: str, kind: str) -> None:
    """The script under test: a file's text becomes the draft's machine."""
    import streamlit as st

    from twin.ui import session
    from twin.ui.pages.supernode.files import take_text

    session.draft()
    for fault in take_text(text.encode(), kind):
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


def test_what_cannot_work_is_said_in_sentences(page):
    assert not page.warning
    say(page, "NPU 20.1 off")
    assert any("NPU 20.1 has a die without a UB link" in w.value for w in page.warning)


@pytest.mark.parametrize("tab", ["Numbers", "Parts and links", "Changes", "File"])
def test_a_machine_that_cannot_be_wired_keeps_the_last_picture_and_takes_no_edit(page, tab):
    open_tab(page, tab)
    state = page.session_state
    draft = state["history"][state["position"]]
    state["history"] = [with_overrides(draft, {"supernode.l2_ports_per_chip": 32})]
    page.run()
    say(page, "node 3 off")
    assert not page.exception
    assert "last machine that could be built" in page.error[0].value
    assert edits(page) == ()
