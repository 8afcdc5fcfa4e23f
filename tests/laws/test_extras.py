"""With the folder of any extra deleted, everything else works: rooms, pages, commands, tests."""

import os
import random
import re
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_house import sources, tracked
from twin import hooks

EXTRAS = sorted(hooks.extras())
DRAWN = random.Random(24).sample(EXTRAS, min(1, len(EXTRAS)))
IMPORT_ALL = """
import importlib, pkgutil, twin
from pathlib import Path
from twin.ui.pages import PAGES, load_pages
load_pages()
scripts = {page.name for page in PAGES.values()}
for module in pkgutil.walk_packages(twin.__path__, "twin."):
    name = module.name.rpartition(".")[2]
    if not (name in scripts and not module.ispkg or ".migrations" in module.name):
        importlib.import_module(module.name)
assert all(Path(page.script).exists() for page in PAGES.values())
import sys
from twin.__main__ import main
sys.argv = ["twin", "--help"]
main()
"""


def without(extra: str, folder: Path) -> Path:
    """A copy of the project in which an extra's folder was never there."""
    gone = ROOT / "twin" / "extras" / extra
    for path in tracked():
        if gone not in path.parents:
            for file in (path, *compiled(path)):
                to = folder / file.relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, to)  # with its time, so that what was compiled is taken
    meanings = ROOT / ".numba_cache" / "meanings"
    if meanings.is_dir():  # which hang on what stands in a file, whatever its folder
        shutil.copytree(meanings, folder / ".numba_cache" / "meanings")
    return folder


def compiled(path: Path) -> list[Path]:
    """What Python has compiled a module to, where it has."""
    cached = Path(cache_from_source(path)) if path.suffix == ".py" else path
    return [cached] if cached != path and cached.exists() else []


def under_git(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)


def does(folder: Path, *command: str) -> str:
    """What a module of Python prints there; fails where its exit status is not 0."""
    env = os.environ | {"TWIN_DB_URL": f"sqlite:///{folder / 'twin.db'}"}
    done = subprocess.run(
        [sys.executable, *command], check=False, cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


def fast_tests() -> list[str]:
    """The tests of `make check`."""
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith("FAST :=")]
    return line.split()[2:]


def starts(extra: str, folder: Path) -> None:
    """Everything is imported without the extra, and its commands are not there."""
    without(extra, folder)
    said = does(folder, "-c", IMPORT_ALL)
    assert "Usage" in said
    brought = [hook for hook in hooks.extras()[extra] if isinstance(hook, hooks.Command)]
    assert not [hook.name for hook in brought if f" {hook.name} " in said]


def test_the_hook_table_alone_knows_extras():
    know = [p for p in sources("") if "twin.extras" in p.read_text("utf-8")]
    others = [p for p in know if ROOT / "twin/extras" not in p.parents]
    assert [str(p.relative_to(ROOT)) for p in others] == ["twin/hooks.py"]


def test_no_test_outside_an_extra_imports_one():
    """A test of a room would go with the extra that it imports."""
    imports = re.compile(r"^\s*(?:from|import) (?:twin|tests)\.extras\.", re.MULTILINE)
    others = [p for p in (ROOT / "tests").rglob("*.py") if ROOT / "tests/extras" not in p.parents]
    assert others and not [p.name for p in others if imports.search(p.read_text("utf-8"))]


def test_no_rule_of_the_project_names_one_extra():
    """A rule of imports fails where a module that it names is gone."""
    rules = (ROOT / "pyproject.toml").read_text("utf-8")
    assert "twin.extras" in rules and not [x for x in EXTRAS if f"twin.extras.{x}" in rules]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_says_what_it_is_and_its_hooks_lead_somewhere(extra):
    assert (ROOT / "twin/extras" / extra / "README.md").exists()
    assert all(hook.load() is not None for hook in hooks.extras()[extra])


@pytest.mark.parametrize("extra", DRAWN)
def test_without_an_extra_everything_else_starts(extra, tmp_path):
    starts(extra, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
def test_without_any_extra_the_fast_tests_pass(extra, tmp_path):
    starts(extra, tmp_path)
    under_git(tmp_path)
    does(tmp_path, "-c", "import sys; from importlinter.cli import *; sys.exit(lint_imports())")
    does(tmp_path, "-m", "pytest", "-q", "--collect-only", "tests")
    does(tmp_path, "-m", "pytest", "-q", "-x", *fast_tests(), "-k", "not compiled")
