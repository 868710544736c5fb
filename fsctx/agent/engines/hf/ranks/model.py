"""A model in processes of its own, as the agent sees it: one. The agent's own process computes nothing."""

import contextlib
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fsctx.agent.engines.base import Bound, BoundTask, Encoded, Row, Split
from fsctx.agent.engines.hf.ranks.messages import Bind, Encode, Failed, Infer, Job, Loaded
from fsctx.agent.engines.hf.ranks.rank import serve
from fsctx.errors import OutOfMemory, Unfit
from fsctx.protocol.verdicts import Verdict

STRAGGLERS_S = 10.0
"""Ranks compute in step: where one failed and another is not ready after so long, it waits for the one for ever."""


class MultiRank:
    """See `Model`. If a rank ends or fails alone, all are ended, and every call raises `Unfit`: load it again."""

    def __init__(
        self, files: Path, *, device: str, dtype: str | None, split: Split, most_tokens: int | None = None
    ) -> None:
        self.ran_out = False
        """Whether the ranks were ended because one of them, alone, ran out of memory."""
        self._split = split
        self._ranks: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._n_bound = 0
        self._encoding = threading.Lock()
        try:
            with tempfile.TemporaryDirectory(prefix="fsctx-ranks-") as folder:
                self._rows = self._start(files, device=device, dtype=dtype, meeting=Path(folder) / "meeting")
                found: list[Loaded] = self.collect()
        except BaseException:  # also where the agent is told to leave meanwhile
            self.close()
            raise
        self.device = found[0].device if split.n_ranks == 1 else f"{split.n_ranks} × {found[0].device}"
        self.dtype = found[0].dtype
        self.batch_tokens = min(loaded.batch_tokens for loaded in found)
        if most_tokens is not None:
            self.batch_tokens = max(1, min(self.batch_tokens, most_tokens))

    @property
    def pids(self) -> list[int]:
        """The processes of the ranks."""
        return [rank.pid for rank in self._ranks if rank.pid is not None]

    def bind(self, task: BoundTask) -> Bound:
        """See `Model.bind`."""
        number = self._n_bound
        self._n_bound += 1
        self.ask(Bind(number, task))
        return _Bound(self, number)

    def close(self) -> None:
        """See `Model.close`. Frees all devices at once, whatever the ranks are doing."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.join()
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()

    def ask(self, command: Bind | Infer) -> Any:
        """Have all ranks do something and return what the first of them answers."""
        for number in range(len(self._pipes)):
            self.tell(number, command)
        return self.collect()[0]

    def tell(self, number: int, command: Bind | Infer) -> None:
        """Have one rank do something. The others must be told the same: they compute in step."""
        with contextlib.suppress(OSError):  # it has ended, which `collect` finds
            self._pipes[number].send(command)

    def encode(self, command: Encode) -> list[Encoded]:
        """Have the first rank encode rows, on any thread, while it computes."""
        with self._encoding:
            try:
                self._rows.send(command)
                answer = self._rows.recv()
            except (OSError, EOFError):
                raise Unfit("the process that encodes rows has ended") from None
        if isinstance(answer, Failed):
            raise answer.error
        encoded: list[Encoded] = answer
        return encoded

    def _start(self, files: Path, *, device: str, dtype: str | None, meeting: Path) -> Connection:
        context = multiprocessing.get_context("spawn")  # the agent has threads by now, and forks of those can't be used
        n_ranks = self._split.n_ranks
        rows, rows_of_rank = context.Pipe()
        for number in range(n_ranks):
            pipe, pipe_of_rank = context.Pipe()
            job = Job(
                rank=number,
                split=self._split,
                files=files,
                device=device,
                dtype=dtype,
                meeting=meeting,
                parent=os.getpid(),
            )
            arguments = (job, pipe_of_rank, None if number else rows_of_rank)
            rank = context.Process(target=serve, args=arguments, daemon=True, name=f"rank {number}")
            rank.start()
            pipe_of_rank.close()  # so that the pipe ends with the rank
            self._pipes.append(pipe)
            self._ranks.append(rank)
        rows_of_rank.close()
        return rows

    def collect(self) -> list[Any]:
        """Return one answer of each rank.

        Raises:
            Unfit: a rank has ended, or failed alone; they are all ended now.
            EngineError, …: what all of them raised; running out of memory before anything else.
        """
        waiting = {pipe: number for number, pipe in enumerate(self._pipes)}
        answers: dict[int, Any] = {}
        if not waiting:
            raise Unfit("the ranks have ended")
        while waiting:
            failed = [answer.error for answer in answers.values() if isinstance(answer, Failed)]
            ready = wait(list(waiting), timeout=STRAGGLERS_S if failed else None)
            if not ready:
                self.ran_out = isinstance(failed[0], OutOfMemory)
                self._end(f"rank {min(waiting.values())} waits for one that failed ({failed[0]})")
            for pipe in ready:
                number = waiting.pop(pipe)  # type: ignore[call-overload]  # only connections were waited for
                answers[number] = self._answer(number)
        failed = [answer.error for answer in answers.values() if isinstance(answer, Failed)]
        if failed:
            raise next((error for error in failed if isinstance(error, OutOfMemory)), failed[0])
        return [answers[number] for number in range(len(answers))]

    def _answer(self, number: int) -> Any:
        try:
            return self._pipes[number].recv()
        except (EOFError, OSError):
            self._ranks[number].join()
            self._end(f"rank {number} ended with exit code {self._ranks[number].exitcode}")

    def _end(self, reason: str) -> None:
        self.close()
        raise Unfit(f"{reason}: the {self._split.n_ranks} ranks of the model were ended")


class _Bound:
    """See `Bound`."""

    def __init__(self, model: MultiRank, number: int) -> None:
        self._model = model
        self._number = number

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return self._model.encode(Encode(self._number, rows)) if rows else []

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        verdicts: list[Verdict] = self._model.ask(Infer(self._number, batch))
        return verdicts
