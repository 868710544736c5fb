"""What agents read of the batch job that they run in."""

import dataclasses

import pytest

from fsctx.agent.host import thread_settings
from fsctx.agent.job.cgroup import cores_limit, memory_limit
from fsctx.agent.job.find import find_job
from fsctx.agent.job.seen import Seen, to_gpus
from fsctx.protocol import codec
from fsctx.protocol.agents import AgentRecord
from fsctx.protocol.jobs import Job
from fsctx.protocol.processes import Process

JOB_AD = """AllowedExecuteDuration = 7200
AllowedJobDuration = 3600
ClusterId = 41
Iwd = "/home/pilot = strange"
NumJobStarts = 2
ProcId = 7
Requirements = (TARGET.Arch == "X86_64") && (TARGET.GPUs >= 1)
"""
MACHINE_AD = """AssignedGPUs = "GPU-c4a646d7, GPU-0f33a1b2"
AvailableGPUs = { GPUs_GPU_c4a646d7,GPUs_GPU_0f33a1b2 }
Cpus = 4
GPUs_GPU_c4a646d7 = [ Id = "GPU-c4a646d7"; DeviceName = "NVIDIA A100" ]
Machine = "n1.pool.test"
Memory = 2048
Name = "slot1_3@n1.pool.test"
"""
CONDOR = {
    "_CONDOR_JOB_AD": "/scratch/.job.ad",
    "_CONDOR_MACHINE_AD": "/scratch/.machine.ad",
    "_CONDOR_SCRATCH_DIR": "/scratch",
    "_CONDOR_SLOT": "slot1_3",
}
FILES = {"/scratch/.job.ad": JOB_AD, "/scratch/.machine.ad": MACHINE_AD}


def seen(environ: dict[str, str], files: dict[str, str] | None = None, *, age_s: float = 0, now_s: float = 0) -> Seen:
    return Seen(environ=environ, read=(files or {}).get, age_s=age_s, now_s=now_s)


def test_outside_of_batch_systems_there_is_no_job() -> None:
    assert find_job(seen({})) is None
    assert find_job(seen({"JOB_ID": "a variable of somebody else"})) is None


def test_an_htcondor_job_is_read_from_its_ads() -> None:
    assert find_job(seen(CONDOR, FILES, age_s=100)) == Job(
        system="htcondor",
        id="41.7",
        machine="n1.pool.test",
        slot="slot1_3@n1.pool.test",
        gpus=("GPU-c4a646d7", "GPU-0f33a1b2"),
        cores=4,
        memory_bytes=2 << 30,
        scratch="/scratch",
        left_s=3500,
        n_earlier_starts=2,
    )


def test_the_assignment_of_htcondor_outweighs_what_cuda_was_told() -> None:
    told = {**CONDOR, "CUDA_VISIBLE_DEVICES": "GPU-c4a646d7"}
    assert find_job(seen({**told, "_CONDOR_AssignedGPUs": "GPU-c4a646d7,GPU-0f33a1b2"})).gpus == (  # type: ignore[union-attr]
        "GPU-c4a646d7",
        "GPU-0f33a1b2",
    )
    assert find_job(seen(told)).gpus == ("GPU-c4a646d7",)  # type: ignore[union-attr]
    assert find_job(seen({**CONDOR, "_CONDOR_AssignedGPUs": "CUDA1"})).gpus == ("1",)  # type: ignore[union-attr]
    assert find_job(seen({**CONDOR, "CUDA_VISIBLE_DEVICES": "10000"})).gpus == ()  # type: ignore[union-attr]


def test_an_htcondor_job_without_readable_ads_is_one_all_the_same() -> None:
    job = find_job(seen(CONDOR))
    assert job is not None
    assert (job.id, job.slot, job.gpus, job.left_s, job.cores) == ("?.?", "slot1_3", None, None, None)


def test_limits_that_are_expressions_are_no_limits() -> None:
    files = {"/scratch/.job.ad": "AllowedExecuteDuration = 60 * RequestHours\nClusterId = 1\nProcId = 0\n"}
    assert find_job(seen(CONDOR, files)).left_s is None  # type: ignore[union-attr]


def test_a_slurm_job_is_read_from_its_environment() -> None:
    environ = {
        "SLURM_JOB_ID": "1007",
        "SLURM_ARRAY_JOB_ID": "1000",
        "SLURM_ARRAY_TASK_ID": "7",
        "SLURMD_NODENAME": "node3",
        "SLURM_PROCID": "0",
        "SLURM_CPUS_ON_NODE": "8",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_MEM_PER_CPU": "1024",
        "SLURM_JOB_END_TIME": "5000",
        "SLURM_JOB_GPUS": "2",
        "CUDA_VISIBLE_DEVICES": "0",
        "SLURM_RESTART_COUNT": "1",
        "TMPDIR": "/tmp/job",
    }
    assert find_job(seen(environ, now_s=4400)) == Job(
        system="slurm",
        id="1000_7",
        machine="node3",
        slot="0",
        gpus=("0",),
        cores=4,
        memory_bytes=8 << 30,
        scratch="/tmp/job",
        left_s=600,
        n_earlier_starts=1,
    )


