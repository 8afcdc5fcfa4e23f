"""Reading in a process that may be killed: what it answered, how long it took, and its memory.

`python -m tests.doors.sandbox` imports every reader once and forks for each input, so that one
costs milliseconds; the child has hard limits of address space and processor time. `Sandbox` is
the other end. Nothing that is read reaches the process that asks.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import astuple, dataclass
from types import TracebackType
from typing import IO

from tests.conftest import ROOT
from twin.lab.runs.process import STATUS

SPARE_BYTES = 1 << 30  # of address space beyond that of the idle process
CPU_S = 20
ONE_THREAD = {name: "1" for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX")}
LONGEST = 4000  # characters of an answer: of a machine it names twenty faults


@dataclass(frozen=True)
class Outcome:
    """How an input was met. kind: 'value', 'refused', 'crashed' or 'killed'."""

    kind: str
    said: str
    cpu_s: float
    grown_mb: float  # of resident memory, at most

    @property
    def proper(self) -> bool:
        """A value, or one sentence."""
        one = 0 < len(self.said) <= LONGEST and "\n" not in self.said and self.said.isprintable()
        return self.kind == "value" or (self.kind == "refused" and one)


class Sandbox:
    """A process that reads what it is given; a context."""

    def __enter__(self) -> Sandbox:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.doors.sandbox"],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._process.kill()
        self._process.communicate()

    def read(self, reader: str, data: bytes) -> Outcome:
        """What a reader makes of some bytes."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([reader, len(data)]).encode() + b"\n" + data)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        return Outcome(*json.loads(line))


def _status(name: str) -> int:
    """A figure of this process's memory, bytes."""
    lines = STATUS.read_text("utf-8", "replace").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def _answer(reader: str, data: bytes) -> Outcome:
    """Read, in a child of the child that is thrown away afterwards."""
    from tests.doors.readers import READERS

    read, refusals = READERS[reader]
    before = _status("VmRSS:")
    space = _status("VmSize:") + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    signal.alarm(6 * CPU_S)  # whoever waits for what never comes is killed too
    begun_s = time.process_time()
    try:
        read(data)
        kind, said = "value", ""
    except refusals as error:
        kind, said = "refused", str(error)
    except MemoryError:
        kind, said = "crashed", "out of memory"
    except BaseException:
        kind, said = "crashed", traceback.format_exc(limit=-6)
    return Outcome(
        kind, said, time.process_time() - begun_s, max(0, _status("VmHWM:") - before) / 1e6
    )


def _forked(reader: str, data: bytes) -> Outcome:
    begin, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(begin)
        outcome = _answer(reader, data)
        with os.fdopen(end, "wb") as out:
            out.write(json.dumps(astuple(outcome)).encode())
        os._exit(0)
    os.close(end)
    with os.fdopen(begin, "rb") as told:
        text = told.read()
    _, status = os.waitpid(child, 0)
    if not text:
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else str(status)
        return Outcome("killed", name, CPU_S, SPARE_BYTES / 1e6)
    return Outcome(*json.loads(text))


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    from tests.doors.readers import READERS, warm

    assert READERS
    warm()
    while line := requests.readline():
        reader, size = json.loads(line)
        outcome = _forked(reader, requests.read(size))
        answers.write(json.dumps(astuple(outcome)).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
