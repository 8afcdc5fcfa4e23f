"""Whatever is asked of runs, in whatever order and by whomever: the store follows a small model."""

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as check

from tests.draws import draws
from tests.lab.fake_engine import answer
from twin.lab.library import load_facts
from twin.lab.store import Owner, StoreError
from twin.lab.store.models import ENDED_STATES, TRANSITIONS
from twin.scenario import Scenario

ONE, TWO = Owner.current("one"), Owner.current("two")
OWNERS = st.sampled_from([ONE, TWO])
SCENARIO = Scenario()
BROKEN = Scenario(question="broken")


class RunStates(RuleBasedStateMachine):
    """`model` holds of each run: state, owner, whether asked to stop, whether shared."""

    new_store = None
    runs = Bundle("runs")

    @initialize()
    def begin(self):
        self.store = type(self).new_store()
        self.scenario = self.store.scenarios.save(SCENARIO)
        self.model = {}

    @rule(target=runs, owner=st.none() | OWNERS)
    def add(self, owner):
        run = self.store.runs.add(self.scenario, load_facts(), "fake-1", 1, owner=owner)
        self.model[run] = ["running" if owner else "queued", owner, False, False]
        return run

    @rule(owner=OWNERS)
    def claim(self, owner):
        given_back = [run for run, m in self.model.items() if m[:2] == ["running", None]]
        queued = [run for run, (state, *_) in self.model.items() if state == "queued"]
        waiting = given_back + queued
        row = self.store.runs.claim(owner)
        assert (row.id if row else None) == (waiting[0] if waiting else None)
        if row:
            self.model[row.id][:2] = ["running", owner]

    @rule(run=runs, owner=OWNERS)
    def beat(self, run, owner):
        state, mine, asked, _ = self.expected(run)
        held = state == "running" and mine == owner
        order = self.store.runs.beat(run, owner, 0.5, {"t_s": 1.0})
        assert order == ("lost" if not held else "cancel" if asked else "go")

    @rule(run=runs, owner=OWNERS)
    def release(self, run, owner):
        state, mine, asked, _ = self.expected(run)
        held = state == "running" and mine == owner
        assert self.store.runs.release(run, owner) == held
        if held:
            self.model[run][:2] = ["cancelled", owner] if asked else ["running", None]

    @rule(run=runs)
    def ask_cancel(self, run):
        if run not in self.model:
            return
        state = self.store.runs.request_stop(run)
        if self.model[run][0] == "queued":
            self.model[run][0] = "cancelled"
        self.model[run][2] |= self.model[run][0] == "running"
        assert state == self.model[run][0]

    @rule(run=runs, owner=OWNERS, how=st.sampled_from(["done", "broken", "failed", "cancelled"]))
    def end(self, run, owner, how):
        state, mine, *_ = self.expected(run)
        held = state == "running" and mine == owner
        runs = self.store.runs
        ended = {
            "done": lambda: runs.finish(run, owner, answer(SCENARIO), 1.0),
            "broken": lambda: runs.finish(run, owner, answer(BROKEN), 1.0),
            "failed": lambda: runs.fail(run, owner, "no"),
            "cancelled": lambda: runs.end_cancelled(run, owner),
        }[how]()
        assert ended == held
        if held:
            self.model[run][0] = {"broken": "failed"}.get(how, how)

    @rule(dead=OWNERS)
    def an_owner_dies(self, dead):
        marked = self.store.runs.recover(lambda owner, _silent_s: owner.name != dead.name)
        left = [
            r for r, (state, owner, *_) in self.model.items() if (state, owner) == ("running", dead)
        ]
        assert sorted(marked) == sorted(left)
        for run in left:
            self.model[run][0] = "cancelled" if self.model[run][2] else "interrupted"

    @rule(run=runs)
    def publish(self, run):
        if self.expected(run)[0] in ENDED_STATES:
            self.store.runs.publish(run)
            self.model[run][3] = True
        else:
            with pytest.raises(StoreError):
                self.store.runs.publish(run)

    @rule(run=runs)
    def delete(self, run):
        state, _, _, shared = self.expected(run)
        if state in ENDED_STATES and not shared:
            self.store.runs.delete(run)
            del self.model[run]
        else:
            with pytest.raises(StoreError):
                self.store.runs.delete(run)

    @rule(run=runs, state=st.sampled_from(sorted({s for pair in TRANSITIONS for s in pair})))
    def force(self, run, state):
        """Whoever writes past the code meets the database's own rules."""
        now = self.expected(run)[0]
        statement = f"UPDATE runs SET state = '{state}' WHERE id = '{run}'"
        if now is not None and (now, state) not in TRANSITIONS:
            with pytest.raises(StoreError), self.store.database.write() as session:
                session.connection().exec_driver_sql(statement)

    def expected(self, run):
        return self.model.get(run, [None, None, False, False])

    @invariant()
    def store_and_model_agree(self):
        if not hasattr(self, "store"):
            return
        found = {row.id: row for row in self.store.runs.search(limit=1000).rows}
        assert {run: row.state for run, row in found.items()} == {
            run: state for run, (state, *_) in self.model.items()
        }
        for run, row in found.items():
            assert bool(row.summary) == bool(row.seal) == bool(self.store.runs.tables(run))
            assert (row.finished_s is not None) == row.ended

    def teardown(self):
        if hasattr(self, "store"):
            assert self.store.find_damage() == []
            self.store.close()


def test_runs_follow_the_model(new_store):
    RunStates.new_store = staticmethod(new_store)
    quiet = draws(25, stateful_step_count=20, suppress_health_check=list(HealthCheck))
    check(RunStates, settings=quiet)
