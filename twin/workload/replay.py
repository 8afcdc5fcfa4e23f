"""A trace as a request stream: faster, copied, spread, cut, re-blocked. The rate multiplier changes
time alone; copies have new sessions and blocks, so load and working set grow together."""

import math

import numpy as np

from twin.kernels.compiled import lazy_entry
from twin.kernels.rng import exponential, uniforms
from twin.scenario import Workload
from twin.workload.chains import expand_runs, extended_chains, join_blocks, ranges, runs_of
from twin.workload.prefixes import NONE, Chains, first_turn, own_chains
from twin.workload.profile import POISSON, Clock, renewal_arrivals
from twin.workload.requests import MOST_REQUESTS, Requests, Streams, TraceTable, WorkloadError

COPY_SPREAD_REQUESTS = 100  # copies start within the time of so many requests of the trace
COARSE_SHARE = 0.01  # share of requests with an equal timestamp above which time is coarse
NANOSECOND = 1e-9
NO_LIMIT = 2**62


def replayed_requests(
    workload: Workload, clock: Clock, horizon_s: float, stream: Streams, block_tokens: int,
    table: TraceTable, count: int | None, answers: bool = False,
) -> Requests:  # fmt: skip
    """Requests of a run that replays a trace: the trace as often as `trace.tree_copies` says, with
    rounded timestamps spread and times divided by the rate multiplier, up to the horizon. Where
    turns wait, sessions that begin before it stay whole. Prompts are in blocks of `block_tokens`.
    stream: gives a random stream's key by its name; count: requests at most (None: no limit);
    answers: whether chains include the blocks of answers. Of the workload only `trace`, `turns`
    and, if the trace has no times, the rate are used."""
    settings = workload.trace
    rows = len(table)
    if rows * settings.tree_copies > MOST_REQUESTS:
        raise WorkloadError(
            f"{settings.tree_copies} copies of {rows:,} requests are more than one run takes "
            f"({MOST_REQUESTS:,}): take fewer copies"
        )
    arrival_s = table.arrival_s
    if not table.has_time:
        arrival_key, req_per_s = stream("arrivals"), workload.rate_req_per_s
        arrival_s = renewal_arrivals(arrival_key, POISSON, req_per_s, 1.0, math.inf, rows)
    quantum_s = timestamp_quantum(arrival_s) if settings.dequantise else 0.0
    time_and_copy_keys = stream("spread"), stream("copies")
    times_s = copied_times(arrival_s, quantum_s, settings.tree_copies, *time_and_copy_keys)
    times_s = clock.seconds(times_s / settings.rate_multiplier)
    time_order = np.argsort(times_s, kind="stable")
    earlier_row = earlier_turn(table.session)
    turns_wait = workload.turns == "wait" and bool((earlier_row >= 0).any())
    arriving_rows = time_order[: int(np.searchsorted(times_s[time_order], horizon_s))]
    if turns_wait:
        session_begin_s = times_s.reshape(-1, rows)[:, first_turn(earlier_row)].reshape(-1)
        arriving_rows = time_order[session_begin_s[time_order] < horizon_s]
    most_requests = min(count if count is not None else NO_LIMIT, settings.max_requests or NO_LIMIT)
    chosen_rows = arriving_rows[:most_requests]
    copy, row = np.divmod(chosen_rows, max(rows, 1))
    chains, block_size = _trace_chains(table, block_tokens, earlier_row if answers else None)
    copied_chains = chains_of_copies(chains, copy, row)
    sessions = int(table.session.max()) + 1 if rows else 0
    waits_for, pause_s = None, None
    if turns_wait:
        waits_for = _index_among(chosen_rows, copy * rows + earlier_row[row], earlier_row[row] >= 0)
        # Think times if the trace has them, otherwise gaps.
        turn_gaps_s = arrival_s - arrival_s[earlier_row]
        pause_s = np.where(np.isnan(table.think_s), turn_gaps_s, table.think_s)[row]
    return Requests(
        times_s[chosen_rows], table.input_tokens[row], table.output_tokens[row],
        (table.session[row] + copy * sessions).astype(np.int32), *copied_chains,
        block_tokens=block_size, has_prefix=table.has_prefix,
        counts=_replay_counts(table, time_order.size, arriving_rows.size, chosen_rows.size),
        notes=_replay_notes(workload, table, quantum_s, block_size, block_tokens),
        waits_for=waits_for, pause_s=pause_s,
    )  # fmt: skip


