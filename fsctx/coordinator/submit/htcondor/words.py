"""What HTCondor says of jobs that wait, in words, with advice."""

from collections import Counter
from collections.abc import Sequence

from fsctx.coordinator.submit.htcondor.access import Ad, Machines

_ADVICE = {
    1: "let them go on: condor_release {cluster}",
    3: "a policy of the job holds it; then: condor_release {cluster}",
    6: "the interpreter is not on that machine, or not executable: use one on the shared filesystem",
    7: "the run's logs cannot be written there: is the filesystem mounted, and yours to write?",
    12: "files could not be brought back: is the access point's disk full?",
    13: "files could not be brought there: check common_input and the container image",
    14: "the folder of the run is not there: is the filesystem mounted on that machine? see --set shared_where",
    21: "the machine's policy holds it: ask its administrator",
    26: "the pool's policy holds it: ask an administrator",
    34: "it used more memory than it asked for: stop it, and submit with a larger --set memory_mb",
    35: "the container image cannot be used: check --set container",
    46: "its time was used up: submit with a larger --set walltime_s",
    47: "its time was used up: submit with a larger --set walltime_s",
}
"""By HoldReasonCode (HTCondor manual, job ClassAd attributes)."""


def notes(jobs: Sequence[Ad], machines: Machines | None) -> tuple[str, ...]:
    """Say why jobs of one cluster are on hold, and why they wait where none runs. `machines` None: unknown."""
    idle = [ad for ad in jobs if ad.get("JobStatus") == 1]
    runs = any(ad.get("JobStatus") == 2 for ad in jobs)
    return (*_held(jobs), *([] if runs else _idle(idle, machines)))


def _held(jobs: Sequence[Ad]) -> list[str]:
    held = [ad for ad in jobs if ad.get("JobStatus") == 5]
    reasons = Counter(int(ad.get("HoldReasonCode", 0)) for ad in held)
    first = {int(ad.get("HoldReasonCode", 0)): ad for ad in reversed(held)}
    return [f"{n} on hold: {_why(first[code], code)}" for code, n in reasons.most_common()]


def _why(ad: Ad, code: int) -> str:
    reason = " ".join(str(ad.get("HoldReason", "no reason given")).split())
    advice = _ADVICE.get(code, "see condor_q -hold {cluster}").format(cluster=ad.get("ClusterId"))
    return f"{reason} ({code}/{ad.get('HoldReasonSubCode', 0)}); {advice}"


def _idle(idle: Sequence[Ad], machines: Machines | None) -> list[str]:
    if not idle:
        return []
    asked_mb = idle[0].get("GPUsMinMemory")
    if machines is not None and isinstance(asked_mb, int | float) and asked_mb > machines.largest_gpu_mb:
        return [too_large(int(asked_mb), machines)]
    reason = idle[0].get("LastRejMatchReason")
    return [f"waiting: {reason}; see condor_q -better-analyze {idle[0]['ClusterId']}"] if reason else []


def too_large(asked_mb: int, machines: Machines) -> str:
    """Say that no GPU is large enough."""
    largest = f"the largest has {machines.largest_gpu_mb:,} MiB" if machines.largest_gpu_mb else "it has none"
    return (
        f"no GPU of this pool has the {asked_mb:,} MiB that the model needs ({largest}): "
        "use a smaller model, or --set gpu_memory_mb if you know better"
    )


def not_mounted(domain: str, machines: Machines) -> str:
    """Say that no machine shares this host's filesystems."""
    others = ", ".join(sorted(machines.domains)[:4]) or "none"
    return (
        f"no machine of this pool is in this host's FileSystemDomain {domain} (they are in: {others}), so pilots would "
        "wait for ever: submit from a host that shares the run's filesystem with them, or say who has it mounted: "
        "--set shared_where='HasMyFilesystem'"
    )
