"""The record: from the world's columns to tables, once, at the end of a run.

Tables are polars frames with SI units in their column names. `metrics` says what they mean."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine import movement
from twin.engine.balancing import Balance
from twin.engine.columns import World
from twin.engine.lifecycle.machine import Machine
from twin.engine.lifecycle.present import Present
from twin.engine.setup import Setup
from twin.engine.tabling import schema, stack_pieces, sums_by_window
from twin.hardware.prices import port_rates
from twin.metrics.events import Event, events_table
from twin.metrics.latency import ratio
from twin.metrics.operators import DECODE_OPERATORS, OPERATORS, PREFILL_OPERATORS
from twin.metrics.steadiness import QUEUES, RUNNING
from twin.model.parallel import place_in_stage
from twin.model.prefill import prefill_hbm_bytes
from twin.scenario import core_share

STATUS = pl.Enum(["queued", "running", "finished", "rejected", "lost"])
REASON = pl.Enum(list(w.REASONS[: w.TIMED_OUT]))
# Of runs whose clients leave, or are refused.
STATUS_OF_CLIENTS = pl.Enum([*STATUS.categories, "cancelled"])
REASON_OF_CLIENTS = pl.Enum(list(w.REASONS))
PREFILL_COLUMNS = (*PREFILL_OPERATORS, "kv_fetch")
HOTTEST = schema("t_s,role,instance,layer,hottest")
DIE_LOAD = schema("t_s,role,instance,moment,layer,die,load,replicas")
PLAIN_COLUMNS = ("input_tokens", "output_tokens", "hit_tokens", "session")
OF_OPERATORS = ["phase", "operator", "total_s", "share", "per_iteration_s", "iterations"]
Amount = tuple[np.ndarray, float]
RANKS = schema(
    "role,instance,rank,die,npu,node,requests_mean,context_tokens_mean,"
    "kv_used_fraction_mean,busy_fraction,expert_load"
)


def tables(
    setup: Setup, machine: Machine, balance: Balance, log: list[Event], limits: dict[str, float],
    stamps: Mapping[str, np.ndarray], present: Present,
) -> dict[str, pl.DataFrame]:  # fmt: skip
    """All tables of a run, by name, of the requests that arrived. log: events; limits: capacities
    per second; stamps: columns from `stamps_of`; present: which instances there were over time."""
    world = machine.world
    arrived_count = stamps["arrival_s"].size
    share_pieces = movement.shares_of_classes(machine, balance, world.settings.horizon_s)
    requests = requests_table(world, arrived_count, stamps)
    return {
        **present.tables(),
        **movement.servers_table(setup, machine),
        "requests": requests.hstack(client_columns(setup, world, arrived_count)),
        "windows": windows_table(setup, world, arrived_count, limits, present),
        "operators": operators_table(world),
        "ranks": ranks_table(setup, world),
        "events": events_table(log, world.settings.horizon_s),
        "instances": movement.instances_table(setup, machine, log),
        "traffic": movement.traffic_table(setup, world),
        "shares": movement.shares_table(setup, share_pieces),
        "seats": movement.seats_table(machine, world.settings.horizon_s),
        "links": movement.links_table(setup, world, share_pieces),
        "hottest": stack_pieces(HOTTEST, balance.hottest),
        "die_load": stack_pieces(DIE_LOAD, balance.loads),
    }


def stamps_of(world: World, arrived: int) -> dict[str, np.ndarray]:
    """Stamps (s) of the first `arrived` requests, by column; NaN: not reached by the horizon."""
    request, horizon_s = world.request, world.settings.horizon_s
    request.front_end_s[world.record.counters[w.FRONTED] :] = np.nan
    return {
        "arrival_s": request.arrival_s[:arrived],
        "frontend_s": drop_after_horizon(request.front_end_s[:arrived], horizon_s),
        "routed_s": drop_after_horizon(request.routed_s[:arrived], horizon_s),
        "prefill_start_s": drop_after_horizon(request.prefill_start_s[:arrived], horizon_s),
        "prefill_end_s": drop_after_horizon(request.prefill_end_s[:arrived], horizon_s),
        "transfer_end_s": drop_after_horizon(request.transfer_end_s[:arrived], horizon_s),
        "first_token_s": request.transfer_end_s[:arrived],
        "finish_s": drop_after_horizon(request.finish_s[:arrived], horizon_s),
    }


def drop_after_horizon(stamps: np.ndarray, horizon_s: float) -> np.ndarray:
    """Set the stamps (s) that lie after the horizon to NaN, in place; returns the same array."""
    stamps[stamps > horizon_s] = np.nan
    return stamps


def requests_table(world: World, arrived: int, stamps: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """One row per request that arrived, in order of arrival; stamps not reached are null."""
    request = world.request
    stamps_s = {name: pl.Series(values=values, nan_to_null=True) for name, values in stamps.items()}
    stamps_s["first_token_s"] = stamps_s["transfer_end_s"]  # one array in memory
    may_leave = world.settings.patient or world.settings.gated
    status_type = STATUS_OF_CLIENTS if may_leave else STATUS
    reason_type = REASON_OF_CLIENTS if may_leave else REASON
    status_names = STATUS_OF_CLIENTS.categories.to_list()
    index_of_code = np.array([status_names.index(name) for name in w.STATUS_NAMES], np.uint8)
    ranks_per_instance = world.settings.decode_ranks
    rank_of_row = request.rank[:arrived]
    return pl.DataFrame(
        {
            "request_id": np.arange(arrived, dtype=np.int32),
            **stamps_s,
            **{name: getattr(request, name)[:arrived] for name in PLAIN_COLUMNS},
            "prefill_instance": _index_series(request.prefill_instance[:arrived]),
            "decode_instance": _index_series(rank_of_row // ranks_per_instance),  # of no rank: -1
            "decode_rank": _index_series(
                np.where(rank_of_row < 0, -1, rank_of_row % ranks_per_instance)
            ),
            "preemptions": request.preemptions[:arrived], "retries": request.retries[:arrived],
            "status": pl.Series(values=index_of_code[request.status[:arrived]]).cat.to(status_type),
            "reason": pl.Series(
                values=request.reason[:arrived].astype(np.uint8)
            ).cat.to(reason_type),
        }
    )  # fmt: skip


def client_columns(setup: Setup, world: World, arrived: int) -> list[pl.Series]:
    """Columns, if the run has them, of requests' tenant, attempt, first sending, turns left."""
    settings, tenants = world.settings, setup.scenario.tenants
    turn_of_row = world.request.turn[:arrived] if settings.dynamic else np.arange(arrived)
    series = []
    if tenants:
        tenants_by_row = np.zeros(arrived, np.int8)
        if len(tenants) > 1:
            tenants_by_row = world.gate.tenant[turn_of_row]
        tenant_names = pl.Enum([tenant.name for tenant in tenants])
        series.append(pl.Series("tenant", tenants_by_row.astype(np.uint8)).cat.to(tenant_names))
    if settings.dynamic:
        turns_after = turns_left(world.turn.following)
        series += [
            pl.Series("attempt", world.request.attempt[:arrived]),
            pl.Series("asked_s", world.turn.asked_s[turn_of_row]),
            pl.Series("turns_left", turns_after[turn_of_row]),
        ]
    return series


