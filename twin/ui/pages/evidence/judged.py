"""The published rows with the twin's answers, worked out once a process. That takes seconds, which
a thread would take from every page: so a server that has started has another process do it, and a
page that comes before shows what the record says."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from twin.lab import library
from twin.lab.evidence.judge import evidence, recorded
from twin.ui.pages.evidence import proof

log = logging.getLogger(__name__)

AFTER_S = 10.0  # the first pages come first
COMMAND = (sys.executable, "-m", "twin", "evidence", "--json")
_STOPS: list[Callable[[], object]] = []
_ONE = threading.Lock()
_KNOWN: dict[str, list[dict[str, Any]]] = {}  # by digest of the facts
_FAILED: set[str] = set()  # facts whose answers another process did not give


def answers() -> list[dict[str, Any]]:
    """Every published row, judged; shared, so never changed. Raises EvidenceError."""
    facts = library.load_facts()
    with _ONE:
        if facts.digest not in _KNOWN:
            _KNOWN[facts.digest] = proof.by_regime(evidence(facts))
        return _KNOWN[facts.digest]


def at_once() -> tuple[list[dict[str, Any]], bool]:
    """What is known now, and whether it is worked out: else it is the record's, and another process
    is at work. Raises EvidenceError."""
    if ready() or not (kept := proof.by_regime(recorded(library.load_facts()))):
        return answers(), True
    if not _ONE.locked():
        stopped = threading.Event()
        _STOPS.append(stopped.set)
        threading.Thread(target=_elsewhere, args=(stopped,), daemon=True).start()
    return kept, False


def ready() -> bool:
    """Whether the answers are known, or only the page itself can work them out."""
    digest = library.load_facts().digest
    return digest in _KNOWN or digest in _FAILED


def prepare() -> None:
    """Have the answers worked out in the background, a while from now."""
    stopped = threading.Event()
    timer = threading.Timer(AFTER_S, _elsewhere, (stopped,))
    timer.daemon = True
    timer.start()
    _STOPS.extend((timer.cancel, stopped.set))


def stop() -> None:
    """Nobody is left to ask: what is prepared is given up, with the process that works it out."""
    for each in _STOPS:
        each()


def _elsewhere(stopped: threading.Event) -> None:
    """Take the answers of a process of their own; without any the page works them out itself."""
    with _ONE:
        digest = library.load_facts().digest
        if digest in _KNOWN:
            return
        environment = {**os.environ, **library.facts_environment()}
        with subprocess.Popen(
            COMMAND, cwd=library.ROOT, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:  # fmt: skip
            _STOPS.append(child.kill)
            if stopped.is_set():  # while the process began: nobody could stop it yet
                child.kill()
            written, errors = child.communicate()
        if child.returncode > 0:  # below: it was stopped with the server
            log.warning("published rows: %s", errors.decode("utf-8", "replace")[-500:])
            _FAILED.add(digest)
        if child.returncode == 0:
            _KNOWN[digest] = proof.by_regime(json.loads(written))
