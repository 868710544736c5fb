"""The process that computes, as the agent sees it."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

import psutil

from fsctx.agent.engines.vllm.environment import environment
from fsctx.agent.engines.vllm.messages import Answer, Failed, Job, Loaded, Question
from fsctx.errors import Unfit

_PROGRAM = "fsctx.agent.engines.vllm.serve"


class Computing:
    """A process in which vLLM is resident. Once a call raised `Unfit` it is ended: start another.

    Made by the main thread; one thread at a time may use it.
    """

    def __init__(self, job: Job, *, program: str = _PROGRAM) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="fsctx-vllm-"))
        self._pipe, other = Pipe()
        try:
            self._process = _start(program, other, environment(os.environ, job, self._scratch))
            self._pipe.send(job)
            if not self._pipe.poll(job.options.start_s):
                self._end(f"vLLM did not start within {job.options.start_s:g} s: try another node")
            self.loaded: Loaded = self._receive()
        except BaseException:  # also where the agent is told to leave meanwhile
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer to each question, in order.

        Raises:
            EngineError: vLLM refuses one of them.
            Unfit: it has died.
        """
        with contextlib.suppress(OSError):  # it has ended, which is found at once
            self._pipe.send(list(questions))
        answers: list[Answer] = self._receive()
        return answers

    def close(self) -> None:
        """End it with all that it started, whatever they are doing, and so free the device. Idempotent."""
        family = _family(self._process.pid) if self._process.returncode is None else []
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()
        psutil.wait_procs(family)
        self._pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._end(f"the process of vLLM ended with exit code {self._process.wait()}")
        if isinstance(answer, Failed):
            if isinstance(answer.error, Unfit):
                self.close()
            raise answer.error
        return answer

    def _end(self, reason: str) -> NoReturn:
        self.close()
        raise Unfit(reason)


def _start(program: str, pipe: Connection, environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start it. Its output is no output of the agent; what it says goes to the agent's log."""
    command = [sys.executable, "-m", program, str(os.getpid()), str(pipe.fileno())]
    with pipe:  # its end is the process' alone, so that the pipe ends with it
        return subprocess.Popen(
            command,
            env=environ,
            pass_fds=[pipe.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )


def _family(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants; none where it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
