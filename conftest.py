"""Keeps pytest from importing the pages' scripts when it looks for examples: they would draw."""

from pathlib import Path

PAGES = Path(__file__).parent / "twin" / "ui" / "pages"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave a page's script, which bears its package's name, alone."""
    script = collection_path.stem == collection_path.parent.name
    return True if script and PAGES in collection_path.parents else None
