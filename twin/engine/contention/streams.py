"""Streams: bytes on their way to and from the memory pool, at a rate that changes on the way.

A stream is what one flow still has to carry. Its rate stays until the flow's share of the links
changes at a step's border; what it moved is recorded then or when it ends. What begins inside
a step takes no more than the links have left, since the others hear of it at the border only."""

import math

from twin.engine import codes as w
from twin.engine.books import record_traffic
from twin.engine.columns import World
from twin.engine.contention.levels import MOVERS
from twin.engine.contention.shared_links import Traffic
from twin.engine.lists import fill, insert_sorted
from twin.kernels.compiled import kernel

ABSENT = 1e30  # bytes/s of a flow that is not laid out (contention/flows.IDLE)


@kernel
def stream_end_s(world: World, v: int) -> float:
    """Time (s) at which stream v ends at its present rate; infinite while the rate is 0."""
    streams = world.streams
    if streams.left_bytes[v] <= 0.0:
        return float(streams.since_s[v])
    if streams.rate[v] <= 0.0:
        return math.inf
    return float(streams.since_s[v] + streams.left_bytes[v] / streams.rate[v])


@kernel
def batch_read_end_s(world: World, p: int) -> float:
    """Time (s) at which instance p has read its batch's cached KV, from DRAM and SSD."""
    first_recall_stream = w.RECALLS * world.settings.prefills  # reads are the first of the streams
    return max(stream_end_s(world, p), stream_end_s(world, first_recall_stream + p))


@kernel
def record_stream(world: World, v: int, now_s: float) -> None:
    """Record the bytes that stream v moved since they were last recorded, up to now_s."""
    streams = world.streams
    since_s, left_bytes = streams.since_s[v], streams.left_bytes[v]
    if now_s <= since_s:
        return
    streams.since_s[v] = now_s
    if left_bytes <= 0.0 or streams.rate[v] <= 0.0:
        return
    end_s, sent_bytes = since_s + left_bytes / streams.rate[v], left_bytes
    if end_s > now_s:
        sent_bytes = min(left_bytes, streams.rate[v] * (now_s - since_s))
    streams.left_bytes[v] = left_bytes - sent_bytes
    settings, prefill_count = world.settings, world.settings.prefills
    kind, prefill_instance = v // prefill_count, v % prefill_count
    column = settings.prompt_row + prefill_instance
    plane = settings.pool_plane if kind <= w.WRITES else w.VPC
    record_traffic(world, w.STREAMS[kind], plane, column, since_s, min(end_s, now_s), sent_bytes)


@kernel
def add_to_stream(world: World, v: int, now_s: float, amount: float) -> None:
    """Add `amount` bytes to stream v, behind those in transfer; one without bytes begins now.
    Without a path the bytes are dropped: such blocks are not stored."""
    streams = world.streams
    if world.traffic.alone[streams.flow[v]] >= ABSENT:
        return
    if stream_end_s(world, v) <= now_s:
        drop_stream(world, v, now_s)
        flow_number = streams.flow[v]
        streams.since_s[v] = max(streams.since_s[v], now_s)
        rate_share = min(world.traffic.wish[flow_number], free_rate_share(world, v, now_s, amount))
        streams.rate[v] = world.traffic.alone[flow_number] * rate_share
    streams.left_bytes[v] += amount
    list_stream(world, v)


@kernel
def list_stream(world: World, v: int) -> None:
    """Add stream v to the active ones, which every step's border examines until they are empty."""
    streams = world.streams
    if not streams.is_busy[v]:
        streams.is_busy[v] = 1
        insert_sorted(streams.busy, 0, streams.count[0], v)
        streams.count[0] += 1


@kernel
def drop_stream(world: World, v: int, now_s: float) -> None:
    """Record what stream v has moved and cancel its remaining bytes."""
    record_stream(world, v, now_s)
    world.streams.left_bytes[v] = world.streams.rate[v] = 0.0


@kernel
def has_bytes(world: World, v: int, now_s: float) -> bool:
    """Whether stream v has bytes left at time now_s; if it has ended, record its last bytes."""
    streams = world.streams
    if streams.left_bytes[v] <= 0.0 or streams.since_s[v] > now_s:
        return False
    if stream_end_s(world, v) > now_s:
        return True
    drop_stream(world, v, now_s)
    return False


