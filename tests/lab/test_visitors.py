"""What one visitor may see and change, where a server knows its visitors by name."""

import numpy as np
import pytest

from tests.lab import fake_engine
from twin.lab.kinds import CountsTable
from twin.lab.library import load_facts
from twin.lab.runs import executor
from twin.lab.share import links
from twin.lab.store import Owner, StoreError
from twin.lab.store.errors import UnknownId
from twin.lab.store.visitors import Visitor
from twin.scenario import Scenario

ANN, BEN = "https://id.example ann", "https://id.example ben"
ME = Owner.current("me")


@pytest.fixture
def both(store):
    return store.for_visitor(ANN), store.for_visitor(BEN)


@pytest.fixture
def asked():
    """A run that a visitor asked for, as the page does: the runner stores it, they hold it."""

    def ask(viewer):
        digest = viewer.scenarios.save(Scenario(name="asked"))
        return viewer.runs.add(digest, load_facts(), "fake-1", 0, owner=ME, again=False)

    return ask


def finish(store, run):
    assert store.runs.finish(run, ME, fake_engine.answer(Scenario(name="asked")), wall_s=1.5)


def test_lists_show_what_one_holds_and_presets(store, both, asked):
    ann, ben = both
    run = asked(ann)
    preset = store.scenarios.save(Scenario(name="preset"), preset="p")
    assert [row.id for row in ann.runs.search().rows] == [run]
    assert ben.runs.search().rows == []
    assert {row.digest for row in ben.scenarios.search().rows} == {preset}
    assert len(ann.scenarios.search().rows) == 2
    assert len(store.runs.search().rows) == 1  # whoever serves sees all


def test_a_run_is_private_until_it_is_shared_and_again_when_that_is_revoked(store, both, asked):
    ann, ben = both
    run = asked(ann)
    finish(store, run)
    assert ben.runs.get(run) is None
    ann.runs.publish(run)
    assert ben.runs.get(run).id == run
    with pytest.raises(StoreError, match="somebody else"):
        ben.runs.unpublish(run)
    ann.runs.unpublish(run)
    assert ben.runs.get(run) is None
    ann.runs.delete(run)
    assert store.runs.get(run) is None


def test_a_scenario_is_private_until_it_or_a_run_of_it_is_shared_and_again_when_revoked(
    store, both, asked
):
    ann, ben = both
    run = asked(ann)
    finish(store, run)
    digest = ann.runs.get(run).scenario

    def opens():
        try:
            return links.open_scenario({"scenario": digest}, ben, id).name == "asked"
        except links.ShareError as error:
            assert "no scenario here has the id" in str(error)
            return ben.scenarios.get(digest) is not None

    assert not opens()
    for act in (ben.scenarios.publish, ben.scenarios.unpublish, ben.scenarios.delete):
        with pytest.raises(UnknownId):
            act(digest)
    for shared, name in ((ann.scenarios, digest), (ann.runs, run)):
        shared.publish(name)
        assert opens()
        with pytest.raises(StoreError, match="somebody else"):
            (ben.runs if name == run else ben.scenarios).unpublish(name)
        shared.unpublish(name)
        assert not opens()
    # Who lets go of a scenario still sees what their runs asked; a preset is everybody's.
    assert asked(ben) == run
    ben.scenarios.delete(digest)
    assert opens()
    preset = store.scenarios.save(Scenario(name="preset"), preset="p")
    assert ben.scenarios.load(preset).name == "preset"


def test_one_visitor_does_not_fill_the_queue_for_all(store, both, monkeypatch):
    monkeypatch.setattr(executor, "EACH_MAX", 2)
    ann, ben = both
    runner = executor.Runner(store, engine="tests.lab.fake_engine")
    for seed in range(2):
        runner.submit(Scenario(seed=seed), ann)
    with pytest.raises(StoreError, match="2 runs of yours wait or run"):
        runner.submit(Scenario(seed=2), ann)
    assert runner.submit(Scenario(seed=2), ben)
    assert runner.submit(Scenario(seed=3))  # whoever serves


def test_nobody_stops_or_deletes_what_is_somebody_elses(store, both, asked):
    ann, ben = both
    run = asked(ann)
    with pytest.raises(StoreError, match="somebody else"):
        ben.runs.request_stop(run)
    finish(store, run)
    with pytest.raises(UnknownId):
        ben.runs.delete(run)
    with pytest.raises(UnknownId):
        ben.scenarios.delete(store.runs.get(run).scenario)
    assert store.runs.get(run) is not None


def test_what_two_hold_stays_until_both_let_go(store, both, asked):
    ann, ben = both
    run = asked(ann)
    assert asked(ben) == run  # the same question, asked again
    with pytest.raises(StoreError, match="others' too"):
        ann.runs.request_stop(run)
    finish(store, run)
    ann.runs.delete(run)
    assert ann.runs.get(run) is None
    assert ben.runs.get(run) is not None
    ben.runs.delete(run)
    assert store.runs.get(run) is None


def test_what_cannot_be_held_is_not_stored_at_all(store, both, asked, monkeypatch):
    """A process may be killed between any two transactions: so it is one."""

    def killed(*_):
        raise KeyboardInterrupt

    digest = store.scenarios.save(Scenario(name="asked"))
    monkeypatch.setattr(Visitor, "hold", killed)
    for keep in (
        lambda: both[0].scenarios.save(Scenario(name="new")),
        lambda: both[0].runs.add(digest, load_facts(), "fake-1", 0),
        lambda: both[0].counts.save(counts()),
    ):
        with pytest.raises(KeyboardInterrupt):
            keep()
    assert [row.digest for row in store.scenarios.search().rows] == [digest]
    assert store.runs.search().total == store.counts.search().total == 0


def counts(name="c.json"):
    return CountsTable(name, "json", np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]]))


def test_a_file_is_private_and_deleted_by_who_holds_it(store, both):
    ann, ben = both
    digest = ann.counts.save(counts())
    assert [row.digest for row in ann.counts.search().rows] == [digest]
    assert ben.counts.search().rows == []
    with pytest.raises(StoreError, match="somebody else"):
        ben.counts.delete(digest)
    ann.counts.delete(digest)
    assert store.counts.get(digest) is None


def test_a_server_that_only_shows_shows_all_and_takes_no_file(store, asked, both):
    run = asked(both[0])
    digest = store.counts.save(counts())
    seen = store.for_visitor("", writes=False)
    assert [row.id for row in seen.runs.search().rows] == [run]
    assert seen.runs.get(run).id == run
    assert [row.digest for row in seen.counts.search().rows] == [digest]
    for change in (lambda: seen.counts.save(counts()), lambda: seen.counts.delete(digest)):
        with pytest.raises(StoreError, match="keeps nothing"):
            change()


def test_a_server_that_only_shows_keeps_nothing(store, asked, both):
    run = asked(both[0])
    seen = store.for_visitor("", writes=False)
    for change in (
        lambda: seen.scenarios.save(Scenario(name="new")),
        lambda: asked(seen),
        lambda: seen.runs.request_stop(run),
        lambda: seen.runs.publish(run),
    ):
        with pytest.raises(StoreError, match="keeps nothing"):
            change()
    assert store.scenarios.search("new").rows == []
