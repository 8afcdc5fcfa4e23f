"""The command `import-model`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, out, print_json
from twin.extras.model_import.reader import import_model as read
from twin.extras.model_import.reader import write_model


def import_model(
    config: Annotated[Path, typer.Argument(help="A config.json of Hugging Face.")],
    name: Annotated[str | None, typer.Option(help="What deployment.model will call it.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Add it to data/models.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read a model's config.json and show it as a file of data/models."""
    model = read(config, name)
    path = write_model(model) if write else None
    if as_json:
        figures = {k: asdict(fact) for k, fact in model.figures.items()}
        written = str(path) if path else None
        print_json({"name": model.name, "figures": figures, "written": written})
    elif path:
        out.print(escape(f"{path.name} is written: ask for it as deployment.model={model.name}"))
    else:
        out.file.write(model.toml)
