"""Hit ratio against capacity: a block hits in an LRU whose capacity exceeds the number of other
blocks touched since (stack distance). A row's blocks are touched from the last to the first."""

from dataclasses import dataclass

import numpy as np

from twin.kernels.compiled import lazy_entry
from twin.kernels.rng import multiplicative_hash
from twin.workload.requests import Stream

KNEE = 0.95  # of the ideal hit ratio
MOST_TOUCHES = 4_000_000  # of one pass; of longer streams a part of the blocks stands for all


@dataclass(frozen=True, slots=True)
class ReuseCurve:
    """Hits of a stream of requests in an LRU of any capacity."""

    distance: np.ndarray  # i8[k], rising: stack distances that occur, in blocks
    hit_tokens: np.ndarray  # f8[k]: tokens that hit where the capacity is above the distance
    input_tokens: int  # of all prompts
    blocks: int  # distinct
    block_tokens: int
    sampled: float  # share of the blocks that were followed; 1: the curve is exact

    def hit_ratio(self, capacity_blocks: float) -> float:
        """Share of input tokens that hit in an LRU cache with room for `capacity_blocks` blocks."""
        capacity_index = int(np.searchsorted(self.distance, capacity_blocks, "left"))
        hit_tokens = float(self.hit_tokens[capacity_index - 1]) if capacity_index else 0.0
        return hit_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def ideal_hit_ratio(self) -> float:
        """Share of input tokens that hit with unlimited capacity."""
        return self.hit_ratio(np.inf)

    def knee_blocks(self) -> int:
        """Least capacity, in blocks, with 95 % of the ideal hit ratio; 0 if no block is reused."""
        if not self.distance.size:
            return 0
        knee_index = int(np.searchsorted(self.hit_tokens, KNEE * self.hit_tokens[-1] * (1 - 1e-12)))
        return int(self.distance[min(knee_index, self.distance.size - 1)]) + 1


def reuse_curve(stream: Stream, most_touches: int = MOST_TOUCHES) -> ReuseCurve:
    """Hits by capacity of a stream's requests in their order. If the stream has more than
    `most_touches` blocks, only a sample of its distinct blocks is followed."""
    input_tokens = int(stream.input_tokens.sum(dtype=np.int64))
    touches = int(stream.segment_blocks.sum(dtype=np.int64))
    if not touches or not stream.has_prefix:
        empty = np.zeros(0, np.int64)
        return ReuseCurve(empty, empty.astype(float), input_tokens, 0, stream.block_tokens, 1.0)
    sampled_share = min(1.0, most_touches / touches)
    distance, tokens, sampled_tokens = _stack_distances(
        stream.segment_offset, stream.segment_first, stream.segment_blocks, stream.blocks,
        stream.input_tokens, stream.block_tokens, sampled_share,
    )  # fmt: skip
    is_repeated = distance >= 0
    distance_order = np.argsort(distance[is_repeated], kind="stable")
    distance, tokens = distance[is_repeated][distance_order], tokens[is_repeated][distance_order]
    last_of_run = np.flatnonzero(np.diff(distance, append=-1))  # of equal distances
    all_tokens = _tokens_in_blocks(stream) if sampled_share < 1.0 else sampled_tokens
    token_scale = all_tokens / max(sampled_tokens, 1)
    return ReuseCurve(
        (distance[last_of_run] / sampled_share).astype(np.int64),
        np.cumsum(tokens, dtype=np.int64)[last_of_run] * token_scale,
        input_tokens, stream.blocks, stream.block_tokens, sampled_share,
    )  # fmt: skip


def _tokens_in_blocks(stream: Stream) -> int:
    """Number of input tokens of all prompts that lie in whole blocks of their chains."""
    segment_blocks = np.append(stream.segment_blocks, 0).astype(np.int64)
    chain_blocks = np.add.reduceat(segment_blocks, stream.segment_offset[:-1])
    chain_blocks[np.diff(stream.segment_offset) == 0] = 0
    return int(np.minimum(chain_blocks * stream.block_tokens, stream.input_tokens).sum())


@lazy_entry
def _stack_distances(  # type: ignore[no-untyped-def]
    offset: np.ndarray, first: np.ndarray, blocks: np.ndarray, distinct: int,
    input_tokens: np.ndarray, block_tokens: int, share: float,
):  # fmt: skip
    """(stack distance of each touch in blocks, i8[touches], -1 for a first touch; tokens of each
    touch, i4[touches]; sum of tokens), for blocks with a hash below `share`, by a Fenwick tree."""
    touches = int(blocks.sum())
    fenwick_tree = np.zeros(touches + 1, np.int32)
    last_touch = np.zeros(distinct, np.int64)  # touch of each block, from 1
    touch_distance = np.full(touches, -1, np.int64)
    touch_tokens, touched_block = np.zeros(touches, np.int32), np.empty(touches, np.int64)
    hash_limit = np.uint64(min(share, 1.0) * 4294967295.0)
    touch, distinct_touched, sampled_tokens = 0, 0, 0
    for row in range(offset.size - 1):
        first_touch = touch
        blocks_before = 0  # in the chain
        for segment in range(offset[row], offset[row + 1]):
            blocks_before += blocks[segment]
        for segment in range(offset[row + 1] - 1, offset[row] - 1, -1):
            for block in range(first[segment] + blocks[segment] - 1, first[segment] - 1, -1):
                blocks_before -= 1
                if share < 1.0 and (multiplicative_hash(block) >> np.uint64(32)) > hash_limit:
                    continue
                tokens_left = input_tokens[row] - blocks_before * block_tokens
                tokens_in_block = max(0, min(block_tokens, tokens_left))
                sampled_tokens += tokens_in_block
                touch_tokens[touch], touched_block[touch] = tokens_in_block, block
                if last_touch[block] > 0:
                    newer_blocks = distinct_touched
                    tree_node = last_touch[block]
                    while tree_node > 0:
                        newer_blocks -= fenwick_tree[tree_node]
                        tree_node -= tree_node & -tree_node
                    touch_distance[touch] = newer_blocks
                touch += 1
        # Looked up first, touched after: the distances above are of the moment before.
        for touch_before in range(first_touch + 1, touch + 1):
            block = touched_block[touch_before - 1]
            tree_node = last_touch[block]
            if tree_node > 0:
                while tree_node <= touches:
                    fenwick_tree[tree_node] -= 1
                    tree_node += tree_node & -tree_node
            else:
                distinct_touched += 1
            last_touch[block] = touch_before
            tree_node = touch_before
            while tree_node <= touches:
                fenwick_tree[tree_node] += 1
                tree_node += tree_node & -tree_node
    return touch_distance[:touch], touch_tokens[:touch], sampled_tokens
