"""Several models on one machine: each with its own instances and requests.

The scenario's own sections are those of the first model, `models` has a row for each further one. A
run has one supernode, clock, front end, router, memory pool, clients and faults. What is left of
the scenario for one model is a scenario of that model alone (`split_models`): formula and engine
know no other. Its instances follow those of the models before it, its namespace of the memory pool
is its share of every node, and its requests have a seed of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from twin.scenario.declaration import SpecError, broken_rules
from twin.scenario.groups import is_elastic, pools_by_role
from twin.scenario.scenario import Model, Scenario

OWN = ("workload", "deployment", "elastic", "experts", "slo")  # sections that each model has


def model_names(s: Scenario) -> list[str]:
    """Names of a scenario's models, the first model's first."""
    return [s.deployment.model, *(row.name or row.deployment.model for row in s.models)]


def split_models(s: Scenario) -> tuple[Scenario, ...]:
    """One scenario for each model, which has only this model, in order. With a single model this is
    the scenario itself."""
    return _cached_split_models(s) if s.models else (s,)


@lru_cache(maxsize=16)
def _cached_split_models(s: Scenario) -> tuple[Scenario, ...]:
    """One scenario for each model, with its own sections, first NPU, pool share and seed."""
    scenarios: list[Scenario] = []
    next_free_npu, owner_of = s.deployment.first_npu, npu_owners(s)
    stated_shares = [0.0, *(model.pool_share for model in s.models)]
    default_share = (1.0 - sum(stated_shares)) / stated_shares.count(0.0)
    models: tuple[Scenario | Model, ...] = (s, *s.models)
    for index, (model, stated_share) in enumerate(zip(models, stated_shares, strict=True)):
        first_npu = model.deployment.first_npu or next_free_npu
        if owner_of[index] != index:
            first_npu = scenarios[owner_of[index]].deployment.first_npu
        sections = {name: getattr(model, name) for name in OWN}
        sections["deployment"] = model.deployment.model_copy(update={"first_npu": first_npu})
        memory_pool, pool_share = s.memory_pool, stated_share or default_share
        capacity_fields = ("gb_per_node", "ssd_gb_per_node")
        capacities_gb = {name: getattr(memory_pool, name) * pool_share for name in capacity_fields}
        sections["memory_pool"] = memory_pool.model_copy(update=capacities_gb)
        sections |= {"models": (), "seed": (s.seed + 1_000_003 * index) % 2**31}
        scenarios.append(s.model_copy(update=sections))
        next_free_npu = max(
            next_free_npu if owner_of[index] != index else 0, first_npu + most_npus(scenarios[-1])
        )
    return tuple(scenarios)


def npu_owners(s: Scenario) -> list[int]:
    """For each model the number of the model whose NPUs it uses: its own number, or that of an
    earlier model with which it takes turns on the same NPUs."""
    names, owner_of = model_names(s), [0]
    for index, row in enumerate(s.models, start=1):
        is_shared = row.npus_of in names[:index]
        owner_of.append(owner_of[names.index(row.npus_of)] if is_shared else index)
    return owner_of


def own_npus(s: Scenario) -> int:
    """NPUs that the first model's instances occupy; NPUs that two pools share count once."""
    return sum(pool.instances * pool.npus for pool in pools_by_role(s).values() if not pool.lender)


def most_npus(s: Scenario) -> int:
    """The most NPUs that the first model's instances may occupy in a run, with autoscaling."""
    return max(own_npus(s), s.elastic.npus if is_elastic(s) else 0)


def npus_used(s: Scenario) -> int:
    """NPUs that the instances of all models occupy at the start of a run. NPUs that models use in
    turns count once."""
    npus_by_owner: dict[int, int] = {}
    for owner, model_scenario in zip(npu_owners(s), split_models(s), strict=True):
        npus_by_owner[owner] = max(npus_by_owner.get(owner, 0), own_npus(model_scenario))
    return sum(npus_by_owner.values())


def may_have_no_instance(s: Scenario) -> bool:
    """Whether the first model may be without any instance for a time."""
    return is_elastic(s) and s.elastic.least_instances == 0


