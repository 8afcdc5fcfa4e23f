"""What prompts share: popular prefixes, or sessions, whose turns take longer parts of one run."""

from typing import NamedTuple

import numpy as np

from twin.kernels.compiled import kernel, lazy_entry
from twin.kernels.rng import lognormal, uniform, uniforms

NONE = -1
TOOLS = np.uint64(0x7001)  # a stream next to that of the gaps
CLOSED = np.int32(2**31 - 1)  # in place of the tokens of a turn that has been extended
NEAREST_REACH = 4096  # requests looked at on either side for an open turn
MOST_TOKENS = 1_000_000  # a session that outgrew the longest prompt a scenario can ask for ends


class Chains(NamedTuple):
    """Prompts as runs of block ids; shapes as in `Requests`."""

    session: np.ndarray  # i4[n]
    segment_offset: np.ndarray  # i8[n + 1]
    segment_first: np.ndarray  # i8[m]
    segment_blocks: np.ndarray  # i4[m]
    blocks: int


class Turns(NamedTuple):
    """Parameters of how sessions continue."""

    follow_up_probability: float
    gap_median_s: float  # between a turn's arrival and the next
    gap_sigma: float  # of the gap's logarithm
    candidates: int  # requests looked at to find the turn that a prompt extends best
    tool_share: float = 0.0  # of the follow-ups
    tool_gap_s: float = 1.0  # median before these


