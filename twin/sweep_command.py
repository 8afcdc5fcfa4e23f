"""`python -m twin sweep`: one question over a range of one or two fields."""

from __future__ import annotations

from typing import Annotated

import typer

from twin import terminal
from twin.arguments import AsJson, Asked, Settings
from twin.terminal import out, print_json, print_rows

Over = Annotated[
    list[str],
    typer.Option(
        metavar="FIELD=A:B:N",
        help="N values from A to B (:log in even ratios), or FIELD=A,B,C; twice for two fields.",
    ),
]


def sweep(
    scenario: Asked,
    over: Over,
    settings: Settings = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV on standard output; SI units.")
    ] = False,
) -> None:
    """Simulate a scenario over a range of one or two fields, and say where its SLO breaks."""
    from twin.lab import sweep as lab
    from twin.lab.ask import question
    from twin.lab.executor import Runner
    from twin.lab.store import open_store
    from twin.metrics.registry import shown

    asked, _ = question(scenario, settings or [])
    axes = [lab.axis(text) for text in over]
    points = lab.points(asked, axes)
    store = open_store()
    runner = Runner(store).start()
    rows = []
    try:
        with terminal.progress(asked.name) as watch:
            for row in lab.carried_out(runner, points):
                rows.append(row)
                watch(len(rows) / len(points), {"points": len(rows)})
    finally:
        runner.close()
    table = lab.table(axes, points, rows)
    told = ""
    if len(axes) == 1:
        ran = [(p.scenario or asked, row.summary if row else {})
               for p, row in zip(points, rows, strict=True)]  # fmt: skip
        told = lab.conclusion(axes[0], [s for s, _ in ran], [summary for _, summary in ran])
    if as_json:
        print_json({"over": [a.text for a in axes], "conclusion": told, "points": table})
        return
    if as_csv:
        out.file.write(lab.csv_of(table))
        return
    keys = ["ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu"]
    cells = [
        (
            *(a.said(row[a.path]) for a in axes),
            {True: "kept", False: "broken", None: row["why"] or row["state"]}[row["slo_kept"]],
            *(shown(key, row[key]) for key in keys),
            row["run"] or "",
        )
        for row in table
    ]
    print_rows(f"{asked.name} over {' and '.join(a.label for a in axes)}",
               (*(a.label for a in axes), "SLO", *keys, "run"), cells)  # fmt: skip
    if told:
        out.print(told)
