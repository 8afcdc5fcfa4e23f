"""Compiled code: which functions are compiled, and where the result is stored between starts. A
`kernel` stays plain Python for Python and is compiled into whoever calls it; an `entry`, through
which Python enters compiled code, is compiled once, whole, and stored on disk by the *meaning* of
the sources: a digest of their syntax trees without comments and docstrings. Every meaning has a
folder, because a caller holds the code of what it calls; the oldest are removed."""

from __future__ import annotations

import ast
import contextvars
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")

SOURCES = Path(__file__).resolve().parents[1]
NUMBA_VARIABLE = "NUMBA_CACHE_DIR"
OWN_VARIABLE = "TWIN_NUMBA_CACHE_DIR"  # what NUMBA_CACHE_DIR is when the twin has set it
MEANINGS_STORED = 4  # meanings of the sources whose compiled kernels stay on disk
# Rooms that hold compiled code, and what its constants come from.
KERNELS = (
    "kernels", "scenario", "hardware", "model", "workload", "experts", "policies",
    "arrivals.py", "population.py", "slots.py", "engine",
)  # fmt: skip
# A division by zero gives what IEEE says and no exception: one that could leave at every division
# keeps a loop from being vectorised. What is not finite fails a run's checks.
ARITHMETIC: dict[str, Any] = {"error_model": "numpy"}
# Rooms that decide what a run says.
OTHERS = (
    "facts.py", "steady.py", "stationary.py", "outlook.py", "attainment.py", "prefill_queue.py",
    "metrics",
)  # fmt: skip
ANSWERS = (*KERNELS, *OTHERS)

# Functions to compile before a first run, by name, largest first, independent of each other; all
# are declared when `twin.engine.simulate` is imported.
STAGES: dict[str, Callable[[], Any]] = {}


@functools.cache  # of a file of two sets of rooms
def syntax_digest(source: str) -> str:
    """SHA-256 (hex) of the syntax tree of a Python source without docstrings and comments."""
    words: list[str] = []
    _add_flat_tree(ast.parse(source), words)
    return hashlib.sha256("".join(f"{word}\0" for word in words).encode()).hexdigest()


def _add_flat_tree(node: Any, words: list[str]) -> None:
    """Append a syntax tree as a flat sequence of words, equal under every Python that can read the
    source: empty fields are left out, so that fields of newer Pythons have no effect until used."""
    if isinstance(node, ast.AST):
        words.append(f"({type(node).__name__}")
        for field in node._fields:
            value: Any = getattr(node, field, None)
            if isinstance(node, ast.JoinedStr):
                value = _merge_string_parts(value)
            if value is None or value == [] or (field == "kind" and isinstance(node, ast.Constant)):
                continue
            words.append(field)
            _add_flat_tree(value, words)
        words.append(")")
    elif isinstance(node, list):
        words.append("[")
        for element in node:
            is_text = isinstance(element, ast.Expr) and isinstance(element.value, ast.Constant)
            if not is_text or not isinstance(element.value.value, str):  # as docstrings are
                _add_flat_tree(element, words)
        words.append("]")
    else:
        words.append(ascii(node))  # repr would depend on the Unicode tables of this Python


def _merge_string_parts(parts: list[Any]) -> list[Any]:
    """The parts of an f-string, neighbouring texts joined: Python 3.12 may add an empty text."""
    merged_parts: list[Any] = []
    for part in parts:
        part_text = part.value if isinstance(part, ast.Constant) else None
        if part_text is not None and merged_parts and isinstance(merged_parts[-1], ast.Constant):
            merged_parts[-1] = ast.Constant(str(merged_parts[-1].value) + str(part_text))
        elif part_text != "":
            merged_parts.append(part)
    return merged_parts


