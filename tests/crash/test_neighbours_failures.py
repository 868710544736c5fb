"""Failures at which neighbouring systems hang, lose work or lie; here, each costs time at most."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from crash.fleet import (
    TESTS,
    agent,
    assert_done_once,
    collect,
    end_of,
    expected,
    finish,
    quick_run,
    sessions,
    start,
    wait_for,
    watched,
)
from e2e.running import events, n_published
from fabricate import FabricatedRun

from fsctx.agent.tail import OFTEN
from fsctx.protocol import agents
from fsctx.protocol.agents import AgentState

SLOW = "fake:rows_per_s=10,batch_tokens=8"
"""All of a run's units take two agents six seconds: they still hold some when what is waited for was seen."""


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return quick_run(tmp_path / "run")


def on_another_host(run: FabricatedRun, *options: str) -> subprocess.Popen[str]:
    """Start an agent whose host has another name: others cannot look its process up."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a host name of one's own needs root")
    environ = {**os.environ, "PYTHONPATH": str(TESTS), "FSCTX_CACHE": str(run.root.parent / "cache-elsewhere")}
    program = 'hostname "$0" && exec "$@"'
    command = [sys.executable, "-m", "fsctx", "agent", str(run.root), *options]
    return subprocess.Popen(
        ["unshare", "--uts", "sh", "-c", program, f"not-{socket.gethostname()}", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        start_new_session=True,
    )


def test_a_worker_killed_alone_on_another_host_is_noticed_within_the_time_to_live(run: FabricatedRun) -> None:
    with watched(on_another_host(run, "--engine", SLOW)) as victim, watched(agent(run, engine=SLOW)) as survivor:
        wait_for(lambda: {session.progress > 0 for session in sessions(run)} == {True} and len(sessions(run)) == 2)
        victim.kill()
        code, said = end_of(survivor)
    assert code == 0, said
    assert_done_once(run)
    assert any(event["generation"] for event in events(run, "leased"))


def test_a_killed_worker_that_nobody_reaped_is_dead_to_the_others(tmp_path: Path) -> None:
    run = quick_run(tmp_path / "run", ttl_s=600.0)
    with watched(agent(run, engine=SLOW)) as victim:
        wait_for(lambda: n_published(run) >= 1)
        victim.send_signal(signal.SIGKILL)
        wait_for(lambda: psutil.Process(victim.pid).status() == psutil.STATUS_ZOMBIE)
        began_s = time.monotonic()
        finish(run)
        assert time.monotonic() - began_s < run.manifest.ttl_s / OFTEN  # when its watcher would look anyway
    assert_done_once(run)


def test_an_engine_that_fails_on_a_row_keeps_its_model_and_names_the_row(run: FabricatedRun) -> None:
    code, said = end_of(agent(run, engine="fake:fail_row=17,load_s=0.2"))
    assert code == 0, said
    [session] = sessions(run)
    assert session.ledger.loads == 1
    rows = collect(run)
    assert [number for number, row in enumerate(rows) if row["status"] != "ok"] == [17]
    assert [row["verdict"] for row in rows if row["status"] == "ok"] == [*expected(run)[:17], *expected(run)[18:]]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_stays_behind_with_the_model(run: FabricatedRun, ending: signal.Signals) -> None:
    with watched(agent(run, engine=f"{SLOW},memory_mb=16")) as victim:
        wait_for(lambda: n_published(run) >= 1)
        victim.send_signal(ending)
        victim.communicate()
        assert [p for p in psutil.pids() if _session_of(p) == victim.pid] == []
    finish(run)
    assert_done_once(run)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def test_agents_go_on_when_the_process_that_submitted_them_is_gone(run: FabricatedRun) -> None:
    submit = ["-m", "fsctx", "submit", str(run.root), "--batch", "local", "-n", "2", "--", "--engine", SLOW]
    with watched(start(*submit, run=run)) as submitter:
        code, said = end_of(submitter)
        assert code == 0, said
    wait_for(lambda: len(sessions(run)) == 2)
    assert all(os.getsid(_pid(run, session.agent)) != submitter.pid for session in sessions(run))
    wait_for(lambda: all(session.state == AgentState.LEFT for session in sessions(run)))
    assert_done_once(run)


def test_a_submission_killed_in_the_middle_leaves_a_run_that_can_be_finished(run: FabricatedRun) -> None:
    submit = ["-m", "fsctx", "submit", str(run.root), "--batch", "local", "-n", "2", "--", "--engine", "fake"]
    with watched(start(*submit, run=run)) as submitter:
        wait_for(lambda: run.store.list("submissions") or agents.list_agents(run.store) or submitter.poll() is not None)
        submitter.kill()
    finish(run)
    assert_done_once(run)
    wait_for(lambda: all(session.state == AgentState.LEFT for session in sessions(run)))


def _pid(run: FabricatedRun, name: str) -> int:
    record = agents.read_agent(run.store, name)
    assert record is not None
    return record.process.pid
