"""The queue before prefill, followed prompt by prompt in compiled code: the instance at which a
prompt waits, the batch that takes it, and when that one ends."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.kernels.buffers import Columns, column, f8, i4, number
from twin.kernels.compiled import kernel, lazy_entry
from twin.model.coefficients import PrefillCosts
from twin.model.prefill import next_piece, prefill_batch_s
from twin.model.record import dtype_of

NONE = -1
LINE, TABLE, EXACT = range(3)  # how the seconds of a batch are known


def _unused_array() -> NDArray[Any]:
    """Array of one zero, f8[1]: default of an array that a form of `BatchPrice` does not read."""
    return np.zeros(1)


@dataclass(frozen=True, slots=True)
class BatchPrice:
    """Seconds of a batch, as `batch_seconds` reads them in one of its forms."""

    form: int = LINE
    base_s: float = 0.0  # of a batch, whatever it holds
    most_s: float = 0.0  # per token of the fullest die
    each_s: float = 0.0  # per token of the others
    pair_s: float = 0.0  # per query-key pair beyond the mean
    token_pairs: float = 0.0  # mean pairs of a token
    table_tokens: NDArray[np.float64] = field(default_factory=_unused_array)
    table_s: NDArray[np.float64] = field(
        default_factory=_unused_array
    )  # of batches of `table_tokens`
    prices: NDArray[Any] = field(default_factory=lambda: np.zeros(1, dtype_of(PrefillCosts)))
    hot_tokens: NDArray[np.float64] = field(default_factory=_unused_array)
    hot_factor: NDArray[np.float64] = field(default_factory=_unused_array)
    operators: NDArray[np.float64] = field(default_factory=_unused_array)
    sharing_dies: int = 1  # that split the prompts of the fullest group


class PromptQueue(Columns):
    """Prompts in order of arrival, and the instances at which they wait."""

    form = number(int, "Form of a batch's seconds.")
    base_s = number(float, "Of a batch, whatever it holds.", unit="s")
    most_s = number(float, "Per token of the fullest die.", unit="s")
    each_s = number(float, "Per token of the others.", unit="s")
    pair_s = number(float, "Per query-key pair beyond the mean.", unit="s")
    token_pairs = number(float, "Mean query-key pairs of a token.")
    table_tokens = f8("table", "Batches of the table below.", "tokens", fill=None)
    table_s = f8("table", "Their seconds.", "s", fill=None)
    prices = column(dtype_of(PrefillCosts), "1", "Prices of a batch.", fill=None)
    hot_tokens = f8("points", "Tokens of the table below.", fill=None)
    hot_factor = f8("loads", "Imbalance of experts.", fill=None)
    operators = f8("operators", "Scratch of a batch's price.", "s", fill=None)
    sharing_dies = number(int, "Dies that split the prompts of the fullest group.")
    budget = number(float, "Tokens of a batch.")
    chunk = number(float, "Tokens that a prompt gives to a batch at most; 0: whole prompts.")
    full_s = number(float, "Of a batch whatever it holds, as the router expects.", unit="s")
    token_s = number(float, "That a token adds, as the router expects.", unit="s")
    read_s = number(float, "Per cached token.", unit="s")
    idle_s = number(float, "Iteration that goes on without prompts; 0: none.", unit="s")
    evening = number(float, "How far later pieces of a prompt are shorter.")
    line_token_s = number(float, "Of a batch per token, for these pieces.", unit="s")
    line_pair_s = number(float, "Of a batch per query-key pair, for these pieces.", unit="s")
    attention_token_s = number(float, "Attention of a die, per token.", unit="s")
    attention_pair_s = number(float, "Attention of a die, per query-key pair.", unit="s")
    share_s = number(float, "Attention that a die takes at most; infinite: tokens are.", unit="s")
    in_turn = number(int, "Whether the router takes turns.")
    is_dealt = number(int, "Whether a prompt stays on the die that was drawn for it.")
    routers = number(int, "Routers with an equal part of the instances each.")
    report_s = number(float, "For which one router gets all that comes; 0: none.", unit="s")
    arrival_s = f8("prompts", "When each comes.", "s", fill=None)
    fresh = f8("prompts", "Tokens to compute.", "tokens", fill=None)
    cached = f8("prompts", "Tokens that are read.", "tokens", fill=None)
    left = f8("prompts", "Tokens that are still to be computed.", "tokens", fill=None)
    die = i4("prompts", "The die that was drawn for each.", fill=None)
    following = i4("prompts", "Next prompt of a list.", fill=NONE)
    waited_s = f8("prompts", "From arrival to the end of prefill.", "s")
    next_s = f8("prompts", "Of the batch that begins then; 0: none.", "s")
    free_s = f8("instances", "When the last batch ends.", "s")
    waiting_tokens = f8("instances", "Tokens to compute of what waits.", "tokens")
    head = i4("instances", "First prompt that waits.", fill=NONE)
    tail = i4("instances", "Last one.", fill=NONE)
    ended = i4("instances", "First prompt of those that the last batch completed.", fill=NONE)
    die_load = f8("dies", "Of a batch by die: what counts against its share.")
    die_tokens = f8("dies", "Its tokens.", "tokens")
    die_pairs = f8("dies", "Its query-key pairs.")


@kernel
def batch_seconds(
    q: PromptQueue, tokens: float, pairs: float, most: float, most_pairs: float
) -> float:
    """Seconds of a batch with these tokens and query-key pairs, in the form of `q`. most,
    most_pairs: tokens and pairs of the die, or group of dies, with most attention."""
    if q.form == EXACT:
        return prefill_batch_s(
            q.prices[0], tokens, most / q.sharing_dies, most_pairs / q.sharing_dies, q.hot_tokens,
            q.hot_factor, q.operators,
        )  # fmt: skip
    if q.form == LINE:
        more_pairs = most_pairs - most * q.token_pairs
        return q.base_s + (q.most_s * most + q.each_s * (tokens - most) + q.pair_s * more_pairs)
    table_point = 1
    while table_point < q.table_tokens.size - 1 and q.table_tokens[table_point] < tokens:
        table_point += 1
    low_tokens, high_tokens = q.table_tokens[table_point - 1], q.table_tokens[table_point]
    fraction = max((tokens - low_tokens) / (high_tokens - low_tokens), 0.0)
    table_s = q.table_s[table_point - 1] + fraction * (
        q.table_s[table_point] - q.table_s[table_point - 1]
    )
    return float(table_s + q.pair_s * (pairs - tokens * q.token_pairs))


@kernel
def piece_tokens(
    q: PromptQueue, tokens_left: float, earlier: float, batch_tokens: float, load: float
) -> float:
    """Tokens with which a prompt joins a batch that has `batch_tokens` tokens; 0: it does not join.
    tokens_left: tokens of the prompt still to compute; earlier: tokens before these; load:
    attention seconds in the batch so far on the die that would compute the piece."""
    room_tokens, wanted_tokens = q.budget - batch_tokens, tokens_left
    if q.chunk > 0.0:
        next_tokens = next_piece(q.chunk, q.evening, q.line_token_s, q.line_pair_s, earlier)
        wanted_tokens = min(tokens_left, next_tokens)
    elif q.share_s == math.inf:  # whole prompts; the first one whatever its length
        return tokens_left if tokens_left <= room_tokens or batch_tokens == 0.0 else 0.0
    if q.share_s == math.inf:
        return min(wanted_tokens, room_tokens)
    die_room_s = q.share_s - load
    if die_room_s <= 0.0:
        return 0.0
    first_token_s = q.attention_token_s + earlier * q.attention_pair_s  # of the piece's first token
    if q.attention_pair_s > 0.0:
        discriminant = first_token_s * first_token_s + 2.0 * q.attention_pair_s * die_room_s
        fitting_tokens = (math.sqrt(discriminant) - first_token_s) / q.attention_pair_s
    else:
        fitting_tokens = die_room_s / q.attention_token_s
    return min(wanted_tokens, room_tokens, max(fitting_tokens, 1.0))


@kernel
def emptiest_die(q: PromptQueue) -> int:
    """Index of the die with least load in a batch; of equal ones with least tokens, then pairs."""
    emptiest = 0
    for die in range(1, q.die_load.size):
        if q.die_load[die] != q.die_load[emptiest]:
            is_less = q.die_load[die] < q.die_load[emptiest]
        elif q.die_tokens[die] != q.die_tokens[emptiest]:
            is_less = q.die_tokens[die] < q.die_tokens[emptiest]
        else:
            is_less = q.die_pairs[die] < q.die_pairs[emptiest]
        emptiest = die if is_less else emptiest
    return emptiest


@kernel
def start_batch(q: PromptQueue, p: int, at_s: float) -> None:
    """Form a batch, which starts at `at_s`, of the prompts that wait at instance p, and set when it
    ends. Prompts that it does not complete keep their places in the queue."""
    for die in range(q.die_load.size):
        q.die_load[die] = q.die_tokens[die] = q.die_pairs[die] = 0.0
    batch_tokens, batch_pairs, cached_tokens = 0.0, 0.0, 0.0
    most_attention_s, most_tokens, most_pairs = 0.0, 0.0, 0.0  # of the die with most attention
    last_completed, unfinished_before, prompt = NONE, NONE, q.head[p]
    while prompt != NONE and batch_tokens < q.budget:
        next_prompt, tokens_left = q.following[prompt], q.left[prompt]
        tokens_before = q.cached[prompt] + q.fresh[prompt] - tokens_left
        die = q.die[prompt] if q.is_dealt else emptiest_die(q)
        taken_tokens = piece_tokens(q, tokens_left, tokens_before, batch_tokens, q.die_load[die])
        if taken_tokens <= 0.0 and not q.is_dealt:
            break
        if taken_tokens > 0.0:  # else others may be on dies that have room
            if tokens_left == q.fresh[prompt]:
                cached_tokens += q.cached[prompt]
            taken_pairs = taken_tokens * (tokens_before + 0.5 * (taken_tokens + 1.0))
            batch_tokens += taken_tokens
            batch_pairs += taken_pairs
            q.die_tokens[die] += taken_tokens
            q.die_pairs[die] += taken_pairs
            die_tokens, die_pairs = q.die_tokens[die], q.die_pairs[die]
            die_attention_s = q.attention_token_s * die_tokens + q.attention_pair_s * die_pairs
            q.die_load[die] = die_tokens if q.share_s == math.inf else die_attention_s
            is_busiest = die_attention_s > most_attention_s
            if die_attention_s == most_attention_s:
                has_more_pairs = die_tokens == most_tokens and die_pairs > most_pairs
                is_busiest = die_tokens > most_tokens or has_more_pairs
            if is_busiest:
                most_attention_s, most_tokens, most_pairs = die_attention_s, die_tokens, die_pairs
            q.left[prompt] = tokens_left - taken_tokens
        if q.left[prompt] > 0.0:
            unfinished_before = prompt
        else:
            if unfinished_before == NONE:
                q.head[p] = next_prompt
            else:
                q.following[unfinished_before] = next_prompt
            if q.tail[p] == prompt:
                q.tail[p] = unfinished_before
            q.following[prompt] = last_completed
            last_completed = prompt
        prompt = next_prompt
    q.waiting_tokens[p] -= batch_tokens
    batch_s = (
        batch_seconds(q, batch_tokens, batch_pairs, most_tokens, most_pairs)
        + cached_tokens * q.read_s
    )
    ended_prompt = q.ended[p]
    while ended_prompt != NONE and at_s == q.free_s[p]:
        q.next_s[ended_prompt] = batch_s
        ended_prompt = q.following[ended_prompt]
    q.free_s[p], q.ended[p] = at_s + batch_s, last_completed
    while last_completed != NONE:
        q.waited_s[last_completed] = q.free_s[p] - q.arrival_s[last_completed]
        last_completed = q.following[last_completed]


@kernel
def start_batches(q: PromptQueue, p: int, until_s: float) -> None:
    """Start all batches of instance p that begin until `until_s`."""
    while q.head[p] != NONE and q.free_s[p] <= until_s:
        start_batch(q, p, q.free_s[p])


@kernel
def choose_instance(q: PromptQueue, i: int, now_s: float) -> int:
    """Index of the instance for prompt i at time now_s: the next in turn, or the one that is free
    first (equal ones in turn), among the instances of one router."""
    router_instances = q.free_s.size // q.routers
    router_turn = i if q.report_s == 0.0 else int(now_s / q.report_s)
    first_instance, turn_in_router = router_turn % q.routers * router_instances, i // q.routers
    best_instance, least_wait_s = 0, math.inf
    for offset in range(router_instances):
        instance_index = first_instance + (turn_in_router + offset) % router_instances
        start_batches(q, instance_index, now_s)
        if q.in_turn or router_instances == 1:
            return instance_index
        wait_s = max(q.free_s[instance_index] - now_s, 0.0)
        if q.waiting_tokens[instance_index] != 0.0:
            wait_s += q.waiting_tokens[instance_index] * q.token_s
            wait_s += q.waiting_tokens[instance_index] // q.budget * q.full_s
        if wait_s < least_wait_s:
            best_instance, least_wait_s = instance_index, wait_s
    return best_instance


@kernel
def follow_queue(q: PromptQueue) -> None:
    """Follow all prompts of the queue: sets its columns `waited_s` and `next_s`."""
    for prompt in range(q.arrival_s.size):
        now_s = q.arrival_s[prompt]
        instance = choose_instance(q, prompt, now_s)
        if q.head[instance] == NONE:
            q.head[instance] = prompt
        else:
            q.following[q.tail[instance]] = prompt
        q.tail[instance] = prompt
        q.waiting_tokens[instance] += q.left[prompt]
        if q.free_s[instance] <= now_s and q.idle_s > 0.0:  # it ends an iteration first
            q.free_s[instance] += -((q.free_s[instance] - now_s) // q.idle_s) * q.idle_s
        elif q.free_s[instance] <= now_s:
            start_batch(q, instance, now_s)
    for instance in range(q.free_s.size):
        start_batches(q, instance, math.inf)


@lazy_entry
def run_queue(q: PromptQueue) -> None:
    """Follow all prompts of a queue (`follow_queue`), compiled by the first call."""
    follow_queue(q)
