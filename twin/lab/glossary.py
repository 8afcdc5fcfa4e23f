"""The glossary: terms, what they mean, and the words that are not used in their place.

`docs/GLOSSARY.md` is its only source; tooltips and the house test of words read it here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from twin.lab.library import ROOT


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its meaning, its unit and the words it stands in place of."""

    name: str
    meaning: str
    unit: str
    instead_of: tuple[str, ...]


@cache
def terms() -> dict[str, Term]:
    """Every term by name, in the order of the page."""
    rows = re.findall(
        r"^\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$",
        (ROOT / "docs" / "GLOSSARY.md").read_text("utf-8"),
        re.MULTILINE,
    )
    cells = [[cell.strip() for cell in row] for row in rows[2:]]  # after the head and its line
    return {
        name: Term(name, meaning, unit, tuple(word.strip() for word in words.split(",") if word))
        for name, meaning, unit, words in cells
    }


def terms_in(text: str) -> list[Term]:
    """The terms that a text uses, in its order: of two that overlap the longer.

    >>> [term.name for term in terms_in("MTP acceptance of a decode pool")]
    ['MTP acceptance', 'decode pool']
    """
    longest_first = sorted(terms(), key=len, reverse=True)
    pattern = rf"\b({'|'.join(map(re.escape, longest_first))})s?\b"
    by_lower = {name.lower(): term for name, term in terms().items()}
    used = (match[1].lower() for match in re.finditer(pattern, text, re.IGNORECASE))
    return [by_lower[name] for name in dict.fromkeys(used)]
