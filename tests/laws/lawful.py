"""What must hold of any run, found from its tables alone, beside the checks it made itself."""

import polars as pl

from twin.engine.simulate import Run


def lawful(run: Run) -> None:
    """Assert I1, I4, I10, I13 from the tables, and that every check of the run's own held."""
    assert run.valid, [c for c in run.checks if not c["ok"]]
    assert len({c["id"] for c in run.checks}) == len(run.checks) >= 12
    requests, summary = run.tables["requests"], run.summary
    # I1 and I13 from the table alone.
    status = dict(requests.group_by("status").len().iter_rows())
    inside = status.get("queued", 0) + status.get("running", 0)
    assert requests["request_id"].n_unique() == requests.height == summary["requests"]
    assert status.get("finished", 0) == summary["finished"]
    assert inside == summary["running"]
    rejected = requests.filter(pl.col("status") == "rejected")
    assert rejected.height == summary["rejected"] and (rejected["reason"] != "").all()
    # I10: prompt = hit + computed, and at least the last token is computed.
    block = run.scenario.memory_pool.block_tokens
    hits, prompt = requests["hit_tokens"], requests["input_tokens"]
    assert (hits >= 0).all() and (hits < prompt).all()
    if run.scenario.workload.arrivals != "trace":
        assert ((hits % block == 0) | (hits == prompt - 1)).all()
    # I4: every link, and what goes out comes in.
    links = run.tables["links"]
    assert (links["utilisation_mean"] <= 1 + 1e-9).all()
    moved = run.tables["traffic"]
    outside = moved.filter(pl.col("traffic").str.starts_with("ssd"))["bytes"].sum()
    for (plane,), flows in links.group_by("plane"):
        out = flows.filter(pl.col("direction") == "out")["bytes"].sum()
        into = flows.filter(pl.col("direction") == "in")["bytes"].sum()
        # The SSD tier lies outside of the machine: what is written there does not come in again.
        assert abs(out - into) <= outside * (plane == "vpc") + 1e-9 * out or inside > 0
    for name in ("prefill_busy", "decode_busy", "kv_used_fraction", "pool_used_fraction"):
        assert (run.tables["windows"][name].drop_nulls() <= 1 + 1e-9).all(), name
