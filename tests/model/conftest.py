import pytest

from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.model.predict import predict
from twin.scenario import Scenario, with_overrides


@pytest.fixture(scope="session")
def facts():
    return load_facts()


@pytest.fixture
def ask(facts):
    """The steady state of the default scenario with some fields set."""

    def answer(known=None, **fields):
        s = with_overrides(Scenario(), {k.replace("__", "."): v for k, v in fields.items()})
        return predict(s, known or facts, build_fabric(s.supernode, known or facts))

    return answer
