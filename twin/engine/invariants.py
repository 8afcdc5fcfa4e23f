"""Invariants: what must hold of every run, checked on its final state.

Each check states a law and says whether it held and by how much. A run with a failed check is not
valid and is never shown as a result. Ids follow the list in the project's reliability notes."""

import math
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine.build import slots_of_decode_ranks
from twin.engine.clock import steps_in
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import die_bytes
from twin.engine.in_hbm import shared_tokens
from twin.engine.lifecycle.life import Life
from twin.engine.setup import Setup
from twin.engine.swap import held_die_bytes
from twin.metrics.latency import STAMPS
from twin.metrics.steadiness import samples_of_stays
from twin.policies.memory_pool import ABSENT
from twin.scenario import npus_used
from twin.scenario.words import numbered

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Check:
    """One law, whether it held, and the figures behind the verdict."""

    id: str
    statement: str
    ok: bool
    detail: str


def check_all(setup: Setup, world: World, tables: dict[str, pl.DataFrame]) -> list[Check]:
    """Check all invariants of a finished run except those of pool and prefix cache."""
    checks = [
        requests_conserved(world), little_law(world), busy_within_time(world),
        bytes_conserved(world), within_capacity(tables["windows"]), kv_space_fits(setup, world),
        swapped_conserved(world), stamps_in_order(tables["requests"]), work_conserving(world),
        tokens_conserved(world), experts_conserved(setup), figures_finite(tables),
    ]  # fmt: skip
    return [check for check in checks if check is not None]


def requests_conserved(world: World) -> Check:
    """I1, I13: every request that arrived is in exactly one state, and counters agree."""
    arrived = int(world.record.counters[w.ARRIVED])
    status_counts = np.bincount(world.request.status[:arrived], minlength=w.CANCELLED + 1)
    finished_count, rejected, lost, cancelled = status_counts[w.FINISHED :].tolist()
    counters = world.record.counters
    ok = finished_count == counters[w.FINISHED_DECODE] + counters[w.FINISHED_PREFILL]
    ok = ok and rejected == counters[w.REJECTED_ROUTER] + counters[w.REJECTED_DECODE]
    ok = ok and lost == counters[w.GIVEN_UP] and cancelled == counters[w.CANCELLED_BY_CLIENT]
    unfinished = arrived - finished_count - rejected - lost - cancelled
    law_text = "arrived = finished + inside + rejected + lost"
    counts_text = f"{arrived:,} = {finished_count:,} + {unfinished:,} + {rejected:,} + {lost:,}"
    if world.settings.patient:
        law_text, counts_text = f"{law_text} + cancelled", f"{counts_text} + {cancelled:,}"
    return Check("I1", law_text, bool(ok and unfinished >= 0), f"{counts_text} requests")


def little_law(world: World) -> Check:
    """I2: Little's law, exactly: requests counted inside at step ends = step ends within stays."""
    settings, request, counters = world.settings, world.request, world.record.counters
    step_count = steps_in(settings.horizon_s, settings.step_s)
    sample_times_s = np.minimum(np.arange(1, step_count + 1) * settings.step_s, settings.horizon_s)
    counted_samples = int(world.record.windows[:-1, w.IN_FRONT_END : w.IN_DECODE + 1].sum())
    arrived_count = int(counters[w.ARRIVED])
    # Clients that came back in the last step, and those that found no request left, one sample
    # each, are counted without a row of their own.
    return_times_s = world.loop.due_s[: world.loop.size[0]]
    begin_s = np.concatenate((request.arrival_s[:arrived_count], return_times_s))
    end_s = np.concatenate((end_times(world, arrived_count), np.full(return_times_s.size, np.nan)))
    sample_bounds = samples_of_stays(begin_s, end_s, sample_times_s)
    exhausted_count = int(counters[w.EXHAUSTED])
    fewest_samples, most_samples = (samples + exhausted_count for samples in sample_bounds)
    law_text = "requests counted inside at step ends = step ends within their stays"
    detail = f"{counted_samples:,} counted, {fewest_samples:,} to {most_samples:,} in the stamps"
    return Check("I2", law_text, fewest_samples <= counted_samples <= most_samples, detail)


