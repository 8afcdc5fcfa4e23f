"""Who computes what, where: a deployment translated once into pools of instances and their groups.

An *instance* iterates and lives together: it has one batch former and one or more *groups*. A group
is NPUs, a share of their cores, and the stages of a layer that it runs, with their layout over the
dies. A *pool* is the instances of one kind. The placements differ in their groups alone:

| deployment | pools | groups of an instance |
|---|---|---|
| disaggregated | prefill, which hands over to decode | one each, with all stages |
| colocated | colocated | one with all stages; its batches are mixed |
| attention/FFN disaggregation (`decode.expert_npus`) | decode | one with attention, in `domains`; \
one with the experts, which serves the domains in turn |
| prefill on decode NPUs (`prefill.on`) | prefill, over decode | one each, on cores c and 1 - c |
| KV in host memory (`decode.kv_offload`) | any that decodes | the own one, with a share of its \
KV in the DRAM of its nodes |
| offloaded attention (`decode.attention_offload`) | decode | the own one; one with the attention \
core of a share of the requests, over prefill NPUs, on cores that prefill sets aside |

Formula, engine, memory, watts and screens read pools and groups; only this module reads the fields.
Dies of an instance are chosen by `hardware.placement`; a failed die concerns every group on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from twin.scenario.deployment import AS_MACHINE, Deployment, Precision
from twin.scenario.scenario import Scenario

Role = Literal["prefill", "decode", "colocated"]
Phase = Literal["prefill", "decode"]
Stage = Literal["attention", "attention_core", "dense", "experts"]
Coupling = Literal["own", "iteration", "turns"]

LAYER: tuple[Stage, ...] = ("attention", "dense", "experts")  # those that the model has


@dataclass(frozen=True, slots=True)
class InHost:
    """KV of a group's requests in the DRAM of their nodes, read from there in every pass."""

    share: float = 0.0  # of the KV that grows with the context
    die_bytes: float = 0.0  # DRAM for a die's part of it
    hits: float = 0.0  # share of what an indexer selects that a die has from passes before


@dataclass(frozen=True, slots=True)
class Group:
    """NPUs of an instance that run the same stages of every layer, experts over all dies (EP).
    `coupling`: "own": fed by the batch former; "iteration": exchanges in every layer; "turns":
    serves its domains in turn."""

    stages: tuple[Stage, ...]
    npus: int  # that one instance uses
    chip: str  # of these NPUs, a file in data/chips
    cores: float = 1.0  # share of each die's cores that it computes on
    lender: str = ""  # role of the pool on whose NPUs it lies; "": they are its instance's own
    requests: float = 1.0  # share of the instance's requests whose attention core it runs
    domains: int = 1  # parts of an attention group that take turns at the experts
    attention: Literal["dp", "tp", "sp_tp_sp"] = "dp"
    tp_dies: int = 1  # dies that split the heads of one request ("tp")
    cp_dies: int = 1  # dies, in prefill also groups of them ("tp"), that split its context
    pp_stages: int = 1  # parts of the dies that have a part of the layers each
    experts_tp: int = 1  # dies that hold a part of each of their experts
    in_host: InHost = InHost()
    coupling: Coupling = "own"


@dataclass(frozen=True, slots=True)
class Pool:
    """Instances of one kind: the group that the batch former feeds first, then those it needs."""

    role: Role
    instances: int
    groups: tuple[Group, ...]
    cores: float = 1.0  # share of each die's cores that is the instance's, what it lends included
    prompt_ranks: int = 1  # that split a prompt evenly (colocated)
    precision: Precision = Precision()  # of its weights and its KV
    batch_per_npu: int = 0  # requests that may decode at once
    tokens_per_npu: int = 0  # of prompts, in a batch or in an iteration
    prompt_delay: int = 0  # iterations that prompts wait for ranks without one, at most

    @property
    def layer_dies(self) -> int:
        """Dies of a rank that compute the same layers (its tensor-parallel group); 1 in prefill,
        whose batches are not divided into ranks."""
        return self.own.tp_dies if self.phase == "decode" else 1

    @property
    def rank_dies(self) -> int:
        """Dies of a rank in all of its pipeline stages; 1 in prefill, whose batches are not divided
        into ranks."""
        return self.layer_dies * (self.own.pp_stages if self.phase == "decode" else 1)

    @property
    def own(self) -> Group:
        """The first group of an instance, which the batch former feeds."""
        return self.groups[0]

    @property
    def chip(self) -> str:
        """Name of the chip of the pool's NPUs."""
        return self.own.chip

    @property
    def phase(self) -> Phase:
        """Phase whose costs apply to the pool's iterations: "prefill" for a prefill pool; "decode"
        for decode and colocated pools, whose iterations may be mixed."""
        return "prefill" if self.role == "prefill" else "decode"

    @property
    def lender(self) -> str:
        """Role of the pool on whose first NPUs its instances run; "" if they have their own
        NPUs."""
        return self.own.lender

    @property
    def npus(self) -> int:
        """NPUs that one instance computes on: its own, or those of the pool `lender`. NPUs to which
        it offloads attention are not counted."""
        return sum(group.npus for group in self.groups if group.lender == self.lender)

    @property
    def experts(self) -> Group | None:
        """The group of an instance that holds experts only (AFD); None: experts are on all NPUs."""
        return next((group for group in self.groups if group.coupling == "turns"), None)

    @property
    def offload(self) -> Group | None:
        """The group that runs attention cores on NPUs of another pool (its `lender`), or None."""
        return next((group for group in self.groups if group.coupling == "iteration"), None)


