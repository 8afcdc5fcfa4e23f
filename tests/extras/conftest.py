"""Tests of extras: those of an extra whose folder is absent are left out."""

from pathlib import Path

from tests.conftest import ROOT
from tests.ui.conftest import app, begun, seeded, store

__all__ = ["app", "begun", "seeded", "store"]

collect_ignore = [
    folder.name
    for folder in Path(__file__).parent.iterdir()
    if folder.is_dir() and not (ROOT / "twin/extras" / folder.name).is_dir()
]
