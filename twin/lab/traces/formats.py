"""What a trace format is: one entry that says how it is recognised, read and described.

A format is recognised by what stands in a file, never by its name. The entries stand beside their
readers; `reader` lists them, and the upload, the refusal of an unknown file and the table of the
docs are made from that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import polars as pl

from twin.lab.traces.source import PARQUET_MAGIC, Piece, TraceError
from twin.lab.traces.table import Columns, Cut

HEAD_BYTES = 1 << 16
BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """What the first file shows before it is read; a part is empty where it is of another kind."""

    name: str
    keys: str = ""  # the first 64 KB of a JSON file without blanks
    header: frozenset[str] = frozenset()  # columns of a CSV file
    parquet: frozenset[str] = frozenset()  # columns of a parquet file


@dataclass(frozen=True, slots=True)
class Reading:
    """A source that is about to be read, and what was asked about it."""

    label: str
    first: Piece
    rest: Iterator[Piece]
    kind: str  # name of the format that it was recognised as
    block_tokens: int | None  # tokens of a hashed block; None: as the file says
    max_prompt_tokens: int | None  # leave out recorded sessions that go beyond it
    cut: Cut
    seed: int  # of what the format leaves to chance
    most_rows: int

    def every(self) -> Iterator[Piece]:
        """All files of the source."""
        return chain([self.first], self.rest)

    def only(self) -> Piece:
        """The one file of the source; raises TraceError when there are more."""
        if next(self.rest, None) is not None:
            raise TraceError(
                f"{self.label} holds several files of format {self.kind}: give one of them"
            )
        return self.first


@dataclass(frozen=True, slots=True)
class Format:
    """One trace format."""

    name: str
    title: str  # as its publisher calls it
    shape: str  # JSON lines, CSV, ...
    tells: str  # what it holds beside the lengths of prompts and answers
    fits: Callable[[Head], bool]
    read: Callable[[Reading], Columns]


def head_of(label: str, piece: Piece) -> Head:
    """The head of a file; raises TraceError for an empty one and for a parquet upload."""
    if piece.data.startswith(PARQUET_MAGIC):
        if piece.path is None:
            raise TraceError(f"{label}: parquet is read from disk only, not from an upload")
        try:
            return Head(piece.name, parquet=frozenset(pl.read_parquet_schema(piece.path)))
        except pl.exceptions.PolarsError:
            raise TraceError(f"{label} is not a sound parquet file") from None
    text = piece.data[:HEAD_BYTES].decode("utf-8-sig", "replace").lstrip(BLANK)
    if not text:
        raise TraceError(f"{label} is empty")
    if text.startswith("{"):
        return Head(piece.name, keys="".join(text.split()))
    return Head(piece.name, header=frozenset(header_of(text.split("\n", 1)[0])))


def header_of(line: str) -> list[str]:
    """Column names of the header line of a CSV file."""
    return [part.strip(BLANK + '"') for part in line.split(",")]
