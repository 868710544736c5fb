"""The process that computes: its start, its answers, its death, with real processes and a model that is none."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import vllm_double

from fsctx.agent.engines.base import UNSPLIT
from fsctx.agent.engines.vllm.messages import Job, Read
from fsctx.agent.engines.vllm.options import VllmOptions
from fsctx.agent.engines.vllm.process import Computing
from fsctx.errors import EngineError, Misconfigured, Unfit

PATHS = os.pathsep.join([str(Path(vllm_double.__file__).parent), *sys.path])


def job(files: str = "m", start_s: float = 60.0) -> Job:
    options = VllmOptions(start_s=start_s)
    return Job(files=Path(files), kind="cpu", index=0, dtype=None, split=UNSPLIT, options=options)


def start(of: Job) -> Computing:
    return Computing(of, program="vllm_double")


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", PATHS)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def computing() -> Iterator[Computing]:
    one = start(job())
    yield one
    one.close()


def ask(computing: Computing, first: int) -> float:
    return computing.ask([Read(ids=(first,), tokens=(5,))])[0][0]


def test_it_says_what_it_loaded_and_answers_in_order(computing: Computing) -> None:
    assert computing.loaded == vllm_double.Double.loaded
    assert computing.ask([Read(ids=(9,), tokens=(5, 6)), Read(ids=(9,), tokens=(7,))]) == [(-5.0, -6.0), (-7.0,)]
    assert computing.ask([]) == []


def test_a_question_that_is_refused_costs_only_itself(computing: Computing) -> None:
    with pytest.raises(EngineError, match="refused"):
        ask(computing, vllm_double.REFUSE)
    assert ask(computing, 9) == -5.0


@pytest.mark.parametrize(
    ("first", "said"), [(vllm_double.DIE, "exit code -9"), (vllm_double.BREAK, "device-side assert")]
)
def test_one_that_dies_or_breaks_is_unfit_from_then_on(computing: Computing, first: int, said: str) -> None:
    with pytest.raises(Unfit, match=said):
        ask(computing, first)
    assert not psutil.pid_exists(computing.pid)
    with pytest.raises(Unfit):
        ask(computing, 9)


def _children() -> set[psutil.Process]:
    """Return this process's descendants; helpers that other tests left running are among them."""
    return set(psutil.Process().children(recursive=True))


def test_a_start_that_hangs_is_given_up(tmp_path: Path) -> None:
    before = _children()
    with pytest.raises(Unfit, match=r"did not start within 0\.5 s"):
        start(job("hangs", start_s=0.5))
    assert _children() <= before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("files", "error"), [("dies", Unfit), ("none", Misconfigured)])
def test_a_start_that_fails_leaves_nothing(tmp_path: Path, files: str, error: type[Exception]) -> None:
    before = _children()
    with pytest.raises(error):
        start(job(files))
    assert _children() <= before
    assert not list(tmp_path.iterdir())


def test_signals_that_tell_agents_to_leave_do_not_end_it(computing: Computing) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        os.kill(computing.pid, number)
    assert ask(computing, 9) == -5.0


def test_closing_ends_also_what_it_started(computing: Computing) -> None:
    child = psutil.Process(int(ask(computing, vllm_double.CHILD)))
    computing.close()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    computing.close()


def test_it_dies_with_an_agent_that_is_killed() -> None:
    code = (
        "import threading; from test_vllm_process import job, start; c = start(job());"
        "print(c.pid, flush=True); threading.Event().wait()"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), PATHS])
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE
    ) as agent:
        assert agent.stdout is not None
        own = psutil.Process(int(agent.stdout.readline()))
        agent.kill()
    deadline = time.monotonic() + 20
    while own.is_running() and own.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        psutil.wait_procs([own], timeout=0.1)
    assert not own.is_running() or own.status() == psutil.STATUS_ZOMBIE
