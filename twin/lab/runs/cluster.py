"""Simulations on other machines by Dask, an optional 41 MB. The store is the truth: after a loss,
work without an answer is sent again, its key made of digests. A worker (`python -m twin worker`)
has one warm process (`python -m twin.lab.runs.cluster`), which is killed to stop a task."""

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from twin.hooks import Hook
from twin.lab.runs.process import (
    PEAK_BYTES_MAX,
    Message,
    Piped,
    end_now,
    exit_text,
    listen,
    peak_bytes,
    start_process,
)

SCHEDULER = "TWIN_SCHEDULER"
MISSING = 'TWIN_SCHEDULER needs Dask here: pip install "distributed==2026.8.0"'
CONNECT_S, LOOK_S = 5.0, 0.02
AGAIN = 2  # times that a question is sent again whose process ended, or that a worker refused


class ClusterError(ValueError):
    """A failure of the cluster: one sentence."""


def load_dask() -> Any:
    """The Dask library. Raises ClusterError if it is not installed."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError:
        raise ClusterError(MISSING) from None


def connection_errors() -> tuple[type[BaseException], ...]:
    """Exception classes of Dask that mean a lost connection."""
    client_module = load_dask().client
    return OSError, client_module.ClosedClientError, client_module.FutureCancelledError


def scheduler_address(address: str = "", *, required: bool = False) -> str:
    """Address of the Dask scheduler: the given one, else the environment's, else ''. Raises
    ClusterError for an invalid one, or for none if it is required."""
    address = address or os.environ.get(SCHEDULER, "")
    if (address or required) and not re.fullmatch(r"(tcp|tls)://[^\s/]+:\d+", address):
        raise ClusterError(f"{SCHEDULER} is an address as tcp://host:8786, not {address[:80]!r}")
    return address


class Cluster:
    """One process's connection to the scheduler; safe to share between threads."""

    def __init__(self, address: str):
        """Note the scheduler's address; the first use connects."""
        self.address = address
        self._client: Any = None
        self._lock = threading.Lock()
        self._sent: dict[str, tuple[str, str]] = {}  # what is under way, by key
        self._futures: dict[str, Any] = {}  # of what this connection has sent

    def send(self, key: str, task: str, text: str) -> None:
        """Note a task (name in TASKS) with its text under `key`, once; `answers` submits it."""
        self._sent.setdefault(key, (task, text))

    def answers(self, wait_s: float = 0.0) -> dict[str, str | Exception]:
        """Submit noted tasks; returns new results or errors by key, {} if there are none within
        `wait_s`. Raises ClusterError."""
        with self._lock:
            if not self._sent:
                return {}
            client = self._connect()
            try:
                for task_key, (task, task_text) in list(self._sent.items()):
                    if task_key not in self._futures:
                        arguments = (run_task, task_key, task, task_text)
                        self._futures[task_key] = client.submit(
                            *arguments, key=task_key, retries=AGAIN
                        )
            except connection_errors():
                self._disconnect()
            deadline_s = time.monotonic() + wait_s
            while not any(future.done() for future in self._futures.values()):
                if time.monotonic() >= deadline_s:
                    return {}
                time.sleep(LOOK_S)
            return self._take_answers()

    def _take_answers(self) -> dict[str, str | Exception]:
        """Remove ended tasks; returns their answers or errors, by key."""
        answer_by_key: dict[str, str | Exception] = {}
        for task_key, future in list(self._futures.items()):
            if future.status == "pending":
                continue
            if future.status in ("cancelled", "lost"):  # the scheduler is another, or gone
                self._disconnect()
                break
            try:
                fetch = future.exception if future.status == "error" else future.result
                answer_by_key[task_key] = fetch(timeout=CONNECT_S)
            except TimeoutError:  # its worker is gone: the scheduler has it done once more
                continue
            except connection_errors():
                self._disconnect()
                break
            del self._futures[task_key]
        for task_key in answer_by_key:
            self._sent.pop(task_key, None)
        return answer_by_key

    def stop(self, keys: Iterable[str]) -> None:
        """Cancel tasks by key, whoever submitted them; a process that runs one is killed."""
        with self._lock, suppress(*connection_errors(), ClusterError):  # gone: nothing is at work
            keys_to_stop = list(keys)
            for task_key in keys_to_stop:
                self._sent.pop(task_key, None)
            futures = [
                future
                for task_key in keys_to_stop
                if (future := self._futures.pop(task_key, None)) is not None
            ]
            client = self._connect()
            client.cancel(futures)
            client.run(stop, keys_to_stop, on_error="ignore")

    def worker_count(self) -> int:
        """Number of workers that have joined. Raises ClusterError if no scheduler answers."""
        with self._lock:
            try:
                return len(self._connect().nthreads())
            except connection_errors():
                self._disconnect()
                return 0

    def close(self, *, kill: bool = True) -> None:
        """Disconnect; running tasks continue or (kill) are stopped."""
        if kill and self._sent:
            self.stop(list(self._sent))
        with self._lock:
            self._disconnect()

    def _connect(self) -> Any:
        """The Dask client of the scheduler, connected again if it was lost. Raises ClusterError."""
        if self._client is not None and self._client.status != "running":
            self._disconnect()
        if self._client is None:
            dask = load_dask()
            try:
                self._client = dask.Client(self.address, timeout=CONNECT_S, set_as_default=False)
            except OSError:
                raise ClusterError(f"no scheduler answers at {self.address}") from None
        return self._client

    def _disconnect(self) -> None:
        """Close the connection; tasks that were sent stay noted."""
        client, self._client = self._client, None
        self._futures.clear()
        if client is not None:
            with suppress(*connection_errors()):
                client.close(timeout=1)