@pytest.mark.parametrize(("now_s", "age_s", "left_s"), [(4400, 10, 600), (0, 10, 990), (9999, 10, 0), (4400, 900, 100)])
def test_a_wrong_clock_makes_a_slurm_job_no_longer_than_it_was_asked_for(
    now_s: float, age_s: float, left_s: float
) -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "4000", "SLURM_JOB_END_TIME": "5000"}
    assert find_job(seen(environ, now_s=now_s, age_s=age_s)).left_s == left_s  # type: ignore[union-attr]


def test_all_the_memory_of_a_node_is_no_number() -> None:
    job = find_job(seen({"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "0"}))
    assert job == Job(system="slurm", id="7")


def test_a_grid_engine_job_is_read_from_the_environment() -> None:
    environ = {
        "JOB_ID": "55",
        "SGE_TASK_ID": "3",
        "SGE_ROOT": "/opt/sge",
        "HOSTNAME": "exec4",
        "QUEUE": "gpu.q",
        "NSLOTS": "2",
        "RESTARTED": "1",
        "SGE_HGR_gpu": "1 3",
        "TMPDIR": "/tmp/55.3.gpu.q",
    }
    assert find_job(seen(environ)) == Job(
        system="gridengine",
        id="55.3",
        machine="exec4",
        slot="gpu.q",
        gpus=("1", "3"),
        cores=2,
        scratch="/tmp/55.3.gpu.q",
        n_earlier_starts=1,
    )
    plain = find_job(seen({**environ, "SGE_TASK_ID": "undefined"}))
    assert plain is not None
    assert plain.id == "55"


def test_htcondor_inside_a_slurm_allocation_is_htcondor() -> None:
    assert find_job(seen({**CONDOR, "SLURM_JOB_ID": "1"}, FILES)).system == "htcondor"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["10000", "", "NoDevFiles", "-1", "none"])
def test_many_words_stand_for_no_gpu(text: str) -> None:
    assert to_gpus(text) == ()


def test_nothing_said_is_not_the_same_as_no_gpu() -> None:
    assert to_gpus(None) is None


def test_limits_of_control_groups_hold_whichever_level_sets_them() -> None:
    files = {
        "/proc/self/cgroup": "0::/system.slice/job.scope\n",
        "/sys/fs/cgroup/system.slice/job.scope/memory.max": "max\n",
        "/sys/fs/cgroup/system.slice/memory.max": "1000000\n",
        "/sys/fs/cgroup/system.slice/job.scope/cpu.max": "150000 100000\n",
        "/sys/fs/cgroup/system.slice/cpu.max": "max 100000\n",
    }
    assert memory_limit(files.get) == 1_000_000
    assert cores_limit(files.get) == 2


def test_limits_of_control_groups_of_version_1() -> None:
    files = {
        "/proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n0::/\n",
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000000\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "400000\n",
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert memory_limit(files.get) == 2_000_000
    assert cores_limit(files.get) == 4


def test_without_control_groups_there_are_no_limits() -> None:
    assert memory_limit({}.get) is None
    assert cores_limit({}.get) is None


def test_engines_keep_within_the_cores() -> None:
    assert thread_settings({}, 10_000) == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert thread_settings({"OMP_WAIT_POLICY": "ACTIVE"}, 10_000) == {"OMP_WAIT_POLICY": "ACTIVE"}
    assert thread_settings({"OMP_NUM_THREADS": "3"}, 1) == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert thread_settings({"OMP_NUM_THREADS": "8"}, 16, n_agents=4)["OMP_NUM_THREADS"] == "2"
    assert thread_settings({}, 2, n_agents=4)["OMP_NUM_THREADS"] == "1"


def test_records_of_agents_that_knew_nothing_of_jobs_are_read() -> None:
    process = Process(host="h", boot_id="b", pid=1, started_ticks=1)
    record = AgentRecord(
        agent="a",
        process=process,
        started="",
        version="0.1.0",
        python="3.11",
        engine="fake",
        device="cpu",
        cores=1,
        memory_bytes=1,
        job=Job(system="slurm", id="7", gpus=("0",)),
    )
    assert codec.decode(codec.encode(record), AgentRecord, where="new") == record
    old = codec.encode(record).replace(b'"job":{', b'"batch_system":"slurm","batch_job":"7","elsewhere":{')
    assert codec.decode(old, AgentRecord, where="old") == dataclasses.replace(record, job=None)
