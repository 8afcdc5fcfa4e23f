"""The set-up answer: how uneven the dies are at one typical moment, by batch size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from twin.experts.load import Peaks, copy_shares, die_moments, slots_by_node
from twin.experts.placement import place
from twin.experts.popularity import ExpertsError, Floats, Ints
from twin.experts.process import Process, Routed, chances_at, long_run_chances, start_process
from twin.scenario import Experts

GRID = 41  # batch sizes 1, sqrt(2), 2 ... 2**20 tokens


@dataclass(frozen=True)
class Imbalance:
    """Unevenness of the dies when `tokens` (f8[G], rising, over all dies) enter an MoE layer at
    once. curve [G]: expected load of the hottest die over the mean, averaged over layers, computed
    when it is read; [2 G]: followed by the hottest node's. die_load f8[layers, dies]."""

    tokens: Floats
    curve: Sequence[float] | Floats
    die_load: Floats

    @cached_property
    def factor(self) -> Floats:
        """The curve (hottest load / mean by batch size) as array f8[G] or, with nodes, [2 G]."""
        return self.curve.all_points() if isinstance(self.curve, Curve) else np.asarray(self.curve)

    @property
    def table(self) -> tuple[Floats, Any]:
        """(batch sizes in tokens f8[G]; hottest / mean load at each: f8[G] of dies or, with nodes,
        f8[2 G] of dies and of nodes), as kernels read them."""
        return self.tokens, self.curve


class Curve(Sequence[float]):
    """`Imbalance.curve`: a sequence whose points are computed once each, or all at once."""

    def __init__(
        self, point: Callable[[int], float], all_points: Callable[[], Floats], size: int = GRID
    ) -> None:
        """point: function that computes the value at an index; all_points: function that computes
        all `size` values together, in compiled code."""
        self._point, self._size = cache(point), size
        self.all_points = all_points  # all points, computed by compiled code

    def __len__(self) -> int:
        """Number of points."""
        return self._size

    def __getitem__(self, i: int | slice) -> Any:
        """The value at an index, or a list of the values of a slice."""
        indices = range(self._size)[i]
        return self._point(indices) if isinstance(indices, int) else [*map(self._point, indices)]


@lru_cache(maxsize=16)
def first_slots(
    experts: Experts, process: Process, dies: int, slots_per_die: int, nodes: int, groups: int
) -> Ints:
    """Expert of each slot, i8[layers, dies, slots_per_die], in the placement that balances long-run
    loads. nodes: over which the dies are spread; groups: of the router. Equal calls share the
    array: do not write it. Raises ExpertsError for too few slots."""
    chances = long_run_chances(process)
    return place(experts, chances, dies, slots_per_die, nodes=nodes, groups=groups)


def imbalance(
    routed: Routed, routed_dies: int, slots_per_die: int, tokens_per_request: float = 1.0,
    nodes: int = 1, links: bool = False, counts: Floats | None = None,
) -> Imbalance:  # fmt: skip
    """Load of the hottest of `routed_dies` divided by the mean, for batches of tokens that enter an
    MoE layer; `tokens_per_request` of these are of one request. The placement balances long-run
    loads. links: whether the curve continues with the hottest of `nodes`; counts: imported expert
    counts f8[layers, experts]. Raises ExpertsError where experts do not fit."""
    experts = routed.experts
    if tokens_per_request < 1:
        raise ExpertsError(
            f"tokens_per_request = {tokens_per_request:g}: a request brings at least 1 token"
        )
    batch_tokens = np.array([math.sqrt(2.0**i) for i in range(GRID)])
    if experts.placement == "perfect":
        return Imbalance(batch_tokens, np.ones(GRID), np.ones((routed.layers, routed_dies)))
    process = start_process(routed, counts)
    slots = first_slots(experts, process, routed_dies, slots_per_die, nodes, routed.groups)
    chances = chances_at(process, 0.0)
    near_nodes = nodes if experts.placement == "topology" else 1
    all_peaks = [Peaks(chances, slots, *routed.limits, near_nodes)]
    if links:
        all_peaks.append(Peaks(chances, slots_by_node(slots, nodes), *routed.limits, near_nodes))
    factor_args = tokens_per_request, process.correlation

    def point(i: int) -> float:
        """One value of the curve by its index: for dies below GRID, for nodes from GRID on."""
        return all_peaks[i // GRID].factor(float(batch_tokens[i % GRID]), *factor_args)

    def all_points() -> Floats:
        """All values of the curve, computed together, f8[G] or, with nodes, f8[2 G]."""
        return np.concatenate([peak.factors(batch_tokens, *factor_args) for peak in all_peaks])

    picks, _, _ = die_moments(chances, slots, copy_shares(slots, routed.routed_experts, near_nodes))
    lazy_curve = Curve(point, all_points, GRID * len(all_peaks))
    return Imbalance(batch_tokens, lazy_curve, picks * (routed_dies / routed.top_k))