@kernel
def update_rates(world: World, now_s: float) -> None:
    """Set every active stream's bytes/s to the present rate of its flow."""
    streams, flows = world.streams, world.traffic
    left_bytes, since_s = streams.left_bytes, streams.since_s
    stream_rates, flow_of_stream = streams.rate, streams.flow
    alone_bytes_per_s, flow_levels, is_active = flows.alone, flows.level, flows.active
    read_end_s = world.prefill.read_end_s
    for index in range(streams.count[0]):
        stream = streams.busy[index]
        if left_bytes[stream] <= 0.0 or since_s[stream] > now_s:
            continue
        flow = flow_of_stream[stream]
        bytes_per_s = alone_bytes_per_s[flow] * flow_levels[flow] if is_active[flow] else 0.0
        # The pool is out of reach: what was requested still comes.
        if alone_bytes_per_s[flow] >= ABSENT:
            bytes_per_s = stream_rates[stream]
            if bytes_per_s <= 0.0:
                left_bytes[stream] = 0.0
        if bytes_per_s != stream_rates[stream]:
            record_stream(world, stream, now_s)
            stream_rates[stream] = bytes_per_s
        prefill_instance = stream % read_end_s.size
        if stream == prefill_instance or stream // read_end_s.size == w.RECALLS:
            read_end_s[prefill_instance] = batch_read_end_s(world, prefill_instance)


@kernel
def free_rate_share(world: World, v: int, begin_s: float, amount: float) -> float:
    """Share (0..1) of stream v's full rate that other flows leave for `amount` bytes from begin_s
    on. Within a step instances advance one after the other, so another may begin later: it counts
    if it begins before v ends at full rate. Exchanges do not count: they yield at borders."""
    streams, flows = world.streams, world.traffic
    left_bytes, since_s = streams.left_bytes, streams.since_s
    rates, flow_of = streams.rate, streams.flow
    alone_bytes_per_s, flow_levels, link_loads = flows.alone, flows.level, flows.scratch
    end_s = begin_s + amount / alone_bytes_per_s[flow_of[v]]
    has_other_flows = False
    for index in range(streams.count[0]):
        other = streams.busy[index]
        if left_bytes[other] <= 0.0 or rates[other] <= 0.0 or other == v:
            continue
        if since_s[other] < end_s and since_s[other] + left_bytes[other] / rates[other] > begin_s:
            if not has_other_flows:
                fill(link_loads, 0.0)
                has_other_flows = True
            add_link_use(flows, flow_of[other], rates[other] / alone_bytes_per_s[flow_of[other]])
    first_stream_flow, end_flow = flows.first[w.POOL_READ], flows.last[w.SSD_READ]
    for index in range(flows.counts[MOVERS]):  # flows that are neither exchanges nor streams
        flow = flows.movers[index]
        is_foreign = not first_stream_flow <= flow < end_flow  # another model's: its streams too
        if is_foreign or flows.first[w.KV_HAND_OFF] <= flow < flows.last[w.WEIGHTS]:
            if not has_other_flows:
                fill(link_loads, 0.0)
                has_other_flows = True
            add_link_use(flows, flow, flow_levels[flow])
    least_rate_share = 1.0
    if has_other_flows:
        links, link_parts = flows.links, flows.parts
        for crossing in range(flows.start[flow_of[v]], flows.end[flow_of[v]]):
            free_link_share = max(0.0, 1.0 - link_loads[links[crossing]])
            if free_link_share < link_parts[crossing]:  # to divide at every link would be slow
                least_rate_share = min(least_rate_share, free_link_share / link_parts[crossing])
    return least_rate_share


@kernel
def add_link_use(flows: Traffic, f: int, level: float) -> None:
    """Add what flow f takes of its links at `level` (share of its full rate) to `scratch`."""
    link_loads, links, link_parts = flows.scratch, flows.links, flows.parts
    for crossing in range(flows.start[f], flows.end[f]):
        link_loads[links[crossing]] += link_parts[crossing] * level
