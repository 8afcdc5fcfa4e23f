"""`import twin`: five functions, and the notebook that shows them."""

import json
import re
import subprocess
import sys

import pytest

import twin
from tests.conftest import ROOT
from tests.draws import some
from tests.engine.small import BASE
from twin.lab.functions import load, predict, simulate, sweep
from twin.scenario import SpecError

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def test_the_package_offers_them_and_imports_nothing_before():
    said = subprocess.run(
        [sys.executable, "-c", "import sys, twin; print('numpy' in sys.modules, dir(twin))"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert said.startswith("False")
    assert all(name in said and getattr(twin, name) for name in twin.FUNCTIONS)
    with pytest.raises(AttributeError, match="no attribute 'answer'"):
        twin.answer  # noqa: B018


def test_a_scenario_comes_by_key_by_file_or_as_values_and_a_wrong_one_is_said():
    assert load("quickstart", {"seed": 7}).seed == 7
    assert load(ROOT / "scenarios" / "quickstart.toml") == load()
    assert load({"horizon_s": 200.0}).horizon_s == 200.0
    with pytest.raises(SpecError, match="neither a .toml file nor a preset, perhaps quickstart"):
        load("quikstart")
    with pytest.raises(SpecError, match="router.polcy"):
        load("quickstart", {"router.polcy": "weighted"})


def test_a_run_is_the_engines_and_shows_itself_as_a_table():
    run = simulate(BASE)
    assert run.digest == simulate(BASE).digest
    shown = run._repr_markdown_()
    assert shown.startswith(f"**{BASE.name}**")
    assert f"| requests | {run.summary['requests']:,}" in shown
    assert "prefill" in predict(BASE)._repr_markdown_()


def test_a_sweep_is_rows_and_a_point_that_cannot_be_says_why():
    found = sweep(BASE, {"deployment.decode.instances": [1, 2, 500]})
    assert found["deployment.decode.instances"].to_list() == [1, 2, 500]
    assert found["slo_kept"].to_list()[:2] == [True, True]
    assert found["slo_kept"][2] is None
    assert "500" in found["why"][2] or "NPUs" in found["why"][2]
    with pytest.raises(ValueError, match="is not a field of a scenario, perhaps"):
        sweep(BASE, {"deployment.decode.instnces": [1]})


@pytest.mark.parametrize("whole", some([False], True))
def test_the_notebook_runs_and_uses_all_five(whole):
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert set(re.findall(r"twin\.(\w+)\(", "\n".join(code))) == {*twin.FUNCTIONS}
    assert all(not cell.get("outputs") for cell in cells)
    names = {}
    for source in code:
        if whole or "twin.plan" not in source:  # a plan takes ten seconds
            exec(compile(source, NOTEBOOK.name, "exec"), names)  # noqa: S102
    assert names["run"].valid
    assert not whole or names["answer"]["ranked"]
