"""Advice is a law: what an explanation suggests helps, by what it promised, and harms nothing.

The suite judges a seeded few, of causes other than the load; `make long` all of them.
"""

import pytest

from tests.draws import FACTOR, some
from tests.lab.searched import searched
from tests.laws.advice import PLANTED, planted, top_three, varied
from twin.lab.explain.explain import explain

FEW = [8]  # three suggestions, and half of the time of most others
KEYS = ["failed die"]


@pytest.fixture(scope="module")
def facts():
    from twin.lab.library import load_facts

    return load_facts()


@pytest.fixture(autouse=True)
def no_search(monkeypatch):
    """The largest load is searched for the suggestion to admit less alone: `PLANTED["overload"]`
    and tests/lab/test_capacity.py."""
    if FACTOR == 1:
        monkeypatch.setattr("twin.lab.explain.explain.capacity", searched)


@pytest.mark.parametrize("number", some(FEW, *(n for n in range(60) if n not in FEW)))
def test_a_suggestion_keeps_half_of_its_promise_on_other_seeds_and_harms_nothing(number, facts):
    case = varied(number, facts)
    for row in top_three(case, explain(case.scenario, facts, case.trace), facts):
        assert row.kept, row
        assert row.harmless, row


@pytest.mark.parametrize("name", some(KEYS, *(k for k in PLANTED if k not in KEYS)))
def test_a_planted_cause_is_named_first(name, facts):
    case, known = planted(name, PLANTED[name], facts)
    assert explain(case.scenario, known, case.trace).causes[0].cause.key in PLANTED[name].named
