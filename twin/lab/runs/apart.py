"""Files of strangers are read in a process of its own, within limits of memory and time; the value
returns as JSON and Arrow, and nothing of it is executed."""

import io
import os
import subprocess
import sys

from twin.hooks import FileKind, hooks_of
from twin.lab.files import printable
from twin.lab.kinds import KINDS, Kind, Parts, T
from twin.lab.runs.process import command_of, pack_message, unpack_message

MEMORY_BYTES = 3 << 30  # of address space: the largest upload that is allowed takes about a half
SECONDS = 90.0
FEW_THREADS = {name: "1" for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX")}


class Refused(ValueError):
    """A file that is not accepted: the reader's own sentence, or the exceeded limit."""


def read_in_process(
    kind: Kind[T], data: bytes, name: str, *, memory_bytes: int = MEMORY_BYTES,
    seconds: float = SECONDS,
) -> T:  # fmt: skip
    """The value of a kind in a file's bytes, read in a process with limits. Raises Refused."""
    name = printable(name)
    command = command_of("twin.lab.runs.apart", kind.key, name)
    try:
        message = subprocess.run(
            [*command, str(memory_bytes), str(seconds)], input=data, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **FEW_THREADS}, timeout=seconds,
            check=False,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        message = b""
    if not message:  # killed, or out of memory where it could not say so
        raise Refused(
            f"{name} takes more than {memory_bytes >> 20:,} MB of memory or {seconds:g} s to be "
            "read: cut it into parts"
        )
    message_stream = io.BytesIO(message)
    message_head, tables = unpack_message(message_stream.readline(), message_stream)
    if "refused" in message_head:
        raise Refused(message_head["refused"])
    return kind.join(Parts(**message_head, tables=tables))


def main() -> None:
    """Read standard input as a value of the named kind, within limits; write its parts out."""
    kind_key, file_name, memory_bytes, seconds = sys.argv[1:]
    kind = (
        next((kind for kind in KINDS if kind.key == kind_key), None)
        or hooks_of(FileKind)[kind_key].load()
    )
    assert kind.reader is not None
    reader = kind.reader.load()
    file_bytes = sys.stdin.buffer.read()
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(memory_bytes),) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(float(seconds)) + 1,) * 2)
    try:
        parts = kind.split(reader(file_bytes, file_name))
        message_head = {"name": parts.name, "format": parts.format, "about": dict(parts.about)}
        message = pack_message(message_head, parts.tables)
    except ValueError as error:
        message = pack_message({"refused": str(error)}, {})
    except MemoryError:
        return  # the other end knows what an empty answer means
    sys.stdout.buffer.write(message)


if __name__ == "__main__":
    main()
