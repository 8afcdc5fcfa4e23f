"""Figures by hour (a 24th of the profile's period, or 3,600 s without one), and hits by tenant."""

import polars as pl

from twin.scenario import Scenario, pools_by_role

DAILY = ("day", "servegen_r1_day")
MOST = 168  # hours of a week: each still has a window of its own


def hour_s(s: Scenario) -> float | None:
    """Seconds of the run that stand for an hour: a 24th of a daily profile's period, else 3,600;
    None if fewer than two, or more than MOST, fit into the run."""
    has_daily_profile = s.workload.profile.shape in DAILY and s.workload.arrivals != "closed_loop"
    hour_length_s = s.workload.profile.period_s / 24.0 if has_daily_profile else 3600.0
    return hour_length_s if 2.0 * hour_length_s <= s.horizon_s <= MOST * hour_length_s else None


def hours_table(windows: pl.DataFrame, s: Scenario, length_s: float) -> pl.DataFrame:
    """Table with one row per hour; an hour has length_s seconds, and a window belongs to the hour
    of its middle. Columns: mean NPUs of each pool and of starting or draining instances, NPU-hours,
    idle NPU-hours, kWh, hit ratio (null if unknown), used share of DRAM, arrivals."""
    window_hours = pl.col("window_s") / 3600.0
    held_npus, busy_npus = pl.lit(0.0), pl.lit(0.0)
    npus_by_column: dict[str, pl.Expr] = {}
    for role, pool in pools_by_role(s).items():
        column = f"{role}_npus"
        is_recorded = column in windows.columns
        npus_by_column[column] = (
            pl.col(column) if is_recorded else pl.lit(float(pool.instances * pool.npus))
        )
        if not pool.lender:
            held_npus = held_npus + npus_by_column[column]
        busy_share = pl.col(f"{pool.phase}_busy").fill_nan(0.0).fill_null(0.0).clip(0.0, 1.0)
        busy_npus = busy_npus + npus_by_column[column] * (busy_share * pool.cores)
    changing_npus = pl.col("changing_npus") if "changing_npus" in windows.columns else pl.lit(0.0)
    hit_ratio = pl.col("hit_token_ratio").fill_nan(None)
    # Only computed prompt tokens are known: a share 1 - hit ratio of all.
    computed_tokens = pl.col("input_tokens_per_s") * pl.col("window_s")
    prompt_tokens = computed_tokens / (1.0 - hit_ratio.clip(0.0, 0.999))
    watts = pl.col("power_w").fill_nan(None)
    middle_s = pl.col("t_s") + 0.5 * pl.col("window_s")
    covered_s = pl.col("window_s").sum()
    return (
        windows.group_by(hour=(middle_s / length_s).cast(pl.Int32))
        .agg(
            **{
                column: (npus * pl.col("window_s")).sum() / covered_s
                for column, npus in npus_by_column.items()
            },
            changing_npus=(changing_npus * pl.col("window_s")).sum() / covered_s,
            npu_hours=((held_npus + changing_npus) * window_hours).sum(),
            npu_hours_idle=((held_npus + changing_npus - busy_npus) * window_hours).sum(),
            energy_kwh=pl.when(watts.is_not_null().any()).then((watts * window_hours).sum() / 1e3),
            hit_token_ratio=(hit_ratio * prompt_tokens).sum()
            / prompt_tokens.filter(hit_ratio.is_not_null()).sum(),
            pool_used_fraction=(pl.col("pool_used_fraction") * pl.col("window_s")).sum()
            / covered_s,
            arrived=pl.col("arrived").sum(),
        )
        .sort("hour")
        .with_columns(pl.col("hit_token_ratio").fill_nan(None))
    )


def hit_ratio_table(requests: pl.DataFrame, width_s: float) -> pl.DataFrame:
    """Table of hit ratios, a column per tenant and a row per interval of `width_s` seconds: of the
    prompts whose prefill began in the interval, which begins at `t_s`."""
    begun_requests = requests.filter(pl.col("prefill_start_s").is_not_null()).with_columns(
        t_s=(pl.col("prefill_start_s") / width_s).floor() * width_s,
        tenant=pl.col("tenant").to_physical().cast(pl.String),
    )
    hit_ratio = pl.col("hit_tokens").sum() / pl.col("input_tokens").sum()
    ratio_by_window = begun_requests.group_by("t_s", "tenant").agg(hit_token_ratio=hit_ratio)
    return ratio_by_window.pivot("tenant", index="t_s", values="hit_token_ratio").sort("t_s")
