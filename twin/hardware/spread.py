"""How bytes are split over walks so that the fullest link is as empty as possible.

A game of two sides, of which one sets the weights of links and the other their prices (`_spread`).
Links are numbers here; this module knows no machine."""

import math
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

from twin.hardware.network import cached_answer
from twin.hardware.walks import FLOATS, INTS, Walks, hops_from
from twin.kernels.rng import apply_to_distinct

GAP = 0.005  # the game ends when the fullest link is this near to the proven bound
ROUNDS = 60  # of the game, at most
MIX = 10  # rounds after which the best mixture of all splits so far is computed
# A turn of a problem of more links than this takes tens of milliseconds, a mixture or a cut no
# more: there mixtures come every second turn, and the bound is looked for at cuts.
LARGE, LARGE_MIX = 20_000, 2
# A turn of more steps of walks takes longer than a cut: one is tried after each mixture, and the
# game ends, too, if neither the fullest link nor the bound has come on by STALL in MIX rounds.
SLOW, STALL = 200_000, 0.0005
SOLVED = 64  # problems whose answers are stored
# Of the game, without a source. On 40 random graphs of 5 to 10 vertices it takes 8.2, 4.7 and 2.9
# rounds with LINK_STEP = 0.1, 0.3, 1 and 5.8, 4.7 and 3.7 with PRICE_STEP = 0.3, 1, 3; START and
# LEAST_BOUND hardly matter, SHARPNESS = 20 takes 7.0. Mean answers differ by 0.2 % at most.
START = 0.25  # a link's first weight is its capacity to this power: wide links first, mildly
LINK_STEP, PRICE_STEP = 0.3, 1.0  # of log weight and log price, in units of the fullest link's use
SHARPNESS = 8.0  # the first price of an unused link is exp(-8) of the fullest one's
LEAST_LOG_PRICE = -200.0  # so that exp() stays above 0, and a link that fills up can come back
LEAST_BOUND = 0.3  # of the fullest link: the bound that scales steps is too low in early rounds

solved: dict[bytes, FLOATS] = {}  # problem -> answer: instances alike in alike places share it


def spread(
    walks: Walks, capacity: FLOATS, beyond: float, adaptive: bool, members: INTS | None = None,
    alike: tuple[FLOATS, FLOATS] | None = None,
) -> FLOATS:  # fmt: skip
    """Bytes/s on every link, f8[near and far, links], adaptive or by capacity; far bytes take 1 /
    beyond as long. members: vertices that each vertex represents; alike: equal links that each link
    represents, and of those into each vertex. Equal problems are solved once."""
    link_count, fan = np.ones((2, capacity.size)) if alike is None else alike
    problem_key = walks.digest(capacity, beyond, adaptive) + link_count.tobytes() + fan.tobytes()
    problem_key += b"" if members is None else members.tobytes()
    problem = walks, capacity, beyond, adaptive, members, link_count, fan
    return cached_answer(solved, problem_key, lambda: _spread(*problem), SOLVED)


def _spread(
    walks: Walks, capacity: FLOATS, beyond: float, adaptive: bool, members: INTS | None,
    count: FLOATS, fan: FLOATS,
) -> FLOATS:  # fmt: skip
    """Bytes/s on every link, f8[near and far, links], by capacity, or so that the fullest link is
    as empty as possible: a linear program, solved as a game by optimistic multiplicative weights
    (Rakhlin and Sridharan 2013). Link weights fall with prices, prices rise with loads, and each
    side answers what the other is about to do (twice the last step less the one before). At times a
    small linear program mixes all splits so far. Weak duality bounds the answer from below: with
    any prices of sum 1 some link is at least as full as all bytes cost on their cheapest paths."""
    if not capacity.size:
        return np.zeros((walks.parts.shape[0], 0))

    def weighted_bytes(parts: FLOATS) -> FLOATS:
        """Bytes on each link, far ones (parts[1]) counted 1 / beyond times."""
        return np.asarray(parts[0] + parts[1] / beyond)

    link_capacity = capacity / count  # of one of the links
    best_split = walks.split_by_capacity(link_capacity, members, fan)
    pair_bytes = weighted_bytes(walks.parts)
    is_sent = (pair_bytes > 0.0) & (walks.hops >= 0)
    sent_bytes = float(pair_bytes[is_sent].sum())
    if not adaptive or sent_bytes <= 0.0:
        return best_split
    splits, loads = [best_split], weighted_bytes(best_split) / capacity
    full, bound, last_price_slope = loads, 0.0, None
    earlier_full, proved_bound = math.inf, 0.0  # fullest link and bound MIX rounds ago
    walk_steps = sum(float(count[level.links].sum()) for level in walks.levels)
    is_large, is_slow = count.sum() > LARGE, walk_steps > SLOW
    mix_interval = LARGE_MIX if is_large else MIX
    log_weight, log_price = np.zeros(0), SHARPNESS * (loads / loads.max() - 1.0)

    def prices() -> FLOATS:
        """Prices of links in the game now, f8[links], sum 1."""
        unscaled_prices = count * apply_to_distinct(math.exp, log_price - log_price.max())
        return np.asarray(unscaled_prices / unscaled_prices.sum())

    for round_number in range(ROUNDS):
        for price_guess in _guesses(walks, capacity, full, round_number, prices, is_large, is_slow):
            least_cost = pair_bytes[is_sent] * walks.least_costs(price_guess / capacity)[is_sent]
            bound = max(bound, float(least_cost.sum()))
        if full.max() <= bound * (1.0 + GAP):
            break
        if round_number % MIX == 0 and is_slow:
            if full.max() > earlier_full * (1.0 - STALL) and bound <= proved_bound * (1.0 + STALL):
                break
            earlier_full, proved_bound = float(full.max()), bound
        if last_price_slope is None:
            log_weight = START * apply_to_distinct(math.log, link_capacity / link_capacity.max())
            log_weight += apply_to_distinct(math.log, fan)
        price_slope = prices() / capacity
        slope = price_slope if last_price_slope is None else 2.0 * price_slope - last_price_slope
        last_price_slope, bound_s = price_slope, max(bound, LEAST_BOUND * full.max())
        log_weight = log_weight - LINK_STEP * slope * sent_bytes / bound_s
        splits.append(walks.split_by_weight(log_weight))
        new_loads = weighted_bytes(splits[-1]) / capacity
        log_price = log_price + PRICE_STEP * (2.0 * new_loads - loads) / full.max()
        log_price = np.maximum(log_price - log_price.max(), LEAST_LOG_PRICE)
        loads = new_loads
        if new_loads.max() < full.max():
            best_split, full = splits[-1], new_loads
        if round_number % mix_interval == mix_interval - 1:
            mixture = _solvers().mixture([weighted_bytes(split) / capacity for split in splits])
            if mixture is None:
                continue
            best_split = np.zeros_like(best_split)
            for weight, split in zip(mixture, splits, strict=True):
                best_split += weight * split
            full = weighted_bytes(best_split) / capacity
    return best_split


