"""The world at time zero: every array laid out for a scenario that has been set up.

Nothing here prices anything or moves time.
"""

from __future__ import annotations

import math

import numpy as np

from twin.engine import world as w
from twin.engine.clock import EDGES, WINDOWS, steps_in
from twin.engine.phases.streams import stream_flows
from twin.engine.setup import Setup
from twin.hardware.paths import Plane
from twin.hardware.placement import Instance
from twin.hardware.routes import nic, pool_read
from twin.model import params as q
from twin.model.conditions import places
from twin.model.params import DECODE_OPERATORS, PREFILL_OPERATORS
from twin.policies.memory_pool import BlockPool, empty_pool
from twin.policies.router import RANK_CHOICES, ROUTERS
from twin.rng import stream_key
from twin.scenario import Scenario
from twin.workload.generate import Requests

LOOKS = 8  # at every instance, in each window of the record


def build_world(setup: Setup) -> w.World:
    """Every array of the run at time zero."""
    s = setup.scenario
    prefill = setup.of_role("prefill")
    decode = setup.of_role("decode")
    settings = _settings(setup, prefill, decode)
    columns = max(len(prefill), 1) + max(len(decode), 1)
    return w.World(
        settings=settings,
        request=_request_columns(setup.requests),
        prefill=_prefill_state(prefill),
        transfer=_transfer_state(setup, prefill, decode),
        decode=_decode_state(setup, decode, settings),
        pool=_pool(setup, prefill),
        costs=_costs(setup, len(prefill), len(decode)),
        traffic=_traffic(max(len(prefill), 1), columns),
        streams=_streams(max(len(prefill), 1), columns),
        loop=w.Loop(np.zeros(max(s.workload.concurrency, 1) + 1), np.zeros(1, np.int64)),
        record=_record(columns),
    )