def earlier_turn(session: np.ndarray) -> np.ndarray:
    """Previous row of each row's session, i8[n]; NONE for a first turn and outside sessions."""
    session_order = np.argsort(session, kind="stable")
    continues_session = session[session_order][1:] == session[session_order][:-1]
    previous_row = np.full(session.size, NONE)
    previous_row[session_order[1:][continues_session]] = session_order[:-1][continues_session]
    previous_row[session < 0] = NONE
    return previous_row


def _index_among(chosen: np.ndarray, wanted: np.ndarray, is_wanted: np.ndarray) -> np.ndarray:
    """Position of each wanted[i] in `chosen` (row numbers); NONE where `is_wanted` is false."""
    order = np.argsort(chosen, kind="stable")
    position = order[np.minimum(np.searchsorted(chosen[order], wanted), max(chosen.size - 1, 0))]
    return np.where(is_wanted, position, NONE)


def _trace_chains(
    table: TraceTable, block_tokens: int, turn_before: np.ndarray | None
) -> tuple[Chains, int]:
    """(chains of every row, tokens in a block). turn_before i8[n]: the earlier turn of each row,
    NONE for a first turn; if it is None, chains do not include answers."""
    answer_tokens = 0 if turn_before is None else table.output_tokens
    if not table.has_prefix:
        return own_chains(table.input_tokens + answer_tokens, block_tokens), block_tokens
    chains, block_size = _prompt_chains(table, block_tokens)
    if turn_before is None:
        return chains, block_size
    next_turn = np.full(len(table), NONE)
    next_turn[turn_before[turn_before >= 0]] = np.flatnonzero(turn_before >= 0)
    whole_blocks = (table.input_tokens.astype(np.int64) + answer_tokens) // block_size
    return Chains(table.session, *extended_chains(*chains[1:], next_turn, whole_blocks)), block_size


def _replay_counts(table: TraceTable, all_rows: int, inside: int, chosen: int) -> dict[str, int]:
    """Number of the trace's rows that were left out or changed, by reason. all_rows, inside,
    chosen: number of all rows, of those before the horizon, of those in the run."""
    counts = dict(table.counts)
    if all_rows > inside:
        counts["after the horizon"] = all_rows - inside
    if inside > chosen:
        counts["beyond max_requests"] = inside - chosen
    return counts


def _replay_notes(
    workload: Workload, table: TraceTable, quantum_s: float, block_size: int, pool_tokens: int
) -> tuple[str, ...]:
    """Sentences about what the replay assumes where the trace has no information. block_size,
    pool_tokens: tokens in a block of the replay, and of the memory pool."""
    notes = []
    if not table.has_time:
        notes.append(
            f"{table.name} holds lengths only: arrivals are Poisson at "
            f"workload.rate_req_per_s = {workload.rate_req_per_s:g} req/s"
        )
    if workload.turns == "wait" and (earlier_turn(table.session) >= 0).any():
        think_share = 1.0 - np.isnan(table.think_s).mean()
        notes.append(
            f"sessions of {table.name} wait for their answers; pauses are its think times for "
            f"{think_share:.0%} of the requests, and gaps between its arrivals for the others"
        )
    if quantum_s:
        notes.append(
            f"timestamps of {table.name} are {quantum_s:.4g} s apart at least and shared: "
            "requests are spread evenly at random over that step"
        )
    if not table.has_prefix:
        notes.append(f"{table.name} has no prefix information: no prompt shares a block")
    elif block_size != pool_tokens:
        notes.append(
            f"{table.name} has blocks of {table.block_tokens} tokens, which {pool_tokens} does "
            "not hold whole: the memory pool keeps the trace's blocks"
        )
    return tuple(notes)


