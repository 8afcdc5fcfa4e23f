"""A path or an upload as named pieces of bytes within limits; gzip and tar are undone once each."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twin.lab.files import printable, read_bytes

GZIP_MAGIC = b"\x1f\x8b"
TAR_MAGIC = (b"ustar\x00", b"ustar ")
ZIP_MAGIC = b"PK\x03\x04"
PARQUET_MAGIC = b"PAR1"
FIRST_BYTES = 4 << 20  # a ratio means nothing before so much has come out
CHUNK_BYTES = 1 << 20
MOST_PIECES = 10_000


class TraceError(ValueError):
    """A trace file that cannot be read: file, line, what is wrong, and what would be right."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of memory and size for reading one trace."""

    packed_bytes: int
    unpacked_bytes: int
    rows: int
    ratio: int = 200  # unpacked bytes for each packed one
    as_given: bytes = PARQUET_MAGIC  # a file that begins so is not unpacked
    remedy: str = "compress it with gzip or cut it into parts"  # for a file that is too large
    prompt_tokens: int = 0  # longer prompts are left out; 0: than any model of data/models takes


UPLOAD = Limits(packed_bytes=16 << 20, unpacked_bytes=128 << 20, rows=2_000_000)
LOCAL = Limits(packed_bytes=1 << 30, unpacked_bytes=4 << 30, rows=20_000_000)


@dataclass(frozen=True, slots=True)
class Piece:
    """Name and unpacked contents of one file; path only for a file that was given unpacked."""

    name: str
    data: bytes
    path: Path | None = None


class Budget:
    """Bytes that may still be unpacked from one source, and the number of its files so far."""

    def __init__(self, name: str, limits: Limits) -> None:
        """Begin with the limit of unpacked bytes; name: of the source, in errors."""
        self.name, self.limits, self.bytes_left = name, limits, limits.unpacked_bytes
        self.files = 0

    def count_file(self) -> None:
        """Count one more file. Raises TraceError if they are too many."""
        if self.files >= MOST_PIECES:
            problem = f"{self.name} holds more than {MOST_PIECES:,} files"
            raise TraceError(f"{problem}, the most that are read")
        self.files += 1

    def spend(self, byte_count: int) -> None:
        """Subtract unpacked bytes from `bytes_left`; raises TraceError if fewer are left."""
        self.bytes_left -= byte_count
        if self.bytes_left < 0:
            raise TraceError(
                f"{self.name} unpacks to more than {self.limits.unpacked_bytes >> 20} MB, the most "
                "that is read: cut it into parts"
            )


def open_source(
    source: str | Path | bytes, name: str | None, limits: Limits | None
) -> tuple[str, Limits, Iterator[Piece]]:
    """(label, limits, pieces) of a file, folder or upload; limits: None for defaults. Raises
    TraceError."""
    if isinstance(source, bytes):
        label, limits = printable(name or "upload"), limits or UPLOAD
        return label, limits, _unpack(label, _require_size(label, source, limits), limits)
    path, limits = Path(source), limits or LOCAL
    label = printable(name or path.name or path.resolve().name or str(path))
    try:
        if path.is_dir():
            return label, limits, _folder_pieces(path, Budget(label, limits))
        if not path.is_file():
            raise TraceError(f"{printable(str(path))} is not a file or a folder")
    except OSError as error:
        raise TraceError(f"{printable(str(path))} cannot be read: {error.strerror}") from None
    return label, limits, _unpack(label, _read_limited(path, label, limits), limits, path)


def _read_limited(path: Path, label: str, limits: Limits) -> bytes:
    """The bytes of a file; raises TraceError if they are more than the limit."""
    return _require_size(label, read_bytes(path, limits.packed_bytes, TraceError), limits)


def _require_size(name: str, data: bytes, limits: Limits) -> bytes:
    """The bytes, if they are not more than the limit. Raises TraceError."""
    if len(data) > limits.packed_bytes:
        raise TraceError(
            f"{name} is larger than {limits.packed_bytes >> 20} MB, the most that is read: "
            f"{limits.remedy}"
        )
    return data


