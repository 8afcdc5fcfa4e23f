"""All costs of a scenario's deployment: coefficients of operators for the kernels of engine and
formula, what fits on a die, where experts sit and what travels over the links."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import mul
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from twin.facts import Facts
from twin.hardware.chip import Chip, load_chip
from twin.hardware.network import Network
from twin.hardware.placement import place
from twin.metrics.operators import operator_names
from twin.model import coefficients as c
from twin.model import parallel, stages
from twin.model.collectives import Exchange, exchange
from twin.model.decode_costs import colocated_costs, decode_costs
from twin.model.deployed import Deployed
from twin.model.drafters import drafter
from twin.model.fetch import Fetch, Servers, fetch_figures
from twin.model.formats import product_format
from twin.model.in_host import HostMemory, host_kv_path
from twin.model.memory import Budget
from twin.model.offload import Offload, offload, offload_notes
from twin.model.operators import formats, rank_bytes
from twin.model.prefill import hbm_share_of_decode, hbm_share_of_prefill
from twin.model.prefill_costs import prefill_costs
from twin.model.record import map_numbers, slowed_kernels
from twin.model.roofline import facts_of_stack, family_of, laid_out_bytes_per_s, load_machine
from twin.model.setting import Setting
from twin.model.shape import ModelError, Shape, load_shape
from twin.model.space import arriving_expert_bytes, kv_bytes, kv_layers, space
from twin.scenario import Deployment, Experts, Pool, Scenario, pools_by_role
from twin.scenario.words import numbered

T = TypeVar("T", float, NDArray[np.float64])
Coefficients = c.DecodeCosts | c.PrefillCosts
Priced = tuple[Setting, Coefficients]  # of an instance
LOOPS = ("runs_ahead", "first_by_decode", "first_after_pass")  # of an engine, as facts


@dataclass(frozen=True)
class RoleCosts:
    """Costs of one kind of instance."""

    pool: Pool
    chip: Chip
    dies: int
    ranks: int  # that batches are shared out over: dies, or groups of them (decode.tp_dies)
    coefficients: Coefficients  # a colocated instance's are decode's too
    operators: tuple[str, ...]  # what an iteration's or a batch's time is booked to
    layout: stages.ExpertLayout
    memory: Budget
    kv_tokens_per_rank: int  # KV space, tokens (all layers), with what prefill dies lend
    kv_tokens_lent: int  # of a prefill die beyond that, for requests whose attention is offloaded
    kv_bytes_per_token: float  # in its own format
    die_kv: float  # share of a request's KV that each die of its rank has
    die_state: float  # of its state of linear attention
    kv_in_host: float  # of `kv_bytes_per_token`, as lie in host memory
    kv_spared: float  # of these, as need no room on dies
    exchange_bytes_per_s: float  # what a die injects in dispatch and combine
    gather_bytes_per_s: float  # what a die reads where attention's dies collect
    exchange_bytes_per_token: float  # that leave its NPU or die, to experts and back, all layers
    dispatched: float | None  # share of dispatch in these; None: all dies have all tokens
    off_node_fraction: float  # share of dispatch and combine bytes that takes the plane beyond
    gather_off_node: float  # the same of what attention's dies collect
    rank_bytes_per_token: float  # between the dies of a decode rank, all layers
    context_bytes_per_token: float  # between dies that split a context, or stages, all layers
    context_off_node: float  # share of these that takes the plane beyond
    stages: float  # layers of the model over those that a die has
    dies_per_node: int  # most of its dies that one node has
    fetch: Fetch  # reads from the memory pool

    @property
    def stage_dies(self) -> int:
        """Number of dies that compute a layer of a batch."""
        return self.dies // self.pool.own.pp_stages

    @property
    def npus(self) -> float:
        """Number of NPUs of an instance; 0.5 if it has one of an NPU's two dies."""
        return self.dies / self.chip.dies_per_npu

    @property
    def peak_flops(self) -> float:
        """Peak FLOP/s of all dies of an instance, in the format of the weights."""
        number_format = product_format(self.pool.precision.weights, self.chip.flops)
        return self.chip.peak(number_format) * self.dies

    @property
    def prompt_tokens(self) -> float:
        """Largest number of prompt tokens that an instance computes in one batch or iteration."""
        return float(self.pool.tokens_per_npu) * self.npus

    def slots(self, batch_per_npu: float) -> float:
        """Number of requests that a rank decodes at once if each NPU decodes `batch_per_npu`."""
        return batch_per_npu * self.pool.rank_dies / self.chip.dies_per_npu

    @property
    def decode(self) -> c.DecodeCosts:
        """Coefficients of an instance that decodes."""
        assert isinstance(self.coefficients, c.DecodeCosts)
        return self.coefficients

    @property
    def prefill(self) -> c.PrefillCosts:
        """Coefficients of an instance that prefills alone."""
        assert isinstance(self.coefficients, c.PrefillCosts)
        return self.coefficients

    def operator_sink(self) -> NDArray[np.float64]:
        """Zeros for a kernel to add seconds per operator to, f8[len(operators)]."""
        return np.zeros(len(self.operators))


