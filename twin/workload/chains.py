"""Chains of KV blocks as runs. A block's id stands for the block and everything before it, so
prompts that share an id share their beginning; ids are dense in order of first use, so the new part
of every prompt is one run of consecutive ids."""

import numpy as np

from twin.kernels.compiled import kernel, late
from twin.kernels.rng import bits

EMPTY = -1


@kernel
def _slot(
    parents: np.ndarray, raws: np.ndarray, ids: np.ndarray, parent: int, raw: int
) -> np.int64:
    """Slot of (parent, raw), or the free slot for it, in an open-addressing table of 2**k slots."""
    mask = ids.size - 1
    place = np.int64(bits(np.uint64(raw), parent) & np.uint64(mask))
    while ids[place] != EMPTY and (parents[place] != parent or raws[place] != raw):
        place = (place + 1) & mask
    return place


@kernel(allocates=True)
def _grown(parents: np.ndarray, raws: np.ndarray, ids: np.ndarray):  # type: ignore[no-untyped-def]
    """The table with twice the slots."""
    size = ids.size * 2
    new_parents = np.empty(size, np.int64)
    new_raws = np.empty(size, np.int64)
    new_ids = np.full(size, EMPTY, np.int64)
    for k in range(ids.size):
        if ids[k] != EMPTY:
            place = _slot(new_parents, new_raws, new_ids, parents[k], raws[k])
            new_parents[place] = parents[k]
            new_raws[place] = raws[k]
            new_ids[place] = ids[k]
    return new_parents, new_raws, new_ids


@late
def chain_ids(
    row_begin: np.ndarray, row_end: np.ndarray, scope: np.ndarray, raw: np.ndarray
) -> int:
    """Replace raw block hashes by dense chain ids, in place; returns how many there are. row_begin,
    row_end i8[n]: row i's hashes are raw[row_begin[i]:row_end[i]], raw i8[refs]. scope i8[n]:
    hashes mean the same only within one scope."""
    parents = np.empty(1 << 12, np.int64)
    raws = np.empty(1 << 12, np.int64)
    ids = np.full(1 << 12, EMPTY, np.int64)
    hash_of = np.empty(1 << 12, np.int64)  # by id
    before = np.full(scope.max() + 1 if scope.size else 0, EMPTY, np.int64)  # a scope's last row
    used = 0
    for i in range(row_begin.size):
        parent = -1 - scope[i]  # a root of its own for every scope
        old, old_end = 0, 0
        if before[scope[i]] != EMPTY:
            old, old_end = row_begin[before[scope[i]]], row_end[before[scope[i]]]
        before[scope[i]] = i
        for k in range(row_begin[i], row_end[i]):
            if old < old_end and hash_of[raw[old]] == raw[k]:  # the last row went on alike
                parent = raw[old]
                raw[k] = parent
                old += 1
                continue
            old = old_end
            place = _slot(parents, raws, ids, parent, raw[k])
            if ids[place] == EMPTY:
                parents[place] = parent
                raws[place] = raw[k]
                ids[place] = used
                hash_of[used] = raw[k]
                used += 1
                parent = used - 1
                if 2 * used > ids.size:
                    parents, raws, ids = _grown(parents, raws, ids)
                    longer_ids = np.empty(ids.size, np.int64)
                    longer_ids[:used] = hash_of[:used]
                    hash_of = longer_ids
            else:
                parent = ids[place]
            raw[k] = parent
    return used


def ranges(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """first, first + 1, ... of every row, so many as its count: i8[sum of the counts].

    >>> ranges(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    end = np.cumsum(count)
    return np.asarray(np.repeat(first - (end - count), count) + np.arange(count.sum()))


def runs_of(
    row_begin: np.ndarray, row_end: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(segment_offset i8[n + 1], segment_first i8[m], segment_blocks i4[m]) of rows of ids."""
    length = np.maximum(row_end - row_begin, 0)
    offset = np.concatenate(([0], np.cumsum(length)))
    row_ids = ids[ranges(row_begin, length)]
    begins = np.diff(row_ids, prepend=0) != 1
    begins[offset[:-1][length > 0]] = True
    run = np.flatnonzero(begins)
    blocks = np.diff(run, append=row_ids.size).astype(np.int32)
    return np.searchsorted(run, offset), row_ids[run], blocks


def expand_runs(
    offset: np.ndarray, first: np.ndarray, blocks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row offset i8[n + 1], ids i8[refs]): the rows of ids that the runs represent."""
    return np.concatenate(([0], np.cumsum(blocks)))[offset], ranges(first, blocks)


def regroup(
    row_offset: np.ndarray, ids: np.ndarray, groups: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Join `size` consecutive blocks of every chain into one and drop an incomplete last group.
    row_offset i8[n + 1], ids i8[refs]; groups i8[n]: whole groups wanted of each row. Returns (row
    offset i8[n + 1], ids i8[...], distinct ids); a group has the id of its last block, so sharing
    is exact."""
    whole_groups = np.minimum(groups, np.diff(row_offset) // size)
    place = ranges(np.zeros_like(whole_groups), whole_groups)  # of a group in its row
    last = ids[np.repeat(row_offset[:-1], whole_groups) + (place + 1) * size - 1]
    _, fresh = np.unique(last, return_index=True)
    name = np.full(ids.max(initial=-1) + 1, EMPTY)
    name[last[np.sort(fresh)]] = np.arange(fresh.size)  # in order of first use
    return np.concatenate(([0], np.cumsum(whole_groups))), name[last], fresh.size


@late
def with_answers(
    offset: np.ndarray, first: np.ndarray, blocks: np.ndarray, distinct: int, child: np.ndarray,
    wanted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:  # fmt: skip
    """Chains extended to wanted i8[n] blocks: first by those of child i8[n], the row whose prompt
    extends this one and its answer (or EMPTY), then by new ones. Returns (segment offset i8[n + 1],
    first i8[m], blocks i4[m], distinct ids)."""
    n = offset.size - 1
    new_offset = np.zeros(n + 1, np.int64)
    most = first.size + n
    for i in range(n):
        if child[i] != EMPTY:
            most += offset[child[i] + 1] - offset[child[i]]
    new_first = np.empty(most, np.int64)
    new_blocks = np.empty(most, np.int32)
    position = 0
    for i in range(n):
        have, last = 0, -1
        for s in range(offset[i], offset[i + 1]):
            new_first[position], new_blocks[position] = first[s], blocks[s]
            have += blocks[s]
            last = first[s] + blocks[s] - 1
            position += 1
        own_blocks, blocks_before, extends = have, 0, have == 0
        if child[i] != EMPTY:
            for s in range(offset[child[i]], offset[child[i] + 1]):
                skip = min(max(own_blocks - blocks_before, 0), blocks[s])
                blocks_before += blocks[s]
                if skip > 0 and blocks_before - blocks[s] + skip == own_blocks:
                    extends = first[s] + skip - 1 == last
                take = min(blocks[s] - skip, wanted[i] - have)
                if extends and take > 0:
                    new_first[position], new_blocks[position] = first[s] + skip, take
                    have += take
                    position += 1
        if have < wanted[i]:
            new_first[position], new_blocks[position] = distinct, wanted[i] - have
            distinct += wanted[i] - have
            position += 1
        new_offset[i + 1] = position
    return new_offset, new_first[:position], new_blocks[:position], distinct
