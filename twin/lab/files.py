"""Files that people name: read as text within a limit, and written; every failure is a sentence.

The sentences are of the caller's own error. It knows nothing about what files hold.
"""

from __future__ import annotations

from pathlib import Path


def printable(name: str) -> str:
    """A file's name on one line of reasonable length, whatever somebody called it."""
    return "".join(c if c.isprintable() else "?" for c in name[:200])


def read_bytes(path: Path, most_bytes: int, error: type[Exception]) -> bytes:
    """The bytes of a file, one more than `most_bytes` of a larger one; raises `error`."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes + 1)
    except (OSError, ValueError) as why:  # ValueError: a name with a NUL in it
        said = getattr(why, "strerror", None) or why
        raise error(f"{printable(str(path))} cannot be read: {said}") from None


def decoded(data: bytes, name: str, most_bytes: int, error: type[Exception], kind: str) -> str:
    """The text of at most `most_bytes` of UTF-8; raises `error`. kind: what it should be."""
    name = printable(name)
    if len(data) > most_bytes:
        raise error(f"{name} is larger than {_size(most_bytes)}: no {kind} is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{name} is not text in UTF-8, so it is no {kind}") from None


def read_text(path: Path, most_bytes: int, error: type[Exception], kind: str) -> str:
    """The text of a file; raises `error` with one sentence that names it."""
    data = read_bytes(path, most_bytes, error)
    return decoded(data, path.name, most_bytes, error, kind)


def write_text(path: Path, text: str, error: type[Exception]) -> None:
    """Write a file of text in UTF-8; raises `error` with one sentence that names it."""
    try:
        path.write_text(text, "utf-8")
    except (OSError, ValueError) as why:
        said = getattr(why, "strerror", None) or why
        raise error(f"{printable(str(path))} cannot be written: {said}") from None


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
