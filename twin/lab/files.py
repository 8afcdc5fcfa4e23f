"""Named files: read within limits, written whole; raises the caller's error or `NotWritten`."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import tomli  # the same as tomllib, compiled: facts are read at every start

KEY_PARTS_MAX = 16
LOCK_LOOK_S = 0.05  # between two attempts at a lock
_PART = r"""(?:(?<![\w-])[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
# A key of n parts takes memory as n * n, so it is looked for before the text is parsed.
_LONG_KEY = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{KEY_PARTS_MAX}}}")


class NotWritten(ValueError):
    """An answer that could not be written to disk: one sentence, with a status of its own."""


def printable(name: str) -> str:
    """A file's name on one line of limited length, with unprintable characters replaced."""
    return "".join(char if char.isprintable() else "?" for char in name[:200])


def read_bytes(path: Path, most_bytes: int, error: type[Exception]) -> bytes:
    """Contents of a file, cut one byte after `most_bytes`; raises `error` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes + 1)
    except (OSError, ValueError) as cause:  # ValueError: a name with a NUL in it
        reason = getattr(cause, "strerror", None) or cause
        raise error(f"{printable(str(path))} cannot be read: {reason}") from None


def decode_text(data: bytes, name: str, most_bytes: int, error: type[Exception], kind: str) -> str:
    """The text of UTF-8 bytes; raises `error` if they are empty, no UTF-8 or more than
    `most_bytes`. kind: what the file should be, in words."""
    name = printable(name)
    if len(data) > most_bytes:
        in_mebibytes = most_bytes >= 1 << 20
        size_text = f"{most_bytes >> 20} MiB" if in_mebibytes else f"{most_bytes >> 10} KiB"
        raise error(f"{name} is larger than {size_text}: no {kind} is")
    if not data.strip():
        raise error(f"{name} is empty, so it is no {kind}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{name} is not text in UTF-8, so it is no {kind}") from None


def read_text(path: Path, most_bytes: int, error: type[Exception], kind: str) -> str:
    """The text of a UTF-8 file; raises `error` with one sentence. kind: what it should be."""
    return decode_text(read_bytes(path, most_bytes, error), path.name, most_bytes, error, kind)


def toml_table(text: str, name: str, error: type[Exception]) -> dict[str, Any]:
    """The table of a TOML text whose size was checked; raises `error` with one sentence."""
    dotted_lines = (line for line in text.split("\n") if line.count(".") >= KEY_PARTS_MAX)
    if any(map(_LONG_KEY.search, dotted_lines)):
        raise error(f"{name} has a key of more than {KEY_PARTS_MAX} parts: nothing here has")
    try:
        return tomli.loads(text)
    except (ValueError, RecursionError) as cause:  # ValueError: also a number of too many digits
        fault_text = str(cause).replace("\n", " ") or "it is nested too deeply"
        raise error(f"{name} is not valid TOML: {fault_text}") from None


@contextmanager
def open_atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces the one at `path` when complete. Raises NotWritten."""
    if "\0" in str(path):
        raise NotWritten(f"{printable(str(path))} cannot be written: no file is called so")
    path = path.resolve()  # a link goes on pointing at the file
    # A pipe or a terminal has its name already, and keeps it.
    is_regular_file = path.is_file() or not path.exists()
    draft_path = path.with_name(f".{path.name}.part") if is_regular_file else path
    try:
        with draft_path.open("wb") as file:
            yield file
            if is_regular_file:
                file.flush()
                os.fsync(file.fileno())
        if is_regular_file:
            draft_path.replace(path)
    except OSError as cause:
        reason = cause.strerror or cause
        raise NotWritten(f"{printable(str(path))} cannot be written: {reason}") from None
    finally:
        if is_regular_file:
            with suppress(OSError):
                draft_path.unlink(missing_ok=True)


@contextmanager
def try_lock(path: Path, *, shared: bool = False, patience_s: float = 0.0) -> Iterator[bool]:
    """Lock a file until the block ends; yields whether that succeeded within `patience_s`. Several
    processes can have a shared lock at once; without POSIX locks it always succeeds."""
    if os.name != "posix":
        yield True
        return
    import fcntl

    lock_kind, until_s = fcntl.LOCK_SH if shared else fcntl.LOCK_EX, time.monotonic() + patience_s
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, lock_kind | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= until_s:
                    yield False
                    return
                time.sleep(LOCK_LOOK_S)
        yield True


def check_writable(path: Path) -> None:
    """Raise NotWritten if no file can be written at a path; called before a long computation."""
    folder = path.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise NotWritten(f"{printable(str(path))} cannot be written: no folder to write in")


def write_text(path: Path, text: str) -> None:
    """Write a file of text in UTF-8; raises NotWritten."""
    with open_atomic(path) as file:
        file.write(text.encode())
