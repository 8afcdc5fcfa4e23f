"""Same scenario, same bytes: twice, in other processes, on other instructions, in plain Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.draws import some
from tests.engine.small import MODES, run, small
from tests.laws.digests import VARIED, answers, printed
from twin.engine.simulate import result_digest, simulate
from twin.lab.library import load_facts
from twin.policies.router import ROUTERS

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "hash seed 0, one thread": {"PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1"},
    "hash seed 1, two threads, another processor": {
        "PYTHONHASHSEED": "1",
        "POLARS_MAX_THREADS": "2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}
ONCE_DIFFERENT = ("66", "237", "490")  # random scenarios, with AVX-512 and without
HERE = ("--preset", *ONCE_DIFFERENT)


@pytest.fixture(scope="module")
def here():
    return printed(*HERE)


def in_another_process(settings, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.laws.digests", *arguments],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    return json.loads(done.stdout)


def test_the_same_question_twice_gives_the_same_bytes(here):
    assert printed("--preset").items() <= here.items()


@pytest.mark.parametrize("name", some([*ELSEWHERE][-1:], *[*ELSEWHERE][:-1]))
def test_another_process_gives_the_same_bytes(here, name):
    assert in_another_process(ELSEWHERE[name], *HERE) == here


@pytest.mark.long
@pytest.mark.parametrize("settings", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("block", [f"{n}:{n + 100}" for n in range(0, 500, 100)])
def test_another_process_gives_the_same_bytes_of_any_scenario(settings, block):
    assert in_another_process(settings, "--brief", block) == printed("--brief", block)


@pytest.mark.long
def test_code_compiled_for_another_processor_gives_the_same_bytes(tmp_path):
    generic = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    assert in_another_process(generic, "--brief", "0:100") == printed("--brief", "0:100")


def test_plain_python_gives_the_same_bytes():
    assert in_another_process({"NUMBA_DISABLE_JIT": "1"}, "--brief") == printed("--brief")


def test_the_digest_sees_every_value():
    tables = answers("--brief")["disaggregated"].tables
    before = result_digest(tables)
    rows = tables["requests"]
    for changed in (
        rows.with_columns(pl.col("finish_s") + 1e-12),
        rows.with_columns(pl.col("status").gather(rows["request_id"].reverse())),
        rows.rename({"session": "sessions"}),
        rows.head(rows.height - 1),
        rows.with_columns(pl.lit(None, pl.Float64).alias("finish_s")),
    ):
        assert result_digest(tables | {"requests": changed}) != before
    role = tables["ranks"].with_columns(pl.col("role").str.to_uppercase())
    assert result_digest(tables | {"ranks": role}) != before


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_nobody_uses_changes_nothing(mode):
    asked = VARIED | {"deployment.mode": mode, "memory_pool.enabled": False}
    alone = simulate(small(asked), load_facts()).tables["requests"]
    beside = simulate(small(asked | {"supernode.nodes": 5}), load_facts()).tables["requests"]
    assert alone.equals(beside)


GIVEN = ("arrival_s", "input_tokens", "output_tokens", "session")


@pytest.mark.parametrize(
    "settings",
    [
        {"router.policy": "session_sticky"},
        {"memory_pool.enabled": False},
        {"deployment.mode": "colocated"},
        {"experts.popularity": "uniform"},
        {"deployment.decode.instances": 1},
    ],
    ids=str,
)
def test_another_policy_leaves_the_traffic_as_it_was(settings):
    timed = VARIED | {"workload.turns": "timed"}  # else turns come when answers do
    one, other = (run(timed | s).tables["requests"].select(GIVEN) for s in ({}, settings))
    assert one.equals(other)


def test_another_seed_is_another_run():
    assert run(VARIED).digest != run(VARIED | {"seed": 2}).digest


@pytest.mark.parametrize("mode", MODES)
def test_with_one_instance_every_router_routes_alike(mode):
    one = {
        "deployment.mode": mode,
        "deployment.prefill.instances": 1,
        "deployment.colocated.instances": 1,
    }
    assert len({run(VARIED | one | {"router.policy": p}).digest for p in ROUTERS}) == 1
