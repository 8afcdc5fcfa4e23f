"""Several models on one machine: each with its own instances and requests.

The scenario's own sections are those of the first model, `models` has a row for each further one. A
run has one supernode, clock, front end, router, memory pool, clients and faults. What is left of
the scenario for one model is a scenario of that model alone (`of_models`): formula and engine know
no other. Its instances follow those of the models before it, its namespace of the memory pool is
its share of every node, and its requests are drawn from a seed of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from twin.scenario.declaration import Section, SpecError, broken, quantity, section, text
from twin.scenario.deployment import Deployment
from twin.scenario.elastic import Elastic
from twin.scenario.experts import Experts
from twin.scenario.groups import serving
from twin.scenario.policies import Slo
from twin.scenario.workload import Workload

if TYPE_CHECKING:
    from twin.scenario.scenario import Scenario

MOST_MODELS = 7  # further ones: eight in all
OWN = ("workload", "deployment", "elastic", "experts", "slo")  # sections that each model has


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


def model_names(s: Scenario) -> list[str]:
    """What the models of a scenario are called, the first one's first."""
    return [s.deployment.model, *(row.name or row.deployment.model for row in s.models)]


def of_models(s: Scenario) -> tuple[Scenario, ...]:
    """The scenario of each model alone, in order; of one model, the scenario itself."""
    return _of_models(s) if s.models else (s,)


@lru_cache(maxsize=16)
def _of_models(s: Scenario) -> tuple[Scenario, ...]:
    """One scenario for each model, with its own workload, deployment and place."""
    found: list[Scenario] = []
    free, own = s.deployment.first_npu, owners(s)
    given = [0.0, *(row.pool_share for row in s.models)]
    rest = (1.0 - sum(given)) / given.count(0.0)
    every: tuple[Scenario | Model, ...] = (s, *s.models)
    for k, (row, share) in enumerate(zip(every, given, strict=True)):
        first = row.deployment.first_npu or free
        if own[k] != k:
            first = found[own[k]].deployment.first_npu
        sections = {name: getattr(row, name) for name in OWN}
        sections["deployment"] = row.deployment.model_copy(update={"first_npu": first})
        pool, part = s.memory_pool, share or rest
        lent = {name: getattr(pool, name) * part for name in ("gb_per_node", "ssd_gb_per_node")}
        sections["memory_pool"] = pool.model_copy(update=lent)
        sections |= {"models": (), "seed": (s.seed + 1_000_003 * k) % 2**31}
        found.append(s.model_copy(update=sections))
        free = max(free if own[k] != k else 0, first + most_npus(found[-1]))
    return tuple(found)


def owners(s: Scenario) -> list[int]:
    """For each model the number of the one whose NPUs it takes: its own, or of one above it."""
    names, found = model_names(s), [0]
    for k, row in enumerate(s.models, start=1):
        above = names[:k]
        found.append(found[above.index(row.npus_of)] if row.npus_of in above else k)
    return found


def own_npus(s: Scenario) -> int:
    """NPUs that the instances of the scenario's first model occupy, each counted once."""
    return sum(pool.instances * pool.npus for pool in serving(s).values() if not pool.over)


def most_npus(s: Scenario) -> int:
    """NPUs that the first model's instances may take up: where they come and go, more than those
    that are there at the start."""
    moves = s.elastic.controller != "fixed"
    return max(own_npus(s), s.elastic.npus if moves else 0)


def npus_used(s: Scenario) -> int:
    """NPUs that the instances of all models occupy at once at the start, each counted once."""
    most: dict[int, int] = {}
    for owner, one in zip(owners(s), of_models(s), strict=True):
        most[owner] = max(most.get(owner, 0), own_npus(one))
    return sum(most.values())


def may_be_none(s: Scenario) -> bool:
    """Whether the first model may have no instance for a time."""
    return s.elastic.controller != "fixed" and s.elastic.least_instances == 0


def _most_instances(s: Scenario) -> dict[str, int]:
    """Instances by role that there may be of the first model: those of a pool may come on the NPUs
    of the others and on free ones."""
    own = serving(s)
    if s.elastic.controller == "fixed":
        return {role: pool.instances for role, pool in own.items()}
    return {
        role: pool.instances + (most_npus(s) - pool.instances * pool.npus) // pool.npus
        for role, pool in own.items()
    }


