"""Set-up: what a scenario comes to before time starts.

Prices the scenario once (fabric, costs, expert imbalance) and makes its requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from twin import experts as x
from twin.engine.start import Residents, is_limited, residents, with_residents
from twin.experts import Imbalance
from twin.facts import Facts
from twin.hardware.demands import dram_ratio, lending_nodes
from twin.hardware.faults import with_faults
from twin.hardware.network import Network
from twin.hardware.placement import Instance, further_instances, place
from twin.hardware.power import Power, power_by_role
from twin.metrics.measures import numbered
from twin.metrics.operators import DECODE_OPERATORS, PREFILL_OPERATORS
from twin.model.costs import Costs
from twin.model.decode import decode_iteration_s
from twin.model.fetch import node_dram_bytes
from twin.model.formats import FORMATS, product_format
from twin.model.parallel import kv_holders
from twin.model.prefill import prefill_batch_s
from twin.model.roofline import stack_facts
from twin.policies.batching import tokens_per_iteration
from twin.scenario import (
    Scenario,
    is_elastic,
    model_names,
    npu_owners,
    pools,
    remarks,
    split_models,
    supernodes_apart,
)
from twin.steady import Priced
from twin.workload.generate import Requests, TraceTable, generate_requests, mean_lengths
from twin.workload.requests import MOST_REQUESTS

MOST_BYTES = 8e9  # of columns and memory pool, about
BYTES_PER_REQUEST, BYTES_PER_BLOCK = 300, 16  # see build_world; a block stands in every tier
BYTES_IN_HBM = 10  # of a block in the prefix cache of an instance or rank
# While flows are laid out: of a die of the graph with all around it, of an instance, and of one
# that reads and the port of a memory server. Of peaks measured on UB-Mesh with 16,384 and 65,536
# NPUs (0.9 and 5.0 GB; 1.2 and 6.7 when these were set) and on two L2 levels (0.85 GB); with dead
# links it may be twice as much.
BYTES_PER_DIE, BYTES_PER_INSTANCE, BYTES_PER_PORT = 20_000, 1_200_000, 500


class ScenarioError(ValueError):
    """A scenario that is well formed but cannot be run; one sentence says why."""


@dataclass(frozen=True)
class Setup:
    """A priced scenario with its instances and requests, before time starts."""

    scenario: Scenario
    fabric: Network  # the graph as arrays
    instances: list[Instance]
    costs: Costs
    prefill_imbalance: Imbalance
    decode_imbalance: Imbalance
    requests: Requests
    notes: list[str]
    routed: x.Routed  # experts; for a model without any, ones that change nothing
    process: x.Process  # popularity of experts over time
    topics: np.ndarray  # i1[requests], topic class
    tokens_per_request: Mapping[str, float]  # by role: tokens of a pass that come from one request
    power: Mapping[str, Power]  # watts of an NPU of each pool; empty where a chip states none
    node_dram_bytes: float  # of each node, that hold blocks of the memory pool
    declared: int  # instances that serve at the start: the first ones; others may come
    residents: Residents | None = None  # requests under way at the start: the first rows

    @property
    def at_start(self) -> int:
        """Number of requests in progress at time zero."""
        return len(self.residents) if self.residents is not None else 0

    def dies_per_npu(self, role: str) -> int:
        """Number of dies of an NPU of the pool with this role."""
        return self.costs.roles[role].chip.dies_per_npu

    @property
    def roles_by_npu(self) -> list[tuple[str, ...]]:
        """Roles of the pools; those whose NPUs have equal watts and peaks share a tuple."""
        roles_by_figures: dict[object, list[str]] = {}
        for role in self.roles:
            chip = self.costs.roles[role].chip
            watts_and_peaks = self.power.get(role), chip.hbm_bytes_per_s, self.flops_per_s(role)
            roles_by_figures.setdefault(watts_and_peaks, []).append(role)
        return [tuple(roles) for roles in roles_by_figures.values()]

    def flops_per_s(self, role: str) -> float:
        """FLOP/s of a die of a pool, in the format of its weights, at the rated clock."""
        costs = self.costs.roles[role]
        return costs.chip.flops[product_format(costs.pool.precision.weights, costs.chip.flops)]

    @property
    def first_die(self) -> int:
        """Number of one serving die, for figures that are equal for all dies."""
        return self.instances[0].die_of_rank[0]

    @property
    def rank_dies(self) -> int:
        """Number of dies of a rank of decoding instances; 1 without any."""
        return self.costs.decoding_role.pool.rank_dies if self.costs.decoding_role else 1

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the deployment's pools: prefill and decode, one of them, or colocated."""
        return tuple(role for role, _, _ in pools(self.scenario))

    def of_role(self, role: str) -> list[Instance]:
        """Instances of a role; colocated ones count as both."""
        return [instance for instance in self.instances if instance.role in (role, "colocated")]

    def expert_bytes(self, role: str) -> float:
        """Bytes of the weights of one routed expert in one layer, as a pool stores them."""
        weight_format = FORMATS[self.costs.roles[role].pool.precision.weights]
        return self.costs.shape.expert_weights * weight_format.weight_bytes

    def expert_nodes(self, role: str, places: int) -> int:
        """Number of nodes of `places` expert places (dies, or groups that split experts)."""
        costs = self.costs.roles[role]
        return min(places, -(-places * costs.layout.split // costs.dies_per_node))

    @property
    def dynamic(self) -> bool:
        """Whether requests get rows during the run: turns wait for answers, or clients retry."""
        clients = self.scenario.clients
        may_be_refused = clients.timeout_s or clients.answer_timeout_s or is_limited(self.scenario)
        return self.requests.waits_for is not None or bool(clients.retries and may_be_refused)

    @property
    def gated(self) -> bool:
        """Whether admission queues requests by tenant, or refuses some."""
        return len(self.scenario.tenants) > 1 or is_limited(self.scenario)

    @property
    def in_hbm(self) -> bool:
        """Whether prompts can hit in a prefix cache in the HBM of instances that compute them."""
        scenario = self.scenario
        is_allowed = scenario.memory_pool.in_hbm and scenario.deployment.mode != "decode_only"
        return is_allowed and self.requests.has_prefix

    @property
    def kv_cells(self) -> int:
        """Number of prefix caches of an instance that computes prompts: parts of it that hold the
        KV of whole prompts; 1 without such instances."""
        prefilling_role = self.costs.prefilling_role
        return kv_holders(prefilling_role.pool, prefilling_role.dies) if prefilling_role else 1

    @property
    def namespaces(self) -> int:
        """Rows of each memory pool: one for each tenant if tenants share no blocks, otherwise 1."""
        tenants, pool = self.scenario.tenants, self.scenario.memory_pool
        return len(tenants) if tenants and pool.enabled and pool.namespaces else 1

    @property
    def supernodes(self) -> int:
        """Number of supernodes that a front router chooses from; 1 without a front router."""
        return supernodes_apart(self.scenario) or 1

    def supernode_of(self, instance: Instance) -> int:
        """Number of the supernode in which an instance lies; 0 without a front router."""
        return self.supernode_at(instance.die_of_rank[0])

    def supernode_at(self, die: int) -> int:
        """Number of the supernode in which a die (its number) lies; 0 without a front router."""
        node_number = int(self.fabric.node[self.fabric.dies[die]])
        return node_number // self.scenario.supernode.nodes if self.supernodes > 1 else 0

    def nodes_with_weights(self, instance: Instance) -> tuple[int, ...] | None:
        """Nodes whose DRAM sends an instance its weights: its supernode's; None: all nodes."""
        return self._lending_nodes(self.supernode_of(instance)) if self.supernodes > 1 else None

    @property
    def memory_pools(self) -> int:
        """Number of memory pools: one; one for each supernode behind a front router; or, with local
        pools, one for each instance that computes prompts."""
        is_shared = self.scenario.memory_pool.scope == "shared"
        return self.supernodes if is_shared else len(self.of_role("prefill"))

    @property
    def pool_of(self) -> list[int]:
        """Number of the memory pool of each instance that computes prompts, in order."""
        is_shared, instances = self.scenario.memory_pool.scope == "shared", self.of_role("prefill")
        return [self.supernode_of(i) if is_shared else number for number, i in enumerate(instances)]

    @property
    def quotas(self) -> list[float]:
        """Share of a memory pool that each namespace may fill, in order of the tenants."""
        if self.namespaces == 1:
            return [1.0]
        pool_shares = [tenant.pool_share for tenant in self.scenario.tenants]
        default_share = max(0.0, 1.0 - sum(pool_shares)) / max(pool_shares.count(0.0), 1)
        return [pool_share or default_share for pool_share in pool_shares]

    @property
    def pool_blocks(self) -> int:
        """Number of KV blocks that one memory pool holds in DRAM."""
        if self.scenario.memory_pool.policy == "infinite":
            return max(int(self.requests.blocks), 1)
        return self.tier_blocks(self.node_dram_bytes)

    def pool_nodes(self, row: int) -> tuple[int, ...]:
        """Nodes whose DRAM forms memory pool `row`. A shared pool has all lending nodes (behind a
        front router those of supernode `row`), a local pool those of prefill instance `row`."""
        if self.scenario.memory_pool.scope == "shared":
            return self._lending_nodes(row)
        instance_nodes = self.fabric.nodes_of(self.of_role("prefill")[row].die_of_rank)
        return tuple(sorted({*instance_nodes} & {*self._lending_nodes(0, 1)}))

    def _lending_nodes(self, supernode: int, count: int = 0) -> tuple[int, ...]:
        """Nodes that lend DRAM in supernode number `supernode` of `count` supernodes (0: as many as
        the front router has); all if there is only one. Equal arguments return one object."""
        net, count = self.fabric, count or self.supernodes

        def nodes() -> tuple[int, ...]:
            """Nodes that lend DRAM, in order, computed anew."""
            lenders, nodes_each = lending_nodes(net), self.scenario.supernode.nodes
            return tuple(node for node in lenders if count == 1 or node // nodes_each == supernode)

        return net.once(("lending", count, supernode), nodes)

    def tier_blocks(self, bytes_per_node: float) -> int:
        """Number of KV blocks of one memory pool in a tier of `bytes_per_node` bytes a node."""
        is_local, readers = self.scenario.memory_pool.scope == "local", self.of_role("prefill")
        dram_nodes = dram_ratio(self.fabric, self.pool_nodes(0)) if readers else 0.0
        if is_local and readers:  # which may have a part of a node
            dram_nodes *= readers[0].dies / self.fabric.dies_per_node
            dram_nodes /= len(self.fabric.nodes_of(readers[0].die_of_rank))
        block_bytes = self.costs.held_bytes(self.requests.block_tokens)
        return int(bytes_per_node * dram_nodes / block_bytes)


def set_up(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, counts: np.ndarray | None = None
) -> Setup:
    """Price the scenario and make its requests; counts f8[layers, experts]: imported expert counts.
    Raises in a sentence HardwareError, ModelError, ExpertsError, WorkloadError or ScenarioError."""
    if scenario.workload.arrivals == "trace" and trace is None:
        raise ScenarioError(
            f"the trace {scenario.workload.trace.name or scenario.workload.trace.digest[:12]} "
            "is not here: import its file first"
        )
    if scenario.experts.popularity == "imported" and counts is None:
        counts_source = scenario.experts.counts
        raise ScenarioError(
            f"the expert counts {counts_source.name or counts_source.digest[:12]} are not here: "
            "import their file first"
        )
    priced = Priced(scenario, facts, trace, counts)
    priced_parts = priced.parts
    costs = priced_parts.costs
    dram_bytes = node_dram_bytes(scenario.memory_pool, facts, priced_parts.net.dies_per_node)
    chip_of_role = {role: role_costs.chip.name for role, role_costs in costs.roles.items()}
    power = power_by_role(scenario, facts, costs.deployed.clocks, chip_of_role)
    for fault in scenario.faults:
        with_faults(priced_parts.net, [fault])  # refuses an element that is not there
    placement = place(scenario, priced_parts.net)
    instances = list(placement.instances)
    if is_elastic(scenario):
        instances += further_instances(scenario, priced_parts.net)
    priced_setup = Setup(
        scenario, priced_parts.net, instances, costs,
        priced_parts.prefill_imbalance, priced_parts.decode_imbalance,
        notes=[], power=power, declared=len(placement.instances), node_dram_bytes=dram_bytes,
        routed=priced_parts.routed, tokens_per_request=priced_parts.tokens_per_request,
        requests=None, process=None, topics=None,  # type: ignore[arg-type]
    )  # fmt: skip
    _refuse_divided_supernodes(priced_setup)
    request_count = None
    if scenario.workload.arrivals == "closed_loop":
        request_count = closed_loop_count(priced_setup, facts)
    requests = generate_requests(
        scenario.workload, scenario.horizon_s, scenario.seed, scenario.memory_pool.block_tokens,
        facts, trace, request_count, _stores_answers(scenario),
    )  # fmt: skip
    if requests.arrival_s.size == 0:
        raise ScenarioError(
            f"no request arrives within horizon_s = {scenario.horizon_s:g} s: "
            "raise workload.rate_req_per_s or the horizon"
        )
    in_progress = residents(priced, requests)
    requests = with_residents(requests, in_progress, scenario.workload.arrivals == "closed_loop")
    _refuse_too_large(priced_setup, requests)
    counted_causes = sorted(requests.counts.items())
    notes = [f"{numbered(count, 'request')}: {cause}" for cause, count in counted_causes if count]
    notes += [*requests.notes, *placement.moved, *remarks(scenario), *costs.remarks]
    stack = scenario.deployment.stack
    scheduler = stack_facts(facts, stack, "schedulers")
    if scenario.deployment.decode.swap_gb_per_die and scheduler and "swaps" not in scheduler:
        notes.append(f"The scheduler of {stack} has no swap: it computes preempted requests again.")
    notes += [
        f"A cap of {scenario.cost.cap_w:g} W an NPU lowers the clock of {role} to {share:.1%}."
        for role, share in costs.deployed.clocks.items()
        if share < 1.0
    ]
    popularity = x.start_process(priced_parts.routed, counts)
    topic_of_row = x.topics_of(popularity, requests.arrival_s, requests.session, scenario.seed)
    return replace(
        priced_setup, requests=requests, notes=notes, process=popularity, topics=topic_of_row,
        residents=in_progress,
    )  # fmt: skip


def set_up_models(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, counts: np.ndarray | None = None
) -> list[Setup]:
    """Set up each model; trace, counts: of the first one. Raises what `set_up` raises, with the
    name of a further model, and ScenarioError if two would use one NPU without taking turns."""
    if not scenario.models:
        return [set_up(scenario, facts, trace, counts)]
    scenarios, names, setups = split_models(scenario), model_names(scenario), []
    for model_number, (model_scenario, name) in enumerate(zip(scenarios, names, strict=True)):
        try:
            trace_and_counts = (None, None) if model_number else (trace, counts)
            setups.append(set_up(model_scenario, facts, *trace_and_counts))
        except ValueError as error:
            if model_number == 0:  # its fields, and the machine's, are the scenario's own
                raise
            raise type(error)(f"{name}: {error}") from error
    owner_of_die: dict[int, tuple[str, str, int]] = {}
    for name, setup, owner in zip(names, setups, npu_owners(scenario), strict=True):
        seat_of_die = {die: (name, i.name, owner) for i in setup.instances for die in i.die_of_rank}
        shared_dies = owner_of_die.keys() & seat_of_die.keys()
        if conflicting_dies := {die for die in shared_dies if owner_of_die[die][2] != owner}:
            first_die = min(conflicting_dies)
            two_seats = owner_of_die[first_die], seat_of_die[first_die]
            seat_names = [f"{instance} of {model}" for model, instance, _ in two_seats]
            raise ScenarioError(
                f"{seat_names[0]} and {seat_names[1]} would sit on one NPU: give the latter model "
                "a later deployment.first_npu, let the former's deployment.placement be packed, or "
                "take back an edit of the supernode"
            )
        owner_of_die |= seat_of_die
    return setups


def _stores_answers(s: Scenario) -> bool:
    """Whether later prompts can hit blocks of answers, in the memory pool or colocated HBM."""
    in_hbm = s.memory_pool.in_hbm and s.deployment.mode == "colocated"
    return in_hbm or (s.memory_pool.enabled and s.memory_pool.answers)


def _refuse_divided_supernodes(setup: Setup) -> None:
    """Raise ScenarioError if, behind a front router, an instance lies in several supernodes or a
    supernode has no instance of a pool."""
    if setup.supernodes == 1:
        return
    front, nodes_each = setup.scenario.router.front, setup.scenario.supernode.nodes
    for i in setup.instances:
        if len({int(node) // nodes_each for node in setup.fabric.nodes_of(i.die_of_rank)}) > 1:
            raise ScenarioError(
                f"router.front = {front} needs each instance in one supernode, and {i.name} lies "
                "in several: set deployment.placement = packed, or take smaller instances"
            )
    for role in setup.roles:
        served_supernodes = {setup.supernode_of(i) for i in setup.instances if i.role == role}
        if unserved := sorted(set(range(setup.supernodes)) - served_supernodes):
            raise ScenarioError(
                f"router.front = {front} needs an instance of each pool in every supernode, and "
                f"supernode {unserved[0]} has no {role} instance: set deployment.placement = packed"
            )


def _refuse_too_large(setup: Setup, requests: Requests) -> None:
    """Raise ScenarioError if estimated memory exceeds MOST_BYTES; it names the largest part."""
    scenario, pool = setup.scenario, setup.scenario.memory_pool
    pool_count = setup.memory_pools * setup.namespaces
    reader_count = len(setup.of_role("prefill")) if pool.enabled else 0
    server_count = len(setup.pool_nodes(0)) if reader_count else 0
    cell_count = len(setup.of_role("prefill")) * setup.kv_cells
    cell_count *= int(replace(setup, requests=requests).in_hbm)
    rows, blocks, instances = requests.arrival_s.size, requests.blocks, len(setup.instances)
    part_bytes = {
        f"{rows:,} requests": BYTES_PER_REQUEST * rows * (1 + scenario.clients.retries),
        f"{blocks:,} distinct KV blocks in {pool_count} memory pool(s)":
            BYTES_PER_BLOCK * blocks * pool_count * int(pool.enabled),
        f"{blocks:,} distinct KV blocks in the HBM of {cell_count:,} ranks or instances":
            BYTES_IN_HBM * blocks * cell_count,
        f"{instances:,} instances and reads of {server_count:,} memory servers by each":
            BYTES_PER_INSTANCE * instances + BYTES_PER_PORT * reader_count * server_count,
        f"a graph of {setup.fabric.dies.size:,} dies": BYTES_PER_DIE * setup.fabric.dies.size,
    }  # fmt: skip
    total_bytes = sum(part_bytes.values())
    if total_bytes > MOST_BYTES:
        raise ScenarioError(
            f"this run would need about {total_bytes / 1e9:.3g} GB of memory, more than "
            f"{MOST_BYTES / 1e9:.0f} GB, mostly for {max(part_bytes, key=part_bytes.__getitem__)}: "
            "shorten horizon_s, lower the request rate, or take larger blocks or fewer instances"
        )


def closed_loop_count(setup: Setup, facts: Facts) -> int:
    """Upper bound of a closed loop's number of requests, as if every client had an empty instance.
    Raises ScenarioError above MOST_REQUESTS."""
    scenario = setup.scenario
    mean_input_tokens, mean_output_tokens, *_ = mean_lengths(scenario.workload, facts)
    client_count = scenario.workload.concurrency
    shortest_stay_s = scenario.workload.think_s + scenario.front_end.service_ms * 1e-3
    if scenario.deployment.mode == "prefill_only":
        pass_s = prefill_batch_s(
            setup.costs.prefill, mean_input_tokens, mean_input_tokens, mean_input_tokens**2 / 2,
            setup.prefill_imbalance.tokens, np.ones(setup.prefill_imbalance.tokens.size),
            np.zeros(len(PREFILL_OPERATORS)),
        )  # fmt: skip
        shortest_stay_s += 0.5 * pass_s
    else:
        batch_of_one = np.ones(1, np.int64)
        pass_s = decode_iteration_s(
            setup.costs.decode, batch_of_one, np.array([mean_input_tokens]), 0, 1,
            setup.decode_imbalance.tokens, np.ones(setup.decode_imbalance.tokens.size),
            np.zeros(len(DECODE_OPERATORS)),
        )  # fmt: skip
        decode = scenario.deployment.decode
        tokens_per_pass = tokens_per_iteration(decode.mtp_draft_tokens, setup.costs.mtp_acceptance)
        shortest_stay_s += pass_s * mean_output_tokens / tokens_per_pass
    request_count = client_count * (math.ceil(scenario.horizon_s / max(shortest_stay_s, 1e-3)) + 2)
    if request_count > MOST_REQUESTS:
        raise ScenarioError(
            f"a closed loop of {client_count:,} clients over {scenario.horizon_s:g} s may make "
            f"{request_count:,} requests, more than {MOST_REQUESTS:,}: shorten horizon_s"
        )
    return request_count
