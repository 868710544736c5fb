"""What vLLM reads of the environment. Pure."""

from collections.abc import Mapping
from pathlib import Path

from fsctx.agent.engines.vllm.messages import Job


def environment(seen: Mapping[str, str], job: Job, scratch: Path) -> dict[str, str]:
    """Return the environment of the process that computes. What the user set stays, but for what must be so.

    `scratch` is a folder for temporary files.
    """
    may = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # all agents of a node would be bound to the same cores
    }
    must = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # it has a process of its own already
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_HOST_IP": "127.0.0.1",  # where the processes of a split model meet
        "VLLM_CONFIG_ROOT": str(scratch),
        "TMPDIR": str(scratch),
    }
    if not job.options.compile:
        must["TORCH_COMPILE_DISABLE"] = "1"  # else small parts are compiled all the same, by compilers nodes may lack
    return {**may, **seen, **must, **_visible(seen, job)}


def _visible(seen: Mapping[str, str], job: Job) -> dict[str, str]:
    """Hide the GPUs before the one to work on: there is no other way to tell vLLM which."""
    if not job.index:
        return {}
    said = seen.get("CUDA_VISIBLE_DEVICES")
    names = said.split(",") if said else [str(n) for n in range(job.index + job.split.n_ranks)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[job.index :])}
