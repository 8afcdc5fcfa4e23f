"""Compiled code is found by what the sources mean, whoever started this process, and where."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from twin.kernels import compiled

SAY = "from twin.kernels.compiled import use_own_cache; print(use_own_cache())"
# A kernel called by an entry, in two files; says what came out, and whether it was on disk.
RUN = """
from twin.model.kernel import area
print(area(3.0), sum(area.stats.cache_hits.values()))
"""
KERNEL = '''"""A room."""
from twin.kernels.compiled import entry
from twin.model.constants import square


@entry
def area(side):
    """Area of two squares."""
    return 2.0 * square(side)
'''
CONSTANTS = '''"""Constants."""
from twin.kernels.compiled import kernel

ONE = 1.0


@kernel
def square(side):
    """Area of a square."""
    return ONE * side * side  # a remark
'''
SAMPLE = '''
"""Docstring."""
from math import *  # remark
X: int = -1 + 0x10 * 1e3 // (2 ** 3)
class A(object):
    """Docstring."""
    def f(self, /, a, *b, c: "int" = 2, **d) -> None:
        """Docstring."""
        return f"{a!r:>{c}} {b:}" f"" "x" u"y\\u20ac" if (n := len(b)) else lambda: (yield)
async def g():
    async with a as b, c:
        return [x async for x in y if not x < 1 != 2]
match X:
    case {"k": [1, *_], **rest} | A(f=None) if rest: del rest[1:2, ...]
try: pass
except* (ValueError, OSError) as error: raise error from None
'''
MEANING = "9206e5ac820f00afbcbc268c29b769b6ca70fc38dc7ecd0dd0e6b7b8243f66c0"


@pytest.fixture
def sources(tmp_path):
    """A copy of what decides which kernels there are."""
    rooms = tmp_path / "twin"
    rooms.mkdir()
    shutil.copy(compiled.SOURCES / "__init__.py", rooms)
    shutil.copytree(compiled.SOURCES / "kernels", rooms / "kernels")
    (rooms / "model").mkdir()
    (rooms / "model" / "kernel.py").write_text(KERNEL, "utf-8")
    (rooms / "model" / "constants.py").write_text(CONSTANTS, "utf-8")
    return rooms


def says(sources: Path, script: str, **more: str) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    env.pop(compiled.OWN_VARIABLE, None)
    # Python keeps bytecode by size and second, and two edits of a test may share both.
    command = [sys.executable, "-B", "-c", script]
    return subprocess.check_output(command, cwd=sources.parent, env=env | more, text=True).strip()


def folder_of(sources: Path, **more: str) -> Path:
    return Path(says(sources, SAY, **more))


def inherited(folder: Path) -> dict[str, str]:
    return {"NUMBA_CACHE_DIR": str(folder), compiled.OWN_VARIABLE: str(folder)}


def edit(sources: Path, before: str, after: str, name: str = "constants.py") -> None:
    path = sources / "model" / name
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")


def test_a_meaning_is_the_same_under_every_python():
    assert compiled.syntax_digest(SAMPLE) == MEANING
    script = f"import sys; sys.path.insert(0, {str(compiled.SOURCES)!r}); import compiled; "
    # Nothing is kept below a file, so each Python reads the sources of the engine itself.
    script += "compiled._home = lambda: compiled.SOURCES / '__init__.py'; "
    script += f"print(compiled.syntax_digest({SAMPLE!r}), compiled.source_digest(compiled.ANSWERS))"
    told = {}
    for minor in (11, 12, 13, 14):
        if python := shutil.which(f"python3.{minor}"):
            env = {**os.environ, "PYENV_VERSION": f"3.{minor}"}  # a launcher asks for it
            command = [python, "-c", script]
            said = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
            if said.returncode == 0:  # a launcher without its Python says nothing
                told[python] = said.stdout.split()
    assert all(words[0] == MEANING for words in told.values()), told.keys()
    assert len({tuple(words) for words in told.values()}) <= 1, told.keys()


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("# a remark", "# another\n", True),
        ('"""Area of a square."""\n', '"""Its area."""\n', True),
        ('    """Area of a square."""\n', "", True),
        ("ONE * side", "(ONE  *  side)", True),
        ("1.0", "1.5", False),
        ("ONE * side * side", "side * ONE * side", False),
        ("def square(side)", "def square(side=None)", False),
    ],
)
def test_what_nobody_can_notice_is_no_change(before, after, same):
    assert before in CONSTANTS
    changed = compiled.syntax_digest(CONSTANTS.replace(before, after))
    assert (changed == compiled.syntax_digest(CONSTANTS)) == same


def test_compiled_code_outlives_a_remark_and_not_a_constant_of_a_callee(sources):
    assert says(sources, RUN) == "18.0 0"
    edit(sources, '"""Constants."""', '"""What\nis\nconstant."""')  # moves every line
    edit(sources, "@entry", "# An entry.\n\n@entry", "kernel.py")
    assert says(sources, RUN) == "18.0 1"
    edit(sources, "ONE = 1.0", "ONE = 2.0")
    assert says(sources, RUN) == "36.0 0"


def test_a_kernel_is_plain_python_for_python(sources):
    script = "from twin.model.constants import square; print(square(3), type(square).__name__)"
    assert says(sources, script) == "9.0 function"
    script = "from twin.model.kernel import area; print(area(3.0))"
    assert says(sources, script, NUMBA_DISABLE_JIT="1") == "18.0"


def test_a_job_of_a_server_from_before_the_change_has_kernels_of_its_own(sources):
    before = folder_of(sources)
    assert folder_of(sources, **inherited(before)) == before
    edit(sources, "1.0", "2.0")
    after = folder_of(sources, **inherited(before))
    assert after != before
    assert after.is_dir()


def test_a_folder_that_somebody_named_is_taken(sources, tmp_path):
    named = str(tmp_path / "elsewhere")
    assert folder_of(sources, NUMBA_CACHE_DIR=named) == Path(named)


def test_the_folders_used_last_are_kept(sources):
    first = folder_of(sources)
    made = []
    for n in range(compiled.MEANINGS_STORED):
        edit(sources, f"ONE = {n + 1}.0", f"ONE = {n + 2}.0")
        made.append(folder_of(sources))
        os.utime(first, (2e9 + n, 2e9 + n))  # a server still runs with it
    kept = {path for path in first.parent.iterdir() if path.name != "meanings"}
    assert first in kept
    assert made[-1] in kept
    assert len(kept) == compiled.MEANINGS_STORED


def test_without_a_place_beside_the_sources_it_is_one_of_this_user_alone(tmp_path, monkeypatch):
    home = compiled._cache_home.__wrapped__
    monkeypatch.setattr(compiled, "SOURCES", tmp_path / "read only" / "twin")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path))
    place = home()
    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(compiled.os, "getuid", lambda: place.stat().st_uid)
    assert home() == place


USED = """
import sys, twin.engine.simulate
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("twin.")))
import twin.lab.runs.answer, twin.lab.runs.job, twin.lab.runs.runner, twin.commands.runs
from twin.kernels import compiled
compiled.register_kernels()
print(*{"networkx", "scipy.special", "streamlit"} & set(sys.modules))
"""


def test_every_module_that_a_run_uses_decides_its_engine_version():
    used, unused = subprocess.check_output([sys.executable, "-c", USED], text=True).splitlines()
    rooms = {Path(path).relative_to(compiled.SOURCES).parts[0] for path in used.split()}
    assert rooms == set(compiled.ANSWERS)
    assert not unused.split(), "a run imports what it never calls"


def test_what_is_late_is_compiled_once_and_not_for_a_small_answer(monkeypatch):
    made = []
    monkeypatch.setattr(compiled, "entry", lambda function: made.append(function) or function)
    twice = compiled.lazy_entry(lambda x: 2 * x)
    with compiled.without_compiling():
        assert twice(3) == 6
    assert made == []
    assert twice(3) == twice(3) == 6
    assert len(made) == 1