def _most_instances(s: Scenario) -> dict[str, int]:
    """Largest number of the first model's instances by role; with elastic scaling a pool may grow
    onto NPUs of the other pools and onto free ones."""
    elastic_npus = most_npus(s) if is_elastic(s) else 0
    pools = pools_by_role(s).items()
    return {role: elastic_npus // pool.npus or pool.instances for role, pool in pools}


def first_numbers(s: Scenario) -> list[dict[str, int]]:
    """Number of each model's first instance by role, where instances of all models are numbered
    consecutively. A colocated instance has one number for prefill and decode."""
    first_of_role, next_number = [], {"prefill": 0, "decode": 0}
    for model_scenario in split_models(s):
        most_instances = _most_instances(model_scenario)
        if "colocated" in most_instances:
            next_number = dict.fromkeys(next_number, max(next_number.values()))
        first_of_role.append(next_number | {"colocated": next_number["prefill"]})
        colocated_instances = most_instances.get("colocated", 0)  # these count in both roles
        for role in next_number:
            next_number[role] += most_instances.get(role, colocated_instances)
    return first_of_role


def require_one_model(s: Scenario, what: str) -> None:
    """Raise SpecError if a scenario has several models; `what` names what works with one only."""
    if s.models:
        raise SpecError(
            f"{what} is of one model, and {s.name} has {1 + len(s.models)}: take out the rows of "
            "models, or ask for each model by itself"
        )


def model_disagreements(s: Scenario) -> list[str]:
    """Sentences about settings of several models that cannot share a machine."""
    names, models, owner_of = model_names(s), split_models(s), npu_owners(s)
    is_on_decode = any(model.deployment.prefill.on == "decode_npus" for model in models)
    advice = "next to several models is not modelled: take one model, or"
    first_npus = [model.deployment.first_npu for model in models]
    end_npus = [
        first_npu + most_npus(model) for first_npu, model in zip(first_npus, models, strict=True)
    ]
    problems = broken_rules(
        (len(set(names)) < len(names),
         "two models have one name: give each row of models a name of its own"),
        (sum(row.pool_share for row in s.models) > 0.99,
         "quotas of models must leave the first one 0.01 of the memory pool or more"),
        (s.tenants, f"tenants {advice} no tenants"),
        (is_on_decode,
         f"deployment.prefill.on = decode_npus {advice} prefill on NPUs of its own"),
        (max(end_npus) > s.supernode.npus and not s.supernode.imported,
         f"models may take up the NPUs up to {max(end_npus):,} and the supernode has "
         f"{s.supernode.npus:,}: add nodes, or take fewer or smaller instances"),
    )  # fmt: skip
    for index in range(len(models)):  # those that take turns have the NPUs of the largest
        end_npus[owner_of[index]] = max(end_npus[owner_of[index]], end_npus[index])
    by_first_npu = sorted({*owner_of}, key=first_npus.__getitem__)
    for earlier, later in pairwise(by_first_npu):
        if first_npus[later] < (end_npu := end_npus[earlier]):
            problems.append(
                f"{names[earlier]} has the NPUs up to {end_npu} and {names[later]} begins at "
                f"{first_npus[later]}: let its deployment.first_npu be {end_npu} or more"
            )
    problems += _turn_disagreements(s, models)
    for name, row in zip(names[1:], s.models, strict=True):
        problems += broken_rules(
            (row.workload.arrivals == "trace",
             f"{name} cannot replay a trace: only the first model can"),
            (row.experts.popularity == "imported",
             f"{name} cannot have imported expert counts: only the first model can"),
        )  # fmt: skip
    return problems


def _turn_disagreements(s: Scenario, models: Sequence[Scenario]) -> list[str]:
    """Sentences about models that cannot take turns on the same NPUs; models: of `split_models`."""
    names, owner_of, problems = model_names(s), npu_owners(s), list[str]()
    for index, row in enumerate(s.models, start=1):
        problems += broken_rules(
            (row.npus_of and owner_of[index] == index,
             f"{names[index]} takes the NPUs of {row.npus_of!r}, and no model above it has that "
             f"name: let its npus_of be one of {', '.join(names[:index])}"),
            (row.npus_of and row.deployment.first_npu,
             f"{names[index]} has a deployment.first_npu and takes the NPUs of {row.npus_of}: set "
             "one of them back to its default"),
        )  # fmt: skip
    models_in_turns = {index for pair in enumerate(owner_of) if len({*pair}) > 1 for index in pair}
    for index in sorted(models_in_turns):
        elastic, pools = models[index].elastic, pools_by_role(models[index])
        problems += broken_rules(
            (elastic.least_instances or elastic.controller in ("fixed", "schedule"),
             f"{names[index]} shares NPUs in turns, and they have to come free: set its "
             "elastic.least_instances to 0 with a controller that decides, such as queue"),
            (len(pools) > 1,
             f"{names[index]} shares NPUs in turns and has {len(pools)} pools, of which each would "
             "have to win its own: let its deployment.mode be colocated"),
        )  # fmt: skip
    return problems
