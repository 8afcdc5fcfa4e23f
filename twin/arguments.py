"""What many commands ask for, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Asked = Annotated[str, typer.Argument(help="A scenario file (.toml) or a preset's key.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Replace a field that `fields` lists."),
]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="A recorded stream; replaces the workload."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
