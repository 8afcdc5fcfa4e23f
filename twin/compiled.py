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
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
KEPT = 4  # states of the sources whose compiled kernels stay on disk
KERNELS = ("hardware", "model", "serving", "engine")  # rooms that hold compiled code
ANSWERS = (*KERNELS, "metrics")  # rooms that decide what a run says


def source_digest(rooms: Sequence[str] = KERNELS) -> str:
    """SHA-256 over the sources of some rooms and of the scenario's declaration."""
    content = hashlib.sha256()
    for room in ("spec", *rooms):
        for path in sorted((SOURCES / room).rglob("*.py")):
            content.update(path.relative_to(SOURCES).as_posix().encode())
            content.update(path.read_bytes())
    return content.hexdigest()


def use_own_cache() -> Path:
    """Point numba at this state's folder, unless NUMBA_CACHE_DIR already says where."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return Path(os.environ["NUMBA_CACHE_DIR"])
    home = SOURCES.parent / ".numba_cache"
    if not os.access(SOURCES.parent, os.W_OK):
        home = Path(tempfile.gettempdir()) / f"twin-numba-cache-{os.getuid()}"
    folder = home / source_digest()[:16]
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _forget_oldest(home)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    return folder


def _forget_oldest(home: Path) -> None:
    folders = sorted((p for p in home.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    for folder in folders[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
