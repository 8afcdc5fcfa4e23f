"""Kernels are never those of other sources, whoever started this process, and wherever it is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from twin import compiled

SAY = "import os, twin; print(os.environ['NUMBA_CACHE_DIR'])"


@pytest.fixture
def sources(tmp_path):
    """A copy of what decides which kernels there are."""
    rooms = tmp_path / "twin"
    rooms.mkdir()
    for name in ("__init__.py", "compiled.py"):
        shutil.copy(compiled.SOURCES / name, rooms)
    (rooms / "model").mkdir()
    (rooms / "model" / "kernel.py").write_text("ONE = 1\n", "utf-8")
    return rooms


def folder_of(sources: Path, **more: str) -> Path:
    env = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    env.pop(compiled.OWN_VARIABLE, None)
    command = [sys.executable, "-c", SAY]
    said = subprocess.check_output(command, cwd=sources.parent, env=env | more, text=True)
    return Path(said.strip())


def inherited(folder: Path) -> dict[str, str]:
    return {"NUMBA_CACHE_DIR": str(folder), compiled.OWN_VARIABLE: str(folder)}


def test_a_job_of_a_server_from_before_the_change_has_kernels_of_its_own(sources):
    before = folder_of(sources)
    assert folder_of(sources, **inherited(before)) == before
    (sources / "model" / "kernel.py").write_text("ONE = 2\n", "utf-8")
    after = folder_of(sources, **inherited(before))
    assert after != before
    assert after.is_dir()


def test_a_folder_that_somebody_named_is_taken(sources, tmp_path):
    named = str(tmp_path / "elsewhere")
    assert folder_of(sources, NUMBA_CACHE_DIR=named) == Path(named)


def test_the_folders_used_last_are_kept(sources):
    first = folder_of(sources)
    found = []
    for n in range(compiled.KEPT):
        (sources / "model" / "kernel.py").write_text(f"ONE = {n + 5}\n", "utf-8")
        found.append(folder_of(sources))
        os.utime(first, (2e9 + n, 2e9 + n))  # a server still runs with it
    kept = set(first.parent.iterdir())
    assert first in kept
    assert found[-1] in kept
    assert len(kept) == compiled.KEPT


def test_without_a_place_beside_the_sources_it_is_one_of_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "SOURCES", tmp_path / "read only" / "twin")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path))
    found = compiled._home()
    assert found.parent == tmp_path
    assert found.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(compiled.os, "getuid", lambda: found.stat().st_uid)
    assert compiled._home() == found
