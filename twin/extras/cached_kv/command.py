"""The command `hit-curve`."""

from dataclasses import asdict

from twin.commands.terminal import (
    AsJson,
    ScenarioName,
    Settings,
    TraceFile,
    end_with_json,
    print_rows,
)
from twin.extras.cached_kv.hit_curve import hit_curve as curve_of
from twin.extras.cached_kv.hit_curve import read_costs
from twin.lab.ask import scenario_and_trace
from twin.lab.library import load_facts
from twin.metrics.measures import amount


def hit_curve(
    scenario: ScenarioName, settings: Settings = None, trace: TraceFile = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Hit ratio against the size of the memory pool, in one pass over the prompts, before a run."""
    scenario_asked, recorded_trace = scenario_and_trace(scenario, settings or [], trace)
    facts = load_facts()
    curve = curve_of(scenario_asked, facts, recorded_trace)
    kv_reads = read_costs(scenario_asked, facts, recorded_trace)
    sizes = {"DRAM": curve.dram_bytes, "DRAM and SSD": curve.pool_bytes}
    end_with_json({
        "requests": curve.requests, "blocks": curve.curve.blocks,
        "block_bytes": curve.block_bytes, "sampled": curve.curve.sampled,
        "ideal_hit_token_ratio": curve.curve.ideal_hit_ratio, "knee_bytes": curve.knee_bytes,
        "pool": [{"tier": name, "bytes": size, "hit_token_ratio": curve.hit_ratio(size)}
                 for name, size in sizes.items()],
        "curve": [{"bytes": size, "hit_token_ratio": ratio} for size, ratio in curve.points()],
        "reads": [asdict(read) | {"pays_from_tokens": read.pays_from_tokens} for read in kv_reads],
    }, as_json)  # fmt: skip
    rows = [(amount(size, "bytes"), amount(ratio, "share")) for size, ratio in curve.points()]
    print_rows(f"{scenario_asked.name}: hit ratio by size", ("memory pool", "hit ratio"), rows)
    pool_rows = [("requests looked at", f"{curve.requests:,}"),
            ("endless", amount(curve.curve.ideal_hit_ratio, "share")),
            ("95 % of that from", amount(curve.knee_bytes, "bytes"))]  # fmt: skip
    for name, size in sizes.items():
        hits_text = f"{amount(size, 'bytes')}: {amount(curve.hit_ratio(size), 'share')}"
        pool_rows.append((f"this pool's {name}", hits_text))
    print_rows("The pool", ("", ""), pool_rows)
    read_rows = [
        (read.place, amount(1e3 * read.s_per_token + read.latency_s, "time"),
         amount(1e3 * read.computed_s_per_token, "time"), amount(read.bytes_per_s, "bytes", "B/s"),
         amount(read.pays_above_bytes_per_s, "bytes", "B/s"))
        for read in kv_reads
    ]  # fmt: skip
    heads = ("1,000 cached tokens from", "read", "computed again", "at", "break even at")
    if read_rows:
        print_rows("Read or compute again", heads, read_rows)