def _settings(setup: Setup, prefill: list[Instance], decode: list[Instance]) -> w.Settings:
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
    hand_off = nic(setup.fabric, 0, d.kv_transfer_plane)
    pool_plane = pool_plane_of(s)
    fetch = pool_read(setup.fabric, range(setup.dies_per_npu), pool_plane)
    return w.Settings(
        horizon_s=float(s.horizon_s),
        warmup_s=float(s.warmup_s),
        step_s=float(s.step_s),
        closed_loop=int(s.workload.arrivals == "closed_loop"),
        think_s=float(s.workload.think_s),
        has_prefill=int(bool(prefill)),
        has_decode=int(bool(decode)),
        colocated=int(colocated),
        api_servers=int(s.front_end.api_servers),
        service_s=float(s.front_end.service_ms) * 1e-3,
        router_policy=ROUTERS[s.router.policy],
        rank_choice=RANK_CHOICES[d.decode.rank_choice],
        pool_enabled=int(s.memory_pool.enabled and d.mode != "decode_only"),
        pool_local=int(s.memory_pool.scope == "local"),
        block_tokens=int(setup.requests.block_tokens),
        prefill_ranks=int(prefill[0].dies) if prefill else 1,
        prefill_budget=int(budget),
        chunk_tokens=int(chunk),
        data_parallel_attention=int(d.prefill.attention == "dp" and not colocated),
        prompt_kv_tokens=prompt_kv,
        batch_kv_tokens=batch_kv,
        decode_ranks=int(decode[0].dies) if decode else 1,
        page_tokens=int(s.memory_pool.block_tokens),
        draft_tokens=int(d.decode.mtp_draft_tokens),
        acceptance=float(costs.mtp_acceptance),
        kv_bytes_per_token=float(costs.kv_bytes_per_token),
        fetch_latency_s=float(fetch.latency_s),
        transfer_latency_s=float(hand_off.latency_s),
        kv_plane=w.PLANES.index(d.kv_transfer_plane),
        pool_plane=w.PLANES.index(pool_plane),
        kv_among_experts=int(_kv_among_experts(setup)),
        sample_every=max(1, steps_in(s.horizon_s, s.step_s) // (LOOKS * WINDOWS)),
        retries=int(s.recovery.retries),
        block_bytes=float(setup.requests.block_tokens * costs.kv_bytes_per_token),
        ssd_write_bytes_per_s=_ssd_pace(setup, max(len(prefill), 1)),
        **_expert_bytes(setup),
        attention_bytes_per_token=_attention_bytes(setup),
        attention_plane=w.UB if s.supernode.scale_up == "supernode" else w.RDMA,
        key_route_a=stream_key(s.seed, "router.first"),
        key_route_b=stream_key(s.seed, "router.second"),
        key_accept=stream_key(s.seed, "mtp.acceptance"),
        key_round=stream_key(s.seed, "mtp.rounding"),
        key_think=stream_key(s.seed, "clients.think"),
    )


def pool_plane_of(s: Scenario) -> Plane:
    """Plane of the memory pool's traffic: an instance's own cache does not leave its nodes."""
    return "ub" if s.memory_pool.scope == "local" else s.memory_pool.plane


def _kv_among_experts(setup: Setup) -> bool:
    """Whether KV hand-off uses the very ports that dispatch and combine use."""
    s = setup.scenario
    if s.deployment.mode != "disaggregated":
        return False
    plane = "ub" if s.supernode.scale_up == "supernode" else "rdma"
    return s.deployment.kv_transfer_plane == plane


def _ssd_pace(setup: Setup, instances: int) -> float:
    """Writes to the SSD tier wait for nobody and take half of the VPC plane at most, bytes/s."""
    node = setup.scenario.supernode
    return 0.5 * node.all_nodes * node.vpc_gb_per_s_per_node * 1e9 / instances


def _attention_bytes(setup: Setup) -> float:
    """Bytes that prefill's attention gathers and exchanges for one token, all layers and dies."""
    role = setup.costs.prefill_role
    if role is None:
        return 0.0
    p = role.vector
    layers = p[q.F_MOE_LAYERS] + p[q.F_DENSE_LAYERS]
    seconds = p[q.F_GATHER_TOKEN] * role.dies + p[q.F_EXCHANGE_TOKEN]
    rate = role.gather_bytes_per_s
    return float(seconds * layers * rate) if seconds > 0.0 else 0.0


def _expert_bytes(setup: Setup) -> dict[str, float]:
    """Dispatch and combine bytes of a token on the UB and the RDMA plane, by pool."""
    costs = setup.costs
    moved = costs.dispatch_bytes_per_token + costs.combine_bytes_per_token
    reaches_all = setup.scenario.supernode.scale_up == "supernode"
    found = {}
    for name, role in (
        ("prefill", costs.colocated_role or costs.prefill_role),
        ("decode", costs.colocated_role or costs.decode_role),
    ):
        away = 0.0 if role is None or reaches_all else role.off_node_fraction
        sent = 0.0 if role is None else moved * role.leaving
        found[f"{name}_ub_bytes_per_token"] = sent * (1.0 - away)
        found[f"{name}_rdma_bytes_per_token"] = sent * away
    return found


def _request_columns(r: Requests) -> w.RequestColumns:
    n = r.arrival_s.size

    def stamp() -> np.ndarray:
        return np.full(n, np.nan)

    def ints(fill: int, kind: type = np.int32) -> np.ndarray:
        return np.full(n, fill, kind)

    return w.RequestColumns(
        arrival_s=r.arrival_s.copy(),
        input_tokens=r.input_tokens,
        output_tokens=r.output_tokens,
        session=r.session,
        segment_offset=r.segment_offset,
        segment_first=r.segment_first,
        segment_blocks=r.segment_blocks,
        front_end_s=stamp(),
        routed_s=stamp(),
        prefill_start_s=stamp(),
        prefill_end_s=stamp(),
        transfer_end_s=stamp(),
        finish_s=stamp(),
        ready_s=stamp(),
        hit_tokens=ints(0),
        progress=ints(w.NONE),
        emitted=ints(0),
        prefill_instance=ints(w.NONE, np.int16),
        rank=ints(w.NONE),
        slot=ints(w.NONE),
        joined=ints(0),
        due=ints(0),
        preemptions=ints(0, np.int16),
        retries=ints(0, np.int16),
        status=ints(w.WAITING, np.int8),
        reason=ints(0, np.int8),
        following=ints(w.NONE),
    )


def _prefill_state(prefill: list[Instance]) -> w.PrefillState:
    n = max(len(prefill), 1)
    ranks = prefill[0].dies if prefill else 1
    return w.PrefillState(
        queue_head=np.full(n, w.NONE, np.int32),
        queue_tail=np.full(n, w.NONE, np.int32),
        batch_head=np.full(n, w.NONE, np.int32),
        batch_tail=np.full(n, w.NONE, np.int32),
        running=np.zeros(n, np.int8),
        ends_s=np.zeros(n),
        free_s=np.zeros(n),
        queued_tokens=np.zeros(n, np.int64),
        ending_tokens=np.zeros(n, np.int64),
        queue_view=np.zeros(n, np.int64),
        hit_view=np.zeros(n, np.int64),
        open=np.ones(n, np.int8),
        up=np.ones(n, np.int8),
        reading=np.zeros(n, np.int8),
        begin_s=np.zeros(n),
        read_end_s=np.zeros(n),
        batch_tokens=np.zeros(n),
        batch_hits=np.zeros(n),
        batch_pairs=np.zeros(n),
        most_tokens=np.zeros(n),
        most_pairs=np.zeros(n),
        pool_open=np.ones(n, np.int8),
        ssd_bytes_per_s=np.ones(n),
        cold_tokens=np.zeros(1, np.int64),
        sending=np.zeros(n, np.int64),
        die_tokens=np.zeros(ranks),
        die_pairs=np.zeros(ranks),
        busy_s=np.zeros(n),
        fetched_bytes=np.zeros(n),
        sent_bytes=np.zeros((n, ranks)),
    )


def _transfer_state(
    setup: Setup, prefill: list[Instance], decode: list[Instance]
) -> w.TransferState:
    s = setup.scenario
    price = nic(setup.fabric, 0, s.deployment.kv_transfer_plane)
    share = price.shared_by_dies
    dies = s.supernode.npus * setup.dies_per_npu
    ports = math.ceil(dies / share)
    most = min(int(slots_of(setup, decode).sum()), setup.requests.arrival_s.size) + 1
    return w.TransferState(
        request=np.zeros(most, np.int32),
        port_out=np.zeros(most, np.int32),
        port_in=np.zeros(most, np.int32),
        left_bytes=np.zeros(most),
        rate=np.ones(most),
        active=np.zeros(1, np.int64),
        now_s=np.zeros(1),
        fresh_head=np.full(1, w.NONE, np.int32),
        fresh_tail=np.full(1, w.NONE, np.int32),
        flows_out=np.zeros(ports, np.int32),
        flows_in=np.zeros(ports, np.int32),
        capacity=np.full(ports, float(price.bytes_per_s)),
        granted=np.full(ports, float(price.bytes_per_s)),
        port_of_prefill=_ports(prefill, share),
        port_of_decode=_ports(decode, share).reshape(-1),
    )


def _ports(instances: list[Instance], share: int) -> np.ndarray:
    """Port of every die of every instance, i4[instances, dies]."""
    if not instances:
        return np.zeros((1, 1), np.int32)
    rows = [np.arange(i.first_die, i.first_die + i.dies) // share for i in instances]
    return np.array(rows, np.int32)


def slots_of(setup: Setup, decode: list[Instance]) -> np.ndarray:
    """Requests each decode rank may hold, i8[ranks]: an NPU's batch shared out over its dies."""
    ranks = np.arange(max(sum(i.dies for i in decode), 1))
    batch, dies = setup.scenario.deployment.decode.batch_per_npu, setup.dies_per_npu
    slots: np.ndarray = batch * (ranks + 1) // dies - batch * ranks // dies
    return slots.astype(np.int64)


def _decode_state(setup: Setup, decode: list[Instance], settings: w.Settings) -> w.DecodeState:
    n = max(len(decode), 1)
    ranks = n * settings.decode_ranks
    longest = int(setup.requests.output_tokens.max()) + 2
    ring = 1 << longest.bit_length()
    slots = slots_of(setup, decode)
    return w.DecodeState(
        running=np.zeros(n, np.int8),
        ends_s=np.zeros(n),
        iteration=np.zeros(n, np.int64),
        wait_head=np.full(n, w.NONE, np.int32),
        wait_tail=np.full(n, w.NONE, np.int32),
        in_batch=np.zeros(n, np.int64),
        taken=np.zeros(n, np.int64),
        room=slots.reshape(n, -1).sum(axis=1),
        kv_tokens=np.full(n, math.inf),
        open=np.ones(n, np.int8),
        up=np.ones(n, np.int8),
        calendar=np.full((n, ring), w.NONE, np.int32),
        requests=np.zeros(ranks, np.int64),
        context=np.zeros(ranks),
        growth=np.zeros(ranks),
        slots=slots,
        taken_slots=np.zeros(ranks, np.int64),
        reserved_tokens=np.zeros(ranks),
        taken_tokens=np.zeros(ranks),
        slot_table=np.full((ranks, max(int(slots.max()), 1)), w.NONE, np.int32),
        busy_s=np.zeros(n),
        request_s=np.zeros(ranks),
        context_s=np.zeros(ranks),
        received_bytes=np.zeros(ranks),
        returned_head=np.full(1, w.NONE, np.int32),
        returned_tail=np.full(1, w.NONE, np.int32),
    )


def _pool(setup: Setup, prefill: list[Instance]) -> BlockPool:
    pool = setup.scenario.memory_pool
    if not pool.enabled or not prefill:
        return empty_pool(1, 1, 0)
    rows = len(prefill) if pool.scope == "local" else 1
    return empty_pool(rows, max(setup.requests.blocks, 1), setup.pool_blocks)


def _costs(setup: Setup, prefills: int, decodes: int) -> w.Costs:
    """Coefficients of every instance; engine/machine.py fills them in."""
    c = setup.costs
    prefill = _rows(c.prefill if c.prefill_role else np.zeros(1), prefills)
    decode = _rows(c.decode if c.decode_role else np.zeros(1), decodes)
    mixed = _rows(c.mixed if c.colocated_role else np.zeros(1), decodes)
    return w.Costs(
        prefill=prefill,
        decode=decode,
        mixed=mixed,
        prefill_alone=prefill.copy(),
        decode_alone=decode.copy(),
        mixed_alone=mixed.copy(),
        prefill_carried=places("prefill", computed=False),
        decode_carried=places("decode", computed=False),
        prefill_hot_tokens=setup.prefill_imbalance.tokens,
        prefill_hot_factor=_rows(setup.prefill_imbalance.factor, prefills),
        decode_hot_tokens=setup.decode_imbalance.tokens,
        decode_hot_factor=_rows(setup.decode_imbalance.factor, decodes),
        prefill_operators=np.zeros(len(PREFILL_OPERATORS)),
        decode_operators=np.zeros(len(DECODE_OPERATORS)),
    )


def _rows(vector: np.ndarray, count: int) -> np.ndarray:
    """The same vector for every instance, f8[instances, size]."""
    return np.tile(vector, (max(count, 1), 1))


def _traffic(prefills: int, columns: int) -> w.Traffic:
    """Nobody meets anybody yet; engine/machine.py says who crosses which link."""
    flows = 2 * columns + 4 * prefills
    return w.Traffic(
        start=np.zeros(flows + 1, np.int64),
        links=np.zeros(0, np.int64),
        parts=np.zeros(0),
        link_start=np.zeros(1, np.int64),
        entries=np.zeros(0, np.int64),
        owners=np.zeros(0, np.int64),
        alone=np.ones(flows),
        active=np.zeros(flows, np.int8),
        most=np.zeros(flows),
        load=np.zeros(0),
        level=np.zeros(flows),
        scratch=np.zeros(0),
        held=np.zeros(1, np.int64),
        duty=np.zeros(columns),
        crowding=np.ones(columns),
        moves=np.zeros(columns),
    )


def _streams(prefills: int, columns: int) -> w.Streams:
    flow = stream_flows(prefills, columns)
    return w.Streams(flow, np.zeros(flow.size), np.zeros(flow.size), np.zeros(flow.size))


def _record(columns: int) -> w.Record:
    fields = w.FIRST_OPERATOR + len(DECODE_OPERATORS) + len(PREFILL_OPERATORS) + 1
    return w.Record(
        windows=np.zeros((WINDOWS + 1, fields)),
        counters=np.zeros(w.COUNTERS, np.int64),
        fields=np.zeros(fields, np.int64),
        amounts=np.zeros(fields),
        gaps=np.zeros(EDGES - 1),
        traffic=np.zeros((WINDOWS + 1, len(w.TRAFFIC) * len(w.PLANES) * columns)),
        instances=np.zeros((WINDOWS + 1, columns * w.AT_FIELDS)),
    )
