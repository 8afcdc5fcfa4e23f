"""A run as it unfolds: its points are those of the tables that it ends with."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import small
from twin.engine.simulate import POINTS, simulate
from twin.lab.library import load_facts


def test_what_a_watcher_sees_is_what_the_tables_say():
    told = []

    def watch(_share, numbers):
        told.append(numbers["points"])
        return True

    run = simulate(small({"horizon_s": 6.0}), load_facts(), progress=watch)
    points, horizon_s = told[-1], run.scenario.horizon_s
    assert len(points["t_s"]) == POINTS
    assert points["t_s"] == sorted(points["t_s"]) and points["t_s"][-1] == pytest.approx(horizon_s)
    assert len(told[0]["t_s"]) < len(told[len(told) // 2]["t_s"]) < len(points["t_s"])
    spans_s = np.diff(points["t_s"], prepend=0.0)
    tokens = (np.array(points["tokens_per_s"]) * spans_s).sum()
    windows = run.tables["windows"]
    stamps = run.tables["requests"].select("arrival_s", first="transfer_end_s").drop_nulls()
    assert tokens == pytest.approx((windows["output_tokens_per_s"] * windows["window_s"]).sum())
    since_s = 0.0
    for now_s, ttft_s in zip(points["t_s"], points["ttft_s"], strict=True):
        span = stamps.filter(pl.col("first").is_between(since_s, now_s, closed="right"))
        assert (ttft_s is None) == (span.height == 0)
        if ttft_s is not None:
            assert ttft_s == pytest.approx((span["first"] - span["arrival_s"]).mean())
        since_s = now_s
