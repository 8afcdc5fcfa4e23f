"""The trace command as a person or a script meets it."""

import gzip
import sys

import pytest

from tests.extras.perfetto.trace_format import check, parsed
from twin.__main__ import main

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


def test_one_request_is_found_by_its_number(twin, tmp_path):
    done = twin("trace", "quickstart", *SHORT, "--request", "7")
    assert done.returncode == 0, done.stderr
    assert any("7" in str(event.get("name", "")) for event in parsed(done.stdout))
    none = twin("trace", "quickstart", *SHORT, "--request", "123456789")
    assert none.returncode == 2
    assert b"request 123456789 is not in the run: it has" in none.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nowhere.toml"], 2, "nowhere.toml cannot be read"),
        (["quickstart", *SHORT, "--from", "9"], 2, "the run lasts 4 s"),
    ],
)
def test_a_wish_at_fault_is_one_sentence_and_a_status(twin, words, status, said):
    done = twin("trace", *words)
    assert done.returncode == status
    assert said in done.stderr.decode() and len(done.stderr.decode().strip().splitlines()) == 1
    assert b"Traceback" not in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--from", "nan"], 2, "cannot start at nan s"),
        (["--from", "inf"], 2, "cannot start at inf s"),
        (["--to", "nan"], 2, "cannot end at nan s"),
        (["--from", "3", "--to", "2"], 2, "cannot end at 2 s"),
        (["--out", "no/such/folder.json"], 3, "cannot be written"),
    ],
)
def test_what_no_run_can_give_is_refused_before_one_is_made(
    monkeypatch, capsys, words, status, said
):
    monkeypatch.setattr("twin.lab.runs.watched.source_of", lambda *_: pytest.fail("it was run"))
    monkeypatch.setattr(sys, "argv", ["twin", "trace", "quickstart", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    assert said in capsys.readouterr().err
