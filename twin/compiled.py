"""Where compiled kernels are kept between starts.

Numba's cache on disk looks at the file of a function, not at the functions it calls: after a
change in a callee, a caller would go on with the old code and give old results. So every state of
the sources gets a folder of its own, named by a digest of them. The oldest folders are removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
NUMBA_VARIABLE = "NUMBA_CACHE_DIR"
OWN_VARIABLE = "TWIN_NUMBA_CACHE_DIR"  # what NUMBA_CACHE_DIR is when the twin has set it
KEPT = 4  # states of the sources whose compiled kernels stay on disk
# Rooms that hold compiled code.
KERNELS = ("rng.py", "hardware", "model", "workload", "experts", "policies", "engine")
ANSWERS = (*KERNELS, "metrics")  # rooms that decide what a run says


def source_digest(rooms: Sequence[str] = KERNELS) -> str:
    """SHA-256 over the sources of some rooms and of the scenario's declaration."""
    content = hashlib.sha256()
    for room in ("scenario", *rooms):
        found = SOURCES / room
        for path in [found] if found.is_file() else sorted(found.rglob("*.py")):
            content.update(path.relative_to(SOURCES).as_posix().encode())
            content.update(path.read_bytes())
    return content.hexdigest()


def use_own_cache() -> Path:
    """Point numba at this state's folder, unless somebody has said where.

    What a parent process of ours has set says nothing: a server that began before the sources
    were changed would have its jobs run with its own old kernels.
    """
    given = os.environ.get(NUMBA_VARIABLE, "")
    if given and given != os.environ.get(OWN_VARIABLE):
        return Path(given)
    folder = _home() / source_digest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.utime(folder)  # in use: the last to be forgotten
        _forget_oldest(folder.parent)
    os.environ[NUMBA_VARIABLE] = os.environ[OWN_VARIABLE] = str(folder)
    return folder


def _home() -> Path:
    """A folder beside the sources, else one of this user alone among the temporary files."""
    home = SOURCES.parent / ".numba_cache"
    if os.access(home if home.exists() else SOURCES.parent, os.W_OK):
        return home
    home = Path(tempfile.gettempdir()) / f"twin-numba-cache-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    # What lies in it is run: a folder that another user made first is none for us.
    return home if home.stat().st_uid == os.getuid() else Path(tempfile.mkdtemp())


def _forget_oldest(home: Path) -> None:
    folders = []
    for path in home.iterdir():
        with suppress(FileNotFoundError):  # another start forgot it just now
            if path.is_dir():
                folders.append((path.stat().st_mtime, path))
    for _, folder in sorted(folders)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
