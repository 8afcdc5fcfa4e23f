"""The library: facts and preset scenarios, read from disk.

The only module that opens `data/*.toml` and `scenarios/*.toml`.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from twin.facts import Facts, facts_from_tables

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
SCENARIOS = ROOT / "scenarios"
NOT_FACTS = {"published"}  # lists of measured rows, read by lab.evidence


@lru_cache(maxsize=4)
def load_facts(folder: Path = DATA) -> Facts:
    """All facts below a folder; `chips/ascend-910c.toml` becomes `chips.ascend-910c.*`."""
    tables: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.toml")):
        *parents, stem = path.relative_to(folder).with_suffix("").parts
        if stem in NOT_FACTS:
            continue
        here = tables
        for part in parents:
            here = here.setdefault(part, {})
        here[stem] = tomllib.loads(path.read_text("utf-8"))
    return facts_from_tables(tables)
