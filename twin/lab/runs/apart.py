"""Reading what a stranger sent in a process apart, with an upper limit of memory and time.

The value comes back in the parts in which the library keeps it: words as JSON, tables as Arrow.
Nothing that comes back is executed.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import polars as pl

from twin.lab.fabric_file import FABRIC
from twin.lab.files import printable
from twin.lab.kinds import KINDS, Kind, Parts, T

MEMORY_BYTES = 3 << 30  # of address space: the largest upload that is allowed takes about a half
SECONDS = 90.0
FEW_THREADS = {name: "1" for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX")}


class Refused(ValueError):
    """A file that cannot be taken: the reader's own sentence, or that it takes too much."""


def apart(
    kind: Kind[T],
    data: bytes,
    name: str,
    *,
    memory_bytes: int = MEMORY_BYTES,
    seconds: float = SECONDS,
) -> T:
    """The value of a kind that `data` holds, read by a process of its own. Raises Refused with one
    sentence, also where that needs more than `memory_bytes` or `seconds`."""
    name = printable(name)
    command = [sys.executable, "-m", "twin.lab.runs.apart", kind.key, name]
    process = subprocess.Popen(
        [*command, str(memory_bytes), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **FEW_THREADS},
    )
    try:
        answer, _ = process.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        answer = b""
    finally:
        process.kill()
        process.communicate()
    head, _, tables = answer.partition(b"\n")
    if not head:  # killed, or out of memory where it could not be told
        raise Refused(
            f"{name} takes more than {memory_bytes >> 20:,} MB of memory or {seconds:g} s to be "
            "read: cut it into parts"
        )
    told = json.loads(head)
    if "refused" in told:
        raise Refused(told["refused"])
    return kind.join(Parts(told["name"], told["format"], told["about"], _frames(told, tables)))


def _frames(told: dict[str, dict[str, int]], data: bytes) -> dict[str, pl.DataFrame]:
    """The tables behind the head, whose lengths it tells."""
    frames, begin = {}, 0
    for name, size in told["tables"].items():
        frames[name] = pl.read_ipc(io.BytesIO(data[begin : begin + size]))
        begin += size
    return frames


def _packed(parts: Parts) -> bytes:
    """A line of JSON with the lengths of the tables, then these one after the other."""
    tables = {}
    for name, frame in parts.tables.items():
        buffer = io.BytesIO()
        frame.write_ipc(buffer)
        tables[name] = buffer.getvalue()
    head = {"name": parts.name, "format": parts.format, "about": dict(parts.about)}
    sizes = {name: len(packed) for name, packed in tables.items()}
    return json.dumps(head | {"tables": sizes}).encode() + b"\n" + b"".join(tables.values())


def _limit(memory_bytes: int, seconds: float) -> None:
    """Take no more memory or processor time than that, where the system can hold one to it."""
    if sys.platform == "win32":
        return
    import resource

    for kind, most in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, int(seconds) + 1)):
        resource.setrlimit(kind, (most, most))


def main() -> None:
    """Read standard input as a value of the kind that the command names; its parts are output."""
    key, name, memory_bytes, seconds = sys.argv[1:]
    kind = next(kind for kind in (*KINDS, FABRIC) if kind.key == key)
    assert kind.reader is not None
    read = kind.reader.load()
    data = sys.stdin.buffer.read()
    _limit(int(memory_bytes), float(seconds))
    try:
        answer = _packed(kind.split(read(data, name)))
    except ValueError as error:
        answer = json.dumps({"refused": str(error)}).encode()
    except MemoryError:
        return  # whoever asked knows what it means that nothing was said
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
