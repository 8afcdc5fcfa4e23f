"""The command `import-counts`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, end_with_json, out
from twin.extras.count_import.reader import read_counts
from twin.lab.store import open_store


def import_counts(
    counts: Annotated[Path, typer.Argument(help="Expert counts: .npy, .npz, JSON or CSV.")],
    as_json: AsJson = False,
) -> None:
    """Import counts of how often each expert was picked."""
    table = read_counts(counts)
    digest = open_store().counts.save(table)
    layers, experts = table.counts.shape
    answer = {"counts": digest, "layers": layers, "experts": experts, "note": table.note}
    end_with_json(answer, as_json)
    description = f"{table.name}: {experts:,} experts of {layers} layers. {table.note}".rstrip()
    settings_text = f"--set experts.popularity=imported --set experts.counts.digest={digest}"
    out.print(escape(f"{description}\nAsk for it with {settings_text}"), soft_wrap=True)