@dataclass(frozen=True)
class Costs:
    """Costs of a deployment."""

    deployed: Deployed  # what it is priced by
    shape: Shape
    roles: Mapping[str, RoleCosts]  # of the pools that it has
    kv_bytes_per_token: float  # as handed over: all layers that cache every token, and MTP's
    window_bytes_per_token: float  # of the last `shape.window` tokens, in layers with a window
    held_kv: float  # bytes of KV as decode has it, over those as handed over
    state_bytes: float  # of a request, in layers of linear attention
    mtp_acceptance: float  # chance that a draft token is right
    tokens_per_iteration: float  # of one request
    servers: Servers  # of the memory pool
    front_end_requests_per_s: float  # that all API servers together process
    remarks: tuple[str, ...]  # a sentence for each part that is unused or has no effect
    laid_out_bytes_per_s: float = math.inf  # of KV that a decode die receives in another layout
    tokenise_s: float = 0.0  # of a prompt token, in the one tokeniser of an instance
    runs_ahead: bool = False  # a colocated pass is formed while the one before it runs
    first_by_decode: bool = False  # decode's loop hands out a first token, as its request joins
    first_after_pass: bool = False  # and waits for prefill's loop, which looks between passes

    def tokenised_prompts_per_s(self, input_tokens: float) -> float:
        """Prompts/s, of `input_tokens` tokens, of an instance's one tokeniser; may be infinite."""
        s_per_prompt = self.tokenise_s * input_tokens
        return 1.0 / s_per_prompt if s_per_prompt else math.inf

    def handed_bytes_per_s(self, port: T) -> T:
        """KV bytes/s through a port of `port` bytes/s, with a new layout where decode needs one."""
        layout_rate = self.laid_out_bytes_per_s
        return port * (layout_rate / (port + layout_rate)) if math.isfinite(layout_rate) else port

    def held_bytes(self, tokens: int) -> float:
        """Bytes of KV, windows and linear-attention state of a request of `tokens` tokens."""
        window_bytes = min(tokens, self.shape.window) * self.window_bytes_per_token
        return tokens * self.kv_bytes_per_token + window_bytes + self.state_bytes

    @property
    def senders(self) -> int:
        """Number of prefill dies that send a prompt's KV to a decode rank; 1 if none do."""
        if (role := self.prefill_role) is None or self.decode_role is None:
            return 1
        return parallel.kv_senders(role.pool, role.dies, self.decode_role.pool.rank_dies)

    @property
    def decode_role(self) -> RoleCosts | None:
        """Costs of the pool that only decodes; None without one."""
        return self.roles.get("decode")

    @property
    def prefill_role(self) -> RoleCosts | None:
        """Costs of the pool that only prefills; None without one."""
        return self.roles.get("prefill")

    @property
    def colocated_role(self) -> RoleCosts | None:
        """Costs of the colocated pool; None without one."""
        return self.roles.get("colocated")

    @property
    def decoding_role(self) -> RoleCosts | None:
        """Costs of the pool that decodes, colocated or not; None without one."""
        return self.colocated_role or self.decode_role

    @property
    def prefilling_role(self) -> RoleCosts | None:
        """Costs of the pool that computes prompts, colocated or not; None without one."""
        return self.colocated_role or self.prefill_role

    @property
    def decode(self) -> c.DecodeCosts:
        """Coefficients of an instance that decodes, colocated or not."""
        return self._present_role(self.decoding_role, "decode").decode

    @property
    def prefill(self) -> c.PrefillCosts:
        """Coefficients of a prefill instance."""
        return self._present_role(self.prefill_role, "prefill").prefill

    @staticmethod
    def _present_role(role: RoleCosts | None, name: str) -> RoleCosts:
        """The costs `role`; raises ModelError if they are None. name: role, for the message."""
        if role is None:
            raise ModelError(f"this deployment has no {name} instances: change deployment.mode")
        return role


