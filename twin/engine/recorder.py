"""The record: from the world's columns to tables, once, at the end of a run.

Tables are polars frames with SI units in their column names. What they mean for a user is
`metrics`' work.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from twin.engine import world as w
from twin.engine.setup import Setup
from twin.hardware.placement import Instance
from twin.model.decode import DECODE_OPERATORS
from twin.model.prefill import PREFILL_OPERATORS

STATUS = pl.Enum(["queued", "running", "finished", "rejected"])
REASON = pl.Enum(list(w.REASONS))
PREFILL_COLUMNS = (*PREFILL_OPERATORS, "kv_fetch")


def tables(setup: Setup, world: w.World) -> dict[str, pl.DataFrame]:
    """All tables of a run; requests that never arrived are left out."""
    arrived = int(world.record.counters[w.ARRIVED])
    return {
        "requests": requests_table(world, arrived),
        "windows": windows_table(setup, world, arrived),
        "operators": operators_table(world),
        "ranks": ranks_table(setup, world),
        "links": links_table(setup, world),
    }


def requests_table(world: w.World, arrived: int) -> pl.DataFrame:
    """One row per request that arrived, in order of arrival; stamps not reached are null."""
    r = world.request
    horizon_s = world.settings.horizon_s
    left_front_end = r.front_end_s[:arrived].copy()
    left_front_end[world.record.counters[w.FRONTED] :] = np.nan

    def stamp(column: np.ndarray) -> pl.Series:
        # What was scheduled past the horizon has not happened.
        known = np.where(column[:arrived] <= horizon_s, column[:arrived], np.nan)
        return pl.Series(values=known, nan_to_null=True)

    status = np.array(
        [STATUS.categories.to_list().index(name) for name in w.STATUS_NAMES], np.uint8
    )[r.status[:arrived]]
    ranks = world.settings.decode_ranks
    rank = r.rank[:arrived]
    return pl.DataFrame(
        {
            "request_id": np.arange(arrived, dtype=np.int32),
            "arrival_s": r.arrival_s[:arrived],
            "frontend_s": stamp(left_front_end),
            "routed_s": stamp(r.routed_s),
            "prefill_start_s": stamp(r.prefill_start_s),
            "prefill_end_s": stamp(r.prefill_end_s),
            "transfer_end_s": stamp(r.transfer_end_s),
            "first_token_s": stamp(r.transfer_end_s),
            "finish_s": stamp(r.finish_s),
            "input_tokens": r.input_tokens[:arrived],
            "output_tokens": r.output_tokens[:arrived],
            "hit_tokens": r.hit_tokens[:arrived],
            "session": r.session[:arrived],
            "prefill_instance": _index(r.prefill_instance[:arrived].astype(np.int32)),
            "decode_instance": _index(np.where(rank < 0, -1, rank // ranks).astype(np.int32)),
            "decode_rank": _index(np.where(rank < 0, -1, rank % ranks).astype(np.int32)),
            "preemptions": r.preemptions[:arrived],
            "status": pl.Series(values=status).cat.to(STATUS),
            "reason": pl.Series(values=r.reason[:arrived].astype(np.uint8)).cat.to(REASON),
        }
    )


def _index(column: np.ndarray) -> pl.Series:
    """An index column with null where there is none."""
    return pl.Series(values=column).replace(-1, None)


def windows_table(setup: Setup, world: w.World, arrived: int) -> pl.DataFrame:
    """One row per window of the record."""
    s = world.settings
    book = world.record.windows[:-1]
    count = book.shape[0]
    width_s = s.horizon_s / count
    samples = np.maximum(book[:, w.SAMPLES], 1.0)
    columns = {"t_s": np.arange(count) * width_s, "window_s": np.full(count, width_s)}
    columns |= _happenings(world, arrived, count)
    for name, field in (
        ("front_end_queue", w.IN_FRONT_END),
        ("router_queue", w.IN_ROUTER),
        ("prefill_queue", w.IN_PREFILL_QUEUE),
        ("prefill_running", w.IN_PREFILL),
        ("transfer_running", w.IN_TRANSFER),
        ("decode_running", w.IN_DECODE),
        ("pool_used_fraction", w.POOL_USED),
    ):
        columns[name] = book[:, field] / samples
    columns["preempted"] = book[:, w.PREEMPTIONS]
    columns["input_tokens_per_s"] = book[:, w.PREFILL_TOKENS] / width_s
    columns["output_tokens_per_s"] = book[:, w.DECODE_TOKENS] / width_s
    columns["hit_token_ratio"] = ratio(book[:, w.HIT_TOKENS], book[:, w.PROMPT_TOKENS])
    columns["decode_iteration_s"] = ratio(book[:, w.ITERATION_S], book[:, w.ITERATIONS])
    prefills, decodes = len(setup.of_role("prefill")), len(setup.of_role("decode"))
    columns["prefill_busy"] = book[:, w.PREFILL_BUSY_S] / (width_s * max(prefills, 1))
    columns["decode_busy"] = book[:, w.DECODE_BUSY_S] / (width_s * max(decodes, 1))
    columns["kv_used_fraction"] = book[:, w.KV_USED_S] / (width_s * max(decodes, 1))
    limits = capacities(setup)
    for name, field in (
        ("ub", w.UB_BYTES),
        ("rdma", w.RDMA_BYTES),
        ("vpc", w.VPC_BYTES),
        ("hbm", w.HBM_BYTES),
        ("cube", w.FLOPS),
    ):
        columns[f"{name}_utilisation"] = book[:, field] / (width_s * limits[name])
    for k, operator in enumerate(DECODE_OPERATORS):
        columns[f"decode_{operator}_s"] = ratio(
            book[:, w.FIRST_OPERATOR + k], book[:, w.ITERATIONS]
        )
    return pl.DataFrame({k: pl.Series(values=v, nan_to_null=True) for k, v in columns.items()})


def _happenings(world: w.World, arrived: int, count: int) -> dict[str, np.ndarray]:
    """Arrivals, ends and mean latencies of each window, from the stamps."""
    r = world.request
    horizon_s = world.settings.horizon_s

    def window(stamps: np.ndarray) -> np.ndarray:
        scaled = (stamps / horizon_s * count).astype(np.int64)
        return np.minimum(scaled, count - 1)

    arrival = r.arrival_s[:arrived]
    first, finish = r.transfer_end_s[:arrived], r.finish_s[:arrived]
    seen = first <= horizon_s
    done = finish <= horizon_s
    several = done & (r.output_tokens[:arrived] > 1) & bool(world.settings.has_decode)
    at_first, at_finish = window(first[seen]), window(finish[several])
    tpot = (finish[several] - first[several]) / (r.output_tokens[:arrived][several] - 1)
    rejected = r.status[:arrived] == w.REJECTED
    return {
        "arrived": np.bincount(window(arrival), minlength=count),
        "finished": np.bincount(window(finish[done]), minlength=count),
        "rejected": np.bincount(window(r.ready_s[:arrived][rejected]), minlength=count),
        "ttft_s_mean": ratio(
            np.bincount(at_first, first[seen] - arrival[seen], count),
            np.bincount(at_first, minlength=count),
        ),
        "tpot_s_mean": ratio(
            np.bincount(at_finish, tpot, count), np.bincount(at_finish, minlength=count)
        ),
    }


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Quotients, NaN where there is nothing below."""
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)


