"""A batch job, as an agent in it sees it: part of the agent's record."""

from dataclasses import dataclass
from typing import Literal

BatchName = Literal["htcondor", "slurm", "gridengine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the batch system told the process that it started; None is what it did not tell."""

    system: BatchName
    id: str
    """As the system's own commands take it: `12.0`, `34`, `34_5`, `56.1`."""
    machine: str | None = None
    """What the system calls this host, as a request that avoids it must spell it."""
    slot: str | None = None
    gpus: tuple[str, ...] | None = None
    """The GPUs assigned, as they were named; empty: none."""
    cores: int | None = None
    memory_bytes: int | None = None
    scratch: str | None = None
    left_s: float | None = None
    """Seconds of walltime that were left at the agent's start."""
    n_earlier_starts: int = 0
