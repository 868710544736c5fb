"""What is asked of an HTCondor pool: by the Python bindings, or by the command line tools."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fsctx.coordinator.submit import commands

Version = tuple[int, int, int]

NEWEST: Version = (99, 0, 0)
"""Assumed where no pool can be asked."""

JOB_ATTRIBUTES = (
    "ClusterId",
    "ProcId",
    "JobStatus",
    "HoldReason",
    "HoldReasonCode",
    "HoldReasonSubCode",
    "GPUsMinMemory",
    "LastRejMatchReason",
    "TotalSubmitProcs",
    "JobMaterializeNextProcId",
    "JobMaterializePaused",
)
"""What is read of jobs, and of the clusters that make them (which have no ProcId)."""

Ad = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What the pool's machines have."""

    n: int
    domains: frozenset[str]
    """Their FileSystemDomains."""
    largest_gpu_mb: int
    """0 where there is no GPU."""


class Access(Protocol):
    """A way to an access point (schedd) and its pool. Every call may raise `Unreachable`."""

    how: str
    """In words."""
    version: Version
    """Of the access point."""
    versions: Mapping[str, str]

    def setting(self, name: str) -> str | None:
        """Return what the configuration says, None where it says nothing."""

    def submit(self, text: str) -> int:
        """Submit a text and return the cluster.

        Raises:
            InputError: refused; nothing was queued.
        """

    def jobs(self, clusters: Sequence[int]) -> list[Ad]:
        """Return the jobs of some clusters that are in the queue, and the clusters' own ads."""

    def remove_idle(self, clusters: Sequence[int]) -> None:
        """Remove jobs that do not run, those on hold too, and make no further ones."""

    def machines(self) -> Machines:
        """Look at the pool's machines."""


def parse_version(text: str) -> Version:
    """Read `$CondorVersion: 23.9.6 2026-07-12 …$`."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else NEWEST


def machines_of(ads: Sequence[Ad]) -> Machines:
    """Sum up the ads of slots, dynamic ones left out. GPUs that differ have an ad each, nested in their slot's."""
    memory = [0]
    for ad in ads:
        gpus = [value for key, value in ad.items() if key.startswith("GPUs_GPU_") and hasattr(value, "get")]
        memory += [int(found) for gpu in (ad, *gpus) if (found := _memory_mb(gpu)) is not None]
    return Machines(
        n=len({ad.get("Machine") for ad in ads}),
        domains=frozenset(str(ad["FileSystemDomain"]) for ad in ads if "FileSystemDomain" in ad),
        largest_gpu_mb=max(memory),
    )


def _memory_mb(ad: Ad) -> Any:
    found = ad.get("GPUs_GlobalMemoryMb", ad.get("GlobalMemoryMb"))
    return found if isinstance(found, int | float) else None


def of_clusters(clusters: Sequence[int]) -> str:
    """Return a constraint."""
    return " || ".join(f"ClusterId == {cluster}" for cluster in clusters) or "false"


NOT_DYNAMIC = "DynamicSlot =!= true"


def running_clusters(ads: Sequence[Ad]) -> list[int]:
    """Return the clusters of which a job runs."""
    return sorted({int(ad["ClusterId"]) for ad in ads if ad.get("JobStatus") == 2})


NO_MORE = 2
"""JobMaterializePaused of a cluster that has made all its jobs; 0: it makes some, 1: it waits."""


def make_no_more(clusters: Sequence[int]) -> None:
    """Keep clusters from putting further jobs into the queue, where the tool is at hand: the bindings cannot.

    Otherwise they go on, and each pilot that starts hears the standing order and leaves.
    """
    for cluster in clusters:
        commands.attempt(["condor_qedit", str(cluster), "JobMaterializePaused", str(NO_MORE)])


def waiting(clusters: Sequence[int], running: Sequence[int]) -> str:
    """Return the constraint for what waits: whole clusters of which nothing runs, else their idle and held jobs."""
    idle = of_clusters([cluster for cluster in clusters if cluster not in running])
    return f"({idle}) || (({of_clusters(running)}) && ProcId =!= undefined && (JobStatus == 1 || JobStatus == 5))"