def timestamp_quantum(arrival_s: np.ndarray) -> float:
    """Step in seconds to which sorted timestamps f8[n] are rounded: their smallest difference above
    0 if more than a hundredth of the requests share a timestamp, otherwise 0."""
    ticks_ns = np.round(arrival_s / NANOSECOND).astype(np.int64)
    gaps_ns = np.diff(ticks_ns)
    rises_ns = gaps_ns[gaps_ns > 0]
    if rises_ns.size == 0 or gaps_ns.size - rises_ns.size <= COARSE_SHARE * ticks_ns.size:
        return 0.0
    return float(rises_ns.min() * NANOSECOND)


@lazy_entry
def _spread_equal_times(
    arrival_s: np.ndarray, quantum_s: float, key: np.uint64, first_index: int, out: np.ndarray
) -> None:
    """Fill `out` f8[n] with `arrival_s` f8[n], equal times spread at random over the next quantum_s
    seconds, in the file's order. first_index: number of the first draw of stream `key`."""
    rows = arrival_s.size
    first_equal = 0
    while first_equal < rows:
        end_equal = first_equal + 1
        while end_equal < rows and arrival_s[end_equal] - arrival_s[first_equal] < 0.5 * NANOSECOND:
            end_equal += 1
        gap_sum = 0.0
        for row in range(first_equal, end_equal):
            gap_sum += exponential(key, first_index + row)
            out[row] = gap_sum
        gap_sum += exponential(key, -1 - first_index - first_equal)
        for row in range(first_equal, end_equal):
            out[row] = arrival_s[first_equal] + quantum_s * (out[row] / gap_sum)
        first_equal = end_equal


def copied_times(
    arrival_s: np.ndarray, quantum_s: float, copies: int, key_time: np.uint64, key_copy: np.uint64
) -> np.ndarray:
    """Arrival times f8[copies * n] in seconds, copy after copy; each but the first starts at a
    random time. quantum_s > 0: equal times are spread over it. key_*: keys of random streams."""
    rows = arrival_s.size
    spread_s = float(arrival_s[-1]) * min(1.0, COPY_SPREAD_REQUESTS / rows) if rows else 0.0
    offsets_s = spread_s * uniforms(key_copy, np.arange(copies))
    offsets_s[0] = 0.0
    times_s = np.empty(copies * rows)
    for copy_number in range(copies):
        copy_times_s = times_s[copy_number * rows : (copy_number + 1) * rows]
        if quantum_s > 0:
            _spread_equal_times(arrival_s, quantum_s, key_time, copy_number * rows, copy_times_s)
        else:
            copy_times_s[:] = arrival_s
        copy_times_s += offsets_s[copy_number]
    return times_s


def _prompt_chains(table: TraceTable, pool_tokens: int) -> tuple[Chains, int]:
    """(chains of the whole blocks of each prompt, tokens in a block). Blocks are joined if
    `pool_tokens` is a multiple of theirs, otherwise not: sharing inside a block is unknown."""
    block_tokens, id_count = table.block_tokens, table.blocks
    row_offset, ids = expand_runs(table.segment_offset, table.segment_first, table.segment_blocks)
    blocks_joined = pool_tokens // block_tokens if pool_tokens % block_tokens == 0 else 1
    whole_blocks = table.input_tokens.astype(np.int64) // (block_tokens * blocks_joined)
    if blocks_joined > 1:
        row_offset, ids, id_count = join_blocks(row_offset, ids, whole_blocks, blocks_joined)
    row_end = row_offset[:-1] + np.minimum(whole_blocks, np.diff(row_offset))
    runs_of_rows = runs_of(row_offset[:-1], row_end, ids)
    return Chains(table.session, *runs_of_rows, id_count), block_tokens * blocks_joined


def chains_of_copies(
    chains: Chains, copy: np.ndarray, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Chains of the pairs (copy[i], row[i]), i8[k]: (segment_offset i8[k + 1], segment_first,
    segment_blocks, number of distinct ids). Every copy has its own ids."""
    run_count = np.diff(chains.segment_offset)[row]
    run_index = ranges(chains.segment_offset[row], run_count)
    first, blocks = chains.segment_first[run_index], chains.segment_blocks[run_index]
    ids_per_copy = int((first + blocks).max(initial=0))
    copies = int(copy.max(initial=-1)) + 1
    offset = np.concatenate(([0], np.cumsum(run_count)))
    return offset, first + np.repeat(copy * ids_per_copy, run_count), blocks, copies * ids_per_copy
