"""Agents in what looks to them like a batch job: signals, exit codes, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from crash.fleet import (
    PATIENCE_S,
    Process,
    agent,
    assert_done_once,
    end_of,
    finish,
    quick_run,
    sessions,
    start,
    wait_for,
    watched,
)
from fabricate import FabricatedRun

from fsctx.protocol import agents, processes
from fsctx.protocol.agents import AgentState
from fsctx.protocol.hosts import hosts_to_exclude, read_host_failures

SLOW = "fake:rows_per_s=10,batch_tokens=8"


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return quick_run(tmp_path / "run")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a test believe that they run in a Slurm job with two GPUs."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


def states(run: FabricatedRun) -> list[AgentState]:
    return sorted(session.state for session in sessions(run))


def are_at_work(run: FabricatedRun, n: int) -> bool:
    return len([session for session in sessions(run) if session.progress]) == n


def progress_of(run: FabricatedRun) -> int:
    return sum(session.progress for session in sessions(run))


def have_left(run: FabricatedRun, n: int) -> bool:
    return states(run) == [AgentState.LEFT] * n


def is_gone(pid: int) -> bool:
    return processes.started_ticks(pid) is None


def children(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_each_signal_of_a_batch_system_makes_an_agent_save_and_leave(
    run: FabricatedRun, number: signal.Signals
) -> None:
    with watched(agent(run, engine=SLOW)) as one:
        wait_for(lambda: are_at_work(run, 1))
        one.send_signal(signal.SIGCONT)
        one.send_signal(number)
        code, said = end_of(one)
    assert code == 0
    assert f"{number.name} was received" in said
    assert have_left(run, 1)
    finish(run)
    assert_done_once(run)


@pytest.mark.usefixtures("job")
def test_an_agent_leaves_when_what_started_it_is_killed(run: FabricatedRun) -> None:
    with watched(shell_with_agent(run, SLOW)) as shell:
        wait_for(lambda: are_at_work(run, 1))
        shell.kill()
        wait_for(lambda: have_left(run, 1))
    assert [session.why for session in sessions(run)] == ["the process that started it is gone"]


@pytest.mark.usefixtures("job")
def test_an_agent_that_was_detached_outlives_what_started_it(
    run: FabricatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSCTX_DETACHED", "1")
    with watched(shell_with_agent(run, "fake:rows_per_s=40,batch_tokens=8")) as shell:
        wait_for(lambda: are_at_work(run, 1))
        shell.kill()
        progress = progress_of(run)
        wait_for(lambda: progress_of(run) > progress + 1 or have_left(run, 1))
    wait_for(lambda: have_left(run, 1))
    assert [session.why for session in sessions(run)] == ["every unit is done"]
    assert_done_once(run)


def shell_with_agent(run: FabricatedRun, engine: str) -> Process:
    """Start a shell that starts an agent and waits for it: the shell does not pass signals on."""
    code = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    command = ("-m", "fsctx", "agent", str(run.root), "--engine", engine)
    return start("-c", code, *command, run=run)


@pytest.mark.usefixtures("job")
def test_a_pilot_of_two_gpus_has_two_agents_and_ends_when_both_are_done(run: FabricatedRun) -> None:
    code, said = end_of(agent(run, "--device", "all", engine="fake:rows_per_s=200,batch_tokens=8"))
    assert code == 0, said
    records = [agents.read_agent(run.store, name) for name in agents.list_agents(run.store)]
    assert sorted(record.gpu or "" for record in records if record) == ["0", "1"]
    assert have_left(run, 2)
    assert_done_once(run)


@pytest.mark.usefixtures("job")
def test_a_signal_to_a_pilot_reaches_both_of_its_agents(run: FabricatedRun) -> None:
    with watched(agent(run, "--device", "all", engine=SLOW)) as pilot:
        wait_for(lambda: are_at_work(run, 2))
        pilot.send_signal(signal.SIGUSR2)
        code, said = end_of(pilot)
    assert code == 0
    assert said.count("SIGUSR2 was received") == 2
    assert have_left(run, 2)


def test_agents_save_and_leave_when_their_pilot_is_killed(run: FabricatedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # and no job, within which they would see it by themselves
    with watched(agent(run, "--device", "all", engine=SLOW)) as pilot:
        wait_for(lambda: are_at_work(run, 2))
        orphans = children(pilot)
        pilot.kill()
        _, alive = psutil.wait_procs(orphans, timeout=PATIENCE_S)
    assert not alive
    assert [session.why for session in sessions(run)] == ["SIGTERM was received"] * 2
    finish(run)
    assert_done_once(run)


@pytest.mark.usefixtures("job")
def test_an_agent_that_is_killed_is_the_worst_that_its_pilot_tells_of(run: FabricatedRun) -> None:
    with watched(agent(run, "--device", "all", engine=SLOW)) as pilot:
        wait_for(lambda: are_at_work(run, 2))
        children(pilot)[0].kill()
        code, _ = end_of(pilot)
    assert code == 128 + signal.SIGKILL
    assert_done_once(run)


def test_what_an_engine_started_ends_with_the_agent_even_where_its_own_parent_ended() -> None:
    code = """
        import subprocess, sys
        from fsctx.agent.orphans import nobody_left_behind
        with nobody_left_behind():
            subprocess.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], check=True)
            sys.exit(3)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert is_gone(int(done.stdout))


