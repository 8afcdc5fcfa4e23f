"""Load of the dies for given chances and slots: expected, hottest, by batch size. A gate picks
different experts, so an expert's picks vary less than a multinomial's: by its own chance."""

from collections.abc import Callable

import numpy as np

from twin.experts.groups import grouped_deficit
from twin.experts.peak import SMALL_MEAN, peak_of_amounts, peak_of_counts, peaks
from twin.experts.popularity import ExpertsError, Floats, Ints
from twin.kernels.compiled import is_compiled

EMPTY = -1  # a slot that holds no expert


def hot_factors(
    chances: Floats, slots: Ints, tokens: Floats, tokens_per_request: float = 1.0,
    correlation: float = 0.0, groups: int = 1, top_groups: int = 1, nearest: int = 1,
    distinct: bool = True,
) -> Floats:  # fmt: skip
    """Expected load of the hottest die divided by the mean of all dies, averaged over layers,
    f8[g], for batches of tokens f8[g]. chances f8[layers, experts]: that a token picks an expert;
    slots i8[layers, dies, slots_per_die]; correlation: between the `tokens_per_request` tokens of a
    request. groups > 1: routing limited to `top_groups`. nearest > 1: number of nodes within each
    of which tokens prefer a copy. distinct = False: a multinomial. Raises ExpertsError."""
    load_peaks = Peaks(chances, slots, groups, top_groups, nearest, distinct)
    return load_peaks.factors(tokens, tokens_per_request, correlation)


def slots_by_node(slots: Ints, nodes: int) -> Ints:
    """Slots regrouped by node, i8[layers, nodes, slots of the largest node]; unused ones EMPTY."""
    layers, dies, slots_per_die = slots.shape
    node_of_die = np.arange(dies) * nodes // dies
    place_in_node = np.arange(dies) - np.searchsorted(node_of_die, node_of_die)
    node_slots = np.full(
        (layers, nodes, int(place_in_node.max()) + 1, slots_per_die), EMPTY, slots.dtype
    )
    node_slots[:, node_of_die, place_in_node] = slots
    return node_slots.reshape(layers, nodes, -1)


class Peaks:
    """Moments of a token's load on each die, for any batch; with `slots_by_node`, on each node."""

    def __init__(
        self, chances: Floats, slots: Ints, groups: int = 1, top_groups: int = 1, nearest: int = 1,
        distinct: bool = True,
    ) -> None:  # fmt: skip
        """chances f8[layers, experts]: that a token picks an expert; slots i8[layers, dies,
        slots_per_die]; groups > 1: a token reaches `top_groups` of them; nearest: nodes within each
        of which it prefers a copy; distinct: whether its experts differ. Raises ExpertsError."""
        experts = chances.shape[1]
        if groups < 1 or experts % groups or not 1 <= top_groups <= groups:
            raise ExpertsError(
                f"{experts} experts in {groups} groups, {top_groups} of them a token: the experts "
                "must divide evenly over the groups, and a token reach from 1 to all of them"
            )
        if not distinct and groups > 1:
            raise ExpertsError(
                f"distinct = False with {groups} groups: a gate limited to groups picks different "
                "experts; ask for a multinomial with groups = 1"
            )
        slot_shares = copy_shares(slots, experts, nearest)
        picks, own_variance, common_variance = die_moments(chances, slots, slot_shares)
        top_k = round(float(chances[0].sum()))
        self._most_picks = float(min(top_k, slots.shape[2]) if distinct else top_k)  # of one token
        if not distinct:  # counts of Poisson variance, given their total, are a multinomial's
            own_variance[:] = 0.0
        elif groups > 1:
            own_variance = grouped_deficit(chances, slots, slot_shares, groups, top_groups)
        dies_by_picks = np.argsort(-picks, axis=1, kind="mergesort")
        moments = picks, own_variance, common_variance
        self._picks, self._own, self._alike = (
            np.take_along_axis(moment, dies_by_picks, 1) for moment in moments
        )

    def factors(self, tokens: Floats, tokens_per_request: float, correlation: float) -> Floats:
        """Expected load of the hottest die divided by the mean, averaged over layers, f8[g], for
        batches of tokens f8[g]. correlation: of the `tokens_per_request` tokens of a request."""
        factor_args = tokens_per_request, correlation
        return np.array([self._mean_factor(peaks, float(batch), *factor_args) for batch in tokens])

    def factor(self, tokens: float, tokens_per_request: float, correlation: float) -> float:
        """Expected load of the hottest die divided by the mean, averaged over layers, for one batch
        of tokens. Without compiled code numpy computes it: equal bit for bit, much slower."""
        peaks_of = peaks if is_compiled(peaks) else peaks_in_numpy
        return self._mean_factor(peaks_of, tokens, tokens_per_request, correlation)

    def _mean_factor(
        self, peaks_of: Callable[[Floats, Floats], Floats], tokens: float,
        tokens_per_request: float, correlation: float,
    ) -> float:  # fmt: skip
        """Expected load of the hottest die divided by the mean, averaged over layers, for a batch
        of tokens. peaks_of: function that gives the hottest die's load, f8[layers], from dies' mean
        loads and their variance / mean."""
        layers, dies = self._picks.shape
        # Topic correlation times the other tokens of the same request.
        correlated_tokens = max(0.0, min(tokens_per_request, tokens) - 1.0) * correlation
        divisor = np.where(self._picks > 0.0, self._picks, 1.0)
        spread = np.maximum(1e-6, 1.0 + (correlated_tokens * self._alike - self._own) / divisor)
        peak_tokens = peaks_of(self._picks * tokens, spread)
        mean_tokens = np.add.accumulate(self._picks, axis=1)[:, -1] * (tokens / dies)
        factor_of_layer = np.minimum(peak_tokens, self._most_picks * tokens) / mean_tokens
        return float(np.add.accumulate(factor_of_layer)[-1]) / layers