def build_costs(
    scenario: Scenario, facts: Facts, net: Network, clocks: Mapping[str, float] | None = None
) -> Costs:
    """Costs of a scenario. clocks: share of the rated clock by role, None: 1. Raises ModelError."""
    deployment, workload, front_end = scenario.deployment, scenario.workload, scenario.front_end
    pools = pools_by_role(scenario)
    chip_names = [pool.chip for pool in pools.values()]  # the last decodes, if any does
    facts = [facts_of_stack(facts, deployment.stack, chip) for chip in chip_names][-1]
    shape = load_shape(facts, deployment.model)
    model_drafter = drafter(deployment, shape, facts)  # refused before anything is placed
    stages.refuse_bad_settings(pools.values(), shape)
    at = Deployed(
        net=net,
        facts=facts,
        deployment=deployment,
        pools=pools,
        instances=place(scenario, net).instances,
        shape=shape,
        drafter=model_drafter,
        memory_pool=scenario.memory_pool,
        request_tokens=workload.input_tokens + workload.output_tokens,
        experts=stages.experts_of(scenario.experts, shape),
        clocks=clocks or {},
    )
    first_of = {instance.role: instance for instance in reversed(at.instances)}
    costs_by_role = {r: role_costs(at, r, first_of[r].die_of_rank, first_of[r].name) for r in pools}
    reader = first_of.get("prefill") or first_of.get("colocated")
    handed_bytes_per_token = kv_bytes(shape, model_drafter, at.stored_kv)
    kv_ratio = list(costs_by_role.values())[-1].kv_bytes_per_token / handed_bytes_per_token
    acceptance = deployment.decode.mtp_acceptance
    if deployment.decode.mtp_dataset != "as_stated":
        acceptance = facts.si(f"operators.mtp_acceptance.{deployment.decode.mtp_dataset}")
    redundant_experts = scenario.experts.redundant
    notes = offload_notes(costs_by_role, shape.max_context) + [
        f"{idle_count} of {numbered(role.layout.dies, 'die')} of a {name} instance hold no routed "
        f"expert: experts.redundant = {redundant_experts + idle_count} gives one to each."
        for name, role in sorted(costs_by_role.items())
        if (idle_count := stages.idle_dies(shape, role.layout, redundant_experts))
    ]
    shares_prefixes = workload.prefix == "shared" and workload.arrivals != "trace"
    prefix_count = workload.prefix_groups if shares_prefixes else 0
    family_path = f"operators.{family_of(facts, chip_names[-1])}"  # of the stack's loops
    service_s = front_end.service_ms * 1e-3
    front_end_requests_per_s = front_end.api_servers / service_s if service_s > 0.0 else math.inf
    ranks_by_role = {name: role.ranks for name, role in costs_by_role.items()}
    return Costs(
        deployed=at,
        shape=shape,
        roles=costs_by_role,
        kv_bytes_per_token=handed_bytes_per_token,
        held_kv=kv_ratio,
        window_bytes_per_token=shape.window_bytes(at.stored_kv) / max(1, shape.window),
        state_bytes=shape.state_bytes * shape.linear_layers,
        mtp_acceptance=acceptance,
        tokens_per_iteration=1.0 + accepted_tokens(deployment.decode.mtp_draft_tokens, acceptance),
        servers=Servers(at.net, reader.die_of_rank if reader else (), at.memory_pool, prefix_count),
        front_end_requests_per_s=front_end_requests_per_s,
        remarks=(*notes, *stages.setting_notes(pools.values(), shape, ranks_by_role)),
        laid_out_bytes_per_s=laid_out_bytes_per_s(facts, chip_names, kv_ratio),
        tokenise_s=facts.si(f"{family_path}.tokenise", 0.0),
        **{name: facts.si(f"{family_path}.{name}", 0.0) > 0.0 for name in LOOPS},
    )


def accepted_tokens(drafts: int, acceptance: float) -> float:
    """Mean number of accepted ones of `drafts` draft tokens, each right with the chance
    `acceptance`: a token counts only if all before it were right."""
    return math.fsum(acceptance**draft for draft in range(1, drafts + 1))