def test_a_child_dies_with_its_parent() -> None:
    code = """
        import os, signal, subprocess, sys
        from fsctx.agent.orphans import dies_with
        end = dies_with(os.getpid(), signal.SIGKILL)
        nothing = subprocess.DEVNULL
        child = subprocess.Popen(["sleep", "600"], stdout=nothing, stderr=nothing, preexec_fn=end)
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    child = int(done.stdout)
    wait_for(lambda: is_gone(child))


@pytest.mark.usefixtures("job")
def test_a_host_that_is_unfit_is_blamed_by_its_own_name_and_left_with_75(run: FabricatedRun) -> None:
    for _ in range(2):
        code, _ = end_of(agent(run, "--failure-delay", "0", engine="fake:unfit=1"))
        assert code == 75
    assert hosts_to_exclude(run.store, "slurm") == ["node7"]
    assert "unfit=1" in read_host_failures(run.store)[0].reason
    assert have_left(run, 2)


@pytest.mark.usefixtures("job")
def test_a_pilot_on_a_bad_host_keeps_the_slot_until_it_is_told_to_leave(run: FabricatedRun) -> None:
    with watched(agent(run, engine="fake:unfit=1")) as one:
        wait_for(lambda: read_host_failures(run.store))
        assert one.poll() is None
        one.terminate()
        code, said = end_of(one)
    assert code == 75
    assert "leaving in 60 s" in said


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--device", "tpu"]])
def test_what_is_to_be_mended_in_the_call_ends_with_2_by_hand_and_with_78_in_a_job(
    run: FabricatedRun, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand, said = end_of(agent(run, *arguments))
    assert by_hand == 2
    assert "Traceback" not in said
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    in_job, said = end_of(agent(run, *arguments))
    assert in_job == 78
    assert len(said.splitlines()) == 1


def test_an_agent_works_without_any_environment_and_without_anybody_who_reads_what_it_says(run: FabricatedRun) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fsctx", "agent", str(run.root), "--engine", "fake"]
    environ = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    done = subprocess.run(
        [*command, "--cache", str(run.root.parent / "cache")], env=environ, stdout=writer, stderr=writer, check=False
    )
    os.close(writer)
    assert done.returncode == 0
    assert_done_once(run)


@pytest.mark.usefixtures("job")
def test_an_agent_leaves_before_its_job_is_ended(run: FabricatedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 5))
    code, said = end_of(agent(run, engine=SLOW))
    assert code == 0
    assert "the walltime is over" in said


@pytest.mark.usefixtures("job")
def test_an_agent_tells_what_its_job_is(run: FabricatedRun) -> None:
    finish(run)
    [record] = [agents.read_agent(run.store, name) for name in agents.list_agents(run.store)]
    assert record is not None
    assert record.job is not None
    assert (record.job.system, record.job.id, record.job.machine, record.job.gpus) == (
        "slurm",
        "7",
        "node7",
        ("0", "1"),
    )
