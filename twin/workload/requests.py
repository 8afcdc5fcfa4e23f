"""Tables of requests: what a run is fed with, and what a trace file holds. Prompts are chains of KV
blocks, stored as runs of consecutive ids (segments): a list of blocks would be larger."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

MOST_REQUESTS = 50_000_000  # of one run: about 3 GB of columns
Streams = Callable[[str], np.uint64]  # the key of a random stream, by the name of what it is for


class WorkloadError(ValueError):
    """A workload from which no requests can be made: what, where, and what would be right."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A request stream, one row per request in order of arrival. The prompt of request i is the
    chain of segments `segment_offset[i] : segment_offset[i + 1]`; segment s holds the
    `segment_blocks[s]` ids from `segment_first[s]` on."""

    arrival_s: np.ndarray  # f8[n], sorted
    input_tokens: np.ndarray  # i4[n]
    output_tokens: np.ndarray  # i4[n]
    session: np.ndarray  # i4[n]
    segment_offset: np.ndarray  # i8[n + 1]
    segment_first: np.ndarray  # i8[m]
    segment_blocks: np.ndarray  # i4[m]
    blocks: int  # distinct block ids, 0 .. blocks - 1
    block_tokens: int  # 0: a file has no blocks
    has_prefix: bool  # whether any two prompts can share a block

    def __len__(self) -> int:
        """Number of requests."""
        return self.arrival_s.size


@dataclass(frozen=True, slots=True)
class Requests(Stream):
    """Requests of a run in whole blocks; arrival +inf waits for a completion (closed loop)."""

    counts: dict[str, int] = field(default_factory=dict)  # rows left out or changed, by reason
    notes: tuple[str, ...] = ()  # sentences about what was assumed
    # Where turns wait: i4[n], the turn whose answer a request waits for, or NONE; f8[n], how long
    # after it. Its arrival is then no more than its place in the order.
    waits_for: np.ndarray | None = None
    pause_s: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class TraceTable(Stream):
    """A recorded stream from time 0, with the file's blocks, in some formats the last partial.
    Tables of one content are equal: answers about a trace are cached by it."""

    has_time: bool  # False: the file holds lengths only
    source_row: np.ndarray  # i4[n], line or record number in the file, from 1
    think_s: np.ndarray  # f8[n], the user's pause before the request; NaN: unknown
    counts: dict[str, int]
    name: str
    format: str
    time_unit: str = "s"  # of the file's timestamps
    warnings: tuple[str, ...] = ()  # sentences about what a reader of results should know

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1]) if self.arrival_s.size else 0.0

    def __eq__(self, other: object) -> bool:
        """Whether the other table has the same content, by digest."""
        return isinstance(other, TraceTable) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash of the digest of the content."""
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of what a run depends on: times, lengths, sessions, blocks, think times."""
        if np.isnan(self.think_s).all():
            return self.plain_digest
        think_bytes = np.ascontiguousarray(self.think_s, dtype="<f8").tobytes()
        return hashlib.sha256(self.plain_digest.encode() + think_bytes).hexdigest()

    @property
    def plain_digest(self) -> str:
        """The digest without think times, by which traces were stored before turns could wait."""
        content_hash = hashlib.sha256(f"trace 1 {self.block_tokens} {self.has_time}".encode())
        for column, dtype in (
            (self.arrival_s, "<f8"), (self.input_tokens, "<i4"), (self.output_tokens, "<i4"),
            (self.session, "<i4"), (self.segment_offset, "<i8"), (self.segment_first, "<i8"),
            (self.segment_blocks, "<i4"),
        ):  # fmt: skip
            content_hash.update(np.ascontiguousarray(column, dtype=dtype).tobytes())
        return content_hash.hexdigest()