def _guesses(
    walks: Walks, capacity: FLOATS, full: FLOATS, turn: int, prices: Callable[[], FLOATS],
    large: bool, slow: bool,
) -> Iterator[FLOATS]:  # fmt: skip
    """Yield link prices f8[links], sum 1: each proves a lower bound of the fullest link's seconds.
    capacity: bytes/s; full: seconds of load of each link; turn: number of the round; prices: gives
    the solver's own of now; large: many links; slow: many steps of walks."""
    if large:
        yield prices() if turn % LARGE_MIX else _cut_prices(walks, capacity, full)
        return
    yield prices() if turn % 5 == 4 else _guess_link_prices(walks, capacity, full, turn)
    if turn and turn % MIX == 0 and slow:  # after a mixture, near the best split
        yield _cut_prices(walks, capacity, full)


def _guess_link_prices(walks: Walks, capacity: FLOATS, full: FLOATS, turn: int) -> FLOATS:
    """Prices of links (sum 1) for a lower bound of the fullest link's load. A bottleneck is usually
    a set of links that all bytes of some pairs cross, so by turns equal prices per byte are tried
    on the fullest links, and on all links into or out of one vertex. full: seconds of load on each
    link; turn: number of the round, of which every fifth (`turn % 5 == 4`) is not asked for."""
    full_link = int(full.argmax())
    link_choices = (
        lambda: full >= full[full_link] * (1.0 - 1e-9),
        lambda: walks.tail == walks.tail[full_link],
        lambda: walks.head == walks.head[full_link],
        lambda: full >= full[full_link] * 0.97,
    )
    prices = link_choices[turn % 5]() * capacity
    return np.asarray(prices / prices.sum())


def _cut_prices(walks: Walks, capacity: FLOATS, full: FLOATS) -> FLOATS:
    """Prices of links (sum 1) for a lower bound of the fullest link's load: of a minimum cut
    between the rows that lead to the farthest full link and everything as far as its head. Where
    bytes cross several full links in a row this is the narrowest place, found by a maximum flow."""
    tail, head, size = walks.tail, walks.head, walks.size
    hops = hops_from(walks.rows, tail, head, size)
    is_full = full >= full.max() * (1.0 - GAP)
    most_hops = int(hops[head[is_full]].max())
    far_link = int(np.where(is_full & (hops[head] == most_hops), full, 0.0).argmax())
    is_backward = hops[head] > hops[tail]
    is_behind = hops_from(tail[[far_link]], head[is_backward], tail[is_backward], size) < size
    in_sink = hops >= most_hops
    # What ends before it may be little, and a way around the cut.
    if head[far_link] not in walks.ends:
        in_sink[walks.ends] = False
    links = np.flatnonzero(hops[tail] < np.minimum(most_hops, hops[head]))
    # The vertices of the sink are one vertex, number `size`.
    merged_head = np.where(in_sink[head[links]], size, head[links])
    source_side = _solvers().source_side(
        size, tail[links], merged_head, capacity[links], walks.rows[is_behind[walks.rows]]
    )
    cut = links[source_side[tail[links]] & ~source_side[merged_head]]
    prices = np.zeros(tail.size)
    prices[cut if cut.size else is_full] = capacity[cut if cut.size else is_full]
    return np.asarray(prices / prices.sum())


def _solvers() -> ModuleType:
    """The module of solvers, imported late: it takes half a second, and few networks need it."""
    from twin.hardware import solvers

    return solvers
