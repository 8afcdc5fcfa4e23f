"""A process and who started it, over its standard input and output: lines of JSON go in; messages
(a line of JSON, then tables) and heartbeats (empty lines) come out."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

import polars as pl

from twin.lab.runs.process import processor_time

BEAT_S = 1.0  # between two heartbeats

Message = tuple[dict[str, Any], dict[str, pl.DataFrame]]
Say = Callable[..., None]  # a head, and tables if there are any


class Piped:
    """The starter's side of a process."""

    def __init__(
        self, process: subprocess.Popen[bytes], hear: Callable[[Message | None], object]
    ) -> None:
        """Begin to listen: `hear` gets each message, None at the end, on a thread."""
        self.pid, self.poll, self.wait = process.pid, process.poll, process.wait
        self.kill = process.kill
        self._process = process
        self._lines = 0
        self._seen = (0, "")
        self._silent_s = 0.0
        threading.Thread(target=self._listen, args=(hear,), daemon=True).start()

    def _listen(self, hear: Callable[[Message | None], object]) -> None:
        """Pass messages to `hear` until the output ends; runs on a thread."""
        stream = self._process.stdout
        assert stream is not None
        with stream:
            for line in stream:
                self._lines += 1
                if line.strip():
                    hear(unpacked(line, stream))
        hear(None)

    def say(self, value: object = None) -> None:
        """Send a value, None to wake it; nothing where the process is gone."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()

    def let_go(self) -> None:
        """Close its input: it ends, after what it must finish."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def silent_s(self, passed_s: float) -> float:
        """Seconds without heartbeat and processor time; passed_s: since the last call."""
        life_signs = self._lines, processor_time(self.pid)
        self._silent_s = self._silent_s + passed_s if life_signs == self._seen else 0.0
        self._seen = life_signs
        return self._silent_s


def leave() -> None:
    """End this process at once, whatever its threads do."""
    os._exit(0)


def listen(hear: Callable[[Any], object], end: Callable[[], object] = leave) -> Say:
    """The process's own side: `hear` gets each value and `end` is called at the end of the input,
    on a thread. Returns a function that sends a message from any thread."""
    # What a library prints must not come between messages.
    output, lock = os.fdopen(os.dup(1), "wb"), threading.Lock()
    os.dup2(2, 1)

    def write(data: bytes) -> None:
        """Write bytes to the output as a whole, from any thread."""
        with lock, suppress(BrokenPipeError):
            output.write(data)
            output.flush()

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

    for work in (read, beat):
        threading.Thread(target=work, daemon=True).start()
    return lambda head, tables={}: write(packed(head, tables))


def packed(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> bytes:
    """A message: a line of JSON that ends with the tables' sizes, then the tables as Arrow."""
    table_bytes = {}
    for name, frame in tables.items():
        buffer = io.BytesIO()
        frame.write_ipc(buffer)
        table_bytes[name] = buffer.getvalue()
    sizes = {name: len(content) for name, content in table_bytes.items()}
    return json.dumps({**head, "tables": sizes}).encode() + b"\n" + b"".join(table_bytes.values())


def unpacked(line: bytes, stream: IO[bytes]) -> Message:
    """The message that begins with a line; its tables are read from the stream."""
    head = json.loads(line)
    sizes = head.pop("tables")
    return head, {name: pl.read_ipc(io.BytesIO(stream.read(size))) for name, size in sizes.items()}
