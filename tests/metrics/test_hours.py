"""Hours of a day: sums over windows, whatever the day's length."""

import polars as pl
import pytest

from twin.metrics.hours import hit_ratio_table, hour_s, hours_table
from twin.scenario import Scenario, with_overrides

DAY = {
    "workload.profile.shape": "day",
    "workload.profile.period_s": 240.0,
    "horizon_s": 240.0,
}
NPUS = 6 * 16 + 160  # of the default deployment


def windows(count: int = 48, width_s: float = 5.0, **more: object) -> pl.DataFrame:
    table = pl.DataFrame(
        {
            "t_s": [k * width_s for k in range(count)], "window_s": [width_s] * count,
            "prefill_busy": [0.5] * count, "decode_busy": [1.0] * count,
            "power_w": [3.6e6] * count, "hit_token_ratio": [0.0, 0.5] * (count // 2),
            "input_tokens_per_s": [300.0, 100.0] * (count // 2), "arrived": [2] * count,
            "pool_used_fraction": [k / count for k in range(count)],
        }
    )  # fmt: skip
    return table.with_columns(**{name: pl.lit(value) for name, value in more.items()})


def test_an_hour_is_a_24th_of_the_day_that_the_rate_follows():
    assert hour_s(with_overrides(Scenario(), DAY)) == 10.0
    assert hour_s(Scenario()) is None  # two minutes have no two hours
    assert hour_s(with_overrides(Scenario(), {"horizon_s": 7200.0})) == 3600.0


def test_sums_of_the_hours_are_those_of_the_run():
    s = with_overrides(Scenario(), DAY)
    hours = hours_table(windows(), s, 10.0)
    assert hours["hour"].to_list() == list(range(24))
    assert hours["npu_hours"].sum() == pytest.approx(NPUS * 240 / 3600)
    assert hours["npu_hours_idle"].sum() == pytest.approx(0.5 * 6 * 16 * 240 / 3600)
    assert hours["energy_kwh"].to_list() == pytest.approx([10.0] * 24)
    assert hours["arrived"].to_list() == [4] * 24


def test_a_hit_ratio_weighs_by_prompt_tokens():
    # 300 computed of 300, and 100 computed of 200: 100 of 500 were cached.
    hours = hours_table(windows(), with_overrides(Scenario(), DAY), 10.0)
    assert hours["hit_token_ratio"].to_list() == pytest.approx([0.2] * 24)


def test_a_pool_that_fills_is_fuller_every_hour():
    used = hours_table(windows(), with_overrides(Scenario(), DAY), 10.0)["pool_used_fraction"]
    assert used.to_list() == pytest.approx([(2 * hour + 0.5) / 48 for hour in range(24)])


def test_each_tenant_has_its_hits_when_its_prompts_began():
    requests = pl.DataFrame(
        [("a", 1.0, 50, 100), ("a", 9.0, 0, 300), ("b", 2.0, 90, 100), ("b", 11.0, 10, 100),
         ("b", None, 0, 100)],
        schema=["tenant", "prefill_start_s", "hit_tokens", "input_tokens"], orient="row",
    ).with_columns(pl.col("tenant").cast(pl.Enum(["a", "b"])))  # fmt: skip
    hits = hit_ratio_table(requests, 10.0)
    assert hits.select("t_s", "0", "1").rows() == [(0.0, 0.125, 0.9), (10.0, None, 0.1)]


def test_npus_that_start_or_drain_are_held_and_have_no_work():
    moved = windows(prefill_npus=16.0, decode_npus=32.0, changing_npus=16.0)
    hours = hours_table(moved, with_overrides(Scenario(), DAY), 10.0)
    assert hours["npu_hours"].sum() == pytest.approx(64 * 240 / 3600)
    assert hours["npu_hours_idle"].sum() == pytest.approx((16 + 0.5 * 16) * 240 / 3600)


def test_what_nobody_knows_is_null():
    unknown = windows().with_columns(
        power_w=pl.lit(float("nan")), hit_token_ratio=pl.lit(float("nan"))
    )
    hours = hours_table(unknown, with_overrides(Scenario(), DAY), 10.0)
    assert hours["energy_kwh"].null_count() == hours["hit_token_ratio"].null_count() == 24
