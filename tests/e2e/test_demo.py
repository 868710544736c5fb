"""The demo as a user calls it, with the fake model: an agent is killed, nothing is lost, nobody stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from e2e.running import wait_until

from fsctx.protocol import processes
from fsctx.protocol.agents import list_agents, read_agent
from fsctx.store import PosixStore

COMMAND = (sys.executable, "-m", "fsctx", "demo")


def run_demo(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def demo_going_on(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A demo whose two agents are at work."""
    demo = subprocess.Popen(
        [*COMMAND, str(folder), "--model", "fake", "--claims", "120"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    store = PosixStore(folder / "run-1")
    try:
        wait_until(lambda: len(list_agents(store)) == 2 and all(read_agent(store, a) for a in list_agents(store)))
        yield demo
    finally:
        if demo.poll() is None:
            demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)


def survivors(run: Path) -> list[str]:
    store = PosixStore(run)
    records = [read_agent(store, agent) for agent in list_agents(store)]
    return [record.agent for record in records if record is None or not processes.is_dead(record.process)]


@pytest.mark.slow
def test_every_claim_is_there_once_although_an_agent_was_killed(tmp_path: Path) -> None:
    done = run_demo(str(tmp_path / "demo"), "--model", "fake", "--claims", "120")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Killing" in done.stdout
    assert "each claim once, 0 missing, 0 twice" in done.stdout
    table = pq.read_table(tmp_path / "demo" / "verdicts-1.parquet")
    assert table["id"].to_pylist() == list(range(1, 121))
    assert pc.max(table["generation"]).as_py() >= 1
    assert len(set(table["agent"].to_pylist())) == 2
    assert (tmp_path / "demo" / "report-1.html").stat().st_size > 0
    assert survivors(tmp_path / "demo" / "run-1") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_interrupted_ends_its_agents(tmp_path: Path, number: signal.Signals) -> None:
    with demo_going_on(tmp_path / "demo") as demo:
        os.kill(demo.pid, number)
        _, said = demo.communicate(timeout=60)
    assert (demo.returncode, said.strip()) == (130, "fsctx: interrupted")
    assert survivors(tmp_path / "demo" / "run-1") == []


@pytest.mark.slow
def test_a_demo_without_agents_left_says_where_to_look(tmp_path: Path) -> None:
    store = PosixStore(tmp_path / "demo" / "run-1")
    with demo_going_on(tmp_path / "demo") as demo:
        for agent in list_agents(store):
            record = read_agent(store, agent)
            assert record is not None
            os.kill(record.process.pid, signal.SIGKILL)
        _, said = demo.communicate(timeout=60)
    assert demo.returncode == 3
    assert "all agents are gone" in said
    assert "look into" in said


def test_a_folder_of_somebody_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = run_demo(str(tmp_path), "--model", "fake")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_model_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run_demo(str(tmp_path / "demo"), "--model", str(tmp_path / "no.gguf"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no.gguf does not exist" in done.stderr
