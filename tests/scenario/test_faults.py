"""A kind of fault is one entry: a made-up one is found in file, form, engine, picture and docs."""

import math

import pytest

from docs.make import fault_table
from tests.engine.small import run, small
from tests.hardware.wired import network
from twin.commands import runs
from twin.engine.simulate import simulate
from twin.hardware.fabric import build_fabric
from twin.hardware.faults import with_faults
from twin.lab.library import load_facts, scenario_from_toml, scenario_to_toml
from twin.scenario import KINDS, Fault, FaultKind, SpecError, fields, parse_scenario, remarks
from twin.ui.charts import history as charts
from twin.ui.fields import choice_label, options, rows_in_words


@pytest.fixture
def dirt(monkeypatch):
    """A kind of fault more: dirty connectors."""
    kind = FaultKind(
        "dirt", "Dirty connectors", "Every link keeps a tenth.", look="reduced",
        says=lambda fault: "is full of dirt", edit=lambda _: {"capacity_factor": 0.1},
    )  # fmt: skip
    monkeypatch.setitem(KINDS, "dirt", kind)
    fields.cache_clear()
    yield kind
    fields.cache_clear()


def test_a_new_kind_is_one_entry(dirt):
    fault = {"at_s": 1.5, "element": "node 1", "kind": "dirt"}
    s = small({"faults": [fault], "horizon_s": 2.0})
    assert scenario_from_toml(scenario_to_toml(s).encode()) == s
    assert "dirt" in fields()["faults[].kind"].accepted_text()
    assert "dirt" in options("faults[].kind", load_facts())
    assert choice_label("faults[].kind", "dirt") == "Dirty connectors"
    assert "Dirty connectors" in fault_table() and "Every link keeps a tenth." in fault_table()
    assert rows_in_words("faults", s.faults) == "node 1 is full of dirt from 1.5 s"
    chart = charts.faults(s.faults, s.horizon_s)
    assert [trace.name for trace in chart.figure.data] == ["Dirty connectors"]
    whole = network(build_fabric(s.supernode, load_facts()))
    left, at = with_faults(whole, s.faults), whole.links_at("node 1")
    assert (left.capacity[at] == 0.1 * whole.capacity[at]).all()
    found = simulate(s, load_facts()).tables["events"]
    assert found["detail"][0] == "node 1 is full of dirt"


def test_an_unknown_kind_is_one_sentence():
    with pytest.raises(SpecError, match=r"faults.0.kind = 'rust' should be one of fail, derate"):
        parse_scenario({"faults": [{"element": "node 1", "kind": "rust"}]})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_what_it_does_and_has_an_effect(kind):
    known = KINDS[kind]
    fault = Fault(element="L1 0.1", to="sub-plane 1", kind=kind)
    assert known.label and known.help.endswith(".") and known.says(fault)
    assert set(known.uses) <= set(Fault.model_fields)
    assert (known.speed is not None) != bool(known.edits(fault))
    assert next(known.spans(fault))[0] == 0.0


def test_a_flapping_link_is_down_for_its_share_of_every_period_until_it_is_repaired():
    fault = Fault(element="L1 0.1", kind="flap", period_s=2.0, down_share=0.25, duration_s=5.0)
    assert list(KINDS["flap"].spans(fault)) == [(0.0, 0.5), (2.0, 2.5), (4.0, 4.5)]
    assert list(KINDS["fail"].spans(Fault(element="L1 0.1"))) == [(0.0, math.inf)]


def test_a_link_that_flaps_too_often_is_refused_before_the_run():
    flap = {"element": "L1 0.1", "kind": "flap", "period_s": 0.1}
    with pytest.raises(ValueError, match=r"faults.0 flaps 36,000 times"):
        small({"faults": [flap], "horizon_s": 3600.0})


def test_a_fault_that_the_run_never_sees_is_said_before_and_after_it():
    late = small({"faults": [{"at_s": 9.0, "element": "node 1"}], "horizon_s": 2.0})
    (said,) = remarks(late)
    assert said == "after the end of the run at 2 s, so never seen: node 1 at 9 s"
    assert said in run({"faults": [{"at_s": 9.0, "element": "node 1"}], "horizon_s": 2.0}).notes
    assert remarks(small()) == []


def test_the_command_line_says_it_before_a_run(capsys):
    runs.print_remarks(small({"faults": [{"at_s": 9.0, "element": "node 1"}]}))
    assert "so never seen: node 1 at 9 s" in capsys.readouterr().err
