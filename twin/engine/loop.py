"""The loop: steps, phases in order, and a sample of who is where at each step's end."""

from collections.abc import Callable

from twin.engine import codes as w
from twin.engine.books import record_busy
from twin.engine.clients.arrivals import add_arrivals, add_requests, run_front_end, withdraw_expired
from twin.engine.clock import window_of
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import advance_transfers
from twin.engine.contention.streams import record_stream
from twin.engine.contention.traffic import exchange_slowdown, has_other_models, update_traffic
from twin.engine.lists import heap_count, list_length
from twin.engine.phases.colocated import advance_colocated
from twin.engine.phases.decode import advance_decode
from twin.engine.phases.prefill import advance_prefill
from twin.engine.phases.router import route_requests
from twin.kernels.borrowed import compile_entry
from twin.kernels.compiled import entry, kernel, stage
from twin.model.roofline import interpolate

Serve = Callable[[World, float], None]


def _make_loop(serve: Serve) -> Callable[[World, int, int], None]:
    """Return the loop over steps as an entry that is compiled at first use. serve: kernel that
    advances all instances to a time (s)."""

    @entry
    def advance(world: World, first_step: int, last_step: int) -> None:
        """Run steps first_step..last_step - 1 of the model."""
        settings, step = world.settings, first_step
        while step < last_step:
            busy_step = next_busy_step(world, step, last_step)
            if busy_step > step:  # only the memory pool can be non-empty
                used_share = pool_used_share(world)
                for idle_step in range(step, busy_step):
                    idle_step_end_s = min((idle_step + 1) * settings.step_s, settings.horizon_s)
                    sample_stages(world, idle_step_end_s, used_share)
                step = busy_step
                continue
            step_begin_s = step * settings.step_s
            step_end_s = min((step + 1) * settings.step_s, settings.horizon_s)
            if settings.patient:
                withdraw_expired(world, step_begin_s)
            if settings.dynamic:
                add_requests(world, step_begin_s)
            else:
                add_arrivals(world, step_begin_s, step_end_s)
            run_front_end(world, step_end_s)
            route_requests(world, step_begin_s, step_end_s)
            serve(world, step_end_s)
            update_traffic(world, step_end_s)
            sample_stages(world, step_end_s, pool_used_share(world))
            if step % settings.sample_every == 0:
                sample_instances(world, step_end_s)
            step += 1

    return advance


@kernel
def advance_pools(world: World, t1: float) -> None:
    """Advance prefill, KV transfer and decode to t1 (s); either pool may be missing."""
    settings = world.settings
    if settings.has_prefill:
        advance_prefill(world, t1)
    if settings.has_prefill and settings.has_decode:
        advance_transfers(world, t1)
    if settings.has_decode:
        advance_decode(world, t1)


run_disaggregated, run_colocated = _make_loop(advance_pools), _make_loop(advance_colocated)


stage("engine")(lambda: compile_entry(run_disaggregated, World, int, int))
stage("colocated engine")(lambda: compile_entry(run_colocated, World, int, int))


def advance(world: World, first_step: int, last_step: int) -> None:
    """Run steps first_step..last_step - 1 of the model."""
    advance_loop = run_colocated if world.settings.colocated else run_disaggregated
    advance_loop(world, first_step, last_step)


def record_unfinished(world: World) -> None:
    """Record, at the horizon, unfinished streams and the time of batches that are still reading."""
    horizon_s = world.settings.horizon_s
    for stream in range(world.streams.flow.size):
        record_stream(world, stream, horizon_s)
    for prefill_instance in range(world.prefill.reading.size):
        if world.prefill.reading[prefill_instance]:
            column = world.settings.prompt_row + prefill_instance
            record_busy(world, column, world.prefill.begin_s[prefill_instance], horizon_s, 1.0)


@kernel
def requests_inside(world: World) -> int:
    """Number of requests that have arrived and not ended."""
    counters = world.record.counters
    ended_count = counters[w.FINISHED_DECODE] + counters[w.FINISHED_PREFILL]
    ended_count += counters[w.REJECTED_ROUTER] + counters[w.REJECTED_DECODE] + counters[w.GIVEN_UP]
    return int(counters[w.ARRIVED] - ended_count - counters[w.CANCELLED_BY_CLIENT])


@kernel
def next_busy_step(world: World, step: int, last_step: int) -> int:
    """If no request is inside, the first step from `step` on (at most last_step) with an arrival;
    otherwise `step`."""
    settings = world.settings
    if settings.closed_loop or requests_inside(world) > 0 or has_other_models(world):
        return step
    if settings.dynamic:
        if world.loop.size[0] == 0:
            return last_step
        # So far off that it is no step of this run: bounded, or the number would be too large.
        due_s = min(world.loop.due_s[0], settings.horizon_s)
        return max(step, min(int(due_s / settings.step_s) - 1, last_step))
    arrival_s, arrived_count = world.request.arrival_s, world.record.counters[w.ARRIVED]
    if arrived_count == arrival_s.size:
        return last_step
    # A step early: an arrival on a border belongs to the step that ends there.
    return max(step, min(int(arrival_s[arrived_count] / settings.step_s) - 1, last_step))


