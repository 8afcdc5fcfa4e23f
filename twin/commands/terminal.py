"""The terminal: shared options, tables, JSON, progress; the answer alone is on standard output."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import typer
from rich.console import Console
from rich.markup import escape

from twin.hooks import Report, hooks_of
from twin.lab.files import check_writable, write_text

ScenarioName = Annotated[str, typer.Argument(help="A scenario file (.toml) or a preset's key.")]
Settings = Annotated[list[str] | None, typer.Option(
    "--set", metavar="FIELD=VALUE",
    help="Replace a field that `fields` lists; scheduler=stack: what the stack's scheduler sets.",
)]  # fmt: skip
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="A recorded stream; replaces the workload."),
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a report, one HTML file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Rows = Sequence[tuple[str, ...]]

# A pipe has no width of its own; 80 columns would cut names and figures in two.
out = Console(width=None if sys.stdout and sys.stdout.isatty() else 120)
err = Console(stderr=True)


def report_writer(kind: str, to: Path | None) -> Callable[..., None]:
    """A function that writes a "run" or "plan" (kind) with its answer as a report to the file `to`;
    one without effect if `to` is None. Raises NotWritten or a usage error at once."""
    report_hook = hooks_of(Report).get(kind)
    if to is None:
        return lambda *_answer: None
    if report_hook is None:
        raise typer.BadParameter("--html needs the extra `report`, whose folder is not here")
    check_writable(to)
    return lambda *answer: write_text(to, report_hook.load()(*answer))


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[float, Mapping[str, Any]], bool]]:
    """Context with a progress bar on standard error; yields the function that moves it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[live]}"), console=err, transient=True) as bar:
        task = bar.add_task(escape(name), total=1.0, live="preparing (compiles once per machine)")

        def watch(fraction: float, live: Mapping[str, Any]) -> bool:
            """Move the bar to a fraction from 0 to 1, with counts so far; returns True: go on."""
            status = ", ".join(f"{count:,.0f} {k}" for k, count in live.items() if k != "points")
            bar.update(task, completed=fraction, live=status)
            return True

        yield watch


def print_json(value: object) -> None:
    """Print one JSON object on standard output; raises ValueError if it has NaN or infinity."""
    out.file.write(json.dumps(value, allow_nan=False) + "\n")


def end_with_json(value: object, as_json: bool) -> None:
    """Print the answer as one JSON object and end the command; without `as_json` do nothing."""
    if as_json:
        print_json(value)
        raise typer.Exit


def print_answer(
    value: object, as_json: bool, title: str, heads: tuple[str, ...], rows: Rows
) -> None:
    """Print an answer: as one JSON object, or its rows as a table for people."""
    if as_json:
        print_json(value)
    else:
        print_rows(title, heads, rows)


def bytes_out() -> BinaryIO:
    """Standard output as a binary stream; a buffer for a process that was started without one."""
    return sys.stdout.buffer if sys.stdout else BytesIO()


def print_rows(title: str, heads: tuple[str, ...], rows: Rows) -> None:
    """Print a table, a column for each of `heads`; cells are shown as they are, without markup."""
    from rich.table import Table

    rich_table = Table(title=escape(title), title_justify="left")
    for index, heading in enumerate(heads):
        is_numeric = all(row[index][:1] in "+-0123456789" for row in rows)
        alignment: Literal["right", "left"] = "right" if is_numeric else "left"
        # The name of a thing stays on one line: a broken one cannot be copied.
        rich_table.add_column(heading, justify=alignment, overflow="fold", no_wrap=index == 0)
    for row in rows:
        rich_table.add_row(*map(escape, row))
    out.print(rich_table)
