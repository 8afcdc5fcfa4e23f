"""The closed steady state and the full simulation agree within 2 %: closed loop, fixed lengths.

arXiv 2506.12708v2 Tables 3 and 5, as the presets ask them.
"""

import pytest

from twin.engine.simulate import simulate
from twin.lab.library import load_facts, presets
from twin.steady import steady, traffic_under_way

FACTS = load_facts()


def both(key):
    s = next(p.scenario for p in presets() if p.key == key)
    formula = steady(s, FACTS, traffic=traffic_under_way(s, FACTS))
    return formula, simulate(s, FACTS).summary


@pytest.mark.parametrize(
    "key", ["paper-decode-50ms-4k", "paper-decode-50ms-1k", "paper-decode-15ms"]
)
def test_decode_by_formula_is_decode_by_simulation(key):
    formula, run = both(key)
    assert run["tpot_s_mean"] == pytest.approx(formula.decode.tpot_s, rel=0.02)
    assert run["decode_iteration_s_mean"] == pytest.approx(formula.decode.iteration_s, rel=0.02)
    found = run["decode_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.decode.tokens_per_s_per_npu, rel=0.02)


@pytest.mark.parametrize("key", ["paper-prefill-default", "paper-prefill-perfect-balance"])
def test_prefill_by_formula_is_prefill_by_simulation(key):
    formula, run = both(key)
    found = run["prefill_tokens_per_s_per_npu"]
    assert found == pytest.approx(formula.prefill.tokens_per_s_per_npu, rel=0.02)
