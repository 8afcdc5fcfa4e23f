"""What adding one of each kind takes: a dummy is added in a copy of the project, and works."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.draws import some

SMALL = """
from twin.lab.library import load_facts
from twin.engine.simulate import simulate
from tests.engine.small import small
BRIEF = {"horizon_s": 0.4, "warmup_s": 0.1}
def run(**asked):
    return simulate(small(BRIEF | {k.replace("__", "."): v for k, v in asked.items()}),
                    load_facts())
"""
LEFT_OUT = shutil.ignore_patterns("*.db*", "shipped")


@dataclass(frozen=True)
class Dummy:
    """One more of a kind: files that change, each with (text that stands there, text put before
    it); files that are new; and what shows that it works."""

    shows: str
    changes: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)  # {"<copy>": path of a file to copy}
    units: int = 1  # files, or folders of an extra, that change or are new

    @property
    def touched(self) -> int:
        """Files that change, and new files; a new package counts once."""
        packages = {Path(p).parent for p in self.new if p.endswith("__init__.py")}
        alone = [p for p in self.new if not packages & {*Path(p).parents}]
        return len(self.changes) + len(packages) + len(alone)


DUMMIES = {
    "router": Dummy(
        'assert run(router__policy="dummy").summary["finished"] > 0\n'
        "from twin.lab.plan.space import CHOICES\n"
        'assert "dummy" in CHOICES["router"].values["router.policy"](small(), None)',
        {"twin/policies/router.py": [
            ("ROUTERS = {\n", "DUMMY = 7\n"),
            ('    "weighted": WEIGHTED,\n', '    "dummy": DUMMY,\n'),
            ("    if policy == WEIGHTED:\n",
             "    if policy == DUMMY:\n        return round_robin(view.opened, 0)\n")],
         "twin/scenario/policies.py": [('"predicted_ttft", "weighted",', '"dummy", ')]},
        units=2,
    ),
    "kind of fault": Dummy(
        'found = run(faults=[{"element": "node 0", "kind": "dummy", "at_s": 0.2}])\n'
        'assert "dims" in str(found.tables["events"].to_dicts())',
        {"twin/scenario/faults.py": [
            ('        FaultKind(\n            "derate"',
             '        FaultKind("dummy", "Dims", "It dims.", look="slow", '
             'says=lambda _: "dims", speed=lambda _: 0.5),\n')]},
    ),
    "operator": Dummy(
        "from twin.metrics.operators import DECODE_OPERATORS\n"
        'assert "dummy" in DECODE_OPERATORS\n'
        'found = run(start="empty").tables["operators"].filter(operator="dummy")\n'
        'assert found["total_s"].sum() > 0.0',
        {"twin/metrics/operators.py": [
            ('        Operator("attention_input"',
             '        Operator("dummy", "Dummy", PROJECTIONS, DECODE, "attention", '
             'meaning="None."),\n')],
         "twin/model/operators.py": [
            ('    Plain("o_proj"', '    Plain("dummy", "after", 1, decode_output),\n')]},
        units=2,
    ),
    "metric": Dummy(
        'assert run().summary["dummy"] == 7',
        {"twin/metrics/registry.py": [
            ('    _count("npus_decode"',
             '    _count("dummy", "Dummy", "Seven.", lambda _: 7),\n')]},
    ),
    "field": Dummy(
        "from twin.scenario.fields import fields\n"
        'assert small({"router.dummy": 3}).router.dummy == 3\n'
        'assert "router.dummy" in fields()',
        {"twin/scenario/policies.py": [
            ("    policy: Literal[\n        \"round_robin\"",
             '    dummy: int = quantity(1, "", "Dummy", (0, 9), since=4)\n    """A dummy."""\n')]},
    ),
    "chip": Dummy(
        'assert run(supernode__chip="ascend-dummy").summary["finished"] > 0',
        new={"data/chips/ascend-dummy.toml": "<copy>data/chips/ascend-910c.toml"},
    ),
    "machine": Dummy(
        'assert run(supernode__machine="dummy").summary["finished"] > 0',
        new={"data/machines/dummy.toml": "<copy>data/machines/cloudmatrix384.toml"},
    ),
    "trace format": Dummy(
        "from pathlib import Path\nfrom twin.lab.traces.reader import read_trace\n"
        'Path("a.csv").write_text("dummy_at,dummy_in,dummy_out\\n0,5,6\\n1,5,6\\n")\n'
        'assert read_trace(Path("a.csv")).format == "dummy"',
        {"twin/lab/traces/requests.py": [
            ('    _csv_format("splitwise"',
             '    _csv_format("dummy", "Dummy", Layout("dummy_at", "dummy_in", "dummy_out")),\n')]},
    ),
    "page": Dummy(
        "from twin.ui.pages import PAGES, load_pages\nload_pages()\n"
        'assert Path(PAGES["dummy"].script).exists()',
        new={"twin/extras/dummy/__init__.py":
             "from twin.hooks import Page\n"
             'HOOKS = (Page("dummy", "twin.extras.dummy", "Dummy", "home", "Dummy.", "Build"),)\n',
             "twin/extras/dummy/dummy.py": "import streamlit as st\n\nst.write('dummy')\n"},
    ),
    "imported kind": Dummy(
        "from twin.hooks import FileKind, hooks_of\n"
        'assert hooks_of(FileKind)["dummy"].load().key == "dummy"',
        new={"twin/extras/dummy/__init__.py":
             "from twin.hooks import FileKind\n"
             'HOOKS = (FileKind("dummy", "twin.extras.dummy.kind:KIND"),)\n',
             "twin/extras/dummy/kind.py":
             "from twin.lab.kinds import Kind, Parts\n"
             'KIND = Kind("dummy", None, lambda v: Parts("", "", {}, {}), lambda p: p)\n'},
    ),
    "placement": Dummy(
        'assert run(deployment__placement="dummy").summary["finished"] > 0',
        {"twin/hardware/placement.py": [
            ('    "spread": place_spread,\n', '    "dummy": place_spread,\n')],
         "twin/scenario/deployment.py": [('"racks", "around_off"', '"dummy", ')]},
        units=2,  # names and help of choices stand in the scenario, which knows no machine
    ),
    "controller": Dummy(
        'found = run(elastic__controller="dummy", elastic__npus=24)\n'
        'assert found.summary["finished"] > 0',
        {"twin/scenario/elastic.py": [
            ('"slo": "latency"', '"dummy": "busy", '), ('"slo", "kv", "rebalance"', '"dummy", ')]},
    ),
}  # fmt: skip
IN_SUITE = ["metric"]  # it reaches a run


def test_the_twelve_kinds_take_one_file_each_and_three_take_two():
    assert {name: dummy.touched for name, dummy in DUMMIES.items()} == {
        name: dummy.units for name, dummy in DUMMIES.items()
    }
    assert len(DUMMIES) == 12
    assert sorted(name for name, dummy in DUMMIES.items() if dummy.units > 1) == [
        "operator", "placement", "router",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(DUMMIES))
def test_a_dummy_finds_its_place(name):
    """Each line that a dummy goes before stands once in its file, also of kinds that only
    `make long` tries."""
    for path, edits in DUMMIES[name].changes.items():
        text = (ROOT / path).read_text("utf-8")
        assert [anchor for anchor, _ in edits if text.count(anchor) != 1] == [], path


@pytest.mark.parametrize("name", some(IN_SUITE, *sorted({*DUMMIES} - {*IN_SUITE})))
def test_one_more_of_a_kind_works(name, tmp_path):
    dummy = DUMMIES[name]
    for folder in ("twin", "data", "scenarios", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=LEFT_OUT)
    for path, edits in dummy.changes.items():
        text = (tmp_path / path).read_text("utf-8")
        for anchor, added in edits:
            assert text.count(anchor) == 1, (path, anchor)
            text = text.replace(anchor, added + anchor)
        (tmp_path / path).write_text(text, "utf-8")
    for path, text in dummy.new.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        if text.startswith("<copy>"):
            shutil.copy(tmp_path / text.removeprefix("<copy>"), tmp_path / path)
        else:
            (tmp_path / path).write_text(text, "utf-8")
    env = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(tmp_path)}
    code = SMALL + "from pathlib import Path\n" + dummy.shows
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=tmp_path, env=env, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
