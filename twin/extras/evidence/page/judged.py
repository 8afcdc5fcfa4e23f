"""Rows with the twin's answers: the shipped ones, or ones that another process made once."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from twin.extras.evidence.page import proof
from twin.lab import library
from twin.lab.evidence.judge import evidence
from twin.lab.share.shipped import shipped_evidence

log = logging.getLogger(__name__)

AFTER_S = 10.0  # the first pages come first
COMMAND = (sys.executable, "-m", "twin", "evidence", "--json")
_STOPS: list[Callable[[], object]] = []
_ONE = threading.Lock()
_KNOWN: dict[str, list[dict[str, Any]]] = {}  # by digest of the facts


def answers() -> list[dict[str, Any]]:
    """Judged published rows; shared, so never changed. Raises EvidenceError."""
    facts = library.load_facts()
    with _ONE:
        if facts.digest not in _KNOWN:
            _KNOWN[facts.digest] = proof.by_regime(shipped_evidence(facts) or evidence(facts))
        return _KNOWN[facts.digest]


def prepare() -> None:
    """Start computing the answers in the background, after a delay."""
    stopped = threading.Event()
    timer = threading.Timer(AFTER_S, _elsewhere, (stopped,))
    timer.daemon = True
    timer.start()
    _STOPS.extend((timer.cancel, stopped.set))


def stop() -> None:
    """Cancel the preparation and end its process."""
    for each in _STOPS:
        each()


def _elsewhere(stopped: threading.Event) -> None:
    """Compute the answers in a separate process and store them; without them the page computes them
    itself."""
    with _ONE:
        facts = library.load_facts()
        digest = facts.digest
        if digest in _KNOWN:
            return
        if shipped := shipped_evidence(facts):
            _KNOWN[digest] = proof.by_regime(shipped)
            return
        environment = {**os.environ, **library.facts_environment()}
        with subprocess.Popen(
            COMMAND, cwd=library.ROOT, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:  # fmt: skip
            _STOPS.append(child.kill)
            if stopped.is_set():  # while the process began: nothing could stop it yet
                child.kill()
            written, errors = child.communicate()
        if child.returncode > 0:  # below: it was stopped with the server
            log.warning("published rows: %s", errors.decode("utf-8", "replace")[-500:])
        if child.returncode == 0:
            _KNOWN[digest] = proof.by_regime(json.loads(written))