def capacities(setup: Setup) -> dict[str, float]:
    """What the whole machine's planes, and the serving dies' HBM and cube cores, can do per s."""
    node = setup.scenario.supernode
    dies = node.npus * setup.dies_per_npu
    peak = setup.scenario.deployment.precision.weights
    serving = sum(i.dies for i in setup.instances)
    return {
        "ub": dies * node.sub_planes * node.ub_link_gb_per_s * 1e9,
        "rdma": node.npus * node.rdma_gb_per_s_per_npu * 1e9,
        "vpc": node.nodes * node.vpc_gb_per_s_per_node * 1e9,
        "hbm": serving * setup.chip.hbm_bytes_per_s,
        "cube": serving * setup.chip.flops[peak],
    }


def operators_table(world: w.World) -> pl.DataFrame:
    """Seconds of the steady state by operator, decode iterations and prefill batches."""
    steady = world.record.windows[-1]
    rows = []
    first = w.FIRST_OPERATOR
    for phase, names, times, count in (
        ("decode", DECODE_OPERATORS, steady[first:], steady[w.ITERATIONS]),
        (
            "prefill",
            PREFILL_COLUMNS,
            steady[first + len(DECODE_OPERATORS) :],
            steady[w.PREFILL_BATCHES],
        ),
    ):
        total = float(times[: len(names)].sum())
        for name, time_s in zip(names, times, strict=False):
            rows.append(
                {
                    "phase": phase,
                    "operator": name,
                    "total_s": float(time_s),
                    "share": float(time_s) / total if total > 0 else 0.0,
                    "per_iteration_s": float(time_s / count) if count > 0 else 0.0,
                    "iterations": float(count),
                }
            )
    return pl.DataFrame(rows)


