"""Naming a process so that others on its host can tell whether it still runs."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, named beyond reuse of its number."""

    host: str
    boot_id: str
    """Boot of the host and pid namespace: process numbers mean nothing outside of them."""
    pid: int
    started_ticks: int
    """Clock ticks from the boot to the start of the process."""


def this_process() -> Process:
    """Name this process."""
    pid = os.getpid()
    return Process(host=host_name(), boot_id=boot_id(), pid=pid, started_ticks=started_ticks(pid) or 0)


def is_dead(process: Process) -> bool:
    """Whether a process is known to be dead: it ran here, since this boot, and is no more. False where unknown."""
    if process.host != host_name() or process.boot_id != boot_id():
        return False
    return started_ticks(process.pid) != process.started_ticks


def host_name() -> str:
    """Return the host's name without its domain."""
    return socket.gethostname().split(".")[0]


def boot_id() -> str:
    """Return what must be equal for two processes to see each other's process numbers: boot and pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}"


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot (proc(5), field 22); None if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
