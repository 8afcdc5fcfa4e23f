"""Formats of a request a line: columns and units. Mooncake (FAST'25) hashes 512 tokens with a
partial last block, Bailian (Qwen) 16; RAGPulse's hashes are not chained and so not used."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from twin.lab.traces.cells import (
    MISSING,
    Cells,
    clock_ns,
    csv_cells,
    hash_array,
    hash_lists,
    json_cells,
    numbers_in,
)
from twin.lab.traces.formats import Columns, Format, Reading
from twin.lab.traces.source import Piece, TraceError

CLOCK = "wall clock"  # the unit of times that are dates and times of day
TICKS_PER_S = {"": 1.0, "s": 1.0, "ms": 1e3, CLOCK: 1e9}

# Checked cells and the line of each row, a portion of the file at a time.
Opener = Callable[[Piece], Iterator[tuple[Cells, np.ndarray]]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a format."""

    time: str  # "": there is none
    input: str
    output: str
    unit: str = "s"  # of the time
    session: str = ""  # a column that may be there and names it
    parents: bool = False  # sessions are chats that continue their parent
    text_time: bool = False  # times are text that reads like a number
    block_tokens: int | None = None  # of a hashed block; 0: found out; None: no chains of hashes
    warning: str = ""
    opened: Opener = csv_cells

    @property
    def columns(self) -> frozenset[str]:
        """Columns by which the format is recognised."""
        return frozenset({self.time, self.input, self.output} - {""})

    def read(self, reading: Reading) -> Columns:
        """The requests of a file; raises TraceError with the line of the first bad value."""
        roots: dict[str, str] = {}  # chats that others continue, and theirs
        parts: list[tuple[Any, ...]] = []
        chains: list[tuple[np.ndarray, np.ndarray]] = []  # lengths and hashes
        missing_hashes: TraceError | None = None  # a portion none of whose rows has hashes
        for cells, lines in self.opened(reading.only()):
            numbers = self._ticks(cells), cells.tokens(self.input), cells.tokens(self.output)
            names = _by_parent(cells, roots) if self.parents else cells.texts(self.session)
            parts.append((*numbers, lines, names))
            if self.block_tokens is None:
                continue
            if any(cells.value("hash_ids", i) is not MISSING for i in range(cells.size)):
                offset, hashes = hash_array(hash_lists(cells), cells.where)
                chains.append((np.diff(offset), hashes))
            elif cells.size and missing_hashes is None:
                missing_hashes = cells.wrong("hash_ids", 0, "a list of block hashes")
            if chains and missing_hashes is not None:
                raise missing_hashes
        *columns, sessions = zip(*parts, strict=True)
        ticks, input_tokens, output_tokens, rows = map(np.concatenate, columns)
        c = Columns(
            ticks, TICKS_PER_S[self.unit], input_tokens, output_tokens, rows, _codes(sessions),
            has_time=bool(self.time), time_unit=self.unit,
            warnings=[self.warning] if self.warning else [],
        )  # fmt: skip
        if chains:
            lengths, c.hashes = map(np.concatenate, zip(*chains, strict=True))
            c.hash_offset = np.append(0, np.cumsum(lengths))
            c.block_tokens = reading.block_tokens or self.block_tokens or 0
        return c

    def _ticks(self, cells: Cells) -> np.ndarray:
        """Times of the requests in the file's unit, f8[n]; 0 without times."""
        if not self.time:
            return np.zeros(cells.size)
        if self.unit == CLOCK:
            return clock_ns(cells, self.time)
        if self.text_time and (texts := cells.texts(self.time)) is not None:
            cells = replace(cells, floats=lambda _: numbers_in(texts))
        return cells.times(self.time)


def _codes(names: Sequence[pl.Series | None]) -> np.ndarray | None:
    """A number i8[n] for every name, equal for equal names; None for rows without a name."""
    present = [part for part in names if part is not None]
    if len(present) < len(names) or not sum(map(len, present)):
        return None
    return pl.concat(present).cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()


def _by_parent(cells: Cells, root: dict[str, str]) -> pl.Series:
    """Sessions of chats that continue their parent, named by the root chat."""
    names = []
    for i in range(cells.size):
        chat, parent = cells.value("chat_id", i), cells.value("parent_chat_id", i)
        parent = -1 if parent is MISSING else parent
        for key, value in (("chat_id", chat), ("parent_chat_id", parent)):
            if type(value) not in {int, str}:
                raise cells.wrong(key, i, "a number or a name (-1: no parent)")
        names.append(str(chat) if parent in {-1, "-1"} else root.get(str(parent), str(parent)))
        root[str(chat)] = names[-1]
    return pl.Series(names, dtype=pl.String)


def _json(name: str, title: str, tells: str, key: str, **layout: Any) -> Format:
    """Matcher of JSON lines with a key."""
    columns = ("timestamp", "input_length", "output_length")
    reader = Layout(*columns, **layout, opened=json_cells).read
    return Format(name, title, "JSON lines", tells, lambda head: key in head.keys, reader)


def _csv(name: str, title: str, layout: Layout) -> Format:
    """Matcher of CSV with all columns of a layout."""
    tells = {"": "no times", CLOCK: "wall-clock times"}.get(layout.unit, f"times in {layout.unit}")
    tells += ", sessions at times" if layout.session else ""
    return Format(name, title, "CSV", tells, lambda h: layout.columns <= h.header, layout.read)


FORMATS = (
    _json("bailian", "Bailian", "times in s, chats by parent, hashes of 16-token blocks",
          '"chat_id":', parents=True, block_tokens=16),
    _json("ragpulse", "RAGPulse", "times in s, sessions", '"hash_ids":{',
          session="session_id", text_time=True,
          warning="the hashes name prompt components without their lengths, not chains of "
          "blocks: they are not used, and no prompt shares a block"),
    _json("mooncake", "Mooncake", "times in ms, hashes of 512-token blocks, sessions at times",
          '"input_length":', unit="ms", session="session_id", block_tokens=0),
    _csv("azure", "Azure LLM inference",
         Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens", CLOCK)),
    _csv("burstgpt", "BurstGPT",
         Layout("Timestamp", "Request tokens", "Response tokens", session="Session ID")),
    _csv("vidur", "vidur", Layout("arrived_at", "num_prefill_tokens", "num_decode_tokens")),
    _csv("splitwise", "splitwise", Layout("arrival_timestamp", "prompt_size", "token_size")),
    _csv("guidellm", "GuideLLM", Layout("timestamp", "input_length", "output_length")),
    _csv("vidur lengths", "vidur lengths",
         Layout("", "num_prefill_tokens", "num_decode_tokens", "")),
    _csv("lengths", "bare lengths", Layout("", "input", "output", "")),
)  # fmt: skip
