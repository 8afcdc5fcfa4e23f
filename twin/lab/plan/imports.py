"""What a scenario of a plan names by the digest of its content: a recorded stream of requests,
counts of experts, a machine, a controller. Whichever process simulates finds them in its own
store."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.hardware.imported import find
from twin.lab.kinds import COUNTS, MACHINE, TRACE
from twin.lab.store import open_store
from twin.scenario import Scenario
from twin.workload.requests import TraceTable


class Imports(NamedTuple):
    """Further arguments of `simulate` and of formulas."""

    trace: TraceTable | None = None
    counts: NDArray[np.float64] | None = None  # [layers, experts]


def imports_of(s: Scenario) -> Imports:
    """Those of a scenario. Raises StoreError with one sentence if the store has them not."""
    named = [kind.named(s) for kind in (TRACE, COUNTS, MACHINE)]
    if not any(named) and not s.elastic.own.digest:
        return Imports()
    return _loaded(*(each.digest if each else "" for each in named))


@lru_cache(maxsize=2)
def _loaded(trace: str, counts: str, machine: str) -> Imports:
    store = open_store()  # from here on machines are found there, and controllers in their folder
    if machine and find(machine) is None:
        store.machines.load(machine)  # says in a sentence why not
    return Imports(
        store.traces.load(trace) if trace else None,
        store.counts.load(counts).counts if counts else None,
    )
