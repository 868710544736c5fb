"""A Slurm job: the environment of the batch script or step."""

from fsctx.agent.job.seen import Seen, mebibytes, to_gpus
from fsctx.protocol.jobs import Job


def slurm_job(seen: Seen) -> Job | None:
    """Return the job; None outside of Slurm."""
    if not seen.environ.get("SLURM_JOB_ID"):
        return None
    array, task = (seen.environ.get(f"SLURM_ARRAY_{part}_ID") for part in ("JOB", "TASK"))
    return Job(
        system="slurm",
        id=f"{array}_{task}" if array and task else seen.environ["SLURM_JOB_ID"],
        machine=seen.first("SLURMD_NODENAME"),
        slot=seen.first("SLURM_PROCID"),
        gpus=to_gpus(seen.first("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")),
        cores=seen.number("SLURM_CPUS_PER_TASK") or seen.number("SLURM_CPUS_ON_NODE"),
        memory_bytes=_memory_bytes(seen),
        scratch=seen.first("SLURM_TMPDIR", "TMPDIR"),
        left_s=_left_s(seen),
        n_earlier_starts=seen.number("SLURM_RESTART_COUNT") or 0,
    )


def _memory_bytes(seen: Seen) -> int | None:
    per_cpu, cpus = seen.number("SLURM_MEM_PER_CPU"), seen.number("SLURM_CPUS_ON_NODE")
    per_node = seen.number("SLURM_MEM_PER_NODE")
    if per_cpu is not None and cpus is not None:
        return mebibytes(per_cpu * cpus)
    return mebibytes(per_node or None)  # 0 asks for all the memory of the node


def _left_s(seen: Seen) -> float | None:
    """Return what is left until the end, which Slurm tells by its controller's clock.

    Where that clock and this host's disagree, the agent leaves early or is killed: neither costs a verdict. The
    length of the job, which no clock disturbs, bounds what is left.
    """
    end_s, start_s = seen.number("SLURM_JOB_END_TIME"), seen.number("SLURM_JOB_START_TIME")
    if end_s is None:
        return None
    left_s = end_s - seen.now_s
    return max(0.0, left_s if start_s is None else min(left_s, end_s - start_s - seen.age_s))
