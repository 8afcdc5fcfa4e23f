"""The trace command as a person or a script meets it."""

from __future__ import annotations

import gzip

import pytest

from tests.lab.trace_format import check, parsed

SHORT = ["--set", "horizon_s=4", "--set", "warmup_s=1"]


def test_a_trace_goes_to_standard_output_or_to_a_file(twin, tmp_path):
    done = twin("trace", "quickstart", *SHORT, "--from", "2", "--to", "2.5")
    assert done.returncode == 0, done.stderr
    check(parsed(done.stdout))
    assert b"events from 2 s to 2.5 s of the run" in done.stderr
    to = tmp_path / "run.json.gz"
    again = twin("trace", "quickstart", *SHORT, "--from", "2", "--to", "2.5", "--out", str(to))
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
    done = twin("trace", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode() and len(done.stderr.decode().strip().splitlines()) == 1
    assert b"Traceback" not in done.stderr and not done.stdout