def ranks_table(setup: Setup, world: w.World) -> pl.DataFrame:
    """One row per die of every instance: load over the steady state."""
    s = world.settings
    steady_s = s.horizon_s - s.warmup_s
    page = 0.5 * s.page_tokens
    frames = []
    for instance in setup.instances:
        n = instance.dies
        dies = instance.first_die + np.arange(n)
        decodes = instance.role != "prefill"
        at = slice(instance.index * n, (instance.index + 1) * n)
        requests = world.decode.request_s[at] / steady_s if decodes else np.full(n, np.nan)
        context = world.decode.context_s[at] / steady_s if decodes else np.full(n, np.nan)
        busy_s = (world.decode if decodes else world.prefill).busy_s[instance.index]
        hot = setup.decode_imbalance if decodes else setup.prefill_imbalance
        load = np.full(n, np.nan)
        load[: hot.die_load.shape[1]] = hot.die_load.mean(axis=0)[:n]
        frames.append(
            pl.DataFrame(
                {
                    "role": [instance.role] * n,
                    "instance": np.full(n, instance.index, np.int32),
                    "rank": np.arange(n, dtype=np.int32),
                    "die": dies.astype(np.int32),
                    "npu": (dies // setup.dies_per_npu).astype(np.int32),
                    "node": _node_of(setup, dies),
                    "requests_mean": requests,
                    "context_tokens_mean": context,
                    "kv_used_fraction_mean": (context + requests * page) / s.decode_kv_tokens,
                    "busy_fraction": np.full(n, busy_s / s.horizon_s),
                    "expert_load": load,
                }
            ).with_columns(pl.col(pl.Float64).fill_nan(None))
        )
    return pl.concat(frames)


def _node_of(setup: Setup, dies: np.ndarray) -> np.ndarray:
    per_node = setup.scenario.supernode.npus_per_node * setup.dies_per_npu
    return (dies // per_node).astype(np.int32)


def links_table(setup: Setup, world: w.World) -> pl.DataFrame:
    """Traffic of every node by plane (and UB sub-plane): bytes, mean and peak utilisation."""
    node = setup.scenario.supernode
    s = world.settings
    out, into, peak = node_traffic(setup, world)
    rows = []
    parts = {"ub": node.sub_planes, "rdma": 1, "vpc": 1}
    limit = {
        "ub": node.npus_per_node * setup.dies_per_npu * node.ub_link_gb_per_s * 1e9,
        "rdma": node.npus_per_node * node.rdma_gb_per_s_per_npu * 1e9,
        "vpc": node.vpc_gb_per_s_per_node * 1e9,
    }
    for plane, count in parts.items():
        for direction, traffic in (("out", out[plane]), ("in", into[plane])):
            for k in range(count):
                share = traffic / count
                rows.append(
                    pl.DataFrame(
                        {
                            "plane": [plane] * node.nodes,
                            "node": np.arange(node.nodes, dtype=np.int32),
                            "sub_plane": np.full(node.nodes, k if plane == "ub" else -1, np.int32),
                            "direction": [direction] * node.nodes,
                            "bytes": share,
                            "capacity_bytes_per_s": np.full(node.nodes, limit[plane]),
                            "utilisation_mean": share / (limit[plane] * s.horizon_s),
                            "utilisation_peak": share * peak[plane] / (limit[plane] * s.horizon_s),
                        }
                    )
                )
    return pl.concat(rows).with_columns(pl.col("sub_plane").replace(-1, None))


def node_traffic(
    setup: Setup, world: w.World
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, float]]:
    """Bytes out of and into every node by plane, and each plane's busiest window over its mean."""
    node = setup.scenario.supernode
    d = setup.scenario.deployment
    planes = ("ub", "rdma", "vpc")
    out = {p: np.zeros(node.nodes) for p in planes}
    into = {p: np.zeros(node.nodes) for p in planes}
    for role, moved in (
        ("prefill", world.record.prefill_bytes),
        ("decode", world.record.decode_bytes),
    ):
        ub = getattr(world.settings, f"{role}_ub_bytes_per_token")
        rdma = getattr(world.settings, f"{role}_rdma_bytes_per_token")
        for instance in setup.of_role(role):
            per_die = float(moved[:-1, instance.index].sum()) / instance.dies
            for plane, share in (("ub", ub), ("rdma", rdma)):
                each = np.full(instance.dies, per_die * share / (ub + rdma))
                _by_node(setup, instance, each, out[plane])
                _by_node(setup, instance, each, into[plane])
    pool = setup.scenario.memory_pool.plane
    for instance in setup.of_role("prefill"):
        fetched = float(world.prefill.fetched_bytes[instance.index])
        _by_node(setup, instance, np.full(instance.dies, fetched / instance.dies), into[pool])
        out[pool] += fetched / node.nodes
        if not world.settings.colocated:
            sent = world.prefill.sent_bytes[instance.index]
            _by_node(setup, instance, sent, out[d.kv_transfer_plane])
    for instance in setup.of_role("decode"):
        at = slice(instance.index * instance.dies, (instance.index + 1) * instance.dies)
        _by_node(setup, instance, world.decode.received_bytes[at], into[d.kv_transfer_plane])
    peak = {}
    for plane, field in zip(planes, (w.UB_BYTES, w.RDMA_BYTES, w.VPC_BYTES), strict=True):
        moved = world.record.windows[:-1, field]
        mean = float(moved.mean())
        peak[plane] = float(moved.max()) / mean if mean > 0 else 0.0
    return out, into, peak


def _by_node(setup: Setup, instance: Instance, per_die: np.ndarray, totals: np.ndarray) -> None:
    """Add bytes of an instance's dies to the totals of their nodes."""
    dies = instance.first_die + np.arange(instance.dies)
    np.add.at(totals, _node_of(setup, dies), per_die)
