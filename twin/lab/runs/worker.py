"""A worker of Dask (`python -m twin worker`) with one warm process (`python -m
twin.lab.runs.worker`), which is killed to stop a task and ends with its input."""

import asyncio
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue

from twin.hooks import Hook
from twin.lab.runs.cluster import ClusterError, dask
from twin.lab.runs.process import (
    HUNG_S,
    PEAK_BYTES_MAX,
    how_ended,
    peak_bytes,
    processor_time,
    start_process,
)

log = logging.getLogger(__name__)

# What can be done: text in, text out.
DONE = {
    "warm": "twin.lab.runs.job:warm_up",
    "run": "twin.lab.runs.job:carry_out",
    "trial": "twin.lab.plan.drive:trial",
    "prices": "twin.lab.plan.drive:prices",
}
BEAT_S = 1.0  # between two signs of life of a process at work
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
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._key = ""

    def answer(self, what: str, text: str, key: str = "") -> str:
        """Result of the work `what` of `DONE` on a text. Raises ClusterError."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = start_process("twin.lab.runs.worker")
            self._key = key
            try:
                reply = json.loads(_exchanged(self._process, {"what": what, "text": text}))
            finally:
                self._key = ""
            if reply["last"]:
                self._process.wait()
        if "refused" in reply:
            raise ClusterError(reply["refused"])
        answer: str = reply["answer"]
        return answer

    def stop(self, keys: Collection[str]) -> None:
        """Kill the process if it works on one of these."""
        if self._key and self._key in keys and self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process, even during work."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


CHILD = Child()  # of this worker


def work(key: str, what: str, text: str) -> str:
    """The task that the scheduler distributes."""
    return CHILD.answer(what, text, key)


def stop(keys: Collection[str]) -> None:
    """Stop tasks of this worker."""
    CHILD.stop(keys)


def _exchanged(process: subprocess.Popen[bytes], wanted: dict[str, str]) -> bytes:
    """The answering line; empty lines are heartbeats."""
    assert process.stdin is not None and process.stdout is not None
    source, text, silent_s, heartbeat = process.stdout.fileno(), b"", 0.0, ""
    with suppress(BrokenPipeError):  # it has ended: so has its output
        process.stdin.write(json.dumps(wanted).encode() + b"\n")
        process.stdin.flush()
    while True:
        if select.select([source], [], [], BEAT_S)[0]:
            data = os.read(source, 1 << 16)
            if not data:
                raise ClusterError(f"a process that simulated ended ({how_ended(process.wait())})")
            text, silent_s = (text + data).lstrip(b"\n"), 0.0
            if text.endswith(b"\n"):
                return text
            continue
        now = processor_time(process.pid)
        silent_s, heartbeat = (silent_s + BEAT_S if now == heartbeat else 0.0), now
        if silent_s > HUNG_S:
            process.kill()


async def joined(address: str) -> None:
    """Work for the scheduler of an address, and for the next one there when it is gone, until
    stopped. The process stays warm meanwhile."""
    library = dask()
    import_module("dask").config.set(QUIET)
    threading.Thread(target=CHILD.answer, args=("warm", ""), daemon=True).start()
    while True:
        try:
            worker = library.Worker(address, nthreads=1, memory_limit=None, dashboard=False,
                                    death_timeout=10)  # fmt: skip
            async with worker:
                log.info("works for %s", address)
                await worker.finished()
        except (OSError, TimeoutError) as error:
            log.warning("no scheduler at %s: %s", address, error)
        await asyncio.sleep(REJOIN_S)


def serve(address: str) -> None:
    """Work as `work`, started by a command, until Ctrl-C."""
    logging.basicConfig(level=logging.WARNING, format="cluster %(process)d: %(message)s")
    log.setLevel(logging.INFO)
    os.nice(5)  # pages and scheduler on the same machine stay quick
    try:
        asyncio.run(joined(address))
    except KeyboardInterrupt:
        log.info("stopped")
    finally:
        CHILD.close()


def main() -> None:
    """Answer one text after the other until the input ends."""
    logging.basicConfig(level=logging.INFO, format="simulating %(process)d: %(message)s")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
    one_line = threading.Lock()
    texts: SimpleQueue[bytes] = SimpleQueue()
    at_work = threading.Event()

    def listen() -> None:
        for line in sys.stdin.buffer:
            texts.put(line)
        os._exit(0)  # at once: the answer would go nowhere, and another may begin the same

    def write(line: bytes) -> None:
        with one_line:
            answers.write(line + b"\n")

    def live() -> None:
        while at_work.wait():
            write(b"")
            time.sleep(BEAT_S)

    threading.Thread(target=listen, daemon=True).start()
    threading.Thread(target=live, daemon=True).start()
    last = False
    while not last:
        work = json.loads(texts.get())
        at_work.set()
        try:
            reply = {"answer": Hook("done", DONE[work["what"]]).load()(work["text"])}
        except ValueError as error:
            if not type(error).__module__.startswith("twin."):
                log.exception("a process that simulates failed")
            reply = {"refused": str(error)}
        at_work.clear()
        last = peak_bytes() > PEAK_BYTES_MAX
        write(json.dumps({**reply, "last": last}).encode())
    os._exit(0)  # `listen` still reads: Python's own end would fail for that


if __name__ == "__main__":
    main()
