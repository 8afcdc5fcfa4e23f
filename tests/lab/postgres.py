"""A PostgreSQL server of the tests' own: on a local socket, in a folder that is thrown away."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSTALLED = "/usr/lib/postgresql"  # where Debian's package puts programs, by version
SERVER_USER = "postgres"  # made by that package; the server refuses to run as root
MISSING = (
    "NO POSTGRESQL: no server could be started, so the store's tests ran on SQLite alone. "
    "Install Debian's package postgresql and pip install psycopg[binary]."
)


@contextmanager
def server() -> Iterator[str | None]:
    """URL of a server on which databases may be made; None where none can be started.

    TWIN_TEST_POSTGRES names one that runs already.
    """
    if named := os.environ.get("TWIN_TEST_POSTGRES"):
        yield named
        return
    programs = _programs()
    if programs is None or importlib.util.find_spec("psycopg") is None:
        yield None
        return
    home = Path(tempfile.mkdtemp(prefix="twin-pg-", dir="/tmp"))  # short: names a socket
    user = SERVER_USER if os.getuid() == 0 else None
    if user:
        shutil.chown(home, user, user)

    def run(program: str, *given: str) -> None:
        subprocess.run([programs / program, *given], user=user, cwd=home, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip

    try:
        run("initdb", "--pgdata=data", "--username=twin", "--auth=trust", "--no-sync")
        quick = f"-k {home} -c listen_addresses= -c fsync=off -c max_connections=200"
        run("pg_ctl", "--pgdata=data", "--wait", "--log=log", f"--options={quick}", "start")
        try:
            yield f"postgresql+psycopg://twin@/postgres?host={home}"
        finally:
            run("pg_ctl", "--pgdata=data", "--mode=immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path | None:
    found = sorted(Path(INSTALLED).glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None