@kernel
def sample_stages(world: World, t1: float, used_share: float) -> None:
    """Add to the record, at the end t1 of a step, the number of requests in each stage, from
    counters, and the used share `used_share` of the memory pool."""
    settings, counts, windows = world.settings, world.record.counters, world.record.windows
    begun_count, prefilled_count = counts[w.PREFILL_BEGUN], counts[w.PREFILLED]
    if not settings.has_prefill:
        begun_count, prefilled_count = counts[w.ROUTED], counts[w.ROUTED]
    at_decode_count = prefilled_count if not settings.has_decode else counts[w.TRANSFERRED]
    decode_end_count = counts[w.FINISHED_DECODE] + counts[w.REJECTED_DECODE] + counts[w.PREEMPTED]
    decode_end_count += counts[w.BACK_FROM_DECODE]
    returned_count = counts[w.BACK_FROM_QUEUE] + counts[w.BACK_FROM_PREFILL]
    returned_count += counts[w.BACK_FROM_TRANSFER] + counts[w.BACK_FROM_DECODE]
    returned_count += counts[w.PREEMPTED]
    left_router_count = counts[w.ROUTED] + counts[w.REJECTED_ROUTER] + counts[w.GIVEN_UP]
    left_router_count += counts[w.CANCELLED_BY_CLIENT] - counts[w.LEFT_EARLY]
    if not settings.has_decode:
        decode_end_count = counts[w.FINISHED_PREFILL]
    last_row = windows.shape[0] - 1
    due_clients = heap_count(world.loop.due_s, world.loop.size[0], t1)
    front_end_count = counts[w.ARRIVED] - counts[w.FRONTED] - counts[w.LEFT_EARLY] + due_clients
    window_row = window_of(t1 - 0.5 * settings.step_s, settings.horizon_s, last_row)
    for is_steady in range(2 if t1 > settings.warmup_s else 1):
        row = last_row if is_steady == 1 else window_row
        windows[row, w.SAMPLES] += 1.0
        windows[row, w.IN_FRONT_END] += front_end_count
        windows[row, w.IN_ROUTER] += counts[w.FRONTED] + returned_count - left_router_count
        queued_count = counts[w.ROUTED] - begun_count - counts[w.BACK_FROM_QUEUE]
        windows[row, w.IN_PREFILL_QUEUE] += queued_count
        windows[row, w.IN_PREFILL] += begun_count - prefilled_count - counts[w.BACK_FROM_PREFILL]
        transfer_count = prefilled_count - at_decode_count - counts[w.BACK_FROM_TRANSFER]
        windows[row, w.IN_TRANSFER] += transfer_count
        windows[row, w.IN_DECODE] += at_decode_count - decode_end_count
        windows[row, w.POOL_USED] += used_share


@kernel
def sample_instances(world: World, t1: float) -> None:
    """Add to the record, at the end t1 of a step, waiting and running requests, exchange slowdown
    and imbalance of every instance."""
    settings, sums, costs = world.settings, world.record.instances, world.costs
    row = window_of(t1 - 0.5 * settings.step_s, settings.horizon_s, sums.shape[0] - 1)
    prefill, decode, following = world.prefill, world.decode, world.request.following
    prefills, hot_factors = settings.prefills, costs.prefill_hot_factor
    last_table_point = costs.prefill_hot_tokens.shape[0] - 1
    for prefill_row in range(prefills):
        first_field = prefill_row * w.AT_FIELDS
        sums[row, first_field + w.AT_QUEUE] += list_length(prefill.queue, prefill_row, following)
        sums[row, first_field + w.AT_RUNNING] += list_length(prefill.batch, prefill_row, following)
        sums[row, first_field + w.AT_CROWDED] += exchange_slowdown(world, prefill_row)
        sums[row, first_field + w.AT_HOT] += hot_factors[prefill_row, last_table_point]
        sums[row, first_field + w.AT_SAMPLES] += 1.0
    for decode_row in range(decode.taken.size):
        first_field = (prefills + decode_row) * w.AT_FIELDS
        verified_tokens = (settings.draft_tokens + 1.0) * decode.in_batch[decode_row]
        hot_table = costs.decode_hot_tokens, costs.decode_hot_factor[decode_row]
        sums[row, first_field + w.AT_QUEUE] += list_length(decode.wait, decode_row, following)
        sums[row, first_field + w.AT_RUNNING] += decode.in_batch[decode_row]
        sums[row, first_field + w.AT_CROWDED] += exchange_slowdown(world, prefills + decode_row)
        sums[row, first_field + w.AT_HOT] += interpolate(verified_tokens, *hot_table)
        sums[row, first_field + w.AT_SAMPLES] += 1.0


@kernel
def pool_used_share(world: World) -> float:
    """Used share of the memory pool's DRAM, 0 to 1."""
    pool = world.pool
    used_blocks, capacity_blocks = 0, 0
    for pool_row in range(pool.used.size):
        used_blocks += pool.used[pool_row]
        capacity_blocks += pool.capacity[pool_row]
    return used_blocks / max(capacity_blocks, 1)
