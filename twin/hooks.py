"""The hook table: what extras bring. An extra is a package of `twin/extras` whose `HOOKS` declare
what it adds, each with its code as "module:attribute", imported when the hook is loaded. No other
module knows an extra: with its folder deleted the twin lacks only what it brought."""

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Hook:
    """Something that an extra adds; `name` and its code."""

    name: str  # what people call it
    code: str  # "module:attribute"

    def load(self) -> Any:
        """Import the module of `code`; returns the attribute that `code` names, else the module."""
        module, _, attribute = self.code.partition(":")
        return getattr(import_module(module), attribute) if attribute else import_module(module)


class Command(Hook):
    """A command of the command line: a function as typer takes it."""


class MadePart(Hook):
    """A part of the documents: a function of the judged rows and of what makes a table of rows."""


@dataclass(frozen=True, slots=True)
class Page(Hook):
    """A page of the dashboard. Its name is its address and the name of its script in `code`, a
    package: there Streamlit and its `AppTest` look for it."""

    title: str
    icon: str  # of Material Symbols
    about: str  # one sentence: the tooltip of the navigation, and what forms say below the title
    section: str  # of the navigation

    @property
    def script(self) -> str:
        """Absolute path of the page's script in the installed package."""
        return str(Path(__file__).parents[1].joinpath(*self.code.split("."), f"{self.name}.py"))


class Reader(Hook):
    """A reader of files: a function of (bytes, name) that raises a ValueError of one sentence. Its
    name is the key of what it reads, of `lab/kinds.py`."""


class FileKind(Hook):
    """A kind of file that a process of its own reads: a `Kind` of `lab/kinds.py`, by its key."""


class GraphForm(Hook):
    """A text form of machines as graphs: a `Form` of `hardware/graph_text.py`."""


class Report(Hook):
    """Function that writes a "run" or a "plan" with its answer as one HTML file; returns text."""


class TraceFormat(Hook):
    """A format of recorded request streams: a `Format` of `lab/traces/formats.py`."""


@dataclass(frozen=True, slots=True)
class Section(Hook):
    """A part of an existing page. Its code is a function that draws the part; its arguments are the
    objects that the page shows at that place."""

    place: str  # who offers one calls `drawn` with it: "run.request"


H = TypeVar("H", bound=Hook)


def hooks_of(kind: type[H], place: str = "") -> dict[str, H]:
    """Hooks of the class `kind` by name, in the order of extras. place: selects the sections of
    that place; '' selects hooks that have no place."""
    return {
        hook.name: hook
        for hooks in extras().values()
        for hook in hooks
        if isinstance(hook, kind) and getattr(hook, "place", "") == place
    }


def draw_sections(place: str, *shown: Any) -> list[Any]:
    """Draw the sections that extras add at a place, such as "run.request"; returns the result of
    each. shown: arguments of the functions that draw them."""
    return [hook.load()(*shown) for hook in hooks_of(Section, place).values()]


@cache
def extras() -> dict[str, tuple[Hook, ...]]:
    """Hooks of each extra whose folder exists, by the extra's name."""
    extra_folders = import_module("twin.extras").__path__
    extra_names = sorted(module.name for module in pkgutil.iter_modules(extra_folders))
    return {name: import_module(f"twin.extras.{name}").HOOKS for name in extra_names}
