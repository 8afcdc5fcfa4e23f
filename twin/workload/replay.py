"""A trace as a request stream: faster, copied, spread, cut, re-blocked. The rate multiplier changes
time alone; copies have new sessions and blocks, so load and working set grow together."""

import math

import numpy as np

from twin.kernels.compiled import late
from twin.kernels.rng import exponential, uniforms
from twin.scenario import Workload
from twin.workload.chains import expand_runs, ranges, regroup, runs_of, with_answers
from twin.workload.prefixes import Chains, own_chains
from twin.workload.profile import POISSON, Clock, renewal_arrivals
from twin.workload.requests import MOST_REQUESTS, Requests, Streams, TraceTable, WorkloadError

COPY_SPREAD_REQUESTS = 100  # copies start within the time of so many requests of the trace
COARSE_SHARE = 0.01  # share of requests with an equal timestamp above which time is coarse
NANOSECOND = 1e-9
NEVER = math.inf
NO_LIMIT = 2**62
NONE = -1


def replay(
    workload: Workload, clock: Clock, horizon_s: float, stream: Streams, block_tokens: int,
    table: TraceTable, count: int | None, answers: bool = False,
) -> Requests:  # fmt: skip
    """The trace's requests: copied, spread, squeezed, cut at the horizon and re-blocked; where
    turns wait, sessions that begin before the horizon stay whole. answers: chains include the
    blocks of the answers. Of the workload only `trace`, `turns` and, without times,
    `rate_req_per_s` count."""
    ask = workload.trace
    n = len(table)
    if n * ask.tree_copies > MOST_REQUESTS:
        raise WorkloadError(
            f"{ask.tree_copies} copies of {n:,} requests are more than one run takes "
            f"({MOST_REQUESTS:,}): take fewer copies"
        )
    arrival_s = table.arrival_s
    if not table.has_time:
        key, rate = stream("arrivals"), workload.rate_req_per_s
        arrival_s = renewal_arrivals(key, POISSON, rate, 1.0, NEVER, n)
    quantum_s = timestamp_quantum(arrival_s) if ask.dequantise else 0.0
    times = copied_times(arrival_s, quantum_s, ask.tree_copies, stream("spread"), stream("copies"))
    times /= ask.rate_multiplier
    times = clock.seconds(times)
    order = np.argsort(times, kind="stable")
    before = earlier_turn(table.session)
    turns_wait = workload.turns == "wait" and bool((before >= 0).any())
    arriving = order[: int(np.searchsorted(times[order], horizon_s))]
    if turns_wait:
        begun_s = times.reshape(-1, n)[:, first_turn(before)].reshape(-1)
        arriving = order[begun_s[order] < horizon_s]
    most = min(count if count is not None else NO_LIMIT, ask.max_requests or NO_LIMIT)
    chosen_rows = arriving[:most]
    copy, row = np.divmod(chosen_rows, max(n, 1))
    chains, size = _trace_chains(table, block_tokens, before if answers else None)
    offset, first, blocks, distinct = place_rows(chains, copy, row)
    sessions = int(table.session.max()) + 1 if n else 0
    waits_for, pause_s = None, None
    if turns_wait:
        waits_for = _places(chosen_rows, copy * n + before[row], before[row] >= 0)
        # Think times if the trace has them, otherwise gaps.
        gaps_s = arrival_s - arrival_s[before]
        pause_s = np.where(np.isnan(table.think_s), gaps_s, table.think_s)[row]
    return Requests(
        times[chosen_rows], table.input_tokens[row], table.output_tokens[row],
        (table.session[row] + copy * sessions).astype(np.int32), offset, first, blocks, distinct,
        block_tokens=size, has_prefix=table.has_prefix,
        counts=_replay_counts(table, order.size, arriving.size, chosen_rows.size),
        notes=_replay_notes(workload, table, quantum_s, size, block_tokens),
        waits_for=waits_for, pause_s=pause_s,
    )  # fmt: skip


def earlier_turn(session: np.ndarray) -> np.ndarray:
    """Previous row of each row's session, i8[n]; NONE for a first turn and outside sessions."""
    order = np.argsort(session, kind="stable")
    same_session = session[order][1:] == session[order][:-1]
    before = np.full(session.size, NONE)
    before[order[1:][same_session]] = order[:-1][same_session]
    before[session < 0] = NONE
    return before


def first_turn(before: np.ndarray) -> np.ndarray:
    """The first row of each row's session, i8[n]."""
    first = np.arange(before.size)
    for i in np.flatnonzero(before >= 0):  # rows are in order: the one before is known
        first[i] = first[before[i]]
    return first