log = logging.getLogger(__name__)

# What can be done: text in, text out.
TASKS = {
    "warm": "twin.lab.runs.job:warm_up",
    "run": "twin.lab.runs.job:carry_out",
    "trial": "twin.lab.plan.drive:simulate_text",
}
REJOIN_S = 1.0
# What Dask measures of itself would take a core's twentieth from what simulates.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}


class Child:
    """A simulating process, started when needed; it handles one text at a time."""

    def __init__(self) -> None:
        """Note that no process runs yet: the first task starts it."""
        self._lock = threading.Lock()
        self._process: Piped | None = None
        self._replies: SimpleQueue[Message | None] = SimpleQueue()
        self._key = ""

    def answer(self, task: str, text: str, key: str = "") -> str:
        """Result of a task (name in TASKS) on a text; key: for `stop`. Raises ClusterError."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._replies = SimpleQueue()
                self._process = Piped(start_process("twin.lab.runs.cluster"), self._replies.put)
            self._key = key
            try:
                self._process.say({"what": task, "text": text})
                reply = self._replies.get()  # None once it has ended, also where it hung
            finally:
                self._key = ""
            if reply is None:
                exit_status = self._process.wait()
                raise ClusterError(f"a process that simulated ended ({exit_text(exit_status)})")
            if reply[0]["last"]:
                self._process.wait()
        if "refused" in reply[0]:
            raise ClusterError(reply[0]["refused"])
        return str(reply[0]["answer"])

    def stop(self, keys: Collection[str]) -> None:
        """Kill the process if it works on one of these keys."""
        if self._key and self._key in keys and self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process, even during work."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


CHILD = Child()  # of this worker


def run_task(key: str, task: str, text: str) -> str:
    """Run a task (name in TASKS) on a text in this worker's process; called by the scheduler."""
    return CHILD.answer(task, text, key)


def stop(keys: Collection[str]) -> None:
    """Stop this worker's task if it has one of these keys."""
    CHILD.stop(keys)


async def work_for(address: str) -> None:
    """Work for the scheduler at an address until stopped; if it ends, for the next one there."""
    dask = load_dask()
    import_module("dask").config.set(QUIET)
    threading.Thread(target=CHILD.answer, args=("warm", ""), daemon=True).start()
    while True:
        try:
            worker = dask.Worker(address, nthreads=1, memory_limit=None, dashboard=False,
                                    death_timeout=10)  # fmt: skip
            async with worker:
                log.info("works for %s", address)
                await worker.finished()
        except (OSError, TimeoutError) as error:
            log.warning("no scheduler at %s: %s", address, error)
        await asyncio.sleep(REJOIN_S)


def serve(address: str) -> None:
    """Work for the scheduler at an address until Ctrl-C."""
    logging.basicConfig(level=logging.WARNING, format="cluster %(process)d: %(message)s")
    log.setLevel(logging.INFO)
    os.nice(5)  # pages and scheduler on the same machine stay quick
    try:
        asyncio.run(work_for(address))
    except KeyboardInterrupt:
        log.info("stopped")
    finally:
        CHILD.close()


def main() -> None:
    """Run tasks from standard input one by one, until it ends or this process is too large."""
    logging.basicConfig(level=logging.INFO, format="simulating %(process)d: %(message)s")
    task_queue: SimpleQueue[dict[str, str]] = SimpleQueue()
    # It ends with its input: the answer would go nowhere, and another may begin the same.
    say = listen(task_queue.put)
    is_last_task = False
    while not is_last_task:
        task = task_queue.get()
        try:
            reply = {"answer": Hook("done", TASKS[task["what"]]).load()(task["text"])}
        except ValueError as error:
            if not type(error).__module__.startswith("twin."):
                log.exception("a process that simulates failed")
            reply = {"refused": str(error)}
        is_last_task = peak_bytes() > PEAK_BYTES_MAX
        say({**reply, "last": is_last_task})
    end_now()


if __name__ == "__main__":
    main()
