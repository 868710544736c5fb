"""Facts about this host and process."""

import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from fsctx.protocol.processes import host_name


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """The batch system that runs this process, and the job's number there."""

    system: str
    job: str


def agent_name() -> str:
    """Return a new agent's name: host, process number and chance. Safe as a file name."""
    host = "".join(c if c.isalnum() or c == "-" else "-" for c in host_name())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def batch_job(environ: Mapping[str, str]) -> BatchJob | None:
    """Tell from the environment which batch system started this process."""
    if "_CONDOR_JOB_AD" in environ:
        return BatchJob(system="htcondor", job=environ.get("_CONDOR_SLOT", "?"))
    if "SLURM_JOB_ID" in environ:
        return BatchJob(system="slurm", job=environ["SLURM_JOB_ID"])
    if "SGE_ROOT" in environ and "JOB_ID" in environ:
        return BatchJob(system="gridengine", job=environ["JOB_ID"])
    return None


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Return the host's memory."""
    return int(psutil.virtual_memory().total)


def python_version() -> str:
    """Return the interpreter's version."""
    return platform.python_version()
