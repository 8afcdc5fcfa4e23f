"""Tables of what moved and where: whatever is booked has a place, and time adds up."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import MODES, run

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
