"""First errors: what the twin said of a row before anyone had looked, kept for ever.

A command writes them, with the commit of the twin that answered, and refuses while files differ
from that commit: what was asked and what answered can be had again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from twin.facts import Facts
from twin.lab.evidence.measures import answer_row
from twin.lab.evidence.rows import FIRST, EvidenceError, First, Row, load_first, load_published
from twin.lab.files import write_text
from twin.lab.library import ROOT

HEAD = (
    "# The twin's first answers to rows that nobody had asked it before: made by\n"
    "# `python -m twin evidence --first`, with the commit that answered. Never changed.\n\n"
)


def unasked(rows: Sequence[Row], first: dict[str, First]) -> list[Row]:
    """Unseen rows without a first error."""
    return [row for row in rows if row.kind == "unseen" and row.id not in first]


def keep_first(facts: Facts, path: Path = FIRST, root: Path = ROOT) -> list[dict[str, Any]]:
    """Ask the twin every unseen row that it was never asked, and keep the errors.

    Returns what is new. Raises EvidenceError where files differ from their commit, NotWritten.
    """
    kept = load_first(path)
    rows = unasked(load_published(), kept)
    if not rows:
        return []
    commit = committed(root)
    new = {}
    for row in rows:
        twin = answer_row(row, facts)
        new[row.id] = First(
            float(f"{twin:.6g}"), round(twin / row.value - 1.0, 6), commit, row.digest
        )
    entries = {name: asdict(entry) for name, entry in {**kept, **new}.items()}
    write_text(path, HEAD + tomli_w.dumps(entries))
    return [{"id": name, **asdict(entry)} for name, entry in new.items()]


def committed(root: Path) -> str:
    """The commit that the files of a clone are; raises EvidenceError where they differ from it."""
    changed = _git(root, "status", "--porcelain", "--untracked-files=all", "--", "twin", "data")
    if changed:
        raise EvidenceError(
            "a first error belongs to a commit: commit the changes in twin/ and data/ first"
        )
    return _git(root, "rev-parse", "HEAD")


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        raise EvidenceError("a first error needs the git clone whose commit answers") from None
    return done.stdout.strip()