def turns_left(following: np.ndarray) -> np.ndarray:
    """Number of turns of its session after each turn, i4[turns]; following: the next, or NONE."""
    turns_after = np.zeros(following.size, np.int32)
    for turn in range(following.size - 1, -1, -1):
        if following[turn] != w.NONE:
            turns_after[turn] = turns_after[following[turn]] + 1
    return turns_after


def _index_series(column: np.ndarray) -> pl.Series:
    """A column of indices, with null in place of -1."""
    return pl.Series(values=column.astype(np.int32)).set(pl.Series(values=column == -1), None)


def windows_table(
    setup: Setup, world: World, arrived: int, limits: dict[str, float], present: Present
) -> pl.DataFrame:
    """Table with a row per window: counts, rates, means, use of `limits` (capacities per second),
    watts. arrived: number of requests."""
    sums = world.record.windows[:-1]
    window_count = sums.shape[0]
    width_s = world.settings.horizon_s / window_count
    sample_count = np.maximum(sums[:, w.SAMPLES], 1.0)
    columns = {"t_s": np.arange(window_count) * width_s, "window_s": np.full(window_count, width_s)}
    columns |= _events_by_window(world, setup.at_start, arrived, window_count)
    for k, name in enumerate((*QUEUES, *RUNNING)):
        columns[name] = sums[:, w.IN_FRONT_END + k] / sample_count
    columns["pool_used_fraction"] = sums[:, w.POOL_USED] / sample_count
    columns["preempted"] = sums[:, w.PREEMPTIONS]
    columns["input_tokens_per_s"] = sums[:, w.PREFILL_TOKENS] / width_s
    columns["output_tokens_per_s"] = sums[:, w.DECODE_TOKENS] / width_s
    columns["hit_token_ratio"] = ratio(sums[:, w.HIT_TOKENS], sums[:, w.PROMPT_TOKENS])
    columns["decode_iteration_s"] = ratio(sums[:, w.ITERATION_S], sums[:, w.ITERATIONS])
    prefill_counts, decode_counts = present.instances(window_count)
    columns["prefill_busy"] = sums[:, w.PREFILL_BUSY_S] / (width_s * np.maximum(prefill_counts, 1))
    columns["decode_busy"] = sums[:, w.DECODE_BUSY_S] / (width_s * np.maximum(decode_counts, 1))
    columns["kv_used_fraction"] = sums[:, w.KV_USED_S] / (width_s * np.maximum(decode_counts, 1))
    moved_bytes = movement.recorded_traffic(world).sum(axis=(1, 3))[:-1]
    for plane, name in enumerate(w.PLANES):
        columns[f"{name}_utilisation"] = moved_bytes[:, plane] / (width_s * limits[name])
    for name, field in (("hbm", w.HBM_BYTES), ("cube", w.FLOPS)):
        columns[f"{name}_utilisation"] = sums[:, field] / (width_s * limits[name])
    columns["power_w"] = _power_w(setup, sums, columns, present)
    columns |= present.npus_by_state(window_count)
    for k, operator in enumerate(DECODE_OPERATORS):
        operator_s = sums[:, w.FIRST_OPERATOR + k]
        if operator_s.any() or not OPERATORS[operator].optional:
            columns[f"decode_{operator}_s"] = ratio(operator_s, sums[:, w.ITERATIONS])
    series = {name: pl.Series(values=column, nan_to_null=True) for name, column in columns.items()}
    return pl.DataFrame(series)


