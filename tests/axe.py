"""axe-core, the accessibility rules as a script: found, or installed where npm is.

`python -m tests.axe --install` is a step of `make test`. It never fails: without npm the tests that
need the script skip, and say so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "4.14.1"
HOME = Path(__file__).resolve().parents[1] / ".axe"
MISSING = (
    "NO AXE: axe-core is not installed, so no page was checked against its rules. Install npm and "
    "run python -m tests.axe --install, or name axe.min.js in TWIN_AXE."
)


def find() -> Path | None:
    """Path of axe.min.js: TWIN_AXE, else as installed here."""
    named = os.environ.get("TWIN_AXE")
    path = Path(named) if named else HOME / "node_modules" / "axe-core" / "axe.min.js"
    return path if path.exists() else None


def install() -> Path | None:
    """The script, installed by npm where that is possible."""
    if find() is None and (npm := shutil.which("npm")):
        HOME.mkdir(exist_ok=True)
        subprocess.run(
            [npm, "install", "--prefix", str(HOME), f"axe-core@{VERSION}", "--no-audit",
             "--no-fund", "--no-save"],
            check=False, stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip
    return find()


if __name__ == "__main__":
    path = install() if "--install" in sys.argv else find()
    print(f"axe-core for the browser tests: {path}" if path else MISSING)  # noqa: T201
