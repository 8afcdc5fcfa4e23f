"""Owners: processes that run things, and whether one lives, by process table or heartbeat."""

import os
import secrets
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SILENT_S = 30.0  # no heartbeat for so long: an owner on another machine is taken for dead
STUCK_S = 600.0  # the same for a process of this machine that exists but does nothing
PROC = Path("/proc")
# The name of a process of a cluster begins so: when it dies, its run waits for another.
CLUSTER = "cluster."


@dataclass(frozen=True, slots=True)
class Owner:
    """One process: its unguessable name, and how to check whether it lives."""

    name: str
    host: str
    pid: int
    started: str  # tells a process from a later one with the same number

    @staticmethod
    def current(name: str = "") -> "Owner":
        """The calling process as an owner of runs, under a name ('': a random one)."""
        pid = os.getpid()
        return Owner(name or secrets.token_urlsafe(12), this_host(), pid, _start_time(pid) or "")

    def lives(self, silent_s: float) -> bool:
        """Whether the process still runs; silent_s: seconds since its last heartbeat."""
        if self.host != this_host():
            return silent_s < SILENT_S
        start_time = _start_time(self.pid)
        is_awake = self.pid == os.getpid() or silent_s < STUCK_S
        return start_time in ("", self.started) and is_awake


@lru_cache(maxsize=1)
def this_host() -> str:
    """Name of this machine's process table: host, boot and, in a container, its namespace."""
    name_parts = [socket.gethostname()]
    boot_file, namespace_file = PROC / "sys/kernel/random/boot_id", PROC / "self/ns/pid"
    if boot_file.exists():
        name_parts.append(boot_file.read_text("ascii").strip())
    if namespace_file.exists():
        name_parts.append(str(namespace_file.readlink()))
    return " ".join(name_parts)[:255]


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks ('' if unknown), None if it has ended."""
    try:
        stat = PROC.joinpath(str(pid), "stat").read_text("utf-8", "replace")
    except OSError:  # gone, or hidden: processes of other users may be (mount option hidepid)
        try:
            os.kill(pid, 0)
        except OSError as error:
            return None if isinstance(error, ProcessLookupError) else ""
        return ""
    process_state, *later_fields = stat.rpartition(")")[
        2
    ].split()  # the name before it may hold anything
    return None if process_state in "ZX" else later_fields[18]
