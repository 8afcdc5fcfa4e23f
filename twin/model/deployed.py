"""What prices read of a scenario: its deployment on a machine, translated once (costs.py). Besides
`build_costs` only predict.py (clocks of a power cap) and alone.py read a scenario here. An instance
whose links or dies have changed is priced again by the same record with the present network."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twin.facts import Facts
from twin.hardware.network import Network
from twin.hardware.placement import Instance
from twin.model.drafters import Drafter
from twin.model.shape import Shape
from twin.scenario import Deployment, Experts, Pool
from twin.scenario.policies import MemoryPool


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment on a machine."""

    net: Network = field(repr=False, compare=False)  # in its present state
    facts: Facts = field(repr=False)  # with those of the stack
    deployment: Deployment
    pools: Mapping[str, Pool]
    instances: tuple[Instance, ...]  # as placed on the machine without faults
    shape: Shape  # of the whole model
    drafter: Drafter
    memory_pool: MemoryPool
    request_tokens: int  # of a request of fixed lengths, prompt and answer
    experts: Experts  # settings of the model's experts
    clocks: Mapping[str, float]  # shares of the rated clock, by role, where a cap lowers it

    @property
    def stored_kv(self) -> str:
        """Number format of the KV that prefill hands over and stores in the memory pool."""
        return next(iter(self.pools.values())).precision.kv

    @property
    def guest(self) -> Pool | None:
        """The pool that runs on another pool's NPUs; None: each has NPUs of its own."""
        return next((pool for pool in self.pools.values() if pool.lender), None)
