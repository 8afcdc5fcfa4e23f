"""Two servers on one database: each run is carried out once, by one of them, whoever dies."""

import time

import pytest

from tests.draws import FACTOR, some
from tests.lab.fake_engine import answer
from tests.lab.test_kill import BusyServer
from twin.lab.runs.executor import Runner

ENOUGH = 4 if FACTOR == 1 else 12  # runs that ended, of each server


@pytest.mark.parametrize("processes", some([1], 2))
def test_each_run_is_carried_out_once_and_one_server_outlives_the_other(store, tmp_path, processes):
    one, other = (BusyServer(store, tmp_path, seed, processes=processes) for seed in (0, 500_000))

    def said(server, word):
        return [line for line in server.lines() if line[0] == word]

    deadline = time.monotonic() + 300
    while min(len(said(server, "ended")) for server in (one, other)) < ENOUGH:
        assert time.monotonic() < deadline, "too few runs ended"
        time.sleep(0.1)
    one.process.kill()
    one.process.wait()
    seen = len(said(other, "ended"))
    while len(said(other, "ended")) < seen + ENOUGH:
        assert time.monotonic() < deadline, "the one that is left stands still"
        time.sleep(0.1)
    other.process.kill()
    other.process.wait()

    # Who comes after them ends what they left.
    runner = Runner(store, processes=1, engine="tests.lab.fake_engine").start()
    while store.runs.search(states=["queued", "running"]).total:
        assert time.monotonic() < deadline, "something still waits"
        time.sleep(0.1)
    runner.close(kill=True)

    rows = {row.id: row for row in store.runs.search(limit=10_000).rows}
    told = {line[1]: line[2:] for server in (one, other) for line in said(server, "ended")}
    asked = {line[1] for server in (one, other) for line in said(server, "asked")}
    assert asked <= rows.keys()
    for run, (state, *digest) in told.items():
        assert [rows[run].state, rows[run].result_digest] == [state, *digest, ""][:2]
    for run, row in rows.items():
        assert row.state in ("done", "interrupted")
        if row.state == "done":
            expected = answer(store.scenarios.load(row.scenario))
            assert (row.summary, row.result_digest) == (expected.summary, expected.digest)
            assert store.runs.table(run, "requests").equals(expected.tables["requests"])
    assert len({row.owner.name for row in rows.values() if row.owner}) >= 2
    assert store.find_damage() == []
