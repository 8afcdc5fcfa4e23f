"""The command `operator-facts`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twin.commands.terminal import AsJson, end_with_json, err, print_rows

if TYPE_CHECKING:
    from twin.extras.operator_tables.fits import Fitted


def operator_facts(
    path: Annotated[Path, typer.Argument(help="A table, or a folder with the tables of a chip.")],
    chip: Annotated[str, typer.Option(help="The chip in data/chips that was measured.")],
    held: Annotated[float, typer.Option(
        min=0.05, max=0.5, help="Share of a table's rows that is held back.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Draws the rows that are held back.")] = 26,
    node: Annotated[int, typer.Option(min=1, help="Dies of a node.")] = 8,
    source: Annotated[str, typer.Option(
        help="Print facts for data/chips, with this as where tables stand.")] = "",
    engine: Annotated[str, typer.Option(
        help="With --source: facts of this engine's own kernel library.")] = "",
    link: Annotated[float, typer.Option(help="GB/s of a die inside a node, one way.")] = 450.0,
    nic: Annotated[float, typer.Option(help="GB/s of a die's NIC, one way.")] = 50.0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print a chip's operator efficiencies by a measured table, with errors of rows left out."""
    from dataclasses import asdict

    from twin.extras.operator_tables.chosen import choose_tables, fact_lines, library_facts
    from twin.extras.operator_tables.fits import Peaks, fit
    from twin.extras.operator_tables.tables import NoTable, read_tables
    from twin.hardware.chip import load_chip
    from twin.lab.library import load_facts

    facts = load_facts()
    hardware, formats = load_chip(facts, chip), facts.names(f"chips.{chip}.flops")
    peaks = Peaks({name: hardware.peak(name) for name in formats}, hardware.hbm_bytes_per_s, node)
    fits: list[Fitted] = []
    try:
        with err.status("fitting"):
            for table in read_tables(path):
                fits += fit(table, peaks, held, seed)
    except NoTable as refusal:
        raise typer.BadParameter(str(refusal)) from refusal
    end_with_json([asdict(fit_row) | {"table": fit_row.name} for fit_row in fits], as_json)
    if source and engine:
        typer.echo(library_facts(choose_tables(fits, engine), source, engine, link))
        return
    if source:
        typer.echo(fact_lines(choose_tables(fits), source, {"inside": link, "across": nic}))
        return
    heads = ("table", "start", "peak or rate", "memory", "tile or power", "rows", "held", "worst")
    print_rows("Facts", heads, [_printed_row(fit_row) for fit_row in fits])


def _printed_row(fit: "Fitted") -> tuple[str, ...]:
    """Texts of one fit for the printed table, by column."""
    facts = fit.facts
    rate = f"{facts['rate'] / 1e9:.0f} GB/s" if "rate" in facts else f"{facts['compute']:.3f}"
    tiles = [f"{facts[key]:.0f}" for key in ("tile_small", "tile_large", "power") if key in facts]
    memory = f"{facts['bandwidth']:.3f}" if "bandwidth" in facts else ""
    return (
        fit.name.replace(", ", "\n", 1), f"{1e6 * facts.get('start', 0.0):.1f} us", rate, memory,
        "/".join(tiles), str(fit.rows), f"{100 * fit.mean:.1f} %", f"{100 * fit.worst:.0f} %",
    )  # fmt: skip