def _power_w(
    setup: Setup, sums: np.ndarray, columns: dict[str, np.ndarray], present: Present
) -> np.ndarray:
    """Mean watts of the serving NPUs in each window, f8[windows]; NaN if a chip states none."""
    if not setup.power:
        return np.full(sums.shape[0], np.nan)
    npus_held, prefill_npus = present.npus_held(sums.shape[0])
    prefill_busy = columns["prefill_busy"] * core_share(setup.scenario, "prefill")
    if setup.scenario.deployment.mode == "colocated":
        prefill_pass_share = sums[:, w.PREFILL_BATCHES] / np.maximum(sums[:, w.ITERATIONS], 1.0)
        prefill_busy = columns["decode_busy"] * np.minimum(prefill_pass_share, 1.0)
    npu_use_pair = columns["cube_utilisation"], columns["hbm_utilisation"]
    if len(setup.roles_by_npu) > 1:
        (cube_use, hbm_use), (decode_cube_use, decode_hbm_use) = (
            [amount / (columns["window_s"] * peak_per_s) for amount, peak_per_s in amounts_of_pool]
            for amounts_of_pool in pool_amounts(setup, sums).values()
        )
        npu_w = setup.power["prefill"].drawn_w(prefill_busy, cube_use, hbm_use, cube_use)
        prefill_w: np.ndarray = prefill_npus * npu_w
        decode_w = setup.power["decode"].drawn_w(0.0, decode_cube_use, decode_hbm_use)
        return prefill_w + (npus_held - prefill_npus) * decode_w
    prefill_flops_share = ratio(sums[:, w.PREFILL_FLOPS], sums[:, w.FLOPS])
    cube_of_prefill = npu_use_pair[0] * np.nan_to_num(prefill_flops_share)
    prefill_busy *= prefill_npus / np.maximum(npus_held, 1e-9)
    role_power = setup.power[setup.roles[0]]
    return np.asarray(npus_held * role_power.drawn_w(prefill_busy, *npu_use_pair, cube_of_prefill))


