"""Streams to and from the memory pool: conserved, and never more than the links have."""

import polars as pl
import pytest

from tests.engine.small import end_of, machine_at_end, run, small
from twin.engine.streams import add_to_stream, room_for, settle_stream
from twin.engine.streams import end_of as stream_end

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
    v = machine.world.prefill.running.size  # what instance 0 writes
    rate = machine.world.traffic.alone[streams.flow[v]]
    add_to_stream(shared, v, 1.1, 0.2 * rate)
    assert stream_end(shared, v) == pytest.approx(1.3)
    settle_stream(shared, v, 1.2)
    assert streams.left_bytes[v] == pytest.approx(0.1 * rate)
    add_to_stream(shared, v, 1.2, 0.1 * rate)  # behind what is under way
    assert stream_end(shared, v) == pytest.approx(1.4)


def test_what_begins_beside_others_takes_what_they_leave(machine):
    """Two instances of one node read through its one DPU."""
    streams, shared = machine.world.streams, machine.world
    add_to_stream(shared, 1, 1.1, float(machine.world.traffic.alone[streams.flow[1]]))
    assert room_for(shared, 0, 1.2, 1e9) < 0.1
    assert room_for(shared, 0, 3.0, 1e9) == 1.0  # by then it is through
    streams.rate[1] /= 2.0
    assert 0.4 < room_for(shared, 0, 1.2, 1e9) < 0.6
