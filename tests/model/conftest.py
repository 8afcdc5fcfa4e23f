import pytest

from twin.hardware.fabric import build_fabric
from twin.kernels.compiled import register_kernels
from twin.lab.library import load_facts
from twin.model.costs import build_costs
from twin.model.predict import Traffic, predict
from twin.scenario import Scenario, with_overrides

register_kernels()  # kernels, for the tests that hold compiled code against plain Python

NOTHING = {}


@pytest.fixture(scope="session")
def facts():
    return load_facts()


@pytest.fixture
def ask(facts):
    """The steady state of the default scenario with some fields set."""

    def answer(known=None, traffic_too=NOTHING, **fields):
        s = with_overrides(Scenario(), {k.replace("__", "."): v for k, v in fields.items()})
        fabric = build_fabric(s.supernode, known or facts)
        w = s.workload
        traffic = Traffic(float(w.input_tokens), float(w.output_tokens), **traffic_too)
        return predict(build_costs(s, known or facts, fabric), traffic)

    return answer