def _places(chosen: np.ndarray, wanted: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Index of each wanted row among the chosen ones; NONE for others."""
    order = np.argsort(chosen, kind="stable")
    place = order[np.minimum(np.searchsorted(chosen[order], wanted), max(chosen.size - 1, 0))]
    return np.where(some, place, NONE)


def _trace_chains(
    table: TraceTable, block_tokens: int, before: np.ndarray | None
) -> tuple[Chains, int]:
    """(chains of every row, tokens of a block); before: `earlier_turn`, if with answers."""
    after = 0 if before is None else table.output_tokens
    if not table.has_prefix:
        return own_chains(table.input_tokens + after, block_tokens), block_tokens
    chains, size = _prompt_chains(table, block_tokens)
    if before is None:
        return chains, size
    child = np.full(len(table), NONE)
    child[before[before >= 0]] = np.flatnonzero(before >= 0)
    whole_blocks = (table.input_tokens.astype(np.int64) + after) // size
    return Chains(table.session, *with_answers(*chains[1:], child, whole_blocks)), size


def _replay_counts(table: TraceTable, offered: int, inside: int, chosen: int) -> dict[str, int]:
    counts = dict(table.counts)
    if offered > inside:
        counts["after the horizon"] = offered - inside
    if inside > chosen:
        counts["beyond max_requests"] = inside - chosen
    return counts


def _replay_notes(
    workload: Workload, table: TraceTable, quantum_s: float, used: int, wanted: int
) -> tuple[str, ...]:
    notes = []
    if not table.has_time:
        notes.append(
            f"{table.name} holds lengths only: arrivals are Poisson at "
            f"workload.rate_req_per_s = {workload.rate_req_per_s:g} req/s"
        )
    if workload.turns == "wait" and (earlier_turn(table.session) >= 0).any():
        known_share = 1.0 - np.isnan(table.think_s).mean()
        notes.append(
            f"sessions of {table.name} wait for their answers; pauses are its think times for "
            f"{known_share:.0%} of the requests, and gaps between its arrivals for the others"
        )
    if quantum_s:
        notes.append(
            f"timestamps of {table.name} are {quantum_s:.4g} s apart at least and shared: "
            "requests are spread evenly at random over that step"
        )
    if not table.has_prefix:
        notes.append(f"{table.name} has no prefix information: no prompt shares a block")
    elif used != wanted:
        notes.append(
            f"{table.name} has blocks of {table.block_tokens} tokens, which {wanted} does not "
            "hold whole: the memory pool keeps the trace's blocks"
        )
    return tuple(notes)


def timestamp_quantum(arrival_s: np.ndarray) -> float:
    """Step in seconds to which sorted timestamps f8[n] are rounded: the smallest that occurs, if
    more than a hundredth of the requests have equal timestamps; otherwise 0."""
    ticks = np.round(arrival_s / NANOSECOND).astype(np.int64)
    gaps = np.diff(ticks)
    positive_gaps = gaps[gaps > 0]
    if positive_gaps.size == 0 or gaps.size - positive_gaps.size <= COARSE_SHARE * ticks.size:
        return 0.0
    return float(positive_gaps.min() * NANOSECOND)


@late
def _spread(
    arrival_s: np.ndarray, quantum_s: float, key: np.uint64, first_index: int, out: np.ndarray
) -> None:
    """Spread equal times at random over the next quantum into out f8[n], in the file's order."""
    n = arrival_s.size
    begin = 0
    while begin < n:
        end = begin + 1
        while end < n and arrival_s[end] - arrival_s[begin] < 0.5 * NANOSECOND:
            end += 1
        total = 0.0
        for i in range(begin, end):
            total += exponential(key, first_index + i)
            out[i] = total
        total += exponential(key, -1 - first_index - begin)
        for i in range(begin, end):
            out[i] = arrival_s[begin] + quantum_s * (out[i] / total)
        begin = end


def _offsets(arrival_s: np.ndarray, copies: int, key: np.uint64) -> np.ndarray:
    """Start f8[copies] of each copy in seconds: 0 for the first, the others drawn at random."""
    n = arrival_s.size
    spread_s = float(arrival_s[-1]) * min(1.0, COPY_SPREAD_REQUESTS / n) if n else 0.0
    offsets = spread_s * uniforms(key, np.arange(copies))
    offsets[0] = 0.0
    return offsets


def copied_times(
    arrival_s: np.ndarray, quantum_s: float, copies: int, key_time: np.uint64, key_copy: np.uint64
) -> np.ndarray:
    """Arrival times f8[copies * n], copy after copy; with quantum_s = 0 times are unchanged."""
    n = arrival_s.size
    offsets = _offsets(arrival_s, copies, key_copy)
    times = np.empty(copies * n)
    for c in range(copies):
        part = times[c * n : (c + 1) * n]
        if quantum_s > 0:
            _spread(arrival_s, quantum_s, key_time, c * n, part)
        else:
            part[:] = arrival_s
        part += offsets[c]
    return times


def _prompt_chains(table: TraceTable, pool_tokens: int) -> tuple[Chains, int]:
    """(whole blocks of each row, tokens of a block); joined where `pool_tokens` is a multiple of
    the trace's, otherwise unchanged, because sharing inside a block is unknown."""
    trace_tokens, distinct = table.block_tokens, table.blocks
    runs = table.segment_offset, table.segment_first, table.segment_blocks
    row_offset, ids = expand_runs(*runs)
    size = pool_tokens // trace_tokens if pool_tokens % trace_tokens == 0 else 1
    whole_blocks = table.input_tokens.astype(np.int64) // (trace_tokens * size)
    if size > 1:
        row_offset, ids, distinct = regroup(row_offset, ids, whole_blocks, size)
    end = row_offset[:-1] + np.minimum(whole_blocks, np.diff(row_offset))
    runs_of_rows = runs_of(row_offset[:-1], end, ids)
    return Chains(table.session, *runs_of_rows, distinct), trace_tokens * size


def place_rows(
    chains: Chains, copy: np.ndarray, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Chains of the wanted (copy, row) pairs i8[k]; every copy has its own ids: (segment_offset
    i8[k + 1], segment_first, segment_blocks, distinct ids)."""
    count = np.diff(chains.segment_offset)[row]
    row_places = ranges(chains.segment_offset[row], count)
    first, blocks = chains.segment_first[row_places], chains.segment_blocks[row_places]
    used = int((first + blocks).max(initial=0))
    copies = int(copy.max(initial=-1)) + 1
    offset = np.concatenate(([0], np.cumsum(count)))
    return offset, first + np.repeat(copy * used, count), blocks, copies * used
