"""The command line: `python -m twin COMMAND`: words in, one call into `lab`, a table or one JSON
object on standard output, all else on standard error. Exit status: 0 a valid answer, 1 a run broke
a law or stored data is damaged, 2 the question is at fault, 3 the answer was not written."""

import ast
import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from twin.commands.terminal import err
from twin.hooks import Command, hooks_of
from twin.lab.files import NotWritten

COMMANDS = {  # as "module:function", or "module:app" for a group of commands
    "run": "twin.commands.runs:run_scenario",
    "serve": "twin.commands.lists:serve_dashboard",
    "warm": "twin.commands.runs:compile_ahead",
    "worker": "twin.commands.runs:run_worker",
    "presets": "twin.commands.lists:list_presets",
    "fields": "twin.commands.lists:list_fields",
    "predict": "twin.commands.runs:predict_scenario",
    "compare": "twin.commands.runs:compare_runs",
    "explain": "twin.commands.runs:explain_run",
    "plan": "twin.commands.plan:plan_deployment",
    "sweep": "twin.commands.runs:sweep_fields",
    "controllers": "twin.commands.lists:list_controllers",
    "import": "twin.commands.library:import_trace",
    "check": "twin.commands.library:check_stored",
    "verify": "twin.commands.library:verify_archive",
    "library": "twin.commands.library:app",
    "machine": "twin.commands.machine:app",
} | {name: hook.code for name, hook in hooks_of(Command).items()}


def help_of(code: str) -> str:
    """Returns the docstring of the command at "module:name", read from its source, not imported."""
    module_name, _, attribute = code.partition(":")
    module_file = Path(__file__).parent.joinpath(*module_name.split(".")[1:]).with_suffix(".py")
    syntax_tree = ast.parse(module_file.read_bytes())
    definitions = [node for node in syntax_tree.body if getattr(node, "name", "") == attribute]
    return ast.get_docstring(definitions[0] if definitions else syntax_tree) or ""  # type: ignore[arg-type]


def load_command(name: str) -> Any:
    """Import a command's module; returns the command with its arguments and options."""
    module_name, _, attribute = COMMANDS[name].partition(":")
    command = getattr(import_module(module_name), attribute)
    if not isinstance(command, typer.Typer):
        single_app = typer.Typer(add_completion=False)
        single_app.command(name)(command)
        command = single_app
    return typer.main.get_command(command)


class Lazy(TyperGroup):
    """A group that imports the module of a command only when that command is used."""

    def __init__(self, **typer_options: Any):
        """Register all commands of `COMMANDS` with their help text."""
        super().__init__(**typer_options)
        for name, code in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=help_of(code))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns (name, imported command, its arguments) of the command line `args`; an unknown
        command raises typer's usage error."""
        name, command, arguments = super().resolve_command(ctx, args)
        return name, command and load_command(args[0]), arguments


app = typer.Typer(cls=Lazy, no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False)  # fmt: skip


@app.callback()
def twin() -> None:
    """A digital twin of an AI supernode that serves large language models."""


def main() -> None:
    """Run the command line. An invalid question prints one sentence and exits with status 2; an
    answer that cannot be written exits with status 3."""
    # Pydantic would look for plugins in every package that is installed, which takes longer than
    # all of our models.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A command begins with all imports and a large graph, of which nothing becomes garbage.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        app(standalone_mode=True)
    except Exception as error:
        # Only the rooms' own errors are sentences, and an OSError without a name is a stream's:
        # files that people name are refused by the rooms. Anything else is a fault of the twin.
        reason = error.strerror if isinstance(error, OSError) and not error.filename else ""
        if not reason and not type(error).__module__.startswith("twin."):
            raise
        message = f"the answer cannot be written: {reason}" if reason else str(error)
        err.print(escape(message), style="red", soft_wrap=True)
        sys.exit(3 if reason or isinstance(error, NotWritten) else 2)


if __name__ == "__main__":
    main()
