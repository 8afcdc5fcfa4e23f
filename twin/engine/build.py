"""The state at time zero: sizes, given columns and numbers of a scenario that has been set up.

Nothing here prices anything or moves time.
"""

from __future__ import annotations

import math

import numpy as np

from twin.engine import codes as w
from twin.engine import columns as c
from twin.engine.clients.build_clients import (
    client_settings,
    client_sizes,
    clients_due,
    gate_of,
    prepared_turns,
    request_rows,
)
from twin.engine.clock import EDGES, WINDOWS, steps_in
from twin.engine.contention.flows import numbers_of
from twin.engine.contention.shared_links import Streams, Traffic
from twin.engine.loop import DECODE, PREFILL
from twin.engine.record import Log, Record
from twin.engine.settings import Settings
from twin.engine.setup import Setup
from twin.engine.start import take_seats
from twin.hardware.placement import Instance
from twin.hardware.prices import nic, pool_read, port_rates
from twin.kernels.rng import stream_key
from twin.metrics.operators import DECODE_OPERATORS, PREFILL_OPERATORS
from twin.model.coefficients import Decode, Prefill
from twin.model.fetch import pool_plane
from twin.model.offload import bytes_per_token
from twin.model.record import dtype_of, numbers, places
from twin.policies.memory_pool import BlockPool, empty_pool
from twin.policies.router import BLOCK, RANK_CHOICES, ROUTERS
from twin.scenario import shares_npus

LOOKS = 8  # at every instance, in each window of the record


def build_world(setup: Setup) -> c.World:
    """Every array of the run at time zero."""
    world = _empty_world(setup)
    take_seats(world, setup.residents)
    return world


