"""Phase: colocated instances prefill and decode in the same iterations.

Each iteration takes a chunk of the waiting prompts together with the whole decode batch, so a long
prompt delays everyone's next token: the contrast that shows what disaggregation buys."""

from twin.engine import codes as w
from twin.engine import pool
from twin.engine.books import record_amount
from twin.engine.columns import World
from twin.engine.contention.traffic import price_exchange
from twin.engine.lists import fill
from twin.engine.phases import decode
from twin.engine.phases.prefill import form_batch, take_computed_request
from twin.engine.swap import begin_copies_s, begin_kv_streams
from twin.kernels.compiled import kernel
from twin.model.mixed import mixed_hits_s, mixed_iteration_s


@kernel
def advance_colocated(world: World, t1: float) -> None:
    """Advance every colocated instance to t1 (s)."""
    decode_state, instance, first_column = world.decode, world.instance, world.settings.prefills
    prefill = world.prefill
    for instance_row in range(decode_state.taken.size):
        while instance.up[first_column + instance_row]:
            if prefill.reading[instance_row]:
                read_end_s = max(
                    prefill.read_end_s[instance_row], instance.ends_s[first_column + instance_row]
                )
                if read_end_s > t1:
                    break
                launch_mixed(world, instance_row, read_end_s)
            # Those whose KV is there from the start wait to join_batch, with or without a prompt.
            now_s = min(
                decode.next_action_s(world, instance_row, prefill.queue[instance_row, w.HEAD]),
                decode.next_action_s(world, instance_row, decode_state.wait[instance_row, w.HEAD]),
            )
            if now_s > t1:
                break
            if instance.running[first_column + instance_row]:
                decode.end_iteration(world, instance_row, now_s)
                finish_chunks(world, instance_row, now_s)
            decode.admit_ready(world, instance_row, now_s)  # who is there when the run begins
            decode.make_room(world, instance_row, now_s)
            batch_tokens = form_batch(world, instance_row, now_s)
            instance.running[first_column + instance_row] = 0
            instance.ends_s[first_column + instance_row] = now_s
            if prefill.batch_reads[instance_row] > 0.0:
                pool.begin_reading(world, instance_row, now_s)
            elif decode_state.in_batch[instance_row] > 0 or batch_tokens > 0:
                launch_mixed(world, instance_row, now_s)


@kernel
def finish_chunks(world: World, c: int, now_s: float) -> None:
    """Deliver first tokens of instance c's prompts whose last chunk is done; they decode next."""
    request = world.request
    pool.set_pool_clock(world, c, now_s)
    blocks_before = pool.blocks_stored(world, c)
    while True:
        request_row = take_computed_request(world, c, now_s, now_s)
        if request_row == w.NONE:
            break
        if request.emitted[request_row] == 0:
            request.transfer_end_s[request_row] = now_s
        request.ready_s[request_row] = now_s
        world.record.counters[w.TRANSFERRED] += 1
        decode.join_batch(world, c, request_row, now_s)
    pool.write_blocks(world, c, now_s, blocks_before)


@kernel
def launch_mixed(world: World, c: int, read_s: float) -> None:
    """Begin an iteration of instance c over its decode batch and the formed chunks of prompts. It
    is recorded from their forming on, and computes from read_s on, when their cached KV is read."""
    settings, state, costs, prefill = world.settings, world.decode, world.costs, world.prefill
    now_s, batch_tokens = prefill.begin_s[c], prefill.batch_tokens[c]
    batch_pairs = prefill.batch_pairs[c]
    pool.record_read_delay(world, c)
    prefill.reading[c] = 0
    price_exchange(world, settings.prefills + c)
    begin_kv_streams(world, c, now_s)
    coefficients, operator_s = costs.decode[c], costs.decode_operators
    fill(operator_s, 0.0)
    iteration_s = mixed_iteration_s(
        coefficients, state.requests, state.context, state.prompt_tokens, state.prompt_pairs,
        c * settings.decode_ranks, settings.decode_ranks, costs.decode_hot_tokens,
        costs.decode_hot_factor[c], operator_s,
    )  # fmt: skip
    if prefill.batch_hits[c] > 0.0:
        iteration_s += mixed_hits_s(coefficients, prefill.batch_hits[c], operator_s)
    iteration_s += begin_copies_s(world, c, now_s, operator_s)
    iteration_s += read_s - now_s
    end_s, window_sums = now_s + iteration_s, world.record.windows
    if batch_tokens > 0.0:
        record_amount(world, window_sums, now_s, end_s, w.PREFILL_TOKENS, batch_tokens)
        record_amount(world, window_sums, now_s, end_s, w.PREFILL_BATCHES, 1.0)
    decode.begin_iteration(world, c, now_s, end_s, batch_tokens, batch_pairs)
