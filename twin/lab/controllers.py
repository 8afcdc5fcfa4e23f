"""Controllers: functions `decide` in files of the folder TWIN_CONTROLLERS, named by SHA-256."""

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from twin.policies.controllers import ControllerError

VARIABLE = "TWIN_CONTROLLERS"
LONGEST = 100_000  # bytes of a file

Decide = Callable[[dict[str, Any]], Mapping[str, int]]


def controller_digests() -> dict[str, str]:
    """SHA-256 of every controller file in TWIN_CONTROLLERS, by name. Raises ControllerError."""
    controllers_folder = os.environ.get(VARIABLE)
    if not controllers_folder:
        return {}
    files = sorted(Path(controllers_folder).glob("*.py"))
    return {path.stem: hashlib.sha256(_read_source(path)).hexdigest() for path in files}


def _read_source(path: Path) -> bytes:
    """Bytes of a controller file; raises ControllerError if it is a link or too long."""
    source_bytes = path.read_bytes()
    if path.is_symlink() or len(source_bytes) > LONGEST:
        raise ControllerError(f"{path.name} is a link, or longer than {LONGEST:,} bytes")
    return source_bytes


class _CheckedLoader(InspectLoader):
    """Module loader for the bytes whose digest was checked."""

    def __init__(self, text: str) -> None:
        """Load modules from this source text, whose digest was checked."""
        self._text = text

    def get_source(self, fullname: str) -> str:
        """Source text of the controller, whatever the module's name."""
        return self._text


@cache
def load_controller(digest: str) -> Decide:
    """Load the user's controller of this SHA-256: its function `decide`. Raises ControllerError."""
    stem = next((stem for stem, sha256 in controller_digests().items() if sha256 == digest), None)
    if stem is None:
        raise ControllerError(
            f"no file of {VARIABLE} has the digest {digest[:12]}: see the command controllers"
        )
    source_bytes = _read_source(Path(os.environ[VARIABLE]) / f"{stem}.py")
    if hashlib.sha256(source_bytes).hexdigest() != digest:
        raise ControllerError(f"{stem}.py of {VARIABLE} has just changed: run it again")
    loader = _CheckedLoader(source_bytes.decode("utf-8", "replace"))
    module = module_from_spec(ModuleSpec(f"controller_{stem}", loader))
    try:
        loader.exec_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ControllerError(f"the controller {stem}.py cannot be read: {reason}") from error
    decide: Decide | None = getattr(module, "decide", None)
    if not callable(decide):
        raise ControllerError(f"{stem}.py has no function decide(seen)")
    return decide
