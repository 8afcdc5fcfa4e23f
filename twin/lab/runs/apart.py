"""Files of strangers are read in a process of its own, within limits of memory and time; the value
returns as JSON and Arrow, and nothing of it is executed."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any

import polars as pl

from twin.hooks import FileKind, found
from twin.lab.files import printable
from twin.lab.kinds import KINDS, Kind, Parts, T

MEMORY_BYTES = 3 << 30  # of address space: the largest upload that is allowed takes about a half
SECONDS = 90.0
FEW_THREADS = {name: "1" for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX")}


class Refused(ValueError):
    """A file that is not accepted: the reader's own sentence, or the exceeded limit."""


def apart(
    kind: Kind[T], data: bytes, name: str, *, memory_bytes: int = MEMORY_BYTES,
    seconds: float = SECONDS,
) -> T:  # fmt: skip
    """The value of a kind in `data`, read in a separate process. Raises Refused."""
    name = printable(name)
    command = [sys.executable, "-m", "twin.lab.runs.apart", kind.key, name]
    process = subprocess.Popen(
        [*command, str(memory_bytes), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={**os.environ, **FEW_THREADS},
    )  # fmt: skip
    try:
        answer, _ = process.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        answer = b""
    finally:
        process.kill()
        process.communicate()
    message = unpacked(io.BytesIO(answer))
    if message is None:  # killed, or out of memory where it could not say so
        raise Refused(
            f"{name} takes more than {memory_bytes >> 20:,} MB of memory or {seconds:g} s to be "
            "read: cut it into parts"
        )
    head, tables = message
    if "refused" in head:
        raise Refused(head["refused"])
    return kind.join(Parts(**head, tables=tables))


def packed(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> bytes:
    """A message: a line of JSON that ends with the tables' sizes, then the tables as Arrow."""
    files = {}
    for name, frame in tables.items():
        buffer = io.BytesIO()
        frame.write_ipc(buffer)
        files[name] = buffer.getvalue()
    sizes = {name: len(file) for name, file in files.items()}
    return json.dumps({**head, "tables": sizes}).encode() + b"\n" + b"".join(files.values())


def unpacked(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, pl.DataFrame]] | None:
    """The next message of a stream, None at its end."""
    if not (line := stream.readline()):
        return None
    head = json.loads(line)
    sizes = head.pop("tables")
    return head, {name: pl.read_ipc(io.BytesIO(stream.read(n))) for name, n in sizes.items()}


def _limit(memory_bytes: int, seconds: float) -> None:
    """Limit this process's memory and processor time, if the system supports it."""
    if sys.platform == "win32":
        return
    import resource

    for kind, most in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, int(seconds) + 1)):
        resource.setrlimit(kind, (most, most))


def main() -> None:
    """Read standard input as a value of the kind that the command names; its parts are output."""
    key, file_name, memory_bytes, seconds = sys.argv[1:]
    kind = next((kind for kind in KINDS if kind.key == key), None) or found(FileKind)[key].load()
    assert kind.reader is not None
    reader = kind.reader.load()
    data = sys.stdin.buffer.read()
    _limit(int(memory_bytes), float(seconds))
    try:
        parts = kind.split(reader(data, file_name))
        head = {"name": parts.name, "format": parts.format, "about": dict(parts.about)}
        answer = packed(head, parts.tables)
    except ValueError as error:
        answer = packed({"refused": str(error)}, {})
    except MemoryError:
        return  # the other end knows what an empty answer means
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
