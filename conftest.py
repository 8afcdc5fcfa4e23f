"""Keeps pytest from importing modules that show no example when it looks for examples.

Importing all of them takes seconds in every test process, and a page's script would draw.
"""

from pathlib import Path

SOURCES = Path(__file__).parent / "twin"
PROMPT = b">>> "


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave a module alone in which no example begins."""
    module = collection_path.suffix == ".py" and SOURCES in collection_path.parents
    return True if module and PROMPT not in collection_path.read_bytes() else None
