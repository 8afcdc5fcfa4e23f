"""A made-up run that breaks: tables of events, instances, traffic and shares with a dip in them.

For tests of playback and of the fault section; the columns are those the engine promises.
"""

from types import SimpleNamespace

import numpy as np
import polars as pl

from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from tests.ui.stored_runs import scenario
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place
from twin.lab.library import load_facts
from twin.lab.store import Owner, Store
from twin.scenario import Scenario
from twin.ui import session

WINDOWS = 240
FAULT_S, BACK_S = 60.0, 75.0  # decode 0 is out of service between them
CLASSES = {
    ("ub", "experts"): ("prefill", "decode"),
    ("ub", "pool_read"): ("prefill",),
    ("rdma", "kv_hand_off"): ("prefill", "decode"),
    ("vpc", "ssd_write"): ("prefill",),
}


def broken(name: str = "A node fails", **fields: object) -> Scenario:
    """The quick start with one fault in it."""
    fault = {"at_s": FAULT_S, "element": "node 6", "kind": "fail", "duration_s": 15.0}
    return scenario(name, **{"horizon_s": 120.0, "warmup_s": 20.0, "faults": [fault], **fields})


def playback_tables(s: Scenario) -> dict[str, pl.DataFrame]:
    """All tables of a run in which a decode instance is down for a while."""
    rng = np.random.default_rng(5)
    tables = fake_tables(s, requests=400, windows=WINDOWS)
    tables["requests"] = tables["requests"].with_columns(retries=pl.lit(0, pl.Int16))
    t = tables["windows"]["t_s"].to_numpy()
    width_s = s.horizon_s / WINDOWS
    down = (t >= FAULT_S) & (t < BACK_S)
    tables["windows"] = tables["windows"].with_columns(
        output_tokens_per_s=pl.col("output_tokens_per_s") * np.where(down, 0.3, 1.0),
        ttft_s_mean=pl.col("ttft_s_mean") * np.where(down, 3.0, 1.0),
    )
    rows, moved, split = [], [], []
    per_node = 2 * s.supernode.npus_per_node
    for at, i in enumerate(place(s, build_fabric(s.supernode, load_facts())).instances):
        up = np.where(down & (i.role == "decode") & (i.index == 0), 0.0, 1.0)
        level = rng.uniform(0.7, 1.0)
        for w in range(WINDOWS):
            rows.append(
                (t[w], width_s, i.role, i.index, 20 * (1 - up[w]) + 3 * rng.random(),
                 120 * level * up[w], level * up[w], 0.06 * (1 + rng.random() / 5) or None,
                 1.2, 1.0 + 0.1 * rng.random(), up[w], int(i.dies * up[w]))
            )  # fmt: skip
        for (plane, traffic), roles in CLASSES.items():
            if i.role not in roles:
                continue
            base = {"ub": 3e9, "rdma": 8e8, "vpc": 2e8}[plane] * i.dies * width_s
            moved += [
                (t[w], width_s, plane, traffic, i.role, i.index,
                 base * up[w] * level * (0.8 + 0.4 * np.sin(w / 12 + at)))
                for w in range(WINDOWS) if up[w]
            ]  # fmt: skip
            nodes = range(i.die_of_rank[0] // per_node, i.die_of_rank[-1] // per_node + 1)
            planes = range(s.supernode.sub_planes) if plane == "ub" else [None]
            share = 1 / (len(nodes) * len(planes))
            split += [
                (0.0, None, plane, traffic, i.role, i.index, node, p, direction, share)
                for node in nodes for p in planes for direction in ("out", "in")
            ]  # fmt: skip
    names = ["t_s", "window_s", "role", "instance", "queue", "running", "busy", "iteration_s",
             "hot_factor", "contention", "up", "dies"]  # fmt: skip
    own = ["t_s", "window_s", "plane", "traffic", "role", "instance", "bytes"]
    of = ["t_s", "end_s", "plane", "traffic", "role", "instance", "node", "sub_plane", "direction",
          "share"]  # fmt: skip
    tables["instances"] = pl.DataFrame(rows, schema=names, orient="row")
    tables["traffic"] = pl.DataFrame(moved, schema=own, orient="row")
    tables["shares"] = pl.DataFrame(split, schema=of, orient="row", infer_schema_length=None)
    tables["events"] = events()
    tables["seats"] = seats(s)
    return tables


def seats(s: Scenario) -> pl.DataFrame:
    """Where instances stand: decode 0 leaves its first node at the fault and takes the last one."""
    rows = []
    per_node = 2 * s.supernode.npus_per_node
    for i in place(s, build_fabric(s.supernode, load_facts())).instances:
        moves = (i.role, i.index) == ("decode", 0)
        until_s, first = FAULT_S if moves else s.horizon_s, i.die_of_rank[0]
        rows.append((0.0, until_s, i.role, i.index, first, i.dies))
        if moves:
            left = (first + per_node, i.dies - per_node)
            for seat in (left, (per_node * (s.supernode.nodes - 1), per_node)):
                rows.append((FAULT_S, s.horizon_s, i.role, i.index, *seat))
    names = ["t_s", "end_s", "role", "instance", "first_die", "dies"]
    return pl.DataFrame(rows, schema=names, orient="row")


def events() -> pl.DataFrame:
    """What happened: a fault, its discovery, a recovery, a rebalance."""
    rows = [
        (FAULT_S, BACK_S, "fault", "node 6", "", None, "fails", 0.0, 0),
        (FAULT_S + 1, None, "detected", "node 6", "", None, "", 0.0, 0),
        (FAULT_S, BACK_S, "instance_down", "decode 0", "decode", 0, "recovers in place", 0.0, 96),
        (90.0, 92.0, "rebalance", "decode 0", "decode", 0,
         "12 layers, hottest/mean 1.84 -> 1.21", 5.1e10, 0),
    ]  # fmt: skip
    schema = {"t_s": pl.Float64, "end_s": pl.Float64, "kind": pl.String, "element": pl.String,
              "role": pl.String, "instance": pl.Int32, "detail": pl.String, "bytes": pl.Float64,
              "requests": pl.Int32}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def done_broken(store: Store, s: Scenario | None = None, **without: bool) -> str:
    """A finished run with a fault in it; tables named False are left out. Returns its id."""
    s = s or broken()
    owner = Owner.current()
    run = store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", s.seed, owner=owner)
    tables = playback_tables(s)
    summary = fake_summary(s, tables) | {"lost": 2, "retried": 94, "down_s": 15.0, "rebalances": 1}
    kept = {name: table for name, table in tables.items() if without.get(name, True)}
    result = SimpleNamespace(
        digest="0" * 64, summary=summary, tables=kept, checks=fake_checks(), notes=[], valid=True
    )
    assert store.runs.finish(run, owner, result, 1.0)
    return run
