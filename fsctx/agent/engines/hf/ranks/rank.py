"""One rank: a process that holds its share of a model and computes what it is told, in step with the others."""

import datetime
import logging
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from fsctx.agent.engines.base import Bound, Model
from fsctx.agent.engines.hf.engine import load_on
from fsctx.agent.engines.hf.errors import first_line
from fsctx.agent.engines.hf.ranks.messages import Bind, Encode, Failed, Infer, Job, Loaded
from fsctx.agent.leaving import SIGNALS
from fsctx.agent.orphans import dies_with
from fsctx.errors import EngineError, FsctxError

_TIMEOUT = datetime.timedelta(minutes=10)
"""So long does a rank wait for another one that lives and is out of step. One that ends is noticed at once."""


def serve(job: Job, commands: Connection, rows: Connection | None) -> None:
    """Load, then obey until the pipe closes. Signals are the agent's to obey: it decides when a batch is the last."""
    dies_with(job.parent, signal.SIGKILL)()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if job.rank:
        logging.disable()  # the first one says it
    rank = _Rank(job)
    commands.send(_answer(rank.load))
    if rows is not None:
        threading.Thread(target=_obey, args=(rows, rank), daemon=True).start()
    _obey(commands, rank)


def _obey(pipe: Connection, rank: "_Rank") -> None:
    while True:
        try:
            command = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_answer(lambda command=command: rank.obey(command)))  # type: ignore[misc]  # mypy#12908


def _answer(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or `Failed`; others' errors in words, as not all of them go through a pipe."""
    try:
        return call()
    except FsctxError as error:
        return Failed(error)
    except Exception as error:  # noqa: BLE001 - raised again by whoever asked
        return Failed(EngineError(f"{type(error).__name__}: {first_line(error)}"))


class _Rank:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._model: Model | None = None
        self._bound: dict[int, Bound] = {}

    def load(self) -> Loaded:
        if self._job.split.n_ranks > 1:
            _meet(self._job)
        device = f"cuda:{self._job.rank}" if self._job.device == "cuda" else self._job.device
        self._model = load_on(self._job.files, device=device, dtype=self._job.dtype, split=self._job.split)
        return Loaded(self._model.device, self._model.dtype, self._model.batch_tokens)

    def obey(self, command: Bind | Infer | Encode) -> Any:
        match command:
            case Bind(number=number, task=task):
                assert self._model is not None
                self._bound[number] = self._model.bind(task)
                return None
            case Infer(number=number, batch=batch):
                verdicts = self._bound[number].infer(batch)
                return verdicts if self._job.rank == 0 else None
            case Encode(number=number, rows=rows):
                return self._bound[number].encode(rows)


def _meet(job: Job) -> None:
    """Join the group of ranks: by a file, and on the loopback interface alone."""
    torch.set_num_threads(max(1, torch.get_num_threads() // job.split.n_ranks))
    os.environ.update(RANK=str(job.rank), LOCAL_RANK=str(job.rank), WORLD_SIZE=str(job.split.n_ranks))
    os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    if job.device == "cuda":
        torch.cuda.set_device(job.rank)
    dist.init_process_group(
        "nccl" if job.device == "cuda" else "gloo",
        init_method=f"file://{job.meeting}",
        rank=job.rank,
        world_size=job.split.n_ranks,
        timeout=_TIMEOUT,
    )