def pools_by_role(s: Scenario) -> Mapping[str, Pool]:
    """The scenario's pools by role, in the order in which a request visits them: prefill and
    decode, or colocated."""
    return _cached_pools(s.deployment, s.supernode.chip)


def chip_of(s: Scenario, phase: str) -> str:
    """Name of the chip of the pool that runs a phase ("prefill" or "decode"). If no pool has that
    role, the chip of the first pool."""
    pool_of_role = pools_by_role(s)
    return (pool_of_role.get(phase) or next(iter(pool_of_role.values()))).chip


def copies_kv(s: Scenario) -> bool:
    """Whether dies that decode copy KV to or from the host memory of their nodes: KV of preempted
    requests, or KV that is always stored there."""
    decode_pools = [pool for pool in pools_by_role(s).values() if pool.phase == "decode"]
    swaps_to_host = s.deployment.decode.swap_gb_per_die > 0.0
    return any(swaps_to_host or pool.own.in_host.share > 0.0 for pool in decode_pools)


def sharing_pool(s: Scenario) -> Pool | None:
    """The pool whose instances run on NPUs of another pool; None if each pool has its own NPUs."""
    return next((pool for pool in pools_by_role(s).values() if pool.lender), None)


def supernodes_apart(s: Scenario) -> int:
    """Number of supernodes that a front router chooses from; 0 if there is no front router."""
    is_apart = s.router.front != "none" and s.deployment.mode != "prefill_only"
    return s.supernode.supernodes if is_apart and s.supernode.supernodes > 1 else 0


def is_elastic(s: Scenario) -> bool:
    """Whether instances may start, stop and change role during a run."""
    return s.elastic.controller != "fixed"


def core_share(s: Scenario, role: str) -> float:
    """Share of a die's cores on which an instance of a role computes; 1 if no pool has the role."""
    return pools_by_role(s)[role].cores if role in pools_by_role(s) else 1.0


def offloaded_share(s: Scenario) -> float:
    """Share of the decoding requests whose attention is offloaded to prefill NPUs; 0 if none is."""
    decode = pools_by_role(s).get("decode")
    return decode.offload.requests if decode and decode.offload else 0.0


def pools(s: Scenario) -> list[tuple[str, int, int]]:
    """The pools that the deployment's mode uses: (role, instances, NPUs of an instance)."""
    return [(pool.role, pool.instances, pool.npus) for pool in pools_by_role(s).values()]


def seated_pools(s: Scenario) -> list[tuple[str, int, int]]:
    """The pools that have NPUs of their own: (role, instances, NPUs of an instance)."""
    return [(p.role, p.instances, p.npus) for p in pools_by_role(s).values() if not p.lender]


