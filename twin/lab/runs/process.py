"""Processes: started, how they ended, what they take of memory and processor time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from twin.lab.library import ROOT, facts_environment

PEAK_BYTES_MAX = 2e9  # a process that grew beyond this gives its memory back by ending
# A process that for so long neither says that it lives nor takes processor time hangs.
HUNG_S = 30.0
# One run uses one core; more threads would only fight over it.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "NUMBA")}
ONE_THREAD["POLARS_MAX_THREADS"] = "1"
PROC = Path("/proc")
STATUS, SYSTEM = PROC / "self/status", PROC / "meminfo"
# What is imported stays: to search it for garbage takes a sixth of a process's start.
RUN_MODULE = """import gc, runpy, sys
gc.set_threshold(100_000, 50, 100)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def command_of(module: str, *words: str) -> list[str]:
    """Command that runs a module of the twin, as `python -m` does."""
    return [sys.executable, "-X", "faulthandler", "-c", RUN_MODULE, module, *words]


def start_process(module: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process of a module of the twin, with pipes to its standard input and output."""
    return subprocess.Popen(
        command_of(module, *words),
        cwd=ROOT,
        # Its folder is another one, so files are named by absolute paths.
        env={**os.environ, **ONE_THREAD, **facts_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C meant for the server does not end a run
    )


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def how_ended(code: int) -> str:
    """End of a process in words, from its exit status."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def processor_time(pid: int) -> str:
    """Clock ticks spent by a process and for it; '' if unknown."""
    try:
        status_text = PROC.joinpath(str(pid), "stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    return " ".join(status_text.rpartition(")")[2].split()[11:13])


def peak_bytes() -> int:
    """Most resident memory of this process; 0: unknown. `ru_maxrss` includes the parent's."""
    if STATUS.exists():
        return _kilobytes(STATUS, "VmHWM:") * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """Resident memory of this process now; 0 if unknown."""
    return _kilobytes(STATUS, "VmRSS:") * 1024


def available_bytes() -> float:
    """Memory available to programs; infinite if unknown."""
    return _kilobytes(SYSTEM, "MemAvailable:") * 1024 or float("inf")


def total_bytes() -> float:
    """Memory of the whole machine; infinite if unknown."""
    return _kilobytes(SYSTEM, "MemTotal:") * 1024 or float("inf")


def _kilobytes(path: Path, name: str) -> int:
    """The figure of a line of a file of /proc, in kilobytes; 0 if there is none."""
    if not path.exists():
        return 0
    lines = path.read_text("utf-8", "replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