def role_costs(at: Deployed, role: str, dies: tuple[int, ...], name: str) -> RoleCosts:
    """Costs of an instance of a role on these dies of the present network; name: for messages.
    Raises ModelError when the model does not fit them, HardwareError when links are missing."""
    net, pool = at.net, at.pools[role]
    token_bytes = kv_bytes(at.shape, at.drafter, pool.precision.kv)
    offloaded = offload(at) if pool.offload else None
    core_dies = dies[: len(dies) - _expert_dies(pool, load_chip(at.facts, pool.chip), len(dies))]
    host_kv = host_kv_path(net, core_dies, pool.own.in_host, at.memory_pool.block_tokens)
    setting, coefficients = _price_instance(at, pool, dies, offloaded, host_kv)
    if offloaded is not None and (setting.shape.index_top_k or setting.shape.mean_keys < 1.0):
        raise ModelError(
            f"deployment.decode.attention_offload: {setting.shape.title} attends to a part of the "
            "context in some layers, and offloaded attention reads all of it: take 0"
        )
    kv_tokens = (space_of_die := space(setting, at, name)).kv_tokens
    if offloaded is not None:
        donor = next(instance for instance in at.instances if instance.role == offloaded.lender)
        lender_costs = role_costs(replace(at, clocks={}), donor.role, donor.die_of_rank, donor.name)
        ranks_per_die = setting.concentration / pool.layer_dies
        kv_tokens = offloaded.kv_tokens(kv_tokens, lender_costs.kv_tokens_lent, ranks_per_die)
    spared_bytes = host_kv.spared_bytes(at.shape, pool.precision.kv) if host_kv else 0.0
    kv_parts = pool.own.cp_dies * pool.rank_dies // pool.layer_dies
    die_kv = kv_bytes(setting.shape, setting.drafter, pool.precision.kv) / token_bytes / kv_parts
    if role != "prefill" and (arriving_bytes := arriving_expert_bytes(setting, at.experts)):
        kv_tokens = int(kv_tokens - arriving_bytes / ((token_bytes - spared_bytes) * die_kv))
    route, gather = setting.route, setting.groups.get("heads", setting.gather)
    exchanges = {name: group for name, group in setting.groups.items() if name != "heads"}
    moved_bytes = [parallel.received_bytes(pool, name, setting.model_split) for name in exchanges]
    all_moved, sent_bytes = math.fsum(moved_bytes), setting.exchange_bytes * setting.layer_ratio
    off_node_shares = [group.off_node * group.slow_between for group in exchanges.values()]
    dies_per_node = _dies_per_node(net, dies)
    return RoleCosts(
        pool=pool,
        chip=load_chip(at.facts, pool.chip),
        dies=len(dies),
        ranks=len(dies) // pool.rank_dies,
        coefficients=coefficients,
        operators=operator_names(pool.phase),
        layout=setting.layout,
        memory=space_of_die.memory,
        kv_tokens_per_rank=kv_tokens,
        kv_tokens_lent=space_of_die.lent_tokens,
        kv_bytes_per_token=token_bytes,
        die_kv=die_kv,
        die_state=setting.shape.state_bytes / at.shape.state_bytes / pool.own.pp_stages
        if at.shape.linear_layers else 1.0,
        kv_in_host=host_kv.token_bytes(at.shape, pool.precision.kv) if host_kv else 0.0,
        kv_spared=spared_bytes,
        exchange_bytes_per_s=setting.exchange.rate_bytes_per_s,
        gather_bytes_per_s=gather.rate_bytes_per_s,
        exchange_bytes_per_token=sent_bytes * (net.npus_of(dies) > 1),
        dispatched=setting.dispatch_share,
        off_node_fraction=route.off_node if route.slow_between else 0.0,
        gather_off_node=gather.off_node if gather.slow_between else 0.0,
        rank_bytes_per_token=rank_bytes(setting.whole, pool.layer_dies),
        context_bytes_per_token=all_moved,
        context_off_node=math.fsum(map(mul, moved_bytes, off_node_shares)) / max(all_moved, 1.0),
        stages=setting.layer_ratio,
        dies_per_node=dies_per_node,
        fetch=fetch_figures(
            at.memory_pool, at.facts, setting.kv_copies, len(dies), dies_per_node,
            token_bytes, kv_layers(at.shape, at.drafter),
        ),
    )  # fmt: skip


