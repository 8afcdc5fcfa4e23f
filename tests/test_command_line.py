"""The command line as a person or a script meets it: standard output, standard error, status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.draws import some
from tests.lab.searched import searched
from tests.laws.advice import LITE
from twin.commands import terminal
from twin.commands.runs import print_run
from twin.lab.library import scenario_to_toml
from twin.lab.runs import budget
from twin.metrics.measures import NOTHING
from twin.metrics.registry import METRICS
from twin.scenario import parse_scenario, with_overrides
from twin.workload.requests import MOST_REQUESTS

ROOT = Path(__file__).resolve().parents[1]
SHORT = ["--set", "horizon_s=4", "--set", "warmup_s=1"]


def test_the_same_question_gives_the_same_bytes_kept_or_not(twin):
    done = twin("run", "quickstart", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)  # exactly one object
    assert {"run", "scenario", "digest", "wall_s", "requests", "summary"} <= set(first)
    assert first["requests"] == first["summary"]["requests"] > 0
    assert all(not isinstance(v, dict | list) for v in first["summary"].values())
    second = json.loads(twin("run", "quickstart", *SHORT, "--json", "--no-store").stdout)
    assert first["run"]
    assert second["run"] is None
    for same in ("scenario", "digest", "summary"):
        assert first[same] == second[same]


def test_what_is_stored_is_checked(twin, tmp_path):
    run = json.loads(twin("run", "quickstart", *SHORT, "--json").stdout)["run"]
    whole = twin("check")
    assert (whole.returncode, whole.stdout.splitlines()[-1]) == (0, b"Nothing stored is damaged.")
    file = max(tmp_path.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    broken = twin("check", "--json")
    assert (broken.returncode, broken.stderr) == (1, b"")
    (said,) = json.loads(broken.stdout)["damage"]
    assert file.stem[:8] in said or run in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["run", "quickstart", "--set", "seed"], "field=value"),
        (["run", "quickstart", "--set", "supernode.nodes=0"], "supernode.nodes = 0"),
        (["run", "quickstart", "--set", "supernode.wings=2"], "supernode.wings is not a field"),
        (["run", "quickstart", "--set", "deployment.decode.instances=9"], "NPUs"),
        (["run", "quickstart", "--trace", "absent.jsonl"], "absent.jsonl"),
        (["compare", "quickstart", "nothing-like-it"], "nothing-like-it"),
        (["predict", "quickstart", "--set", "horizon_s=nan"], "horizon_s"),
        (["compare", "quickstart"], "takes 2 to 6 runs, not 1"),
        (["run", "quickstart", "--table", "requests"], "say --json too"),
    ],
)
def test_a_question_at_fault_is_one_sentence_and_status_two(twin, words, said):
    done = twin(*words)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert len(done.stderr.strip().splitlines()) == 1
    assert b"Traceback" not in done.stderr
    assert not done.stdout


def test_fields_are_listed_by_name_or_label(twin):
    rows = json.loads(twin("fields", "request rate", "--json").stdout)
    assert rows == {
        "workload.rate_req_per_s": {
            "default": "60",
            "unit": "req/s",
            "accepts": "0.001 to 200,000",
            "label": "Request rate",
            "applies": "workload.arrivals = poisson or gamma or uniform",
        }
    }
    assert b"workload.cv" in twin("fields").stdout
    assert twin("fields", "colour").returncode == 2


def test_presets_are_listed(twin):
    assert "quickstart" in json.loads(twin("presets", "--json").stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [["presets"], ["presets", "--json"]], ids=["table", "json"])
def test_an_answer_that_cannot_be_written_is_one_sentence(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "twin", *words],
            check=False, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.strip() == "the answer cannot be written: No space left on device"


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of a process on this system")
def test_a_run_that_the_disk_does_not_take_is_one_sentence(tmp_path):
    """A limit on the size of files stands for a quota."""
    import resource

    done = subprocess.run(
        [sys.executable, "-m", "twin", "run", "quickstart"],
        check=False, cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TWIN_DB_URL": f"sqlite:///{tmp_path / 'twin.db'}"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )  # fmt: skip
    assert done.returncode == 3
    *_, said = done.stderr.strip().splitlines()
    assert "quota or limit" in said and "parquet:" not in said and "refused" not in said


@pytest.mark.parametrize("words", some(["presets --json"], "presets"))
def test_without_a_standard_output_nothing_breaks(words):
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m twin {words} >&-', sys.executable],
        check=False, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_conversation_hour_hits_no_more_than_an_lru_in_trace_order(twin, traces):
    stats = json.loads((traces / "trace_stats.json").read_text("utf-8"))
    known = stats["mooncake/conversation_trace"]
    trace = traces / "mooncake" / "conversation_trace.jsonl.gz"
    done = twin("run", "quickstart", "--trace", str(trace), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["requests"] == known["arrivals"]["n"]
    bound = known["prefix"]["lru"]["1.0"]["token_hit_ratio"]
    # The pool is larger than all the trace's blocks: little but the time of a prefill is missed.
    assert 0.95 * bound < found["summary"]["hit_token_ratio"] <= bound


def test_explain_says_the_same_as_one_object_and_finds_it_again(twin, tmp_path, monkeypatch):
    monkeypatch.setattr("twin.lab.explain.explain.capacity", searched)
    file = tmp_path / "small.toml"
    few = {"front_end.api_servers": 1, "front_end.service_ms": 24.0}
    file.write_text(scenario_to_toml(with_overrides(parse_scenario(LITE), few)), "utf-8")
    words = ("explain", str(file), "--set", "workload.rate_req_per_s=60", "--set", "horizon_s=10",
             "--set", "warmup_s=2", "--set", "workload.output_tokens=32", "--json")  # fmt: skip
    first = json.loads(twin(*words).stdout)
    assert first["causes"][0]["key"] == "front_end"
    assert json.loads(twin(*words).stdout) == first
    table = twin(*words[:-1]).stdout.decode()
    assert "Front end" in table and first["verdict"].split(".")[0] in table
    refused = twin("explain", first["run"][:-1] + "?")
    assert refused.returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ["workload.rate_req_per_s=100000"],
        ["workload.arrivals=closed_loop", "workload.concurrency=2000000"],
    ],
    ids=["open", "closed"],
)
def test_every_ceiling_of_requests_is_the_same_number(twin, monkeypatch, words):
    """On a machine that has memory and time for all of them, the engine's own limit is told."""
    monkeypatch.setattr(budget, "total_bytes", lambda: 1e15)
    monkeypatch.setenv(budget.LIMIT, "1e15")
    asked = [part for word in [*words, "horizon_s=86400"] for part in ("--set", word)]
    done = twin("run", "quickstart", *asked)
    assert done.returncode != 0
    assert f" {MOST_REQUESTS:,}: " in done.stderr.decode()
    assert len(done.stderr.strip().splitlines()) == 1


