"""What prompts share: popular prefixes, or sessions whose turns extend the last.

Each function turns arrival times and lengths into chains of KV blocks, as runs of consecutive
ids. A popular prefix is one run for all its prompts; a session only ever grows, so its blocks are
one run of which each turn takes a longer part. Knows nothing about caches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from twin.serving.rng import lognormal, uniform

NONE = -1
MOST_TOKENS = 1_000_000  # a session that outgrew the longest prompt a scenario can ask for ends


class Chains(NamedTuple):
    """Prompts as runs of block ids; shapes as in `Requests`."""

    session: np.ndarray  # i4[n]
    segment_offset: np.ndarray  # i8[n + 1]
    segment_first: np.ndarray  # i8[m]
    segment_blocks: np.ndarray  # i4[m]
    blocks: int


class Turns(NamedTuple):
    """How sessions go on."""

    follow_up_probability: float
    gap_median_s: float  # between a turn's arrival and the next
    gap_sigma: float  # of the gap's logarithm
    candidates: int  # sessions looked at to find the one that a prompt extends best


def own_chains(input_tokens: np.ndarray, block_tokens: int) -> Chains:
    """Prompts i4[n] that share nothing: each its own session and its own run."""
    n = input_tokens.size
    first = np.empty(n, np.int64)
    blocks = np.empty(n, np.int32)
    used = _own_runs(input_tokens, block_tokens, first, blocks)
    return Chains(np.arange(n, dtype=np.int32), np.arange(n + 1), first, blocks, used)


@njit(cache=True)
def _own_runs(
    input_tokens: np.ndarray, block_tokens: int, first: np.ndarray, blocks: np.ndarray
) -> int:
    """One run of fresh ids per request: fills both columns, returns the ids used."""
    used = 0
    for i in range(input_tokens.size):
        first[i] = used
        blocks[i] = input_tokens[i] // block_tokens
        used += blocks[i]
    return used


def shared_chains(
    input_tokens: np.ndarray, block_tokens: int, fraction: float, groups: int, key: np.uint64
) -> Chains:
    """Prompts i4[n] whose first `fraction` is the beginning of one of `groups` popular prefixes.

    Groups are equally popular. Only whole blocks are shared; the rest of a prompt is its own.
    """
    n = input_tokens.size
    offset = np.empty(n + 1, np.int64)
    first = np.empty(2 * n, np.int64)
    blocks = np.empty(2 * n, np.int32)
    used = _shared_runs(input_tokens, block_tokens, fraction, groups, key, offset, first, blocks)
    m = offset[-1]
    return Chains(np.arange(n, dtype=np.int32), offset, first[:m], blocks[:m], used)


@njit(cache=True)
def _shared_runs(
    input_tokens: np.ndarray,
    block_tokens: int,
    fraction: float,
    groups: int,
    key: np.uint64,
    offset: np.ndarray,
    first: np.ndarray,
    blocks: np.ndarray,
) -> int:
    """Fill the runs of `shared_chains`; returns the ids used."""
    longest = np.zeros(groups, np.int64)
    for i in range(input_tokens.size):
        group = int(uniform(key, i) * groups)
        longest[group] = max(longest[group], int(input_tokens[i] * fraction) // block_tokens)
    start = np.zeros(groups + 1, np.int64)
    for g in range(groups):
        start[g + 1] = start[g] + longest[g]
    used = int(start[groups])
    run = 0
    for i in range(input_tokens.size):
        offset[i] = run
        group = int(uniform(key, i) * groups)
        common = int(input_tokens[i] * fraction) // block_tokens
        own = input_tokens[i] // block_tokens - common
        if common:
            first[run] = start[group]
            blocks[run] = common
            run += 1
        if own:
            first[run] = used
            blocks[run] = own
            used += own
            run += 1
    offset[input_tokens.size] = run
    return used


def session_chains(
    input_tokens: np.ndarray, parent: np.ndarray, block_tokens: int, head_tokens: int
) -> Chains:
    """Prompts i4[n] of sessions; parent i4[n] is the turn each extends, NONE for a first turn.

    The first `head_tokens` of every prompt are the same (a system prompt), in whole blocks.
    """
    n = input_tokens.size
    session = np.empty(n, np.int32)
    offset = np.empty(n + 1, np.int64)
    first = np.empty(2 * n, np.int64)
    blocks = np.empty(2 * n, np.int32)
    head = head_tokens // block_tokens
    used = _session_runs(input_tokens, parent, block_tokens, head, session, offset, first, blocks)
    m = offset[-1]
    return Chains(session, offset, first[:m], blocks[:m], used)


@njit(cache=True)
def _session_runs(
    input_tokens: np.ndarray,
    parent: np.ndarray,
    block_tokens: int,
    head: int,
    session: np.ndarray,
    offset: np.ndarray,
    first: np.ndarray,
    blocks: np.ndarray,
) -> int:
    """Fill the runs of `session_chains`; returns the ids used."""
    n = input_tokens.size
    sessions = 0
    length = np.zeros(n, np.int64)  # blocks of a session beyond the head, at its last turn
    for i in range(n):
        if parent[i] == NONE:
            session[i] = sessions
            sessions += 1
        else:
            session[i] = session[parent[i]]
        length[session[i]] = max(length[session[i]], input_tokens[i] // block_tokens - head)
    used = head
    for s in range(sessions):  # `length` turns into the first id of each session
        length[s], used = used, used + length[s]
    run = 0
    for i in range(n):
        offset[i] = run
        whole = input_tokens[i] // block_tokens
        if head and whole:
            first[run] = 0
            blocks[run] = min(head, whole)
            run += 1
        if whole > head:
            first[run] = length[session[i]]
            blocks[run] = whole - head
            run += 1
    offset[n] = run
    return used


@njit(cache=True)
def _nearest(link: np.ndarray, at: int) -> int:
    """The nearest open turn from `at` on in the direction of `link`, with path halving."""
    while link[at] != at:
        link[at] = link[link[at]]
        at = link[at]
    return at


@njit(cache=True)
def _last_at_or_before(arrival_s: np.ndarray, end: int, t: float) -> int:
    """Index of the last of arrival_s[:end] that is <= t; -1 when there is none."""
    low = 0
    high = end
    while low < high:
        middle = (low + high) >> 1
        if arrival_s[middle] <= t:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(cache=True)
def _best_open_turn(
    older: np.ndarray,
    newer: np.ndarray,
    tokens: np.ndarray,
    at: int,
    end: int,
    room: int,
    candidates: int,
) -> int:
    """Of the open turns nearest to slot `at`, the one with most tokens that fit in `room`.

    Slots are turns shifted by one: slot 0 and slot `end` are borders. Returns a turn or NONE.
    """
    best = NONE
    left = _nearest(older, at)
    right = _nearest(newer, at + 1)
    for k in range(candidates):
        if left > 0 and (k % 2 == 0 or right >= end):
            turn = left - 1
            left = _nearest(older, left - 1)
        elif right < end:
            turn = right - 1
            right = _nearest(newer, right + 1)
        elif left > 0:
            turn = left - 1
            left = _nearest(older, left - 1)
        else:
            break
        if tokens[turn] <= room and (best == NONE or tokens[turn] > tokens[best]):
            best = turn
    return best


@njit(cache=True)
def find_parents(
    key_follow: np.uint64,
    key_gap: np.uint64,
    arrival_s: np.ndarray,
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    turns: Turns,
    grow: bool,
    parent: np.ndarray,
) -> None:
    """Fill parent i4[n]: the earlier turn that each request extends, or NONE.

    arrival_s f8[n] sorted, lengths i4[n]. A request follows up with the given probability; its
    last turn is looked for around a log-normal gap before it, among turns nobody has extended.
    grow = True: input_tokens are what a turn adds, and are raised in place to the whole prompt
    (last prompt + answer + new tokens). grow = False: they are whole prompts and stay; the turn
    extended is the longest that fits, and a request for which none fits hands its wish to follow
    up on to the next that would not, so the probability is kept.
    A gap that reaches back beyond the first arrival finds a turn of before: its prompt has grown
    but none of it has been seen.
    """
    n = arrival_s.size
    tokens = np.empty(n, np.int64)  # prompt and answer: what a next turn starts from
    older = np.arange(n + 2).astype(np.int32)  # slot of the nearest open turn at or below
    newer = np.arange(n + 2).astype(np.int32)  # and at or above; turn i has slot i + 1
    added = input_tokens.copy()
    owed = 0
    for i in range(n):
        parent[i] = NONE
        wish = uniform(key_follow, i) < turns.follow_up_probability
        if wish or owed > 0:
            gap_s = lognormal(key_gap, i, turns.gap_median_s, turns.gap_sigma)
            at = _last_at_or_before(arrival_s, i, arrival_s[i] - gap_s) + 1
            room = MOST_TOKENS - input_tokens[i] if grow else input_tokens[i] - 1
            if at > 0:
                parent[i] = _best_open_turn(older, newer, tokens, at, i + 1, room, turns.candidates)
            if parent[i] != NONE:
                owed -= 0 if wish else 1
                slot = parent[i] + 1
                older[slot] = slot - 1
                newer[slot] = slot + 1
                if grow:
                    input_tokens[i] += tokens[parent[i]]
            elif wish and at > 0:
                owed += 0 if grow else 1
            elif wish and grow:
                past = _unseen_tokens(key_follow, n + i, turns.follow_up_probability)
                past *= added[i] + output_tokens[i]
                input_tokens[i] += min(past, room)
        tokens[i] = input_tokens[i] + output_tokens[i]


@njit(cache=True)
def _unseen_tokens(key: np.uint64, index: int, probability: float) -> int:
    """Turns that a session had before the run began: geometric from 1, at most 1,000."""
    turns = 1
    u = uniform(key, index)
    tail = probability
    while u < tail and turns < 1000:
        turns += 1
        tail *= probability
    return turns
