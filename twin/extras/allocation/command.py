"""The command `allocate`."""

from typing import Annotated

import typer

from twin.commands.terminal import AsJson, end_with_json, print_rows
from twin.extras.allocation.study import allocated_shares
from twin.lab.ask import scenario_named
from twin.lab.library import load_facts
from twin.scenario.words import numbered


def allocate(
    supernode: Annotated[list[int] | None, typer.Option(
        min=1, max=100_000, metavar="NPUS", help="A size; repeat it for more.")] = None,
    block: Annotated[list[float] | None, typer.Option(
        metavar="NPUS", help="Mean size of tightly coupled blocks; repeat it.")] = None,
    instances_of: Annotated[str, typer.Option(
        metavar="SCENARIO", help="Also blocks as large as its instances.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the blocks that come.")] = 1,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show how full tightly coupled blocks fill supernodes of several sizes over time."""
    deployment = scenario_named(instances_of) if instances_of else None
    table = allocated_shares(load_facts(), supernode or (), block or (), deployment, seed)
    end_with_json({"allocated": table}, as_json)
    heads = [numbered(npus, "NPU") for npus in next(iter(table.values()))]
    rows = [
        (name, *("no room" if share is None else f"{100 * share:.1f} %"
                 for share in share_by_npus.values()))
        for name, share_by_npus in table.items()
    ]  # fmt: skip
    print_rows("NPUs of a supernode that are allocated, over time", ("blocks", *heads), rows)
