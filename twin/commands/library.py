"""The library: stored scenarios, runs and imported files."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, out, print_answer, print_json, progress_bar
from twin.lab.files import open_atomic
from twin.lab.runs.runner import verify_runs
from twin.lab.store import open_store
from twin.lab.store.archive import Report, read_archive_file, write_archive
from twin.lab.traces.reader import read_trace, trace_figures
from twin.lab.traces.source import LOCAL

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.command("export")
def export_library(
    file: Annotated[Path, typer.Argument(help="The archive to write.")],
    run: Annotated[list[str] | None, typer.Option(
        metavar="ID", help="Only this run; repeat it for more.")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write all that is stored, or some runs and what belongs to them, to one file."""
    store = open_store()
    with open_atomic(file) as archive:
        report = write_archive(store, archive, run)
    _print_report(f"written to {file.name}", report, as_json)


@app.command("import")
def import_library(
    file: Annotated[Path, typer.Argument(help="An archive that `library export` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Import an archive; values that are here already stay unchanged."""
    _print_report(f"taken from {file.name}", read_archive_file(open_store(), file), as_json)


def _print_report(done: str, report: Report, as_json: bool) -> None:
    """Print what an archive's export or import moved and left out, after the words `done` (what was
    done); exit status 1 if something was left out."""
    if as_json:
        print_json({"new": report.new, "here": report.present, "left_out": report.left_out})
    else:
        for reason in report.left_out:
            out.print(escape(f"left out: {reason}"), soft_wrap=True)
        moved = [
            f"{count:,} {kind}{'' if count == 1 or kind.endswith('s') else 's'}"
            for kind, count in sorted(report.new.items())
        ]
        present = f"; {report.present.total():,} were here" if report.present else ""
        out.print(escape(f"{done}: {', '.join(moved) or 'nothing new'}{present}"), soft_wrap=True)
    if report.left_out:
        raise typer.Exit(1)


def check_stored(as_json: AsJson = False) -> None:
    """Read every stored value once and list what is damaged."""
    store = open_store()
    damages = store.find_damage()
    if as_json:
        print_json({"damage": damages, "warnings": store.database.warnings})
    else:
        for line in (*store.database.warnings, *(damages or ["Nothing stored is damaged."])):
            out.print(escape(line), soft_wrap=True)
    if damages:
        raise typer.Exit(1)


def verify_archive(
    file: Annotated[Path, typer.Argument(help="An archive that `library export` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Compute every run of an archive anew, and say whether it gives the same bytes."""
    with progress_bar(file.name) as show_progress:
        verdicts = [*verify_runs(file, show_progress)]
    rows = [(row.run[:12], row.name, row.state, row.why) for row in verdicts]
    heads = ("run", "scenario", "computed anew", "")
    print_answer([asdict(row) for row in verdicts], as_json, f"Runs of {file.name}", heads, rows)
    if not verdicts or any(row.state != "same bytes" for row in verdicts):
        raise typer.Exit(1)


def import_trace(
    trace: Annotated[Path, typer.Argument(help="A recorded request stream, plain or gzip.")],
    block_tokens: Annotated[int | None, typer.Option(
        min=1, help="Tokens of a hashed block, where the file does not say.")] = None,
    prompt_tokens: Annotated[int, typer.Option(
        min=0, help="Leave longer prompts out; 0: than any model of data/models takes.")] = 0,
    as_json: AsJson = False,
    no_store: Annotated[bool, typer.Option("--no-store", help="Only show what is in it.")] = False,
) -> None:  # fmt: skip
    """Import a recorded request stream and show its figures."""
    limits = replace(LOCAL, prompt_tokens=prompt_tokens)
    table = read_trace(trace, block_tokens=block_tokens, limits=limits)
    if not no_store:
        open_store().traces.save(table)
    summary = trace_figures(table)
    flat_figures = {k: "; ".join(v) if isinstance(v, list) else v for k, v in summary.items()}
    by_name = {k: v if isinstance(v, dict) else {"": v} for k, v in flat_figures.items()}
    figures = {f"{name} {label}".strip(): value for name, by_label in by_name.items()
               for label, value in by_label.items() if value is not None}  # fmt: skip
    figure_rows = [(k, f"{v:,.5g}" if isinstance(v, float) else str(v)) for k, v in figures.items()]
    print_answer(summary, as_json, table.name, ("what", "figure"), figure_rows)
