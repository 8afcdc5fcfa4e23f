"""How well blocks (instances, training jobs) fill supernodes: best fit, exponential times, a queue.
The question of arXiv 2506.12708v2 6.1.2, Figure 24, whose traces are not published."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import typer

from twin.commands.terminal import AsJson, end_with_json, print_rows
from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.walks import FLOATS
from twin.kernels import rng
from twin.lab.ask import scenario_named
from twin.lab.library import load_facts
from twin.scenario import Scenario, seated_pools
from twin.scenario.words import numbered

SEEDS = 3  # whose mean is given
BLOCKS = 3000  # that come in one study
FILLING = 0.25  # the share of them that come before anything is counted

Mix = Sequence[tuple[int, float]]  # NPUs of a block, and how often it comes


@dataclass(frozen=True)
class Allocation:
    """Allocation of blocks on a fleet of equal supernodes."""

    supernodes: int
    mean: float  # share of the NPUs that is taken, over time
    times: FLOATS  # in mean stays of a block
    taken: FLOATS  # share of the NPUs from that time on


def allocate(
    supernode_npus: int, mix: Mix, fleet_npus: int, seed: int = 1, blocks: int = BLOCKS
) -> Allocation:
    """Simulate a queue of blocks, each on NPUs of one supernode, on equal supernodes by best fit.
    mix: (NPUs, weight) of the sizes that blocks are drawn from; blocks: how many come. Raises
    HardwareError for a block that does not fit."""
    block_sizes, stay_times = _drawn_blocks(tuple(mix), blocks, seed)
    if block_sizes.max() > supernode_npus:
        raise HardwareError(
            f"a block of {block_sizes.max()} NPUs does not fit a supernode of {supernode_npus}: "
            "take smaller blocks or a larger supernode"
        )
    supernodes = max(1, fleet_npus // supernode_npus)
    free_npus = [supernode_npus] * supernodes
    departures: list[tuple[float, int, int]] = []  # when, which supernode, NPUs
    now, used_npus = 0.0, 0
    event_times, used_npus_after = [0.0], [0]
    for block_npus, stay_time in zip(block_sizes.tolist(), stay_times.tolist(), strict=True):
        while max(free_npus) < block_npus:
            now, supernode, freed_npus = heapq.heappop(departures)
            free_npus[supernode] += freed_npus
            used_npus -= freed_npus
            event_times.append(now)
            used_npus_after.append(used_npus)
        # The supernode in which the block leaves the least room, ties to the first.
        _, supernode = min((npus, k) for k, npus in enumerate(free_npus) if npus >= block_npus)
        free_npus[supernode] -= block_npus
        used_npus += block_npus
        used_npus_after[-1] = used_npus
        heapq.heappush(departures, (now + stay_time, supernode, block_npus))
    taken_shares = np.array(used_npus_after) / (supernodes * supernode_npus)
    first_counted = min(int(FILLING * len(event_times)), len(event_times) - 1)  # index
    durations, counted_shares = np.diff(event_times[first_counted:]), taken_shares[first_counted:]
    mean_share = counted_shares[-1]
    if durations.sum() > 0.0:
        mean_share = (counted_shares[:-1] * durations).sum() / durations.sum()
    return Allocation(supernodes, min(1.0, float(mean_share)), np.array(event_times), taken_shares)


@lru_cache(maxsize=32)
def _drawn_blocks(
    mix: tuple[tuple[int, float], ...], count: int, seed: int
) -> tuple[np.ndarray, FLOATS]:
    """(NPUs i8[count], times of stay f8[count] of mean 1) of blocks drawn from `mix` by `seed`."""
    mix_npus = np.array([npus for npus, _ in mix], np.int64)
    weight_sums = np.cumsum([weight for _, weight in mix])
    size_key, stay_key = (rng.stream_key(seed, f"allocation/{name}") for name in ("size", "stay"))
    size_draws = np.array([rng.uniform(size_key, i) for i in range(count)])
    stay_times = np.array([rng.exponential(stay_key, i) for i in range(count)])
    return mix_npus[np.searchsorted(weight_sums / weight_sums[-1], size_draws, "right")], stay_times


def mix_of_mean(sizes: Sequence[int], mean: float) -> list[tuple[int, float]]:
    """Block sizes (NPUs) with their shares, which grow or shrink geometrically from size to size so
    that the mean is the given one. Raises HardwareError unless it is between the sizes."""
    if not min(sizes) < mean < max(sizes):
        raise HardwareError(
            f"blocks of {min(sizes)} to {max(sizes)} NPUs have no mean of {mean:g}: take one "
            "between"
        )
    sorted_sizes = np.sort(np.asarray(sizes, np.float64))
    exponents = np.arange(sorted_sizes.size) - sorted_sizes.size / 2

    def size_shares(slope: float) -> FLOATS:
        """Shares of the sorted sizes, sum 1, each exp(slope) times the one before."""
        unscaled_weights = rng.apply(math.exp, slope * exponents)
        return np.asarray(unscaled_weights / unscaled_weights.sum())

    slope_min, slope_max = -50.0, 50.0
    for _ in range(100):
        slope = 0.5 * (slope_min + slope_max)
        is_too_low = (size_shares(slope) * sorted_sizes).sum() < mean
        slope_min, slope_max = (slope, slope_max) if is_too_low else (slope_min, slope)
    mix_shares = size_shares(slope_max).tolist()
    return [(int(npus), share) for npus, share in zip(sorted_sizes, mix_shares, strict=True)]


Shares = dict[str, dict[int, float | None]]  # of the NPUs, over time, by mix and supernode size


def allocated_shares(
    facts: Facts, supernodes: Sequence[int] = (), means: Sequence[float] = (),
    deployment: Scenario | None = None, seed: int = 1,
) -> Shares:  # fmt: skip
    """Mean allocated share of the NPUs by mix of blocks and supernode size; None if a block does
    not fit. supernodes: sizes (NPUs); means: mean NPUs of a block, for a mix each; (): those of
    data/. deployment: its instances are one more mix. Raises HardwareError."""
    block_sizes = facts["allocation.block_sizes"].value
    mixes: dict[str, Mix] = {
        f"blocks of {mean:g} NPUs": mix_of_mean(block_sizes, mean)
        for mean in (means or facts["allocation.block_means"].value)
    }
    if deployment is not None:
        instances = [(npus, float(count)) for _, count, npus in seated_pools(deployment)]
        mixes["instances of this deployment"] = instances
    fleet_npus = int(facts["allocation.fleet"].value)
    supernode_sizes = supernodes or facts["allocation.supernode_sizes"].value
    share_by_mix: Shares = {}
    for mix_name, mix in mixes.items():
        share_by_mix[mix_name] = dict.fromkeys(supernode_sizes)
        for npus in supernode_sizes:
            if max(block_npus for block_npus, _ in mix) <= npus:
                seed_means = [allocate(npus, mix, fleet_npus, seed + k).mean for k in range(SEEDS)]
                share_by_mix[mix_name][npus] = sum(seed_means) / SEEDS
    return share_by_mix


def show_allocation(
    supernode: Annotated[list[int] | None, typer.Option(
        min=1, max=100_000, metavar="NPUS", help="A size; repeat it for more.")] = None,
    block: Annotated[list[float] | None, typer.Option(
        metavar="NPUS", help="Mean size of tightly coupled blocks; repeat it.")] = None,
    instances_of: Annotated[str, typer.Option(
        metavar="SCENARIO", help="Also blocks as large as its instances.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the blocks that come.")] = 1,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show how full tightly coupled blocks fill supernodes of several sizes over time."""
    deployment = scenario_named(instances_of) if instances_of else None
    share_by_mix = allocated_shares(load_facts(), supernode or (), block or (), deployment, seed)
    end_with_json({"allocated": share_by_mix}, as_json)
    headers = [numbered(npus, "NPU") for npus in next(iter(share_by_mix.values()))]
    share_rows = [
        (mix_name, *("no room" if share is None else f"{100 * share:.1f} %"
                 for share in share_by_npus.values()))
        for mix_name, share_by_npus in share_by_mix.items()
    ]  # fmt: skip
    print_rows(
        "NPUs of a supernode that are allocated, over time", ("blocks", *headers), share_rows
    )