def _price_instance(
    at: Deployed, pool: Pool, dies: tuple[int, ...], offloaded: Offload | None,
    host: HostMemory | None,
) -> Priced:  # fmt: skip
    """Setting and cost coefficients of a pool's instance; where prefill runs on decode's NPUs, each
    has a part of the HBM bandwidth. offloaded: attention on other dies; host: KV in host memory."""
    chip, net = load_chip(at.facts, pool.chip), at.net
    # The batch decides no coefficient, so all batches have the same ones.
    one_per_npu = at.deployment.decode.model_copy(update={"batch_per_npu": 1})
    d = at.deployment.model_copy(update={"decode": one_per_npu})
    pool = replace(pool, batch_per_npu=1)
    clock_share = at.clocks.get(pool.role, 1.0)
    key = _InstanceKey(d, at.experts, at.facts, pool, clock_share, offloaded=offloaded, host=host)
    if (guest := at.guest) is None:
        return _price_dies(key, net, dies)
    machine = load_machine(at.facts, replace(chip, clock=clock_share), cores=guest.cores)
    hbm_share = hbm_share_of_prefill(machine, replace(machine, cores=1.0 - guest.cores))
    if not pool.lender:
        guest_dies = dies[: guest.npus * chip.dies_per_npu]
        guest_key = key._replace(pool=guest, hbm=hbm_share, offloaded=None, host=None)
        guest_costs = _price_dies(guest_key, net, guest_dies)[1]
        assert isinstance(guest_costs, c.PrefillCosts)
        batch_tokens = guest.tokens_per_npu * len(guest_dies) / chip.dies_per_npu
        hbm_share = hbm_share_of_decode(guest_costs, batch_tokens, machine)
    return _price_dies(key._replace(hbm=hbm_share), net, dies)


class _InstanceKey(NamedTuple):
    """What prices an instance apart from its dies and links."""

    deployment: Deployment
    experts: Experts
    facts: Facts
    pool: Pool
    clock: float  # share of the rated one
    hbm: float = 1.0  # share of the sustained HBM bandwidth that the pool has
    offloaded: Offload | None = None
    host: HostMemory | None = None


@lru_cache(maxsize=16)
def _price_dies(key: _InstanceKey, net: Network, dies: tuple[int, ...]) -> Priced:
    """Setting and coefficients of an instance on `dies`, any batch and seed. Raises ModelError."""
    pool, chip = key.pool, load_chip(key.facts, key.pool.chip)
    model_shape = load_shape(key.facts, key.deployment.model)
    expert_dies = _expert_dies(pool, chip, len(dies))
    drafter_shape = drafter(key.deployment, model_shape, key.facts).shape
    parallel.refuse_bad_splits(pool, model_shape, drafter_shape, len(dies) - expert_dies)
    group_exchanges = tuple(
        (group, exchange(net, dies[parallel.first_group(pool, group, len(dies))], "read"))
        for group, parallelism in parallel.PARALLELISMS.items()
        if parallelism.size(pool) > 1
    )
    dies = parallel.first_stage(pool, dies)
    _refuse_uneven(pool, model_shape, len(dies) - expert_dies)
    exchange_price = exchange(net, dies)
    if expert_dies:
        exchange_price = replace(exchange_price, remote=1.0)  # no expert is at home
    is_nvidia = family_of(key.facts, pool.chip) == "nvidia"
    is_gathered = pool.own.experts_tp > 1 or (is_nvidia and not key.deployment.communication.fused)
    pulls_data = pool.phase == "prefill" or is_gathered
    gather_price = exchange(net, dies, "read") if pulls_data else exchange_price
    return _price_over_exchanges(key, len(dies), exchange_price, gather_price, group_exchanges)


