"""Tables of what moved and where: whatever is booked has a place, and time adds up."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from tests.engine.small import MODES, machine_at_end, run, small
from twin.engine.codes import ARRIVED
from twin.engine.movement import servers_table
from twin.engine.setup import set_up
from twin.lab.library import load_facts
from twin.policies.memory_pool import server_of

BUSY = {
    "workload.rate_req_per_s": 150.0,
    "workload.prefix": "shared",
    "supernode.nodes": 5,
    "deployment.decode.npus_per_instance": 8,
    "deployment.kv_transfer_plane": "ub",
}
HURT = BUSY | {
    "faults": [
        {"at_s": 1.0, "element": "sub-plane 3", "duration_s": 1.0},
        {"at_s": 1.6, "element": "node 1"},
        {"at_s": 2.4, "element": "NIC 0.0.0", "kind": "derate", "factor": 0.2},
    ],
    "recovery.detection_s": 0.1,
    "recovery.in_place_s": 0.4,
}
REUSED = {
    "workload.prefix": "shared",
    "workload.shared_fraction": 0.6,
    "workload.prefix_groups": 5,
    "deployment.prefill.npus_per_instance": 8,  # a node of its own
}
PLACE = ["t_s", "traffic", "role", "instance", "direction"]


@pytest.mark.parametrize("settings", [BUSY, HURT])
def test_shares_of_a_direction_are_a_whole_in_every_span(settings):
    shares = run(settings).tables["shares"]
    whole = shares.group_by(PLACE).agg(pl.col("share").sum())["share"]
    np.testing.assert_allclose(whole, 1.0, rtol=1e-9)
    spans = shares.select("t_s", "end_s").unique().sort("t_s")
    assert spans["t_s"][0] == 0.0 and spans["end_s"][-1] == 4.0
    assert spans["t_s"][1:].to_list() == spans["end_s"][:-1].to_list()


@pytest.mark.parametrize("mode", MODES)
def test_links_carry_the_bytes_of_the_traffic(mode):
    tables = run(BUSY | {"deployment.mode": mode}).tables
    moved = tables["traffic"].filter(~pl.col("traffic").str.starts_with("ssd"))
    for plane in ("ub", "rdma"):
        booked = moved.filter(pl.col("plane") == plane)["bytes"].sum()
        links = tables["links"].filter(pl.col("plane") == plane)
        for way in ("out", "in"):
            carried = links.filter(pl.col("direction") == way)["bytes"].sum()
            assert carried == pytest.approx(booked, rel=1e-9), (plane, way)


def of_nodes(tables, traffic, role="decode"):
    """Share of a class of an instance's bytes that each node sends and takes, f8[2, nodes]."""
    rows = tables["shares"].filter(
        (pl.col("traffic") == traffic) & (pl.col("role") == role) & (pl.col("instance") == 0)
    )
    found = np.zeros((2, 5))
    for node, way, share in rows.select("node", "direction", "share").rows():
        found[("out", "in").index(way), node] += share
    return found


def test_bytes_of_experts_go_where_their_tokens_go():
    """Dispatch to each die by what its experts get, combine back from there."""
    skewed = BUSY | {"deployment.decode.npus_per_instance": 12, "experts.skew": 1.0}
    setup, tables = set_up(small(skewed), load_facts(), None), run(skewed).tables
    load = tables["die_load"].filter(
        (pl.col("role") == "decode") & (pl.col("instance") == 0) & (pl.col("moment") == "start")
    )
    gets = load.group_by("die").agg(pl.col("load").mean()).sort("die")["load"].to_numpy()
    instance = next(i for i in setup.instances if i.role == "decode")
    node = setup.fabric.node[setup.fabric.dies[list(instance.die_of_rank)]]
    assert gets.size == node.size and np.ptp(gets) > 0.05 and np.ptp(node) > 0
    part = setup.costs.roles["decode"].dispatched
    others = gets.sum() - gets  # of what a die has, what it sends to others
    sent, taken = others / others.sum(), gets / gets.sum()
    expected = [part * sent + (1 - part) * taken, part * taken + (1 - part) * sent]
    by_node = np.array([np.bincount(node, row, 5) for row in expected])
    np.testing.assert_allclose(of_nodes(tables, "experts"), by_node, rtol=1e-6)


def test_where_experts_are_alike_their_bytes_lie_as_weights_on_the_move():
    even = run(BUSY | {"experts.popularity": "uniform"}).tables["shares"]
    columns = ["node", "sub_plane", "direction", "share"]
    experts, weights = (
        even.filter(pl.col("traffic") == name).select(columns) for name in ("experts", "weights")
    )
    assert experts.equals(weights)


