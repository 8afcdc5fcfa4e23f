"""Commands that compute nothing: `presets`, `fields`, `controllers`, `serve`."""

import os
import sys
from typing import Annotated

import typer

from twin.commands.terminal import AsJson, print_answer
from twin.lab import ask
from twin.lab.controllers import VARIABLE, controller_digests
from twin.lab.library import ROOT, facts_environment
from twin.lab.library import presets as library


def list_presets(as_json: AsJson = False) -> None:
    """List the questions that come with the twin."""
    scenarios = {preset.key: preset.scenario.model_dump(mode="json") for preset in library()}
    question_rows = [(preset.key, preset.scenario.question) for preset in library()]
    print_answer(scenarios, as_json, "Presets", ("preset", "question"), question_rows)


def list_fields(
    words: Annotated[str, typer.Argument(help="Part of a name or label.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the fields that `--set` can replace, and where each has an effect."""
    rows = ask.fields_like(words)
    by_path = {row["field"]: {k: cell for k, cell in row.items() if k != "field"} for row in rows}
    print_answer(by_path, as_json, "Fields", tuple(rows[0]), [tuple(row.values()) for row in rows])


def serve_dashboard(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this machine.")] = 8501,
) -> None:
    """Serve the dashboard to this machine, until Ctrl-C."""
    # The frame and its settings lie in one folder: streamlit reads them from where it is started.
    os.chdir(ROOT)
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    os.execve(sys.executable, command, {**os.environ, **facts_environment()})


def list_controllers(as_json: AsJson = False) -> None:
    """List the controllers of the folder that TWIN_CONTROLLERS names, with their digests."""
    digest_of, title = controller_digests(), f"Controllers of {VARIABLE}"
    if not digest_of:
        typer.echo(f"{VARIABLE} names no folder with Python files", err=True)
    print_answer(digest_of, as_json, title, ("name", "elastic.own.digest"), [*digest_of.items()])
