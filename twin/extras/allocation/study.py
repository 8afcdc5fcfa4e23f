"""The study of allocation: blocks of several mean sizes on supernodes of several sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from twin.extras.allocation.blocks import Allocation, Mix, allocation, mix_of_mean
from twin.facts import Facts
from twin.scenario import Scenario, seated

SEEDS = 3  # whose mean is given


@dataclass(frozen=True)
class Filling:
    """How full blocks of one mix keep supernodes of one size."""

    blocks: str  # the mix, for people
    supernode_npus: int
    share: float | None  # of the NPUs, over time; None: the largest block does not fit
    course: Allocation | None  # of the first seed


def study(
    facts: Facts,
    supernodes: Sequence[int] = (),
    means: Sequence[float] = (),
    deployment: Scenario | None = None,
    seed: int = 1,
) -> list[Filling]:
    """Every mix, and a deployment's instances, on every size. Raises HardwareError."""
    sizes = facts["allocation.block_sizes"].value
    mixes: dict[str, Mix] = {
        f"blocks of {mean:g} NPUs": mix_of_mean(sizes, mean)
        for mean in (means or facts["allocation.block_means"].value)
    }
    if deployment is not None:
        own = [(npus, float(count)) for _, count, npus in seated(deployment)]
        mixes["instances of this deployment"] = own
    fleet = int(facts["allocation.fleet"].value)
    return [
        _filling(name, npus, mix, fleet, seed)
        for name, mix in mixes.items()
        for npus in (supernodes or facts["allocation.supernode_sizes"].value)
    ]


def _filling(name: str, npus: int, mix: Mix, fleet: int, seed: int) -> Filling:
    if max(size for size, _ in mix) > npus:
        return Filling(name, npus, None, None)
    runs = [allocation(npus, mix, fleet, seed + k) for k in range(SEEDS)]
    return Filling(name, npus, sum(run.mean for run in runs) / SEEDS, runs[0])


def by_blocks(fillings: Sequence[Filling]) -> dict[str, dict[int, float | None]]:
    """The shares by mix, then by size."""
    table: dict[str, dict[int, float | None]] = {}
    for one in fillings:
        table.setdefault(one.blocks, {})[one.supernode_npus] = one.share
    return table
