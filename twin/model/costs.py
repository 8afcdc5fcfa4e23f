"""All costs of a scenario's deployment, ready for the engine and for the formula.

Shape, chip, fabric and deployment meet once and give coefficients for the kernels, what fits, where
experts sit and what travels. Every iteration and the steady state read the same coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from twin.facts import Facts
from twin.hardware.chip import Chip, load_chip
from twin.hardware.network import Network, Wiring, network
from twin.hardware.placement import Instance, place_instances
from twin.metrics.operators import names_of
from twin.model.coefficients import DECODE_OPERATORS, PREFILL_OPERATORS, Decode, Prefill
from twin.model.collectives import exchange
from twin.model.decode_costs import colocated_costs, decode_costs
from twin.model.fetch import Fetch, fetch
from twin.model.memory import (
    Budget,
    ExpertLayout,
    budget,
    exchange_buffer_bytes,
    expert_bytes,
    expert_layout,
    idle_dies,
    layer_stack_bytes,
)
from twin.model.offload import Offload, kept_tokens, offload
from twin.model.operators import combine_bytes, dispatch_bytes, formats
from twin.model.prefill_costs import prefill_costs
from twin.model.record import changed
from twin.model.roofline import family_of, load_machine, of_stack
from twin.model.setting import Cores, Setting
from twin.model.shape import ModelError, Shape, load_shape
from twin.model.sharing import bandwidth_for_decode, bandwidth_for_prefill, beside_the_other
from twin.scenario import Deployment, Scenario, core_share, shares_npus
from twin.scenario import deployment as asked

__all__ = ["DECODE_OPERATORS", "PREFILL_OPERATORS", "Costs", "ModelError", "RoleCosts",
           "build_costs", "role_costs"]  # fmt: skip


@dataclass(frozen=True)
class RoleCosts:
    """Costs of one kind of instance."""

    dies: int
    coefficients: Decode | Prefill  # a colocated instance's are decode's too
    operators: tuple[str, ...]  # what an iteration's or a batch's time is booked to
    layout: ExpertLayout
    memory: Budget
    kv_tokens_per_die: int  # KV space of a die, tokens (all layers), with what prefill dies lend
    kv_tokens_lent: int  # of a prefill die beyond that, for requests whose attention is offloaded
    exchange_bytes_per_s: float  # what a die injects in dispatch and combine
    gather_bytes_per_s: float  # what a die reads where prefill's attention collects
    leaving: float  # messages of a token that leave its NPU or die, over those to routed experts
    off_node_fraction: float  # share of dispatch and combine bytes that takes the plane beyond
    gather_off_node: float  # the same of what prefill's attention collects
    dies_per_node: int  # most of its dies that one node has
    fetch: Fetch  # reads from the memory pool

    @property
    def decode(self) -> Decode:
        """Coefficients of an instance that decodes."""
        assert isinstance(self.coefficients, Decode)
        return self.coefficients

    @property
    def prefill(self) -> Prefill:
        """Coefficients of an instance that prefills alone."""
        assert isinstance(self.coefficients, Prefill)
        return self.coefficients

    def operator_sink(self) -> NDArray[np.float64]:
        """Zeros for a kernel to add seconds per operator to, f8[len(operators)]."""
        return np.zeros(len(self.operators))


@dataclass(frozen=True)
class Costs:
    """Costs of a deployment; a role that is not deployed is None."""

    shape: Shape
    chip: Chip
    decode_role: RoleCosts | None
    prefill_role: RoleCosts | None
    colocated_role: RoleCosts | None
    kv_bytes_per_token: float  # all layers, and the MTP module's where it drafts
    dispatch_bytes_per_token: float  # sent by a die for one token, all MoE layers
    combine_bytes_per_token: float
    prefill_instances: int
    decode_instances: int
    mtp_acceptance: float  # chance that a draft token is right
    clocks: Mapping[str, float] = field(default_factory=dict)  # by role, where a cap lowers it

    @property
    def decode(self) -> Decode:
        """Coefficients of an instance that decodes, colocated or not."""
        return self._of(self.decode_role or self.colocated_role, "decode").decode

    @property
    def prefill(self) -> Prefill:
        """Coefficients of a prefill instance."""
        return self._of(self.prefill_role, "prefill").prefill

    @property
    def prefill_kv_tokens_per_die(self) -> int:
        """KV tokens a prefill die holds."""
        return self._of(self.prefill_role, "prefill").kv_tokens_per_die

    def idle(self, redundant: int) -> list[str]:
        """A sentence for each role whose instances have dies without a routed expert."""
        roles = {n: getattr(self, f"{n}_role") for n in ("decode", "prefill", "colocated")}
        return [
            f"{count} of {role.layout.dies} dies of a {name} instance hold no routed expert: "
            f"experts.redundant = {redundant + count} gives one to each."
            for name, role in roles.items()
            if role is not None and (count := idle_dies(self.shape, role.layout, redundant))
        ]

    @staticmethod
    def _of(role: RoleCosts | None, name: str) -> RoleCosts:
        if role is None:
            raise ModelError(f"this deployment has no {name} instances: change deployment.mode")
        return role


def build_costs(
    scenario: Scenario, facts: Facts, fabric: Wiring, clocks: Mapping[str, float] | None = None
) -> Costs:
    """Costs of a scenario, its pools at these shares of the rated clock.

    Raises ModelError with one sentence when it cannot run.
    """
    clocks = clocks or {}
    d = scenario.deployment
    facts = of_stack(facts, d.stack, scenario.supernode.chip)
    shape = load_shape(facts, d.model)
    chip = load_chip(facts, scenario.supernode.chip)
    if d.decode.mtp_draft_tokens and not shape.mtp_layers:
        raise ModelError(
            f"{shape.title} has no multi-token-prediction module: "
            "set deployment.decode.mtp_draft_tokens = 0"
        )
    first: dict[str, Instance] = {}
    for instance in place_instances(scenario, fabric):
        first.setdefault(instance.role, instance)
    roles = {
        name: role_costs(
            scenario,
            facts,
            fabric,
            name,
            i.die_of_rank,
            i.name,
            clocks.get(name, 1.0),
            core_share(scenario, name),
        )
        for name, i in first.items()
    }
    quantised = d.communication.early_quantisation
    away = shape.top_k * shape.moe_layers
    scale = facts.si(f"operators.{family_of(facts, chip.name)}.message_scale")
    return Costs(
        shape=shape,
        chip=chip,
        decode_role=roles.get("decode"),
        prefill_role=roles.get("prefill"),
        colocated_role=roles.get("colocated"),
        kv_bytes_per_token=_kv_bytes(shape, d),
        dispatch_bytes_per_token=dispatch_bytes(shape, quantised, scale) * away,
        combine_bytes_per_token=combine_bytes(shape) * away,
        prefill_instances=d.prefill.instances,
        decode_instances=d.decode.instances,
        mtp_acceptance=d.decode.mtp_acceptance
        if d.decode.mtp_dataset == "as_stated"
        else facts.si(f"operators.mtp_acceptance.{d.decode.mtp_dataset}"),
        clocks=clocks,
    )


def role_costs(
    scenario: Scenario, facts: Facts, fabric: Wiring, role: str, dies: tuple[int, ...], name: str,
    clock: float = 1.0, cores: float = 1.0,
) -> RoleCosts:  # fmt: skip
    """Costs of one instance of a role on these dies of a fabric, as it is at some moment.

    cores: share of each die's cores that it computes on. Raises ModelError when the model does not
    fit them, HardwareError when links are missing.
    """
    d, net = scenario.deployment, network(fabric)
    facts = of_stack(facts, d.stack, scenario.supernode.chip)
    chip = load_chip(facts, scenario.supernode.chip)
    away = offload(scenario, net)
    setting, coefficients = _shared_out(scenario, facts, net, role, dies, clock, cores, away)
    shape, f, layout, sending = setting.shape, setting.formats, setting.layout, setting.exchange
    apart, shards = setting.expert_dies, setting.group.peers if setting.group else 1
    staged = role == "prefill" and d.prefill.attention == "sp_tp_sp"
    drafts = d.decode.mtp_draft_tokens
    what = f"{shape.title} on {len(dies)} dies ({len(dies) // chip.dies_per_npu} NPUs) of {name}"
    weights = layer_stack_bytes(
        shape, f, None if apart else layout, drafts > 0, len(dies) if staged else shards, shards > 1
    )
    space = budget(chip, facts, weights, _buffers(setting, scenario, chip), what)
    if shares_npus(scenario):
        buffers_of = partial(_buffers, scenario=scenario, chip=chip)
        space = beside_the_other(space, setting, scenario, _kv_bytes(shape, d), buffers_of)
    if apart:
        passes = shape.moe_layers + (1 if drafts else 0)
        held = expert_bytes(shape, f, layout) * passes
        budget(chip, facts, held, 0.0, f"The experts of {what}")
    # A rank stands for its share of the instance: with expert dies less than a die's KV.
    tokens, lent = int(space.kv / _kv_bytes(shape, d) * (1.0 - apart / len(dies))), 0
    if away is not None and role == "prefill":
        kept = min(tokens, kept_tokens(d, shape, len(dies)))
        tokens, lent = kept, tokens - kept
    elif away is not None:
        i = next(i for i in place_instances(scenario, fabric) if i.role == "prefill")
        lender = role_costs(scenario, facts, fabric, i.role, i.die_of_rank, i.name)
        tokens = away.kv_tokens(tokens, lender.kv_tokens_lent)
    way, gather = setting.route, setting.group or setting.gather
    per_node = _dies_per_node(net, dies)
    one_npu = len({die // chip.dies_per_npu for die in dies}) == 1
    return RoleCosts(
        dies=len(dies),
        coefficients=coefficients,
        operators=names_of("prefill" if role == "prefill" else "decode"),
        layout=layout,
        memory=space,
        kv_tokens_per_die=tokens,
        kv_tokens_lent=lent,
        exchange_bytes_per_s=sending.rate_bytes_per_s,
        gather_bytes_per_s=gather.rate_bytes_per_s,
        leaving=0.0 if one_npu else sending.remote * setting.messages,
        off_node_fraction=way.off_node if way.slow_between else 0.0,
        gather_off_node=gather.off_node if gather.slow_between else 0.0,
        dies_per_node=per_node,
        fetch=fetch(
            scenario, facts, role, len(dies), per_node, _kv_bytes(shape, d), _kv_layers(shape, d)
        ),
    )


def _shared_out(
    s: Scenario, facts: Facts, net: Network, role: str, dies: tuple[int, ...], clock: float,
    cores: float, away: Offload | None,
) -> tuple[Setting, Decode | Prefill]:  # fmt: skip
    """`_priced` where dies lend cores to attention of decode, or share them with the other pool."""
    d, chip = s.deployment, load_chip(facts, s.supernode.chip)
    one_slot = d.model_copy(update={"decode": d.decode.model_copy(update={"batch_per_npu": 1})})
    priced = partial(_priced, one_slot, s.experts.redundant, chip.name, facts, net)
    if away is not None and role == "prefill":
        return priced(role, dies, clock, cores * (1.0 - away.cores))
    hbm = 1.0
    if shares_npus(s):
        lent = core_share(s, "prefill")
        machine = load_machine(facts, replace(chip, clock=clock), cores=lent)
        hbm = bandwidth_for_prefill(machine, replace(machine, cores=1.0 - lent))
        if role == "decode":
            over = dies[: d.prefill.npus_per_instance * chip.dies_per_npu]
            prefill, batch = priced("prefill", over, clock, lent, hbm)[1], d.prefill.tokens_per_npu
            assert isinstance(prefill, Prefill)
            hbm = bandwidth_for_decode(prefill, batch * len(over) / chip.dies_per_npu, machine)
    return priced(role, dies, clock, cores, hbm, away)


@lru_cache(maxsize=16)
def _priced(
    d: Deployment,
    redundant: int,
    chip_name: str,
    facts: Facts,
    net: Network,
    role: str,
    dies: tuple[int, ...],
    clock: float,
    cores: float,
    hbm: float = 1.0,
    away: Offload | None = None,
) -> tuple[Setting, Decode | Prefill]:
    """What coefficients follow from, and these: the same for every batch, load and seed."""
    shape, chip = load_shape(facts, d.model), replace(load_chip(facts, chip_name), clock=clock)
    apart = _expert_dies(d.decode, chip, len(dies)) if role == "decode" else 0
    machine = load_machine(facts, chip, d.optimisations.attention_kernel, cores, hbm)
    sending = exchange(net, dies)
    if apart:
        sending = replace(sending, remote=1.0)  # no expert is at home
    shards = _shards(d.prefill, shape, len(dies)) if role == "prefill" else 1
    setting = Setting(
        role=role,
        shape=shape,
        formats=formats(d.precision, machine.sum_bytes),
        machine=machine,
        facts=facts,
        communication=d.communication,
        optimisations=d.optimisations,
        layout=expert_layout(shape, redundant, apart or len(dies)),
        exchange=sending,
        gather=exchange(net, dies, "read") if role == "prefill" else sending,
        group=exchange(net, dies[:shards], "read") if shards > 1 else None,
        expert_dies=apart,
        domains=d.decode.domains if apart else 1,
        offload=away,
    )
    return setting, _coefficients(setting, d)


def _dies_per_node(net: Network, dies: tuple[int, ...]) -> int:
    """Most dies of an instance on one node; an unbroken row of them fills its nodes."""
    if dies == tuple(range(dies[0], dies[0] + len(dies))):
        return net.dies_per_node
    return int(np.bincount(net.node[net.dies[list(dies)]]).max())


def _kv_bytes(shape: Shape, d: Deployment) -> float:
    return shape.kv_bytes_per_token_layer(d.precision.kv) * _kv_layers(shape, d)


def _kv_layers(shape: Shape, d: Deployment) -> int:
    """Layers that keep KV; the MTP module attends to the whole context too, so it has its own."""
    return shape.layers + (1 if d.decode.mtp_draft_tokens else 0)


def _coefficients(x: Setting, d: Deployment) -> Decode | Prefill:
    costs: Decode | Prefill
    drafts = d.decode.mtp_draft_tokens
    if x.role == "prefill":
        costs = prefill_costs(x, d.prefill.attention, d.prefill.microbatch, drafts > 0)
    elif x.role == "decode":
        ways = [] if x.expert_dies else _ways(x.facts, x.machine.family)
        costs = decode_costs(x, drafts, d.decode.microbatch, ways)
    else:
        costs = colocated_costs(x, drafts)
    return changed(costs, lambda _, value: float(value))  # plain Python computes faster with these


def _buffers(x: Setting, scenario: Scenario, chip: Chip) -> float:
    """Static exchange buffers of a die, bytes; prefill's are dynamic, for one batch."""
    comm, scale = x.communication, x.machine.message_scale_bytes
    tokens = _tokens_per_die(scenario, chip, x.role)
    if x.role == "prefill":
        whole = exchange_buffer_bytes(x.shape, x.layout, tokens, comm.early_quantisation, scale)
        return whole / x.layout.dies
    if x.expert_dies:
        tokens *= x.exchange.peers / (x.exchange.peers - x.expert_dies)
    if comm.buffer_tokens_per_die:
        tokens = min(tokens, float(comm.buffer_tokens_per_die))
    return exchange_buffer_bytes(x.shape, x.layout, tokens, comm.early_quantisation, scale)


