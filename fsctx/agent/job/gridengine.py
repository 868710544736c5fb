"""A Grid Engine job, by its environment. The limit on its time is nowhere in it: the submit template passes it on."""

from fsctx.agent.job.seen import Seen, to_gpus, to_int
from fsctx.protocol.jobs import Job


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
        n_earlier_starts=seen.number("RESTARTED") or 0,
    )
