"""The prefix cache of each instance in the room that its HBM has for KV, above the memory pool.

A cell is a rank of a colocated instance, a die (or group of dies that split prompts) of prefill
with data-parallel attention, and all of an instance where every die has the KV of all prompts.
Without `memory_pool.in_hbm` there are no cells, and these functions change nothing."""

from __future__ import annotations

import numpy as np

from twin.engine import codes as w
from twin.engine.clients.returns import turn_of
from twin.engine.columns import World
from twin.kernels.compiled import kernel
from twin.policies.memory_pool import evict_idle, matched_blocks, pin_blocks, unpin_blocks
from twin.policies.router import SEES_HITS


@kernel
def blocks_in_cell(world: World, cell: int, i: int) -> int:
    """Number of leading blocks of request i's prompt that prefix cache `cell` holds."""
    return matched_blocks(world.hbm, world.hbm, False, cell, world.request, turn_of(world, i), 0)


@kernel
def first_kv_cell(world: World, p: int) -> int:
    """Row of the first prefix cache in HBM of prefill instance p (a colocated one too)."""
    return p * world.settings.kv_cells


@kernel
def expected_blocks(world: World, p: int, i: int) -> float:
    """Number of blocks of request i's prompt in the HBM of instance p: in its best prefix cache if
    the router chooses by hits, else the mean of its caches; 0 without any."""
    settings = world.settings
    if not settings.in_hbm:
        return 0.0
    most_blocks, block_sum, first_cell = 0, 0, first_kv_cell(world, p)
    for cell in range(first_cell, first_cell + settings.kv_cells):
        cell_blocks = blocks_in_cell(world, cell, i)
        most_blocks, block_sum = max(most_blocks, cell_blocks), block_sum + cell_blocks
    router_sees_hits = settings.router_policy in SEES_HITS
    return float(most_blocks) if router_sees_hits else block_sum / settings.kv_cells


@kernel
def lightest_cell(world: World, p: int, i: int, load: np.ndarray) -> int:
    """Number (in instance p) of the prefix cache with the least load minus the tokens of request i
    that it holds. load f8[cells]: tokens, infinite without room. NONE if none has room."""
    best_cell, least_net_tokens = w.NONE, np.inf
    first_cell, block_tokens = first_kv_cell(world, p), world.settings.block_tokens
    for cell in range(world.settings.kv_cells):
        if load[cell] < np.inf:
            cell_blocks = blocks_in_cell(world, first_cell + cell, i)
            net_tokens = load[cell] - float(block_tokens * cell_blocks)
            if net_tokens < least_net_tokens:
                best_cell, least_net_tokens = cell, net_tokens
    return best_cell


@kernel
def claim_cell(world: World, cell: int, i: int, blocks: int) -> None:
    """Give request i the prefix cache `cell`: it uses its prompt's first `blocks` blocks there, and
    its prompt is added to `begun_tokens`."""
    prefix, request = world.prefix, world.request
    if not world.settings.in_hbm:
        return
    prompt_tokens = request.input_tokens[i] + request.emitted[i]
    prefix.cell[i], prefix.pinned[i], prefix.own_tokens[i] = cell, blocks, prompt_tokens
    prefix.begun_tokens[cell] += prompt_tokens
    pin_blocks(world.hbm, prefix, cell, request, turn_of(world, i), 0, blocks)
    trim_cell(world, cell)


@kernel
def cell_of(world: World, i: int) -> int:
    """Row of the prefix cache that has request i's KV; NONE: none has it."""
    return world.prefix.cell[i] if world.settings.in_hbm else w.NONE


@kernel
def store_computed_blocks(world: World, i: int, tokens: int) -> None:
    """Put the blocks of request i's first `tokens` tokens, now computed, into its prefix cache."""
    prefix, request, cell = world.prefix, world.request, cell_of(world, i)
    if cell == w.NONE:
        return
    computed_blocks = tokens // world.settings.block_tokens  # perhaps more than it has
    if computed_blocks > prefix.pinned[i]:
        turn = turn_of(world, i)
        pin_blocks(world.hbm, prefix, cell, request, turn, prefix.pinned[i], computed_blocks)
        prefix.pinned[i] = computed_blocks


@kernel
def end_begun_tokens(world: World, i: int) -> None:
    """Subtract request i's prompt from its prefix cache's `begun_tokens`: it decodes or left."""
    prefix, cell = world.prefix, cell_of(world, i)
    if cell != w.NONE:
        prefix.begun_tokens[cell] -= prefix.own_tokens[i]
        prefix.own_tokens[i] = 0


@kernel
def release_cell(world: World, i: int) -> None:
    """End request i's use of blocks in its prefix cache, if any; unused blocks become idle."""
    prefix, cell = world.prefix, cell_of(world, i)
    if cell != w.NONE:
        end_begun_tokens(world, i)
        unpin_blocks(
            world.hbm, prefix, cell, world.request, turn_of(world, i), int(prefix.pinned[i])
        )
        prefix.cell[i], prefix.pinned[i] = w.NONE, 0


@kernel
def shared_tokens(world: World, cell: int) -> float:
    """KV tokens of HBM that the requests of colocated rank `cell` save because they share blocks; 0
    without a prefix cache or on other instances."""
    settings, prefix = world.settings, world.prefix
    if not settings.in_hbm or not settings.colocated:
        return 0.0
    stored_tokens = float(world.hbm.used[cell] - prefix.idle[cell]) * settings.held_block_tokens
    return max(0.0, float(prefix.pins[cell] * settings.block_tokens) - stored_tokens)


@kernel
def trim_cell(world: World, cell: int) -> None:
    """Evict idle blocks of prefix cache `cell` until the KV of its requests fits."""
    settings, prefix, decode = world.settings, world.prefix, world.decode
    if not settings.in_hbm:
        return
    used_tokens, space_tokens = prefix.begun_tokens[cell], settings.prompt_kv_tokens
    if settings.colocated:
        used_tokens += decode.context[cell] + decode.requests[cell] * 0.5 * settings.page_tokens
        space_tokens = decode.kv_tokens[cell // settings.decode_ranks]
    used_tokens -= float(prefix.pins[cell] * settings.block_tokens)
    evict_idle(world.hbm, prefix, cell, (space_tokens - used_tokens) / settings.held_block_tokens)


@kernel
def drop_idle_blocks(world: World, first: int, end: int) -> None:
    """Drop the idle blocks of prefix caches first..end - 1, whose dies failed or stopped."""
    if world.settings.in_hbm:
        for cell in range(first, end):
            evict_idle(world.hbm, world.prefix, cell, -1.0)
