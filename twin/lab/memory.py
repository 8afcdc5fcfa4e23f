"""How much memory this process has used at most."""

from __future__ import annotations

import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Most resident memory this process itself ever had; 0 where the system does not say.

    Linux's `ru_maxrss` would not do: a process that was started by a large one inherits its peak
    (it counts the memory replaced by exec), and would take itself for large before its first run.
    """
    if STATUS.exists():
        lines = STATUS.read_text("utf-8", "replace").splitlines()
        found = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
        return int(found.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
