"""A plan of a recorded stream of requests."""

import numpy as np
import pytest

from tests.lab.plan.small import facts, plan, small
from tests.made_trace import made_trace
from twin.engine.simulate import simulate
from twin.lab.ask import replayed
from twin.lab.plan.candidates import space_of
from twin.lab.plan.drive import one
from twin.lab.plan.trial import scenario_of
from twin.lab.store import StoreError, open_store
from twin.scenario import with_overrides

COUNT, GAP_S = 200, 0.05
TABLE = made_trace(
    GAP_S * np.arange(COUNT), np.full(COUNT, 512), np.full(COUNT, 64), conversations=False
)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")


def test_a_plan_of_a_trace_has_its_rate_and_simulates_its_requests():
    open_store().traces.save(TABLE)
    s = replayed(small(), TABLE)
    space = space_of(plan(s, simulations=1), facts())
    assert space.rate == pytest.approx(1.0 / GAP_S, rel=0.02)
    best = scenario_of(space, space.open[0].given, space.rate)
    trial = one(best, facts())
    assert trial["requests"] == COUNT
    assert trial["digest"] == simulate(best, facts(), TABLE).digest


def test_a_trace_that_is_not_stored_is_named():
    s = replayed(small(), TABLE)
    unknown = with_overrides(s, {"workload.trace.digest": "0" * 64})
    with pytest.raises(StoreError, match="trace"):
        space_of(plan(unknown), facts())
