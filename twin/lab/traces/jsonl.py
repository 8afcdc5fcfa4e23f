"""Traces of one JSON object a line: Mooncake, Bailian, RAGPulse.

Mooncake (kvcache-ai/Mooncake, FAST'25): milliseconds, hashes of 512-token blocks with the partial
last one. Bailian (Qwen usage traces): seconds, blocks of 16, chats by parent. RAGPulse: seconds as
text, hashes of prompt components that are not chained and so not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twin.lab.traces.formats import Format, Reading
from twin.lab.traces.source import Piece, TraceError
from twin.lab.traces.table import MOST_TOKENS, Columns

MOST_LINE_BYTES = 8 << 20
MOST_TICKS = 1e15  # milliseconds of 30,000 years
MS_PER_S = 1000.0


def refuse_constant(word: str) -> float:
    """Called by the decoder for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{word} is not a number")


DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def text_of(piece: Piece) -> str:
    """The piece as text; raises TraceError with the line of a byte that is not UTF-8."""
    try:
        return piece.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = piece.data.count(b"\n", 0, error.start) + 1
        raise TraceError(f"{piece.name} line {line} is not UTF-8 text") from None


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


class Row:
    """One request's object and where it stands; each getter refuses what does not fit."""

    __slots__ = ("body", "where")

    def __init__(self, body: dict[str, Any], where: str) -> None:
        self.body = body
        self.where = where

    def wrong(self, key: str, wanted: str) -> TraceError:
        """The error for a field that is missing or unfit."""
        if key not in self.body:
            return TraceError(f"{self.where} has no {key}: it must be {wanted}")
        shown = repr(self.body[key])
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        return TraceError(f"{self.where}: {key} = {shown} must be {wanted}")

    def tokens(self, key: str) -> int:
        """A count of tokens."""
        value = self.body.get(key)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not 0 <= value <= MOST_TOKENS:
            raise self.wrong(key, f"a whole number of tokens from 0 to {MOST_TOKENS:,}")
        return value

    def time(self, key: str, as_text: bool = False) -> float:
        """A timestamp in the file's unit."""
        value: Any = self.body.get(key)
        if as_text and isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.wrong(key, "a time") from None
        if type(value) not in {int, float} or not 0 <= value <= MOST_TICKS:
            raise self.wrong(key, "a time from 0 on")
        return float(value)

    def hashes(self, key: str) -> list[int]:
        """A list of block hashes; whole numbers are checked when all are put together."""
        value = self.body.get(key)
        if type(value) is not list:
            raise self.wrong(key, "a list of block hashes")
        return value


def rows_of(piece: Piece) -> list[tuple[int, Row]]:
    """(line number, row) of every line that is not blank."""
    rows = []
    for number, line in enumerate(text_of(piece).split("\n"), 1):
        if not line or line.isspace():
            continue
        where = f"{piece.name} line {number}"
        if len(line) > MOST_LINE_BYTES:
            raise TraceError(f"{where} is longer than {MOST_LINE_BYTES >> 20} MB: no request is")
        body = decode(line, where)
        if type(body) is not dict:
            raise TraceError(f"{where} is not an object: one request {{...}} must stand there")
        rows.append((number, Row(body, where)))
    return rows


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


def codes(names: list[str]) -> np.ndarray:
    """A number i8[n] for every name, equal for equal names."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(name, len(seen)) for name in names], np.int64)


Rows = list[tuple[int, Row]]


def sessions_by_id(rows: Rows) -> np.ndarray | None:
    """Sessions i8[n] where every row names its own."""
    if not rows or not all("session_id" in row.body for _, row in rows):
        return None
    return codes([str(row.body["session_id"]) for _, row in rows])


def sessions_by_parent(rows: Rows) -> np.ndarray:
    """Sessions i8[n] of chats that continue their parent: the root chat names the session."""
    root: dict[str, str] = {}
    names = []
    for _, row in rows:
        chat, parent = row.body.get("chat_id"), row.body.get("parent_chat_id", -1)
        for key, value in (("chat_id", chat), ("parent_chat_id", parent)):
            if type(value) not in {int, str}:
                raise row.wrong(key, "a number or a name (-1: no parent)")
        names.append(str(chat) if parent in {-1, "-1"} else root.get(str(parent), str(parent)))
        root[str(chat)] = names[-1]
    return codes(names)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the requests of one format are written."""

    ticks_per_s: float = 1.0
    time_is_text: bool = False
    block_tokens: int | None = 0  # of a hashed block; 0: found out; None: hashes are no chains
    sessions: Callable[[Rows], np.ndarray | None] = sessions_by_id
    warning: str = ""

    def read(self, reading: Reading) -> Columns:
        """The requests of a file; raises TraceError with the line of the first bad value."""
        piece = reading.only()
        rows = rows_of(piece)
        c = Columns(
            name=piece.name,
            format=reading.kind,
            ticks=np.array([row.time("timestamp", self.time_is_text) for _, row in rows]),
            ticks_per_s=self.ticks_per_s,
            input_tokens=np.array([row.tokens("input_length") for _, row in rows], np.int64),
            output_tokens=np.array([row.tokens("output_length") for _, row in rows], np.int64),
            source_row=np.array([number for number, _ in rows], np.int64),
            session=self.sessions(rows),
            time_unit="ms" if self.ticks_per_s == MS_PER_S else "s",
            warnings=[self.warning] if self.warning else [],
        )
        if self.block_tokens is not None and any("hash_ids" in row.body for _, row in rows):
            lists = [row.hashes("hash_ids") for _, row in rows]
            c.hash_offset, c.hashes = hash_array(lists, lambda i: rows[i][1].where)
            c.block_tokens = reading.block_tokens or self.block_tokens
        return c


def _format(name: str, title: str, tells: str, key: str, layout: Layout) -> Format:
    return Format(name, title, "JSON lines", tells, lambda head: key in head.keys, layout.read)


FORMATS = (
    _format("bailian", "Bailian", "times in s, chats by parent, hashes of 16-token blocks",
            '"chat_id":', Layout(block_tokens=16, sessions=sessions_by_parent)),
    _format("ragpulse", "RAGPulse", "times in s, sessions", '"hash_ids":{', Layout(
        time_is_text=True, block_tokens=None,
        warning="the hashes name prompt components without their lengths, not chains of blocks: "
        "they are not used, and no prompt shares a block")),
    _format("mooncake", "Mooncake", "times in ms, hashes of 512-token blocks, sessions at times",
            '"input_length":', Layout(MS_PER_S)),
)  # fmt: skip
