"""How bytes are split over walks so that the fullest link is as empty as possible.

A linear program, solved as a game by optimistic multiplicative weights (Rakhlin and Sridharan
2013). One side sets the weights of links, which fall with prices; the other their prices, which
rise with loads. Each side answers the other's expected next move (twice its last step minus the one
before). At times a small linear program mixes all splits. By weak duality, with any prices of sum 1
some link is at least as full as all bytes cost on their cheapest paths: a bound from below.

Links are numbers here; this module knows no machine."""

import math
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

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
# Of the game, without a source. On 40 random graphs of 5 to 10 vertices it takes 8.2, 4.7 and 2.9
# rounds with LINK_STEP = 0.1, 0.3, 1 and 5.8, 4.7 and 3.7 with PRICE_STEP = 0.3, 1, 3; START and
# LEAST_BOUND hardly matter, SHARPNESS = 20 takes 7.0. Mean answers differ by 0.2 % at most.
START = 0.25  # a link's first weight is its capacity to this power: wide links first, mildly
LINK_STEP, PRICE_STEP = 0.3, 1.0  # of log weight and log price, in units of the fullest link's use
SHARPNESS = 8.0  # the first price of an unused link is exp(-8) of the fullest one's
LEAST_LOG_PRICE = -200.0  # so that exp() stays above 0, and a link that fills up can come back
LEAST_BOUND = 0.3  # of the fullest link: the bound that scales steps is too low in early rounds


def spread_rates(
    walks: Walks, capacity: FLOATS, far_rate: float, adaptive: bool, members: INTS | None,
    link_count: FLOATS, fan_in: FLOATS,
) -> FLOATS:  # fmt: skip
    """Bytes/s on every link, f8[near and far, links]: near bytes stay in a node, far bytes do not.
    They are split by capacity, or (adaptive) so that the fullest link is as empty as possible.
    capacity f8[links]: bytes/s, of which far bytes reach the share far_rate; members i8[vertices]:
    how many equal vertices each stands for (None: 1); link_count, fan_in f8[links]: how many equal
    links each link stands for, and how many of these enter one vertex."""
    if not capacity.size:
        return np.zeros((walks.parts.shape[0], 0))

    def weighted_bytes(parts: FLOATS) -> FLOATS:
        """Bytes on each link: near ones (parts[0]) plus far ones (parts[1]) divided by far_rate."""
        return np.asarray(parts[0] + parts[1] / far_rate)

    single_capacity = capacity / link_count  # of one of the links
    best_split = walks.split_by_capacity(single_capacity, members, fan_in)
    pair_bytes = weighted_bytes(walks.parts)
    is_sent = (pair_bytes > 0.0) & (walks.hops >= 0)
    sent_bytes_per_s = float(pair_bytes[is_sent].sum())
    if not adaptive or sent_bytes_per_s <= 0.0:
        return best_split
    splits, loads = [best_split], weighted_bytes(best_split) / capacity
    best_loads, lower_bound, last_price = loads, 0.0, None
    earlier_fullest, earlier_bound = math.inf, 0.0  # fullest link and bound MIX rounds ago
    step_count = sum(float(link_count[level.links].sum()) for level in walks.levels)
    many_links, many_steps = link_count.sum() > LARGE, step_count > SLOW
    mix_interval = LARGE_MIX if many_links else MIX
    log_weight = START * apply_to_distinct(math.log, single_capacity / single_capacity.max())
    log_weight += apply_to_distinct(math.log, fan_in)
    log_price = SHARPNESS * (loads / loads.max() - 1.0)

    def prices() -> FLOATS:
        """Prices of links, f8[links], sum 1, in the current round of the game."""
        unscaled_prices = link_count * apply_to_distinct(math.exp, log_price - log_price.max())
        return np.asarray(unscaled_prices / unscaled_prices.sum())

    for round_number in range(ROUNDS):
        for price_guess in _price_guesses(
            walks, capacity, best_loads, round_number, prices, many_links, many_steps
        ):
            least_cost = pair_bytes[is_sent] * walks.least_costs(price_guess / capacity)[is_sent]
            lower_bound = max(lower_bound, float(least_cost.sum()))
        if best_loads.max() <= lower_bound * (1.0 + GAP):
            break
        if round_number % MIX == 0 and many_steps:
            is_stalled = best_loads.max() > earlier_fullest * (1.0 - STALL)
            if is_stalled and lower_bound <= earlier_bound * (1.0 + STALL):
                break
            earlier_fullest, earlier_bound = float(best_loads.max()), lower_bound
        byte_price = prices() / capacity
        next_price = byte_price if last_price is None else 2.0 * byte_price - last_price
        last_price, step_scale = byte_price, max(lower_bound, LEAST_BOUND * best_loads.max())
        log_weight = log_weight - LINK_STEP * next_price * sent_bytes_per_s / step_scale
        splits.append(walks.split_by_weight(log_weight))
        new_loads = weighted_bytes(splits[-1]) / capacity
        log_price = log_price + PRICE_STEP * (2.0 * new_loads - loads) / best_loads.max()
        log_price, loads = np.maximum(log_price - log_price.max(), LEAST_LOG_PRICE), new_loads
        if new_loads.max() < best_loads.max():
            best_split, best_loads = splits[-1], new_loads
        if round_number % mix_interval == mix_interval - 1:
            weights = _solvers().best_mixture([weighted_bytes(one) / capacity for one in splits])
            if weights is not None:
                parts = (weight * split for weight, split in zip(weights, splits, strict=True))
                best_split = sum(parts, np.zeros_like(best_split))
                best_loads = weighted_bytes(best_split) / capacity
    return best_split


