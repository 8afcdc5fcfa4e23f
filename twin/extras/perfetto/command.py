"""The command `trace`."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.markup import escape

from twin.commands.terminal import Settings, bytes_out, err, out, progress_bar
from twin.extras.perfetto.writer import check_span, write_trace
from twin.lab.files import check_writable, printable
from twin.lab.runs import watched
from twin.metrics.measures import seconds


def trace_run(
    run: Annotated[str, typer.Argument(help="A preset, a scenario file or a run's id.")],
    begin_s: Annotated[float | None, typer.Option(
        "--from", metavar="S", help="Second of the run to begin at.")] = None,
    end_s: Annotated[float | None, typer.Option(
        "--to", metavar="S", help="Second of the run to end at.")] = None,
    request: Annotated[int | None, typer.Option(
        min=0, help="From a request's arrival to its end, by its number.")] = None,
    to: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", help="Write it here; .gz compresses it.")] = None,
    settings: Settings = None,
    most_events: Annotated[int, typer.Option(min=1000, help="At most so many events.")] = 200_000,
) -> None:  # fmt: skip
    """Write a span of a run as a trace that ui.perfetto.dev opens; print a request's stages."""
    check_span(begin_s, end_s)
    if to is not None:
        check_writable(to)

    with progress_bar(run) as watch:
        source = watched.source_of(run, settings or [], watch)
    if request is not None:
        begin_s, end_s = watched.span_of_request(source, request)
        err.print(escape(stages_of(source, request)))
    target = to if to is not None else bytes_out()
    err.print(escape(write_trace(source, target, begin_s, end_s, most_events).sentence))
    if to is not None:
        out.print(escape(f"{printable(str(to))} is written: open it in ui.perfetto.dev"))


def stages_of(run: watched.Source, request: int) -> str:
    """The stages of a request of the run, by its number, with their lengths, as a sentence."""
    row = run.tables["requests"].row(by_predicate=pl.col("request_id") == request, named=True)
    parts = ", ".join(
        f"{name} {seconds(stage_s)}" for name, stage_s in watched.stage_times(row).items()
    )
    return f"Request {request}: {parts or 'still at the front end'}."