@functools.cache
def source_digest(rooms: Sequence[str] = KERNELS) -> str:
    """SHA-256 (hex) over path and syntax tree of all sources of these rooms of twin/."""
    globs = (room if room.endswith(".py") else f"{room}/**/*.py" for room in rooms)
    paths = [path for pattern in globs for path in sorted(SOURCES.glob(pattern))]
    source_of_path = {path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in paths}
    bytes_hash = hashlib.sha256()
    for path_name, source in source_of_path.items():
        bytes_hash.update(f"{path_name} {len(source)} ".encode() + source)
    # Reading syntax trees takes half a second: done once for every state of the files.
    cache_file = _cache_home() / "meanings" / bytes_hash.hexdigest()
    with suppress(OSError):
        return cache_file.read_text("ascii")
    meaning_hash = hashlib.sha256()
    for path_name, source in source_of_path.items():
        meaning_hash.update(f"{path_name} {syntax_digest(source.decode())}\n".encode())
    with suppress(OSError):
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        draft_file = cache_file.with_suffix(f".{os.getpid()}")
        draft_file.write_text(meaning_hash.hexdigest(), "ascii")
        draft_file.replace(cache_file)
        _delete_oldest(cache_file.parent, 8 * MEANINGS_STORED)
    return meaning_hash.hexdigest()


def use_own_cache() -> Path:
    """Set numba's cache folder to that of the present sources and return it. A folder that the user
    set in the environment stays; one that a parent process of the twin set is replaced, as sources
    may have changed."""
    folder_in_use = os.environ.get(NUMBA_VARIABLE, "")
    if folder_in_use and folder_in_use != os.environ.get(OWN_VARIABLE):
        return Path(folder_in_use)
    meaning_folder = _cache_home() / source_digest()[:16]
    meaning_folder.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.utime(meaning_folder)  # in use: the last to be forgotten
        _delete_oldest(meaning_folder.parent, MEANINGS_STORED + 1)  # and the meanings
    os.environ[NUMBA_VARIABLE] = os.environ[OWN_VARIABLE] = str(meaning_folder)
    return meaning_folder


@functools.cache
def _cache_home() -> Path:
    """Folder for compiled code: next to the sources, else the user's in the temporary folder."""
    cache_folder = SOURCES.parent / ".numba_cache"
    if os.access(cache_folder if cache_folder.exists() else SOURCES.parent, os.W_OK):
        return cache_folder
    cache_folder = Path(tempfile.gettempdir()) / f"twin-numba-cache-{os.getuid()}"
    cache_folder.mkdir(mode=0o700, exist_ok=True)
    # What lies in it is run: a folder that another user made first is none for us.
    return cache_folder if cache_folder.stat().st_uid == os.getuid() else Path(tempfile.mkdtemp())


def _delete_oldest(home: Path, newest_count: int) -> None:
    """Delete the oldest entries of a folder; the `newest_count` newest stay."""
    dated_paths = []
    for path in home.iterdir():
        with suppress(FileNotFoundError):  # another start forgot it just now
            dated_paths.append((path.stat().st_mtime, path))
    for _, path in sorted(dated_paths)[:-newest_count]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@functools.cache
def _use_digest_folders() -> None:
    """Make numba find our compiled code in a folder named by the digest of the sources: its own
    locators would recompile after an edit of a comment, and run old code after an edit of a
    callee."""
    numba_caching: Any = import_module("numba.core.caching")  # what it keeps has no public name

    class ByMeaning(numba_caching._CacheLocator):
        """Numba's cache locator for our functions; the folder identifies the sources."""

        def __init__(self, py_file: str) -> None:
            """py_file: path of the source whose compiled code is located."""
            self._py_file = py_file

        def get_cache_path(self) -> str:
            """Folder in which compiled code of the source is stored."""
            room_path = Path(self._py_file).resolve().relative_to(SOURCES.parent).parent
            # Numba looks its variable up when it is imported, and so do we.
            return str(Path(os.environ.get(NUMBA_VARIABLE) or _cache_home()) / room_path)

        def get_source_stamp(self) -> str:
            """Digest by which numba knows that stored code is of these sources."""
            return source_digest()

        def get_disambiguator(self) -> str:
            """Part of a stored file's name, always the same: functions are unique within a file."""
            return "kernel"

        @classmethod
        def from_function(cls, py_func: Callable[..., Any], py_file: str) -> ByMeaning | None:
            """Numba's cache locator of a function of ours; None for others, or without a folder."""
            if not Path(py_file).resolve().is_relative_to(SOURCES):
                return None
            locator = cls(py_file)
            try:
                locator.ensure_cache_path()
            except OSError:
                return None
            return locator

    numba_caching.CacheImpl._locator_classes.insert(0, ByMeaning)


