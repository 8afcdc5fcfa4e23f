"""What only shows elsewhere: another machine's clock, another user, another folder, a slow disk."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from tests.lab import fake_engine
from twin.lab.library import CALIBRATION_VARIABLE, DATA, load_facts
from twin.lab.runs import answer, job
from twin.lab.runs.executor import Runner
from twin.lab.runs.job import load_engine
from twin.lab.runs.runner import add_run
from twin.lab.store import Owner, StoreError, handle, open_store
from twin.lab.store import owner as owners
from twin.lab.store import runs as run_module
from twin.scenario import Scenario, SpecError

ENGINE = "tests.lab.fake_engine"
FAR = Owner("far", "another machine", 1, "0")


@pytest.fixture
def clock(monkeypatch):
    """The clocks of the module that judges silence: wall time, and time since a moment."""
    now = SimpleNamespace(wall=time.time(), monotonic=0.0)
    fake = SimpleNamespace(time=lambda: now.wall, monotonic=lambda: now.monotonic)
    monkeypatch.setattr(run_module, "time", fake)
    return now


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_a_run_of_a_machine_whose_clock_is_off_goes_on_while_it_says_so(
    store, add_run, clock, ahead_s
):
    run = add_run(owner=FAR)
    clock.wall += ahead_s
    for _ in range(10):
        assert store.runs.recover() == []
        clock.monotonic += 20.0
        clock.wall += 20.0
        assert store.runs.beat(run, FAR) == "go"
    assert store.runs.recover() == []
    clock.monotonic += 29.0
    assert store.runs.recover() == []
    clock.monotonic += 2.0
    assert store.runs.recover() == [run]


def test_a_machine_that_slept_wakes_to_its_own_runs(store, add_run, clock):
    run = add_run(owner=Owner.current("me"))
    assert store.runs.recover() == []
    clock.wall += 9 * 3600.0  # the clock that judges stood still meanwhile
    assert store.runs.recover() == []
    assert store.runs.get(run).state == "running"


def test_a_process_that_is_hidden_lives(monkeypatch, tmp_path):
    """With hidepid another user's process is not in /proc, and still it runs."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").write_text("")
    monkeypatch.setattr(owners, "PROC", tmp_path)
    hidden = Owner("other server", owners.this_host(), os.getppid(), "123")
    assert hidden.lives(silent_s=5)
    assert not Owner("gone", owners.this_host(), 2**22 + 1, "123").lives(silent_s=5)


def test_a_folder_that_cannot_be_made_is_one_sentence(store):
    store.artefacts.folder.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="artifacts cannot be written"):
        store.artefacts.save(pl.DataFrame({"a": [1]}))


def test_an_artefact_that_cannot_be_read_is_one_sentence(store):
    stored = store.artefacts.save(pl.DataFrame({"a": [1]}))
    path = store.artefacts.path(stored.sha256)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        store.artefacts.read(stored.sha256)


def test_a_file_that_a_sweep_takes_at_this_moment_is_written_anew(store, monkeypatch):
    frame = pl.DataFrame({"a": [1]})
    stored = store.artefacts.save(frame)
    touch = os.utime

    def swept(path, *more, **named):
        Path(path).unlink()
        touch(path, *more, **named)

    monkeypatch.setattr(os, "utime", swept)
    assert store.artefacts.save(frame) == stored
    assert store.artefacts.read(stored.sha256).equals(frame)


def test_a_sweep_passes_over_files_that_vanish_and_those_used_again(store):
    frames = [pl.DataFrame({"a": [n]}) for n in range(3)]
    stored = [store.artefacts.save(frame) for frame in frames]
    for one in stored:
        os.utime(store.artefacts.path(one.sha256), (0, 0))
    old = store.artefacts.old_files()
    assert len(old) == 3
    store.artefacts.path(stored[0].sha256).unlink()
    store.artefacts.save(frames[1])  # a run that names it is about to be stored
    assert store.artefacts.delete(old, set(), 3600.0) == 1
    assert store.artefacts.read(stored[1].sha256).equals(frames[1])


def test_a_sweep_looks_at_the_disk_before_it_keeps_others_from_writing(store, monkeypatch):
    def slow(*_):
        store.scenarios.save(Scenario())  # would wait for the lock, and in vain
        return []

    monkeypatch.setattr(store.artefacts, "old_files", slow)
    assert store.delete_unused() == 0


def test_a_database_never_sweeps_the_results_of_another(tmp_path):
    frame, kept = pl.DataFrame({"a": [1]}), []
    for name in ("twin.db", "other.db", "third.db"):
        one = open_store(f"sqlite:///{tmp_path / name}")
        run = one.runs.add(
            one.scenarios.save(Scenario()), load_facts(), "fake-1", 1, owner=Owner.current("me")
        )
        assert one.runs.finish(run, Owner.current("me"), fake_engine.answer(Scenario()), 1.0)
        one.artefacts.save(frame)
        kept.append((one, run))
    for one, _ in kept:
        assert one.delete_unused(older_than_s=-1) == 1  # its own orphan, and no more
    for one, run in kept:
        again = open_store(one.environment["TWIN_DB_URL"])
        assert again.artefacts.folder == one.artefacts.folder
        assert again.runs.table(run, "requests").height == 100


def test_a_database_from_before_keeps_the_folder_that_it_knows(tmp_path):
    old = open_store(f"sqlite:///{tmp_path / 'old.db'}")
    old.close()
    old.artefacts.folder.rmdir()
    (tmp_path / "artifacts").mkdir()
    again = open_store(f"sqlite:///{tmp_path / 'old.db'}")
    assert again.artefacts.folder == tmp_path / "artifacts"


