"""Invariants: what must hold of every run, checked on its final state.

Each check states a law and says whether it held and by how much. A run with a failed check is not
valid and is never shown as a result. Ids follow the list in the project's reliability notes."""

import math
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine.build import slots_of
from twin.engine.clock import steps_in
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import die_bytes
from twin.engine.in_hbm import shared_tokens
from twin.engine.lifecycle.life import Life
from twin.engine.setup import Setup
from twin.engine.swap import copied_bytes
from twin.engine.tabling import parts
from twin.metrics.latency import STAMPS
from twin.metrics.steadiness import samples_of_stays
from twin.policies.memory_pool import ABSENT
from twin.scenario import npus_used

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Check:
    """One law, whether it held, and the figures behind the verdict."""

    id: str
    statement: str
    ok: bool
    detail: str


def check_all(setup: Setup, world: World, tables: dict[str, pl.DataFrame]) -> list[Check]:
    """Check every invariant of a finished run but the memory pool's, which is checked earlier."""
    swapped = swapped_conserved(world)
    return [
        conserved(world),
        little(world),
        busy_within_time(world),
        bytes_conserved(world),
        within_capacity(tables["windows"]),
        kv_space(setup, world),
        *([swapped] if swapped else []),
        causal(tables["requests"]),
        work_conserving(world),
        tokens_conserved(world),
        experts_conserved(setup),
        finite(tables),
    ]


def conserved(world: World) -> Check:
    """I1, I13: every request that arrived is in exactly one place."""
    arrived = int(world.record.counters[w.ARRIVED])
    status = world.request.status[:arrived]
    finished = int((status == w.FINISHED).sum())
    rejected = int((status == w.REJECTED).sum())
    c = world.record.counters
    lost, cancelled = int((status == w.LOST).sum()), int((status == w.CANCELLED).sum())
    ok = finished == c[w.FINISHED_DECODE] + c[w.FINISHED_PREFILL]
    ok = ok and rejected == c[w.REJECTED_ROUTER] + c[w.REJECTED_DECODE]
    ok = ok and lost == c[w.GIVEN_UP] and cancelled == c[w.CANCELLED_BY_CLIENT]
    unfinished = arrived - finished - rejected - lost - cancelled
    law = "arrived = finished + inside + rejected + lost"
    counts = f"{arrived:,} = {finished:,} + {unfinished:,} + {rejected:,} + {lost:,}"
    if world.settings.patient:
        law, counts = f"{law} + cancelled", f"{counts} + {cancelled:,}"
    return Check("I1", law, bool(ok and unfinished >= 0), f"{counts} requests")


def little(world: World) -> Check:
    """I2: Little's law, exactly: requests counted inside at step ends = samples in their stays."""
    s, r, c = world.settings, world.request, world.record.counters
    steps = steps_in(s.horizon_s, s.step_s)
    at_s = np.minimum(np.arange(1, steps + 1) * s.step_s, s.horizon_s)
    counted = int(world.record.windows[:-1, w.IN_FRONT_END : w.IN_DECODE + 1].sum())
    arrived = int(c[w.ARRIVED])
    # Clients that came back in the last step, and those that found no request left, one sample
    # each, are counted without a row of their own.
    returns_s = world.loop.due_s[: world.loop.size[0]]
    begin_s = np.concatenate((r.arrival_s[:arrived], returns_s))
    end_s = np.concatenate((ends_of(world, arrived), np.full(returns_s.size, np.nan)))
    fewest = most = int(c[w.EXHAUSTED])
    for part in parts(begin_s.size):
        certain, possible = samples_of_stays(begin_s[part], end_s[part], at_s)
        fewest, most = fewest + certain, most + possible
    return Check(
        "I2", "requests counted inside at step ends = step ends within their stays",
        fewest <= counted <= most, f"{counted:,} counted, {fewest:,} to {most:,} in the stamps",
    )  # fmt: skip


def ends_of(world: World, arrived: int) -> np.ndarray:
    """End time of each arrived request, with or without an answer (s); NaN while it is inside."""
    r = world.request
    return np.asarray(np.where(r.status >= w.REJECTED, r.ready_s, r.finish_s)[:arrived])


