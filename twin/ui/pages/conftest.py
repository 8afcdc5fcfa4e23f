"""Keeps pytest from importing the pages' scripts when it looks for examples: they would draw."""

from pathlib import Path


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave a page's script, which bears its package's name, alone."""
    return True if collection_path.stem == collection_path.parent.name else None