def end_times(world: World, arrived: int) -> np.ndarray:
    """Time (s) at which each of the first `arrived` requests ended, answered or not; NaN: not
    yet."""
    request = world.request
    end_s = np.where(request.status >= w.REJECTED, request.ready_s, request.finish_s)
    return np.asarray(end_s[:arrived])


def busy_within_time(world: World) -> Check:
    """I3: no instance is busy longer than the run."""
    busiest_s, horizon_s = float(world.instance.busy_s.max()), world.settings.horizon_s
    is_within = 0 <= busiest_s <= horizon_s * (1 + ROUNDING)
    detail = f"busiest instance {busiest_s:,.3f} of {horizon_s:,.3f} s"
    return Check("I3", "0 <= busy time <= horizon", is_within, detail)


def bytes_conserved(world: World) -> Check:
    """I4: KV bytes sent = KV bytes received + KV bytes in transfer."""
    sent_bytes = float(world.prefill.sent_bytes.sum())
    received_bytes = float(world.decode.received_bytes.sum())
    transfers = world.transfer
    requests_in_transfer = transfers.request[: transfers.active[0]]
    in_transfer_bytes = sum(die_bytes(world, request_row) for request_row in requests_in_transfer)
    ok = math.isclose(sent_bytes, received_bytes + in_transfer_bytes, rel_tol=ROUNDING, abs_tol=1.0)
    detail = f"{sent_bytes:.6g} B = {received_bytes:.6g} B + {in_transfer_bytes:.6g} B"
    return Check("I4a", "KV bytes sent = received + under way", ok, detail)


def within_capacity(windows: pl.DataFrame) -> Check:
    """I4: no plane carries more than its capacity in any window."""
    names = [f"{plane}_utilisation" for plane in ("ub", "rdma", "vpc")]
    most_use = max(float(windows[name].max() or 0.0) for name in names)  # type: ignore[arg-type]
    ok, detail = most_use <= 1 + ROUNDING, f"fullest plane at {100 * most_use:.2f} %"
    return Check("I4b", "no plane above its capacity in any window", ok, detail)


