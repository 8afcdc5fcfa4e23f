"""Artefacts: Parquet files named by their SHA-256, compared at each read. A file is synced to disk
and renamed before a row names it, so a row never names a partial file."""

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from twin.lab.store.errors import StoreError, StoreFull

SUFFIX = ".parquet"
MAGIC = b"PAR1"  # of a Parquet file
UNFINISHED = ".tmp-"
SWEEP_AGE_S = 3600.0  # a file younger than this may belong to a row about to be written
FREE_BYTES_MIN = 512e6
FULL_ERRORS, QUOTA_ERRORS = (errno.ENOSPC,), (errno.EDQUOT, errno.EFBIG)
OS_ERROR = re.compile(r"os error ([0-9]+)")
WRITERS = 8  # files on their way to the disk at once


class Source(Protocol):
    """A source of bytes; empty at its end."""

    def read(self, limit: int, /) -> bytes:
        """Read at most a number of bytes; empty at the end."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A stored file: its name, size and rows."""

    sha256: str
    bytes: int
    rows: int


class Artefacts:
    """A folder of artefacts, `ab/ab...64 hex.parquet`."""

    def __init__(self, folder: Path):
        """Use a folder, which is made when the first artefact is stored."""
        self.folder = folder
        self._synced_folders: set[Path] = set()  # folders whose names the disk holds

    def path(self, sha256: str) -> Path:
        """Path of the artefact with this SHA-256."""
        return self.folder / sha256[:2] / (sha256 + SUFFIX)

    def save(self, frame: pl.DataFrame) -> Artefact:
        """Store a table (zstd Parquet); storing it again needs no space. Raises StoreError."""
        with self._draft() as draft:
            frame.write_parquet(draft, compression="zstd")
            sha256, size_bytes = _hash_file(draft)
            self._publish(draft, sha256)
        return Artefact(sha256, size_bytes, frame.height)

    def save_all(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, Artefact]:
        """Store several tables at once, because most of the time is waiting for the disk."""
        with ThreadPoolExecutor(WRITERS) as writers:
            return dict(zip(frames, writers.map(self.save, frames.values()), strict=True))

    def save_bytes(self, source: Source, sha256: str) -> Artefact:
        """Store a Parquet file from a reader; raises StoreError if its SHA-256 differs."""
        with self._draft() as draft:
            with draft.open("wb") as file:
                while chunk := source.read(1 << 20):
                    if not file.tell() and not chunk.startswith(MAGIC):
                        raise StoreError(f"the file {sha256} is no table in Parquet")
                    file.write(chunk)
            digest, size_bytes = _hash_file(draft)
            if digest != sha256:
                raise StoreError(f"the file {sha256} is damaged (its SHA-256 is not its name)")
            try:
                row_count = pl.scan_parquet(draft).select(pl.len()).collect().item()
            except pl.exceptions.PolarsError:
                raise StoreError(f"the file {sha256} is no table in Parquet") from None
            self._publish(draft, sha256)
        return Artefact(sha256, size_bytes, row_count)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Path of a temporary file to write and publish; it is deleted at the block's end. Errors
        of the disk become StoreFull."""
        draft = self.folder / (UNFINISHED + secrets.token_hex(8))
        try:
            self._make_folder(self.folder)
            yield draft
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StoreFull(self._error_sentence(error)) from error
        finally:
            with suppress(OSError):  # the sweep takes what cannot be deleted now
                draft.unlink(missing_ok=True)

    def require_sound(self, sha256: str) -> None:
        """Raise StoreError if the file of an artefact is missing or changed."""
        path = self.path(sha256)
        try:
            is_sound = _hash_file(path)[0] == sha256
        except OSError as error:
            raise StoreError(f"the file {path} cannot be read: {error.strerror}") from None
        if not is_sound:
            raise StoreError(f"the file {path} is damaged (its SHA-256 is not its name)")

    def read(self, sha256: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The table of an artefact, or some of its columns; raises StoreError when damaged."""
        path = self.path(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"the file {path} is gone: restore it from a backup") from None
        except OSError as error:
            raise StoreError(f"the file {path} cannot be read: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError(
                f"the file {path} is damaged (its SHA-256 is not its name): restore it from a "
                "backup, or run the scenario again"
            )
        return pl.read_parquet(io.BytesIO(content), columns=list(columns) if columns else None)

    def touch_if_sound(self, sha256: str) -> bool:
        """Set a file's time to now, so that no sweep deletes it; False if missing or damaged."""
        try:
            os.utime(self.path(sha256))
            return _hash_file(self.path(sha256))[0] == sha256
        except OSError:  # not there, taken by a sweep just now, or another user's: write it anew
            return False

    def _publish(self, draft: Path, sha256: str) -> None:
        """Move a complete draft to its path, forced to disk; an undamaged file there stays."""
        final_path = self.path(sha256)
        self._make_folder(final_path.parent)
        if not self.touch_if_sound(sha256):
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            draft.replace(final_path)
        _sync_folder(final_path.parent)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder if it does not exist, and force its name to disk."""
        if folder in self._synced_folders and folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        _sync_folder(folder.parent)
        self._synced_folders.add(folder)

    def old_files(self, older_than_s: float = SWEEP_AGE_S) -> list[Path]:
        """Artefact files and drafts older than an age (s), to be deleted if no row names them."""
        all_files = [*self.folder.glob(f"*/*{SUFFIX}"), *self.folder.glob(UNFINISHED + "*")]
        return [path for path in all_files if _is_older(path, older_than_s)]

    def delete(self, files: Sequence[Path], hashes: Collection[str], older_than_s: float) -> int:
        """Delete files older than an age (s) and not named in `hashes`; returns their number."""
        unused_files = [
            path for path in files if path.stem not in hashes and _is_older(path, older_than_s)
        ]
        for path in unused_files:
            path.unlink(missing_ok=True)
        return len(unused_files)

    def require_space(self, needed_bytes: float = FREE_BYTES_MIN) -> None:
        """Raise StoreFull if the folder cannot be written or has less free space than needed."""
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreFull(f"{folder} cannot be written: give this user the right to write in it")
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < needed_bytes:
            raise StoreFull(
                f"only {free_bytes / 1e6:.0f} MB are free on the disk of {self.folder}: a run "
                f"needs {needed_bytes / 1e6:.0f} MB, delete old runs or free some space"
            )

    def _error_sentence(self, error: Exception) -> str:
        """A sentence on an error of the disk, with a remedy."""
        # What polars says of the system's error ends with its number.
        error_match = OS_ERROR.search(str(error))
        error_number = getattr(error, "errno", None) or (error_match and int(error_match[1]))
        if error_number in FULL_ERRORS:
            return f"the disk of {self.folder} is full: free some space and try again"
        if error_number in QUOTA_ERRORS:
            return f"{self.folder} has reached a quota or limit: free some space or raise it"
        reason = os.strerror(error_number) if error_number else str(error).splitlines()[0]
        return f"{self.folder} cannot be written: {reason}"


def _is_older(path: Path, age_s: float) -> bool:
    """Whether a file is older than an age in seconds; False if it vanished."""
    try:
        return path.stat().st_mtime < time.time() - age_s
    except FileNotFoundError:
        return False


def _hash_file(path: Path) -> tuple[str, int]:
    """SHA-256 and size in bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, where the system can."""
    if os.name != "posix" or not os.access(folder, os.R_OK):
        return  # who may not read a folder cannot force it to the disk
    folder_descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_descriptor)
    finally:
        os.close(folder_descriptor)
