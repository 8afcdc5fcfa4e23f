"""JSON: one value, one object a line, lists of hashes. Knows nothing about formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twin.lab.traces.cells import Cells, cells_of_rows
from twin.lab.traces.source import Piece, TraceError

MOST_LINE_BYTES = 4 << 20  # a million tokens in blocks of 16 are 62,500 hashes: 1.3 MB
PORTION_BYTES = 8 << 20  # of lines that are held as text at a time


def refuse_constant(word: str) -> float:
    """Called by the decoder for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{word} is not a number")


DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def text_of(piece: Piece, first: int = 1) -> str:
    """The piece as text; raises TraceError with the line of a byte that is not UTF-8.

    first: the number of its first line.
    """
    try:
        return piece.data.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = piece.data.count(b"\n", 0, error.start) + first
        raise TraceError(f"{piece.name} line {line} is not UTF-8 text") from None


def portions(piece: Piece) -> Iterator[tuple[int, list[str]]]:
    """All lines, some megabytes at a time; with the number of each portion's first line.

    However long a file is, no more than a portion of it is ever held as Python's own objects.
    """
    begin, first = 0, 1
    while begin <= len(piece.data):
        end = piece.data.find(b"\n", begin + PORTION_BYTES)
        end = len(piece.data) if end < 0 else end
        lines = text_of(Piece(piece.name, piece.data[begin:end]), first).split("\n")
        yield first, lines
        begin, first = end + 1, first + len(lines)


def decode(text: str, where: str, wanted: str = "one request {...}") -> Any:
    """One JSON value; raises TraceError that begins with `where`."""
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}" if " line " not in where else ""
        raise TraceError(
            f"{where}{line} is not JSON: {error.msg} at column {error.colno}; {wanted} must "
            "stand there"
        ) from None
    except RecursionError:
        raise TraceError(f"{where} is nested too deeply to be a request") from None
    except ValueError as error:
        raise TraceError(f"{where} holds a figure that cannot be read: {error}") from None


def json_cells(piece: Piece) -> Iterator[tuple[Cells, np.ndarray]]:
    """Every line that is not blank, each one object, and their numbers i8[n]; by portions."""
    for first, lines in portions(piece):
        bodies, numbers = [], []
        for number, line in enumerate(lines, first):
            if not line or line.isspace():
                continue
            where = f"{piece.name} line {number}"
            if len(line) > MOST_LINE_BYTES:
                raise TraceError(
                    f"{where} is longer than {MOST_LINE_BYTES >> 20} MB: no request is"
                )
            body = decode(line, where)
            if type(body) is not dict:
                raise TraceError(f"{where} is not an object: one request {{...}} must stand there")
            bodies.append(body)
            numbers.append(number)
        # The numbers are those of this portion, also when a refusal asks for them later.
        cells = cells_of_rows(bodies, lambda i, n=numbers: f"{piece.name} line {n[i]}")  # type: ignore[misc]
        yield cells, np.array(numbers, np.int64)


def hash_lists(cells: Cells, column: str = "hash_ids") -> list[list[int]]:
    """A list of hashes a row; whole numbers are checked when all are put together."""
    lists = [cells.value(column, i) for i in range(cells.size)]
    for i, ids in enumerate(lists):
        if type(ids) is not list:
            raise cells.wrong(column, i, "a list of block hashes")
    return lists


def hash_array(
    lists: list[list[int]], where: Callable[[int], str]
) -> tuple[np.ndarray, np.ndarray]:
    """(offset i8[n + 1], hashes i8[refs]) of lists of whole numbers.

    where(i) names list i in the TraceError for a hash that is none.
    """
    offset = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offset[1:])
    flat: list[int] = []
    for ids in lists:
        flat.extend(ids)
    if not flat:
        return offset, np.zeros(0, np.int64)
    try:
        together = np.array(flat)
    except ValueError:  # a list within the list
        together = np.array(["nested"])
    if together.dtype.kind not in "iu":
        for i, ids in enumerate(lists):
            if not all(type(x) is int and -(2**63) <= x < 2**64 for x in ids):
                raise TraceError(f"{where(i)}: hash_ids must hold whole numbers of 64 bits")
        together = np.array([x & (2**64 - 1) for x in flat], np.uint64)
    return offset, together.astype(np.int64, copy=False)
