"""The command `launch`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, ScenarioName, Settings, end_with_json, out
from twin.lab.ask import scenario_and_trace
from twin.lab.files import write_text
from twin.lab.library import load_facts


def launch(
    scenario: ScenarioName,
    engine: Annotated[str, typer.Option(help="vllm-ascend, sglang or dynamo.")] = "vllm-ascend",
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option(
        help="Write the files to this folder; else they are printed.")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Launch files of a deployment for an engine, what they leave out, and a start check."""
    from twin.extras.launch.engines import launch_files

    question, _ = scenario_and_trace(scenario, settings or [])
    files = launch_files(question, load_facts(), engine)
    if folder is not None:
        if not folder.is_dir():
            raise typer.BadParameter(f"{folder} is no folder to write to")
        for name, text in files.files.items():
            write_text(folder / name, text)
    end_with_json(asdict(files), as_json)
    for name, text in files.files.items():
        out.print(escape(f"wrote {folder / name}" if folder else f"# {name}\n{text}"),
                  soft_wrap=True, highlight=False)  # fmt: skip
    for title, sentences in (("Not expressed", files.left_out), ("Start check", files.checks)):
        out.print(title, style="bold")
        for sentence in sentences:
            out.print(escape(f"- {sentence}"), soft_wrap=True, highlight=False)
