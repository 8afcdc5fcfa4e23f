"""The state at time zero: sizes, given columns and numbers of a scenario that has been set up."""

import math

import numpy as np

from twin.engine import codes as w
from twin.engine import columns as c
from twin.engine.clients.returns import ATTEMPTS, BEGUN
from twin.engine.clock import EDGES, WINDOWS
from twin.engine.contention.flows import number_flows
from twin.engine.contention.shared_links import Streams, Traffic
from twin.engine.settings import Settings, Source
from twin.engine.setup import Setup
from twin.engine.start import Residents
from twin.hardware.demands import equal_parts
from twin.hardware.placement import Instance
from twin.hardware.prices import nic
from twin.kernels.rng import stream_key, uniforms
from twin.metrics.operators import DECODE_OPERATORS, PREFILL_OPERATORS
from twin.model.coefficients import DecodeCosts, PrefillCosts
from twin.model.record import dtype_of, numbers, scale_indices
from twin.policies.batching import slots_of_ranks
from twin.policies.memory_pool import BlockPool, PrefixCache, empty_pool
from twin.policies.router import View
from twin.scenario import Admission, Scenario, Tenant
from twin.workload.profile import first_turn_times_s
from twin.workload.requests import Requests


def _sizes(
    setup: Setup, settings: Settings, slots: np.ndarray, ports: int, flows: int
) -> dict[str, int]:
    """Length of every dimension of the state, by the name that columns declare: numbers of the run
    (`Settings`), and those computed here. slots i8[ranks]: of decode; ports, flows: counts."""
    prepared_count = setup.requests.arrival_s.size
    turn_count = prepared_count if settings.dynamic else 0
    request_count = prepared_count + turn_count * settings.client_retries
    prefills, decode_count = settings.prefills, slots.size // settings.decode_ranks
    instance_count = prefills + decode_count
    cell_count = prefills * settings.kv_cells if settings.in_hbm else 1
    pool_nodes = [setup.pool_nodes(pool_number) for pool_number in set(setup.pool_of)]
    server_count = max(map(len, pool_nodes), default=1)
    transfer_count = min(int(slots.sum()), request_count) + 1
    known_sizes = vars(settings) | dict.fromkeys(("links", "crossings", "passes", "operators"), 0)
    return known_sizes | {
        "requests": request_count,
        "made": request_count if settings.dynamic or settings.patient else 1,
        "gated": request_count if settings.gated else 1,
        "turns": turn_count,
        "tenanted": prepared_count if settings.tenants > 1 else 0,
        "clients": max(setup.scenario.workload.concurrency, turn_count, 1) + 1,
        "supernodes": setup.supernodes,
        "sent": request_count if settings.front else 1,
        "decodes": decode_count,
        "kv_cells": cell_count,
        "cached": max(setup.requests.blocks, 1) if settings.in_hbm else 1,
        "pinning": request_count if settings.in_hbm else 1,
        "instances": instance_count, "ranks": slots.size, "slots": max(int(slots.max()), 1),
        "ring": 1 << (int(setup.requests.output_tokens.max()) + 2).bit_length(),
        "transfers": transfer_count, "parts_sent": transfer_count * settings.rank_dies,
        "ports": ports, "flows": flows, "classes": len(w.TRAFFIC),
        "streams": len(w.STREAMS) * prefills, "servers": server_count,
        "parts": max((equal_parts(setup.fabric, nodes).size for nodes in pool_nodes), default=1),
        "served": setup.memory_pools * server_count,
        "prefill_operators": len(PREFILL_OPERATORS), "decode_operators": len(DECODE_OPERATORS),
        "hosts": 2 * min(setup.fabric.nodes, settings.decode_dies) if settings.copies_kv else 1,
        "fields": w.FIRST_OPERATOR + len(DECODE_OPERATORS) + len(PREFILL_OPERATORS) + 1,
        "windows": WINDOWS, "bins": EDGES - 1, "looks": instance_count * w.AT_FIELDS,
        "cells": len(w.TRAFFIC) * len(w.PLANES) * instance_count,
    }  # fmt: skip


