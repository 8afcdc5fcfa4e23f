"""Routers: which prefill instance takes the next request, and which decode rank awaits it. A policy
sees a `View` of instances and decode ranks as of the last step border plus its own choices since,
never an output length; queues count in seconds. A new router is a function with a code and a name
in `ROUTERS` and a line in `choose_instance`; in `SEES_WAITS` if it reads `wait_s` or `ttft_s`, in
`HIT_ROUTERS` of the scenario if `ttft_s`, hits or `kv_used`; for others these are outdated."""

import numpy as np

from twin.kernels import borrowed  # noqa: F401 - tells numba what columns are
from twin.kernels.buffers import Columns, f8, i1, i8
from twin.kernels.compiled import kernel
from twin.kernels.rng import multiplicative_hash
from twin.scenario.policies import HIT_ROUTERS

(
    ROUND_ROBIN, LEAST_LOADED, POWER_OF_TWO, PREFIX_AFFINITY, SESSION_STICKY, PREDICTED_TTFT,
    WEIGHTED,
) = range(7)  # fmt: skip
ROUTERS = {
    "round_robin": ROUND_ROBIN,
    "least_loaded": LEAST_LOADED,
    "power_of_two": POWER_OF_TWO,
    "prefix_affinity": PREFIX_AFFINITY,
    "session_sticky": SESSION_STICKY,
    "predicted_ttft": PREDICTED_TTFT,
    "weighted": WEIGHTED,
}
SEES_HITS = tuple(ROUTERS[name] for name in HIT_ROUTERS)
SEES_WAITS = (LEAST_LOADED, POWER_OF_TWO, PREDICTED_TTFT, WEIGHTED)  # who look into queues

NO_FRONT, FRONT_IN_TURN, FRONT_LEAST_LOADED = range(3)
FRONTS = {"none": NO_FRONT, "round_robin": FRONT_IN_TURN, "least_loaded": FRONT_LEAST_LOADED}

BY_BOTH, BY_TOKENS, BY_REQUESTS, RANKS_IN_TURN = range(4)
RANK_CHOICES = {
    "kv_and_requests": BY_BOTH, "kv_tokens": BY_TOKENS, "requests": BY_REQUESTS,
    "round_robin": RANKS_IN_TURN,
}  # fmt: skip

NO_CHOICE = -1  # no instance is open, or no rank has room
INFINITE = np.int64(0x7FF0000000000000)  # the bits of infinity


class View(Columns):
    """The router's view of the instances that compute prompts, one row each."""

    opened = i1("prefills", "It takes requests, as far as is known.", by="router")
    queued_tokens = i8("prefills", "Waiting or in prefill.", "tokens", by="router")
    wait_s = f8("prefills", "Until a request that came now would be computed.", "s", by="router")
    hit_tokens = i8("prefills", "Of the prompt, cached.", "tokens", by="router")
    here_tokens = i8("prefills", "Of these, in its HBM.", "tokens", by="router")
    hit_share = f8("prefills", "Cached share of the prompt.", by="router")
    ttft_s = f8("prefills", "Until its first token: wait, reads, computing.", "s", by="router")
    kv_used = f8("prefills", "Share of the KV space in use.", by="router")
    weights = f8("3", "Of queue, prefix and KV space in a weighted score.", fill=None)


@kernel
def count_open(opened: np.ndarray) -> int:
    """Number of open instances, of opened i1[instances]."""
    open_count = 0
    for i in range(opened.size):
        if opened[i]:
            open_count += 1
    return open_count


@kernel
def round_robin(opened: np.ndarray, turn: int) -> int:
    """The open instance whose turn is next after `turn` choices; -1: none. opened i1[instances]."""
    open_count = count_open(opened)
    turns_left = turn % open_count if open_count > 0 else 0
    for i in range(opened.size):
        if opened[i]:
            turns_left -= 1
        if turns_left < 0:
            return i
    return NO_CHOICE


@kernel
def least_loaded(opened: np.ndarray, wait_s: np.ndarray, routed: int) -> int:
    """The open instance with the least wait_s f8[instances]; -1 if none is open. Of instances with
    equal waits the one whose turn is next after `routed` requests."""
    best_instance = round_robin(opened, routed)
    instance = max(best_instance, 0)
    for _ in range(wait_s.size):
        if opened[instance] and wait_s[instance] < wait_s[best_instance]:
            best_instance = instance
        # A division would cost more than all else.
        instance = instance + 1 if instance + 1 < wait_s.size else 0
    return best_instance


@kernel
def power_of_two(opened: np.ndarray, wait_s: np.ndarray, draw: float, second_draw: float) -> int:
    """The one of two randomly drawn open instances that has the lesser wait_s f8[instances]. draw,
    second_draw: uniform in (0, 1)."""
    open_count = count_open(opened)
    first_choice = round_robin(opened, min(int(draw * open_count), open_count - 1))
    second_choice = round_robin(opened, min(int(second_draw * open_count), open_count - 1))
    return first_choice if wait_s[first_choice] <= wait_s[second_choice] else second_choice


@kernel
def prefix_affinity(opened: np.ndarray, queued_tokens: np.ndarray, hit_tokens: np.ndarray) -> int:
    """The open instance with the least queued_tokens - hit_tokens i8[instances] (of the prompt)."""
    # A hit saves exactly its own prefill, so load and locality share one currency, tokens.
    best_instance = round_robin(opened, 0)
    for i in range(queued_tokens.size):
        if opened[i]:
            fewest_tokens_left = queued_tokens[best_instance] - hit_tokens[best_instance]
            if queued_tokens[i] - hit_tokens[i] < fewest_tokens_left:
                best_instance = i
    return best_instance


