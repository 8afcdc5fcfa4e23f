"""Commands that compute nothing: `presets`, `fields`, `controllers`, `serve`."""

import os
import sys
from typing import Annotated

import typer

from twin.commands.terminal import AsJson, print_json, print_rows
from twin.lab import ask
from twin.lab.controllers import VARIABLE, controllers
from twin.lab.library import ROOT, facts_environment
from twin.lab.library import presets as library


def presets(as_json: AsJson = False) -> None:
    """List the questions that come with the twin."""
    if as_json:
        print_json({p.key: p.scenario.model_dump(mode="json") for p in library()})
        return
    print_rows("Presets", ("preset", "question"), [(p.key, p.scenario.question) for p in library()])


def fields(
    words: Annotated[str, typer.Argument(help="Part of a name or label.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the fields that `--set` can replace, and where each has an effect."""
    rows = ask.fields_like(words)
    if as_json:
        print_json({row.pop("field"): row for row in rows})
    else:
        print_rows("Fields", tuple(rows[0]), [tuple(row.values()) for row in rows])


def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this machine.")] = 8501,
) -> None:
    """Serve the dashboard to this machine, until Ctrl-C."""
    # The frame and its settings lie in one folder: streamlit reads them from where it is started.
    os.chdir(ROOT)
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    os.execve(sys.executable, command, {**os.environ, **facts_environment()})


def own_controllers(as_json: AsJson = False) -> None:
    """Controllers of the folder that TWIN_CONTROLLERS names, with their digests."""
    digests = controllers()
    if as_json:
        print_json(digests)
        return
    print_rows(f"Controllers of {VARIABLE}", ("name", "elastic.own.digest"), list(digests.items()))