@lru_cache(maxsize=64)
def _price_over_exchanges(
    key: _InstanceKey, dies: int, exchange: Exchange, gather: Exchange,
    groups: tuple[tuple[str, Exchange], ...],
) -> Priced:  # fmt: skip
    """Setting and coefficients of an instance with these exchanges; equal calls share a result."""
    deployment, expert_settings, facts, pool, clock_share, hbm_share, offloaded, host = key
    model_shape, chip = load_shape(facts, deployment.model), load_chip(facts, pool.chip)
    if pool.role != "decode":
        clock_share = min(clock_share, facts.si(f"chips.{pool.chip}.sustained_clock", clock_share))
    chip = replace(chip, clock=clock_share)
    shape = stages.shape_on_die(model_shape, pool)
    expert_dies = _expert_dies(pool, chip, dies)
    attention_kernel = deployment.optimisations.attention_kernel
    machine = load_machine(facts, chip, attention_kernel, pool.own.cores, hbm_share)
    machine = machine.for_model(shape.kind.kernels, pool.precision.weights)
    dies_with_experts, redundant_experts = expert_dies or dies, expert_settings.redundant
    layout = stages.expert_layout(shape, redundant_experts, dies_with_experts, pool.own.experts_tp)
    if pool.role != "prefill":  # a batch of prompts uses all of a die's experts
        layout = stages.with_class_loads(layout, expert_settings, facts, c.CLASSES)
    formats_of_part = formats(pool.precision, machine.sum_bytes, machine.family, chip.flops)
    for fmt in (formats_of_part.linear, formats_of_part.expert):  # refused with what was chosen
        chip.peak(product_format(fmt), pool.precision.weights)
    lender_machine = None
    if offloaded is not None and pool.offload is not None:
        lender_chip = replace(load_chip(facts, pool.offload.chip), clock=offloaded.clock)
        lender_machine = load_machine(facts, lender_chip, attention_kernel)
    setting = Setting(
        pool=pool,
        shape=shape,
        whole=model_shape,
        formats=formats_of_part,
        machine=machine,
        facts=facts,
        communication=deployment.communication,
        optimisations=deployment.optimisations,
        layout=layout,
        exchange=exchange,
        gather=gather,
        groups=dict(groups),
        expert_dies=expert_dies,
        offload=offloaded,
        lender=lender_machine,
        host=host,
        drafter=drafter(deployment, model_shape, facts).split(pool.layer_dies),
    )
    draft_tokens = deployment.decode.mtp_draft_tokens
    costs: Coefficients
    if pool.role == "prefill":
        costs = prefill_costs(setting, deployment.prefill.microbatch)
    elif pool.role == "decode":
        costs = decode_costs(setting, draft_tokens, deployment.decode.microbatch)
    else:
        costs = colocated_costs(setting, draft_tokens, deployment.colocated.prompt_delay)
    slowdown = machine.in_prefill if pool.role == "prefill" else machine.in_decode
    # Plain Python computes faster with these.
    return setting, map_numbers(slowed_kernels(costs, slowdown), lambda _, value: float(value))


def _dies_per_node(net: Network, dies: tuple[int, ...]) -> int:
    """Largest number of dies on one of an instance's nodes; consecutive `dies`: of a full node."""
    if dies == tuple(range(dies[0], dies[0] + len(dies))):
        nodes = np.unique(net.node[net.dies[list(dies)]])
        return int(np.bincount(net.node[net.dies])[nodes].max())
    return int(np.bincount(net.node[net.dies[list(dies)]]).max())


def _expert_dies(pool: Pool, chip: Chip, dies: int) -> int:
    """Number of dies that hold experts alone (AFD); ModelError when none is left for attention."""
    expert_dies = pool.experts.npus * chip.dies_per_npu if pool.experts else 0
    if expert_dies >= dies:
        raise ModelError(
            f"deployment.decode.expert_npus = {expert_dies // chip.dies_per_npu} leaves no NPU for "
            f"attention: take at most {dies // chip.dies_per_npu - 1}"
        )
    return expert_dies


def _refuse_uneven(pool: Pool, shape: Shape, dies: int) -> None:
    """Raise ModelError unless tp_dies and experts_tp divide `dies`, and tp_dies the heads."""
    tp_dies = pool.own.tp_dies
    if dies % tp_dies or shape.heads % tp_dies:
        raise ModelError(
            f"deployment.{pool.phase}.tp_dies = {tp_dies} must divide the {numbered(dies, 'die')} "
            f"with attention of a {pool.role} instance and the {shape.heads} heads of {shape.title}"
        )
    if dies % pool.own.experts_tp:
        raise ModelError(
            f"deployment.{pool.phase}.experts_tp = {pool.own.experts_tp} must divide the {dies} "
            f"dies of a {pool.role} instance"
        )
