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
from typing import TYPE_CHECKING, Literal

from twin.scenario.deployment import AS_MACHINE, Deployment, Precision

if TYPE_CHECKING:
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
    over: str = ""  # role of the pool on whose NPUs it lies; "": they are its instance's own
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
        """Dies of a rank that have the same layers; prefill's batch has no ranks of several."""
        return self.own.tp_dies if self.phase == "decode" else 1

    @property
    def rank_dies(self) -> int:
        """Dies of a rank, which decode together: those of all its pipeline stages."""
        return self.layer_dies * (self.own.pp_stages if self.phase == "decode" else 1)

    @property
    def own(self) -> Group:
        """The group that the batch former feeds."""
        return self.groups[0]

    @property
    def chip(self) -> str:
        """Name of the chip of its instances' NPUs."""
        return self.own.chip

    @property
    def phase(self) -> Phase:
        """What its iterations are priced as: batches of prompts alone, or decode, mixed or not."""
        return "prefill" if self.role == "prefill" else "decode"

    @property
    def over(self) -> str:
        """Role of the pool on whose NPUs they lie, evenly from the first on; "": none."""
        return self.own.over

    @property
    def npus(self) -> int:
        """NPUs under one instance, its own or those of the pool `over`."""
        return sum(g.npus for g in self.groups if g.over == self.over)

    @property
    def experts(self) -> Group | None:
        """The group that holds experts only (AFD); None: experts are on all NPUs."""
        return next((g for g in self.groups if g.coupling == "turns"), None)

    @property
    def away(self) -> Group | None:
        """The group that runs attention cores on NPUs of another pool; None: there is none."""
        return next((g for g in self.groups if g.coupling == "iteration"), None)


def serving(s: Scenario) -> Mapping[str, Pool]:
    """The pools by role, in the order of a request: prefill, decode; or colocated."""
    return _serving(s.deployment, s.supernode.chip)


def chip_of(s: Scenario, phase: str) -> str:
    """Name of the chip that prefills or decodes; without such a pool that of the other."""
    pools = serving(s)
    return (pools.get(phase) or next(iter(pools.values()))).chip


def copies_kv(s: Scenario) -> bool:
    """Whether KV crosses between dies that decode and the memory of their nodes."""
    pools = [pool for pool in serving(s).values() if pool.phase == "decode"]
    swaps = s.deployment.decode.swap_gb_per_die > 0.0
    return any(swaps or pool.own.in_host.share > 0.0 for pool in pools)


def sharing(s: Scenario) -> Pool | None:
    """The pool that shares the NPUs of another; None: each has NPUs of its own."""
    return next((pool for pool in serving(s).values() if pool.over), None)


@lru_cache(maxsize=64)
def _serving(deployment: Deployment, chip: str) -> Mapping[str, Pool]:
    """Pools by role, for each mode; chip: of the machine."""
    if deployment.mode == "colocated":
        c = deployment.colocated
        own = _decoding(deployment, LAYER, c.npus_per_instance, _named(c.chip, chip))
        split = -(-c.prompt_dies // own.tp_dies)
        pool = Pool(
            "colocated", c.instances, (own,), prompt_ranks=split, precision=deployment.precision,
            batch_per_npu=deployment.decode.batch_per_npu, tokens_per_npu=c.chunk_tokens_per_npu,
            prompt_delay=c.prompt_delay,
        )  # fmt: skip
        return {"colocated": pool}
    pools = {"prefill": _prefill(deployment, chip), "decode": _decode(deployment, chip)}
    if deployment.mode == "disaggregated":
        return pools
    only = deployment.mode.removesuffix("_only")
    return {only: pools[only]}


def _named(own: str, chip: str) -> str:
    """Name of a pool's chip; chip: of the machine."""
    return chip if own == AS_MACHINE else own


def _prefill(deployment: Deployment, chip: str) -> Pool:
    """Prefill's pool, on NPUs of its own or on decode's dies with a share of their cores."""
    p, both = deployment.prefill, deployment.mode == "disaggregated"
    over = "decode" if both and p.on == "decode_npus" else ""
    cores = p.core_share if over else 1.0
    own = Group(
        LAYER, p.npus_per_instance, _named(deployment.decode.chip if over else p.chip, chip),
        cores * (1.0 - _lent_cores(deployment)), over, attention=p.attention,
        tp_dies=p.tp_dies if p.attention == "tp" else 1,
        cp_dies=p.cp_dies if p.attention != "sp_tp_sp" else 1, pp_stages=p.pp_stages,
        experts_tp=p.experts_tp,
    )  # fmt: skip
    precision = deployment.precision
    if both and precision.prefill_weights != "as_decode":
        precision = precision.model_copy(update={"weights": precision.prefill_weights})
    if both and precision.prefill_kv != "as_decode":
        precision = precision.model_copy(update={"kv": precision.prefill_kv})
    return Pool(
        "prefill", p.instances, (own,), cores, precision=precision, tokens_per_npu=p.tokens_per_npu,
    )  # fmt: skip


def _decode(deployment: Deployment, chip: str) -> Pool:
    """Decode's pool: attention, experts and offloaded attention."""
    p, d, both = deployment.prefill, deployment.decode, deployment.mode == "disaggregated"
    cores = 1.0 - p.core_share if both and p.on == "decode_npus" else 1.0
    away, apart = d.attention_offload if both else 0.0, d.expert_npus
    stages = ("attention", "dense") if apart else LAYER
    own = _decoding(deployment, stages, d.npus_per_instance - apart, _named(d.chip, chip))
    own = replace(own, cores=cores, requests=1.0 - away, domains=d.domains if apart else 1)
    groups = [own]
    if apart:
        groups.append(Group(("experts",), apart, own.chip, cores, coupling="turns"))
    if away:
        lender, lent = p.instances * p.npus_per_instance, _lent_cores(deployment)
        groups.append(Group(
            ("attention_core",), lender, _named(p.chip, chip), lent, over="prefill", requests=away,
            coupling="iteration",
        ))  # fmt: skip
    return Pool(
        "decode", d.instances, tuple(groups), cores, precision=deployment.precision,
        batch_per_npu=d.batch_per_npu,
    )  # fmt: skip


def _decoding(deployment: Deployment, stages: tuple[Stage, ...], npus: int, chip: str) -> Group:
    """A group that decodes with attention, on NPUs of a chip."""
    d, in_host = deployment.decode, InHost()
    if d.kv_offload > 0.0:
        in_host = InHost(d.kv_offload, 1e9 * d.kv_offload_gb_per_die, d.kv_offload_hits)
    return Group(
        stages, npus, chip, attention="tp" if d.tp_dies > 1 else "dp", tp_dies=d.tp_dies,
        cp_dies=d.cp_dies, pp_stages=d.pp_stages, experts_tp=d.experts_tp, in_host=in_host,
    )  # fmt: skip


def _lent_cores(deployment: Deployment) -> float:
    """Share of the cores of prefill's dies that is set aside for attention of decode."""
    lends = deployment.mode == "disaggregated" and deployment.decode.attention_offload > 0.0
    return deployment.prefill.lent_cores if lends else 0.0
