"""Getting ready: stages are shared out, none is left out, and it is known when all are done."""

import gc
import json
import os
import subprocess
import sys
import threading

import pytest

from tests.conftest import ROOT
from twin.kernels import compiled
from twin.lab.runs import job, warm


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "use_own_cache", lambda: tmp_path)
    return tmp_path


def test_every_stage_is_prepared_once_and_told_from_begin_to_end(folder):
    done, told = [], []
    stages = {name: lambda name=name: done.append(name) for name in ("prefill", "decode")}
    assert not warm.is_compiled()
    warm.compile_stages(stages, lambda stage, took_s: told.append((stage, took_s is None)))
    assert done == ["prefill", "decode"]
    assert told == [("prefill", True), ("prefill", False), ("decode", True), ("decode", False)]
    assert warm.is_compiled()


def test_one_who_lends_a_hand_leaves_what_another_is_at_and_the_other_loads_the_rest():
    """Each of the two is at a stage when the other looks: both end, and nothing is torn."""
    entered, release = threading.Event(), threading.Event()
    first, second = [], []

    def slow() -> None:
        first.append("prefill")
        entered.set()
        release.wait(60)

    def quiet(stage, took_s):
        return None

    one = threading.Thread(
        target=warm.compile_stages,
        args=({"prefill": slow, "decode": lambda: first.append("decode")}, quiet),
    )
    one.start()
    assert entered.wait(60)
    stages = {name: lambda name=name: second.append(name) for name in ("prefill", "decode")}
    warm.compile_stages(stages, quiet, shared_only=True)
    assert second == ["decode"]
    assert not warm.is_compiled()
    release.set()
    one.join(60)
    assert first == ["prefill", "decode"]
    assert warm.is_compiled()


def test_an_engine_without_stages_says_nothing_of_another():
    warm.compile_stages({}, lambda stage, took_s: None)
    assert not warm.is_compiled()


def test_what_can_wait_is_left_to_one_who_lends_a_hand():
    done = []
    stages = {name: lambda name=name: done.append(name) for name in ("engine", "colocated")}
    warm.compile_stages(stages, lambda stage, took_s: None, later=("colocated",))
    assert done == ["engine"]
    assert not warm.is_compiled()
    warm.compile_stages(stages, lambda stage, took_s: None, shared_only=True)
    assert done == ["engine", "engine", "colocated"]  # the first is only loaded
    assert warm.is_compiled()


def test_what_a_process_leaves_to_another_is_a_stage_of_the_engine():
    job.load_engine()
    assert set(job.LATER) <= set(job.stages_of(job.ENGINE))


def test_a_process_of_a_cluster_gets_every_stage_of_the_engine_ready():
    seen = "warm.compile_stages = lambda stages, *_, **__: print(*stages)"
    code = f"from twin.lab.runs import job, warm\n{seen}\njob.warm_up('')"
    command = [sys.executable, "-c", code]
    fresh = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    job.load_engine()
    assert set(fresh.stdout.split()) >= {s.split()[0] for s in job.stages_of(job.ENGINE)} != set()


def test_a_set_up_compiles_once(monkeypatch):
    done = []
    monkeypatch.setattr(job, "stages_of", lambda engine: {"loop": lambda: done.append("loop")})
    before = gc.get_threshold()
    for _ in range(2):
        job.compile_once(lambda stage, took_s: None)
    assert done == ["loop"]
    assert gc.get_threshold() == before


def test_a_process_that_gets_ready_ends_with_the_server_that_wanted_it(tmp_path):
    words = [sys.executable, "-m", "twin.lab.runs.job", "--owner=one", "--prepare-only"]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=ROOT, env=environment, **pipes) as process:
        while not process.stdout.readline().strip():
            pass  # empty lines are its heartbeat; now the first stage has begun
        process.stdin.close()
        news = [json.loads(line) for line in process.stdout if line.strip()]
    done = [stage for stage in news if stage["took_s"] is not None]
    assert len(done) < len(job.stages_of(job.ENGINE))
