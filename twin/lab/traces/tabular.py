"""Traces as comma-separated tables: Azure, BurstGPT, vidur, splitwise, GuideLLM, bare lengths.

Columns are found by name, so extra ones and another order do no harm. None of these has block
hashes. Knows nothing about JSON.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import polars as pl

from twin.lab.traces.formats import Format, Reading, header_of
from twin.lab.traces.jsonl import MOST_TICKS, text_of
from twin.lab.traces.source import Piece, TraceError
from twin.lab.traces.table import MOST_TOKENS, Columns

MOST_LINE_BYTES = 64 << 10
MOST_COLUMNS = 64
BLANK = " \t\r"
NANOSECONDS_PER_S = 1e9
CLOCK = (
    r"^\s*(?<day>\d{4}-\d\d-\d\d)[ T](?<time>\d\d:\d\d:\d\d)(?:\.(?<fraction>\d{1,9}))?"
    r"\s*(?<zone>Z|[+-]\d\d:?\d\d)?\s*$"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a format hold what; time '' means that there is none."""

    time: str
    input: str
    output: str
    session: str = ""
    wall_clock: bool = False  # time is a date and a time of day, not a number of seconds

    @property
    def columns(self) -> frozenset[str]:
        """The columns that tell the format."""
        return frozenset({self.time, self.input, self.output} - {""})

    @property
    def time_unit(self) -> str:
        """Of the time column; '' where there is none."""
        return "wall clock" if self.wall_clock else "s" if self.time else ""

    def read(self, reading: Reading) -> Columns:
        """A table; raises TraceError with the line of the first bad value."""
        piece = reading.only()
        frame, lines = _frame(piece)
        table = _Table(piece.name, frame, lines)
        session = None
        if self.session and self.session in frame.columns:
            names = frame[self.session].cast(pl.Categorical)
            session = names.to_physical().cast(pl.Int64).to_numpy()
        ticks = np.zeros(frame.height)
        if self.wall_clock:
            ticks = table.clock(self.time)
        elif self.time:
            ticks = table.numbers(self.time, "a time in seconds from 0 on", MOST_TICKS)
        return Columns(
            name=piece.name,
            format=reading.kind,
            ticks=ticks,
            ticks_per_s=NANOSECONDS_PER_S if self.wall_clock else 1.0,
            input_tokens=table.tokens(self.input),
            output_tokens=table.tokens(self.output),
            source_row=lines,
            session=session,
            has_time=bool(self.time),
            time_unit=self.time_unit,
        )


def _format(name: str, title: str, layout: Layout) -> Format:
    tells = "wall-clock times" if layout.wall_clock else "times in s" if layout.time else "no times"
    tells += ", sessions at times" if layout.session else ""
    return Format(name, title, "CSV", tells, lambda h: layout.columns <= h.header, layout.read)


FORMATS = (
    _format("azure", "Azure LLM inference",
            Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens", wall_clock=True)),
    _format("burstgpt", "BurstGPT",
            Layout("Timestamp", "Request tokens", "Response tokens", "Session ID")),
    _format("vidur", "vidur", Layout("arrived_at", "num_prefill_tokens", "num_decode_tokens")),
    _format("splitwise", "splitwise", Layout("arrival_timestamp", "prompt_size", "token_size")),
    _format("guidellm", "GuideLLM", Layout("timestamp", "input_length", "output_length")),
    _format("vidur lengths", "vidur lengths",
            Layout("", "num_prefill_tokens", "num_decode_tokens")),
    _format("lengths", "bare lengths", Layout("", "input", "output")),
)  # fmt: skip


def _frame(piece: Piece) -> tuple[pl.DataFrame, np.ndarray]:
    """All columns as text, and the line number i8[n] of each row; blank lines are skipped."""
    lines = text_of(piece).split("\n")
    longest = max(range(len(lines)), key=lambda i: len(lines[i]))
    if len(lines[longest]) > MOST_LINE_BYTES:
        raise TraceError(
            f"{piece.name} line {longest + 1} is longer than {MOST_LINE_BYTES >> 10} KB: "
            "no row of a trace is"
        )
    filled = [i for i, line in enumerate(lines) if line.strip(BLANK)]
    header = header_of(lines[filled[0]])
    if len(header) > MOST_COLUMNS:
        raise TraceError(f"{piece.name} has {len(header)} columns: at most {MOST_COLUMNS} are read")
    if len(set(header)) < len(header):
        raise TraceError(f"{piece.name} names a column twice: {', '.join(header)}")
    body = [lines[i] for i in filled[1:]]
    for i, line in zip(filled[1:], body, strict=True):
        if line.count(",") != len(header) - 1:
            raise TraceError(
                f"{piece.name} line {i + 1} has {line.count(',') + 1} values where the header "
                f"names {len(header)} columns"
            )
    if not body:
        raise TraceError(f"{piece.name} holds a header and no request")
    frame = pl.read_csv(
        io.BytesIO("\n".join(body).encode()),
        has_header=False,
        new_columns=header,
        infer_schema=False,
        quote_char=None,
        eol_char="\n",
    )
    return frame.with_columns(pl.all().str.strip_chars(BLANK + '"')), np.array(filled[1:]) + 1


@dataclass(frozen=True, slots=True)
class _Table:
    """Text columns and the line of each row; each getter refuses what does not fit."""

    name: str
    frame: pl.DataFrame
    lines: np.ndarray

    def refuse(self, column: str, bad: np.ndarray, wanted: str) -> None:
        """Raise for the first row of bad b[n], if there is one."""
        if bad.any():
            row = int(np.argmax(bad))
            value = str(self.frame[column][row])[:40]
            raise TraceError(
                f"{self.name} line {self.lines[row]}: {column} = {value!r} must be {wanted}"
            )

    def numbers(self, column: str, wanted: str, most: float) -> np.ndarray:
        """f8[n] from 0 to `most`."""
        values = self.frame[column].cast(pl.Float64, strict=False).fill_null(-1.0).to_numpy()
        self.refuse(column, ~((values >= 0) & (values <= most)), wanted)
        return values

    def tokens(self, column: str) -> np.ndarray:
        """i8[n] counts of tokens."""
        wanted = f"a whole number of tokens from 0 to {MOST_TOKENS:,}"
        values = self.numbers(column, wanted, MOST_TOKENS)
        self.refuse(column, values != np.floor(values), wanted)
        return values.astype(np.int64)

    def clock(self, column: str) -> np.ndarray:
        """i8[n] nanoseconds since 1970 of dates and times; without a zone they are UTC."""
        part = self.frame[column].str.extract_groups(CLOCK).struct.unnest()
        seconds = (
            (part["day"] + " " + part["time"])
            .str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
            .dt.epoch("s")
        )
        wanted = "a time like 2023-11-16 18:15:46.6805900"
        self.refuse(column, seconds.is_null().to_numpy(), wanted)
        fraction = part["fraction"].fill_null("0").str.pad_end(9, "0").cast(pl.Int64)
        zone = part["zone"].fill_null("Z").str.replace("Z", "+0000").str.replace(":", "")
        sign = 1 - 2 * zone.str.starts_with("-").cast(pl.Int64)
        hours, minutes = zone.str.slice(1, 2).cast(pl.Int64), zone.str.slice(3, 2).cast(pl.Int64)
        since = seconds - sign * (hours * 3600 + minutes * 60)
        return (since * 1_000_000_000 + fraction).to_numpy()
