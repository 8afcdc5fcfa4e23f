"""Readers of paths as readers of bytes, and the readers that extras bring."""

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.conftest import ROOT
from twin import hooks


def on_disk(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    """A reader of paths as one of bytes."""

    def reader(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            return read(path)

    return reader


def brought() -> list[ModuleType]:
    """The modules `doors` of the extras' tests: their READERS, FILES and `sound`."""
    own = [name for name in hooks.extras() if (ROOT / f"tests/extras/{name}/doors.py").exists()]
    return [import_module(f"tests.extras.{name}.doors") for name in own]