@kernel
def sticky_instance(opened: np.ndarray, session: int) -> int:
    """The instance that a hash of the session number selects; while that one is closed, another
    open instance; -1: none. opened i1[instances]."""
    session_hash: int = np.int64(multiplicative_hash(session) >> np.uint64(33))  # type: ignore[assignment]
    home_instance = session_hash % opened.size
    return (
        home_instance if opened[home_instance] else round_robin(opened, session_hash // opened.size)
    )


@kernel
def best_weighted(view: View, routed: int) -> int:
    """The open instance with the highest weighted sum of three scores from 0 to 1, as in llm-d:
    shortness of its queue relative to the other queues, cached share of the prompt, free share of
    KV space. Of equal ones the one whose turn is next after `routed` requests."""
    is_open, wait_s, weights = view.opened, view.wait_s, view.weights
    instance_count = wait_s.size
    best_instance = round_robin(is_open, routed)
    turn_instance = best_instance
    longest_s, shortest_s = wait_s[best_instance], wait_s[best_instance]
    for i in range(instance_count):
        if is_open[i]:
            longest_s, shortest_s = max(longest_s, wait_s[i]), min(shortest_s, wait_s[i])
    spread_s = max(longest_s - shortest_s, 1e-12)
    highest_score = -1.0
    for offset in range(instance_count):
        i = (turn_instance + offset) % instance_count
        if is_open[i]:
            score = weights[0] * (longest_s - wait_s[i]) / spread_s
            score += weights[1] * view.hit_share[i] + weights[2] * (1.0 - view.kv_used[i])
            if score > highest_score:
                highest_score, best_instance = score, i
    return best_instance


@kernel
def choose_supernode(front: int, opened: np.ndarray, inside: np.ndarray, sent_count: int) -> int:
    """Number of the supernode that gets the next request, -1 if none serves. front: 1 in turn, 2
    the least loaded; opened i1[supernodes]: 1 if it serves; inside f8[supernodes]: requests in
    progress, as reported; sent_count: number of requests so far."""
    if front == FRONT_IN_TURN:
        return round_robin(opened, sent_count)
    return least_loaded(opened, inside, sent_count)


@kernel
def choose_instance(
    policy: int, view: View, routed: int, session: int, draw_a: float, draw_b: float
) -> int:
    """The instance that a policy (a code of `ROUTERS`) selects, or -1. routed: requests routed so
    far; draw_a, draw_b: uniform in (0, 1)."""
    if policy == ROUND_ROBIN:
        return round_robin(view.opened, routed)
    if policy == POWER_OF_TWO:
        return power_of_two(view.opened, view.wait_s, draw_a, draw_b)
    if policy == PREFIX_AFFINITY:
        return prefix_affinity(view.opened, view.queued_tokens, view.hit_tokens)
    if policy == SESSION_STICKY:
        return sticky_instance(view.opened, session)
    if policy == PREDICTED_TTFT:
        return least_loaded(view.opened, view.ttft_s, routed)
    if policy == WEIGHTED:
        return best_weighted(view, routed)
    return least_loaded(view.opened, view.wait_s, routed)


@kernel
def choose_rank(
    choice: int, routed: int, taken_slots: np.ndarray, taken_tokens: np.ndarray, all_slots: int,
    all_tokens: float, slots: np.ndarray, capacity_tokens: float, need_tokens: float,
    price: np.ndarray,
) -> int:  # fmt: skip
    """The rank of an instance that takes the next request; -1 if none has room.
    choice: a code of `RANK_CHOICES`; routed: number of earlier choices; taken_slots i4[ranks],
    taken_tokens f8[ranks]: running plus reserved; all_slots, all_tokens: their sums; slots
    i4[ranks]: maximum of each rank; price f8[ranks]: scratch.
    `kv_and_requests` takes the least sum of both loads, each divided by its mean (DeepSeek,
    open-infra-index day 6); `kv_tokens` is xDeepServe's (arXiv 2508.02520), `requests` vLLM's. Of
    equal ranks the one with the fewest tokens is taken, then the first."""
    rank_count = taken_slots.size
    if choice == RANKS_IN_TURN:
        for offset in range(rank_count):
            rank = (routed + offset) % rank_count
            if (
                taken_slots[rank] < slots[rank]
                and taken_tokens[rank] + need_tokens <= capacity_tokens
            ):
                return rank
        return NO_CHOICE
    token_weight = 0.0 if choice == BY_REQUESTS else max(float(all_slots), 1.0)
    slot_weight = 0.0 if choice == BY_TOKENS else max(all_tokens, 1.0)
    for rank in range(rank_count):
        rank_load = token_weight * taken_tokens[rank] + slot_weight * taken_slots[rank]
        price[rank] = rank_load if taken_slots[rank] < slots[rank] else np.inf
        price[rank] = price[rank] if taken_tokens[rank] + need_tokens <= capacity_tokens else np.inf
    # Loads are not negative, so their order is that of their bits, which vectors compare.
    load_bits, least_bits, best_rank = price.view(np.int64), INFINITE, NO_CHOICE
    for rank in range(rank_count):
        least_bits = min(least_bits, load_bits[rank])
    equal_count = 0  # counted by vectors: the search below, which is not, ends at the last one
    for rank in range(rank_count if least_bits < INFINITE else 0):
        equal_count += load_bits[rank] == least_bits
    for rank in range(rank_count):
        if equal_count == 0:
            break
        if load_bits[rank] == least_bits and (
            best_rank == NO_CHOICE or taken_tokens[rank] < taken_tokens[best_rank]
        ):
            best_rank = rank
        equal_count -= load_bits[rank] == least_bits
    return best_rank
