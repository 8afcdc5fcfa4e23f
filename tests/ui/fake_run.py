"""A run made up of plausible columns, in the shape the engine promises: for tests of the screen."""

import numpy as np
import polars as pl

from twin.scenario import Scenario, pools

OPERATORS = {
    "prefill": ("mla_prolog", "attention_core", "o_proj", "dispatch", "experts", "combine"),
    "decode": (
        "mla_prolog", "attention_core", "o_proj", "gate", "dispatch", "experts", "combine",
        "dense_ffn", "mtp", "lm_head", "sampling", "launch_gaps",
    ),
}  # fmt: skip


def fake_tables(
    scenario: Scenario, requests: int = 2000, windows: int = 200
) -> dict[str, pl.DataFrame]:
    """All five tables of one made-up run."""
    rng = np.random.default_rng(scenario.seed)
    return {
        "requests": fake_requests(scenario, requests, rng),
        "windows": fake_windows(scenario, windows, rng),
        "operators": fake_operators(rng),
        "ranks": fake_ranks(scenario, rng),
        "links": fake_links(scenario, rng),
    }


def fake_requests(s: Scenario, n: int, rng: np.random.Generator) -> pl.DataFrame:
    arrival = np.sort(rng.uniform(0, s.horizon_s, n))
    parts = [rng.gamma(2, m / 2, n) for m in (0.006, 0.02, 0.5, 0.9, 0.03, 0.04)]
    stamps = arrival + np.cumsum(parts, axis=0)
    output = rng.integers(2, 2 * s.workload.output_tokens, n)
    finish = stamps[5] + (output - 1) * rng.gamma(60, 0.042 / 60, n)
    rejected = rng.random(n) < 0.004
    open_ = (finish > s.horizon_s) & ~rejected
    columns = {"frontend_s": 0, "routed_s": 1, "prefill_start_s": 2, "prefill_end_s": 3,
               "transfer_end_s": 4, "first_token_s": 5}  # fmt: skip
    data = {"request_id": np.arange(n), "arrival_s": arrival}
    data |= {name: np.where(rejected, np.nan, stamps[i]) for name, i in columns.items()}
    data["finish_s"] = np.where(rejected | open_, np.nan, finish)
    data |= {
        "input_tokens": rng.integers(512, 2 * s.workload.input_tokens, n),
        "output_tokens": output,
        "hit_tokens": rng.integers(0, 512, n),
        "session": np.arange(n),
        "prefill_instance": rng.integers(0, s.deployment.prefill.instances, n),
        "decode_instance": np.zeros(n, int),
        "decode_rank": rng.integers(0, 2 * s.deployment.decode.npus_per_instance, n),
        "preemptions": np.zeros(n, int),
    }
    status = np.where(rejected, "rejected", np.where(open_, "running", "finished"))
    reason = np.where(rejected, "longer than the KV space of a die", "")
    frame = pl.DataFrame(data).with_columns(pl.col(pl.Float64).fill_nan(None))
    return frame.with_columns(
        status=pl.Series(status.astype(str)), reason=pl.Series(reason.astype(str))
    )


def fake_windows(s: Scenario, n: int, rng: np.random.Generator) -> pl.DataFrame:
    width = s.horizon_s / n
    ramp = 1 - np.exp(-np.arange(n) / (0.08 * n))
    rate = s.workload.rate_req_per_s

    def noisy(level: float, spread: float = 0.06) -> np.ndarray:
        return np.clip(level * ramp * (1 + spread * rng.standard_normal(n)), 0, None)

    data = {
        "t_s": np.arange(n) * width, "window_s": np.full(n, width),
        "arrived": rng.poisson(rate * width, n), "finished": np.round(noisy(rate * width)),
        "rejected": np.zeros(n), "preempted": np.zeros(n),
        "front_end_queue": noisy(1.5, 0.5).round(), "router_queue": noisy(2, 0.5).round(),
        "prefill_queue": noisy(34, 0.3).round(), "prefill_running": noisy(58).round(),
        "transfer_running": noisy(3, 0.5).round(), "decode_running": noisy(660).round(),
        "input_tokens_per_s": noisy(rate * s.workload.input_tokens),
        "output_tokens_per_s": noisy(rate * s.workload.output_tokens),
        "ttft_s_mean": noisy(1.5), "tpot_s_mean": noisy(0.042, 0.03),
        "hit_token_ratio": noisy(0.06), "decode_iteration_s": noisy(0.071, 0.03),
        "prefill_busy": np.clip(noisy(0.88), 0, 1), "decode_busy": np.clip(noisy(0.97), 0, 1),
        "kv_used_fraction": np.clip(noisy(0.31), 0, 1), "pool_used_fraction": 0.4 * ramp,
        "ub_utilisation": noisy(0.11), "rdma_utilisation": noisy(0.04),
        "vpc_utilisation": noisy(0.01), "hbm_utilisation": noisy(0.37),
        "cube_utilisation": noisy(0.44), "power_w": noisy(120e3),
    }  # fmt: skip
    shares = _shares("decode")
    data |= {f"decode_{name}_s": noisy(0.071 * share, 0.03) for name, share in shares.items()}
    return pl.DataFrame(data)


def _shares(phase: str) -> dict[str, float]:
    weight = {"attention_core": 8, "experts": 5, "dispatch": 3, "combine": 4, "mla_prolog": 4}
    names = OPERATORS[phase]
    total = sum(weight.get(name, 1) for name in names)
    return {name: weight.get(name, 1) / total for name in names}


