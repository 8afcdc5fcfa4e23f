"""Chains of KV blocks as runs. A block's id stands for the block and everything before it, so
prompts that share an id share their beginning; ids are dense in order of first use, so the new part
of every prompt is one run of consecutive ids."""

import numpy as np

from twin.kernels.compiled import lazy_entry

EMPTY = -1


@lazy_entry
def number_chains(
    row_begin: np.ndarray, row_end: np.ndarray, scope: np.ndarray, raw: np.ndarray
) -> int:
    """Replace block hashes by dense chain ids, in place; returns the number of ids. Row i's hashes
    are raw[row_begin[i]:row_end[i]] (row_begin, row_end i8[n], raw i8[refs]). Equal hashes mean the
    same block only in rows of equal scope i8[n]."""
    id_of = {(k, k): k for k in range(0)}  # (chain before a block, hash) -> chain; empty, but typed
    for row in range(row_begin.size):
        parent_chain = -1 - scope[row]  # a root of its own for every scope
        for position in range(row_begin[row], row_end[row]):
            parent_and_hash = (parent_chain, raw[position])
            if parent_and_hash not in id_of:
                id_of[parent_and_hash] = len(id_of)
            parent_chain = raw[position] = id_of[parent_and_hash]
    return len(id_of)


def ranges(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """For every row i the `count[i]` numbers first[i], first[i] + 1, ..., row after row, i8[sum of
    count].

    >>> ranges(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]"""
    row_ends = np.cumsum(count)
    return np.asarray(np.repeat(first - (row_ends - count), count) + np.arange(count.sum()))


def runs_of(
    row_begin: np.ndarray, row_end: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(segment_offset i8[n + 1], segment_first i8[m], segment_blocks i4[m]): the runs of
    consecutive ids in each row ids[row_begin[i]:row_end[i]]."""
    row_blocks = np.maximum(row_end - row_begin, 0)
    row_offset = np.concatenate(([0], np.cumsum(row_blocks)))
    row_ids = ids[ranges(row_begin, row_blocks)]
    is_run_begin = np.diff(row_ids, prepend=0) != 1
    is_run_begin[row_offset[:-1][row_blocks > 0]] = True
    run_begin = np.flatnonzero(is_run_begin)
    run_blocks = np.diff(run_begin, append=row_ids.size).astype(np.int32)
    return np.searchsorted(run_begin, row_offset), row_ids[run_begin], run_blocks


def expand_runs(
    offset: np.ndarray, first: np.ndarray, blocks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row offset i8[n + 1], ids i8[refs]): the block ids of each row, from its runs. offset i8[n +
    1]: a row's first run; first, blocks: first id and number of blocks of each run."""
    return np.concatenate(([0], np.cumsum(blocks)))[offset], ranges(first, blocks)


def join_blocks(
    row_offset: np.ndarray, ids: np.ndarray, groups: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Join every `size` consecutive blocks of a chain into one group, of which row i has at most
    groups[i] (i8[n]); an incomplete last group is dropped. row_offset i8[n + 1], ids i8[refs]: the
    rows' blocks. Returns (row offset i8[n + 1], group ids i8[...], number of distinct ids)."""
    whole_groups = np.minimum(groups, np.diff(row_offset) // size)
    group_numbers = ranges(np.zeros_like(whole_groups), whole_groups)  # of a group in its row
    group_ids = ids[np.repeat(row_offset[:-1], whole_groups) + (group_numbers + 1) * size - 1]
    _, first_uses = np.unique(group_ids, return_index=True)
    new_id_of = np.full(ids.max(initial=-1) + 1, EMPTY)
    new_id_of[group_ids[np.sort(first_uses)]] = np.arange(first_uses.size)  # in order of first use
    return np.concatenate(([0], np.cumsum(whole_groups))), new_id_of[group_ids], first_uses.size


@lazy_entry
def extended_chains(
    offset: np.ndarray, first: np.ndarray, blocks: np.ndarray, distinct: int, next_row: np.ndarray,
    wanted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:  # fmt: skip
    """Chains extended to wanted[i] blocks (i8[n]): first by blocks of row next_row[i] (i8[n]),
    whose prompt contains row i's prompt and answer (EMPTY: no such row), then by new blocks.
    Returns (segment offset i8[n + 1], first i8[m], blocks i4[m], number of distinct ids)."""
    row_count = offset.size - 1
    new_offset = np.zeros(row_count + 1, np.int64)
    segment_limit = first.size + row_count
    for row in range(row_count):
        if next_row[row] != EMPTY:
            segment_limit += offset[next_row[row] + 1] - offset[next_row[row]]
    new_first = np.empty(segment_limit, np.int64)
    new_blocks = np.empty(segment_limit, np.int32)
    segment = 0
    for row in range(row_count):
        filled_blocks, last_id = 0, -1
        for old_segment in range(offset[row], offset[row + 1]):
            new_first[segment], new_blocks[segment] = first[old_segment], blocks[old_segment]
            filled_blocks += blocks[old_segment]
            last_id = first[old_segment] + blocks[old_segment] - 1
            segment += 1
        prompt_blocks, blocks_before, extends_chain = filled_blocks, 0, filled_blocks == 0
        if next_row[row] != EMPTY:
            for old_segment in range(offset[next_row[row]], offset[next_row[row] + 1]):
                skipped = min(max(prompt_blocks - blocks_before, 0), blocks[old_segment])
                blocks_before += blocks[old_segment]
                if skipped > 0 and blocks_before - blocks[old_segment] + skipped == prompt_blocks:
                    extends_chain = first[old_segment] + skipped - 1 == last_id
                taken = min(blocks[old_segment] - skipped, wanted[row] - filled_blocks)
                if extends_chain and taken > 0:
                    new_first[segment], new_blocks[segment] = first[old_segment] + skipped, taken
                    filled_blocks += taken
                    segment += 1
        if filled_blocks < wanted[row]:
            new_first[segment], new_blocks[segment] = distinct, wanted[row] - filled_blocks
            distinct += wanted[row] - filled_blocks
            segment += 1
        new_offset[row + 1] = segment
    return new_offset, new_first[:segment], new_blocks[:segment], distinct
