"""Machines: recipes, and what was imported from a file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, end_with_json, out, print_answer
from twin.hardware.graph_text import forms
from twin.hardware.machine_file import fabric_text
from twin.hardware.prices import summary
from twin.hardware.recipes import recipe_names
from twin.lab.files import check_writable, printable, write_text
from twin.lab.library import load_facts
from twin.lab.machines import build_machine, read_machine, supernode_of
from twin.lab.store import open_store
from twin.scenario import ROUTINGS
from twin.scenario.words import numbered

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)

SHOWN = (
    "npus", "dies", "nodes", "cpus", "switches", "sub_planes", "ub_links", "npu_bytes_per_s",
    "node_uplink_bytes_per_s", "bisection_bytes_per_s", "rdma_bytes_per_s", "vpc_bytes_per_s",
)  # fmt: skip

Named = Annotated[str, typer.Argument(help="A recipe, or an imported machine by name or digest.")]


@app.command("list")
def list_machines(as_json: AsJson = False) -> None:
    """List the recipes of data/machines and the machines that were imported."""
    facts, machines = load_facts(), dict[str, dict[str, Any]]()
    for name in recipe_names(facts):
        title = str(facts[f"machines.{name}.title"].value)
        machines[name] = {"npus": supernode_of(name, facts).npus, "title": title}
    for row in open_store().machines.search().rows:
        machines[row.digest] = {"npus": row.about.get("npus"), "title": f"imported: {row.name}"}
    machine_rows = [(name, f"{row['npus'] or 0:,}", row["title"]) for name, row in machines.items()]
    print_answer(machines, as_json, "Machines", ("machine", "NPUs", "what it is"), machine_rows)


@app.command("show")
def show_machine(name: Named, as_json: AsJson = False) -> None:
    """Count a machine's elements and say its headline rates."""
    all_figures = summary(build_machine(name, load_facts(), open_store()))
    figures = {key: all_figures[key] for key in SHOWN}
    figure_rows = [
        (key.replace("_", " ").removesuffix(" bytes per s"),
         f"{value / 1e9:,.1f} GB/s" if key.endswith("_per_s") else f"{value:,.0f}")
        for key, value in figures.items()
    ]  # fmt: skip
    print_answer(figures, as_json, name, ("figure", "value"), figure_rows)


@app.command("import")
def import_machine(
    file: Annotated[Path, typer.Argument(help="A cable list or a graph.")],
    routing: Annotated[str, typer.Option(
        help="adaptive, ecmp or hashed; as the file says, else adaptive.")] = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Import a machine from a file."""
    if routing and routing not in ROUTINGS:
        raise typer.BadParameter(f"take {' or '.join(ROUTINGS)}", param_hint="--routing")
    machine = read_machine(file)
    machine = machine.with_routing(routing or machine.routing)
    digest = open_store().machines.save(machine)
    end_with_json({"machine": digest, "npus": machine.npus}, as_json)
    usage = f"ask for it as supernode.machine={digest}"
    out.print(escape(f"{machine.name}: {numbered(machine.npus, 'NPU')}; {usage}"), soft_wrap=True)


@app.command("export")
def export_machine(
    name: Named,
    to: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it here.")] = None,
    form: Annotated[str, typer.Option("--format", help="json, csv, or an extra's.")] = "json",
) -> None:
    """Write a machine as node-link JSON, a cable list, or in another form of graphs."""
    if form not in forms():
        raise typer.BadParameter(f"take {' or '.join(forms())}", param_hint="--format")
    if to is not None:
        check_writable(to)
    machine_text = fabric_text(build_machine(name, load_facts(), open_store()), form)
    if to is None:
        out.file.write(machine_text)
    else:
        write_text(to, machine_text)
        out.print(escape(f"{printable(str(to))} is written"))
