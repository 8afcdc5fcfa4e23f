"""The documents say what the code says: made parts, links, examples."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from docs.make import field_table, pages, paths
from tests.draws import some
from twin.engine import balancing
from twin.lab.library import ROOT
from twin.scenario import fields, parse_scenario

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


def test_what_concepts_names_is_there():
    """Files and functions of the walk of a request through the code."""
    text = (ROOT / "docs/CONCEPTS.md").read_text("utf-8")
    for folder in ("twin", "twin/engine"):
        text = re.sub(rf"`{folder}/", "`", text)
    rooms = ("", "engine", "engine/phases", "hardware", "model")
    homes = [ROOT / "twin" / room for room in rooms]
    for name, functions in re.findall(r"`([\w/]+\.py)(?:: ([\w, ]+))?`", text):
        found = [home / name for home in homes if (home / name).exists()]
        assert found, name
        for function in filter(None, functions.split(", ")):
            assert any(f"def {function}(" in path.read_text("utf-8") for path in found), function


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_to_a_file_leads_somewhere(page: Path):
    named = re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text("utf-8"))
    # A page of an extra may be absent with its folder.
    gone = [name for name in named if not (page.parent / name).exists()]
    assert not [name for name in gone if "twin/extras/" not in name]


def test_the_scenario_of_the_faults_page_is_one():
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/MACHINE.md").read_text(), re.DOTALL)
    found = parse_scenario(tomllib.loads(text))
    assert found.faults[0].element == "node 20"


def test_the_readme_is_read_in_one_sitting():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 160


def commands() -> list[str]:
    """The `python -m twin` lines of the code blocks of all pages; tests/lab/test_cluster.py runs
    those that go on in the background."""
    blocks = re.findall(r"```sh\n(.*?)```", "".join(p.read_text() for p in PAGES), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if "-m twin" in line and line[-1] != "&"]


def runs(command: str) -> bool:
    return command.partition("-m twin ")[2].startswith("run ")


# To its end, past the faults that a preset has, a run goes on in `make long`.
WAYS = [(command, BRIEFLY if runs(command) else ()) for command in commands()]
WHOLE = [(command, ()) for command, horizon in WAYS if horizon]


@pytest.mark.parametrize("way", some(WAYS, *WHOLE), ids=lambda way: way[0])
def test_every_command_of_the_documents_runs(way, twin, monkeypatch):
    monkeypatch.setattr(balancing, "REFRESHES", 12)  # of popularity that moves: else 120
    command, horizon = way
    done = twin(*shlex.split(command.partition("-m twin ")[2]), *horizon)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout
