"""The command line: `python -m twin COMMAND`. The same library, results and store as the pages.

Words in, one call into `lab`, a table or one JSON object out. Standard output carries the answer,
standard error everything else. Exit status: 0 the answer is valid, 1 a run broke one of its own
laws or something stored is damaged, 2 the question is at fault, 3 the answer could not be written
or kept; said in one sentence.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin import hooks
from twin.commands import library as library_command
from twin.commands import study as study_command
from twin.commands import terminal
from twin.commands.terminal import (
    AsJson,
    Asked,
    Settings,
    TraceFile,
    err,
    out,
    pairs,
    print_json,
    print_rows,
    progress,
)

app = typer.Typer(
    help="A digital twin of an AI supernode that serves large language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(library_command.machine_app, name="machine")
app.add_typer(library_command.library_app, name="library")
app.command()(study_command.sweep)
app.command("hit-curve")(study_command.hit_curve)
app.command("model-cache")(study_command.model_cache)
app.command("controllers")(study_command.own_controllers)
for name, hook in hooks.found(hooks.Command).items():
    app.command(name)(hook.load())

Multiplier = Annotated[float, typer.Option(help="The trace's requests come so many times faster.")]
Copies = Annotated[int, typer.Option(help="Copies of the trace, each under block ids of its own.")]
NoStore = Annotated[bool, typer.Option("--no-store", help="Do not keep the run.")]


@app.command()
def run(
    scenario: Asked,
    trace: TraceFile = None,
    settings: Settings = None,
    rate_multiplier: Multiplier = 1.0,
    tree_copies: Copies = 1,
    as_json: AsJson = False,
    no_store: NoStore = False,
    table: Annotated[
        list[str] | None, typer.Option(help="With --json: a table of the run too, as rows.")
    ] = None,
) -> None:
    """Simulate a scenario and keep the run."""
    from twin.lab.ask import question
    from twin.lab.runs.answer import answer

    asked, recorded = question(scenario, settings or [], trace, rate_multiplier, tree_copies)
    terminal.print_remarks(asked)
    with progress(asked.name) as watch:
        finished = answer(asked, recorded, watch, keep=not no_store, tables=table or ())
    if as_json:
        print_json(finished)
    else:
        terminal.print_run(finished)
    raise typer.Exit(0 if finished["valid"] else 1)


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this machine.")] = 8501,
) -> None:
    """Serve the dashboard to this machine, until Ctrl-C."""
    terminal.become_dashboard(port)


@app.command()
def warm() -> None:
    """Compile what runs need, once; the first run on a machine then waits for nothing."""
    from twin.lab.runs.job import compile_once

    def tell(stage: str, took_s: float | None) -> None:
        if took_s is not None:
            err.print(f"{stage}: {took_s:.1f} s", style="dim")

    compile_once(tell)
    out.print("Runs are compiled: the first one begins at once.")


@app.command()
def presets(as_json: AsJson = False) -> None:
    """List the questions that come with the twin."""
    from twin.lab.library import presets as library

    if as_json:
        print_json({p.key: p.scenario.model_dump(mode="json") for p in library()})
        return
    print_rows("Presets", ("preset", "question"), [(p.key, p.scenario.question) for p in library()])


@app.command()
def fields(
    words: Annotated[str, typer.Argument(help="Part of a name or label.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the fields that `--set` can replace, and where each has an effect."""
    from twin.lab import ask

    rows = ask.fields_like(words)
    if as_json:
        print_json({row.pop("field"): row for row in rows})
    else:
        print_rows("Fields", tuple(rows[0]), [tuple(row.values()) for row in rows])


@app.command()
def predict(scenario: Asked, settings: Settings = None, as_json: AsJson = False) -> None:
    """The steady state by formula alone: no arrivals, no queues, milliseconds of wall time."""
    from twin.lab.ask import question
    from twin.lab.runs.answer import predicted

    asked, _ = question(scenario, settings or [])
    prediction = predicted(asked)
    if as_json:
        print_json(prediction)
        return
    from twin.metrics.measures import seconds
    from twin.metrics.registry import shown

    rows = [(k, shown(k, v)) for k, v in prediction["summary"].items()]
    print_rows(f"{asked.name}: always full", ("figure", "value"), rows)
    for phase, operators in prediction["operators"].items():
        total = sum(operators.values())
        longest = sorted(operators.items(), key=lambda item: -item[1])
        shares = [(k, seconds(v), f"{100 * v / total:.1f} %") for k, v in longest]
        print_rows(f"Where {phase} time goes", ("operator", "critical path", "share"), shares)
    for sentence in (prediction["advice"], *prediction["errors"]):
        out.print(escape(sentence))
    out.print(f"{seconds(prediction['wall_s'])} of wall time, compiling left out", style="dim")


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Presets, scenario files or run ids; 2 to 6.")],
    as_json: AsJson = False,
) -> None:
    """Put runs side by side, the first one the baseline; what was never run is run first."""
    from twin.lab.runs.answer import compared

    with progress("compare") as watch:
        comparison = compared(runs, lambda name: watch)
    if as_json:
        print_json(asdict(comparison))
        return
    heads = [f"{i + 1} {name}" for i, name in enumerate(comparison.names)]
    asked = [r for r in comparison.inputs if r.path not in {"name", "question", "source"}]
    inputs = [(r.path, *(f"{v} {r.unit}".strip() for v in r.values)) for r in asked]
    print_rows("What was asked", ("field", *heads), inputs)
    figures = [(r.name, *r.cells()) for r in comparison.metrics if set(r.verdicts) != {"same"}]
    print_rows("What came of it", ("figure", *heads), figures)
    for note in comparison.notes:
        out.print(escape(note))