def pool_amounts(setup: Setup, sums: np.ndarray) -> dict[str, tuple[Amount, Amount]]:
    """For the prefill and the decode pool ((FLOPs in each window of `sums`, peak FLOP/s of its
    dies), (HBM bytes in each window, peak bytes/s)). The bytes of prefill are computed for the
    recorded number of batches, all of their mean size."""
    costs, batch_count = setup.costs.roles["prefill"], sums[:, w.PREFILL_BATCHES]
    mean_batch_tokens = (sums[:, w.PREFILL_TOKENS] / np.maximum(batch_count, 1e-9)).tolist()
    bytes_per_batch = [prefill_hbm_bytes(costs.prefill, tokens) for tokens in mean_batch_tokens]
    hbm_bytes = batch_count * np.array(bytes_per_batch)
    flops = sums[:, w.PREFILL_FLOPS]
    decode_bytes = np.maximum(sums[:, w.HBM_BYTES] - hbm_bytes, 0.0)
    pool_work = {"prefill": (flops, hbm_bytes), "decode": (sums[:, w.FLOPS] - flops, decode_bytes)}
    peaks_of_role = {role: capacities(setup, (role,)) for role in pool_work}
    return {
        role: ((pool_flops, peaks_of_role[role]["cube"]), (moved_bytes, peaks_of_role[role]["hbm"]))
        for role, (pool_flops, moved_bytes) in pool_work.items()
    }