@lru_cache(maxsize=64)
def _cached_pools(deployment: Deployment, chip: str) -> Mapping[str, Pool]:
    """Pools of the deployment's mode by role. chip: name of the first chip of the machine."""
    if deployment.mode == "colocated":
        colocated = deployment.colocated
        group = _decode_group(
            deployment, LAYER, colocated.npus_per_instance, _chip_name(colocated.chip, chip)
        )
        prompt_ranks = -(-colocated.prompt_dies // group.tp_dies)
        pool = Pool(
            "colocated", colocated.instances, (group,), prompt_ranks=prompt_ranks,
            precision=deployment.precision, batch_per_npu=deployment.decode.batch_per_npu,
            tokens_per_npu=colocated.chunk_tokens_per_npu, prompt_delay=colocated.prompt_delay,
        )  # fmt: skip
        return {"colocated": pool}
    by_role = {"prefill": _prefill_pool(deployment, chip), "decode": _decode_pool(deployment, chip)}
    if deployment.mode == "disaggregated":
        return by_role
    role = deployment.mode.removesuffix("_only")
    return {role: by_role[role]}


def _chip_name(pool_chip: str, machine_chip: str) -> str:
    """Name of a pool's chip; for "as_machine" that of the machine."""
    return machine_chip if pool_chip == AS_MACHINE else pool_chip


def _prefill_pool(deployment: Deployment, chip: str) -> Pool:
    """The prefill pool, on its own NPUs or on decode's. chip: name of the machine's first chip."""
    prefill, is_disaggregated = deployment.prefill, deployment.mode == "disaggregated"
    lender_role = "decode" if is_disaggregated and prefill.on == "decode_npus" else ""
    core_share = prefill.core_share if lender_role else 1.0
    group = Group(
        LAYER, prefill.npus_per_instance,
        _chip_name(deployment.decode.chip if lender_role else prefill.chip, chip),
        core_share * (1.0 - _lent_core_share(deployment)), lender_role, attention=prefill.attention,
        tp_dies=prefill.tp_dies if prefill.attention == "tp" else 1,
        cp_dies=prefill.cp_dies if prefill.attention != "sp_tp_sp" else 1,
        pp_stages=prefill.pp_stages, experts_tp=prefill.experts_tp,
    )  # fmt: skip
    precision = deployment.precision
    if is_disaggregated and precision.prefill_weights != "as_decode":
        precision = precision.model_copy(update={"weights": precision.prefill_weights})
    if is_disaggregated and precision.prefill_kv != "as_decode":
        precision = precision.model_copy(update={"kv": precision.prefill_kv})
    return Pool(
        "prefill", prefill.instances, (group,), core_share, precision=precision,
        tokens_per_npu=prefill.tokens_per_npu,
    )  # fmt: skip


def _decode_pool(deployment: Deployment, chip: str) -> Pool:
    """The decode pool, a group for each set of stages. chip: name of the machine's first chip."""
    prefill, decode = deployment.prefill, deployment.decode
    is_disaggregated = deployment.mode == "disaggregated"
    cores = 1.0 - prefill.core_share if is_disaggregated and prefill.on == "decode_npus" else 1.0
    offloaded_share = decode.attention_offload if is_disaggregated else 0.0
    expert_npus, decode_chip = decode.expert_npus, _chip_name(decode.chip, chip)
    stages = ("attention", "dense") if expert_npus else LAYER
    first_group_npus = decode.npus_per_instance - expert_npus
    first_group = _decode_group(deployment, stages, first_group_npus, decode_chip)
    domains = decode.domains if expert_npus else 1
    groups = [replace(first_group, cores=cores, requests=1.0 - offloaded_share, domains=domains)]
    if expert_npus:
        groups.append(Group(("experts",), expert_npus, decode_chip, cores, coupling="turns"))
    if offloaded_share:
        groups.append(Group(
            ("attention_core",), prefill.instances * prefill.npus_per_instance,
            _chip_name(prefill.chip, chip), _lent_core_share(deployment), lender="prefill",
            requests=offloaded_share, coupling="iteration",
        ))  # fmt: skip
    return Pool(
        "decode", decode.instances, tuple(groups), cores, precision=deployment.precision,
        batch_per_npu=decode.batch_per_npu,
    )  # fmt: skip


def _decode_group(deployment: Deployment, stages: tuple[Stage, ...], npus: int, chip: str) -> Group:
    """A group that runs `stages` for decode on `npus` NPUs with the chip of this name."""
    decode, in_host = deployment.decode, InHost()
    if decode.kv_offload > 0.0:
        die_bytes = 1e9 * decode.kv_offload_gb_per_die
        in_host = InHost(decode.kv_offload, die_bytes, decode.kv_offload_hits)
    return Group(
        stages, npus, chip, attention="tp" if decode.tp_dies > 1 else "dp", tp_dies=decode.tp_dies,
        cp_dies=decode.cp_dies, pp_stages=decode.pp_stages, experts_tp=decode.experts_tp,
        in_host=in_host,
    )  # fmt: skip


def _lent_core_share(deployment: Deployment) -> float:
    """Share of each prefill die's cores that is set aside for attention that decode offloads; 0 if
    decode offloads none."""
    is_lending = deployment.mode == "disaggregated" and deployment.decode.attention_offload > 0.0
    return deployment.prefill.lent_cores if is_lending else 0.0
