"""Streams to and from the memory pool: conserved, and never more than the links have."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import end_of, machine_at_end, run, small
from twin.engine import codes as w
from twin.engine.contention.streams import add_to_stream, free_rate_share, record_stream
from twin.engine.contention.streams import stream_end_s as stream_end
from twin.engine.contention.traffic import update_traffic
from twin.engine.pool import begin_reading, record_read_delay
from twin.scenario import Fault

# Long shared prompts over a narrow VPC plane: reads and writes of all instances meet at DPUs.
NARROW = {
    "memory_pool.plane": "vpc",
    "supernode.vpc_gb_per_s_per_node": 10.0,
    "workload.prefix": "shared",
    "workload.shared_fraction": 0.6,
    "workload.input_tokens": 8192,
    "workload.rate_req_per_s": 300.0,
    "deployment.mode": "prefill_only",
}


def moved(found, traffic):
    return float(found.tables["traffic"].filter(pl.col("traffic") == traffic)["bytes"].sum())


@pytest.mark.parametrize("mode", ["prefill_only", "colocated"])
def test_what_was_read_and_written_is_booked_once(mode):
    fields = NARROW | {"deployment.mode": mode}
    _, world = end_of(small(fields))
    found = run(fields)
    left = world.streams.left_bytes.reshape(4, -1).sum(axis=1)
    assert left[0] + moved(found, "pool_read") == pytest.approx(world.prefill.fetched_bytes.sum())
    # Every block goes to DRAM and on to the SSD tier; what is not there yet is on its way.
    written = left[1] + moved(found, "pool_write")
    assert written == pytest.approx(left[2] + moved(found, "ssd_write"))
    blocks = written / world.settings.block_bytes
    assert blocks == pytest.approx(round(blocks)) and blocks > 100


def test_a_full_plane_is_full_and_never_fuller():
    narrow, wide = run(NARROW), run(NARROW | {"supernode.vpc_gb_per_s_per_node": 50.0})
    assert 0.5 < narrow.tables["windows"]["vpc_utilisation"].max() <= 1.0
    assert narrow.summary["finished"] < wide.summary["finished"]


@pytest.fixture
def machine():
    """A machine at rest, its pool over the VPC plane."""
    quiet = {
        "workload.arrivals": "uniform", "workload.rate_req_per_s": 2.0, "horizon_s": 1.0,
        "warmup_s": 0.0, "workload.input_tokens": 100,  # less than a block
    }  # fmt: skip
    return machine_at_end(small(NARROW | quiet))[1]


def test_a_stream_alone_takes_its_bytes_over_its_rate(machine):
    streams, shared = machine.world.streams, machine.world
    v = machine.world.settings.prefills  # what instance 0 writes
    rate = machine.world.traffic.alone[streams.flow[v]]
    add_to_stream(shared, v, 1.1, 0.2 * rate)
    assert stream_end(shared, v) == pytest.approx(1.3)
    record_stream(shared, v, 1.2)
    assert streams.left_bytes[v] == pytest.approx(0.1 * rate)
    add_to_stream(shared, v, 1.2, 0.1 * rate)  # behind what is under way
    assert stream_end(shared, v) == pytest.approx(1.4)


def test_what_begins_beside_others_takes_what_they_leave(machine):
    """Two instances of one node read through its one DPU."""
    streams, shared = machine.world.streams, machine.world
    add_to_stream(shared, 1, 1.1, float(machine.world.traffic.alone[streams.flow[1]]))
    assert free_rate_share(shared, 0, 1.2, 1e9) < 0.1
    assert free_rate_share(shared, 0, 3.0, 1e9) == 1.0  # by then it is through
    streams.rate[1] /= 2.0
    assert 0.4 < free_rate_share(shared, 0, 1.2, 1e9) < 0.6


# Reads of memory servers that have unlike parts of a batch.


def read(machine, p, blocks, now_s):
    """Instance p begins to read so many blocks of each server; seconds until it is through."""
    world = machine.world
    world.streams.requested[p] = blocks
    world.prefill.batch_reads[p] = sum(blocks) * world.settings.block_tokens
    begin_reading(world, p, now_s)
    return stream_end(world, p) - world.streams.since_s[p]


def port_rate(machine, server, p=0):
    """Bytes/s of a server's port into an instance, off the graph."""
    flow = next(f for f in machine.flows if (f.traffic, f.instance) == ("pool_read", p))
    net, links = machine.fabric, flow.load.links
    own = flow.port & (net.node[net.tail[links]] == flow.nodes[server])
    return (net.capacity[links] / flow.load.amounts)[own].min() / len(flow.sources)