def _unpack(name: str, data: bytes, limits: Limits, path: Path | None = None) -> Iterator[Piece]:
    """Yield the file itself, or the members of a tar; path: of the file on disk. Raises
    TraceError."""
    budget = Budget(name, limits)
    if data.startswith(limits.as_given):
        yield Piece(name, data, path)
        return
    unpacked, was_packed = _inflate(name, data, budget)
    if unpacked[257:263] in TAR_MAGIC or unpacked[257:262] == b"ustar":
        yield from _tar_pieces(name, unpacked, budget, was_packed)
    else:
        yield Piece(name, unpacked)


def _inflate(
    name: str, data: bytes, budget: Budget, *, is_counted: bool = False
) -> tuple[bytes, bool]:
    """(contents, whether they were gzipped) of a file; is_counted: `data` is in the budget
    already."""
    if data.startswith(ZIP_MAGIC):
        raise TraceError(f"{name} is a zip archive: unpack it, or pack it as gzip or tar.gz")
    if not data.startswith(GZIP_MAGIC):
        budget.spend(0 if is_counted else len(data))
        return data, False
    unpacked = gunzip(name, data, budget)
    if unpacked.startswith((GZIP_MAGIC, ZIP_MAGIC)):
        raise TraceError(f"{name} is compressed twice: compress it once")
    return unpacked, True


def gunzip(name: str, data: bytes, budget: Budget) -> bytes:
    """The content of a gzip file; raises TraceError if it is broken or unpacks to too much."""
    unpacked_chunks = []
    unpacked_bytes = 0
    packed_stream = io.BytesIO(data)
    try:
        with gzip.GzipFile(fileobj=packed_stream, mode="rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                unpacked_chunks.append(chunk)
                unpacked_bytes += len(chunk)
                budget.spend(len(chunk))
                if unpacked_bytes > max(FIRST_BYTES, budget.limits.ratio * packed_stream.tell()):
                    raise TraceError(
                        f"{name} unpacks to more than {budget.limits.ratio} times its size, which "
                        "no trace does"
                    )
    except EOFError:
        raise TraceError(f"{name} ends in the middle of its gzip stream: copy it again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise TraceError(f"{name} is not a sound gzip file: compress it again") from None
    return b"".join(unpacked_chunks)


def _tar_pieces(name: str, data: bytes, budget: Budget, was_packed: bool) -> Iterator[Piece]:
    """Yield a tar's files, except hidden ones; was_packed: it was gzipped. Raises TraceError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if not member.isreg() or _is_hidden(member.name):
                    continue
                budget.count_file()
                if member.issparse() or member.size > len(data):  # more than the archive holds
                    budget.spend(member.size)
                file = archive.extractfile(member)
                content = file.read() if file else b""
                if was_packed and content.startswith((GZIP_MAGIC, ZIP_MAGIC)):
                    raise TraceError(f"{name} holds {printable(member.name)} compressed twice")
                member_name = printable(member.name)
                yield Piece(member_name, _inflate(member_name, content, budget, is_counted=True)[0])
    except (tarfile.TarError, EOFError, OverflowError, KeyError):
        raise TraceError(f"{name} is not a sound tar archive: pack it again") from None


def _folder_pieces(folder: Path, budget: Budget) -> Iterator[Piece]:
    """Pieces of the files in a folder, without hidden ones."""
    for path in sorted(folder.rglob("*")):
        relative_name = path.relative_to(folder).as_posix()
        if not path.is_file() or _is_hidden(relative_name):
            continue
        budget.count_file()
        file_bytes = _read_limited(path, relative_name, budget.limits)
        if file_bytes.startswith(PARQUET_MAGIC):
            yield Piece(relative_name, file_bytes, path)
        else:
            yield Piece(relative_name, _inflate(relative_name, file_bytes, budget)[0])


def _is_hidden(name: str) -> bool:
    """Whether a part of a path begins with a dot."""
    return any(folder_or_file.startswith(".") for folder_or_file in name.split("/"))