@overload
def kernel(function: Callable[P, R]) -> Callable[P, R]: ...
@overload
def kernel(*, allocates: bool = ...) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def kernel(function: Any = None, *, allocates: bool = False) -> Any:
    """Decorator of a function that compiled code may call; called by Python it runs as Python.
    allocates: whether it makes arrays, or calls a kernel that returns one. Any other kernel borrows
    its arrays and returns none: it counts no references to them, as counting costs more than most
    kernels compute."""
    if function is None:
        return lambda plain: _register(plain, plain, allocates)
    return _register(function, function, allocates)


_REGISTRATIONS: list[Callable[[], None]] = []  # registers kernels with numba, until its first call


def _register(plain: Any, function: Callable[P, R], allocates: bool) -> Callable[P, R]:
    """Make compiled code run `function` where the source calls `plain`; returns `function`. The
    registration waits until this process imports numba. allocates: as in `kernel`."""

    def register_with_numba() -> None:
        """Make numba compile `function` where compiled code calls `plain`."""
        from numba.extending import overload as numba_overload

        from twin.kernels.passes import KernelCompiler

        # Whether references are counted: what is not said is taken from the caller.
        njit_options: Any = {"_nrt": allocates, "pipeline_class": KernelCompiler, **ARITHMETIC}
        numba_overload(plain, jit_options=njit_options, strict=False)(lambda *_, **__: function)

    _REGISTRATIONS.append(register_with_numba)
    if "numba" in sys.modules:
        register_kernels()
    return function


def register_kernels() -> None:
    """Import numba and register every declared kernel; called before compiling."""
    use_own_cache()
    _use_digest_folders()
    while _REGISTRATIONS:
        _REGISTRATIONS.pop(0)()


def compiled_form(plain: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: compiled code runs the decorated function where the source calls `plain`, with
    equal results. For functions that are written twice, as Python's integers do not wrap around."""
    return lambda function: _register(plain, function, False)


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function through which Python enters compiled code, stored on disk."""
    from numba import njit

    from twin.kernels.passes import EntryCompiler

    register_kernels()
    form: Callable[P, R] = njit(cache=True, pipeline_class=EntryCompiler, **ARITHMETIC)(function)
    return form


_UNCOMPILED: contextvars.ContextVar[bool] = contextvars.ContextVar("uncompiled", default=False)


@contextmanager
def without_compiling() -> Iterator[None]:
    """Context in which a `lazy_entry` function that is not compiled yet runs as Python."""
    reset_token = _UNCOMPILED.set(True)
    try:
        yield
    finally:
        _UNCOMPILED.reset(reset_token)


def lazy_entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the first call by Python compiles the function as an `entry`; imports do not."""
    compiled_forms: list[Callable[P, R]] = []

    @functools.wraps(function)
    def enter(*args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled form, or the Python function within `without_compiling`."""
        if not compiled_forms:
            if _UNCOMPILED.get():
                return function(*args, **kwargs)
            import_module("twin.kernels.borrowed")  # so that numba knows columns
            compiled_forms.append(entry(function))
        return compiled_forms[0](*args, **kwargs)

    _LAZY_FORMS[enter] = compiled_forms
    return enter


_LAZY_FORMS: dict[Callable[..., Any], list[Any]] = {}  # by `lazy_entry` function


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether the compiled form of a `lazy_entry` function is in this process: its first call
    loads it, or compiles it."""
    return bool(_LAZY_FORMS[function])


def stage(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Decorator: adds to STAGES, by name, a function that compiles, or loads, one entry."""
    return lambda compile_it: STAGES.setdefault(name, compile_it)
