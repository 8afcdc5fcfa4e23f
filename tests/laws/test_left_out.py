"""What no formula reads is named wherever a formula answers."""

import pytest

from tests.engine.small import small
from twin.lab.library import load_facts
from twin.lab.runs.predicted import predict_all
from twin.outlook import outlook
from twin.scenario import left_out_by_formulas, with_overrides
from twin.steady import Priced

TENANTS = [{"name": "a", "priority": 1}, {"name": "b"}]
LEFT_OUT = {
    "faults": {"faults": [{"at_s": 1.0, "element": "node 1"}]},
    "instances that come and go": {"elastic.controller": "queue"},
    "the swings of the load": {"workload.profile.shape": "day", "workload.profile.low": 0.5},
    "expert popularity that moves": {"experts.shift_every_s": 1.0},
    "limits that refuse requests": {"admission.in_flight": 2},
    "clients that give up": {"clients.timeout_s": 0.1},
    "the order of waiting tenants": {"tenants": TENANTS, "admission.order": "priority"},
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_changes_no_formula_is_named(name):
    plain = small({"tenants": TENANTS} if "tenants" in name else {})
    changed = with_overrides(plain, LEFT_OUT[name])
    same = [outlook(Priced(s, load_facts())).slo_req_per_s for s in (plain, changed)]
    assert same[0] == same[1]
    assert left_out_by_formulas(plain) == ""
    sentence = left_out_by_formulas(changed)
    assert sentence.startswith(f"Formulas leave out {name}")
    assert sentence in predict_all(changed)["advice"]


def test_several_are_joined_and_what_does_not_come_is_not_named():
    both = small(LEFT_OUT["faults"] | LEFT_OUT["clients that give up"])
    text = "Formulas leave out faults and clients that give up: a run has them."
    assert left_out_by_formulas(both) == text
    assert left_out_by_formulas(with_overrides(both, {"clients.timeout_s": 0.0})).count("and") == 0
    even = {"experts.shift_every_s": 1.0, "experts.popularity": "uniform"}
    late = {"faults": [{"at_s": 9.0, "element": "node 1"}]}
    assert left_out_by_formulas(small(even | late)) == ""
