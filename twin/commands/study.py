"""Studies of more than one run: `sweep`, `hit-curve`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from twin.commands.terminal import (
    AsJson,
    ScenarioName,
    Settings,
    TraceFile,
    out,
    print_json,
    print_rows,
    progress,
)
from twin.lab.ask import question
from twin.lab.library import load_facts
from twin.lab.runs.executor import Runner
from twin.lab.store import open_store
from twin.lab.sweep import sweep as lab
from twin.lab.sweep.break_even import reads
from twin.lab.sweep.hit_curve import hit_curve as curve_of
from twin.metrics.measures import amount
from twin.metrics.registry import shown

Over = Annotated[
    list[str],
    typer.Option(
        metavar="FIELD=A:B:N",
        help="N values from A to B (:log in even ratios), or FIELD=A,B,C; twice for two fields.",
    ),
]


def sweep(
    scenario: ScenarioName,
    over: Over,
    settings: Settings = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV on standard output; SI units.")
    ] = False,
) -> None:
    """Simulate a scenario over a range of one or two fields, and say where its SLO breaks."""
    wanted, _ = question(scenario, settings or [])
    axes = [lab.axis(text) for text in over]
    points = lab.points(wanted, axes)
    store = open_store()
    runner = Runner(store).start()
    rows = []
    try:
        with progress(wanted.name) as watch:
            for row in lab.carried_out(runner, points):
                rows.append(row)
                watch(len(rows) / len(points), {"points": len(rows)})
    finally:
        runner.close()
    table = lab.table(axes, points, rows)
    said = ""
    if len(axes) == 1:
        ran = [(p.scenario or wanted, row.summary if row else {})
               for p, row in zip(points, rows, strict=True)]  # fmt: skip
        said = lab.conclusion(axes[0], [s for s, _ in ran], [summary for _, summary in ran])
    if as_json:
        print_json({"over": [a.text for a in axes], "conclusion": said, "points": table})
        return
    if as_csv:
        out.file.write(lab.csv_of(table))
        return
    keys = ["ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu"]
    cells = [
        (
            *(a.said(row[a.path]) for a in axes),
            {True: "met", False: "broken", None: row["why"] or row["state"]}[row["slo_kept"]],
            *(shown(key, row[key]) for key in keys),
            row["run"] or "",
        )
        for row in table
    ]
    print_rows(f"{wanted.name} over {' and '.join(a.label for a in axes)}",
               (*(a.label for a in axes), "SLO", *keys, "run"), cells)  # fmt: skip
    if said:
        out.print(said)


def hit_curve(
    scenario: ScenarioName,
    settings: Settings = None,
    trace: TraceFile = None,
    as_json: AsJson = False,
) -> None:
    """Hit ratio against the size of the memory pool, in one pass over the prompts, before a run."""
    wanted, stream = question(scenario, settings or [], trace)
    curve, cached = curve_of(wanted, load_facts(), stream), reads(wanted, load_facts(), stream)
    sizes = {"DRAM": curve.dram_bytes, "DRAM and SSD": curve.pool_bytes}
    if as_json:
        print_json({
            "requests": curve.requests, "blocks": curve.curve.blocks,
            "block_bytes": curve.block_bytes, "sampled": curve.curve.sampled,
            "ideal_hit_token_ratio": curve.curve.ideal, "knee_bytes": curve.knee_bytes,
            "pool": [{"tier": name, "bytes": size, "hit_token_ratio": curve.hit_ratio(size)}
                     for name, size in sizes.items()],
            "curve": [{"bytes": size, "hit_token_ratio": ratio} for size, ratio in curve.points()],
            "reads": [asdict(read) | {"pays_from_tokens": read.pays_from_tokens}
                      for read in cached],
        })  # fmt: skip
        return
    rows = [(amount(size, "bytes"), amount(ratio, "share")) for size, ratio in curve.points()]
    print_rows(f"{wanted.name}: hit ratio by size", ("memory pool", "hit ratio"), rows)
    named = {
        "requests looked at": f"{curve.requests:,}",
        "endless": amount(curve.curve.ideal, "share"),
    }
    named["95 % of that from"] = amount(curve.knee_bytes, "bytes")
    named |= {
        f"this pool's {name}": f"{amount(size, 'bytes')}: {amount(curve.hit_ratio(size), 'share')}"
        for name, size in sizes.items()
    }
    print_rows("The pool", ("", ""), list(named.items()))
    taken = [
        (read.place, amount(1e3 * read.s_per_token + read.latency_s, "time"),
         amount(1e3 * read.computed_s_per_token, "time"), amount(read.bytes_per_s, "bytes", "B/s"),
         amount(read.pays_above_bytes_per_s, "bytes", "B/s"))
        for read in cached
    ]  # fmt: skip
    heads = ("1,000 cached tokens from", "read", "computed again", "at", "break even at")
    if taken:
        print_rows("Read or compute again", heads, taken)
