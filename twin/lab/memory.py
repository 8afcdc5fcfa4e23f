"""How much memory this process has used at most, how much there is, and how much is left."""

from __future__ import annotations

import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
SYSTEM = Path("/proc/meminfo")


def peak_bytes() -> int:
    """Most resident memory this process itself ever had; 0 where the system does not say.

    Linux's `ru_maxrss` would not do: a process that was started by a large one inherits its peak
    (it counts the memory replaced by exec), and would take itself for large before its first run.
    """
    if STATUS.exists():
        return _kilobytes(STATUS, "VmHWM:") * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """Resident memory of this process now; 0 where the system does not say."""
    return _kilobytes(STATUS, "VmRSS:") * 1024 if STATUS.exists() else 0


def available_bytes() -> float:
    """Memory that programs may still take; without end where the system does not say."""
    known = _kilobytes(SYSTEM, "MemAvailable:") if SYSTEM.exists() else 0
    return known * 1024 or float("inf")


def total_bytes() -> float:
    """Memory of the whole machine; without end where the system does not say."""
    known = _kilobytes(SYSTEM, "MemTotal:") if SYSTEM.exists() else 0
    return known * 1024 or float("inf")


def _kilobytes(path: Path, name: str) -> int:
    lines = path.read_text("utf-8", "replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