def build_world(setup: Setup) -> c.World:
    """Build the state of a run at time zero, priced as set up; `Machine` writes present prices,
    ports and slots into it."""
    scenario, router, requests = setup.scenario, setup.scenario.router, setup.requests
    prefill_instances, decode_instances = setup.of_role("prefill"), setup.of_role("decode")
    settings = Settings.computed_from(Source(setup))
    prefills, decodes = max(len(prefill_instances), 1), max(len(decode_instances), 1)
    nic_port = nic(setup.fabric, setup.first_die, scenario.deployment.kv_transfer_plane)
    port_count = setup.fabric.nodes if nic_port.shared_by_dies > 1 else setup.fabric.dies.size
    rank_slots = slots_of_decode_ranks(setup, decode_instances)
    first_flows, flow_ends = number_flows(prefills, prefills + decodes, settings.copies_kv > 0)
    sizes = _sizes(setup, settings, rank_slots, port_count, int(flow_ends.max()))
    score_weights = [router.queue_weight, router.prefix_weight, router.kv_weight]
    ssd_blocks = setup.tier_blocks(scenario.memory_pool.ssd_gb_per_node * 1e9)
    prefill_supernodes = [*map(setup.supernode_of, prefill_instances)]
    decode_supernodes = [*map(setup.supernode_of, decode_instances)]
    stream_flows = [first_flows[class_code] + np.arange(prefills) for class_code in w.STREAMS]
    world = c.World(
        settings=settings,
        request=c.Requests(
            sizes, **request_columns(requests, settings, sizes["requests"]),
            segment_offset=requests.segment_offset, segment_first=requests.segment_first,
            segment_blocks=requests.segment_blocks,
        ),
        instance=c.Instances(sizes),
        front=c.Front(
            sizes, of_prefill=np.array(prefill_supernodes or [0], np.int32),
            of_decode=np.array(decode_supernodes or [0], np.int32),
        ),
        prefill=c.Prefill(sizes, pool=np.array(setup.pool_of or [0], np.int32)),
        seen=View(sizes, weights=np.array(score_weights)),
        transfer=c.Transfers(sizes), decode=c.Decode(sizes),
        pool=_empty_tier(setup, prefill_instances, setup.pool_blocks),
        ssd=_empty_tier(setup, prefill_instances, ssd_blocks, ssd=True),
        hbm=empty_pool(sizes["kv_cells"], sizes["cached"], 0), prefix=PrefixCache(sizes),
        costs=_costs_at_start(setup, sizes),
        traffic=_flow_table(sizes, first_flows, flow_ends, settings),
        streams=Streams(sizes, flow=np.concatenate(stream_flows)),
        loop=heap_of_clients(setup, sizes, settings),
        turn=prepared_turns(requests, settings),
        gate=admission_gate(setup, sizes), record=c.Record(sizes), log=c.Log(sizes),
    )  # fmt: skip
    _place_residents(world, setup.residents)
    return world