def fake_operators(rng: np.random.Generator) -> pl.DataFrame:
    rows = []
    for phase, iteration_s, count in (("prefill", 2.1, 260), ("decode", 0.071, 1690)):
        for name, share in _shares(phase).items():
            each = iteration_s * share
            rows.append((phase, name, each * count, share, each, count))
    names = ["phase", "operator", "total_s", "share", "per_iteration_s", "iterations"]
    return pl.DataFrame(rows, schema=names, orient="row")


def fake_ranks(s: Scenario, rng: np.random.Generator) -> pl.DataFrame:
    rows, die = [], 0
    for role, instances, npus in pools(s):
        for instance in range(instances):
            for rank in range(2 * npus):
                load = max(0.0, 1 + 0.12 * rng.standard_normal())
                rows.append((role, instance, rank, die, die // 2, die // 16, 2.1 * load,
                             9800 * load, 0.3 * load, min(1.0, 0.9 * load), load))  # fmt: skip
                die += 1
    names = ["role", "instance", "rank", "die", "npu", "node", "requests_mean",
             "context_tokens_mean", "kv_used_fraction_mean", "busy_fraction",
             "expert_load"]  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row")


def fake_links(s: Scenario, rng: np.random.Generator) -> pl.DataFrame:
    rows = []
    machine = s.supernode
    for node in range(machine.nodes):
        for direction in ("out", "in"):
            planes = [("ub", i, 16 * 28e9, 0.2) for i in range(machine.sub_planes)]
            planes += [("rdma", None, 8 * 50e9, 0.08), ("vpc", None, 50e9, 0.02)]
            for plane, sub, capacity, level in planes:
                used = float(np.clip(level * (1 + 0.3 * rng.standard_normal()), 0, 1))
                peak = min(1.0, 1.6 * used)
                rows.append(
                    (
                        plane,
                        node,
                        sub,
                        direction,
                        used * capacity * s.horizon_s,
                        capacity,
                        used,
                        peak,
                    )
                )
    names = ["plane", "node", "sub_plane", "direction", "bytes", "capacity_bytes_per_s",
             "utilisation_mean", "utilisation_peak"]  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def fake_summary(
    s: Scenario, tables: dict[str, pl.DataFrame]
) -> dict[str, float | int | str | None]:
    """The flat summary that belongs to these tables."""
    steady = tables["requests"].filter(pl.col("arrival_s") >= s.warmup_s)
    done = steady.filter(pl.col("finish_s").is_not_null())
    ttft = (done["first_token_s"] - done["arrival_s"]).to_numpy()
    tpot = ((done["finish_s"] - done["first_token_s"]) / (done["output_tokens"] - 1)).to_numpy()
    span = s.horizon_s - s.warmup_s
    met = (ttft <= s.slo.ttft_s) & (tpot <= s.slo.tpot_ms / 1e3)
    tokens = float(done["output_tokens"].sum()) / span
    counts = dict(tables["requests"]["status"].value_counts().iter_rows())
    used = {role: count * npus for role, count, npus in pools(s)}
    out: dict[str, float | int | str | None] = {
        "requests": tables["requests"].height, "finished": counts.get("finished", 0),
        "rejected": counts.get("rejected", 0), "running": counts.get("running", 0),
        "ttft_front_end_s_mean": 0.006, "ttft_router_s_mean": 0.02,
        "ttft_prefill_queue_s_mean": 0.5, "ttft_prefill_s_mean": 0.9,
        "ttft_kv_transfer_s_mean": 0.03, "goodput_req_per_s": float(met.sum()) / span,
        "slo_attainment": float(met.mean()), "throughput_req_per_s": done.height / span,
        "prefill_tokens_per_s_per_npu": float(done["input_tokens"].sum()) / span / used["prefill"],
        "decode_tokens_per_s_per_npu": tokens / used["decode"],
        "tokens_per_s_per_npu": tokens / sum(used.values()), "output_tokens_per_s": tokens,
        "hit_token_ratio": 0.058, "decode_iteration_s_mean": 0.071, "preemptions": 0,
        "prefill_utilisation": 0.88, "decode_utilisation": 0.97, "ub_utilisation": 0.11,
        "rdma_utilisation": 0.04, "vpc_utilisation": 0.01, "kv_used_fraction_mean": 0.31,
        "pool_used_fraction": 0.4, "concurrency_mean": 760.0, "little_error": 1e-4,
        "warmup_s": s.warmup_s, "horizon_s": s.horizon_s, "npus_prefill": used["prefill"],
        "npus_decode": used["decode"], "npus": sum(used.values()),
    }  # fmt: skip
    for name, values in (("ttft_s", ttft), ("tpot_s", tpot)):
        out[f"{name}_mean"] = float(values.mean())
        out |= {f"{name}_p{p}": float(np.percentile(values, p)) for p in (50, 90, 95, 99)}
    return out


def fake_checks() -> list[dict[str, object]]:
    return [
        {
            "id": "I1",
            "statement": "Every request is finished, inside or rejected.",
            "ok": True,
            "detail": "",
        },
        {
            "id": "I2",
            "statement": "Little's law holds on the sample path.",
            "ok": True,
            "detail": "",
        },
        {
            "id": "I6",
            "statement": "No request is served before it arrives.",
            "ok": True,
            "detail": "",
        },
    ]
