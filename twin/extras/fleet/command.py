"""The command `fleet`."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from twin.commands.terminal import AsJson, end_with_json, out, print_rows, progress_bar
from twin.extras.fleet.answer import answer_in_words, fleet_answer, runs_from_store
from twin.extras.fleet.question import load_fleet
from twin.lab.runs.executor import Runner
from twin.lab.store import open_store
from twin.metrics.registry import METRICS, shown

COLUMNS = ("requests", "throughput_req_per_s", "slo_attainment", "ttft_s_p99", "tpot_s_p99",
           "npu_hours", "energy_kwh")  # fmt: skip


def fleet(
    file: Annotated[Path, typer.Argument(help="A fleet file (.toml), as data/examples has them.")],
    processes: Annotated[int, typer.Option(
        min=0, max=64, help="Runs at a time on this machine; 0: as many as fit.")] = 0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Simulate supernodes behind a front router; each different one is run once and stored."""
    question, fleet_name = load_fleet(file)
    with (
        closing(open_store()) as store, progress_bar(question.name) as watch,
        closing(Runner(store, processes=processes or None, standby=0).start()) as runner,
    ):  # fmt: skip
        answer = fleet_answer(question, fleet_name, runs_from_store(store, runner, watch))
    end_with_json(answer, as_json)
    fleet_row = answer["summary"] | {"name": "the fleet", "supernodes": answer["supernodes"]}
    rows = [
        (row["name"], str(row["supernodes"]), *(shown(key, row.get(key)) for key in COLUMNS))
        for row in (*answer["rows"], fleet_row)
    ]
    heads = ("each of", "supernodes", *(METRICS[key].tile for key in COLUMNS))
    print_rows(answer["name"], heads, rows)
    for sentence in answer_in_words(answer):
        out.print(sentence)
