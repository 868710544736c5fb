"""An HTCondor job: the environment and the two ads that the starter leaves in the scratch folder."""

import re
from collections.abc import Mapping

from fsctx.agent.job.seen import Seen, mebibytes, to_gpus, to_int
from fsctx.protocol.jobs import Job

_LINE = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$")
_LIMITS = ("allowedexecuteduration", "allowedjobduration")
"""Attributes of the job that bound how long it may run, in seconds."""


def htcondor_job(seen: Seen) -> Job | None:
    """Return the job; None outside of HTCondor."""
    if not seen.environ.get("_CONDOR_JOB_AD"):
        return None
    job, machine = (_ad(seen, name) for name in ("_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD"))
    slot = machine.get("name") or seen.environ.get("_CONDOR_SLOT")
    return Job(
        system="htcondor",
        id=f"{job.get('clusterid', '?')}.{job.get('procid', '?')}",
        machine=machine.get("machine") or (slot or "").rpartition("@")[2] or None,
        slot=slot,
        gpus=_gpus(seen, machine),
        cores=to_int(machine.get("cpus")),
        memory_bytes=mebibytes(to_int(machine.get("memory"))),
        scratch=seen.environ.get("_CONDOR_SCRATCH_DIR"),
        left_s=_left_s(seen, job),
        n_earlier_starts=to_int(job.get("numjobstarts")) or 0,
    )


def _gpus(seen: Seen, machine: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what is assigned: with a reused claim CUDA_VISIBLE_DEVICES may name fewer, and is 10000 for none."""
    own = seen.environ.get("_CONDOR_AssignedGPUs") or machine.get("assignedgpus")
    gpus = to_gpus(own if own is not None else seen.environ.get("CUDA_VISIBLE_DEVICES"))
    return None if gpus is None else tuple(re.sub(r"^CUDA(?=\d+$)", "", gpu) for gpu in gpus)


def _left_s(seen: Seen, job: Mapping[str, str]) -> float | None:
    """Return what is left of the limits: the job began to execute when this process did, or just before."""
    limits = [limit for name in _LIMITS if (limit := to_int(job.get(name))) is not None]
    return max(0.0, min(limits) - seen.age_s) if limits else None


def _ad(seen: Seen, variable: str) -> Mapping[str, str]:
    """Return an ad's attributes by lower-case name: strings without quotes, expressions as they are written."""
    path = seen.environ.get(variable)
    text = (seen.read(path) if path else None) or ""
    lines = filter(None, map(_LINE.match, text.splitlines()))
    return {line[1].lower(): line[2].strip('"') for line in lines}
