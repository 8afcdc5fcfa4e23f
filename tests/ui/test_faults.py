"""The form of what breaks: rows in and out of the draft, typical faults, wrong names refused."""

import pytest

from tests.ui.stored_runs import scenario
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place
from twin.scenario import Fault
from twin.ui import formulas, session
from twin.ui.charts import history as charts_playback
from twin.ui.forms.faults import element_names, fault_error, typical_faults
from twin.ui.pages import PAGES


@pytest.fixture
def page(app, monkeypatch):
    monkeypatch.setattr(formulas, "capacity", lambda scenario: "nobody asks here")  # compiles
    at = app.switch_page(PAGES["deployment"].script).run()
    at.get_by_key("deployment-group").set_value("Faults")
    at.run()
    assert not at.exception
    return at


def draft(at):
    return at.session_state["history"][at.session_state["position"]]


def widget(at, field, number=0):
    return at.get_by_key(f"field:faults.{number}.{field}:{at.session_state['generation']}")


def add(at, name="fault-add"):
    at.get_by_key(name).click()
    at.run()
    assert not at.exception
    return at


def words(at):
    return " ".join(str(e.value) for e in (*at.markdown, *at.caption))


def machine():
    s = scenario()
    return s, build_fabric(s.supernode, session.facts())


def test_an_edit_of_a_row_that_has_left_the_page_changes_nothing_and_breaks_nothing(page):
    add(page)
    before = draft(page)
    widget(page, "at_s").set_value(42.0)
    page.session_state["generation"] += 1
    page.run()
    assert not page.exception
    assert draft(page) == before


def test_without_faults_the_form_says_so_and_hides_the_reaction(page):
    assert "Nothing breaks" in words(page)
    assert "field:recovery.policy:0" not in [w.key for w in page.get("button_group")]


def test_a_field_of_recovery_that_was_looked_for_is_drawn_while_nothing_fails(page):
    page.session_state["field-sought"] = "recovery.detection_s"
    page.session_state["field-searches"] = 1
    page.run()
    assert page.number_input(key=f"field:recovery.detection_s:{page.session_state['generation']}")


def test_a_row_is_added_edited_duplicated_and_removed_and_undone(page):
    add(page)
    widget(page, "at_s").set_value(42.0)
    page.run()
    widget(page, "element").set_value("L2 3.12")
    page.run()
    widget(page, "kind").set_value("derate")
    page.run()
    widget(page, "factor").set_value(0.25)
    page.run()
    widget(page, "duration_s").set_value(10.0)
    page.run()
    [fault] = draft(page).faults
    said = (fault.at_s, fault.element, fault.kind, fault.factor, fault.duration_s)
    assert said == (42.0, "L2 3.12", "derate", 0.25, 10.0)
    add(page, "fault-copy:0")
    assert draft(page).faults == (fault, fault)
    add(page, "fault-remove:1")
    assert draft(page).faults == (fault,)
    add(page, "undo")
    assert draft(page).faults == (fault, fault)
    add(page, "fault-none")
    assert draft(page).faults == ()


def test_a_wrong_name_is_one_sentence_and_the_draft_keeps_the_right_one(page):
    add(page)
    widget(page, "to").set_value("node 99")
    page.run()
    assert "node 99" in words(page)
    assert "until then it stays the whole element" in words(page)
    assert draft(page).faults[0].to == ""
    widget(page, "to").set_value("")
    page.run()
    assert "until then" not in words(page)


def test_only_what_computes_can_compute_slowly(page):
    add(page)
    widget(page, "element").set_value("L2 3.1")
    page.run()
    widget(page, "kind").set_value("slow")
    page.run()
    assert "no dies that could compute slowly" in words(page)
    assert draft(page).faults[0].kind == "fail"


def test_with_a_fault_the_reaction_can_be_chosen_and_names_its_source(page):
    add(page)
    policy = widget_of(page, "recovery.policy")
    assert "arXiv" in policy.help
    policy.set_value("restart")
    page.run()
    assert draft(page).recovery.policy == "restart"


def widget_of(at, path):
    return at.get_by_key(f"field:{path}:{at.session_state['generation']}")


def test_a_fault_counts_as_a_change_that_can_be_taken_back(page):
    add(page)
    assert "Faults: :gray[none] → **node 0 fails at 75 s**" in words(page)
    page.button(key="take-back-0").click().run()
    assert draft(page).faults == ()


def test_a_fault_after_the_end_is_said(page):
    add(page)
    widget(page, "at_s").set_value(1e5)
    page.run()
    assert "After the end of the run" in words(page)


def test_every_typical_fault_fits_the_machine_and_can_be_added(page):
    s, fabric = machine()
    offered = typical_faults(s, fabric, place(s, fabric).instances)
    assert {"A node", "An L2 switch", "Sub-plane 3"} <= set(offered)
    assert any("die of decode" in name for name in offered)
    assert any("memory server" in name for name in offered)
    for name, rows in offered.items():
        before = len(draft(page).faults)
        add(page, f"typical:{name}")
        assert len(draft(page).faults) == before + len(rows)


def test_a_machine_without_an_l2_chip_is_not_offered_one():
    s = scenario(supernode__scale_up="node")
    fabric = build_fabric(s.supernode, session.facts())
    assert "An L2 switch" not in typical_faults(s, fabric, place(s, fabric).instances)


def test_a_wrong_fault_has_one_sentence_and_a_right_one_none():
    _, fabric = machine()
    row = {"at_s": 1.0, "element": "node 3", "to": "", "kind": "fail", "factor": 0.5,
           "duration_s": 0.0}  # fmt: skip
    assert fault_error(fabric, row) == ""
    assert "no element is named" in fault_error(fabric, row | {"element": "nobody"})
    assert fault_error(fabric, row | {"element": "node 3", "to": "node 40"})
    assert not fault_error(fabric, row | {"element": "L1 3.2", "to": "L2 2.1"})
    assert {"node 3", "sub-plane 3", "die 3.0.1", "L2 3.12"} <= set(element_names(fabric))


def test_the_picture_names_every_fault():
    s = scenario(faults=[{"at_s": 10.0, "element": "node 3"},
                         {"at_s": 20.0, "element": "L2 3.1", "kind": "derate"}])  # fmt: skip
    chart = charts_playback.faults(s.faults, s.horizon_s)
    assert "node 3 at 10 s, to the end" in chart.alt
    assert "L2 3.1" in chart.alt


def test_a_flapping_link_is_drawn_when_it_is_down_and_as_one_where_it_is_too_often():
    fault = Fault(element="L1 0.1", at_s=10.0, kind="flap", period_s=2.0, duration_s=5.0)
    (bars,) = charts_playback.faults([fault], 100.0).figure.data
    assert [(base, base + width) for base, width in zip(bars.base, bars.x, strict=True)] == [
        (10.0, 11.0), (12.0, 13.0), (14.0, 15.0),
    ]  # fmt: skip
    often = fault.model_copy(update={"period_s": 0.1, "duration_s": 0.0})
    (bars,) = charts_playback.faults([often], 100.0).figure.data
    assert (bars.base, bars.x) == ((10.0,), (90.0,))