def busy_within_time(world: World) -> Check:
    """I3: no instance is busy longer than the run."""
    most = float(world.instance.busy_s.max())
    limit = world.settings.horizon_s
    return Check(
        "I3", "0 <= busy time <= horizon", 0 <= most <= limit * (1 + ROUNDING),
        f"busiest instance {most:,.3f} of {limit:,.3f} s",
    )  # fmt: skip


def bytes_conserved(world: World) -> Check:
    """I4: KV bytes sent = KV bytes received + KV bytes in transfer."""
    sent_bytes = float(world.prefill.sent_bytes.sum())
    received = float(world.decode.received_bytes.sum())
    t = world.transfer
    in_transfer_bytes = 0.0
    for k in range(int(t.active[0])):
        in_transfer_bytes += die_bytes(world, t.request[k])
    ok = math.isclose(sent_bytes, received + in_transfer_bytes, rel_tol=ROUNDING, abs_tol=1.0)
    return Check(
        "I4a", "KV bytes sent = received + under way", ok,
        f"{sent_bytes:.6g} B = {received:.6g} B + {in_transfer_bytes:.6g} B",
    )  # fmt: skip


def within_capacity(windows: pl.DataFrame) -> Check:
    """I4: no plane carries more than its capacity."""
    planes = [f"{p}_utilisation" for p in ("ub", "rdma", "vpc")]
    most = max(float(windows[p].max() or 0.0) for p in planes)  # type: ignore[arg-type]
    return Check(
        "I4b", "no plane above its capacity in any window", most <= 1 + ROUNDING,
        f"fullest plane at {100 * most:.2f} %",
    )  # fmt: skip


