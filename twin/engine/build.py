"""Set-up: from a scenario and facts to the world at time zero.

Prices the scenario once (fabric, costs, expert imbalance), makes its requests and lays out every
array. Nothing here moves time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twin.engine import world as w
from twin.engine.clock import EDGES, WINDOWS
from twin.facts import Facts
from twin.hardware.chip import Chip, load_chip
from twin.hardware.fabric import Fabric, build_fabric
from twin.hardware.placement import Instance, place_instances
from twin.hardware.routes import nic, pool_read
from twin.model.costs import Costs, build_costs
from twin.model.decode import DECODE_OPERATORS, decode_iteration_s
from twin.model.prefill import PREFILL_OPERATORS, prefill_batch_s
from twin.serving.batching import tokens_per_iteration
from twin.serving.experts import Imbalance, imbalance
from twin.serving.memory_pool import BlockPool, empty_pool
from twin.serving.rng import stream_key
from twin.serving.router import ROUTERS
from twin.serving.workload import Requests, TraceTable, generate, mean_lengths
from twin.spec import Scenario

PLANE_FIELD = {"ub": w.UB_BYTES, "rdma": w.RDMA_BYTES, "vpc": w.VPC_BYTES}
MOST_REQUESTS = 30_000_000
EVEN = Imbalance(np.ones(1), np.ones(1), np.ones((1, 1)))  # of a role that is not deployed


class ScenarioError(ValueError):
    """A scenario that is well formed but cannot be run; one sentence says why."""


@dataclass(frozen=True)
class Setup:
    """What a scenario comes to before time starts."""

    scenario: Scenario
    chip: Chip
    fabric: Fabric
    instances: list[Instance]
    costs: Costs
    prefill_imbalance: Imbalance
    decode_imbalance: Imbalance
    requests: Requests
    dies_per_npu: int
    notes: list[str]

    def of_role(self, role: str) -> list[Instance]:
        """Instances of a role; colocated ones count as both."""
        return [i for i in self.instances if i.role in (role, "colocated")]


def set_up(scenario: Scenario, facts: Facts, trace: TraceTable | None) -> Setup:
    """Price the scenario and make its requests.

    Raises the rooms' own errors (HardwareError, ModelError, ExpertsError, WorkloadError,
    ScenarioError), each with one sentence.
    """
    chip = load_chip(facts, scenario.supernode.chip)
    fabric = build_fabric(scenario.supernode, facts)
    costs = build_costs(scenario, facts, fabric)
    instances = place_instances(scenario, chip.dies_per_npu)
    prefill_hot, decode_hot = imbalances(scenario, facts, costs, trace)
    if scenario.workload.arrivals == "trace" and trace is None:
        raise ScenarioError(
            f"the trace {scenario.workload.trace.name or scenario.workload.trace.digest[:12]} "
            "is not here: import its file first"
        )
    partial = Setup(
        scenario, chip, fabric, instances, costs, prefill_hot, decode_hot,
        requests=None, dies_per_npu=chip.dies_per_npu, notes=[],  # type: ignore[arg-type]
    )  # fmt: skip
    count = None
    if scenario.workload.arrivals == "closed_loop":
        count = closed_loop_count(partial, facts)
    requests = generate(
        scenario.workload,
        scenario.horizon_s,
        scenario.seed,
        scenario.memory_pool.block_tokens,
        facts,
        trace,
        count,
    )
    if requests.arrival_s.size == 0:
        raise ScenarioError(
            f"no request arrives within horizon_s = {scenario.horizon_s:g} s: "
            "raise workload.rate_req_per_s or the horizon"
        )
    notes = [f"{n:,} requests: {reason}" for reason, n in sorted(requests.counts.items()) if n]
    notes += requests.notes
    return Setup(
        scenario, chip, fabric, instances, costs, prefill_hot, decode_hot,
        requests, chip.dies_per_npu, notes,
    )  # fmt: skip


def imbalances(
    s: Scenario, facts: Facts, costs: Costs, trace: TraceTable | None = None
) -> tuple[Imbalance, Imbalance]:
    """Expert imbalance of a prefill and of a decode instance (the same when colocated)."""
    shape = costs.shape
    mean_input, _ = mean_lengths(s.workload, facts, trace)
    found = []
    drafts = s.deployment.decode.mtp_draft_tokens
    for role, tokens_per_request in (
        (costs.prefill_role, max(mean_input, 1.0)),
        (costs.colocated_role or costs.decode_role, 1.0 + drafts),
    ):
        if role is None:
            found.append(EVEN)
            continue
        layout = role.layout
        found.append(
            imbalance(
                s.experts,
                shape.routed_experts,
                shape.moe_layers,
                shape.top_k,
                layout.routed_dies,
                layout.slots_per_die,
                facts,
                s.seed,
                tokens_per_request,
            )
        )
    return found[0], found[1]


def closed_loop_count(setup: Setup, facts: Facts) -> int:
    """Requests that a closed loop cannot use up within the horizon.

    No client turns faster than its answer takes in an otherwise empty instance.
    """
    s = setup.scenario
    mean_input, mean_output = mean_lengths(s.workload, facts)
    clients = s.workload.concurrency
    fastest_s = s.workload.think_s + s.front_end.service_ms * 1e-3
    if s.deployment.mode == "prefill_only":
        took_s = prefill_batch_s(
            setup.costs.prefill, mean_input, mean_input**2 / 2, mean_input, mean_input**2 / 2,
            setup.prefill_imbalance.tokens, np.ones(setup.prefill_imbalance.tokens.size),
            np.zeros(len(PREFILL_OPERATORS)),
        )  # fmt: skip
        fastest_s += 0.5 * took_s
    else:
        vector = setup.costs.mixed if setup.costs.colocated_role else setup.costs.decode
        one = np.ones(1, np.int64)
        took_s = decode_iteration_s(
            vector, one, np.array([mean_input]), 0, 1,
            setup.decode_imbalance.tokens, np.ones(setup.decode_imbalance.tokens.size),
            np.zeros(len(DECODE_OPERATORS)),
        )  # fmt: skip
        d = s.deployment.decode
        per_iteration = tokens_per_iteration(d.mtp_draft_tokens, d.mtp_acceptance)
        fastest_s += took_s * mean_output / per_iteration
    turns = math.ceil(s.horizon_s / max(fastest_s, 1e-3)) + 2
    count = clients * turns
    if count > MOST_REQUESTS:
        raise ScenarioError(
            f"a closed loop of {clients:,} clients over {s.horizon_s:g} s may make {count:,} "
            f"requests, more than {MOST_REQUESTS:,}: shorten horizon_s"
        )
    return count


def build_world(setup: Setup) -> w.World:
    """Every array of the run at time zero."""
    s = setup.scenario
    prefill = setup.of_role("prefill")
    decode = setup.of_role("decode")
    settings = _settings(setup, prefill, decode)
    return w.World(
        settings=settings,
        request=_request_columns(setup.requests),
        prefill=_prefill_state(setup, prefill),
        transfer=_transfer_state(setup, prefill, decode),
        decode=_decode_state(setup, decode, settings),
        pool=_pool(setup, prefill),
        costs=_costs(setup),
        loop=w.Loop(np.zeros(max(s.workload.concurrency, 1) + 1), np.zeros(1, np.int64)),
        record=_record(len(prefill), len(decode)),
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
    fetch = pool_read(setup.fabric, range(setup.dies_per_npu), s.memory_pool.plane)
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
        instance_slots=int(slots_of(setup, decode[:1]).sum()),
        decode_kv_tokens=_decode_kv_tokens(costs),
        page_tokens=int(s.memory_pool.block_tokens),
        draft_tokens=int(d.decode.mtp_draft_tokens),
        acceptance=float(d.decode.mtp_acceptance),
        kv_bytes_per_token=float(costs.kv_bytes_per_token),
        fetch_latency_s=float(fetch.latency_s),
        transfer_latency_s=float(hand_off.latency_s),
        kv_plane=PLANE_FIELD[d.kv_transfer_plane],
        pool_plane=PLANE_FIELD[s.memory_pool.plane],
        **_expert_bytes(setup),
        key_route_a=stream_key(s.seed, "router.first"),
        key_route_b=stream_key(s.seed, "router.second"),
        key_accept=stream_key(s.seed, "mtp.acceptance"),
        key_round=stream_key(s.seed, "mtp.rounding"),
        key_think=stream_key(s.seed, "clients.think"),
    )


def _decode_kv_tokens(costs: Costs) -> float:
    role = costs.colocated_role or costs.decode_role
    return float(role.kv_tokens_per_die) if role is not None else math.inf


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
        found[f"{name}_ub_bytes_per_token"] = moved * (1.0 - away)
        found[f"{name}_rdma_bytes_per_token"] = moved * away
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
        status=ints(w.WAITING, np.int8),
        reason=ints(0, np.int8),
        following=ints(w.NONE),
    )


def _prefill_state(setup: Setup, prefill: list[Instance]) -> w.PrefillState:
    n = max(len(prefill), 1)
    ranks = prefill[0].dies if prefill else 1
    plane = setup.scenario.memory_pool.plane
    rates = [
        pool_read(setup.fabric, range(i.first_die, i.first_die + i.dies), plane).bytes_per_s
        for i in prefill
    ]
    return w.PrefillState(
        queue_head=np.full(n, w.NONE, np.int32),
        queue_tail=np.full(n, w.NONE, np.int32),
        batch_head=np.full(n, w.NONE, np.int32),
        batch_tail=np.full(n, w.NONE, np.int32),
        running=np.zeros(n, np.int8),
        ends_s=np.zeros(n),
        free_s=np.zeros(n),
        queued_tokens=np.zeros(n, np.int64),
        hit_view=np.zeros(n, np.int64),
        fetch_bytes_per_s=np.array(rates or [1.0]),
        die_tokens=np.zeros(ranks),
        die_pairs=np.zeros(ranks),
        requests=np.zeros(n, np.int64),
        tokens=np.zeros(n),
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
    s = setup.scenario
    pool = s.memory_pool
    if not pool.enabled or not prefill:
        return empty_pool(1, 1, 0)
    block_bytes = setup.requests.block_tokens * setup.costs.kv_bytes_per_token
    rows, nodes = 1, float(s.supernode.nodes)
    if pool.scope == "local":
        rows = len(prefill)
        nodes = prefill[0].dies / setup.dies_per_npu / s.supernode.npus_per_node
    capacity = int(pool.gb_per_node * 1e9 * nodes / block_bytes)
    return empty_pool(rows, max(setup.requests.blocks, 1), capacity)


def _costs(setup: Setup) -> w.Costs:
    c = setup.costs
    nothing = np.zeros(1)
    nothing.flags.writeable = False  # the same array type as the vectors
    return w.Costs(
        prefill=c.prefill if c.prefill_role else nothing,
        decode=c.decode if c.decode_role else nothing,
        mixed=c.mixed if c.colocated_role else nothing,
        prefill_hot_tokens=setup.prefill_imbalance.tokens,
        prefill_hot_factor=setup.prefill_imbalance.factor,
        decode_hot_tokens=setup.decode_imbalance.tokens,
        decode_hot_factor=setup.decode_imbalance.factor,
        prefill_operators=np.zeros(len(PREFILL_OPERATORS)),
        decode_operators=np.zeros(len(DECODE_OPERATORS)),
    )


def _record(prefill: int, decode: int) -> w.Record:
    fields = w.FIRST_OPERATOR + len(DECODE_OPERATORS) + len(PREFILL_OPERATORS) + 1
    return w.Record(
        windows=np.zeros((WINDOWS + 1, fields)),
        counters=np.zeros(w.COUNTERS, np.int64),
        fields=np.zeros(fields, np.int64),
        amounts=np.zeros(fields),
        gaps=np.zeros(EDGES - 1),
        prefill_bytes=np.zeros((WINDOWS + 1, max(prefill, 1))),
        decode_bytes=np.zeros((WINDOWS + 1, max(decode, 1))),
    )
