"""`python -m twin hit-curve`: what a memory pool of any size would hit, before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twin.metrics.measures import amount
from twin.terminal import print_json, print_rows


def hit_curve(
    scenario: Annotated[str, typer.Argument(help="A scenario file (.toml) or a preset's key.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Replace a field that `fields` lists."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="A recorded stream; replaces the workload."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
) -> None:
    """Hit ratio against the size of the memory pool, in one pass over the prompts, before a run."""
    from twin.lab.ask import question
    from twin.lab.hit_curve import hit_curve as curve_of
    from twin.lab.library import load_facts

    asked, stream = question(scenario, settings or [], trace)
    curve = curve_of(asked, load_facts(), stream)
    sizes = {"DRAM": curve.dram_bytes, "DRAM and SSD": curve.dram_bytes + curve.ssd_bytes}
    if as_json:
        print_json({
            "requests": curve.requests, "blocks": curve.curve.blocks,
            "block_bytes": curve.block_bytes, "sampled": curve.curve.sampled,
            "ideal_hit_token_ratio": curve.curve.ideal, "knee_bytes": curve.knee_bytes,
            "pool": [{"tier": name, "bytes": size, "hit_token_ratio": curve.hit_ratio(size)}
                     for name, size in sizes.items()],
            "curve": [{"bytes": size, "hit_token_ratio": ratio} for size, ratio in curve.points()],
        })  # fmt: skip
        return
    rows = [(amount(size, "bytes"), amount(ratio, "share")) for size, ratio in curve.points()]
    print_rows(f"{asked.name}: hit ratio by size", ("memory pool", "hit ratio at most"), rows)
    named = {"requests looked at": f"{curve.requests:,}", "endless": _said(curve.curve.ideal)}
    named["95 % of that from"] = amount(curve.knee_bytes, "bytes")
    named |= {f"this pool's {name}": f"{amount(size, 'bytes')}: {_said(curve.hit_ratio(size))}"
              for name, size in sizes.items()}  # fmt: skip
    print_rows("The pool", ("", ""), list(named.items()))


def _said(ratio: float) -> str:
    return amount(ratio, "share")
