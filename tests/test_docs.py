"""The documents say what the code says: made parts, links, examples."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from docs.make import field_table, pages, paths
from tests.draws import some
from twin.engine import balancing
from twin.lab.ask import scenario_and_trace
from twin.lab.library import ROOT
from twin.lab.sweep import sweep
from twin.scenario import fields, npus_used, parse_scenario

# What a preset answers over its whole horizon, golden figures say.
BRIEFLY = ("--set", "horizon_s=20", "--set", "warmup_s=5")
PAGES = sorted(paths())


def test_the_made_parts_are_not_stale():
    stale = [str(p.relative_to(ROOT)) for p, text in pages().items() if p.read_text() != text]
    assert not stale, "what these pages show has changed: run `make docs` and commit them"


def test_every_field_stands_in_the_table_with_its_condition():
    table = field_table()
    for path, known in fields().items():
        assert (f"| `{path}` |" in table) == (known.kind is not tuple)
    assert "workload.arrivals = gamma" in table


NAMED = re.compile(r"`(twin/[\w/]+\.py)(?:: ([\w, ]+))?`")


def test_what_concepts_names_is_there():
    """Files of the code, and functions and methods in the file that they are named with."""
    named = NAMED.findall((ROOT / "docs/CONCEPTS.md").read_text("utf-8"))
    assert len(named) > 50
    for name, functions in named:
        text = (ROOT / name).read_text("utf-8")
        for function in filter(None, functions.split(", ")):
            assert re.search(rf"^ *def {function}\(", text, re.MULTILINE), (name, function)


def test_every_stage_of_a_request_names_a_function():
    text = (ROOT / "docs/CONCEPTS.md").read_text("utf-8")
    stages = re.findall(r"^\| (\d+)\. .*", text, re.MULTILINE)
    rows = [line for line in text.splitlines() if re.match(r"\| \d+\. ", line)]
    assert [int(number) for number in stages] == list(range(1, 11))
    assert all(any(functions for _, functions in NAMED.findall(row)) for row in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_to_a_file_leads_somewhere(page: Path):
    named = re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text("utf-8"))
    # A page of an extra may be absent with its folder.
    gone = [name for name in named if not (page.parent / name).exists()]
    assert not [name for name in gone if "twin/extras/" not in name]


def test_the_machine_page_has_scenarios_of_faults_and_of_kinds():
    texts = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/MACHINE.md").read_text(), re.DOTALL)
    faults, kinds, cpus = (parse_scenario(tomllib.loads(text)) for text in texts)
    assert faults.faults[0].element == "node 20"
    assert kinds.supernode.kinds[0].chip == kinds.deployment.decode.chip
    assert cpus.supernode.cpu_nodes == 8 and cpus.supernode.npus == 40 * 8


def test_the_readme_is_read_in_one_sitting():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 160


def commands() -> list[str]:
    """The `python -m twin` lines of the code blocks of all pages; tests/lab/test_cluster.py runs
    those that go on in the background."""
    blocks = re.findall(r"```sh\n(.*?)```", "".join(p.read_text() for p in PAGES), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if "-m twin" in line and line[-1] != "&"]


def runs(command: str) -> bool:
    return command.partition("-m twin ")[2].startswith(("run ", "sweep "))


# The largest machine there is, and one instance of it, which takes a second in place of a minute.
LARGEST = (("nodes=8192", "nodes=8"), ("instances=1024", "instances=1"), ("s=16732", "s=16"))
SWEPT = re.compile(r"--over (\S+?=[^\s,]+,[^\s,]+)(\S*)")  # over named values: two, the rest


def smaller(command: str) -> str:
    """The largest machine by one instance, and a sweep over two of its values."""
    for large, small in LARGEST:
        command = command.replace(large, small)
    return SWEPT.sub(r"--over \1", command)


# To its end, past the faults that a preset has, and at its size a run goes on in `make long`.
WAYS = [(smaller(command), BRIEFLY if runs(command) else ()) for command in commands()]
WHOLE = [(command, ()) for command in commands() if runs(command)]


def test_the_largest_machine_of_the_documents_is_a_scenario():
    (command,) = [command for command in commands() if "nodes=8192" in command]
    name, *words = shlex.split(command.partition("-m twin run ")[2])
    asked, _ = scenario_and_trace(name, [word for word in words if word != "--set"])
    assert npus_used(asked) == asked.supernode.npus == 65_536


def test_every_value_of_a_sweep_of_the_documents_is_a_scenario():
    swept = [command for command in commands() if SWEPT.search(command)]
    assert swept
    for command in swept:
        origin, _ = scenario_and_trace(shlex.split(command.partition("-m twin sweep ")[2])[0], [])
        axis = sweep.parse_axis(SWEPT.search(command)[0].split()[1])
        points = sweep.points(origin, [axis])
        assert len(points) > 1 and not [point.refusal for point in points if point.refusal]


@pytest.mark.parametrize("way", some(WAYS, *WHOLE), ids=lambda way: way[0])
def test_every_command_of_the_documents_runs(way, twin, monkeypatch):
    monkeypatch.setattr(balancing, "REFRESHES", 12)  # of popularity that moves: else 120
    command, horizon = way
    done = twin(*shlex.split(command.partition("-m twin ")[2]), *horizon)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout
