"""A Grid Engine job: the environment, and the file that the shepherd leaves on the node."""

import re

from fsctx.agent.job.seen import Seen, to_gpus, to_int
from fsctx.protocol.jobs import Job

_LIMIT = re.compile(r"^[hs]_rt=(\d+)$", re.M)
"""Hard and soft limit on the run time, in seconds; `INFINITY` where there is none."""


def gridengine_job(seen: Seen) -> Job | None:
    """Return the job; None outside of Grid Engine."""
    environ = seen.environ
    if not environ.get("JOB_ID") or not (environ.get("SGE_ROOT") or environ.get("SGE_JOB_SPOOL_DIR")):
        return None
    task = environ.get("SGE_TASK_ID")
    return Job(
        system="gridengine",
        id=f"{environ['JOB_ID']}.{task}" if to_int(task) is not None else environ["JOB_ID"],
        machine=seen.first("HOSTNAME"),
        slot=seen.first("QUEUE"),
        gpus=to_gpus(seen.first("CUDA_VISIBLE_DEVICES", "SGE_HGR_gpu")),
        cores=seen.number("NSLOTS"),
        scratch=seen.first("TMPDIR"),
        left_s=_left_s(seen),
        n_earlier_starts=seen.number("RESTARTED") or 0,
    )


def _left_s(seen: Seen) -> float | None:
    spool = seen.environ.get("SGE_JOB_SPOOL_DIR")
    limits = [int(limit) for limit in _LIMIT.findall((seen.read(f"{spool}/config") if spool else None) or "")]
    limits = [limit for limit in limits if limit > 0]
    return max(0.0, min(limits) - seen.age_s) if limits else None
