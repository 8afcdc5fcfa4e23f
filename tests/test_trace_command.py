"""The trace command as a person or a script meets it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.trace_format import check, parsed

ROOT = Path(__file__).resolve().parents[1]
SHORT = ["--set", "horizon_s=4", "--set", "warmup_s=1"]


@pytest.fixture
def twin(tmp_path):
    def command(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "twin", "trace", *words],
            check=False,
            cwd=ROOT,
            env={**os.environ, "TWIN_DB_URL": f"sqlite:///{tmp_path / 'twin.db'}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=500,
        )

    return command


def test_a_trace_goes_to_standard_output_or_to_a_file(twin, tmp_path):
    done = twin("quickstart", *SHORT, "--from", "2", "--to", "2.5")
    assert done.returncode == 0, done.stderr
    check(parsed(done.stdout))
    assert b"events from 2 s to 2.5 s of the run" in done.stderr
    to = tmp_path / "run.json.gz"
    again = twin("quickstart", *SHORT, "--from", "2", "--to", "2.5", "--out", str(to))
    assert again.returncode == 0 and b"ui.perfetto.dev" in again.stdout
    assert gzip.decompress(to.read_bytes()) == done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.toml"], "nowhere.toml cannot be read"),
        (["quickstart", *SHORT, "--from", "9"], "the run lasts 4 s"),
        (["quickstart", *SHORT, "--from", "3", "--to", "2"], "cannot end at 2 s"),
        (["quickstart", *SHORT, "--out", "no/such/folder.json"], "cannot be written"),
    ],
)
def test_a_wish_at_fault_is_one_sentence_and_status_two(twin, words, said):
    done = twin(*words)
    assert done.returncode == 2
    assert said in done.stderr.decode() and len(done.stderr.decode().strip().splitlines()) == 1
    assert b"Traceback" not in done.stderr and not done.stdout