def _events_by_window(
    world: World, at_start: int, arrived: int, count: int
) -> dict[str, np.ndarray]:
    """Numbers of requests that arrived and ended, mean TTFT and TPOT (s) of each of `count`
    windows, f8[count] each, from stamps of `arrived` requests. The first `at_start` were in
    progress at time zero: they count as no arrivals and have no TTFT."""
    request, horizon_s, arrived_rows = world.request, world.settings.horizon_s, slice(arrived)
    arrival_s, first_token_s, finish_s = (
        column[arrived_rows]
        for column in (request.arrival_s, request.transfer_end_s, request.finish_s)
    )
    ready_s, status = request.ready_s[arrived_rows], request.status[arrived_rows]
    token_gaps = request.output_tokens[arrived_rows] - 1
    arrived_in_run = np.arange(arrived) >= at_start
    has_first_token = (first_token_s <= horizon_s) & arrived_in_run
    is_answered = (finish_s <= horizon_s) & (token_gaps > 0) & bool(world.settings.has_decode)
    tpot_s = (finish_s - first_token_s)[is_answered] / token_gaps[is_answered]
    sum_in_windows = partial(sums_by_window, horizon_s=horizon_s, windows=count)

    def means(times_s: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Mean of the values whose times fall in each window; NaN without any."""
        return ratio(sum_in_windows(times_s, values=values), sum_in_windows(times_s))

    return {
        "arrived": sum_in_windows(arrival_s[arrived_in_run]),
        "finished": sum_in_windows(finish_s[finish_s <= horizon_s]),
        "rejected": sum_in_windows(ready_s[status == w.REJECTED]),
        "lost": sum_in_windows(ready_s[status == w.LOST]),
        "ttft_s_mean": means(
            first_token_s[has_first_token], (first_token_s - arrival_s)[has_first_token]
        ),
        "tpot_s_mean": means(finish_s[is_answered], tpot_s),
    }


def capacities(setup: Setup, pools: Sequence[str] = ()) -> dict[str, float]:
    """Bytes/s of each plane ("ub", "rdma", "vpc"), bytes/s of HBM ("hbm") and FLOP/s ("cube") of
    the dies of the pools with these roles; () means all pools."""
    net, hbm_bytes_per_s, flops_per_s = setup.fabric, 0.0, 0.0
    for roles in setup.roles_by_npu:
        dies = {
            die for i in setup.instances if i.role in roles and (not pools or i.role in pools)
            for die in i.die_of_rank
        }  # fmt: skip
        hbm_bytes_per_s += len(dies) * setup.costs.roles[roles[0]].chip.hbm_bytes_per_s
        flops_per_s += len(dies) * setup.flops_per_s(roles[0])
    return {
        "ub": max(float(net.rates_out("ub")[net.dies].sum()), 1.0),  # as edited; 1: plane taken out
        "rdma": max(float(port_rates(net, "rdma").sum()), 1.0),
        "vpc": max(float(port_rates(net, "vpc").sum()), 1.0),
        "hbm": hbm_bytes_per_s, "cube": flops_per_s,
    }  # fmt: skip


def operators_table(world: World) -> pl.DataFrame:
    """Table of steady-state seconds of each operator, in decode iterations and prefill batches."""
    steady_row = world.record.windows[-1]
    table_rows, decode_times_s = [], steady_row[w.FIRST_OPERATOR :]
    prefill_times_s = decode_times_s[len(DECODE_OPERATORS) :]
    for phase, operators, times_s, pass_count in (
        ("decode", DECODE_OPERATORS, decode_times_s, steady_row[w.ITERATIONS]),
        ("prefill", PREFILL_COLUMNS, prefill_times_s, steady_row[w.PREFILL_BATCHES]),
    ):
        is_optional = [OPERATORS[name].optional for name in operators]
        shown_indices = [k for k in range(len(operators)) if times_s[k] > 0.0 or not is_optional[k]]
        total_s = float(times_s[shown_indices].sum())
        for k in shown_indices:
            time_share = float(times_s[k]) / total_s if total_s > 0 else 0.0
            s_per_pass = float(times_s[k] / pass_count) if pass_count > 0 else 0.0
            figures = float(times_s[k]), time_share, s_per_pass, float(pass_count)
            table_rows.append((phase, operators[k], *figures))
    return pl.DataFrame(table_rows, schema=OF_OPERATORS, orient="row")


def ranks_table(setup: Setup, world: World) -> pl.DataFrame:
    """Table with a row per die of every instance: steady-state means of its rank, its expert
    load."""
    settings = world.settings
    steady_s, half_page = settings.horizon_s - settings.warmup_s, 0.5 * settings.page_tokens
    net, table_pieces = setup.fabric, []
    for column, instance in movement.indexed_instances(setup, settings.prefills):
        die_count, is_decoding = instance.dies, instance.role != "prefill"
        die_numbers = np.array(instance.die_of_rank)
        rank_rows = (instance.index * die_count + np.arange(die_count)) // setup.rank_dies
        nan_values = np.full(die_count, np.nan)
        mean_requests = world.decode.request_s[rank_rows] / steady_s if is_decoding else nan_values
        context_tokens = world.decode.context_s[rank_rows] / steady_s if is_decoding else nan_values
        imbalance = setup.decode_imbalance if is_decoding else setup.prefill_imbalance
        load_of_die = nan_values.copy()
        costs = setup.costs.roles[instance.role]
        if costs.layout.slots_per_die:
            die_load = np.repeat(imbalance.die_load.mean(axis=0), costs.layout.split)
            load_of_die[: die_load.size] = die_load[:die_count]
            expert_places = [place_in_stage(costs.pool, die, die_count) for die in range(die_count)]
            load_of_die = load_of_die[expert_places]
        kv_space_tokens = float(world.decode.kv_tokens[instance.index]) if is_decoding else np.inf
        table_pieces.append(
            {
                "role": instance.role,
                "instance": instance.index,
                "rank": np.arange(die_count) // (setup.rank_dies if is_decoding else 1),
                "die": die_numbers,
                "npu": net.npu[die_numbers],
                "node": net.node[net.dies[die_numbers]],
                "requests_mean": mean_requests,
                "context_tokens_mean": context_tokens,
                "kv_used_fraction_mean": (context_tokens + mean_requests * half_page)
                / kv_space_tokens,
                "busy_fraction": world.instance.busy_s[column] / settings.horizon_s,
                "expert_load": load_of_die,
            }
        )
    return stack_pieces(RANKS, table_pieces, gaps=True)
