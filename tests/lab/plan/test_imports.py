"""Plans of what came from a file: a recorded stream of requests, counts of experts, a machine."""

import numpy as np
import pytest

from tests.lab.plan.small import facts, plan, small
from tests.made_trace import made_trace
from twin.engine.simulate import simulate
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import set_source
from twin.hardware.machine_file import fabric_text
from twin.lab.ask import with_counts, with_trace
from twin.lab.kinds import CountsTable
from twin.lab.machines import machine_fields, read_machine
from twin.lab.plan.candidates import space_of
from twin.lab.plan.drive import carry_out, simulate_one
from twin.lab.plan.trial import scenario_at
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
    s = with_trace(small(), TABLE)
    space = space_of(plan(s, simulations=1), facts())
    assert space.rate == pytest.approx(1.0 / GAP_S, rel=0.02)
    best = scenario_at(space, space.open_candidates[0].changes, space.rate)
    trial = simulate_one(best, facts())
    assert trial["requests"] == COUNT
    assert trial["digest"] == simulate(best, facts(), TABLE).digest


def test_a_trace_that_is_not_stored_is_named():
    s = with_trace(small(), TABLE)
    unknown = with_overrides(s, {"workload.trace.digest": "0" * 64})
    with pytest.raises(StoreError, match="trace"):
        space_of(plan(unknown), facts())


def imported():
    """A small scenario on a stored machine of two nodes, with stored counts of its experts."""
    store, recipe = open_store(), small(supernode__nodes=2).supernode
    text = fabric_text(build_fabric(recipe, facts()), "json")
    machine = read_machine(text.encode(), "two-nodes")
    digest = store.machines.save(machine)
    counts = CountsTable("rising", "npy", np.tile(np.arange(1.0, 65.0), (26, 1)))
    store.counts.save(counts)
    s = small(start="empty", workload__rate_req_per_s=60.0)
    return with_counts(with_overrides(s, machine_fields(digest, facts(), "")), counts)


def nowhere(digest):
    """No machine is found in this process."""
    raise LookupError(digest)


def test_a_plan_of_an_imported_machine_and_counts_ends_in_a_process_that_opened_no_store():
    s = imported()
    set_source(nowhere)
    answer = carry_out(plan(s, simulations=6, finalists=1), facts(), helpers=0)
    first = answer["ranked"][0]
    assert first["npus"] + first["margins"]["npus"] == 16
    assert not [row for row in answer["ledger"] if row["status"] == "failed"]
    best = with_overrides(s, first["settings"])
    counts = open_store().counts.value_of(best).counts
    assert simulate(best, facts(), counts=counts).digest == first["summary"]["digest"]


def test_a_machine_that_is_not_stored_is_named():
    unknown = with_overrides(imported(), {"supernode.machine": "0" * 64})
    with pytest.raises(StoreError, match="machine"):
        space_of(plan(unknown), facts())