def _expert_dies(d: asked.Decode, chip: Chip, dies: int) -> int:
    """Dies that hold experts alone (AFD); raises ModelError when none is left for attention."""
    apart = d.expert_npus * chip.dies_per_npu
    if apart >= dies:
        raise ModelError(
            f"deployment.decode.expert_npus = {d.expert_npus} leaves no NPU for attention: take "
            f"at most {dies // chip.dies_per_npu - 1}"
        )
    return apart


def _shards(d: asked.Prefill, shape: Shape, dies: int) -> int:
    """Dies that share attention by heads (1: none); raises ModelError when they cannot."""
    if d.attention != "tp":
        return 1
    if dies % d.tp_dies or shape.heads % d.tp_dies:
        raise ModelError(
            f"deployment.prefill.tp_dies = {d.tp_dies} must divide the {dies} dies of a prefill "
            f"instance and the {shape.heads} heads of {shape.title}"
        )
    return d.tp_dies


def _ways(facts: Facts, family: str) -> list[tuple[Cores, Cores]]:
    """Core shares that the attention and the MoE stream can have; none when cores are not split.

    arXiv 2506.12708v2 section 4.2.3 gives 16 of 24 to attention at its 4K point and says that
    the allocation may be adjusted.
    """
    name = f"operators.{family}.attention_core_shares"
    shares = facts[name].value if name in facts else []
    return [(Cores(a, a), Cores(1.0 - a, 1.0 - a)) for a in shares]


def _tokens_per_die(scenario: Scenario, chip: Chip, role: str) -> float:
    """Most tokens of a die in one pass, for the static exchange buffers."""
    d = scenario.deployment
    decoding = (1 + d.decode.mtp_draft_tokens) * d.decode.batch_per_npu / chip.dies_per_npu
    if role == "decode":
        return decoding
    if role == "prefill":
        return d.prefill.tokens_per_npu / chip.dies_per_npu
    return decoding + d.colocated.chunk_tokens_per_npu / chip.dies_per_npu