def kv_space(setup: Setup, world: World) -> Check:
    """I5: each rank's KV tokens equal those of its requests and fit; slots add up."""
    d, r = world.decode, world.request
    is_taken = np.arange(d.slot_table.shape[1]) < d.requests[:, None]
    rank, slot = np.nonzero(is_taken)
    i = d.slot_table[is_taken]
    instance = rank // world.settings.decode_ranks
    left = r.output_tokens[i] - r.emitted[i]
    # The running iteration has begun but its tokens are not out.
    running = world.instance.running[world.settings.prefills + instance]
    passes = d.iteration[instance] - r.joined[i] - running
    tokens = r.input_tokens[i] + r.emitted[i] + passes * (left / (r.due[i] - r.joined[i]))
    by_rank = np.bincount(rank, tokens, d.requests.size)
    worst = float((np.abs(by_rank - d.context) / np.maximum(by_rank, 1.0)).max())
    built = slots_of(setup, setup.of_role("decode"))
    slots_ok = (r.rank[i] == rank).all() and (r.slot[i] == slot).all()
    slots_ok = slots_ok and bool((d.requests <= d.taken_slots).all())
    slots_ok = slots_ok and bool((d.taken_slots <= built).all())
    room = d.kv_tokens[np.arange(d.requests.size) // world.settings.decode_ranks]
    page = 0.5 * world.settings.page_tokens
    shared = np.array([shared_tokens(world, r) for r in range(d.requests.size)])
    fullest = float(((by_rank + d.requests * page - shared) / room).max())
    return Check(
        "I5a", "KV tokens and slots of a rank = those of its requests, and fit",
        bool(slots_ok and worst <= 1e-6 and fullest <= 1 + ROUNDING),
        f"largest gap {worst:.1e} of a rank's tokens; fullest rank at {100 * fullest:.1f} %",
    )  # fmt: skip


def pool_consistent(world: World) -> Check:
    """I5: resident blocks are linked once, counted once, and fit."""
    pool = world.pool
    ok = True
    for tier in (pool, world.ssd):
        for row in range(tier.used.size):
            resident = int((tier.newer[row] != -2).sum())
            ok = ok and resident == tier.used[row] <= max(tier.capacity[row], 0)
    used, room = int(pool.used.sum()), int(pool.capacity.sum())
    return Check(
        "I5b", "memory pool: resident blocks = counted blocks <= capacity", bool(ok),
        f"{used:,} of {room:,} blocks",
    )  # fmt: skip


def prefix_cache_fits(world: World) -> Check | None:
    """I5: blocks in HBM are counted once, idle ones only in spare room; None: no prefix cache."""
    hbm, prefix, s = world.hbm, world.prefix, world.settings
    if not s.in_hbm:
        return None
    users, resident = prefix.users, hbm.newer != ABSENT
    ok = (resident.sum(axis=1) == hbm.used).all() and (users.sum(axis=1) == prefix.pins).all()
    ok = ok and ((resident & (users == 0)).sum(axis=1) == prefix.idle).all()
    ok = ok and bool(resident[users > 0].all())
    own = prefix.begun_tokens - prefix.pins * s.block_tokens
    room = np.full(own.shape, s.prompt_kv_tokens)
    if s.colocated:
        own += world.decode.context + world.decode.requests * 0.5 * s.page_tokens
        room = np.repeat(world.decode.kv_tokens, s.decode_ranks)
    full = (own + hbm.used * s.held_block_tokens) / room
    fullest = float(full[prefix.idle > 0].max(initial=0.0))
    return Check(
        "I5c", "prefix cache: blocks counted once, and no more than HBM has room for",
        bool(ok and fullest <= 1 + ROUNDING),
        f"{int(prefix.idle.sum()):,} blocks idle; fullest with such at {100 * fullest:.1f} %",
    )  # fmt: skip


def swapped_conserved(world: World) -> Check | None:
    """I5: KV copied to host memory = copied back + dropped + there, which is that of the requests
    whose KV is there; None without swap."""
    s, d = world.settings, world.decode
    if s.swap_bytes <= 0.0:
        return None
    held, out, back, dropped = d.swapped_bytes.T
    there, count = np.zeros(held.size), np.zeros(d.swapped_out.size, np.int64)
    for rank, head in enumerate(d.swapped[:, w.HEAD]):
        i = int(head)
        while i != w.NONE:
            there[rank] += copied_bytes(world, i)
            count[rank // s.decode_ranks] += 1
            i = int(world.request.following[i])
    gap = max(np.abs(out - back - dropped - held).max(), np.abs(held - there).max())
    ok = gap <= 1.0 + 1e-9 * out.max() and held.max() <= s.swap_bytes
    return Check(
        "I5d", "KV copied to host memory = copied back + dropped + there, and fits",
        bool(ok and (count == d.swapped_out).all()),
        f"{out.sum():.6g} B out, {back.sum():.6g} B back, {held.sum():.6g} B there",
    )  # fmt: skip


def causal(requests: pl.DataFrame) -> Check:
    """I6, I7: the stamps of every request are in order."""
    # NaN: missing. The end of a transfer is the first token.
    pairs = list(pairwise(requests[name].to_numpy() for name in STAMPS))
    wrong_rows = sum(int((before > after).sum()) for before, after in pairs)
    gaps = sum(int((np.isnan(before) & ~np.isnan(after)).sum()) for before, after in pairs)
    return Check(
        "I6", "arrival <= front end <= routed <= prefill <= transfer <= first token <= finish",
        wrong_rows == 0 and gaps == 0, f"{wrong_rows} out of order, {gaps} with a stamp missing",
    )  # fmt: skip


def work_conserving(world: World) -> Check:
    """I8: no instance is idle at the end while a request it could take waits."""
    idle = 0
    r, p, d, instance = world.request, world.prefill, world.decode, world.instance
    horizon_s = world.settings.horizon_s
    for row in range(p.queue.shape[0]):
        head, column = p.queue[row, w.HEAD], world.settings.prompt_row + row
        busy = p.reading[row] or instance.running[column]
        is_waiting = head != w.NONE and max(r.ready_s[head], instance.ends_s[column]) <= horizon_s
        idle += int(instance.up[column] and is_waiting and not busy)
    for row in range(d.wait.shape[0]):
        head, column = d.wait[row, w.HEAD], world.settings.prefills + row
        is_waiting = (head != w.NONE and r.ready_s[head] <= horizon_s) or d.in_batch[row] > 0
        may_start = instance.up[column] and instance.ends_s[column] <= horizon_s
        busy = instance.running[column] or (world.settings.colocated and p.reading[row])
        idle += int(may_start and is_waiting and not busy)
    return Check("I8", "no instance idle while work waits", idle == 0, f"{idle} idle with work")


def tokens_conserved(world: World) -> Check:
    """I10: decode tokens booked = tokens of answers, finished or running."""
    r, s = world.request, world.settings
    book = world.record.windows[:-1, w.DECODE_TOKENS].sum()
    finished = r.status == w.FINISHED
    if not s.has_decode:
        return Check("I10", "decode tokens booked = tokens of answers", True, "no decode pool")
    out = float((r.output_tokens[finished].astype(np.int64) - 1).sum())
    # Those in a slot: one that came back from a preemption and waits still has its old stamps.
    decode = world.decode
    i = decode.slot_table[np.arange(decode.slot_table.shape[1]) < decode.requests[:, None]]
    d = r.rank[i] // s.decode_ranks
    passes = decode.iteration[d] - r.joined[i]
    left = r.output_tokens[i] - r.emitted[i]
    in_progress = float((left * passes / np.maximum(r.due[i] - r.joined[i], 1)).sum())
    in_progress += float((np.maximum(r.emitted[~finished], 1) - 1).sum())
    # Open to the last iteration of each instance, cut off at the horizon, and to one token each
    # preemption rounds away or has prefill compute anew.
    slack = float(world.decode.growth.sum()) + 1.0
    slack += 2.0 * float(r.preemptions.sum()) + 2.0 * float(r.retries.sum())
    slack += 2.0 * float((r.status == w.CANCELLED).sum())
    gap = abs(book - out - in_progress)
    return Check(
        "I10", "decode tokens booked = tokens of answers", gap <= slack + 1e-6 * out,
        f"{book:,.0f} booked, {out + in_progress:,.0f} in answers",
    )  # fmt: skip


def one_role(setup: Setup, life: Life) -> Check:
    """I12: an NPU belongs to one instance at a time, and no more NPUs are held than allowed."""
    starts: dict[int, list[tuple[float, float]]] = {}
    for k, spans in life.stays().items():
        for die in life.dies[k]:
            starts.setdefault(die, []).extend(spans)
    shared = 0
    for spans in starts.values():
        spans.sort()
        shared += sum(after[0] < before[1] for before, after in pairwise(spans))
    npus = setup.fabric.npus_of(starts)
    npus_allowed = max(setup.scenario.elastic.npus, npus_used(setup.scenario))
    return Check(
        "I12", "an NPU belongs to one instance at a time", shared == 0 and npus <= npus_allowed,
        f"{shared} shared; {npus} of {npus_allowed} NPUs were used",
    )  # fmt: skip


def one_model(seats: pl.DataFrame) -> Check:
    """I12: a die serves the instances of one model at a time. seats: of all models."""
    spans_by_die: dict[int, list[tuple[float, float, str]]] = {}
    for row in seats.iter_rows(named=True):
        for die in range(row["first_die"], row["first_die"] + row["dies"]):
            spans_by_die.setdefault(die, []).append((row["t_s"], row["end_s"], row["model"]))
    shared = 0
    for spans in spans_by_die.values():
        pairs = combinations(spans, 2) if len({model for _, _, model in spans}) > 1 else ()
        shared += any(a[2] != b[2] and a[0] < b[1] and b[0] < a[1] for a, b in pairs)
    return Check(
        "I12", "a die serves one model at a time", shared == 0, f"{shared} dies served two models"
    )


def experts_conserved(setup: Setup) -> Check:
    """I11: tokens sent to experts equal tokens received by dies, layer by layer."""
    worst = 0.0
    for hot in (setup.prefill_imbalance, setup.decode_imbalance):
        worst = max(worst, float(np.abs(hot.die_load.mean(axis=1) - 1.0).max()))
    return Check(
        "I11", "expert load over dies = tokens x top-k in every layer", worst <= 1e-6,
        f"largest gap {worst:.1e}",
    )  # fmt: skip


def finite(tables: dict[str, pl.DataFrame]) -> Check:
    """I14: no NaN, no infinity, no negative value in columns that cannot be negative."""
    wrong = [
        f"{name}.{column.name}"
        for name, table in tables.items()
        for column in table.iter_columns()
        if column.dtype == pl.Float64
        and (least := column.min()) is not None
        and not (least >= 0 and math.isfinite(column.sum()))  # type: ignore[operator]
    ]
    bad = ", ".join(wrong) or "none"
    return Check("I14", "every figure finite and not negative", not wrong, f"bad: {bad}")