def kv_space_fits(setup: Setup, world: World) -> Check:
    """I5: each rank's KV tokens equal the sum over its requests, and fit; slots add up."""
    decode, request = world.decode, world.request
    is_filled_slot = np.arange(decode.slot_table.shape[1]) < decode.requests[:, None]
    rank_of_row, slot_of_row = np.nonzero(is_filled_slot)
    request_rows = decode.slot_table[is_filled_slot]
    instance_of_request = rank_of_row // world.settings.decode_ranks
    tokens_left = request.output_tokens[request_rows] - request.emitted[request_rows]
    # The running iteration has begun but its tokens are not out.
    is_running = world.instance.running[world.settings.prefills + instance_of_request]
    passes_done = decode.iteration[instance_of_request] - request.joined[request_rows] - is_running
    request_kv_tokens = (
        request.input_tokens[request_rows]
        + request.emitted[request_rows]
        + passes_done * (tokens_left / (request.due[request_rows] - request.joined[request_rows]))
    )
    kv_of_rank = np.bincount(rank_of_row, request_kv_tokens, decode.requests.size)
    largest_gap = float((np.abs(kv_of_rank - decode.context) / np.maximum(kv_of_rank, 1.0)).max())
    most_slots = slots_of_decode_ranks(setup, setup.of_role("decode"))
    is_placed = (request.rank[request_rows] == rank_of_row) & (
        request.slot[request_rows] == slot_of_row
    )
    slots_agree = is_placed.all() and bool((decode.requests <= decode.taken_slots).all())
    slots_agree = slots_agree and bool((decode.taken_slots <= most_slots).all())
    rank_count = decode.requests.size
    kv_space_tokens = decode.kv_tokens[np.arange(rank_count) // world.settings.decode_ranks]
    shared_kv_tokens = np.array([shared_tokens(world, cell) for cell in range(rank_count)])
    used_tokens = kv_of_rank + decode.requests * (0.5 * world.settings.page_tokens)
    fullest = float(((used_tokens - shared_kv_tokens) / kv_space_tokens).max())
    return Check(
        "I5a", "KV tokens and slots of a rank = those of its requests, and fit",
        bool(slots_agree and largest_gap <= 1e-6 and fullest <= 1 + ROUNDING),
        f"largest gap {largest_gap:.1e} of a rank's tokens; fullest rank at {100 * fullest:.1f} %",
    )  # fmt: skip


def pool_consistent(world: World) -> Check:
    """I5: resident blocks are linked once, counted once, and fit."""
    pool = world.pool
    all_fit = True
    for tier in (pool, world.ssd):
        for row in range(tier.used.size):
            resident_blocks = int((tier.newer[row] != ABSENT).sum())
            all_fit = all_fit and resident_blocks == tier.used[row] <= max(tier.capacity[row], 0)
    used_blocks, capacity_blocks = int(pool.used.sum()), int(pool.capacity.sum())
    law_text = "memory pool: resident blocks = counted blocks <= capacity"
    return Check("I5b", law_text, bool(all_fit), f"{used_blocks:,} of {capacity_blocks:,} blocks")


def prefix_cache_fits(world: World) -> Check | None:
    """I5: blocks in HBM are counted once; idle ones use only spare KV space. None: no prefix
    cache."""
    hbm, prefix, settings = world.hbm, world.prefix, world.settings
    if not settings.in_hbm:
        return None
    users, is_resident = prefix.users, hbm.newer != ABSENT
    counts_agree = (is_resident.sum(axis=1) == hbm.used).all()
    counts_agree = counts_agree and (users.sum(axis=1) == prefix.pins).all()
    counts_agree = counts_agree and ((is_resident & (users == 0)).sum(axis=1) == prefix.idle).all()
    counts_agree = counts_agree and bool(is_resident[users > 0].all())
    request_tokens = prefix.begun_tokens - prefix.pins * settings.block_tokens
    kv_tokens = np.full(request_tokens.shape, settings.prompt_kv_tokens)
    if settings.colocated:
        request_tokens += world.decode.context + world.decode.requests * 0.5 * settings.page_tokens
        kv_tokens = np.repeat(world.decode.kv_tokens, settings.decode_ranks)
    fullness = (request_tokens + hbm.used * settings.held_block_tokens) / kv_tokens
    fullest_share = float(fullness[prefix.idle > 0].max(initial=0.0))
    return Check(
        "I5c", "prefix cache: blocks counted once, and no more than HBM has room for",
        bool(counts_agree and fullest_share <= 1 + ROUNDING),
        f"{int(prefix.idle.sum()):,} blocks idle; fullest with such at {100 * fullest_share:.1f} %",
    )  # fmt: skip


def swapped_conserved(world: World) -> Check | None:
    """I5: KV copied to host memory = copied back + dropped + present, and the present bytes are
    those of the requests listed there; None without swap."""
    settings, decode = world.settings, world.decode
    if settings.swap_bytes <= 0.0:
        return None
    held_bytes, out_bytes, back_bytes, dropped_bytes = decode.swapped_bytes.T
    listed_bytes = np.zeros(held_bytes.size)
    listed_count = np.zeros(decode.swapped_out.size, np.int64)
    for rank, first_request in enumerate(decode.swapped[:, w.HEAD]):
        request_row = int(first_request)
        while request_row != w.NONE:
            listed_bytes[rank] += held_die_bytes(world, request_row)
            listed_count[rank // settings.decode_ranks] += 1
            request_row = int(world.request.following[request_row])
    gap_bytes = max(
        np.abs(out_bytes - back_bytes - dropped_bytes - held_bytes).max(),
        np.abs(held_bytes - listed_bytes).max(),
    )
    is_conserved = gap_bytes <= 1.0 + 1e-9 * out_bytes.max()
    is_conserved = is_conserved and held_bytes.max() <= settings.swap_bytes
    return Check(
        "I5d", "KV copied to host memory = copied back + dropped + there, and fits",
        bool(is_conserved and (listed_count == decode.swapped_out).all()),
        f"{out_bytes.sum():.6g} B out, {back_bytes.sum():.6g} B back, "
        f"{held_bytes.sum():.6g} B there",
    )  # fmt: skip


def stamps_in_order(requests: pl.DataFrame) -> Check:
    """I6, I7: the stamps of every request are in order."""
    unordered_count = missing_count = 0
    # NaN: missing. The end of a transfer is the first token.
    for earlier_s, later_s in pairwise(requests[stamp_name].to_numpy() for stamp_name in STAMPS):
        unordered_count += int(np.count_nonzero(earlier_s > later_s))
        missing_count += int(np.count_nonzero(np.isnan(earlier_s) & ~np.isnan(later_s)))
    law_text = "arrival <= front end <= routed <= prefill <= transfer <= first token <= finish"
    detail = f"{unordered_count} out of order, {missing_count} with a stamp missing"
    return Check("I6", law_text, unordered_count == 0 and missing_count == 0, detail)


def work_conserving(world: World) -> Check:
    """I8: no instance is idle at the end while a request it could take waits."""
    idle_instances = 0
    request, prefill, decode, instance = world.request, world.prefill, world.decode, world.instance
    horizon_s = world.settings.horizon_s
    for row in range(prefill.queue.shape[0]):
        first_request, column = prefill.queue[row, w.HEAD], world.settings.prompt_row + row
        is_busy = prefill.reading[row] or instance.running[column]
        earliest_start_s = max(request.ready_s[first_request], instance.ends_s[column])
        is_waiting = first_request != w.NONE and earliest_start_s <= horizon_s
        idle_instances += int(instance.up[column] and is_waiting and not is_busy)
    for row in range(decode.wait.shape[0]):
        first_request, column = decode.wait[row, w.HEAD], world.settings.prefills + row
        is_due = first_request != w.NONE and request.ready_s[first_request] <= horizon_s
        is_waiting = is_due or decode.in_batch[row] > 0
        may_start = instance.up[column] and instance.ends_s[column] <= horizon_s
        is_busy = instance.running[column] or (world.settings.colocated and prefill.reading[row])
        idle_instances += int(may_start and is_waiting and not is_busy)
    detail = f"{idle_instances} idle with work"
    return Check("I8", "no instance idle while work waits", idle_instances == 0, detail)


def tokens_conserved(world: World) -> Check:
    """I10: decode tokens recorded = tokens of answers, finished or running."""
    request, settings = world.request, world.settings
    booked_tokens = world.record.windows[:-1, w.DECODE_TOKENS].sum()
    if not settings.has_decode:
        return Check("I10", "decode tokens booked = tokens of answers", True, "no decode pool")
    decode = world.decode
    is_filled_slot = np.arange(decode.slot_table.shape[1]) < decode.requests[:, None]
    running_rows = decode.slot_table[is_filled_slot]
    instance_of_request = request.rank[running_rows] // settings.decode_ranks
    passes_done = decode.iteration[instance_of_request] - request.joined[running_rows]
    tokens_left = request.output_tokens[running_rows] - request.emitted[running_rows]
    passes_due = np.maximum(request.due[running_rows] - request.joined[running_rows], 1)
    in_progress_tokens = float((tokens_left * passes_done / passes_due).sum())
    # Prefill computes one token of a request each time that it joins; a preemption, a fault or a
    # client that leaves rounds the answer so far down to whole tokens.
    emitted_tokens = int(request.emitted.astype(np.int64).sum())
    decoded_tokens = emitted_tokens - int(world.record.counters[w.JOINED])
    answer_tokens = decoded_tokens + in_progress_tokens + float(world.record.rounded_tokens[0])
    # Open to the last iteration of each instance, cut off at the horizon.
    slack_tokens = float(decode.growth.sum()) + 1.0
    gap_tokens = abs(booked_tokens - answer_tokens)
    ok = gap_tokens <= slack_tokens + 1e-6 * answer_tokens
    detail = f"{booked_tokens:,.0f} booked, {answer_tokens:,.0f} in answers"
    return Check("I10", "decode tokens booked = tokens of answers", ok, detail)


def npus_not_shared(setup: Setup, life: Life) -> Check:
    """I12: an NPU belongs to one instance at a time, and no more NPUs are held than allowed."""
    spans_of_die: dict[int, list[tuple[float, float]]] = {}
    for instance_number, spans in life.held_intervals().items():
        for die in life.dies[instance_number]:
            spans_of_die.setdefault(die, []).extend(spans)
    overlap_count = 0
    for spans in spans_of_die.values():
        spans.sort()
        overlap_count += sum(begin_s < end_s for (_, end_s), (begin_s, _) in pairwise(spans))
    npu_count = setup.fabric.npus_of(spans_of_die)
    npus_allowed = max(setup.scenario.elastic.npus, npus_used(setup.scenario))
    ok = overlap_count == 0 and npu_count <= npus_allowed
    detail = f"{overlap_count} shared; {npu_count} of {numbered(npus_allowed, 'NPU')} were used"
    return Check("I12", "an NPU belongs to one instance at a time", ok, detail)


def dies_not_shared(seats: pl.DataFrame) -> Check:
    """I12: a die serves instances of one model at a time; seats: table of all models' dies."""
    spans_by_die: dict[int, list[tuple[float, float, str]]] = {}
    for seat in seats.iter_rows(named=True):
        for die in range(seat["first_die"], seat["first_die"] + seat["dies"]):
            spans_by_die.setdefault(die, []).append((seat["t_s"], seat["end_s"], seat["model"]))
    shared_dies = 0
    for spans in spans_by_die.values():
        span_pairs = combinations(spans, 2) if len({model for _, _, model in spans}) > 1 else ()
        shared_dies += any(
            model_a != model_b and begin_a_s < end_b_s and begin_b_s < end_a_s
            for (begin_a_s, end_a_s, model_a), (begin_b_s, end_b_s, model_b) in span_pairs
        )
    detail = f"{numbered(shared_dies, 'die')} served two models"
    return Check("I12", "a die serves one model at a time", shared_dies == 0, detail)


def experts_conserved(setup: Setup) -> Check:
    """I11: tokens sent to experts equal tokens received by dies, layer by layer."""
    largest_gap = 0.0
    for imbalance in (setup.prefill_imbalance, setup.decode_imbalance):
        largest_gap = max(largest_gap, float(np.abs(imbalance.die_load.mean(axis=1) - 1.0).max()))
    ok, detail = largest_gap <= 1e-6, f"largest gap {largest_gap:.1e}"
    return Check("I11", "expert load over dies = tokens x top-k in every layer", ok, detail)


def figures_finite(tables: dict[str, pl.DataFrame]) -> Check:
    """I14: no NaN, no infinity, no negative value in columns that cannot be negative."""
    wrong_columns = [
        f"{table_name}.{column.name}"
        for table_name, table in tables.items()
        for column in table.iter_columns()
        if column.dtype == pl.Float64
        and (lowest_value := column.min()) is not None
        and not (lowest_value >= 0 and math.isfinite(column.sum()))  # type: ignore[operator]
    ]
    detail = f"bad: {', '.join(wrong_columns) or 'none'}"
    return Check("I14", "every figure finite and not negative", not wrong_columns, detail)