def load_compiled_peaks() -> None:
    """Load compiled code, so that it computes every later `Peaks.factor`."""
    peaks(np.ones((1, 1)), np.ones((1, 1)))


def peaks_in_numpy(mean: Floats, spread: Floats) -> Floats:
    """Expected maximum over a layer's dies, f8[layers], of counts with this mean and spread
    (variance / mean), f8[layers, dies], in plain numpy."""
    is_small = mean[:, 0] <= SMALL_MEAN
    peak_tokens = np.empty(mean.shape[0])
    if is_small.any():
        peak_tokens[is_small] = peak_of_counts(mean[is_small], spread[is_small])
    if not is_small.all():
        peak_tokens[~is_small] = peak_of_amounts(mean[~is_small], spread[~is_small])
    return peak_tokens


def die_load(chances: Floats, slots: Ints, nearest: int = 1) -> Floats:
    """Expected load of each die divided by its layer's mean, f8[layers, dies]. nearest: number of
    nodes within each of which tokens prefer a copy."""
    picks, _, _ = die_moments(chances, slots, copy_shares(slots, chances.shape[1], nearest))
    mean_picks = picks.sum(axis=1, keepdims=True) / slots.shape[1]
    return np.asarray(picks / mean_picks)


def hottest_by_layer(chances: Floats, slots: Ints, nearest: int = 1) -> Floats:
    """Expected load of the hottest die divided by the mean in an infinite batch, f8[layers]."""
    return np.asarray(die_load(chances, slots, nearest).max(axis=1))


def copy_shares(slots: Ints, experts: int, nearest: int) -> Floats:
    """Share of its expert's tokens that each slot receives, f8[layers, dies, slots]; 0 for an empty
    slot. Of two copies on one die the first has both shares. nearest > 1: tokens are spread evenly
    over that many nodes, and use a copy on their own node if there is one, otherwise any copy."""
    layers, dies, _ = slots.shape
    is_filled = slots != EMPTY
    slot_layer = np.broadcast_to(np.arange(layers)[:, None, None], slots.shape)
    slot_node = np.broadcast_to((np.arange(dies) * nearest // dies)[:, None], slots.shape)
    node_copies = np.zeros((layers, nearest, experts))
    np.add.at(node_copies, (slot_layer[is_filled], slot_node[is_filled], slots[is_filled]), 1.0)
    copies_on_die, is_first = np.ones(slots.shape), np.zeros(slots.shape, np.bool_)
    _, first_copy_indices, die_expert_of_slot, die_expert_copies = np.unique(
        (slot_layer * dies + np.arange(dies)[:, None]) * (experts + 1) + slots,  # EMPTY by itself
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    copies_on_die[is_filled] = die_expert_copies[die_expert_of_slot].reshape(slots.shape)[is_filled]
    is_first.reshape(-1)[first_copy_indices] = True
    is_first &= is_filled
    copies_of_slot = node_copies.sum(axis=1)[slot_layer, slots]
    if nearest == 1:
        return np.where(is_first, copies_on_die / np.where(is_filled, copies_of_slot, 1.0), 0.0)
    nodes_without_copy = (node_copies == 0.0).sum(axis=1)[slot_layer, slots]
    near_share = 1.0 / np.where(is_filled, node_copies[slot_layer, slot_node, slots], 1.0)
    far_share = nodes_without_copy / np.where(is_filled, copies_of_slot, 1.0)
    return np.where(is_first, copies_on_die * (near_share + far_share) / nearest, 0.0)


def die_moments(chances: Floats, slots: Ints, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """Moments of one token on each die, f8[layers, dies] each: (mean number of its experts; sum of
    squared chances, by which picking an expert once at most lowers the variance; variance per unit
    of topic correlation, x (1 - x) for an expert of chance x). shares: of `copy_shares`."""
    layers, dies, slots_per_die = slots.shape
    picks, own_variance, common_variance = (np.zeros((layers, dies)) for _ in range(3))
    chance_of_slot = chances[np.arange(layers)[:, None, None], slots]
    for slot in range(slots_per_die):  # slot by slot, so that the order of the sums is fixed
        slot_share, slot_chance = shares[:, :, slot], chance_of_slot[:, :, slot]
        picks += slot_chance * slot_share
        own_variance += slot_chance * slot_share * slot_chance * slot_share
        common_variance += slot_chance * (1.0 - slot_chance) * slot_share * slot_share
    return picks, own_variance, common_variance