def first_numbers(s: Scenario) -> list[dict[str, int]]:
    """The number of each model's first instance by role, where those of all models are numbered
    through. A colocated instance has one number for prefill and decode."""
    found, first = [], {"prefill": 0, "decode": 0}
    for one in of_models(s):
        count = _most_instances(one)
        if "colocated" in count:
            first = dict.fromkeys(first, max(first.values()))
        found.append(first | {"colocated": first["prefill"]})
        both = count.get("colocated", 0)
        first = {role: n + count.get(role, both) for role, n in first.items()}
    return found


def require_one_model(s: Scenario, what: str) -> None:
    """Raise SpecError where a scenario has several models."""
    if s.models:
        raise SpecError(
            f"{what} is of one model, and {s.name} has {1 + len(s.models)}: take out the rows of "
            "models, or ask for each model by itself"
        )


def models_disagree(s: Scenario) -> list[str]:
    """Sentences about several models that cannot share a machine."""
    names, alone, own = model_names(s), of_models(s), owners(s)
    on_decode = any(one.deployment.prefill.on == "decode_npus" for one in alone)
    several = "next to several models is not modelled: take one model, or"
    begins = [one.deployment.first_npu for one in alone]
    ends = [first + most_npus(one) for first, one in zip(begins, alone, strict=True)]
    problems = broken(
        (len(set(names)) < len(names),
         "two models have one name: give each row of models a name of its own"),
        (sum(row.pool_share for row in s.models) > 0.99,
         "quotas of models must leave the first one 0.01 of the memory pool or more"),
        (s.tenants, f"tenants {several} no tenants"),
        (on_decode,
         f"deployment.prefill.on = decode_npus {several} prefill on NPUs of its own"),
        (max(ends) > s.supernode.npus and not s.supernode.imported,
         f"models may take up the NPUs up to {max(ends)} and the supernode has "
         f"{s.supernode.npus}: add nodes, or take fewer or smaller instances"),
    )  # fmt: skip
    for k in range(len(alone)):  # those that take turns have the NPUs of the largest
        ends[own[k]] = max(ends[own[k]], ends[k])
    order = sorted({*own}, key=begins.__getitem__)
    for a, b in pairwise(order):
        if begins[b] < ends[a]:
            problems.append(
                f"{names[a]} has the NPUs up to {ends[a]} and {names[b]} begins at {begins[b]}: "
                f"let its deployment.first_npu be {ends[a]} or more"
            )
    problems += _turns_disagree(s, alone)
    for name, row in zip(names[1:], s.models, strict=True):
        problems += broken(
            (row.workload.arrivals == "trace",
             f"{name} cannot replay a trace: only the first model can"),
            (row.experts.popularity == "imported",
             f"{name} cannot have imported expert counts: only the first model can"),
        )  # fmt: skip
    return problems


def _turns_disagree(s: Scenario, alone: Sequence[Scenario]) -> list[str]:
    """Sentences about models that cannot take turns on the same NPUs."""
    names, own, problems = model_names(s), owners(s), list[str]()
    for k, row in enumerate(s.models, start=1):
        problems += broken(
            (row.npus_of and own[k] == k,
             f"{names[k]} takes the NPUs of {row.npus_of!r}, and no model above it has that "
             f"name: let its npus_of be one of {', '.join(names[:k])}"),
            (row.npus_of and row.deployment.first_npu,
             f"{names[k]} has a deployment.first_npu and takes the NPUs of {row.npus_of}: set "
             "one of them back to its default"),
        )  # fmt: skip
    for k in sorted({k for turns in enumerate(own) if len({*turns}) > 1 for k in turns}):
        e, pools = alone[k].elastic, serving(alone[k])
        problems += broken(
            (e.least_instances or e.controller in ("fixed", "schedule"),
             f"{names[k]} shares NPUs in turns, and they have to come free: set its "
             "elastic.least_instances to 0 with a controller that decides, such as queue"),
            (len(pools) > 1,
             f"{names[k]} shares NPUs in turns and has {len(pools)} pools, of which each would "
             "have to win its own: let its deployment.mode be colocated"),
        )  # fmt: skip
    return problems
