"""The traffic: requests with arrival times, lengths and the KV blocks their prompts share.

`generate` turns a workload section into `Requests`. Each aspect (arrivals, input lengths, output
lengths, prefixes) draws from its own named stream, so changing one leaves the others as they were.
Prompts are chains of whole KV blocks, kept as runs of consecutive block ids. This module knows
nothing about machines, and opens no file: a recorded trace comes in as a `TraceTable`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from twin.facts import Facts
from twin.serving.arrivals import (
    GAMMA,
    POISSON,
    closed_loop_arrivals,
    renewal_arrivals,
    uniform_arrivals,
)
from twin.serving.rng import stream_key
from twin.spec import Workload

NO_LIMIT = 2**62


class WorkloadError(ValueError):
    """A workload that cannot be made into requests: what, where, and what would be right."""


@dataclass(frozen=True, slots=True)
class Requests:
    """A request stream, one row per request in order of arrival.

    The prompt of request i is the chain of blocks in segments
    `segment_offset[i] : segment_offset[i + 1]`; segment s holds the `segment_blocks[s]` ids from
    `segment_first[s]` on. Only whole blocks are in the chain: a partial last block cannot be
    reused.
    """

    arrival_s: np.ndarray  # f8[n], sorted; +inf: waits for a completion (closed loop)
    input_tokens: np.ndarray  # i4[n]
    output_tokens: np.ndarray  # i4[n]
    session: np.ndarray  # i4[n]
    segment_offset: np.ndarray  # i8[n + 1]
    segment_first: np.ndarray  # i8[m]
    segment_blocks: np.ndarray  # i4[m]
    blocks: int  # distinct block ids, 0 .. blocks - 1
    block_tokens: int
    has_prefix: bool  # whether any two prompts can share a block
    counts: dict[str, int] = field(default_factory=dict)  # rows left out or changed, by reason

    def __len__(self) -> int:
        return self.arrival_s.size


@dataclass(frozen=True, slots=True)
class TraceTable:
    """A recorded request stream, as its file says, sorted by arrival.

    Blocks are prefix-chained and densely numbered in order of first use: an id stands for a block
    and everything before it. Segments as in `Requests`, but of the file's own blocks, with a
    partial last block where the format has one.
    """

    arrival_s: np.ndarray  # f8[n], sorted, from 0
    input_tokens: np.ndarray  # i4[n]
    output_tokens: np.ndarray  # i4[n]
    session: np.ndarray  # i4[n]
    segment_offset: np.ndarray  # i8[n + 1]
    segment_first: np.ndarray  # i8[m]
    segment_blocks: np.ndarray  # i4[m]
    blocks: int
    block_tokens: int  # 0: the file has no blocks
    has_prefix: bool
    has_time: bool  # False: the file holds lengths only
    source_row: np.ndarray  # i4[n], line or record number in the file, from 1
    think_s: np.ndarray  # f8[n], the user's pause before the request; NaN: unknown
    counts: dict[str, int]
    name: str
    format: str

    def __len__(self) -> int:
        return self.arrival_s.size

    @property
    def duration_s(self) -> float:
        """Time from the first arrival to the last."""
        return float(self.arrival_s[-1]) if self.arrival_s.size else 0.0

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what a run depends on: times, lengths, sessions and blocks."""
        content = hashlib.sha256(f"trace 1 {self.block_tokens} {self.has_time}".encode())
        for column, kind in (
            (self.arrival_s, "<f8"),
            (self.input_tokens, "<i4"),
            (self.output_tokens, "<i4"),
            (self.session, "<i4"),
            (self.segment_offset, "<i8"),
            (self.segment_first, "<i8"),
            (self.segment_blocks, "<i4"),
        ):
            content.update(np.ascontiguousarray(column, dtype=kind).tobytes())
        return content.hexdigest()


def generate(
    workload: Workload,
    horizon_s: float,
    seed: int,
    block_tokens: int,
    facts: Facts,
    trace: TraceTable | None = None,
    count: int | None = None,
) -> Requests:
    """The requests that arrive in [0, horizon_s) seconds, at most `count`.

    A closed loop needs `count`: its later requests have arrival +inf. Raises WorkloadError.
    """
    arrival_s = _arrivals(workload, horizon_s, seed, count)
    n = arrival_s.size
    input_tokens = np.full(n, workload.input_tokens, np.int32)
    output_tokens = np.full(n, workload.output_tokens, np.int32)
    return _unshared(arrival_s, input_tokens, output_tokens, block_tokens)


def _arrivals(workload: Workload, horizon_s: float, seed: int, count: int | None) -> np.ndarray:
    most = NO_LIMIT if count is None else count
    key = stream_key(seed, "arrivals")
    rate = workload.rate_req_per_s
    if workload.arrivals == "closed_loop":
        if count is None:
            raise WorkloadError("workload.arrivals = closed_loop needs a count of requests")
        return closed_loop_arrivals(workload.concurrency, count)
    if workload.arrivals == "uniform":
        return uniform_arrivals(rate, horizon_s, most)
    process = GAMMA if workload.arrivals == "gamma" else POISSON
    return renewal_arrivals(key, process, rate, workload.cv, horizon_s, most)


def _unshared(
    arrival_s: np.ndarray, input_tokens: np.ndarray, output_tokens: np.ndarray, block_tokens: int
) -> Requests:
    """Requests that share nothing: each its own session and its own run of blocks."""
    n = arrival_s.size
    segment_first = np.empty(n, np.int64)
    segment_blocks = np.empty(n, np.int32)
    blocks = _own_runs(input_tokens, block_tokens, segment_first, segment_blocks)
    return Requests(
        arrival_s, input_tokens, output_tokens, np.arange(n, dtype=np.int32),
        np.arange(n + 1, dtype=np.int64), segment_first, segment_blocks,
        blocks, block_tokens, has_prefix=False,
    )  # fmt: skip


@njit(cache=True)
def _own_runs(
    input_tokens: np.ndarray,
    block_tokens: int,
    segment_first: np.ndarray,
    segment_blocks: np.ndarray,
) -> int:
    """One run of fresh block ids per request: fills both i8/i4[n] columns, returns the ids used."""
    used = 0
    for i in range(input_tokens.size):
        segment_first[i] = used
        segment_blocks[i] = input_tokens[i] // block_tokens
        used += segment_blocks[i]
    return used
