"""The machine as it is now: which dies serve in each instance, and what that costs.

Fabric, members and slow dies change between steps; this file prices the new state with the same
functions that priced the first one and writes it into the world. It decides nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from twin.engine import codes as w
from twin.engine.build import slots_of_decode_ranks
from twin.engine.columns import World
from twin.engine.contention.flows import Coming, Flow, Seat, flows_of, lay_out
from twin.engine.contention.traffic import set_server_loads
from twin.engine.setup import Setup
from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.demands import equal_parts
from twin.hardware.faults import dies_unfit, speed_by_die, with_faults
from twin.hardware.network import Network, cached_answer
from twin.hardware.prices import host_copy_rates, nic, port_rates, ports_of, transfer_collision
from twin.model.batch import attention_s_per_token, bytes_sent, fit_batch_s, recompute_s_per_token
from twin.model.costs import RoleCosts, role_costs
from twin.model.fetch import copies_bytes_per_s
from twin.model.record import at_speed, numbers
from twin.model.space import kv_layers
from twin.scenario import Fault

STATES_KEPT, PRICES_KEPT = 4, 256  # a link that flaps goes to and fro between two states


@dataclass(frozen=True)
class Epoch:
    """State of the machine between two changes of its links or instances."""

    t_s: float
    fabric: Network
    flows: list[Flow]
    seats: list[Seat]


class Machine:
    """Present fabric, instances and prices, and the world that they are written into."""

    def __init__(self, setup: Setup, facts: Facts, world: World) -> None:
        """Price all instances on the undamaged machine and lay out their flows."""
        self.setup, self.facts, self.world = setup, facts, world
        self.together: list[Machine] = [self]  # those whose flows meet: of each model one
        self._whole = setup.fabric  # without faults
        self.fabric: Network = self._whole
        self._states: dict[Hashable, Network] = {}  # by faults in force
        self.in_force: list[Fault] = []
        self.out: frozenset[int] = frozenset()  # dies that cannot serve now
        self.coming: dict[int, Coming] = {}  # weights on their way: engine/lifecycle/loading.py
        self.members: list[list[int | None]] = [list(i.die_of_rank) for i in setup.instances]
        plane = setup.scenario.deployment.kv_transfer_plane
        self._port = nic(self._whole, setup.first_die, plane)  # of one die, for KV hand-off
        self._priced: dict[Hashable, RoleCosts] = {}  # by faults in force, role and dies
        self.put_in_force([])
        for member_dies in self.members:  # an edit of the supernode may have cut dies off
            member_dies[:] = [None if die in self.out else die for die in member_dies]
        self.off: set[int] = set()  # instances that hold no die: engine/lifecycle/life.py
        self.absent: set[int] = set()  # these, and those that start
        self.epochs: list[Epoch] = []
        self._slots = slots_of_decode_ranks(setup, setup.of_role("decode"))
        self.roles: list[RoleCosts] = []
        for k, instance in enumerate(setup.instances):
            if not self.serving_dies(k):
                raise HardwareError(
                    f"no die of {instance.name} is linked: take back an edit of the supernode"
                )
            self.roles.append(self.price(k))
            self.adopt_costs(k, self.roles[k])
        self.lay_flows()

    def dies_in_use(self) -> set[int]:
        """Dies that are members of an instance, serving or failed."""
        return {die for member_dies in self.members for die in member_dies if die is not None}

    def held_dies(self) -> set[int]:
        """Dies that belong to an instance: members, and original dies of ranks without a die."""
        held_dies = self.dies_in_use()
        for k, (i, member_dies) in enumerate(zip(self.setup.instances, self.members, strict=True)):
            if k not in self.off:
                homes_and_dies = zip(i.die_of_rank, member_dies, strict=True)
                held_dies |= {original for original, die in homes_and_dies if die is None}
        return held_dies

    def spares(self, k: int) -> list[int]:
        """Working dies, in order, of k's chip and supernode that no instance of any model has."""
        held_dies = self.out.union(*(machine.held_dies() for machine in self.together))
        for machine in self.together:
            if machine is not self:  # what another model may take later is no spare either
                held_dies = held_dies.union(*(i.die_of_rank for i in machine.setup.instances))
        chip_of_npu = self._whole.chips(self.setup.scenario.supernode.chip)
        chip = self.setup.costs.roles[self.setup.instances[k].role].chip.name
        npu_by_die, supernode_of_die = self._whole.npu.tolist(), self.setup.supernode_at
        supernode = supernode_of_die(self.setup.instances[k].die_of_rank[0])
        return [die for die, npu_of_die in enumerate(npu_by_die)
                if die not in held_dies and chip_of_npu[npu_of_die] == chip
                and supernode_of_die(die) == supernode]  # fmt: skip

    def column(self, k: int) -> int:
        """Column of instance k (its number in setup.instances) in the record and the traffic."""
        instance = self.setup.instances[k]
        prefills = self.world.settings.prefills
        return instance.index if instance.role == "prefill" else prefills + instance.index

    def weights_flow(self, k: int) -> int:
        """Number of the flow that carries weights into instance k."""
        return int(self.world.traffic.first[w.WEIGHTS]) + self.column(k)

    def ranks(self, k: int) -> list[tuple[int | None, ...]]:
        """Dies of each rank of instance k; None: a missing die, whose rank serves nothing."""
        member_dies, instance = self.members[k], self.setup.instances[k]
        dies_per_rank = 1 if instance.role == "prefill" else self.setup.rank_dies
        return [
            tuple(member_dies[first_die : first_die + dies_per_rank])
            for first_die in range(0, instance.dies, dies_per_rank)
        ]

    def serving_dies(self, k: int) -> tuple[int, ...]:
        """Serving dies of instance k in order; failed ones count until they are replaced."""
        complete_ranks = (rank for rank in self.ranks(k) if None not in rank)
        return tuple(die for rank in complete_ranks for die in rank if die is not None)

    def rank_rows(self, k: int) -> range:
        """Rows of instance k's ranks among the ranks of all decode instances."""
        instance = self.setup.instances[k]
        rank_count = instance.dies // self.setup.rank_dies
        return range(instance.index * rank_count, (instance.index + 1) * rank_count)

    def put_in_force(self, in_force: Sequence[Fault]) -> None:
        """Put exactly these faults in force: set network, ports, and dies that cannot serve."""
        self.in_force, faults = list(in_force), tuple(in_force)
        network = partial(with_faults, self._whole, faults)
        self.fabric = cached_answer(self._states, faults, network, STATES_KEPT)  # with its prices
        self._set_port_rates()
        self.out = dies_unfit(self.fabric, self.setup.scenario.deployment)

    def _set_port_rates(self) -> None:
        """Set the bytes/s of every port for KV hand-off."""
        plane = self.setup.scenario.deployment.kv_transfer_plane
        first_port = ports_of(self._whole, [self.setup.first_die], self._port)[0]
        full_bytes_per_s = port_rates(self._whole, plane)[first_port]
        rate_share = port_rates(self.fabric, plane) / full_bytes_per_s
        transfer = self.world.transfer
        role_and_dies = ((i.role, self.serving_dies(k)) for k, i in enumerate(self.setup.instances))
        collision = transfer_collision(self.fabric, role_and_dies, plane)
        port_bytes_per_s = self._port.bytes_per_s * rate_share / collision.mean
        transfer.granted[:] = self.setup.costs.handed_bytes_per_s(port_bytes_per_s)
        transfer.capacity[:] = transfer.granted

    def price(self, k: int) -> RoleCosts:
        """Costs of instance k on its serving dies; raises ModelError or HardwareError."""
        instance, dies = self.setup.instances[k], self.serving_dies(k)

        def new_costs() -> RoleCosts:
            """Costs of the instance on these dies, computed anew."""
            deployed = replace(self.setup.costs.deployed, net=self.fabric)
            costs = role_costs(deployed, instance.role, dies, instance.name)
            speed_of_die = speed_by_die(self.fabric, self.in_force)
            slowest_speed = min((speed_of_die.get(die, 1.0) for die in dies), default=1.0)
            if slowest_speed < 1.0:
                costs = replace(costs, coefficients=at_speed(costs.coefficients, slowest_speed))
            return costs

        state_key = tuple(self.in_force), instance.role, dies
        return cached_answer(self._priced, state_key, new_costs, PRICES_KEPT)

    def adopt_costs(self, k: int, costs: RoleCosts) -> None:
        """Use these costs for instance k from now on: coefficients, slots, KV space, ports."""
        self.roles[k] = costs
        instance = self.setup.instances[k]
        costs_in_use, traffic = self.world.costs, self.world.traffic
        instance_row, coefficients = instance.index, numbers(costs.coefficients)
        costs_in_use.sent[self.column(k)] = bytes_sent(costs)
        carried_indices, coefficients_now, coefficients_alone = (
            (costs_in_use.prefill_carried, costs_in_use.prefill_now, costs_in_use.prefill_alone)
            if instance.role == "prefill"
            else (costs_in_use.decode_carried, costs_in_use.decode_now, costs_in_use.decode_alone)
        )
        coefficients_now[instance_row] = coefficients_alone[instance_row] = coefficients
        if instance.role != "prefill":
            self._set_slots(k)
            self.world.decode.kv_tokens[instance_row] = costs.kv_tokens_per_rank
            self._price_copies(k)
        if instance.role != "decode":
            self._price_reads(instance_row, costs)
        exchange_slowdown = traffic.crowding[int(traffic.first[w.EXPERTS]) + self.column(k)]
        coefficients_now[instance_row, carried_indices] *= exchange_slowdown
        costs_in_use.priced[self.column(k)] = exchange_slowdown
        self._set_ports(k)

    def _price_copies(self, k: int) -> None:
        """Set seconds per byte of copies between HBM of instance k and host memory (one rank)."""
        rank_dies = next((rank_dies for rank_dies in self.ranks(k) if None not in rank_dies), ())
        dies = [die for die in rank_dies if die is not None]
        if self.world.settings.swap_bytes <= 0.0 or not dies:
            return
        costs, block_tokens = self.setup.costs, self.setup.scenario.memory_pool.block_tokens
        layer_count = kv_layers(costs.deployed.shape, costs.deployed.drafter)
        token_bytes = costs.held_kv * costs.kv_bytes_per_token
        instance_costs = self.roles[k]
        layer_bytes = token_bytes / layer_count * instance_costs.die_kv
        layer_bytes *= instance_costs.pool.own.pp_stages
        copy_bytes_per_s = copies_bytes_per_s(self.facts, block_tokens * layer_bytes)
        host_bytes_per_s = host_copy_rates(self.fabric, dies, "ub")
        instance_row = self.setup.instances[k].index
        self.world.decode.s_per_host_byte[instance_row] = [
            1.0 / min(link_bytes_per_s / len(dies), copy_bytes_per_s)
            for link_bytes_per_s in reversed(host_bytes_per_s)
        ]

    def _price_reads(self, p: int, costs: RoleCosts) -> None:
        """Set the rate of reads from the memory pool and the seconds of prompts and hits of
        instance p, by its row of `Prefill`."""
        prefill, settings, world_costs = self.world.prefill, self.world.settings, self.world.costs
        hot_table = world_costs.prefill_hot_tokens, world_costs.prefill_hot_factor[p]
        if settings.colocated:
            hot_table = world_costs.decode_hot_tokens, world_costs.decode_hot_factor[p]
        mean_prompt_tokens = float(self.setup.requests.input_tokens[self.setup.at_start :].mean())
        prefill.read_bytes_per_token[p] = costs.fetch.bytes_per_token
        read_flow = int(self.world.traffic.first[w.POOL_READ]) + p
        self.set_pace(read_flow, costs.fetch.copies_bytes_per_s)
        prefill.ahead_s_per_token[p] = costs.fetch.ahead_s_per_token(settings.fetch_latency_s)
        batch_args = costs, float(settings.prefill_budget), mean_prompt_tokens, hot_table
        prefill.recompute_s_per_token[p] = recompute_s_per_token(*batch_args)
        pass_s, token_s, pair_s = fit_batch_s(*batch_args)
        prefill.pass_s[p], prefill.s_per_token[p] = pass_s, token_s
        prefill.s_per_pair[p] = pair_s
        if not settings.colocated:
            tokens_per_die = float(settings.prefill_budget) / costs.dies
            prefill.attention_s_per_token[p] = attention_s_per_token(costs.prefill, tokens_per_die)

    def set_pace(self, flow: int, bytes_per_s: float) -> None:
        """Limit a flow (its number) to a maximum rate of its own, bytes/s."""
        traffic = self.world.traffic
        traffic.pace[flow] = bytes_per_s
        traffic.wish[flow] = min(bytes_per_s / traffic.alone[flow], 1.0)

    def _set_ports(self, k: int) -> None:
        """Set instance k's ports for KV; a rank that lacks a die uses those of serving dies."""
        dies = self.serving_dies(k)
        if not dies:
            return
        instance, transfer = self.setup.instances[k], self.world.transfer
        ranks = self.ranks(k)
        dies_per_rank = len(ranks[0])
        port_dies = [
            dies[(j * dies_per_rank + position) % len(dies)] if die is None or None in rank else die
            for j, rank in enumerate(ranks)
            for position, die in enumerate(rank)
        ]
        ports = ports_of(self._whole, port_dies, self._port)
        if instance.role == "prefill":
            transfer.port_of_prefill[instance.index] = ports
        else:
            transfer.port_of_decode[self.rank_rows(k)] = ports.reshape(-1, dies_per_rank)

    def _set_slots(self, k: int) -> None:
        """Set the slots of instance k's ranks: none where a die is missing."""
        instance, rank_rows = self.setup.instances[k], self.rank_rows(k)
        has_all_dies = np.array([None not in rank for rank in self.ranks(k)])
        decode = self.world.decode
        decode.slots[rank_rows] = np.where(has_all_dies, self._slots[rank_rows], 0)
        decode.room[instance.index] = decode.slots[rank_rows].sum()
        decode.refused[instance.index] = np.inf

    def lay_flows(self, t_s: float = 0.0) -> None:
        """Lay out all flows again from t_s on, after a change of the fabric or of members."""
        scenario, first_flows = self.setup.scenario, self.world.traffic.first
        seats, pool_settings = self.seats(), (scenario.deployment, scenario.memory_pool)
        flows_by_key = self.fabric.once("flows", dict[Hashable, list[Flow]])
        flows_key = (*pool_settings, *first_flows.tolist(), *seats)
        make_flows = partial(flows_of, scenario, self.fabric, seats, first_flows)
        self.flows = cached_answer(flows_by_key, flows_key, make_flows)
        if self.epochs and self.epochs[-1].t_s == t_s:
            self.epochs.pop()
        self.epochs.append(Epoch(t_s, self.fabric, self.flows, seats))
        all_flows = [flow for machine in self.together for flow in machine.flows]
        lay_out(all_flows, self.fabric, *(machine.world.traffic for machine in self.together))
        for machine in self.together:
            machine.set_storage_access()

    def number_flows(self, machines: Sequence[Machine]) -> None:
        """Make this model's flows again, numbered in the table that these machines share."""
        self.together = list(machines)
        first_flows = self.world.traffic.first
        self.flows = flows_of(self.setup.scenario, self.fabric, self.seats(), first_flows)

    def seats(self) -> list[Seat]:
        """Instances with their working dies, nodes of their memory pool, and incoming weights."""
        pool_of = self.setup.pool_of
        return [
            Seat(
                instance.role, instance.index, self.column(k),
                tuple(die for die in self.serving_dies(k) if die not in self.out),
                () if instance.role == "decode" else self.setup.pool_nodes(pool_of[instance.index]),
                self.coming.get(k), self.setup.supernode_of(instance),
            )
            for k, instance in enumerate(self.setup.instances)
        ]  # fmt: skip

    def set_storage_access(self) -> None:
        """Set each instance's memory servers, and its bytes/s from these and the SSD tier."""
        prefill, streams, traffic = self.world.prefill, self.world.streams, self.world.traffic
        prefill.pool_open[:] = 0
        prefill.ssd_bytes_per_s[:] = 0.0
        for flow in self.flows:
            instance = flow.instance
            if flow.kind == w.SWAP:
                self._set_hosts(flow)
            if flow.kind == w.SSD_READ:
                prefill.ssd_bytes_per_s[instance] = traffic.alone[flow.number]
            if flow.kind != w.POOL_READ:
                continue
            prefill.pool_open[instance] = 1
            bytes_per_s, _ = flow.load.rate_alone(self.fabric)
            prefill.read_bytes_per_s[instance] = min(bytes_per_s, traffic.pace[flow.number])
            nodes = self.setup.pool_nodes(int(prefill.pool[instance]))
            node_of_part = equal_parts(self.fabric, nodes)
            streams.parts[instance] = node_of_part.size
            streams.home[instance, : node_of_part.size] = np.searchsorted(nodes, node_of_part)
            streams.answers[instance, : node_of_part.size] = np.isin(node_of_part, flow.sources)
            if streams.requested[instance].any():
                set_server_loads(self.world, instance)

    def _set_hosts(self, swaps: Flow) -> None:
        """For the instance of the flow `swaps` set the node of each rank (that of its first die),
        and the bytes/s of copies between dies and memory: of all nodes and directions, and their
        mean."""
        decoders = [k for k, seat in enumerate(self.setup.instances) if seat.role != "prefill"]
        decoder = decoders[swaps.instance]
        dies = [next((die for die in rank if die is not None), 0) for rank in self.ranks(decoder)]
        node_index = np.searchsorted(swaps.nodes, self.fabric.node[self.fabric.dies[dies]])
        decode = self.world.decode
        decode.host[self.rank_rows(decoder)] = np.minimum(node_index, len(swaps.nodes) - 1)
        decode.host_bytes_per_s[swaps.instance] = swaps.rate, swaps.rate / swaps.sources.size
