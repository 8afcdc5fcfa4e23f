"""The command `library`: everything that is stored as one file, and taken in from one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twin.arguments import AsJson
from twin.terminal import out, print_json

if TYPE_CHECKING:
    from twin.lab.store.archive import Moved

app = typer.Typer(
    help="The library: stored scenarios, runs and imported files.", no_args_is_help=True
)


@app.command("export")
def export_library(
    file: Annotated[Path, typer.Argument(help="The archive to write.")],
    run: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this run; repeat it for more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write all that is stored, or some runs and what belongs to them, to one file."""
    from twin.lab.files import whole_file
    from twin.lab.store import open_store
    from twin.lab.store.archive import write_archive

    store = open_store()
    with whole_file(file) as target:
        moved = write_archive(store, target, run)
    _tell(f"written to {file.name}", moved, as_json)


@app.command("import")
def import_library(
    file: Annotated[Path, typer.Argument(help="An archive that `library export` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Take in what an archive holds; what is here already stays as it is."""
    from twin.lab.store import open_store
    from twin.lab.store.restore import read_archive_file

    _tell(f"taken from {file.name}", read_archive_file(open_store(), file), as_json)


def _tell(what: str, moved: Moved, as_json: bool) -> None:
    """Say what moved and what was left out; exit status 1 where something was."""
    if as_json:
        print_json({"new": moved.new, "here": moved.here, "left_out": moved.left_out})
    else:
        for said in moved.left_out:
            out.print(escape(f"left out: {said}"), soft_wrap=True)
        counts = [f"{count:,} {kind}" for kind, count in sorted(moved.new.items())]
        here = f"; {moved.here.total():,} were here" if moved.here else ""
        out.print(escape(f"{what}: {', '.join(counts) or 'nothing new'}{here}"), soft_wrap=True)
    if moved.left_out:
        raise typer.Exit(1)
