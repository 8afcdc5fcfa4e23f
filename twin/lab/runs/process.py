"""Processes: started; spoken with over standard input and output (lines of JSON go in; messages, a
line of JSON and then tables, and heartbeats, empty lines, come out); and measured."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import polars as pl

from twin.lab.library import ROOT, facts_environment

log = logging.getLogger(__name__)

PEAK_BYTES_MAX = 2e9  # a process that grew beyond this gives its memory back by ending
# A process that for so long neither says that it lives nor takes processor time hangs.
HUNG_S = 30.0
# One run uses one core; more threads would only fight over it.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "NUMBA")}
ONE_THREAD["POLARS_MAX_THREADS"] = "1"
PROC = Path("/proc")
STATUS, SYSTEM = PROC / "self/status", PROC / "meminfo"
# What is imported stays: to search it for garbage takes a sixth of a process's start.
RUN_MODULE = """import gc, runpy, sys
gc.set_threshold(100_000, 50, 100)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
BEAT_S = 1.0  # between two heartbeats

Message = tuple[dict[str, Any], dict[str, pl.DataFrame]]
Say = Callable[..., None]  # a head, and tables if there are any


def command_of(module: str, *words: str) -> list[str]:
    """Command line that runs a module of the twin as `python -m` does; words: its arguments."""
    return [sys.executable, "-X", "faulthandler", "-c", RUN_MODULE, module, *words]


def start_process(module: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process of a module of the twin, with pipes to its standard input and output."""
    return subprocess.Popen(
        command_of(module, *words),
        cwd=ROOT,
        # Its folder is another one, so files are named by absolute paths.
        env={**os.environ, **ONE_THREAD, **facts_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C meant for the server does not end a run
    )


def cores() -> int:
    """Number of cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def exit_text(code: int) -> str:
    """End of a process in words, from its exit status (negative: a signal)."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def processor_time(pid: int) -> str:
    """User and system time of a process as text, in clock ticks; '' if unknown."""
    try:
        stat_line = PROC.joinpath(str(pid), "stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    return " ".join(stat_line.rpartition(")")[2].split()[11:13])


def peak_bytes() -> int:
    """Most resident bytes of this process; 0 if unknown. `ru_maxrss` includes the parent's."""
    if STATUS.exists():
        return _kilobytes(STATUS, "VmHWM:") * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_rss if sys.platform == "darwin" else peak_rss * 1024


def resident_bytes() -> int:
    """Resident memory of this process now, in bytes; 0 if unknown."""
    return _kilobytes(STATUS, "VmRSS:") * 1024


def available_bytes() -> float:
    """Memory available to programs, in bytes; infinite if unknown."""
    return _kilobytes(SYSTEM, "MemAvailable:") * 1024 or float("inf")


def total_bytes() -> float:
    """Memory of the whole machine in bytes; infinite if unknown."""
    return _kilobytes(SYSTEM, "MemTotal:") * 1024 or float("inf")


def _kilobytes(path: Path, name: str) -> int:
    """The figure of the line that begins with `name` in a file of /proc, in kB; 0 without one."""
    if not path.exists():
        return 0
    lines = path.read_text("utf-8", "replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


class Piped:
    """A started process as its starter sees it: lines of JSON go in, messages come out."""

    def __init__(
        self, process: subprocess.Popen[bytes], receive: Callable[[Message | None], object]
    ) -> None:
        """Begin to listen: `receive` gets each message, None at the end, on a thread."""
        self.pid, self.poll, self.wait = process.pid, process.poll, process.wait
        self.kill = process.kill
        self.hung = False  # whether it was killed because it hung
        self._process = process
        self._lines = 0
        for loop, arguments in ((self._listen, (receive,)), (self._watch, ())):
            threading.Thread(target=loop, args=arguments, daemon=True).start()

    def _listen(self, receive: Callable[[Message | None], object]) -> None:
        """Pass messages to `receive` until the output ends; runs on a thread."""
        process_output = self._process.stdout
        assert process_output is not None
        with process_output:
            for line in process_output:
                self._lines += 1
                if line.strip():
                    receive(unpack_message(line, process_output))
        receive(None)

    def say(self, value: object = None) -> None:
        """Send a value to the process as a line of JSON; nothing happens if it is gone."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()

    def close_input(self) -> None:
        """Close the input of the process, which then ends after the work that it must finish."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _watch(self) -> None:
        """Kill the process once it hangs, without heartbeat or processor time; runs on a thread."""
        silent_s, life_signs = 0.0, (0, "")
        while self.poll() is None and not self.hung:
            time.sleep(BEAT_S)  # time is counted in beats, because this machine may have slept
            last_signs, life_signs = life_signs, (self._lines, processor_time(self.pid))
            silent_s = silent_s + BEAT_S if life_signs == last_signs else 0.0
            if silent_s > HUNG_S:
                log.error("process %d hung for %.0f s and was killed", self.pid, HUNG_S)
                self.hung = True
                self.kill()


def end_now() -> None:
    """End this process at once, whatever its threads do."""
    os._exit(0)


def listen(hear: Callable[[Any], object], end: Callable[[], object] = end_now) -> Say:
    """Begin to listen to standard input on a thread: `hear` gets each value, `end` is called at its
    end. Returns a function that sends a message from any thread."""
    # What a library prints must not come between messages.
    message_stream, write_lock = os.fdopen(os.dup(1), "wb"), threading.Lock()
    os.dup2(2, 1)

    def write(data: bytes) -> None:
        """Write bytes to the output as a whole, from any thread."""
        with write_lock, suppress(BrokenPipeError):
            message_stream.write(data)
            message_stream.flush()

    def read() -> None:
        """Pass values of the input to `hear` until it ends."""
        for line in sys.stdin:  # not its buffer, which Python's own end would wait for in vain
            hear(json.loads(line))
        end()

    def beat() -> None:
        """Write a heartbeat every `BEAT_S`."""
        while True:
            write(b"\n")
            time.sleep(BEAT_S)

    for loop in (read, beat):
        threading.Thread(target=loop, daemon=True).start()
    return lambda head, tables={}: write(pack_message(head, tables))


def pack_message(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> bytes:
    """Bytes of a message: a line of JSON that ends with tables' sizes, then the tables as Arrow."""
    table_bytes = {}
    for table_name, frame in tables.items():
        table_file = io.BytesIO()
        frame.write_ipc(table_file)
        table_bytes[table_name] = table_file.getvalue()
    sizes = {table_name: len(table_content) for table_name, table_content in table_bytes.items()}
    return json.dumps({**head, "tables": sizes}).encode() + b"\n" + b"".join(table_bytes.values())


def unpack_message(line: bytes, stream: IO[bytes]) -> Message:
    """Head and tables of the message that begins with a line; tables are read from the stream."""
    head = json.loads(line)
    size_by_table = head.pop("tables")
    return head, {
        name: pl.read_ipc(io.BytesIO(stream.read(size))) for name, size in size_by_table.items()
    }