def test_tenants_and_tables_are_in_the_object(twin):
    words = ("run", "two-tenants", *SHORT, "--no-store", "--json")
    told = json.loads(twin(*words, "--table", "traffic", "--table", "ranks").stdout)
    names = {row["tenant"] for row in told["tenants"]}
    assert len(names) == 2 and all(row["goodput_req_per_s"] > 0 for row in told["tenants"])
    assert "experts" in {row["traffic"] for row in told["tables"]["traffic"]}
    assert told["tables"]["ranks"]
    refused = twin(*words, "--table", "nope")
    assert refused.returncode == 2 and b"has no table nope; it has" in refused.stderr


def test_tenants_and_tiers_are_printed():
    summary = {"ssd_token_ratio": 0.125, "pool_read_bytes_per_s": 2.5e9}
    tenants = [{"tenant": "chat", "slo_attainment": 0.75, "ttft_s_p50": 0.5},
               {"tenant": "batch", "slo_attainment": None, "ttft_s_p50": 0.25}]  # fmt: skip
    answer = {
        "summary": dict.fromkeys(METRICS) | summary,
        "name": "a run",
        "tenants": tenants,
        "notes": [],
        "broken_checks": [],
        "run": None,
        "requests": 9,
        "wall_s": 1.0,
    }
    with terminal.out.capture() as printed:
        print_run(answer)
    lines = printed.get().splitlines()
    assert any("ssd_token_ratio" in line and "12.5" in line for line in lines)
    assert any("pool_read_bytes_per_s" in line and "2.5" in line for line in lines)
    assert any("chat" in line and "75" in line for line in lines)
    assert any("batch" in line and NOTHING in line for line in lines)
