"""Simulations on other machines by Dask, an optional 41 MB. The store is the truth: after a loss,
work without an answer is sent again, its key made of digests."""

import os
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from twin.hooks import Hook

SCHEDULER = "TWIN_SCHEDULER"
MISSING = 'TWIN_SCHEDULER needs Dask here: pip install "distributed==2026.8.0"'
WORK, STOP = "twin.lab.runs.worker:work", "twin.lab.runs.worker:stop"
CONNECT_S, LOOK_S = 5.0, 0.02
AGAIN = 2  # times that a question is sent again whose process ended, or that a worker refused


class ClusterError(ValueError):
    """A failure of the cluster: one sentence."""


def dask() -> Any:
    """The Dask library. Raises ClusterError if it is not installed."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError:
        raise ClusterError(MISSING) from None


def lost() -> tuple[type[BaseException], ...]:
    """Exceptions that mean a lost connection."""
    client = dask().client
    return OSError, client.ClosedClientError, client.FutureCancelledError


def scheduler(address: str = "", *, required: bool = False) -> str:
    """The scheduler's address, else that of the environment, else ''. Raises ClusterError."""
    address = address or os.environ.get(SCHEDULER, "")
    if (address or required) and not re.fullmatch(r"(tcp|tls)://[^\s/]+:\d+", address):
        raise ClusterError(f"{SCHEDULER} is an address as tcp://host:8786, not {address[:80]!r}")
    return address


class Cluster:
    """One process's connection to the scheduler; safe to share between threads."""

    def __init__(self, address: str):
        """Connects at first use."""
        self.address = address
        self._client: Any = None
        self._lock = threading.Lock()
        self._sent: dict[str, tuple[str, str]] = {}  # what is under way, by key
        self._futures: dict[str, Any] = {}  # of what this connection has sent

    def send(self, key: str, what: str, text: str) -> None:
        """Submit work (`worker.DONE`) on a text to a free worker; running work continues."""
        self._sent.setdefault(key, (what, text))

    def answers(self, wait_s: float = 0.0) -> dict[str, str | Exception]:
        """Results finished since the last call, waiting at most `wait_s`. Raises ClusterError."""
        with self._lock:
            if not self._sent:
                return {}
            client, work = self._connected(), Hook("work", WORK).load()
            try:
                for key, (task, text) in list(self._sent.items()):
                    if key not in self._futures:
                        self._futures[key] = client.submit(
                            work, key, task, text, key=key, retries=AGAIN
                        )
            except lost():
                self._drop()
            until_s = time.monotonic() + wait_s
            while not any(f.done() for f in self._futures.values()):
                if time.monotonic() >= until_s:
                    return {}
                time.sleep(LOOK_S)
            return self._ended()

    def _ended(self) -> dict[str, str | Exception]:
        """Answers of futures that ended, or their errors, by key."""
        ended: dict[str, str | Exception] = {}
        for key, future in list(self._futures.items()):
            if future.status == "pending":
                continue
            if future.status in ("cancelled", "lost"):  # the scheduler is another, or gone
                self._drop()
                break
            try:
                if future.status == "error":
                    ended[key] = future.exception(timeout=CONNECT_S)
                else:
                    ended[key] = future.result(timeout=CONNECT_S)
            except TimeoutError:  # its worker is gone: the scheduler has it done once more
                continue
            except lost():
                self._drop()
                break
            del self._futures[key]
        for key in ended:
            self._sent.pop(key, None)
        return ended

    def stop(self, keys: Iterable[str]) -> None:
        """Cancel work, whoever submitted it; a process that runs it is killed."""
        with self._lock, suppress(*lost(), ClusterError):  # gone: nothing is at work
            keys_to_stop = list(keys)
            for key in keys_to_stop:
                self._sent.pop(key, None)
            futures = [f for key in keys_to_stop if (f := self._futures.pop(key, None)) is not None]
            client = self._connected()
            client.cancel(futures)
            client.run(Hook("stop", STOP).load(), keys_to_stop, on_error="ignore")

    def workers(self) -> int:
        """Workers that have joined. Raises ClusterError where no scheduler answers."""
        with self._lock:
            try:
                return len(self._connected().nthreads())
            except lost():
                self._drop()
                return 0

    def close(self, *, kill: bool = True) -> None:
        """Disconnect; running work continues or is killed."""
        if kill and self._sent:
            self.stop(list(self._sent))
        with self._lock:
            self._drop()

    def _connected(self) -> Any:
        """The client of the scheduler, connected again if it was lost."""
        if self._client is not None and self._client.status != "running":
            self._drop()
        if self._client is None:
            library = dask()
            try:
                self._client = library.Client(self.address, timeout=CONNECT_S, set_as_default=False)
            except OSError:
                raise ClusterError(f"no scheduler answers at {self.address}") from None
        return self._client

    def _drop(self) -> None:
        """Close the connection; submitted work stays known."""
        client, self._client = self._client, None
        self._futures.clear()
        if client is not None:
            with suppress(*lost()):
                client.close(timeout=1)