def slots_of_decode_ranks(setup: Setup, decode: list[Instance]) -> np.ndarray:
    """Most requests that each decode rank may hold, i8[ranks], of all instances in `decode`."""
    rank_count = max(sum(instance.dies for instance in decode) // setup.rank_dies, 1)
    batch_per_npu = setup.scenario.deployment.decode.batch_per_npu
    dies_per_npu = setup.dies_per_npu(setup.roles[-1])  # the last decodes, if any does
    return slots_of_ranks(rank_count, batch_per_npu, setup.rank_dies, dies_per_npu)


def _empty_tier(setup: Setup, prefill: list[Instance], blocks: int, ssd: bool = False) -> BlockPool:
    """An empty tier (DRAM or SSD) of the memory pools, of `blocks` KV blocks each (0 if no instance
    is in `prefill`), divided among namespaces; SSD is LRU unless blocks have a time to live."""
    pool = setup.scenario.memory_pool
    pool_row_count = max(setup.memory_pools, 1) * len(setup.quotas)
    if not pool.enabled or not prefill:
        return empty_pool(pool_row_count, 1, 0)
    policy_name = "lru" if ssd and pool.policy != "ttl" else pool.policy
    capacities = np.tile([int(blocks * quota) for quota in setup.quotas], setup.memory_pools)
    block_count = max(setup.requests.blocks, 1)
    return empty_pool(pool_row_count, block_count, capacities, policy_name, float(pool.ttl_s))


def _costs_at_start(setup: Setup, sizes: dict[str, int]) -> c.Costs:
    """Cost coefficients of every instance: those of its role in the set-up."""
    costs = setup.costs

    def tile(values: np.ndarray, dimension: str) -> np.ndarray:
        """Values of a role, repeated as a row for each entry of a dimension."""
        return np.tile(values, (sizes[dimension], 1))

    decode_role = costs.decode_role or costs.colocated_role
    prefill_now = tile(numbers(costs.prefill if costs.prefill_role else PrefillCosts()), "prefills")
    decode_rows = tile(numbers(costs.decode if decode_role else DecodeCosts()), "decodes")
    return c.Costs(
        sizes, prefill=prefill_now.view(dtype_of(PrefillCosts))[:, 0],
        decode=decode_rows.view(dtype_of(DecodeCosts))[:, 0], prefill_now=prefill_now,
        decode_now=decode_rows, prefill_alone=prefill_now.copy(), decode_alone=decode_rows.copy(),
        prefill_carried=scale_indices(PrefillCosts, "carried"),
        decode_carried=scale_indices(DecodeCosts, "carried"),
        decode_copied=scale_indices(DecodeCosts, "copied"),
        prefill_hot_tokens=setup.prefill_imbalance.tokens,
        prefill_hot_factor=tile(setup.prefill_imbalance.factor, "prefills"),
        decode_hot_tokens=setup.decode_imbalance.tokens,
        decode_hot_factor=tile(setup.decode_imbalance.factor, "decodes"),
    )  # fmt: skip


def _flow_table(
    sizes: dict[str, int], first: np.ndarray, end: np.ndarray, settings: Settings
) -> Traffic:
    """Table of flows, numbered from `first` to `end` of each class of traffic (i8[classes]), that
    cross no link yet. Weights have pace 0: their transfers begin later."""
    traffic = Traffic(sizes, first=first, last=end)
    traffic.pace[first[w.WEIGHTS] : end[w.WEIGHTS]] = 0.0
    traffic.pace[first[w.SSD_WRITE] : end[w.SSD_WRITE]] = settings.ssd_write_bytes_per_s
    return traffic


def request_columns(requests: Requests, settings: Settings, rows: int) -> dict[str, np.ndarray]:
    """Columns of requests that are known before the run, by name. If requests are made during the
    run: `rows` zeros in each column, and infinite arrivals."""
    column_names = "input_tokens", "output_tokens", "session"
    if settings.dynamic:
        zeros = {name: np.zeros(rows, np.int32) for name in column_names}
        return zeros | {"arrival_s": np.full(rows, math.inf)}
    # A closed loop writes arrivals.
    arrival_s = requests.arrival_s.copy() if settings.closed_loop else requests.arrival_s
    return {name: getattr(requests, name) for name in column_names} | {"arrival_s": arrival_s}


def prepared_turns(requests: Requests, settings: Settings) -> c.Turns:
    """Prepared turns, from which a dynamic run makes its requests; other runs have no rows."""
    turn_count = requests.arrival_s.size if settings.dynamic else 0
    next_turn = np.full(turn_count, w.NONE, np.int32)
    pause_s = np.zeros(turn_count)
    if turn_count and requests.waits_for is not None and requests.pause_s is not None:
        waiting_rows = np.flatnonzero(requests.waits_for >= 0)
        next_turn[requests.waits_for[waiting_rows]] = waiting_rows
        pause_s = np.maximum(requests.pause_s, 0.0)
    return c.Turns(
        {"turns": turn_count}, input_tokens=requests.input_tokens[:turn_count],
        output_tokens=requests.output_tokens[:turn_count], session=requests.session[:turn_count],
        following=next_turn, pause_s=pause_s,
    )  # fmt: skip


def heap_of_clients(setup: Setup, sizes: dict[str, int], settings: Settings) -> c.Loop:
    """Heap of the times (s) at which clients send by themselves: staggered clients of a closed
    loop, and in a dynamic run all turns that wait for no answer. A sorted row is a valid heap."""
    client_heap, workload, requests = c.Loop(sizes), setup.scenario.workload, setup.requests
    due_times_s, turn_rows = np.zeros(0), np.zeros(0, np.int64)
    if settings.closed_loop:
        due_times_s = first_turn_times_s(workload.concurrency, workload.ramp_s)
        if (residents := setup.residents) is not None:  # the others come as those before them end
            later_clients = workload.concurrency - len(residents)
            due_times_s = np.arange(later_clients) / residents.rate_req_per_s
        elif settings.dynamic and not due_times_s.size:
            due_times_s = np.zeros(min(workload.concurrency, requests.arrival_s.size))
        turn_rows = np.full(due_times_s.size, w.NONE)
    elif settings.dynamic:
        turn_rows = np.arange(setup.at_start, requests.arrival_s.size)
        if requests.waits_for is not None:
            turn_rows = turn_rows[requests.waits_for[turn_rows] < 0]
        due_times_s, turn_rows = requests.arrival_s[turn_rows], turn_rows * ATTEMPTS
    client_heap.due_s[: due_times_s.size] = due_times_s
    client_heap.turn[: due_times_s.size] = turn_rows
    client_heap.size[0] = due_times_s.size
    return client_heap


def admission_gate(setup: Setup, sizes: dict[str, int]) -> c.Gate:
    """Admission limits of each tenant, a row each; the last row has those of the whole machine."""
    scenario, turn_count = setup.scenario, sizes["tenanted"]
    tenants = scenario.tenants or (Tenant(name="all"),)
    limit_rows: tuple[Tenant | Admission, ...] = (*tenants, scenario.admission)
    return c.Gate(
        sizes,
        tenant=tenants_of(scenario, setup.requests.session[:turn_count]),
        priority=np.array([tenant.priority for tenant in tenants], float),
        weight=np.array([tenant.weight for tenant in tenants], float),
        ttft_s=np.array([tenant.ttft_s or scenario.slo.ttft_s for tenant in tenants], float),
        rate=np.array([limit.rate_req_per_s for limit in limit_rows], float),
        most=np.array([limit.in_flight for limit in limit_rows]),
    )


def tenants_of(s: Scenario, session: np.ndarray) -> np.ndarray:
    """Draw each session's tenant (number, i1[n]) by the tenants' traffic shares; session i4[n]."""
    share_sums = np.cumsum([tenant.share for tenant in s.tenants] or [1.0])
    draws = uniforms(stream_key(s.seed, "tenants"), session.astype(np.int64)) * share_sums[-1]
    return np.searchsorted(share_sums, draws, side="right").astype(np.int8)


def _place_residents(world: c.World, inside: Residents | None) -> None:
    """Write the requests in progress at time zero, if any, into the state: they wait to decode."""
    if inside is None:
        return
    request, decode, first_rows = world.request, world.decode, slice(len(inside))
    if world.settings.dynamic:
        request.arrival_s[first_rows] = 0.0
        request.input_tokens[first_rows] = inside.input_tokens
        request.output_tokens[first_rows] = inside.output_tokens
        request.session[first_rows] = world.turn.session[first_rows]
        request.turn[first_rows] = np.arange(len(inside))
        world.turn.asked_s[first_rows] = 0.0
    request.front_end_s[first_rows] = request.routed_s[first_rows] = 0.0
    request.prefill_start_s[first_rows] = request.prefill_end_s[first_rows] = 0.0
    request.transfer_end_s[first_rows] = request.ready_s[first_rows] = inside.ready_s
    request.rank[first_rows], request.status[first_rows] = inside.rank, w.DECODING
    instance_of_row = inside.rank // world.settings.decode_ranks
    np.add.at(decode.taken, instance_of_row, 1)
    np.add.at(decode.taken_slots, inside.rank, 1)
    np.add.at(decode.reserved_tokens, inside.rank, inside.input_tokens.astype(float))
    for decode_instance in range(decode.wait.shape[0]):
        rows_of_instance = np.flatnonzero(instance_of_row == decode_instance)
        if rows_of_instance.size:
            decode.wait[decode_instance] = rows_of_instance[0], rows_of_instance[-1]
            request.following[rows_of_instance[:-1]] = rows_of_instance[1:]
    if world.settings.gated:
        has_tenants = world.settings.tenants > 1
        tenant_of_row = (
            world.gate.tenant[first_rows] if has_tenants else np.zeros(len(inside), np.int64)
        )
        request.held[first_rows] = BEGUN
        np.add.at(world.gate.inside, tenant_of_row, 1)
        world.gate.inside[-1] += len(inside)
    for counter_code in (
        w.ARRIVED, w.FRONTED, w.ROUTED, w.ROUTER_SEEN, w.PREFILL_BEGUN, w.PREFILLED, w.TRANSFERRED,
        w.TURNS_TAKEN,
    ):  # fmt: skip
        world.record.counters[counter_code] = len(inside)
