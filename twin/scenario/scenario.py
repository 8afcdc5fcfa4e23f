"""The whole question: its sections, which `agreement` holds together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import model_validator

from twin.scenario.clients import Admission, Clients, Tenant
from twin.scenario.declaration import Section, choice, quantity, rows, section, text, unless
from twin.scenario.deployment import Deployment
from twin.scenario.elastic import Elastic
from twin.scenario.experts import Experts
from twin.scenario.faults import Fault, Recovery
from twin.scenario.policies import Cost, FrontEnd, MemoryPool, Router, Slo
from twin.scenario.supernode import Supernode
from twin.scenario.workload import Workload

MOST_MODELS = 7  # further ones: eight in all
RULES: list[Callable[[Scenario], list[str]]] = []  # sentences about sections that disagree


class Model(Section):
    """A further model: its traffic, its instances, and its part of the memory pool."""

    name: str = text("", "Name", most=40)
    """What it is called in tables; nothing: the name of `deployment.model`."""
    pool_share: float = quantity(0.0, "of the memory pool", "Quota", (0, 0.99))
    """Quota of its namespace in the memory pool, DRAM and SSD of each node; 0: an even part of what
    others leave, as the first model has."""
    npus_of: str = text("", "Takes turns on the NPUs of", most=40)
    """Name of a model above it whose NPUs its instances take in turn with that one's; nothing: NPUs
    of its own."""
    workload: Workload = section(Workload)
    deployment: Deployment = section(Deployment)
    elastic: Elastic = section(Elastic)
    experts: Experts = section(Experts)
    slo: Slo = section(Slo)


class Scenario(Section):
    """One question to the twin."""

    name: str = text("untitled", "Name", most=120)
    """Short name."""
    question: str = text("", "Question", most=600)
    """What this scenario asks."""
    source: str = text("", "Source", most=600)
    """Where its figures come from."""
    seed: int = quantity(1, "", "Seed", (0, 2**31 - 1), group="Time and seed")
    """Seed of all random streams."""
    horizon_s: float = quantity(
        120.0, "s", "Simulated time", (0.1, 604_800), group="Time and seed",
        also="horizon, duration",
    )  # fmt: skip
    warmup_s: float = quantity(30.0, "s", "Warm-up", (0, 604_800), group="Time and seed")
    """Start of the steady-state window; earlier requests are left out of it."""
    start: Literal["steady", "empty"] = choice(
        "steady", "Begins",
        options={"steady": "In the steady state", "empty": "On an empty machine"},
        group="Time and seed", since=3,
    )  # fmt: skip
    """With the requests that are under way in the steady state of its load, or with none. Loads
    that change over time, recorded traces and finite benchmarks always begin empty."""
    step_s: float = quantity(0.005, "s", "Clock step", (0.001, 1.0), group="Time and seed")
    """Step of the clock: how stale what flows backwards may be."""
    supernode: Supernode = section(Supernode, group="Planes")
    workload: Workload = section(Workload, group="Traffic")
    deployment: Deployment = section(Deployment, group="Pools")
    models: tuple[Model, ...] = rows("Further models", most=MOST_MODELS, since=4)
    """Further models that the machine serves, each with a `workload`, a `deployment`, `elastic`,
    `experts` and an `slo` of its own, of the same fields as the first model's."""
    clients: Clients = section(Clients, group="Clients", since=2)
    tenants: tuple[Tenant, ...] = rows("Tenants", most=16, since=2)
    """Who shares the machine, with its SLO and limits; none: all requests are of one."""
    admission: Admission = section(Admission, group="Admission", since=2)
    front_end: FrontEnd = section(FrontEnd, group="Routing")
    router: Router = section(Router, group="Routing")
    memory_pool: MemoryPool = section(
        MemoryPool, group="Memory pool", applies=unless("deployment.mode", "decode_only")
    )
    experts: Experts = section(Experts, group="Experts")
    elastic: Elastic = section(Elastic, group="Elasticity", since=2)
    slo: Slo = section(Slo, group="SLO")
    cost: Cost = section(Cost, group="Power and price", since=2)
    faults: tuple[Fault, ...] = rows("Faults", most=500)
    """What breaks, and when."""
    recovery: Recovery = section(Recovery, group="Faults")

    @model_validator(mode="after")
    def _sections_agree(self) -> Scenario:
        """Return the scenario. Raises ValueError with the first contradiction of its fields."""
        if problems := [problem for rule in RULES for problem in rule(self)]:
            raise ValueError(problems[0])
        return self