@pytest.mark.parametrize("odd", ["a b", "50%20", "what?x=1", "a#b"])
def test_the_project_may_lie_in_any_folder(tmp_path, monkeypatch, odd):
    folder = tmp_path / odd
    monkeypatch.setattr(handle, "STORED", folder)
    monkeypatch.delenv("TWIN_DB_URL", raising=False)
    monkeypatch.delenv("TWIN_ARTIFACTS", raising=False)
    store = open_store()
    assert (folder / "twin.db").exists()
    again = open_store(store.environment["TWIN_DB_URL"])
    assert again.database.path == store.database.path
    assert again.artefacts.folder == folder / "artifacts"


# Processes of the background.


def test_a_job_reads_the_calibration_that_its_server_reads(store, monkeypatch, tmp_path):
    """Its folder is the project's, so a relative name would be another file."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text((DATA / "calibration.toml").read_text("utf-8"), "utf-8")
    monkeypatch.setenv(CALIBRATION_VARIABLE, "mine.toml")
    started = {}

    def start(command, **how):
        started.update(how)
        raise OSError("no more processes")

    monkeypatch.setattr("subprocess.Popen", start)
    with pytest.raises(OSError, match="no more processes"):
        Runner(store, engine=ENGINE)._start_process("one", 1.0)
    named = Path(started["env"][CALIBRATION_VARIABLE])
    assert named.is_absolute()
    assert named.samefile(tmp_path / "mine.toml")


def test_the_watch_goes_on_after_whatever_it_met(store, monkeypatch):
    runner = Runner(store, processes=1, engine=ENGINE)
    looks = []

    def look():
        looks.append(1)
        if len(looks) == 1:
            raise KeyError("what nobody foresaw")
        runner._closed = True
        return False

    monkeypatch.setattr(runner, "_tick", look)
    monkeypatch.setattr("twin.lab.runs.executor.QUIET_TICK_S", 0.01)
    runner._watch()
    assert len(looks) == 2


def test_after_a_run_that_failed_the_next_begins_at_once_and_size_is_looked_at(store, monkeypatch):
    for question in ("impossible", "impossible", ""):
        add_run(store, Scenario(question=question, horizon_s=31.0), engine=ENGINE)
    waited = []
    parent = SimpleNamespace(gone=False, wait=waited.append)
    monkeypatch.setattr(job, "peak_bytes", lambda: 0 if store.runs.queued_ids() else 3e9)
    monkeypatch.setattr(job, "resident_bytes", lambda: 0)  # not those of all tests before
    job.serve(store, Owner.current("job"), load_engine(ENGINE), parent, idle_s=60.0)
    assert [row.state for row in store.runs.search().rows] == ["done", "failed", "failed"]
    assert waited == []
    add_run(store, Scenario(question="impossible", seed=2), engine=ENGINE)
    job.serve(store, Owner.current("job"), load_engine(ENGINE), parent, idle_s=60.0)
    assert waited == []


def test_a_run_whose_end_was_not_stored_is_ended_before_the_next_begins(store, monkeypatch):
    """The disk was full for a moment: its process lives on, so nobody else would end it."""
    for question in ("impossible", ""):
        add_run(store, Scenario(question=question, horizon_s=31.0), engine=ENGINE)
    fail = store.runs.fail

    def full(*given):
        monkeypatch.setattr(store.runs, "fail", fail)
        raise StoreError("the disk is full")

    monkeypatch.setattr(store.runs, "fail", full)
    monkeypatch.setattr(job, "peak_bytes", lambda: 0 if store.runs.queued_ids() else 3e9)
    monkeypatch.setattr(job, "resident_bytes", lambda: 0)  # not those of all tests before
    parent = SimpleNamespace(gone=False, wait=lambda _: None)
    job.serve(store, Owner.current("job"), load_engine(ENGINE), parent, idle_s=60.0)
    assert [row.state for row in store.runs.search().rows] == ["done", "interrupted"]
    assert store.runs.search(states=["interrupted"]).rows[0].message == "the disk is full"


def test_a_process_that_does_not_stop_is_killed_whatever_the_time_of_day_is(store, monkeypatch):
    """Whoever asked may have another clock, and one may be set back."""
    now = SimpleNamespace(time=lambda: 0.0, monotonic=lambda: now.s, s=100.0)
    monkeypatch.setattr("twin.lab.runs.executor.time", now)
    runner = Runner(store, processes=1, engine=ENGINE)
    row = SimpleNamespace(id="run", cancel_s=1e9)
    deaf = []
    for now.s in (100.0, 100.9, 101.1):
        deaf += [now.s for _ in runner._unresponsive_rows([row])]
    assert deaf == [101.1]


def test_a_folder_nobody_may_write_in_is_said_before_a_run(store, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(StoreError, match="cannot be written: give this user the right"):
        add_run(store, Scenario(), engine=ENGINE)
    assert store.runs.search().total == 0


# Asking for what cannot be, before anything is run.


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        (["quickstart"], SpecError, "a comparison takes 2 to 6 runs, not 1"),
        (["quickstart"] * 7, SpecError, "a comparison takes 2 to 6 runs, not 7"),
        (["quickstart", "nothing"], SpecError, "nothing is neither"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_before_it_is_run(
    store, monkeypatch, names, error, said
):
    monkeypatch.setenv("TWIN_DB_URL", str(store.database.url))
    monkeypatch.setattr("twin.lab.runs.runner.run_now", lambda *a, **k: pytest.fail("it was run"))
    with pytest.raises(error, match=said):
        answer.compare_by_name(names, lambda name: lambda fraction, live: True)
