"""From what a process sees to the batch job that it runs in."""

from fsctx.agent.job.gridengine import gridengine_job
from fsctx.agent.job.htcondor import htcondor_job
from fsctx.agent.job.seen import Seen
from fsctx.agent.job.slurm import slurm_job
from fsctx.protocol.jobs import Job


def find_job(seen: Seen) -> Job | None:
    """Return the batch job, the innermost where a pilot system runs inside another; None where there is none."""
    return htcondor_job(seen) or slurm_job(seen) or gridengine_job(seen)