def own_chains(input_tokens: np.ndarray, block_tokens: int) -> Chains:
    """Chains of prompts i4[n] that share no blocks: each has its own session and run."""
    prompts = input_tokens.size
    blocks = (input_tokens // block_tokens).astype(np.int32)
    run_ends = np.cumsum(blocks, dtype=np.int64)
    session = np.arange(prompts, dtype=np.int32)
    return Chains(session, np.arange(prompts + 1), run_ends - blocks, blocks, int(blocks.sum()))


def shared_chains(
    input_tokens: np.ndarray, block_tokens: int, fraction: float, groups: int, key: np.uint64,
    after: np.ndarray,
) -> Chains:  # fmt: skip
    """Chains of prompts of input_tokens i4[n]. The first `fraction` of each, in whole blocks, is
    the beginning of one of `groups` equally popular prefixes; its other blocks, and those of the
    `after` i4[n] tokens that follow the prompt, are its own. key: random stream."""
    request_count = input_tokens.size
    group_of = (uniforms(key, np.arange(request_count)) * groups).astype(np.int64)
    prefix_blocks = (input_tokens * fraction).astype(np.int64) // block_tokens
    own_blocks = (input_tokens + after) // block_tokens - prefix_blocks
    longest_prefix_blocks = np.zeros(groups, np.int64)
    np.maximum.at(longest_prefix_blocks, group_of, prefix_blocks)
    first_prefix_block = np.cumsum(longest_prefix_blocks) - longest_prefix_blocks
    first_own_block = longest_prefix_blocks.sum() + np.cumsum(own_blocks) - own_blocks
    segments = _join_runs(first_prefix_block[group_of], prefix_blocks, first_own_block, own_blocks)
    session = np.arange(request_count, dtype=np.int32)
    return Chains(session, *segments, int(longest_prefix_blocks.sum() + own_blocks.sum()))


def _join_runs(
    first: np.ndarray, blocks: np.ndarray, next_first: np.ndarray, next_blocks: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(segment_offset, segment_first, segment_blocks) of rows with two runs each, without empty
    runs. first, blocks: ids and block counts of first runs; next_first, next_blocks: of second."""
    run_first, run_blocks = np.stack([first, next_first], 1), np.stack([blocks, next_blocks], 1)
    not_empty = run_blocks > 0
    run_offset = np.concatenate(([0], np.cumsum(not_empty.sum(axis=1))))
    return run_offset, run_first[not_empty], run_blocks[not_empty].astype(np.int32)


def first_turn(before: np.ndarray) -> np.ndarray:
    """First row of each row's session, i8[n]. before i8[n]: the row that each extends, or NONE."""
    first_row = np.where(before == NONE, np.arange(before.size), before)
    while not np.array_equal(earlier_row := first_row[first_row], first_row):
        first_row = earlier_row
    return first_row


def session_chains(
    input_tokens: np.ndarray, parent: np.ndarray, block_tokens: int, head_tokens: int
) -> Chains:
    """Prompts of sessions as runs of KV block ids, which turns share. input_tokens i4[n]: length of
    each prompt; parent i4[n]: the turn that it extends, NONE for a first turn. The first
    `head_tokens` of all are the same (a system prompt), in whole blocks."""
    head_blocks, whole_blocks = head_tokens // block_tokens, input_tokens // block_tokens
    session_number = np.cumsum(parent == NONE) - 1
    session = session_number[first_turn(parent)].astype(np.int32)
    session_blocks = np.zeros(session_number.max(initial=-1) + 1, np.int64)  # beyond the head
    np.maximum.at(session_blocks, session, whole_blocks - head_blocks)
    first_own_block = (head_blocks + np.cumsum(session_blocks) - session_blocks)[session]
    shared_blocks = np.minimum(head_blocks, whole_blocks)
    first_head_block, own_chain_blocks = np.zeros_like(first_own_block), whole_blocks - head_blocks
    segments = _join_runs(first_head_block, shared_blocks, first_own_block, own_chain_blocks)
    return Chains(session, *segments, int(head_blocks + session_blocks.sum()))


@kernel
def _longest_fit(tokens: np.ndarray, begin: int, end: int, room: int) -> int:
    """Index of the turn in tokens[begin:end] with most tokens, up to `room`; NONE if none fits."""
    longest_tokens = np.int32(0)
    most_tokens = np.int32(room)
    for turn in range(begin, end):
        longest_tokens = max(
            longest_tokens, tokens[turn] if tokens[turn] <= most_tokens else np.int32(0)
        )
    if longest_tokens > 0:
        for turn in range(begin, end):
            if tokens[turn] == longest_tokens:
                return turn
    return NONE


@kernel
def _nearest_open(tokens: np.ndarray, at: int, end: int, room: int) -> int:
    """Index, below `end` and nearest to `at`, of a turn of at most `room` tokens that no turn has
    extended yet; NONE if there is none. tokens: of each turn, CLOSED if extended."""
    for distance in range(NEAREST_REACH):
        if at - distance >= 0 and tokens[at - distance] <= room:
            return at - distance
        if at + distance + 1 < end and tokens[at + distance + 1] <= room:
            return at + distance + 1
    return NONE


@lazy_entry
def find_parents(
    key_follow: np.uint64, key_gap: np.uint64, arrival_s: np.ndarray, input_tokens: np.ndarray,
    output_tokens: np.ndarray, turns: Turns, grow: bool, parent: np.ndarray,
) -> None:  # fmt: skip
    """Fill `parent` i4[n]: the earlier turn that each request extends, or NONE.

    arrival_s f8[n] is sorted; input_tokens, output_tokens i4[n]. A request is a follow-up with the
    given probability: it extends a turn that no other request extends, near a log-normal gap before
    its arrival. A gap that begins before the first arrival means an unseen turn. With `grow`,
    input_tokens are the tokens that a turn adds; they are raised in place to the whole prompt, and
    the nearest turn is extended. Without `grow` they are whole prompts: the longest turn that fits,
    of the `candidates` nearest ones, is extended; if none fits, the next request is a follow-up
    instead, so the probability holds."""
    requests = arrival_s.size
    turn_tokens = np.empty(requests, np.int32)  # prompt and answer: what a next turn starts from
    owed_follow_ups = 0
    for request in range(requests):
        parent[request] = NONE
        added_tokens = input_tokens[request]
        follows_up = uniform(key_follow, request) < turns.follow_up_probability
        if follows_up or owed_follow_ups > 0:
            median_gap_s = turns.gap_median_s
            if turns.tool_share > 0.0 and uniform(key_gap ^ TOOLS, request) < turns.tool_share:
                median_gap_s = turns.tool_gap_s
            gap_s = lognormal(key_gap, request, median_gap_s, turns.gap_sigma)
            parent_s = arrival_s[request] - gap_s
            middle_turn = np.searchsorted(arrival_s[:request], parent_s, side="right") - 1
            if middle_turn >= 0 and grow:
                parent[request] = _nearest_open(
                    turn_tokens, middle_turn, request, MOST_TOKENS - added_tokens
                )
            elif middle_turn >= 0:
                first_candidate = max(0, middle_turn + 1 - turns.candidates // 2)
                end_turn = min(request, first_candidate + turns.candidates)
                parent[request] = _longest_fit(
                    turn_tokens, first_candidate, end_turn, added_tokens - 1
                )
            if parent[request] != NONE:
                owed_follow_ups -= 0 if follows_up else 1
                if grow:
                    input_tokens[request] += turn_tokens[parent[request]]
                turn_tokens[parent[request]] = CLOSED
            elif follows_up and middle_turn >= 0 and not grow:
                owed_follow_ups += 1
            elif follows_up and middle_turn < 0 and grow:
                unseen_turns = _unseen_turns(
                    key_follow, requests + request, turns.follow_up_probability
                )
                unseen_tokens = unseen_turns * (added_tokens + output_tokens[request])
                input_tokens[request] += min(unseen_tokens, MOST_TOKENS - added_tokens)
        turn_tokens[request] = input_tokens[request] + output_tokens[request]


@kernel
def _unseen_turns(key: np.uint64, index: int, probability: float) -> int:
    """Number of turns that a session had before the run began: geometric from 1, at most 1,000."""
    turn_count = 1
    draw = uniform(key, index)
    continue_chance = probability
    while draw < continue_chance and turn_count < 1000:
        turn_count += 1
        continue_chance *= probability
    return turn_count
