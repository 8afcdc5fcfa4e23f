"""An archive's runs come out again, byte for byte; one that does not is named."""

import io
import json
from dataclasses import replace

import pytest

from tests.engine.small import run, small
from tests.lab.test_store import ME
from twin.engine.simulate import ENGINE_VERSION
from twin.lab.library import load_facts
from twin.lab.runs.runner import verify_runs
from twin.lab.store import StoreError
from twin.lab.store.archive import write_archive

BRIEF = {"horizon_s": 1.0, "warmup_s": 0.2}


@pytest.fixture
def archive(store, tmp_path):
    """One run as it was, one of another digest, one of an older engine."""
    for seed, version, change in (
        (1, ENGINE_VERSION, False), (2, ENGINE_VERSION, True), (3, "0", False),
    ):  # fmt: skip
        settings = BRIEF | {"seed": seed}
        scenario, answer = (
            small(settings).model_copy(update={"name": f"seed {seed}"}),
            run(settings),
        )
        if change:
            summary = answer.summary | {"ttft_s_p50": 1.0}
            answer = replace(answer, digest="a" * 64, summary=summary)
        digest = store.scenarios.save(scenario)
        name = store.runs.add(digest, load_facts(), version, seed, owner=ME)
        assert store.runs.finish(name, ME, answer, wall_s=1.0)
    file = tmp_path / "bundle.tar"
    with file.open("wb") as target:
        assert write_archive(store, target).left_out == []
    return file


def test_each_run_is_computed_anew_and_compared(archive):
    found = {row.name: row for row in verify_runs(archive)}
    assert found["seed 1"].state == "same bytes"
    assert found["seed 2"].state == "differs"
    assert found["seed 2"].why.startswith("other values of 1 figure: ttft_s_p50")
    assert found["seed 3"].state == "same bytes"
    assert found["seed 3"].why == f"by engine 0 then, {ENGINE_VERSION} now"


def test_what_has_no_answer_is_not_compared(store, add_run, tmp_path):
    store.runs.fail(add_run(small(BRIEF), owner=ME), ME, "it broke")
    with (tmp_path / "bundle.tar").open("wb") as target:
        write_archive(store, target)
    (row,) = verify_runs(tmp_path / "bundle.tar")
    assert (row.state, row.why) == ("not compared", "it broke")


def test_the_command_says_so_and_its_exit_status_too(archive, twin):
    said = twin("verify", str(archive), "--json")
    assert said.returncode == 1
    states = {row["state"] for row in json.loads(said.stdout)}
    assert states == {"same bytes", "differs"}


def test_what_is_no_archive_is_said(tmp_path):
    (tmp_path / "a.tar").write_bytes(io.BytesIO(b"nothing").getvalue())
    with pytest.raises(StoreError, match="is no library"):
        next(verify_runs(tmp_path / "a.tar"))
