"""Facts about this host and process."""

import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from fsctx.agent.gpus.base import Driver
from fsctx.agent.gpus.nvml import Nvml
from fsctx.agent.job.cgroup import cores_limit, memory_limit
from fsctx.agent.job.find import find_job
from fsctx.agent.job.seen import Seen, to_gpus
from fsctx.protocol import processes
from fsctx.protocol.jobs import Job

DETACHED = "FSCTX_DETACHED"
"""Set in the environment of an agent that is to outlive the process which started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an agent runs and what it may use there."""

    job: Job | None
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...] | None
    """The GPUs that it may use, as they are named; None: whatever is there."""
    driver: Driver
    is_orphan: Callable[[], bool]
    """Whether what started the agent is gone, and the agent has to go as well."""


def look_around(environ: Mapping[str, str]) -> Place:
    """Return what there is to know before anything is started."""
    job = batch_job(environ)
    memory = (int(psutil.virtual_memory().total), memory_limit(_read), job.memory_bytes if job else None)
    cores = (len(os.sched_getaffinity(0)), cores_limit(_read), job.cores if job else None)
    assigned = job.gpus if job else None
    return Place(
        job=job,
        cores=min(n for n in cores if n),
        memory_bytes=min(n for n in memory if n),
        gpus=to_gpus(environ.get("CUDA_VISIBLE_DEVICES")) if assigned is None else assigned,
        driver=Nvml(),
        is_orphan=_orphan_watch(os.getppid()) if job and not environ.get(DETACHED) else lambda: False,
    )


def batch_job(environ: Mapping[str, str]) -> Job | None:
    """Return the batch job that this process runs in, if it does."""
    return find_job(Seen(environ=environ, read=_read, age_s=_age_s(), now_s=time.time()))


def thread_settings(environ: Mapping[str, str], cores: int, n_agents: int = 1) -> dict[str, str]:
    """Return the environment that keeps engines within the cores: read when they are imported.

    Where nothing limits a lone agent, and nobody said anything, engines know best.
    """
    said = environ.get("OMP_NUM_THREADS", "")
    threads = int(said) if said.isdecimal() else cores
    passive = {"OMP_WAIT_POLICY": environ.get("OMP_WAIT_POLICY", "PASSIVE")}  # spinning steals others' cores
    if n_agents == 1 and (said or threads >= (os.cpu_count() or 1)):
        return passive
    return {**passive, "OMP_NUM_THREADS": str(max(1, threads // n_agents))}


def agent_name() -> str:
    """Return a new agent's name: host, process number and chance. Safe as a file name."""
    here = re.sub(r"[^A-Za-z0-9-]", "-", processes.host_name())[:40]
    return f"{here}-{os.getpid()}-{secrets.token_hex(4)}"


def python_version() -> str:
    """Return the interpreter's version."""
    return platform.python_version()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _age_s() -> float:
    ticks = processes.started_ticks(os.getpid()) or 0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def _orphan_watch(parent: int) -> Callable[[], bool]:
    return lambda: os.getppid() != parent