def _empty_world(setup: Setup) -> c.World:
    s, requests = setup.scenario, setup.requests
    prefill, decode = setup.of_role("prefill"), setup.of_role("decode")
    settings = _settings(setup, prefill, decode)
    prefills, decodes = max(len(prefill), 1), max(len(decode), 1)
    columns = prefills + decodes
    price = nic(setup.fabric, setup.first_die, s.deployment.kv_transfer_plane)
    ports = math.ceil(setup.fabric.dies.size / price.shared_by_dies)
    slots = slots_of(setup, decode)
    first, end = numbers_of(prefills, columns)
    servers = max((len(setup.pool_nodes(i.index)) for i in setup.of_role("prefill")), default=1)
    sizes = client_sizes(setup, settings)
    sizes |= {
        "prefills": prefills,
        "decodes": decodes,
        "columns": columns,
        "instances": columns,
        "prefill_ranks": settings.prefill_ranks,
        "ranks": slots.size,
        "rank_blocks": -(-settings.decode_ranks // BLOCK),
        "slots": max(int(slots.max()), 1),
        "ring": 1 << (int(requests.output_tokens.max()) + 2).bit_length(),
        "transfers": min(int(slots.sum()), sizes["requests"]) + 1,
        "ports": ports,
        "flows": int(end.max()),
        "classes": len(w.TRAFFIC),
        "links": 0,
        "crossings": 0,
        "streams": 4 * prefills,
        "servers": servers,
        "served": setup.memory_pools * servers,
        "prefill_operators": len(PREFILL_OPERATORS),
        "decode_operators": len(DECODE_OPERATORS),
        "windows": WINDOWS,
        "fields": w.FIRST_OPERATOR + len(DECODE_OPERATORS) + len(PREFILL_OPERATORS) + 1,
        "bins": EDGES - 1,
        "passes": 0,
        "operators": 0,
        "cells": len(w.TRAFFIC) * len(w.PLANES) * columns,
        "looks": columns * w.AT_FIELDS,
    }
    free = np.full(ports, float(price.bytes_per_s))
    return c.World(
        settings=settings,
        request=c.Requests(
            sizes,
            **request_rows(requests, settings, sizes["requests"]),
            segment_offset=requests.segment_offset,
            segment_first=requests.segment_first,
            segment_blocks=requests.segment_blocks,
        ),
        instance=c.Instances(sizes),
        prefill=c.Prefill(sizes),
        transfer=c.Transfers(
            sizes,
            capacity=free.copy(),
            granted=free,
            port_of_prefill=_ports(prefill, price.shared_by_dies),
            port_of_decode=_ports(decode, price.shared_by_dies).reshape(-1),
        ),
        decode=c.Decode(sizes, room=slots.reshape(decodes, -1).sum(axis=1), slots=slots),
        pool=_tier(setup, prefill, setup.pool_blocks),
        ssd=_tier(setup, prefill, setup.ssd_blocks, ssd=True),
        costs=_costs(setup, sizes),
        traffic=_traffic(sizes, first, end, settings),
        streams=Streams(
            sizes, flow=np.concatenate([first[k] + np.arange(prefills) for k in w.STREAMS])
        ),
        loop=clients_due(setup, sizes, settings),
        turn=prepared_turns(requests, settings),
        gate=gate_of(setup, sizes),
        record=Record(sizes),
        log=Log(sizes),
    )


def _settings(setup: Setup, prefill: list[Instance], decode: list[Instance]) -> Settings:
    s, costs = setup.scenario, setup.costs
    d = s.deployment
    colocated = d.mode == "colocated"
    budget = d.prefill.tokens_per_npu * d.prefill.npus_per_instance
    chunk = d.prefill.chunk_tokens
    prompt_kv = batch_kv = math.inf
    if costs.prefill_role is not None:
        # Staged attention keeps the whole latent KV on every die; data parallel spreads prompts.
        prompt_kv = batch_kv = float(costs.prefill_kv_tokens_per_die)
        if d.prefill.attention == "dp":
            batch_kv *= prefill[0].dies
    if colocated:
        budget = d.colocated.chunk_tokens_per_npu * d.colocated.npus_per_instance
        chunk = budget
    hand_off = nic(setup.fabric, setup.first_die, d.kv_transfer_plane)
    return Settings(
        horizon_s=float(s.horizon_s),
        warmup_s=float(s.warmup_s),
        step_s=float(s.step_s),
        **client_settings(setup),
        has_prefill=int(bool(prefill)),
        has_decode=int(bool(decode)),
        colocated=int(colocated),
        prefills=max(len(prefill), 1),
        prompt_row=len(prefill) if colocated else 0,
        api_servers=int(s.front_end.api_servers),
        service_s=float(s.front_end.service_ms) * 1e-3,
        router_policy=ROUTERS[s.router.policy],
        queue_weight=float(s.router.queue_weight),
        prefix_weight=float(s.router.prefix_weight),
        kv_weight=float(s.router.kv_weight),
        rank_choice=RANK_CHOICES[d.decode.rank_choice],
        pool_enabled=int(s.memory_pool.enabled and d.mode != "decode_only"),
        pool_local=int(s.memory_pool.enabled and s.memory_pool.scope == "local"),
        layerwise=int(s.memory_pool.layerwise),
        block_tokens=int(setup.requests.block_tokens),
        prefill_ranks=int(prefill[0].dies) if prefill else 1,
        prefill_budget=int(budget),
        chunk_tokens=int(chunk),
        data_parallel_attention=int(d.prefill.attention == "dp" and not colocated),
        even_attention=int(d.prefill.dp_balance == "attention"),
        prompt_kv_tokens=prompt_kv,
        batch_kv_tokens=batch_kv,
        decode_ranks=int(decode[0].dies) if decode else 1,
        page_tokens=int(s.memory_pool.block_tokens),
        draft_tokens=int(d.decode.mtp_draft_tokens),
        acceptance=float(costs.mtp_acceptance),
        fetch_latency_s=_fetch_latency_s(setup),
        transfer_latency_s=float(hand_off.latency_s),
        kv_plane=w.PLANES.index(d.kv_transfer_plane),
        pool_plane=w.PLANES.index(pool_plane(s)),
        kv_among_experts=int(_kv_among_experts(setup)),
        shares_npus=int(shares_npus(s)),
        sample_every=max(1, steps_in(s.horizon_s, s.step_s) // (LOOKS * WINDOWS)),
        retries=int(s.recovery.retries),
        block_bytes=float(setup.requests.block_tokens * costs.kv_bytes_per_token),
        ssd_write_bytes_per_s=_ssd_pace(setup),
        **_kv_bytes(setup),
        **_expert_bytes(setup),
        **_attention_bytes(setup),
        prefill_code=PREFILL.code(c.World) if prefill and not colocated else 0,
        decode_code=DECODE.code(c.World) if decode and not colocated else 0,
        key_route_a=stream_key(s.seed, "router.first"),
        key_route_b=stream_key(s.seed, "router.second"),
        key_accept=stream_key(s.seed, "mtp.acceptance"),
        key_round=stream_key(s.seed, "mtp.rounding"),
    )


def _fetch_latency_s(setup: Setup) -> float:
    """Of a read from the memory pool; 0 without one."""
    pool = setup.scenario.memory_pool
    first_npu = setup.instances[0].die_of_rank[: setup.dies_per_npu]
    price = pool_read(setup.fabric, first_npu, pool_plane(setup.scenario)) if pool.enabled else None
    return float(price.latency_s) if price else 0.0


def _kv_among_experts(setup: Setup) -> bool:
    """Whether KV hand-off uses the very ports that dispatch and combine use."""
    s = setup.scenario
    if s.deployment.mode != "disaggregated":
        return False
    return s.deployment.kv_transfer_plane == setup.fabric.scale_up_plane


def _ssd_pace(setup: Setup) -> float:
    """Writes to the SSD tier wait for nobody and take half of the VPC plane at most, bytes/s."""
    instances = max(sum(i.role != "decode" for i in setup.instances[: setup.declared]), 1)
    return 0.5 * float(port_rates(setup.fabric, "vpc").sum()) / instances


def _attention_bytes(setup: Setup) -> dict[str, float]:
    """What prefill's attention collects for one token, all layers and dies, by plane."""
    role = setup.costs.prefill_role
    gathered = away = 0.0
    if role is not None:
        p = role.prefill
        seconds = p.gather.token * role.dies + p.exchange.token
        seconds *= p.moe_layers + p.dense_layers
        gathered = seconds * role.gather_bytes_per_s if seconds > 0.0 else 0.0
        away = role.gather_off_node
    return {
        "attention_ub_bytes_per_token": gathered * (1.0 - away),
        "attention_rdma_bytes_per_token": gathered * away,
    }


def _kv_bytes(setup: Setup) -> dict[str, float]:
    """KV of a token that is handed to decode, and what its offloaded attention moves."""
    s, costs = setup.scenario, setup.costs
    handed, offloaded = bytes_per_token(s, costs.shape, costs.kv_bytes_per_token)
    return {"kv_bytes_per_token": handed, "offloaded_bytes_per_token": offloaded}


def _expert_bytes(setup: Setup) -> dict[str, float]:
    """Dispatch and combine bytes of a token on the UB and the RDMA plane, by pool."""
    costs = setup.costs
    moved = costs.dispatch_bytes_per_token + costs.combine_bytes_per_token
    found = {}
    for name, role in (
        ("prefill", costs.colocated_role or costs.prefill_role),
        ("decode", costs.colocated_role or costs.decode_role),
    ):
        sent = 0.0 if role is None else moved * role.leaving
        away = 0.0 if role is None else role.off_node_fraction
        found[f"{name}_ub_bytes_per_token"] = sent * (1.0 - away)
        found[f"{name}_rdma_bytes_per_token"] = sent * away
    return found


def _ports(instances: list[Instance], share: int) -> np.ndarray:
    """Port of every die of every instance, i4[instances, dies]."""
    if not instances:
        return np.zeros((1, 1), np.int32)
    return np.array([i.die_of_rank for i in instances], np.int32) // share


def slots_of(setup: Setup, decode: list[Instance]) -> np.ndarray:
    """Requests each decode rank may hold, i8[ranks]: an NPU's batch shared out over its dies."""
    ranks = np.arange(max(sum(i.dies for i in decode), 1))
    batch, dies = setup.scenario.deployment.decode.batch_per_npu, setup.dies_per_npu
    slots: np.ndarray = batch * (ranks + 1) // dies - batch * ranks // dies
    return slots.astype(np.int64)


def _tier(setup: Setup, prefill: list[Instance], blocks: int, ssd: bool = False) -> BlockPool:
    """An empty tier of the memory pool that holds so many blocks a row; that of SSD keeps to LRU
    but for a time to live."""
    pool = setup.scenario.memory_pool
    if not pool.enabled or not prefill:
        return empty_pool(1, 1, 0)
    pools = len(prefill) if pool.scope == "local" else 1
    policy = "lru" if ssd and pool.policy != "ttl" else pool.policy
    rows = np.tile([int(blocks * quota) for quota in setup.quotas], pools)
    distinct = max(setup.requests.blocks, 1)
    return empty_pool(rows.size, distinct, rows, policy, float(pool.ttl_s))


def _costs(setup: Setup, sizes: dict[str, int]) -> c.Costs:
    """Coefficients of every instance; engine/lifecycle/machine.py fills them in."""
    prices, hot_prefill, hot_decode = setup.costs, setup.prefill_imbalance, setup.decode_imbalance

    def rows(values: np.ndarray, of: str) -> np.ndarray:
        """The same values for every instance."""
        return np.tile(values, (sizes[of], 1))

    decodes = prices.decode_role or prices.colocated_role
    prefill = rows(numbers(prices.prefill if prices.prefill_role else Prefill()), "prefills")
    decode = rows(numbers(prices.decode if decodes else Decode()), "decodes")
    return c.Costs(
        sizes, prefill=prefill.view(dtype_of(Prefill))[:, 0],
        decode=decode.view(dtype_of(Decode))[:, 0], prefill_now=prefill, decode_now=decode,
        prefill_alone=prefill.copy(), decode_alone=decode.copy(),
        prefill_carried=places(Prefill, "carried"), decode_carried=places(Decode, "carried"),
        prefill_hot_tokens=hot_prefill.tokens,
        prefill_hot_factor=rows(hot_prefill.factor, "prefills"),
        decode_hot_tokens=hot_decode.tokens, decode_hot_factor=rows(hot_decode.factor, "decodes"),
    )  # fmt: skip


def _traffic(
    sizes: dict[str, int], first: np.ndarray, end: np.ndarray, settings: Settings
) -> Traffic:
    """Flows before they are laid out, with the pace of those that have one."""
    traffic = Traffic(sizes, first=first, end=end)
    traffic.pace[first[w.WEIGHTS] : end[w.WEIGHTS]] = 0.0
    traffic.pace[first[w.SSD_WRITE] : end[w.SSD_WRITE]] = settings.ssd_write_bytes_per_s
    return traffic