def _price_guesses(
    walks: Walks, capacity: FLOATS, loads: FLOATS, round_number: int, prices: Callable[[], FLOATS],
    many_links: bool, many_steps: bool,
) -> Iterator[FLOATS]:  # fmt: skip
    """Yield guesses of link prices, f8[links], sum 1. With any such prices, the cost of all bytes
    on their cheapest paths is a lower bound of the fullest link's load.
    capacity: bytes/s of each link; loads: seconds that each link is busy; prices: function that
    returns the game's current prices; many_links, many_steps: whether the problem is that large."""
    if many_links:
        yield prices() if round_number % LARGE_MIX else _cut_prices(walks, capacity, loads)
        return
    yield prices() if round_number % 5 == 4 else _guess_prices(walks, capacity, loads, round_number)
    if round_number and round_number % MIX == 0 and many_steps:  # after a mixture
        yield _cut_prices(walks, capacity, loads)


def _guess_prices(walks: Walks, capacity: FLOATS, loads: FLOATS, round_number: int) -> FLOATS:
    """Prices of links, f8[links], sum 1, for a lower bound of the fullest link's load. A bottleneck
    is usually a set of links that all bytes of some pairs cross. So, by turns of `round_number`,
    equal prices per byte are given to the fullest links, or to all links out of or into one vertex.
    loads: seconds that each link is busy. Not for every fifth round (`round_number % 5 == 4`)."""
    fullest_link = int(loads.argmax())
    link_choosers = (
        lambda: loads >= loads[fullest_link] * (1.0 - 1e-9),
        lambda: walks.tail == walks.tail[fullest_link],
        lambda: walks.head == walks.head[fullest_link],
        lambda: loads >= loads[fullest_link] * 0.97,
    )
    prices = link_choosers[round_number % 5]() * capacity
    return np.asarray(prices / prices.sum())


def _cut_prices(walks: Walks, capacity: FLOATS, loads: FLOATS) -> FLOATS:
    """Prices of links, f8[links], sum 1, for a lower bound of the fullest link's load. Only links
    of a minimum cut have a price: it parts the senders that lead to the farthest full link from all
    vertices at least as far away as that link's head. Where bytes cross several full links in a
    row, the cut is the narrowest place."""
    tail, head, size = walks.tail, walks.head, walks.size
    hops_to = hops_from(walks.rows, tail, head, size)
    is_full = loads >= loads.max() * (1.0 - GAP)
    most_hops = int(hops_to[head[is_full]].max())
    far_full_link = int(np.where(is_full & (hops_to[head] == most_hops), loads, 0.0).argmax())
    leads_away = hops_to[head] > hops_to[tail]
    is_upstream = hops_from(tail[[far_full_link]], head[leads_away], tail[leads_away], size) < size
    in_sink = hops_to >= most_hops
    # What ends before it may be little, and a way around the cut.
    if head[far_full_link] not in walks.ends:
        in_sink[walks.ends] = False
    links = np.flatnonzero(hops_to[tail] < np.minimum(most_hops, hops_to[head]))
    # The vertices of the sink are one vertex, number `size`.
    merged_head = np.where(in_sink[head[links]], size, head[links])
    source_side = _solvers().min_cut_source_side(
        size, tail[links], merged_head, capacity[links], walks.rows[is_upstream[walks.rows]]
    )
    cut = links[source_side[tail[links]] & ~source_side[merged_head]]
    prices = np.zeros(tail.size)
    prices[cut if cut.size else is_full] = capacity[cut if cut.size else is_full]
    return np.asarray(prices / prices.sum())


def _solvers() -> ModuleType:
    """Returns the module of solvers, imported late: it takes half a second and is rarely needed."""
    from twin.hardware import solvers

    return solvers