def test_nothing_passes_a_sub_plane_that_is_gone():
    shares = run(HURT).tables["shares"].filter(pl.col("t_s").is_between(1.0, 1.99))
    assert shares.height and (shares["sub_plane"].drop_nulls() != 3).all()
    dead = run(HURT).tables["shares"].filter(pl.col("t_s") >= 1.6)
    assert not (dead["node"] == 1).any()


def test_service_is_the_time_that_is_not_down():
    tables = run(HURT).tables
    down = tables["events"].filter(pl.col("kind") == "instance_down")
    assert down.height
    for row in down.iter_rows(named=True):
        at = tables["instances"].filter(
            (pl.col("role") == row["role"]) & (pl.col("instance") == row["instance"])
        )
        out_s = ((1.0 - at["up"]) * at["window_s"]).sum()
        end_s = 4.0 if row["end_s"] is None else row["end_s"]
        assert out_s == pytest.approx(end_s - row["t_s"], rel=1e-9)


def test_dies_in_service_follow_faults_and_spares():
    tables = run(HURT).tables
    at = tables["instances"].filter((pl.col("role") == "decode") & (pl.col("instance") == 0))
    assert at["dies"][0] == 16
    assert at.filter(pl.col("t_s").is_between(1.7, 2.0))["dies"].to_list()[0] == 0
    assert at["dies"][-1] == 16  # of the fifth node, spare until then


def test_seats_name_every_die_that_serves_and_no_other():
    tables = run(HURT).tables
    seats = tables["seats"]
    counted = seats.group_by("t_s", "end_s", "role", "instance").agg(pl.col("dies").sum())
    for row in tables["instances"].iter_rows(named=True):
        end_s = row["t_s"] + row["window_s"]
        span = counted.filter(
            (pl.col("role") == row["role"]) & (pl.col("instance") == row["instance"])
            & (pl.col("t_s") <= row["t_s"]) & (pl.col("end_s") >= end_s - 1e-9)
        )  # fmt: skip
        if span.height and row["up"] == 1.0:  # the window has no change in it
            assert span["dies"].item() == row["dies"]
    end = pl.col("first_die") + pl.col("dies")
    spare = seats.filter((end > 3 * 16) & (pl.col("role") == "decode"))
    told = tables["events"].filter(pl.col("kind") == "spare")
    assert spare["t_s"].min() == told["t_s"].min()
    assert told["element"].to_list() == ["node 3"]


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_every_block_that_was_read_is_counted_at_the_server_it_hashes_to(scope):
    setup, machine = machine_at_end(small(REUSED | {"memory_pool.scope": scope}))
    request, arrived = machine.world.request, int(machine.world.record.counters[ARRIVED])
    width_s = setup.scenario.horizon_s / (machine.world.record.windows.shape[0] - 1)
    by_hand: Counter[tuple[int, int]] = Counter()
    for i in np.flatnonzero(request.hit_tokens[:arrived]):
        nodes = machine.setup.pool_nodes(request.prefill_instance[i] if scope == "local" else 0)
        first, end = request.segment_offset[i : i + 2]
        chain = [
            int(request.segment_first[s]) + k
            for s in range(first, end)
            for k in range(request.segment_blocks[s])
        ]
        window = int(request.prefill_start_s[i] / width_s)
        for block in chain[: -(-int(request.hit_tokens[i]) // setup.requests.block_tokens)]:
            by_hand[window, nodes[server_of(block, np.ones(len(nodes)), len(nodes))]] += 1
    table = servers_table(setup, machine)["servers"]
    size = machine.world.settings.block_bytes
    told = {
        (round(row["t_s"] / width_s), row["node"]): round(row["read_bytes"] / size)
        for row in table.iter_rows(named=True)
        if row["read_bytes"]
    }
    assert told == by_hand and len(by_hand) > 50
    assert table["node"].n_unique() == (2 if scope == "local" else 4)
    # What the fabric carried is what the servers served: each die reads all of a prompt's latents.
    assert table["read_bytes"].sum() == pytest.approx(
        request.hit_tokens[:arrived].sum() * size / setup.requests.block_tokens, rel=1e-9
    )


def test_a_run_in_which_nothing_hits_has_no_such_table():
    setup, machine = machine_at_end(small({"memory_pool.enabled": False}))
    assert servers_table(setup, machine) == {}
