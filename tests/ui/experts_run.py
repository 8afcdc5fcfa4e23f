"""A made-up run with drifting experts and two rebalances, in the columns the engine promises."""

from types import SimpleNamespace

import numpy as np
import polars as pl

from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from tests.ui.stored_runs import scenario
from twin.lab.store import Owner, Store
from twin.scenario import Scenario
from twin.ui import session

LAYERS, DIES, NODES = 58, 288, 20
MOVES = ((40.0, 42.5), (80.0, 82.0))  # begin and end of each rebalance, s
SHIFT_S = 70.0
MOVED_BYTES = 4.1e10
HORIZON_S = 120.0


def skewed(name: str = "Drifting experts", **fields: object) -> Scenario:
    """The quick start with drift, a shift and periodic balancing."""
    changed = {
        "horizon_s": HORIZON_S, "warmup_s": 20.0, "experts.drift_s": 600.0,
        "experts.shift_every_s": SHIFT_S, "experts.balancing.policy": "periodic",
        "experts.balancing.interval_s": 40.0,
    }  # fmt: skip
    return scenario(name, **(changed | fields))


def expert_tables(s: Scenario) -> dict[str, pl.DataFrame]:
    """die_load, hottest, events, instances and traffic of a made-up run."""
    rng = np.random.default_rng(7)
    shape = np.exp(rng.normal(0, np.linspace(0.15, 0.5, LAYERS)[:, None], (LAYERS, DIES)))
    moments = [(0.0, "start", 0.6)]
    for begin, end in MOVES:
        moments += [(begin, "before", 1.0), (end, "after", 0.45)]
    moments.append((HORIZON_S, "end", 0.8))
    frames = []
    for role, number in (("decode", 0), ("prefill", 0)):
        dies = DIES if role == "decode" else 32
        for t_s, moment, skew in moments if role == "decode" else (moments[0], moments[-1]):
            load = shape[:, :dies] ** (1.6 * skew)
            load /= load.mean(axis=1, keepdims=True)
            replicas = (rng.random((LAYERS, dies)) < 32 / dies).astype(np.int32)
            layer, die = np.indices(load.shape)
            frames.append(
                pl.DataFrame(
                    {
                        "t_s": np.full(load.size, t_s), "role": [role] * load.size,
                        "instance": np.full(load.size, number, np.int32),
                        "moment": [moment] * load.size,
                        "layer": (3 + layer.ravel()).astype(np.int32),
                        "die": die.ravel().astype(np.int32), "load": load.ravel(),
                        "replicas": replicas.ravel(),
                    }
                )
            )  # fmt: skip
    return {
        "die_load": pl.concat(frames),
        "hottest": fake_hottest(rng),
        "events": fake_events(),
        "instances": fake_instances(s, rng),
        "traffic": fake_traffic(s),
    }


def fake_hottest(rng: np.random.Generator) -> pl.DataFrame:
    t = np.arange(0.0, HORIZON_S, 4.0)
    since = np.array([x - max([0.0, *(e for _, e in MOVES if e <= x)]) for x in t])
    base = 1.25 + 0.02 * since + 0.5 * ((t >= SHIFT_S) & (t < MOVES[1][1]))
    layer = np.linspace(0.9, 1.6, LAYERS)
    value = base[:, None] * layer[None, :] * (1 + 0.02 * rng.random((t.size, LAYERS)))
    return pl.DataFrame(
        {
            "t_s": np.repeat(t, LAYERS), "role": ["decode"] * value.size,
            "instance": np.zeros(value.size, np.int32),
            "layer": np.tile(3 + np.arange(LAYERS), t.size).astype(np.int32),
            "hottest": value.ravel(),
        }
    )  # fmt: skip


def fake_events() -> pl.DataFrame:
    rows = [
        (begin, end, "rebalance", "decode 0", "decode", 0,
         "58 layers, hottest/mean 1.84 -> 1.21", MOVED_BYTES, 0)
        for begin, end in MOVES
    ]  # fmt: skip
    rows.append((SHIFT_S, None, "shift", "", "", None, "popularity shifts", 0.0, 0))
    schema = {"t_s": pl.Float64, "end_s": pl.Float64, "kind": pl.String, "element": pl.String,
              "role": pl.String, "instance": pl.Int32, "detail": pl.String, "bytes": pl.Float64,
              "requests": pl.Int32}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row").sort("t_s")


def fake_instances(s: Scenario, rng: np.random.Generator) -> pl.DataFrame:
    width = s.horizon_s / 240
    t = np.arange(240) * width
    moving = np.zeros(240, bool)
    for begin, end in MOVES:
        moving |= (t < end) & (t + width > begin)
    iteration = 0.071 * (1 + 0.15 * moving) * (1 + 0.01 * rng.standard_normal(240))
    return pl.DataFrame(
        {
            "t_s": t, "window_s": np.full(240, width), "role": ["decode"] * 240,
            "instance": np.zeros(240, np.int32), "queue": np.zeros(240),
            "running": np.full(240, 900.0), "busy": np.ones(240), "iteration_s": iteration,
            "hot_factor": np.full(240, 1.4), "contention": 1 + 0.1 * moving,
            "up": np.ones(240), "dies": np.full(240, 320, np.int32),
        }
    )  # fmt: skip


def fake_traffic(s: Scenario) -> pl.DataFrame:
    width = s.horizon_s / 240
    t = np.arange(240) * width
    return pl.DataFrame(
        {
            "t_s": t, "window_s": np.full(240, width), "plane": ["ub"] * 240,
            "traffic": ["experts"] * 240, "role": ["decode"] * 240,
            "instance": np.zeros(240, np.int32), "bytes": np.full(240, 2.4e11),
        }
    )  # fmt: skip


def done_skewed(
    store: Store, s: Scenario | None = None, *, empty: tuple[str, ...] = (), faster: float = 1.0
) -> str:
    """A finished run with drifting experts; `faster` divides its times. Returns its id."""
    s = s or skewed()
    owner = Owner.current()
    run = store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", s.seed, owner=owner)
    tables = fake_tables(s, requests=400, windows=240) | expert_tables(s)
    summary = fake_summary(s, tables) | {"rebalances": 2, "moved_bytes": 2 * MOVED_BYTES}
    for key in list(summary):
        if key.startswith(("tpot_s", "ttft_s")) and summary[key] is not None:
            summary[key] = summary[key] / faster
    summary["decode_tokens_per_s_per_npu"] *= faster
    kept = {name: table.clear() if name in empty else table for name, table in tables.items()}
    result = SimpleNamespace(
        digest="0" * 64, summary=summary, tables=kept, checks=fake_checks(), notes=[], valid=True
    )
    assert store.runs.finish(run, owner, result, 1.0)
    return run