@app.command()
def explain(
    scenario: Annotated[str, typer.Argument(help="A preset, a scenario file or a run's id.")],
    trace: TraceFile = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Say why a run is as fast as it is and what would help, each measured by re-runs."""
    from twin.lab.explain.words import change, effect
    from twin.lab.runs.answer import explained

    with progress(scenario) as watch:
        known = explained(scenario, settings or [], trace, lambda name: watch)
    if as_json:
        print_json(known)
        return
    out.print(escape(f"{known['name']}: {known['verdict']}"), soft_wrap=True)
    rows = []
    for row in known["causes"]:
        gain = row.get("suggestion")
        done = (change(gain["settings"]), effect(gain)) if gain else ("nothing tried helps", "")
        named = f"{row['label']}: {row['named']}" if row["named"] else row["label"]
        rows.append((named, effect(row["removal"]), *done))
    if rows:
        heads = ("cause", "without it", "what to do", "which brings")
        print_rows("Causes, each removed in runs of its own", heads, rows)
    else:
        out.print("No cause was found that a re-run confirms.")
    out.print(f"{known['runs']} runs", style="dim")


@app.command("import")
def import_trace(
    trace: Annotated[Path, typer.Argument(help="A recorded request stream, plain or gzip.")],
    block_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a hashed block, where the file does not say."),
    ] = None,
    prompt_tokens: Annotated[
        int,
        typer.Option(
            min=0, help="Leave longer prompts out; 0: than any model of data/models takes."
        ),
    ] = 0,
    as_json: AsJson = False,
    no_store: Annotated[bool, typer.Option("--no-store", help="Only show what is in it.")] = False,
) -> None:
    """Read a recorded request stream, show what is in it, and keep it."""
    from twin.lab.traces.reader import preview, read_trace
    from twin.lab.traces.source import LOCAL

    limits = replace(LOCAL, prompt_tokens=prompt_tokens)
    table = read_trace(trace, block_tokens=block_tokens, limits=limits)
    if not no_store:
        from twin.lab.store import open_store

        open_store().traces.save(table)
    contents = preview(table)
    if as_json:
        print_json(contents)
        return
    flat = {f"{k} {n}".strip(): v for k, part in contents.items() for n, v in pairs(part)}
    rows = [(k, f"{v:,.5g}" if isinstance(v, float) else str(v)) for k, v in flat.items()]
    print_rows(table.name, ("what", "figure"), [row for row in rows if row[1] != "None"])


@app.command()
def check(as_json: AsJson = False) -> None:
    """Read everything that is stored once, and say what is damaged."""
    from twin.lab.store import open_store

    store = open_store()
    damage = store.damage()
    if as_json:
        print_json({"damage": damage, "warnings": store.warnings})
    for said in () if as_json else (*store.warnings, *(damage or ["Nothing stored is damaged."])):
        out.print(escape(said), soft_wrap=True)
    if damage:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; a question at fault is one sentence and exit status 2."""
    from twin.facts import FactError
    from twin.lab.files import NotWritten

    # Pydantic would look for plugins in every package that is installed, which takes longer than
    # all of our models.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A command begins with all imports and a large graph, of which nothing becomes garbage.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        app(standalone_mode=True)
    except (ValueError, FactError, OSError) as error:
        # Only the rooms' own errors are sentences, and an OSError without a name is a stream's:
        # files that people name are refused by the rooms. Anything else is a fault of the twin.
        stream = error.strerror if isinstance(error, OSError) and not error.filename else ""
        if not stream and not type(error).__module__.startswith("twin."):
            raise
        why = f"the answer cannot be written: {stream}" if stream else str(error)
        err.print(escape(why), style="red", soft_wrap=True)
        sys.exit(3 if stream or isinstance(error, NotWritten) else 2)


if __name__ == "__main__":
    main()
