"""The published rows with the twin's answers: worked out once a process, before somebody asks.

All rows together take seconds, so a process that has started begins with them when the first pages
are drawn; whoever opens the Evidence page earlier waits for the same answers, not for a second
working-out of them.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from twin.facts import FactError
from twin.lab import evidence, library
from twin.ui.pages.evidence import proof

AFTER_S = 10.0  # the first pages come first
_ONE = threading.Lock()


def answers() -> list[dict[str, Any]]:
    """Every published row, judged; shared, so never changed. Raises EvidenceError."""
    with _ONE:
        return _answers(library.load_facts().digest)


@lru_cache(maxsize=4)
def _answers(digest: str) -> list[dict[str, Any]]:
    return proof.by_regime(evidence.evidence(library.load_facts()))


def prepare() -> None:
    """Work the answers out in the background, a while from now."""
    timer = threading.Timer(AFTER_S, _quietly)
    timer.daemon = True
    timer.start()


def _quietly() -> None:
    try:
        answers()
    except (evidence.EvidenceError, FactError, ValueError):
        return  # the page works it out again and says what is wrong