def slow(machine, factor=0.01):
    """Node 2's way into the VPC plane carries less; instances read from other nodes."""
    machine.put_in_force([Fault(element="Qingtian 2", kind="derate", factor=factor)])
    machine.lay_flows(1.0)
    return machine


def size_of(machine, blocks, p=0):
    world = machine.world
    return blocks * world.settings.block_tokens * world.prefill.read_bytes_per_token[p]


def test_a_read_takes_as_long_as_the_port_of_its_fullest_server(machine):
    alone = machine.world.traffic.alone[machine.world.traffic.first[w.POOL_READ]]
    assert read(machine, 0, [1, 1, 1, 1], 1.1) == pytest.approx(size_of(machine, 4) / alone)
    slow(machine)
    for blocks in ([5, 5, 5, 5], [9, 0, 1, 0], [0, 0, 3, 0]):
        took_s = read(machine, 0, blocks, 2.0 + sum(blocks))
        assert took_s == pytest.approx(size_of(machine, blocks[2]) / port_rate(machine, 2))
    assert machine.world.streams.hot[0] == 2
    record_read_delay(machine.world, 0)
    even_s = size_of(machine, 3) / machine.world.prefill.read_bytes_per_s[0]
    assert machine.world.record.held[:, 2].max() == pytest.approx(
        size_of(machine, 3) / port_rate(machine, 2) - even_s
    )


def test_a_slow_server_slows_reads_of_its_own_blocks_only(machine):
    before = read(machine, 0, [4, 4, 0, 4], 1.1)
    slow(machine)
    assert read(machine, 0, [4, 4, 0, 4], 5.0) == pytest.approx(before)
    assert machine.world.streams.hot[0] == -1
    assert read(machine, 0, [4, 4, 1, 4], 9.0) > 3 * before


def test_batches_that_ask_one_server_share_its_port_and_others_do_not(machine):
    slow(machine, 0.1)
    world = machine.world
    alone = read(machine, 0, [0, 0, 4000, 0], 2.0)
    read(machine, 1, [0, 0, 4000, 0], 2.0)
    update_traffic(world, 3.0)
    rates = world.streams.rate[:2]
    assert rates.sum() == pytest.approx(port_rate(machine, 2), rel=0.01)
    assert rates[0] == pytest.approx(rates[1], rel=1e-6) and alone > 0
    read(machine, 1, [0, 0, 0, 400], 3.1)  # another server instead
    update_traffic(world, 3.2)
    assert world.streams.rate[0] == pytest.approx(port_rate(machine, 2), rel=0.01)


def test_names_of_servers_change_nothing(machine):
    rng = np.random.default_rng(3)
    own = sorted(
        {machine.fabric.node[d] for d in machine.fabric.dies[list(machine.serving_dies(0))]}
    )
    others = [n for n in range(4) if n not in own]
    for k in range(20):
        blocks = rng.integers(0, 50, 4) + 1
        turned = blocks.copy()
        turned[others] = blocks[others[::-1]]
        first = read(machine, 0, blocks.tolist(), 10.0 * k + 2.0)
        assert read(machine, 0, turned.tolist(), 10.0 * k + 7.0) == pytest.approx(first, rel=1e-9)


def test_servers_serve_what_instances_read():
    _, world = end_of(small(NARROW))
    served = world.record.servers[:-1].sum() * world.settings.block_tokens
    read_tokens = (world.prefill.fetched_bytes / world.prefill.read_bytes_per_token).sum()
    assert served == pytest.approx(read_tokens, rel=1e-9)
