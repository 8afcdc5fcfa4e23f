"""Every reader of what a stranger may hand in: bytes in, a value or the reader's own sentence out.

`SOUND` holds small sound files of every format, made here: what the fuzzer begins with.
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.doors.on_disk import brought, on_disk
from tests.hardware.test_machine_file import HEAD
from tests.lab import test_traces as traces
from twin.facts import FactError
from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.graph_text import forms
from twin.hardware.machine_file import fabric_text
from twin.hardware.network import Network
from twin.lab.ask import settings_from
from twin.lab.kinds import CountsTable
from twin.lab.library import (
    CALIBRATION,
    DATA,
    SCENARIOS,
    _with_private_constants,
    load_facts,
    published_table,
    scenario_from_toml,
)
from twin.lab.machines import build_machine, read_machine
from twin.lab.share import links
from twin.lab.store import Store, StoreError, open_store
from twin.lab.store.archive import read_archive, write_archive
from twin.lab.traces.reader import read_trace, trace_figures
from twin.lab.traces.source import TraceError
from twin.scenario import Scenario, SpecError, scenario_from_canonical, with_overrides

NO_STORE: Any = SimpleNamespace(machines=SimpleNamespace(save=lambda machine: None))


@cache
def _template() -> bytes:
    """A database that was migrated once."""
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/twin.db").close()
        return (Path(folder) / "twin.db").read_bytes()


@contextmanager
def _empty_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "twin.db").write_bytes(_template())
        store = open_store(f"sqlite:///{folder}/twin.db")
        yield store
        store.close()


def _chip(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        chips = Path(folder) / "chips"
        chips.mkdir()
        (chips / "mine.toml").write_bytes(data)
        return load_chip(load_facts(Path(folder)), "mine")


def _link(data: bytes) -> object:
    return links.open_scenario({links.PORTABLE: data.decode("latin-1")}, NO_STORE, id)


def _query(data: bytes) -> object:
    name = data.decode("utf-8", "replace")
    with _empty_store() as store:
        found = links.open_run({links.RUN: name}, store)
        if not isinstance(found, links.NotHere):
            assert found is None and not name
        return links.open_runs({links.RUNS: name}, store)


def _settings(data: bytes) -> object:
    return with_overrides(Scenario(), settings_from([data.decode("utf-8", "replace")]))


def _calibration(data: bytes) -> object:
    known = published_table(CALIBRATION)
    return on_disk(lambda path: _with_private_constants(path, known), "mine.toml")(data)


def _archive(data: bytes) -> object:
    with _empty_store() as store:
        moved = read_archive(store, io.BytesIO(data), "library.tar")
        assert store.find_damage() == []
        for sentence in moved.left_out:
            raise StoreError(sentence)
        return moved


def _trace(data: bytes) -> object:
    return trace_figures(read_trace(data, "trace"))


# Reader, and the errors that are its sentences.
READERS: dict[str, tuple[Callable[[bytes], object], tuple[type[Exception], ...]]] = {
    "scenario": (lambda data: scenario_from_toml(data, "a.toml"), (SpecError,)),
    "canonical": (lambda data: scenario_from_canonical(data.decode("utf-8", "replace")),
                  (SpecError,)),
    "settings": (_settings, (SpecError,)),
    "link": (_link, (links.ShareError,)),
    "query": (_query, (links.ShareError,)),
    "trace": (_trace, (TraceError,)),
    "trace file": (on_disk(read_trace, "trace"), (TraceError,)),
    "machine": (lambda data: read_machine(data, "machine"), (HardwareError,)),
    "chip": (_chip, (FactError, HardwareError)),
    "calibration": (_calibration, (FactError,)),
    "library": (_archive, (StoreError,)),
}  # fmt: skip
for extra in brought():
    READERS |= getattr(extra, "READERS", {})


def _machines(fabric: Network) -> list[tuple[str, bytes]]:
    small = (DATA / "examples" / "two-boards.csv").read_bytes()
    loaded = [({"graphml": "xml"}.get(form, form), fabric_text(fabric, form).encode())
              for form in forms()]  # fmt: skip
    cables = HEAD + "die 0.0.0,die 1.0.0,3,1,ub"
    return [("csv", small), ("csv", cables.encode()), *loaded]


def _library() -> bytes:
    with _empty_store() as store:
        store.counts.save(CountsTable("a.csv", "csv", np.array([[1.0, 2.0], [3.0, 4.0]])))
        store.scenarios.save(Scenario(name="a"))
        file = io.BytesIO()
        write_archive(store, file)
        return file.getvalue()


def sound() -> dict[str, list[tuple[str, bytes]]]:
    """Of every reader some sound inputs: (form, bytes)."""
    tomls = [path.read_bytes() for path in sorted(SCENARIOS.glob("*.toml"))[::8]]
    shaped = {"mooncake": "jsonl", "bailian": "jsonl", "ragpulse": "jsonl", "weka": "json"}
    streams = [(shaped.get(name, "binary" if name == "servegen" else "csv"), data)
               for name, data in traces.FILES.items()]  # fmt: skip
    canonical = b'{"scenario":{"seed":3,"workload":{"rate_req_per_s":5.0}},"schema":2}'
    fabric = build_machine("hgx-h20", load_facts())
    link = links.pack_scenario(scenario_from_toml(tomls[1])).encode()
    files = {
        "scenario": [("toml", text) for text in tomls],
        "canonical": [("json", canonical)],
        "settings": [("binary", b'workload.arrivals="gamma"'), ("binary", b"seed=3")],
        "link": [("link", link)],
        "query": [("binary", b"AbCdEfGhIjKlMnOpQrStUvWx"),
                  ("binary", b"a" * 22 + b"," + b"b" * 22)],
        "trace": streams,
        "trace file": streams[:2],
        "machine": _machines(fabric),
        "chip": [("toml", (DATA / "chips" / "h800.toml").read_bytes())],
        "calibration": [("toml", CALIBRATION.read_bytes())],
        "library": [("binary", _library())],
    }  # fmt: skip
    for extra in brought():
        for name, own in extra.sound().items() if hasattr(extra, "sound") else ():
            files[name] = own + files.get(name, [])
    return files


def warm() -> None:
    """What every reading needs, for a fork to find; nothing that leaves a thread behind."""
    load_facts()
    _template()
    READERS["trace"][0](traces.FILES["mooncake"])  # compiled code
    for extra in brought():
        getattr(extra, "warm", lambda: None)()
